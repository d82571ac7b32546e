"""Replicas in scripted orders of events: the dangers of a lost disk, step by step.

Nothing happens except by a step: a delivery between some replicas, a timer that expires, a disk that is lost. Writes
are durable at once. A message that is not delivered stays pending."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from logdb.cores.effects import MILLISECOND, Journal, Persist, Persisted, Received, Send, SetTimer, TimerFired
from logdb.log.contract import LogRecord
from logdb.log.paxos import Chosen, Config, Replica
from logdb.log.paxos.messages import MemberEnvelope, Prepare, Promise

CONFIG = Config(heartbeat_ns=MILLISECOND)


class Story:
    """`pending`: (sender, receiver, message) of messages that were not delivered. `values`: the chosen values by slot,
    the same for all (PAX-3)."""

    def __init__(self, members: str, *, begun: bool = True) -> None:
        self.members = members
        self.now = 0
        self.disks: dict[str, list[LogRecord]] = {name: [] for name in members}
        self.replicas: dict[str, Replica] = {}
        self.pending: list[tuple[str, str, Any]] = []
        self.timers: dict[str, dict[str, int]] = {name: {} for name in members}
        self.values: dict[int, bytes] = {}
        for name in members:
            self.start(name)
        if not begun:
            return
        self.exchange(members)
        self.elect("a", members)
        self.propose("a", b"first", members)
        self.heartbeat("a", members)

    # ---- the steps of a story

    def start(self, name: str) -> None:
        disk = self.disks[name]
        journal = Journal(1, len(disk) + 1, list(disk)) if disk else None
        self.timers[name] = {}
        replica = Replica(name, tuple(self.members), journal, random.Random(f"{name} {self.now}"), CONFIG)
        self.replicas[name] = replica
        self._perform(name, replica.start(self.now))

    def restart(self, name: str) -> None:
        """Kill a replica and start it again."""
        self.now += MILLISECOND
        self.start(name)

    def wipe(self, name: str) -> None:
        """Kill a replica, remove its disk, and start it again."""
        self.disks[name].clear()
        self.restart(name)

    def exchange(self, among: str) -> None:
        """Deliver all messages between these replicas, including those sent meanwhile."""
        self.deliver(lambda sender, to, message: sender in among and to in among, again=True)

    def drop_pending(self) -> None:
        """Drop all pending messages."""
        self.pending.clear()

    def deliver(self, selects: Callable[[str, str, Any], bool], *, again: bool = False) -> None:
        """Deliver the messages that `selects` returns True for; with `again`, also those sent meanwhile."""
        while found := [message for message in self.pending if selects(*message)]:
            self.pending = [message for message in self.pending if not selects(*message)]
            for sender, to, message in found:
                self._perform(to, self.replicas[to].handle(Received(sender, message), self.now))
            if not again:
                return

    def deliver_kind(self, kind: type, sender: str, to: str) -> None:
        """Deliver the messages of this kind."""
        self.deliver(lambda *sent: sent[:2] == (sender, to) and isinstance(getattr(sent[2], "message", None), kind))

    def fire(self, name: str, timer: str) -> None:
        """Let a timer expire."""
        self.now = max(self.now, self.timers[name][timer])
        self._perform(name, self.replicas[name].handle(TimerFired(timer), self.now))

    def elect(self, name: str, among: str) -> None:
        """Let the election timeouts of `among` expire; `name` becomes their leader."""
        self.pre_vote(name, among)
        self.exchange(among)
        assert self.replicas[name].is_leader

    def pre_vote(self, name: str, among: str) -> None:
        """`name` gets the pre-votes of `among` and sends Prepare. The previous leader has not received it yet."""
        before = self.timers[name]["paxos.election"]
        self.fire(name, "paxos.election")
        if self.timers[name]["paxos.election"] > before and not self.pending:
            self.fire(name, "paxos.election")
        for other in among.replace(name, ""):
            self.deliver(lambda sender, to, _, other=other: (sender, to) == (name, other))  # type: ignore[misc]
            self.deliver(lambda sender, to, _, other=other: (sender, to) == (other, name))  # type: ignore[misc]

    def propose(self, name: str, value: bytes, among: str) -> None:
        """A leader, possibly deposed, proposes a value to `among`."""
        self._perform(name, self.replicas[name].propose(value, self.now))
        self.exchange(among)

    def heartbeat(self, name: str, among: str) -> None:
        self.fire(name, "paxos.heartbeat")
        self.exchange(among)

    def join_request(self, name: str, among: str) -> None:
        """Repeat the join request of `name`, until it has joined."""
        for _ in range(3):
            if not self.replicas[name].has_joined:
                self.fire(name, "paxos.join")
            self.exchange(among)

    def compact(self, name: str, slot: int) -> None:
        """`name` saves a snapshot and trims its journal."""
        end = len(self.disks[name])
        self._perform(name, self.replicas[name].compact(slot, b"snapshot", self.now))
        self.disks[name] = [LogRecord(at, 0, *it[2:]) for at, it in enumerate(self.disks[name][end:], 1)]

    # ---- the host

    def _perform(self, name: str, out: list[Any]) -> None:
        end = 0
        for effect in out:
            match effect:
                case Send(to, message):
                    self.pending.append((name, to, message))
                case Persist(_, first, records):
                    assert first == len(self.disks[name]) + 1
                    self.disks[name] += [LogRecord(first + at, 0, *record) for at, record in enumerate(records)]
                    end = len(self.disks[name]) + 1
                case SetTimer(timer, at):
                    self.timers[name][timer] = at
                case Chosen(slot, value):
                    assert self.values.setdefault(slot, value) == value, f"PAX-3: two values for slot {slot}"
        self.replicas[name].check_invariants()
        if end:
            self._perform(name, self.replicas[name].handle(Persisted("paxos", end), self.now))


def one_starts_late() -> Story:
    """c starts after a and b have exchanged messages; then all three do."""
    story = Story("abc", begun=False)
    story.join_request("a", "ab")
    assert not any(replica.has_joined for replica in story.replicas.values()), "PAX-14: founded by two of three"
    story.exchange("abc")
    story.elect("b", "abc")
    story.propose("b", b"first", "abc")
    story.propose("b", b"second", "abc")
    return story


def a_snapshot_is_taken() -> Story:
    """c restarts with only a snapshot in its journal, and keeps its membership."""
    story = Story("abc")
    story.propose("a", b"second", "abc")
    story.heartbeat("a", "abc")
    story.compact("c", 2)
    story.restart("c")
    assert story.replicas["c"].cluster == story.replicas["a"].cluster, "PAX-14: a member that does not know it"
    return story


# ---- the stories. Initially a leads, and all replicas have the first value


def a_promise_outlives_its_disk(promise_comes_first: bool) -> Story:
    """e prepares a ballot. c promises and loses its disk; its promise is pending. a, b and d, which do not know that
    ballot, admit c, and c votes for the proposal of a. Then d promises as well."""
    story = Story("abcde")
    story.pre_vote("e", "cde")
    story.heartbeat("a", "abd")
    story.deliver_kind(Prepare, "e", "c")
    story.wipe("c")
    prepared = [message for message in story.pending if isinstance(message[2], MemberEnvelope)]
    story.pending = [message for message in story.pending if message not in prepared]
    story.join_request("c", "abcd")
    story.heartbeat("a", "abc")
    story.propose("a", b"second", "abc")
    story.join_request("c", "abc")
    assert story.replicas["c"].has_joined
    assert story.values[2] == b"second"
    story.pending = prepared
    if promise_comes_first:
        story.deliver_kind(Promise, "c", "e")
    story.deliver_kind(Prepare, "e", "d")
    story.deliver_kind(Promise, "d", "e")
    story.deliver_kind(Promise, "c", "e")
    story.drop_pending()
    if story.replicas["e"].is_leader:
        story.propose("e", b"other", "bcde")
    assert not story.replicas["e"].is_leader
    return story


def an_old_leader_admits_a_replica() -> Story:
    """b leads with c, unknown to a. c loses its disk and is connected only to a."""
    story = Story("abc")
    story.elect("b", "bc")
    story.propose("b", b"second", "bc")
    story.drop_pending()
    story.wipe("c")
    story.join_request("c", "ac")
    story.propose("a", b"other", "ac")
    story.drop_pending()
    assert not story.replicas["c"].has_joined
    return story


def an_old_leader_continues() -> Story:
    """As in `an_old_leader_admits_a_replica`, but b also replies once."""
    story = Story("abc")
    story.elect("b", "bc")
    story.propose("b", b"second", "bc")
    story.drop_pending()
    story.wipe("c")
    for _ in range(3):
        story.fire("c", "paxos.join")
        story.deliver(
            lambda sender, to, message: not isinstance(message, MemberEnvelope) and "c" in (sender, to), again=True
        )
        story.drop_pending()
    story.heartbeat("a", "ac")
    if story.replicas["a"].is_leader:
        story.propose("a", b"other", "ac")
    return story


def the_leader_dies() -> Story:
    """b leads with c, which loses its disk and is admitted by a and b. Then b dies before it sends anything else."""
    story = Story("abc")
    story.elect("b", "bc")
    story.propose("b", b"second", "bc")
    story.drop_pending()
    story.wipe("c")
    for _ in range(3):
        if not story.replicas["c"].has_joined:
            story.fire("c", "paxos.join")
        story.deliver(
            lambda sender, to, message: not isinstance(message, MemberEnvelope) and "c" in (sender, to), again=True
        )
        story.drop_pending()
    story.heartbeat("a", "ac")
    for _ in range(3):
        story.now += 2 * CONFIG.election_ns
        story.fire("a", "paxos.election")
        story.exchange("ac")
    if story.replicas["a"].is_leader:
        story.propose("a", b"other", "ac")
    assert not story.replicas["c"].has_joined
    return story
