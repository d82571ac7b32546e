"""A replica: Paxos chooses commands, the state machine applies them, journals keep the records, a leader answers.

Every replica applies all commands and sends records to readers. Requests that need the leader go there by its address.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from logdb.cores.effects import (
    Address,
    Disconnected,
    Effect,
    Event,
    Journal,
    Persisted,
    Received,
    Send,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
    Unreadable,
)
from logdb.log import paxos
from logdb.log.multipaxos.commands import encode, values_of
from logdb.log.multipaxos.config import ReplicaConfig
from logdb.log.multipaxos.leader import Leader
from logdb.log.multipaxos.messages import (
    AppendRefused,
    AppendRequest,
    AppendStatus,
    AppendStatusRequest,
    Copying,
    DurableRequest,
    DurableResponse,
    NotLeader,
    Pull,
    Pulled,
    ReadFailed,
    ReadRequest,
    TailRequest,
    TailResponse,
    TimeRequest,
    TimeResponse,
    TrimRequest,
    TrimResponse,
    ViewRequest,
    ViewResponse,
)
from logdb.log.multipaxos.read_server import ReadServer
from logdb.log.multipaxos.record_copier import COPY, RecordCopier
from logdb.log.multipaxos.record_store import RecordStore
from logdb.log.multipaxos.state import LogState
from logdb.log.record_clock import is_beyond_any_pause

FLUSH: Final = "multipaxos.flush"
SAVE: Final = "multipaxos.save"
COPYING_PERIODS: Final = 10
"""A replica counts as copying for this number of its periods after its last `Copying`."""


class MultiPaxosReplica:
    """The core of one replica. `journals`: the recovered journals, empty at the first start.

    `state`: the state after the commands up to `slot`. `leader`: None while this replica does not lead.
    """

    def __init__(self, config: ReplicaConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config = config
        self.state = LogState()
        self.slot = 0
        self.leader: Leader | None = None
        self._out: list[Effect] = []
        self.paxos = paxos.Replica(config.address, config.replicas, journals.get(paxos.JOURNAL), rng, config.paxos)
        self.store = RecordStore(journals, self._out, config.cache_bytes)
        self.copier = RecordCopier(config, self.store, self._out, rng)
        self.reads = ReadServer(self.store, self._out, self._leads)
        self._questions: dict[tuple[Address, int], TailRequest | TimeRequest] = {}
        self._confirming: dict[tuple[Address, int], TailRequest | TimeRequest] = {}
        self._token = 0
        self._followed: Address = ""
        self._flush_set = self._moved = False
        self._saved_gsn = 1
        self._snapshot_bytes = 0
        self._snapshot_oldest = 1
        self._snapshot: tuple[int, int, int, bytes] | None = None
        self._saving: deque[int] = deque()
        self._durable_at: set[Address] = set()
        self._is_asking = False
        self._saved_oldest = 1
        self._copying: dict[int, int] = {}
        self._do: dict[type, Callable[[Any, Address, int], None]] = {
            AppendRequest: self._append,
            AppendStatusRequest: self._append_status,
            ReadRequest: self._read,
            Pull: self._read,
            Pulled: self._pulled,
            ReadFailed: self._read_failed,
            Copying: self._copies,
            DurableRequest: self._durable_request,
            DurableResponse: self._durable_response,
            TailRequest: self._confirmed_question,
            TimeRequest: self._confirmed_question,
            TrimRequest: self._trim,
            ViewRequest: self._view,
        }

    def start(self, now: int) -> list[Effect]:
        """The effects at the start of the node."""
        self._absorb(self.paxos.start(now), now)
        self._saving.clear()
        self._saved_oldest = self._snapshot_oldest
        self.store.trim(self._saved_oldest)
        self.copier.look(self.state.oldest, now)
        return self._effects(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Returns the effects. Raises ProtocolViolation."""
        kind = type(event)
        if kind is Received and (do := self._do.get(type(event.message))) is not None:  # type: ignore[union-attr]
            do(event.message, event.sender, now)  # type: ignore[union-attr]
        elif isinstance(event, Persisted) and event.journal != paxos.JOURNAL:
            self.store.persisted(event.journal, event.end)
            self.copier.on_persisted(now)
            self.store.trim(self._saved_oldest)
        elif isinstance(event, TimerFired) and not event.name.startswith(paxos.TIMERS):
            self._timer(event.name, now)
        elif isinstance(event, Unreadable):
            self.reads.on_unreadable(event, self.state)
        elif isinstance(event, Disconnected):
            self.reads.forget(event.peer)
        else:
            self._absorb(self.paxos.handle(event, now), now)
        return self._effects(now)

    def check_invariants(self) -> None:
        """Check the invariants MPX-n and PAX-n of one replica. Raises AssertionError."""
        self.paxos.check_invariants()
        self.state.check()
        self.store.check()
        self.reads.check(self.state)
        assert self.slot == self.paxos.chosen, "MPX-2: a chosen command was not applied"
        assert (self.leader is not None) == self.paxos.is_leader, "Paxos and the replica disagree about the leader"
        assert self.store.next_gsn == self.state.next_gsn, "MPX-5"
        if self.leader is not None:
            self.leader.check()

    @property
    def is_complete(self) -> bool:
        """Whether this replica is a member and has all records of its log durably."""
        return self.paxos.has_joined and self.copier.is_complete

    def _leads(self) -> tuple[bool, Address]:
        return self.leader is not None, self.config.address if self.leader is not None else self._other_leader()

    # ---- after each event

    def _effects(self, now: int) -> list[Effect]:
        if self.leader is not None:
            self._propose(self.leader, now)
        self._confirm(now)
        if self.leader is not None:
            self.leader.send_answers()
        if self._moved:
            self._moved = False
            self.reads.wake(self.state)
        self._exchange_commits(now)
        self._flush(now)
        self._save(now)
        out = self._out.copy()
        self._out.clear()
        return out

    def _propose(self, leader: Leader, now: int) -> None:
        while self.leader is leader and (command := leader.next_command(now)) is not None:
            if is_beyond_any_pause(self.state.time, now):
                why = "its clock is more than ten years ahead of the newest record and would date all later ones"
                self._out.append(Stop(f"{why}: set it right", wipe=False))
                return
            values = values_of(encode(command), self.config.fragment_bytes)
            leader.proposed.append(self.paxos.next_slot + len(values) - 1)
            for value in values:
                self._absorb(self.paxos.propose(value, now), now)

    def _exchange_commits(self, now: int) -> None:
        """Inform the replicas that wait for chosen commands. A follower waits if a parked pull is urgent. It refuses
        parked pulls when it has lost its leader."""
        if self.leader is not None:
            self._absorb(self.paxos.send_commits(), now)
            return
        leader = self._other_leader()
        if self._followed and not leader:
            self.reads.refuse_parked(self.state)
        self._followed = leader
        self._absorb(self.paxos.await_commit(self.reads.is_urgent, now), now)

    def _flush(self, now: int) -> None:
        """Write records to their journal, in large batches: no acknowledgement waits for this."""
        if self.store.unflushed_bytes >= self.config.flush_bytes:
            self.store.flush()
        if not self._flush_set and self.store.flushed < self.store.next_gsn:
            self._flush_set = True
            self._out.append(SetTimer(FLUSH, now + self.config.flush_ns))

    def _save(self, now: int) -> None:
        """Save the state when many commands or trimmed records can be dropped then, and the records of these commands
        are durable here (MPX-8) and at more than half of all replicas (MPX-9)."""
        state, large = self.state, max(self.config.snapshot_bytes, 8 * self._snapshot_bytes)
        is_due = self.paxos.uncompacted_bytes > large or state.oldest > self._snapshot_oldest
        if self._snapshot is None and is_due and not state.fragments:
            self.store.flush()
            self._snapshot = self.slot, state.next_gsn, state.oldest, state.to_bytes()
            self._durable_at.clear()
        if self._snapshot is None:
            return
        slot, next_gsn, oldest, snapshot = self._snapshot
        if not self.store.is_durable(max(self._saved_gsn, state.oldest), next_gsn):
            return
        if self._is_durable_at_majority(next_gsn):
            self._snapshot, self._saved_gsn, self._snapshot_bytes = None, next_gsn, len(snapshot)
            self._snapshot_oldest = oldest
            self._saving.append(oldest)
            self._absorb(self.paxos.compact(slot, snapshot, now), now)
        elif not self._is_asking:
            self._is_asking = True
            for replica in self.config.replicas:
                if replica != self.config.address:
                    self._out.append(Send(replica, DurableRequest(next_gsn)))
            self._out.append(SetTimer(SAVE, now + self.config.copy_ns))

    def _is_durable_at_majority(self, gsn: int) -> bool:
        is_here = self.store.is_durable(self.state.oldest, gsn)
        return len(self._durable_at) + is_here > len(self.config.replicas) // 2

    def _timer(self, name: str, now: int) -> None:
        if name == FLUSH:
            self._flush_set = False
            self.store.flush()
        elif name == SAVE:
            self._is_asking = False
            self._durable_at.clear()
        elif name == COPY:
            self.copier.on_timer(now)

    # ---- Paxos

    def _absorb(self, outcomes: list[paxos.Outcome], now: int) -> None:
        for outcome in outcomes:
            match outcome:
                case paxos.Chosen(slot, value):
                    self._chosen(slot, value, now)
                case paxos.Restore(slot, snapshot):
                    self._restore(slot, snapshot, now)
                case paxos.Confirmed(token) if token == self._token:
                    self._answer_confirmed()
                case paxos.Confirmed():
                    pass  # of questions that were rejected meanwhile
                case paxos.Elected():
                    self.leader = Leader(self.config, self._out)
                case paxos.Deposed():
                    self._deposed()
                case Trim():
                    self._out.append(outcome)
                    self._saved()
                case _:
                    self._out.append(outcome)

    def _saved(self) -> None:
        """A snapshot is durable: every restart begins with it or a later one, so the records before its oldest GSN can
        be dropped (MPX-6)."""
        self._saved_oldest = self._saving.popleft()
        self.store.trim(self._saved_oldest)

    def _chosen(self, slot: int, value: bytes, now: int) -> None:
        assert slot == self.slot + 1, f"MPX-2: slot {slot} was chosen after {self.slot}"
        applied = self.state.apply(value)
        self.slot, self._moved = slot, True
        if applied.records:
            self.store.append(applied.first, applied.records)
        if applied.trim is not None:
            self.copier.look(self.state.oldest, now)
        if self.leader is not None:
            for sender, request, error in self.leader.applied(slot, applied):
                self._out.append(Send(sender, TrimResponse(request, self.state.oldest, error)))

    def _restore(self, slot: int, snapshot: bytes, now: int) -> None:
        self.state, self.slot, self._moved = LogState.from_bytes(snapshot), slot, True
        self._snapshot, self._snapshot_bytes = None, len(snapshot)
        self._saved_gsn = self.state.next_gsn
        self._snapshot_oldest = self.state.oldest
        self._saving.append(self.state.oldest)
        self.store.reset(self.state.next_gsn)
        self.copier.look(self.state.oldest, now)

    def _deposed(self) -> None:
        assert self.leader is not None
        leader = self._other_leader()
        self.leader.stop(leader)
        self.leader = None
        self._reject_questions()
        self.reads.refuse_parked(self.state)

    def _other_leader(self) -> Address:
        leader = self.paxos.leader
        return "" if leader == self.config.address else leader

    # ---- requests

    def _append(self, request: AppendRequest, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_append(request, sender, self.state, self.paxos.is_overloaded)
        else:
            self._out.append(Send(sender, AppendRefused(request.client, request.sequence, self._other_leader())))

    def _append_status(self, request: AppendStatusRequest, sender: Address, now: int) -> None:
        find = self.state.sessions.find
        runs = [run for first, count in request.sequences for run in find(request.client, first, count) if run.gsn]
        self._out.append(Send(sender, AppendStatus(request.client, tuple([tuple(run) for run in runs]))))  # type: ignore[misc]

    def _read(self, request: ReadRequest | Pull, sender: Address, now: int) -> None:
        self.reads.on_request(request, sender, self.state)

    def _trim(self, request: TrimRequest, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_trim(request, sender)
        else:
            self._out.append(Send(sender, NotLeader(request.request, self._other_leader())))

    def _view(self, request: ViewRequest, sender: Address, now: int) -> None:
        copying = {number for number, until in self._copying.items() if until > now}
        if not self.is_complete:
            copying.add(self.config.replicas.index(self.config.address) + 1)
        answer = ViewResponse(request.request, self.state.oldest, self.config.replicas, tuple(sorted(copying)))
        self._out.append(Send(sender, answer))

    # ---- requests that need a confirmed leader

    def _confirmed_question(self, request: TailRequest | TimeRequest, sender: Address, now: int) -> None:
        is_allowed = isinstance(request, TailRequest) and request.allow_follower
        if self.leader is not None or (is_allowed and self._other_leader()):
            self._questions[sender, request.request] = request
        else:
            self._out.append(Send(sender, NotLeader(request.request, self._other_leader())))

    def _confirm(self, now: int) -> None:
        """Confirm that this replica, or the leader that it follows, still leads, once for all requests received since
        the last confirmation."""
        if self._questions and not self._confirming:
            self._confirming, self._questions = self._questions, {}
            self._token += 1
            try:
                self._absorb(self.paxos.read_index(self._token, now), now)
            except paxos.NotLeader:
                self._reject_questions()

    def _reject_questions(self) -> None:
        for sender, request in self._questions | self._confirming:
            self._out.append(Send(sender, NotLeader(request, self._other_leader())))
        self._questions.clear()
        self._confirming.clear()

    def _answer_confirmed(self) -> None:
        state = self.state
        for (sender, number), request in self._confirming.items():
            if isinstance(request, TailRequest):
                tail = TailResponse(number, state.next_gsn - 1, state.oldest, state.batches)
                self._out.append(Send(sender, tail))
            else:
                first, end = state.index.around(request.time)
                self._out.append(Send(sender, TimeResponse(number, first, end, state.oldest)))
        self._confirming.clear()

    # ---- from other replicas

    def _durable_request(self, message: DurableRequest, sender: Address, now: int) -> None:
        self.store.flush()
        if sender in self.config.replicas and self.store.is_durable(self.state.oldest, message.gsn):
            self._out.append(Send(sender, DurableResponse(message.gsn)))

    def _durable_response(self, message: DurableResponse, sender: Address, now: int) -> None:
        if sender in self.config.replicas and self._snapshot is not None and message.gsn == self._snapshot[1]:
            self._durable_at.add(sender)

    def _pulled(self, message: Pulled, sender: Address, now: int) -> None:
        if sender in self.config.replicas:
            self.copier.on_pulled(message, now)

    def _read_failed(self, message: ReadFailed, sender: Address, now: int) -> None:
        if sender in self.config.replicas:
            self.copier.on_failed(message)

    def _copies(self, message: Copying, sender: Address, now: int) -> None:
        if sender in self.config.replicas:
            until = now + COPYING_PERIODS * self.config.copy_ns if message.missing else now
            self._copying[self.config.replicas.index(sender) + 1] = until
