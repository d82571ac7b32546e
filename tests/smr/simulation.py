"""Replicas on a simulated log, step by step: one seed determines every event.

Appends are lost, arrive late or more than once; replicas are slow, crash, take snapshots at the same time and trim; the
log's time jumps; callers repeat at one replica what they do not know the outcome of at another one. The machine is a
list of all commands, so that the results show the order, and every command that took effect twice.

    python -m tests.smr --seeds 2000
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import pytest

from logdb.log.contract import Batch, LogRecord, Record
from logdb.smr.core import outbox as outboxes
from logdb.smr.core import sessions as all_sessions
from logdb.smr.core import snapshots as all_snapshots
from logdb.smr.core.outbox import Outbox, Pending
from logdb.smr.core.records import TAGS, digest_record, open_record, verify_record
from logdb.smr.core.sessions import SESSION_TTL_NS, Failure, Forgotten, Outcome
from logdb.smr.core.snapshots import SnapshotFinder, chunks
from logdb.smr.core.state import ReplicaState
from logdb.smr.errors import CommandId
from tests.smr.machines import Journal

REPLICAS = 3
STEPS = 400
WINDOW = 12


@contextmanager
def small_limits() -> Iterator[None]:
    """A window that fills up, and snapshots of several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_sessions, "WINDOW", WINDOW)
        patch.setattr(outboxes, "WINDOW", WINDOW)
        patch.setattr(outboxes, "MAX_IN_FLIGHT", WINDOW // 2)
        patch.setattr(outboxes, "MAX_BATCH_BYTES", 12)
        patch.setattr(all_snapshots, "CHUNK_BYTES", 150)
        yield


class Violation(Exception):
    """A promise was broken."""


def check(holds: object, text: str) -> None:
    if not holds:
        raise Violation(text)


class SimulatedLog:
    """A log in a list, whose GSNs have gaps."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self.records: list[LogRecord] = []
        self.first = 1
        self.last = 0
        self.time = 1_000

    def append(self, records: list[Record]) -> list[int]:
        gsns = []
        for tag, payload in records:
            self.last += self._draw.choice([1, 1, 1, 2, 5])
            self.time += 1
            self.records.append(LogRecord(self.last, self.time, tag, payload))
            gsns.append(self.last)
        return gsns

    def batch(self, first: int, count: int) -> Batch:
        """At most `count` records from `first` on."""
        check(first >= self.first, f"{first} was trimmed")
        found = [record for record in self.records if record.gsn >= first][:count]
        end = found[-1].gsn + 1 if found else self.last + 1
        return Batch(first, end, [record for record in found if record.tag in TAGS])

    def trim(self, gsn: int) -> None:
        self.first = max(self.first, gsn)
        self.records = [record for record in self.records if record.gsn >= self.first]


@dataclass
class Operation:
    """A command of a caller, from its first attempt to its result. Times are numbers of steps."""

    text: str
    begun: int
    ended: int = 0
    outcome: Outcome | None = None
    command_id: CommandId | None = None
    is_lost: bool = False
    pending: Pending | None = None


class Query(NamedTuple):
    begun: int
    position: int
    completed: frozenset[str]


@dataclass
class SimulatedReplica:
    """The core of a replica, with the tasks that its host has threads for."""

    log: SimulatedLog
    state: ReplicaState[Journal] = field(default_factory=lambda: ReplicaState(Journal()))
    outbox: Outbox = field(default_factory=Outbox)
    batch: list[Pending] | None = None
    """The commands whose append has not succeeded yet."""
    queries: list[Query] = field(default_factory=list)
    snapshot: list[Record] = field(default_factory=list)
    """The parts of a snapshot that are not in the log yet."""
    snapshot_position: int = 0
    digests: list[Record] = field(default_factory=list)

    def position_of_query(self) -> int:
        return self.log.last

    def begin_snapshot(self, number: int) -> None:
        self.snapshot_position = self.state.applied
        self.snapshot = list(chunks(number, self.state.applied, self.state.encode()))

    def trim_point(self) -> int:
        return self.snapshot_position + 1

    def is_snapshot_complete(self) -> bool:
        return not self.snapshot

    def catch_up(self) -> tuple[list[tuple[Pending, Outcome]], list[Pending]]:
        """Continue with the newest snapshot."""
        finder = SnapshotFinder()
        for record in self.log.records:
            finder.add(record)
        if finder.position <= self.state.applied:
            check(self.log.first <= self.state.applied + 1, "the log has no snapshot to catch up from")
            return [], []
        self.state.restore(finder.position, finder.data)
        return self.outbox.restored(finder.position, self.state.sessions)


class Simulation:
    """One seed. `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.log = SimulatedLog(self.draw)
        self.replicas = [SimulatedReplica(self.log) for _ in range(REPLICAS)]
        self.operations: list[Operation] = []
        self.late: list[list[Record]] = []
        self.jumps: list[int] = []
        self.now = 0
        self.effects = 0
        self.newest: dict[int, int] = {}
        self.opened: dict[int, int] = {}
        self.repeated: dict[CommandId, Outcome] = {}
        self.events: dict[str, int] = {}

    def run(self) -> None:
        steps = [
            *(self.submit, self.submit, self.append, self.append, self.append, self.read, self.read, self.read),
            *(self.query, self.repeat, self.take_snapshot, self.write_snapshot, self.write_snapshot, self.deliver),
            *(self.reserve, self.give_up, self.crash, self.pass_time, self.verify),
        ]
        weights = [6, 6, 6, 6, 6, 6, 6, 6, 5, 5, 2, 5, 5, 3, 2, 2, 1, 1, 1]
        for self.now in range(1, STEPS):
            step = self.draw.choices(steps, weights)[0]
            step(self.draw.choice(self.replicas))
            for replica in self.replicas:
                replica.state.check_invariants()
        self.finish()
        self.judge()

    def count(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1

    # ---- steps

    def submit(self, replica: SimulatedReplica) -> None:
        text = ("-" if self.draw.random() < 0.15 else "") + f"c{len(self.operations)}"
        operation = Operation(text, self.now)
        operation.pending = Pending(text.encode(), operation)
        self.operations.append(operation)
        replica.outbox.add(operation.pending)

    def reserve(self, replica: SimulatedReplica) -> None:
        operation = Operation(f"r{len(self.operations)}", self.now)
        operation.pending = Pending(None, operation)
        self.operations.append(operation)
        replica.outbox.add(operation.pending)

    def repeat(self, replica: SimulatedReplica) -> None:
        """Repeat a command whose outcome is unknown, at any replica; sometimes one that the caller has the result
        of, which it may have lost."""
        lost = [
            each for each in self.operations if each.command_id is not None and each.is_lost and each.pending is None
        ]
        if not lost:
            return
        operation = self.draw.choice(lost)
        operation.pending = Pending(operation.text.encode(), operation, operation.command_id)
        replica.outbox.add(operation.pending)
        self.count("repeat")

    def append(self, replica: SimulatedReplica) -> None:
        if replica.digests:
            self.log.append(replica.digests)
            replica.digests = []
        if replica.batch is None:
            if replica.outbox.is_idle:
                return
            if replica.outbox.needs_session:
                opened = self.sent([open_record()])
                if opened:
                    replica.outbox.open_session(opened[0])
                    self.opened[opened[0]] = self.now
                return
            replica.batch, reserved = replica.outbox.next_batch()
            for pending in [*replica.batch, *reserved]:
                assert pending.command_id is not None
                session, number = pending.command_id
                self.newest[session] = max(self.newest.get(session, 0), number)
            for pending in reserved:
                pending.waiter.command_id = pending.command_id
                pending.waiter.is_lost, pending.waiter.pending = True, None
        records = replica.outbox.records([each for each in replica.batch if replica.outbox.is_sent(each)])
        if not records or self.sent(records):
            replica.batch = None

    def sent(self, records: list[Record]) -> list[int]:
        """The GSNs of the records, or nothing: then they may be in the log, or arrive later."""
        fate = self.draw.random()
        if fate < 0.7:
            return self.log.append(records)
        self.count("unknown append")
        if fate < 0.8:
            self.log.append(records)
        elif fate < 0.93:
            self.late.append(records)
        return []

    def deliver(self, replica: SimulatedReplica) -> None:
        if self.late:
            self.count("late append")
            self.log.append(self.late.pop(self.draw.randrange(len(self.late))))

    def read(self, replica: SimulatedReplica) -> None:
        if replica.state.applied + 1 < self.log.first:
            self.count("catch-up")
            done, lost = replica.catch_up()
            for pending, outcome in done:
                self.end(pending, outcome)
            for pending in lost:
                self.lose(pending)
            self.answer(replica)
            return
        batch = self.log.batch(replica.state.applied + 1, self.draw.randint(1, 6))
        if batch.end == batch.first:
            return
        outcomes, digests, conflicts = replica.state.apply(batch, replica.outbox.mine)
        check(not conflicts, f"digests differ at {conflicts}")
        replica.digests += [digest_record(digest) for digest in digests]
        for at, outcome in outcomes:
            if outcome is not Forgotten.FORGOTTEN:
                check(self.repeated.setdefault(at, outcome) == outcome, f"{at} has two outcomes")
            for pending in replica.outbox.read(at, outcome):
                self.end(pending, outcome)
        self.answer(replica)

    def end(self, pending: Pending, outcome: Outcome) -> None:
        operation: Operation = pending.waiter
        if operation.pending is not pending:
            return
        operation.pending, operation.is_lost = None, False
        if outcome is Forgotten.FORGOTTEN:
            assert operation.command_id is not None
            jumped = any(jump >= self.opened[operation.command_id.session] for jump in self.jumps)
            passed = self.newest.get(operation.command_id.session, 0) - operation.command_id.number
            check(jumped or passed >= WINDOW, f"{operation.text} was forgotten too early")
            operation.command_id = None
            self.count("forgotten")
        else:
            operation.ended, operation.outcome = self.now, outcome

    def lose(self, pending: Pending) -> None:
        operation: Operation = pending.waiter
        if operation.pending is not pending:
            return
        operation.pending = None
        operation.is_lost = True
        if pending.command_id is not None:
            operation.command_id = pending.command_id

    def give_up(self, replica: SimulatedReplica) -> None:
        waiting = [each for each in replica.outbox.sent() if each.waiter.pending is each]
        if waiting:
            pending = self.draw.choice(waiting)
            check(replica.outbox.keep(pending), "a sent command was withdrawn")
            self.lose(pending)

    def query(self, replica: SimulatedReplica) -> None:
        completed = frozenset([each.text for each in self.operations if isinstance(each.outcome, bytes)])
        replica.queries.append(Query(self.now, replica.position_of_query(), completed))
        self.answer(replica)

    def answer(self, replica: SimulatedReplica) -> None:
        ready = [query for query in replica.queries if query.position <= replica.state.applied]
        replica.queries = [query for query in replica.queries if query not in ready]
        seen = set(replica.state.machine.entries)
        for query in ready:
            check(query.completed <= seen, f"a query misses {sorted(query.completed - seen)}")

    def take_snapshot(self, replica: SimulatedReplica) -> None:
        if replica.state.applied and not replica.snapshot:
            replica.begin_snapshot(self.draw.getrandbits(64))
            self.count("snapshot")

    def write_snapshot(self, replica: SimulatedReplica) -> None:
        if replica.snapshot:
            if self.sent(replica.snapshot[:1]):
                del replica.snapshot[0]
            if replica.is_snapshot_complete():
                self.log.trim(replica.trim_point())
                self.count("trim")

    def crash(self, replica: SimulatedReplica) -> None:
        self.count("crash")
        waiting = [each for each in replica.outbox.sent() if each.waiter.pending is each]
        for pending in waiting:
            self.lose(pending)
        for pending in replica.outbox.unsent:
            if pending.waiter.pending is pending:
                pending.waiter.pending = None
                pending.waiter.is_lost = pending.waiter.command_id is not None
        new = SimulatedReplica(self.log)
        self.replicas[self.replicas.index(replica)] = new
        new.catch_up()

    def pass_time(self, replica: SimulatedReplica) -> None:
        if self.draw.random() < 0.5:
            self.log.time += SESSION_TTL_NS + 1
            self.jumps.append(self.now)
            self.count("jump")

    def verify(self, replica: SimulatedReplica) -> None:
        self.log.append([verify_record()])

    # ---- the end

    def finish(self) -> None:
        """Let everything arrive, and all replicas read everything."""
        self.sent = self.log.append  # type: ignore[method-assign]
        for self.now in range(STEPS, 2 * STEPS):
            for replica in self.replicas:
                self.deliver(replica)
                self.append(replica)
                self.read(replica)
        check(not any(each.pending for each in self.operations), "a command has no outcome")
        check(not any(replica.queries for replica in self.replicas), "a query has no answer")
        check({replica.state.applied for replica in self.replicas} == {self.log.last}, "a replica lags behind")

    def judge(self) -> None:
        """All replicas agree, each command has taken effect at most once, in an order that real time permits."""
        first, *others = self.replicas
        entries = first.state.machine.entries
        for other in others:
            check(other.state.encode() == first.state.encode(), "replicas differ")
        check(len(set(entries)) == len(entries), "a command has taken effect twice")
        place = {text: at for at, text in enumerate(entries, 1)}
        refusals: list[Any] = []
        completed = []
        for operation in self.operations:
            if isinstance(operation.outcome, bytes):
                check(place.get(operation.text) == int(operation.outcome), f"{operation.text} has a wrong result")
                completed.append(operation)
            elif isinstance(operation.outcome, Failure):
                refusals.append(operation.outcome)
                check(operation.text not in place, f"{operation.text} has failed and taken effect")
        check(len(set(refusals)) == len(refusals), "two commands have one failure")
        self.effects = len(entries)
        for operation in self.operations:
            if operation.text in place:
                for earlier in completed:
                    if earlier.ended < operation.begun:
                        check(
                            place[earlier.text] < place[operation.text],
                            f"{operation.text} began after {earlier.text} had returned, and is ordered before it",
                        )


class Simulated(NamedTuple):
    """How a seed ended. `failure`: the check that failed, "" if none."""

    seed: int
    failure: str
    detail: str
    events: dict[str, int]
    effects: int


def simulate(seed: int) -> Simulated:
    """Run a seed."""
    with small_limits():
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as error:  # a Violation, an assertion of a core, or an error such as Diverged
            return Simulated(seed, type(error).__name__, str(error), simulation.events, 0)
    return Simulated(seed, "", "", simulation.events, simulation.effects)
