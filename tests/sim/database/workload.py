"""What applications do with the database: three workloads and questions about each other's transactions.

- list-append: transactions over several keys, each of which holds a list; every element is appended once.
- bank: transfers between accounts whose sum never changes.
- compare-and-set: single keys, written where they hold what was read.

Each client process runs a few workers; a worker is a generator that yields calls and is sent their results.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import logdb
from logdb.cluster import calls
from logdb.cluster.messages import Consistency
from logdb.errors import OutcomeUnknown, Unavailable, VersionTrimmed
from logdb.log.cores import MILLISECOND, Answer
from logdb.store.records import Range, TxnId
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import Reason
from tests.sim.database.history import History, Op
from tests.sim.process import Process
from tests.sim.world import Failure, World

LINEARIZABLE, SESSION, SNAPSHOT = Consistency
LISTS = [b"list %d" % number for number in range(4)]
ACCOUNTS = [b"account %d" % number for number in range(5)]
CELLS = [b"cell %d" % number for number in range(3)]
KEYS = [*LISTS, *ACCOUNTS, *CELLS]
BALANCE = 100
"""What an account holds that was never written."""

WEIGHTS = {
    "append": 12,
    "transfer": 10,
    "compare and set": 10,
    "put": 4,
    "read": 10,
    "read of the session": 6,
    "snapshot": 6,
    "scan": 5,
    "outcome": 6,
    "settle": 2,
}
"""What workers do, and how often next to each other. A seed turns some of it off."""

Steps = Generator[Any, Any, None]

COMPACTING = 2
"""The weight of a compaction, in seeds that have any."""


class Overtaken(Exception):
    """A compaction was faster than who reads."""


@dataclass(frozen=True, slots=True)
class Load:
    """`think_ns`: the mean time between two operations of a worker. `element_bytes`: long ones make large values."""

    doing: tuple[str, ...]
    workers: int = 2
    think_ns: int = 5 * MILLISECOND
    element_bytes: int = 8
    hasty: float = 0.1
    """So many commits have a deadline."""


def load_of(draw: random.Random) -> Load:
    """The load of a seed."""
    writing = draw.sample(("append", "transfer", "compare and set"), draw.choice((1, 2, 3)))
    others = [what for what in WEIGHTS if what not in ("append", "transfer", "compare and set")]
    return Load(
        (*writing, *(what for what in others if draw.random() < 0.8)),
        workers=draw.choice((1, 2, 4)),
        think_ns=draw.choice((2, 5, 15)) * MILLISECOND,
        element_bytes=draw.choice((8, 8, 900)),
        hasty=draw.choice((0.0, 0.1, 0.4)),
    )


def elements_of(value: bytes | None) -> list[bytes]:
    """The elements of a list."""
    return value.split(b",") if value else []


def balance_of(value: bytes | None) -> int:
    """The balance of an account: its value is that and a unique name."""
    return BALANCE if value is None else int(value.partition(b" ")[0])


class Shared:
    """What workers know of each other's transactions: what to ask about."""

    def __init__(self) -> None:
        self.ended: list[TxnId] = []
        self.doubtful: list[Op] = []
        self.versions: list[int] = [0]
        self.floor = 0


class Application:
    """Drives the workers of one client process."""

    def __init__(self, world: World, process: Process, load: Load, history: History, shared: Shared) -> None:
        self.world, self.process, self.load, self.history, self.shared = world, process, load, history, shared
        self.draw = world.draw(f"application {process.address}")
        self.stopping = False
        self.session = 0
        self._calls = 0
        self._open: dict[int, tuple[int, Steps, Op]] = {}
        self._names = 0
        self._weights = [WEIGHTS.get(what, COMPACTING) for what in load.doing]
        process.on_answer = self._answered
        for worker in range(load.workers):
            world.after(int(load.think_ns * self.draw.random()), self._act, worker)

    @property
    def open(self) -> list[Op]:
        """What is under way."""
        return [op for _, _, op in self._open.values()]

    @property
    def busy(self) -> int:
        """How much is."""
        return len(self._open)

    # ---- workers

    def _act(self, worker: int) -> None:
        if self.stopping:
            return
        if self.process.core is None:
            self.world.after(self.load.think_ns, self._act, worker)
            return
        (what,) = self.draw.choices(self.load.doing, self._weights)
        self.do(what, worker)

    def do(self, what: str, worker: int = -1) -> Op:
        """Begin an operation."""
        self.world.counts[what] += 1
        op = self.history.invoke(what, f"{self.process.address}/{self.process.lives}", self.world.now)
        op.session = self.session
        self._go_on(worker, self.DO[what](self, op), op, None)
        return op

    def _go_on(self, worker: int, steps: Steps, op: Op, result: Any) -> None:
        try:
            request = steps.send(result)
        except (StopIteration, Overtaken) as how:
            if isinstance(how, Overtaken):
                op.reads, op.scans = {}, {}
                self._end(op, "fail")
            assert op.status != "open", op
            if worker >= 0 and not self.stopping:
                wait = int(self.draw.expovariate(1) * self.load.think_ns) + 1
                self.world.after(wait, self._act, worker)
            return
        self._calls += 1
        self._open[self._calls] = worker, steps, op
        self.process.call(self._calls, request)

    def _answered(self, answer: Answer) -> None:
        worker, steps, op = self._open.pop(answer.call)
        if isinstance(answer.result, Exception):
            self.world.counts[f"told {type(answer.result).__name__}"] += 1
        self._go_on(worker, steps, op, answer.result)

    def killed(self) -> None:
        """Its process was killed: nobody will ever know what came of what it had under way."""
        for worker, steps, op in self._open.values():
            steps.close()
            self._end(op, "info")
            if worker >= 0:
                self.world.after(self.load.think_ns, self._act, worker)
        self._open.clear()
        self.session = 0

    def _end(self, op: Op, status: str) -> None:
        self.history.complete(op, status, self.world.now)
        if status == "ok" and op.version:
            self.session = max(self.session, op.version)
            self.shared.versions.append(op.version)
        if op.txn is not None:
            self.shared.ended.append(op.txn)
            if status == "info":
                self.shared.doubtful.append(op)

    def _name(self) -> bytes:
        """What nobody else ever writes."""
        self._names += 1
        name = f"{self.process.address}.{self.process.lives}.{self._names}".encode()
        return name.ljust(self.load.element_bytes, b"_")

    # ---- transactions

    def _begin(self, op: Op) -> Iterator[Any]:
        """A snapshot: any that a server has will do for who writes, since stale reads make it abort."""
        result = yield calls.Version(self.draw.choice((LINEARIZABLE, SESSION, SESSION)))
        op.snapshot = self._must(result, int)

    def _must(self, result: Any, *kinds: type) -> Any:
        if isinstance(result, VersionTrimmed) and "compact" in self.load.doing:
            self.world.counts["overtaken by a compaction"] += 1
            raise Overtaken
        if not isinstance(result, kinds):
            raise Failure("an answer of a kind that its call cannot have", repr(result))
        return result

    def _get(self, op: Op, keys: list[bytes]) -> Iterator[Any]:
        result = yield calls.Get(keys, SNAPSHOT, op.snapshot)
        found = self._must(result, calls.Found)
        op.reads.update(zip(keys, found.entries, strict=True))

    def _commit(self, op: Op) -> Iterator[Any]:
        """Commit what the operation has read and written; ends it."""
        op.txn = yield calls.NewId()
        op.label = f"{op.what} {op.invoked}"
        deadline = None
        if self.draw.random() < self.load.hasty and not self.stopping:
            deadline = self.process.now + int(self.draw.random() * 60 * MILLISECOND)
        result = yield calls.Commit(
            dict(op.writes), op.snapshot, op.label, sorted(op.reads), list(op.scans), op.conditions, op.txn, deadline
        )
        self._must(result, calls.Committed, Unavailable, OutcomeUnknown)
        if isinstance(result, calls.Committed):
            op.version, op.verdict, op.winner = result.version, result.verdict, result.winner
            self.world.counts[f"verdict {result.verdict.reason.name}"] += 1
            too_old = result.verdict.reason is Reason.TOO_OLD and "compact" not in self.load.doing
            if result.txn_id != op.txn or result.verdict.reason is Reason.DUPLICATE or too_old:
                raise Failure("a verdict is of its transaction", f"{op}: {result}")
            self._end(op, "ok" if result.verdict.committed else "fail")
        else:
            self._end(op, "fail" if isinstance(result, Unavailable) else "info")

    def _append(self, op: Op) -> Steps:
        """Read some lists, append to one or two of them."""
        yield from self._begin(op)
        keys = self.draw.sample(LISTS, self.draw.choice((1, 2, 3)))
        if self.draw.random() < 0.3:
            yield from self._scan_lists(op)
        yield from self._get(op, keys)
        for key in keys[: self.draw.choice((1, 1, 2))]:
            op.writes[key] = b",".join([*elements_of(op.reads[key][1]), self._name()])
        yield from self._commit(op)

    def _scan_lists(self, op: Op) -> Iterator[Any]:
        yield from self._pages(op, (b"list ", b"list:"), SNAPSHOT, op.snapshot)

    def _pages(self, op: Op, span: Range, consistency: Consistency, version: int = 0) -> Generator[Any, Any, int]:
        """All of a range, page by page, forwards or backwards. Returns the version that was read."""
        start, end = span
        reverse = self.draw.random() < 0.5
        rows: dict[bytes, bytes] = {}
        while True:
            result = yield calls.Scan(start, end, reverse, self.draw.choice((2, 1_000)), consistency, version)
            page = self._must(result, calls.Page)
            rows.update(page.rows)
            if not page.more:
                op.scans[span] = rows
                return int(page.version)
            consistency, version = SNAPSHOT, page.version
            if reverse:
                end = page.rows[-1][0]
            else:
                start = page.rows[-1][0] + b"\0"

    def _transfer(self, op: Op) -> Steps:
        yield from self._begin(op)
        one, other = self.draw.sample(ACCOUNTS, 2)
        yield from self._get(op, [one, other])
        amount = self.draw.randint(1, 20)
        name = self._name()
        op.writes[one] = b"%d %s" % (balance_of(op.reads[one][1]) - amount, name)
        op.writes[other] = b"%d %s" % (balance_of(op.reads[other][1]) + amount, name)
        yield from self._commit(op)

    def _compare_and_set(self, op: Op) -> Steps:
        """A test-and-multi-put of one key, against what it holds."""
        key = self.draw.choice(CELLS)
        result = yield calls.Get([key], self.draw.choice((LINEARIZABLE, SESSION)))
        version, value = self._must(result, calls.Found).entries[0]
        if value is None:
            condition = logdb.absent(key)
        elif self.draw.random() < 0.5:
            condition = logdb.equals(key, value)
        else:
            condition = logdb.version_equals(key, version)
        op.conditions = (condition,)
        op.writes[key] = self._name()
        yield from self._commit(op)

    def _put(self, op: Op) -> Steps:
        op.writes[self.draw.choice(CELLS)] = self._name()
        yield from self._commit(op)

    # ---- reads

    def _read(self, op: Op, consistency: Consistency = LINEARIZABLE) -> Steps:
        keys = self.draw.choice((ACCOUNTS, LISTS, [self.draw.choice(KEYS)]))
        op.is_linearizable = consistency is LINEARIZABLE
        result = yield calls.Get(keys, consistency)
        found = self._must(result, calls.Found)
        op.version = found.version
        op.reads.update(zip(keys, found.entries, strict=True))
        self._end(op, "ok")

    def _read_session(self, op: Op) -> Steps:
        yield from self._read(op, SESSION)

    def _snapshot(self, op: Op) -> Steps:
        """As of a version that somebody was told, perhaps a moment ago by another server."""
        versions = self.shared.versions
        version = self.draw.choice((versions[-1], self.draw.choice(versions)))
        keys = self.draw.choice((ACCOUNTS, LISTS, CELLS))
        result = yield calls.Get(keys, SNAPSHOT, version)
        op.version = self._must(result, calls.Found).version
        op.reads.update(zip(keys, result.entries, strict=True))
        self._end(op, "ok")

    def _scan(self, op: Op) -> Steps:
        span = self.draw.choice(((b"account ", b"account:"), (b"", None), (b"list 1", b"list 3")))
        op.is_linearizable = True
        op.version = yield from self._pages(op, span, LINEARIZABLE)
        self._end(op, "ok")

    # ---- ends

    def _outcome(self, op: Op) -> Steps:
        """How somebody's transaction ended, most often one that has ended just now."""
        if not self.shared.ended:
            self._end(op, "ok")
            return
        op.result = self.draw.choice((self.shared.ended[-1], self.draw.choice(self.shared.ended))), None
        result = yield calls.Outcome(op.result[0])
        op.result = op.result[0], self._must(result, Outcome)
        self._end(op, "ok")

    def _settle(self, op: Op, txn: TxnId | None = None) -> Steps:
        """Have one ended of which nobody knows, or a later one, that nobody has sent yet."""
        if txn is None:
            if not self.shared.doubtful:
                self._end(op, "ok")
                return
            txn = self.draw.choice(self.shared.doubtful).txn
            assert txn is not None
            if self.draw.random() < 0.2:
                txn = txn._replace(sequence=txn.sequence + 1)
        result = yield calls.Settle(txn)
        if isinstance(result, OutcomeUnknown) and "compact" in self.load.doing:
            self._end(op, "ok")  # of so long ago that nobody knows
            return
        op.result = txn, self._must(result, Outcome)
        if op.result[1].status not in (Status.COMMITTED, Status.ABORTED):
            raise Failure("what is settled has ended", f"{op}")
        self._end(op, "ok")

    def _compact(self, op: Op) -> Steps:
        """To any version that somebody was told. Its client may be killed, or give up, before it is over."""
        before = self.draw.choice(self.shared.versions)
        deadline = None if self.draw.random() < 0.7 else self.process.now + int(self.draw.random() * 400 * MILLISECOND)
        result = yield calls.Compact(before, deadline)
        if isinstance(self._must(result, calls.Compacted, Unavailable), calls.Compacted):
            self.world.counts["compacted"] += result.oldest_after > result.oldest_before
            self.shared.floor = max(self.shared.floor, result.floor)
        self._end(op, "ok")

    DO: ClassVar[dict[str, Any]] = {
        "append": _append,
        "transfer": _transfer,
        "compare and set": _compare_and_set,
        "put": _put,
        "read": _read,
        "read of the session": _read_session,
        "snapshot": _snapshot,
        "scan": _scan,
        "outcome": _outcome,
        "settle": _settle,
        "compact": _compact,
    }
