"""A few replicas under one seed: virtual time, a network that loses, duplicates and reorders, disks that lose writes.

Each event is followed by a check of the replica's invariants and of its output: no slot has two values (PAX-3); a
quorum has durably accepted each chosen value (PAX-6); slots arrive in order, and a snapshot is the state after the
chosen values up to its slot (PAX-11); a confirmed read includes every value that was chosen before it (PAX-10).

Fewer than half of the replicas may have lost their disks at a time. Until such a replica has joined again, the check of
PAX-6 counts the values on its lost disk: the other replicas must have made sure that they survive.
"""

from __future__ import annotations

import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import ge
from typing import Any
from zlib import crc32

from logdb.cores.effects import (
    MILLISECOND,
    CancelTimer,
    Create,
    Journal,
    Persist,
    Persisted,
    Received,
    Send,
    SetTimer,
    TimerFired,
    Trim,
)
from logdb.log.contract import LogRecord, Record
from logdb.log.paxos import Chosen, Config, Confirmed, Deposed, Elected, NotLeader, Outcome, Replica, Restore, records
from logdb.log.paxos.messages import NO_BALLOT, Accepted, JoinReply, MemberEnvelope, Prepare, Promise

CONFIG = Config(
    election_ns=100 * MILLISECOND,
    heartbeat_ns=25 * MILLISECOND,
    batch_bytes=200,
    window=4,
    retain_bytes=150,
    buffer_bytes=50,
)
SHORT_ELECTIONS = replace(CONFIG, election_ns=50 * MILLISECOND)
BINDING = (Promise, Accepted, JoinReply)


def _binds(message: Any) -> bool:
    return isinstance(message.message if isinstance(message, MemberEnvelope) else message, BINDING)


def state_after(state: int, value: bytes) -> int:
    """The state machine: a checksum of all values in their order."""
    return crc32(value, state)


class Medium:
    """The journal of one replica. A crash keeps the records before `durable` and a prefix of the others. `unsynced`:
    the writes that are not durable, each as its time and its end."""

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        self.exists = False
        self.first = self.durable = 1
        self.records: list[Record] = []
        self.accepted: dict[int, bytes] = {}
        self.restorable = 0
        self.promised = NO_BALLOT
        self.roster: tuple[int, ...] = ()
        self.unsynced: deque[tuple[int, int]] = deque()

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    @property
    def unsynced_bytes(self) -> int:
        """The size of the accepted values that are not durable."""
        written = self.records[self.durable - self.first :]
        accepted = [records.read_accepted(payload)[3] for tag, payload in written if tag == records.ACCEPTED]
        return sum([len(value) for values in accepted for value in values])

    def write(self, effect: Persist, now: int) -> None:
        assert self.exists
        assert effect.first == self.end, "a journal has no gaps"
        self.records += effect.records
        self.unsynced.append((now, self.end))

    def sync(self, end: int) -> None:
        """Make the records before `end` durable."""
        for number in range(self.durable, end):
            tag, payload = self.records[number - self.first]
            if tag == records.ACCEPTED:
                ballot, _, first, values = records.read_accepted(payload)
                self.accepted.update(enumerate(values, first))
                self.promised = max(self.promised, ballot)
            elif tag == records.PROMISE:
                self.promised = max(self.promised, records.read_promise(payload))
            elif tag == records.SNAPSHOT:
                self.restorable = records.read_snapshot(payload)[0]
            elif tag == records.MEMBER:
                self.roster = records.read_member(payload).roster
        self.durable = max(self.durable, end)
        while self.unsynced and self.unsynced[0][1] <= end:
            self.unsynced.popleft()

    def trim(self, before: int) -> None:
        """Remove whole files of records before `before`; some of them may stay."""
        assert before <= self.end
        before -= before % self.quantum
        if before > self.first:
            del self.records[: before - self.first]
            self.first = before

    def crash(self, rng: random.Random) -> None:
        keep = rng.randint(min(self.durable, self.end), self.end)
        del self.records[keep - self.first :]
        self.durable = min(self.durable, self.end)
        self.sync(self.end)
        self.unsynced.clear()

    def holds(self, slot: int, value: bytes) -> bool:
        return slot <= self.restorable or self.accepted.get(slot) == value

    def journal(self) -> Journal | None:
        if not self.exists:
            return None
        kept = [LogRecord(number, 0, *record) for number, record in enumerate(self.records, self.first)]
        return Journal(self.first, self.end, kept)


class Node:
    """A replica, its embedding core (which keeps a state and compacts now and then) and its host.

    `chosen_at_prepare`: the last slot that was chosen when the replica sent Prepare. `promised`: the highest ballot of
    all promises that the replica has sent with this disk, across restarts. `lost`: the disks that the replica has lost
    since it was last a member, the oldest first. `held_until`: the disk syncs nothing before. `has_joined`: the replica
    is a member, also after a crash.
    """

    def __init__(self, address: str, quantum: int) -> None:
        self.address = address
        self.medium = Medium(quantum)
        self.replica: Replica | None = None
        self.life = 0
        self.paused_until = self.held_until = 0
        self.timers: dict[str, int] = {}
        self.syncing = False
        self.applied = self.state = 0
        self.leads = False
        self.chosen_at_prepare = 0
        self.promised = NO_BALLOT
        self.lost: list[Medium] = []
        self.has_joined = False


class Cluster:
    """`size` replicas. `loss`, `duplication` and `late_delivery` (by up to half a second) are probabilities for each
    message; `delay_ns` is the maximum delay of other messages.

    Probabilities of faults at the worst moment: `crashing`: a replica that has sent a promise or a vote crashes, and
    restarts soon in a network without partitions. `isolating`: a leader is partitioned after it has learnt that a value
    is chosen. `wiping`: a replica that has sent a promise loses its disk while copies of the promise are in flight for
    a long time, and restarts soon with other partitions, or none; the candidate may crash and restart as well.
    """

    def __init__(self, size: int, seed: int, config: Config = CONFIG, compact_bytes: int = 300) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000 * MILLISECOND
        self.config, self.compact_bytes = config, compact_bytes
        self.members = [f"r{index}" for index in range(size)]
        self.nodes = {address: Node(address, self.rng.choice((1, 7))) for address in self.members}
        self.quorum = size // 2 + 1
        self.loss = self.duplication = self.late_delivery = self.crashing = self.isolating = self.wiping = 0.0
        self.delay_ns = 2 * MILLISECOND
        self.sync_ns = 3 * MILLISECOND
        self.cut: set[tuple[str, str]] = set()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._tie = 0
        self.values: dict[int, bytes] = {}
        self.states = {0: 0}
        self.confirmed: list[int] = []
        self._chosen_at_read: dict[int, int] = {}
        self.sent: dict[str, int] = {}
        self.proposed = self.wiped = 0

    # ---- time

    def later(self, delay: int, action: Callable[[], None]) -> None:
        self._tie += 1
        heapq.heappush(self._queue, (self.now + delay, self._tie, action))

    def run(self, duration: int) -> None:
        """Let `duration` ns pass."""
        until = self.now + duration
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = until

    def run_until(self, condition: Callable[[], Any], timeout_ns: int) -> None:
        """Let time pass until the condition is true, at most `timeout_ns`."""
        until = self.now + timeout_ns
        while not condition():
            assert self.now < until, "PAX-L: the condition did not become true"
            self.run(5 * MILLISECOND)

    # ---- nodes

    def start(self, address: str) -> None:
        node = self.nodes[address]
        node.life += 1
        node.applied = node.state = 0
        node.leads, node.syncing = False, False
        node.timers = {}
        node.replica = Replica(
            address, self.members, node.medium.journal(), random.Random(self.rng.random()), self.config
        )
        self._perform(node, node.replica.start(self.now))

    def start_all(self) -> None:
        for address in self.members:
            self.revive(address)

    def crash(self, address: str) -> None:
        node = self.nodes[address]
        if node.replica is not None:
            node.life += 1
            node.replica = None
            node.medium.crash(self.rng)

    def wipe(self, address: str) -> bool:
        """Crash a replica and remove its disk, if there are enough other members. Returns whether it did."""
        node = self.nodes[address]
        if sum(other.has_joined for other in self.nodes.values() if other is not node) < self.quorum:
            return False
        self.crash(address)
        node.lost.append(node.medium)
        node.medium = Medium(node.medium.quantum)
        node.promised, node.has_joined = NO_BALLOT, False
        self.wiped += 1
        return True

    def feed(self, node: Node, life: int, event: Any) -> None:
        if node.replica is None or node.life != life:
            return
        if self.now < node.paused_until:
            self.later(node.paused_until - self.now, lambda: self.feed(node, life, event))
            return
        if isinstance(event, TimerFired) and node.timers.get(event.name, 0) > self.now:
            return
        out = node.replica.handle(event, self.now)
        self._perform(node, out)
        if isinstance(event, TimerFired) and node.leads and node.medium.unsynced:
            lag = self.now - max(node.medium.unsynced[0][0], node.paused_until)
            longest = 2 * (self.config.election_ns + self.config.heartbeat_ns)
            is_full = node.medium.unsynced_bytes > self.config.buffer_bytes
            assert lag <= longest or not is_full, f"PAX-19: {node.address} leads, and its disk lags {lag} ns"
        self._exchange_commits(node)
        if node.leads and any(isinstance(effect, Chosen) for effect in out) and self.rng.random() < self.isolating:
            self.isolate(node.address)
        self._lose_promise(node, out)
        binds = any(isinstance(effect, Send) and _binds(effect.message) for effect in out)
        if binds and self.rng.random() < self.crashing:
            self.crash(node.address)
            self.cut.clear()
            self.later(self.rng.randrange(self.delay_ns), lambda: self.revive(node.address))

    def _lose_promise(self, node: Node, out: list[Outcome]) -> None:
        for effect in out:
            if isinstance(effect, Send) and isinstance(effect.message, MemberEnvelope):
                to, inner = effect
                if isinstance(inner.message, Promise) and self.rng.random() < self.wiping and self.wipe(node.address):
                    self.partition_randomly()
                    if self.rng.random() < 0.5:
                        self.crash(to)
                    for address in (node.address, to):
                        self.later(self.rng.randrange(self.delay_ns), partial(self.revive, address))
                    for _ in range(8):
                        delay = self.rng.randrange(4 * self.config.election_ns)
                        self.later(delay, partial(self._deliver_late, to, Received(node.address, inner)))
                    return

    def _deliver_late(self, address: str, event: Received) -> None:
        """Deliver a message of a former incarnation."""
        self.feed(self.nodes[address], self.nodes[address].life, event)

    def partition_randomly(self) -> None:
        """Replace the partitions by none or a random one."""
        side = set(self.rng.sample(self.members, self.rng.randrange(len(self.members))))
        self.cut = {(a, b) for a in self.members for b in self.members if (a in side) != (b in side)}
        self.later(self.rng.randrange(3 * self.config.election_ns), self.cut.clear)

    def isolate(self, address: str) -> None:
        """Disconnect only this replica."""
        self.cut = {pair for other in self.members for pair in ((address, other), (other, address))}

    def revive(self, address: str) -> None:
        if self.nodes[address].replica is None:
            self.start(address)

    # ---- the embedding core's calls

    def leaders(self) -> list[str]:
        return [node.address for node in self.nodes.values() if node.replica and node.replica.is_leader]

    def propose(self, address: str) -> bytes | None:
        """Propose a new value. Returns it, or None if the replica rejects it."""
        node = self.nodes[address]
        if node.replica is None or self.now < node.paused_until:
            return None
        value = b"%d." % self.proposed + bytes(self.rng.randrange(60))
        try:
            out = node.replica.propose(value, self.now)
        except NotLeader:
            return None
        self.proposed += 1
        self._perform(node, out)
        self._exchange_commits(node)
        return value

    def read_index(self, address: str) -> int:
        """Call the replica's `read_index`. Returns the token, which `confirmed` contains after the confirmation."""
        node, token = self.nodes[address], len(self._chosen_at_read)
        self._chosen_at_read[token] = max(self.values, default=0)
        self._read_index(node, token)
        return token

    def _read_index(self, node: Node, token: int) -> None:
        if self.now < node.paused_until:
            self.later(node.paused_until - self.now, lambda: self._read_index(node, token))
        elif node.replica is not None:
            with contextlib.suppress(NotLeader):
                self._perform(node, node.replica.read_index(token, self.now))

    def _exchange_commits(self, node: Node) -> None:
        """The end of an event: a leader informs the replicas that wait; sometimes this one begins or ceases to wait."""
        assert node.replica is not None
        self._perform(node, node.replica.send_commits())
        if self.rng.random() < 0.2:
            self._perform(node, node.replica.await_commit(self.rng.random() < 0.5, self.now))

    # ---- the host

    def _perform(self, node: Node, out: list[Outcome]) -> None:
        assert node.replica is not None
        for effect in out:
            match effect:
                case Send(to, message):
                    self._send(node.address, to, message)
                case Persist():
                    self._check_ballots(node, effect)
                    node.medium.write(effect, self.now)
                    self._sync(node)
                case Create():
                    assert not node.medium.exists
                    node.medium.exists = True
                case Trim(_, before):
                    node.medium.trim(before)
                case SetTimer(name, at):
                    self._set_timer(node, name, at)
                case CancelTimer(name):
                    node.timers.pop(name, None)
                case _:
                    self._notice(node, effect)
        node.replica.check_invariants()
        if node.replica.has_joined and not node.has_joined:
            node.has_joined = True
            node.lost.clear()
        if node.replica.uncompacted_bytes >= self.compact_bytes and node.replica.chosen == node.applied:
            self._perform(node, node.replica.compact(node.applied, b"%500d" % node.state, self.now))

    def _send(self, sender: str, to: str, message: Any) -> None:
        assert to != sender
        inner = message.message if isinstance(message, MemberEnvelope) else message
        if isinstance(inner, Prepare):
            self.nodes[sender].chosen_at_prepare = max(self.values, default=0)
        if isinstance(inner, Promise):
            node = self.nodes[sender]
            assert node.medium.promised >= inner.ballot, "PAX-1: a promise is sent before it is durable"
            node.promised = max(node.promised, inner.ballot)
        if isinstance(inner, JoinReply):
            durable = self.nodes[sender].medium.roster
            kept = bool(durable) and all(map(ge, durable, inner.roster))
            assert kept, "PAX-15: an admission is sent before it is durable"
        name = type(inner).__name__
        self.sent[name] = self.sent.get(name, 0) + 1
        copies = 1 + (self.rng.random() < self.duplication)
        for _ in range(copies):
            if (sender, to) not in self.cut and self.rng.random() >= self.loss:
                node = self.nodes[to]
                delay = 500 * MILLISECOND if self.rng.random() < self.late_delivery else self.delay_ns
                self.later(self.rng.randrange(delay), lambda: self._arrive(node, sender, message))

    def _arrive(self, node: Node, sender: str, message: Any) -> None:
        if (sender, node.address) not in self.cut:
            self.feed(node, node.life, Received(sender, message))

    def _set_timer(self, node: Node, name: str, at: int) -> None:
        life, node.timers[name] = node.life, at
        self.later(max(0, at - self.now), lambda: self._expire_timer(node, life, name, at))

    def _expire_timer(self, node: Node, life: int, name: str, at: int) -> None:
        if node.life == life and node.timers.get(name) == at:
            self.feed(node, life, TimerFired(name))

    def _sync(self, node: Node) -> None:
        if not node.syncing:
            node.syncing = True
            life = node.life
            self.later(self.rng.randrange(self.sync_ns), lambda: self._begin_sync(node, life))

    def _begin_sync(self, node: Node, life: int) -> None:
        end = node.medium.end
        self.later(self.rng.randrange(1, self.sync_ns), lambda: self._end_sync(node, life, end))

    def _end_sync(self, node: Node, life: int, end: int) -> None:
        if node.life != life or node.replica is None:
            return
        if self.now < node.held_until:
            self.later(5 * MILLISECOND, lambda: self._end_sync(node, life, end))
            return
        node.syncing = False
        node.medium.sync(end)
        if node.medium.end > end:
            self._sync(node)
        self.feed(node, life, Persisted("paxos", end))

    # ---- checks

    def _notice(self, node: Node, notice: Any) -> None:
        match notice:
            case Chosen(slot, value):
                assert slot == node.applied + 1, f"PAX-11: {slot} after {node.applied}"
                self._check_chosen(slot, value)
                node.applied, node.state = slot, state_after(node.state, value)
                assert self.states.setdefault(slot, node.state) == node.state, "PAX-3"
            case Restore(slot, snapshot):
                assert slot > node.applied, "PAX-11"
                assert int(snapshot) == self.states.get(slot), f"PAX-11: another snapshot of slot {slot}"
                node.applied, node.state = slot, int(snapshot)
            case Confirmed(token, slot):
                chosen = self._chosen_at_read[token]
                assert slot >= chosen, f"PAX-10: {slot}, but {chosen} had been chosen"
                assert node.applied >= slot, "PAX-10"
                self.confirmed.append(token)
            case Elected():
                assert not node.leads, "elected twice"
                node.leads = True
                assert node.applied >= node.chosen_at_prepare, "PAX-9"
            case Deposed():
                assert node.leads, "deposed, but never elected"
                node.leads = False
            case _:
                raise AssertionError(notice)

    def _check_ballots(self, node: Node, effect: Persist) -> None:
        """PAX-2. Records that are written again after a snapshot may have older ballots."""
        for tag, payload in effect.records:
            if tag == records.ACCEPTED and effect.records[0][0] != records.SNAPSHOT:
                ballot = records.read_accepted(payload)[0]
                assert ballot >= node.promised, f"PAX-2: accepts for {ballot}, promised {node.promised}"

    def _check_chosen(self, slot: int, value: bytes) -> None:
        if slot in self.values:
            assert self.values[slot] == value, f"PAX-3: slot {slot}"
            return
        assert value not in self.values.values(), f"PAX-4: {value!r} has two slots"
        holders = sum(
            any(medium.holds(slot, value) for medium in (node.medium, *node.lost)) for node in self.nodes.values()
        )
        assert holders >= self.quorum, f"PAX-6: slot {slot} is durable at {holders} only"
        self.values[slot] = value
