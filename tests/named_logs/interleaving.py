"""Consumers of one log in random interleavings, in virtual time: the code of `logdb.aio` over a database in memory.

Each verb of the database is a point at which another member may go on, or at which the member is killed. The outcome of
a commit may be unknown to its member, and it may take effect later. One seed draws everything.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import closing, suppress
from random import Random
from typing import Any

import logdb
from logdb.errors import ConflictError, OutcomeUnknown
from logdb.named_logs import Entry, Position
from logdb.named_logs.async_consumer import AsyncConsumer, AsyncGroupConsumer
from logdb.named_logs.cursors import ConsumerKeys, Owners, partition_of
from logdb.named_logs.layout import Layout
from logdb.txn.coordinator import Outcome, Status

LEASE_S = 1.0
STEP_S = 0.02
EVENTS = 400
PARTITIONS = 3
EFFECTS = b"effects/"
GROUP, SINGLE = "group", "single"


class Killed(BaseException):
    """The process of a member was killed."""


@types.coroutine
def switch() -> Generator[None, None, None]:
    """Let another member go on."""
    yield


class Clock:
    """The time of all members, as of an event loop."""

    now = 1.0

    def time(self) -> float:
        return self.now


class Snapshot:
    """A snapshot whose verbs are awaited."""

    def __init__(self, snapshot: logdb.Snapshot) -> None:
        self._snapshot, self.version = snapshot, snapshot.version

    async def multi_get(self, keys: list[bytes]) -> dict[bytes, bytes]:
        await switch()
        return self._snapshot.multi_get(keys)

    async def scan(self, *args: Any, **options: Any) -> AsyncIterator[tuple[bytes, bytes]]:
        for row in self._snapshot.scan(*args, **options):
            yield row


class Transaction:
    """A transaction whose reads are awaited."""

    def __init__(self, txn: logdb.Transaction) -> None:
        self.put, self.multi_put, self.append, self._txn = txn.put, txn.multi_put, txn.append, txn

    async def multi_get(self, keys: list[bytes]) -> dict[bytes, bytes]:
        await switch()
        return self._txn.multi_get(keys)


class Connection:
    """The database as a member sees it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._db, self._draw = simulation, simulation.db, simulation.draw

    async def at(self) -> Snapshot:
        await switch()
        return Snapshot(self._db.at())

    async def multi_put(self, items: Any) -> int:
        await switch()
        return self._db.multi_put(items)

    async def run(self, body: Callable[[Any], Coroutine[Any, Any, Any]], *, label: str = "") -> Any:
        while True:
            await switch()
            committing = self._db.transaction(label=label)
            txn = committing.__enter__()
            try:
                result = await body(Transaction(txn))
                await switch()
            except BaseException as error:
                committing.__exit__(type(error), error, None)
                raise
            txn_id = txn.id
            if self._simulation.is_faulty and self._draw.random() < 0.1:
                self._simulation.unknown[txn_id] = committing
                if self._draw.random() < 0.5:
                    self._simulation.arrive(txn_id)
                raise OutcomeUnknown(txn_id, "no answer")
            try:
                committing.__exit__(None, None, None)
            except ConflictError:
                if self._simulation.is_faulty and self._draw.random() < 0.1:
                    raise
                continue
            finally:
                self._simulation.check()
            return result

    async def outcome(self, txn_id: str, *, settle: bool) -> Outcome:
        await switch()
        assert settle
        committing = self._simulation.unknown.pop(txn_id, None)
        if committing is not None:  # it has not arrived, and never will
            committing.__exit__(KeyError, KeyError(), None)
            return Outcome(Status.ABORTED, 0)
        return self._db.outcome(txn_id)

    async def watch(self, prefix: bytes, *, keys: Iterable[bytes], since: int, timeout: float | None) -> Any:
        clock, keys = self._simulation.clock, list(keys)
        deadline = None if timeout is None else clock.now + timeout
        while deadline is None or clock.now < deadline:
            await switch()
            if (newest := self._db.version) > since:
                with closing(self._db.watch(prefix, keys=keys, since=since, timeout=0)) as changes:  # type: ignore[type-var]
                    for change in changes:
                        yield change
                since = newest


class Member:
    """A process that consumes the log, until it is killed or has consumed enough."""

    def __init__(self, simulation: Simulation, *, is_patient: bool = False) -> None:
        self.simulation, self._is_patient = simulation, is_patient
        self.consumer = self._connect()
        self._steps = self._live()

    def _connect(self) -> AsyncConsumer:
        db: Any = Connection(self.simulation)
        if self.simulation.is_group:
            return AsyncGroupConsumer(db, self.simulation.layout, GROUP, PARTITIONS, LEASE_S)
        return AsyncConsumer(db, self.simulation.layout, SINGLE)

    async def _live(self) -> None:
        draw = self.simulation.draw
        while True:
            self.consumer = self._connect()
            limit, batch, timeout = draw.choice([1, 3, 100]), draw.choice([1, 1, 2, 5]), draw.choice([0, 0.5, None])
            if self._is_patient:
                limit, timeout = 1_000_000, None
            with suppress(ConflictError, OutcomeUnknown):  # as if the database had not been available
                await self.consumer.__aenter__()
                while draw.random() < 0.8:
                    await self.consumer.run(self._body, batch=batch, limit=limit, timeout=timeout)
                    await switch()
                await self.consumer.__aexit__()

    async def _body(self, txn: Any, entry: Entry) -> None:
        await switch()
        member = self.consumer.member if isinstance(self.consumer, AsyncGroupConsumer) else ""
        txn.append(EFFECTS, f"{entry.position} {partition_of(entry, self.simulation.partitions)} {member}".encode())

    def advance(self) -> None:
        """Go on to the next verb."""
        self._steps.send(None)

    def kill(self) -> None:
        """End it where it is."""
        with suppress(Killed, RuntimeError):  # it may have ended
            self._steps.throw(Killed())

    def restart(self) -> None:
        """Kill it, and start another process in its place."""
        self.kill()
        self._steps = self._live()


class Simulation:
    """A log, its writer, and the members of one consumer."""

    def __init__(self, seed: int) -> None:
        self.draw, self.clock = Random(seed), Clock()
        self.db = logdb.open(":memory:")
        self.log, self.layout = self.db.log("orders"), Layout("orders")
        self.is_group = self.draw.random() < 0.7
        self.is_faulty = True
        self.partitions = PARTITIONS if self.is_group else 1
        self._keys = ConsumerKeys("orders", GROUP if self.is_group else SINGLE)
        self.unknown: dict[str, Any] = {}
        self.appended: list[Position] = []
        self._checked = 0
        self._last: dict[int, Position] = {}
        self.members = [Member(self) for _ in range(self.draw.choice([1, 2, 3]))]

    def run(self) -> None:
        """Draw the events, and then let one member consume the rest."""
        with self.db:
            try:
                self._events()
                self.finish()
            finally:
                for member in self.members:
                    member.kill()

    def _events(self) -> None:
        for _ in range(EVENTS):
            kind = self.draw.random()
            self.clock.now += self.draw.random() * STEP_S
            if kind < 0.08:
                self.append()
            elif kind < 0.1:
                self.draw.choice(self.members).restart()
            elif kind < 0.12:
                self.clock.now += LEASE_S * self.draw.random()
            elif kind < 0.14 and self.unknown:
                self.arrive(self.draw.choice(list(self.unknown)))
            else:
                member = self.draw.choice(self.members)
                for _ in range(self.draw.choice([1, 1, 3, 30])):
                    member.advance()

    def append(self) -> None:
        values = [b"%d" % number for number in range(self.draw.choice([1, 1, 4]))]
        key = self.draw.choice([None, *(b"key %d" % number for number in range(5))])
        self.appended += self.log.extend(values, key=key)

    def arrive(self, txn_id: str) -> None:
        """A commit of unknown outcome arrives."""
        committing = self.unknown.pop(txn_id)
        with suppress(ConflictError):
            committing.__exit__(None, None, None)
        self.check()

    def check(self) -> None:
        """The invariants CON-1 and CON-2, for the effects since the last check."""
        for key, value in self.db.scan(EFFECTS + (self._checked + 1).to_bytes(8), EFFECTS + b"\xff"):
            version = int.from_bytes(key[len(EFFECTS) : len(EFFECTS) + 8])
            text, partition, member = value.decode().split(" ")
            position = Position.parse(text)
            before = self._last.get(int(partition), Position(0, 0))
            assert position > before, f"{position} takes effect after {before} in partition {partition}"
            self._last[int(partition)] = position
            if self.is_group:
                owners = Owners.decode(self.db.at(version - 1)[self._keys.owners])
                assert owners[int(partition)] == member, f"{member} does not own partition {partition}"
            self._checked = version

    def finish(self) -> None:
        """All entries have taken effect once two members have had time, also those of members that were lost. No verb
        fails any more: a failure makes a member join again, and one that has missed a change would learn of it then."""
        self.is_faulty = False
        for member in self.members:
            member.kill()
        for txn_id in list(self.unknown):
            self.arrive(txn_id)
        self.members = [Member(self, is_patient=True) for _ in range(2)]
        for _ in range(100):
            for _ in range(100):
                self.draw.choice(self.members).advance()
                self.clock.now += STEP_S / 2
            if len(self.effects) >= len(self.appended):
                break
        assert self.effects == self.appended

    @property
    def effects(self) -> list[Position]:
        """The entries that have taken effect."""
        return sorted(Position.parse(value.decode().split(" ")[0]) for _, value in self.db.scan(prefix=EFFECTS))
