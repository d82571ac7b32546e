"""The applications of the database: four workloads, and requests for the outcomes of transactions.

- list-append: transactions over several keys, each of which holds a list; every element is appended once. Sometimes a
  list is deleted, and starts again. In some seeds ranges of lists and other keys are deleted. In some seeds the
  transactions of all workloads also append under a prefix, whose range some of them read. In some seeds they also add
  to counters, or set them to a minimum or maximum; now and then a counter is deleted, or holds no number.
- bank: transfers between accounts whose sum never changes. An account with the balance of one that was never opened may
  be deleted.
- compare-and-set: single keys, written or deleted if they hold the value that was read.
- programs (`programs.py`): transactions as `logdb.aio` runs them, with speculative reads of other writes of their
  process.

Each client process runs a few workers; a worker is a generator that yields calls, or a `Pause`, and gets results.
"""

from __future__ import annotations

import random
from asyncio import Future
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import logdb
from logdb.clients.pages import RangePages
from logdb.cluster import messages
from logdb.cluster.client import requests
from logdb.cluster.messages import Consistency
from logdb.cores.effects import MILLISECOND, Answer
from logdb.errors import FutureVersion, OutcomeUnknown, Unavailable, VersionTrimmed
from logdb.store.folds import ADD, MAX, MIN
from logdb.store.ranges import ScanRange
from logdb.store.records import Commit, Fold, Place, Range, TxnId, decode_commit, unversioned_key
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import Reason
from tests.sim.database.cold import AWAY
from tests.sim.database.floors import Floors
from tests.sim.database.history import History, Op
from tests.sim.database.keys import (
    ACCOUNTS,
    APPENDED,
    BALANCE,
    CELLS,
    COUNTERS,
    KEYS,
    LISTS,
    balance_of,
    elements_of,
    is_within,
)
from tests.sim.database.programs import Programs
from tests.sim.database.retention import drawn_writes, is_of_retention
from tests.sim.process import Process
from tests.sim.world import Failure, World

LINEARIZABLE, SESSION, SNAPSHOT = Consistency
WEIGHTS = {
    "append": 12,
    "transfer": 10,
    "compare and set": 10,
    "put": 4,
    "delete": 4,
    "run": 10,
    "read": 10,
    "read of the session": 6,
    "snapshot": 6,
    "scan": 5,
    "history": 3,
    "read ahead": 3,
    "export": 3,
    "pin": 3,
    "outcome": 6,
    "settle": 2,
}
"""The operations of workers, and their relative frequency. A seed uses some of them."""

Steps = Generator[Any, Any, None]


class Pause(NamedTuple):
    """Wait for a while."""

    ns: int


class Overtaken(Exception):
    """A compaction has passed the version of a reader, and the cold tier does not have it now."""


@dataclass(frozen=True, slots=True)
class Load:
    """`think_ns`: the mean time between two operations of a worker. `element_bytes`: long ones make large values.
    `compacting`, `expiring`: the weight of compactions, and of writes that expire, in seeds that have any."""

    doing: tuple[str, ...]
    workers: int = 2
    think_ns: int = 5 * MILLISECOND
    element_bytes: int = 8
    hasty: float = 0.1
    """The share of commits with a deadline."""
    compacting: int = 0
    expiring: int = 0


def load_of(draw: random.Random) -> Load:
    """The load of a seed."""
    writing = draw.sample(("append", "transfer", "compare and set"), draw.choice((1, 2, 3)))
    others = [what for what in WEIGHTS if what not in ("append", "transfer", "compare and set")]
    return Load(
        (*writing, *(what for what in others if draw.random() < 0.8)),
        workers=draw.choice((1, 2, 4)),
        think_ns=draw.choice((2, 5, 15)) * MILLISECOND,
        element_bytes=draw.choice((8, 8, 900, 4_500)),
        hasty=draw.choice((0.0, 0.1, 0.4)),
    )


class Shared:
    """State that workers share: transactions whose outcomes are requested, the versions that compactions allow, and the
    `tail` of the log. `is_tiered`: all servers know the cold tier.

    `pinned`: by name the version that is certainly pinned, and since when. `left`: names whose client has died.
    """

    def __init__(self, floors: Floors, tail: Callable[[], int], *, is_tiered: bool) -> None:
        self.floors, self.tail, self.is_tiered = floors, tail, is_tiered
        self.pinned: dict[str, tuple[int, int]] = {}
        self.left: list[str] = []
        self.ended: list[TxnId] = []
        self.doubtful: list[Op] = []
        self.versions: list[int] = [0]


class Application:
    """Drives the workers of one client process."""

    def __init__(self, world: World, process: Process, load: Load, history: History, shared: Shared) -> None:
        self.world, self.process, self.load, self.history, self.shared = world, process, load, history, shared
        self.draw = world.draw(f"application {process.address}")
        # A draw of its own, so that seeds without range deletes are what they were.
        self._deletes = world.draw(f"range deletes {process.address}")
        self._deletes_ranges = world.draw("range deletes").random() < 0.5
        self._appends = world.draw(f"appends {process.address}")
        self._has_appends = world.draw("appends").random() < 0.3
        self._folds = world.draw(f"folds {process.address}")
        self._has_folds = world.draw("folds").random() < 0.4
        self._early = world.draw(f"early ids {process.address}")
        self._has_early_ids = "compact" in load.doing and world.draw("early ids").random() < 0.5
        self._early_ids: list[TxnId] = []
        self.stopping = False
        self.session = 0
        self._calls = 0
        self._open: dict[int, tuple[int, Steps, Op]] = {}
        self._waiting: dict[int, Future[Any]] = {}
        self._programs: Programs | None = None
        self._names = 0
        weights = {**WEIGHTS, "compact": load.compacting, "expire": load.expiring, "follow the tier": 3}
        self._weights = [weights[what] for what in load.doing]
        process.on_answer = self._answered
        for worker in range(load.workers):
            world.after(int(load.think_ns * self.draw.random()), self._act, worker)

    @property
    def open(self) -> list[Op]:
        """The operations under way."""
        running = [] if self._programs is None else [op for _, op in self._programs.running.values()]
        return [*(op for _, _, op in self._open.values()), *(op for op in running if op is not None)]

    @property
    def busy(self) -> int:
        """The number of operations under way."""
        return len(self._open) + (0 if self._programs is None else len(self._programs.running))

    # ---- workers

    def _act(self, worker: int) -> None:
        if self.stopping:
            return
        if self.process.core is None:
            self.world.after(self.load.think_ns, self._act, worker)
            return
        (what,) = self.draw.choices(self.load.doing, self._weights)
        if what == "run":
            self._run(worker)
        else:
            self.do(what, worker)

    def do(self, what: str, worker: int = -1) -> Op:
        """Begin an operation."""
        self.world.counts[what] += 1
        op = self.invoke(what)
        self._go_on(worker, self.DO[what](self, op), op, None)
        return op

    def invoke(self, what: str) -> Op:
        """Record the beginning of an operation."""
        op = self.history.invoke(what, f"{self.process.address}/{self.process.lives}", self.world.now)
        op.session = self.session
        return op

    def deadline(self, op: Op) -> int | None:
        """A deadline, for some commits."""
        op.has_deadline = self.draw.random() < self.load.hasty and not self.stopping
        return self.process.now + int(self.draw.random() * 60 * MILLISECOND) if op.has_deadline else None

    def _go_on(self, worker: int, steps: Steps, op: Op, result: Any) -> None:
        try:
            request = steps.send(result)
        except (StopIteration, Overtaken) as how:
            if isinstance(how, Overtaken):
                op.reads, op.scans = {}, {}
                self.end(op, "fail")
            assert op.status != "open", op
            if worker >= 0 and not self.stopping:
                wait = int(self.draw.expovariate(1) * self.load.think_ns) + 1
                self.world.after(wait, self._act, worker)
            return
        self._calls += 1
        self._open[self._calls] = worker, steps, op
        if isinstance(request, Pause):
            self.world.after(request.ns, self._rested, self._calls)
        else:
            self.process.call(self._calls, request)

    def _rested(self, number: int) -> None:
        if number in self._open:
            self._go_on(*self._open.pop(number), None)

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer.result, Exception):
            self.world.counts[f"returned {type(answer.result).__name__}"] += 1
        if answer.call in self._waiting:
            self._waiting.pop(answer.call).set_result(answer.result)
            return
        worker, steps, op = self._open.pop(answer.call)
        self._go_on(worker, steps, op, answer.result)

    # ---- programs

    def _run(self, worker: int) -> None:
        self.world.counts["run"] += 1
        if self._programs is None or self._programs.is_ended:
            self._programs = Programs(self)
        self._programs.run(worker)

    def put(self, request: Any, waiter: Future[Any]) -> None:
        """A call of a program."""
        self._calls += 1
        self._waiting[self._calls] = waiter
        self.process.call(self._calls, request)

    def has_run(self, worker: int) -> None:
        """A program has ended."""
        if not self.stopping:
            self.world.after(int(self.draw.expovariate(1) * self.load.think_ns) + 1, self._act, worker)

    def killed(self) -> None:
        """Its process was killed: the results of its operations under way are lost."""
        for worker, steps, op in self._open.values():
            steps.close()
            self.end(op, "info")
            if op.what == "pin":
                self.shared.left.append(op.label)
            if worker >= 0:
                self.world.after(self.load.think_ns, self._act, worker)
        self._open.clear()
        self._waiting.clear()
        self._early_ids.clear()
        if self._programs is not None:
            for worker in self._programs.killed():
                self.world.after(self.load.think_ns, self._act, worker)
            self._programs = None
        self.session = 0

    def end(self, op: Op, status: str) -> None:
        """Record the end of an operation."""
        self.history.complete(op, status, self.world.now)
        op.floor = self.shared.floors.floor
        if status == "ok" and op.version:
            self.session = max(self.session, op.version)
            self.shared.versions.append(op.version)
        if op.txn is not None:
            self.shared.ended.append(op.txn)
            if status == "info":
                self.shared.doubtful.append(op)

    def name(self) -> bytes:
        """A unique value."""
        self._names += 1
        name = f"{self.process.address}.{self.process.lives}.{self._names}".encode()
        return name.ljust(self.load.element_bytes, b"_")

    # ---- transactions

    def _begin(self, op: Op) -> Iterator[Any]:
        """A snapshot. Writers accept one of any server, since stale reads make them abort."""
        result = yield requests.Version(self.draw.choice((LINEARIZABLE, SESSION, SESSION)))
        op.snapshot = self._expect(op, result, int)

    def _expect(self, op: Op, result: Any, *kinds: type) -> Any:
        if isinstance(result, VersionTrimmed):
            self.refused(op, result)
            self.world.counts["overtaken by a compaction"] += 1
            raise Overtaken
        if isinstance(result, Unavailable) and Unavailable not in kinds and str(result) == AWAY:
            raise Overtaken
        if not isinstance(result, kinds):
            raise Failure("an answer has a type that its call allows", f"{op}: {result!r}")
        return result

    def refused(self, op: Op, error: VersionTrimmed) -> None:
        """A version is refused only if it is before a floor of the history, and neither a pin nor a client's lease has
        kept it."""
        floors, version, oldest = self.shared.floors, error.version, error.oldest
        if not (version < oldest <= floors.floor and floors.had(oldest)):
            raise Failure("only compacted versions are refused", f"{op}: {error}; the floor is {floors.floor}")
        if self.shared.is_tiered and floors.copied is not None and floors.attached <= version and op.what != "pin":
            raise Failure("DBS-21: versions of the cold tier can be read", f"{op}: {error}")
        pinned = [name for name, (at, since) in self.shared.pinned.items() if at <= version and since < op.invoked]
        if pinned:
            raise Failure("pinned versions can be read", f"{op}: {error}; {pinned}")

    def _get(self, op: Op, keys: list[bytes]) -> Iterator[Any]:
        result = yield requests.Get(keys, SNAPSHOT, op.snapshot)
        found = self._expect(op, result, requests.Found)
        op.reads.update(zip(keys, found.entries, strict=True))

    def _drawn_deletes(self) -> list[Range]:
        """Some ranges of lists and cells, in seeds that delete ranges. Accounts are never deleted by range."""
        if not self._deletes_ranges or self._deletes.random() >= 0.25:
            return []
        bounds = sorted(self._deletes.sample([*CELLS, b"cell:", *LISTS, b"list:"], 2))
        choices: list[Range] = [(bounds[0], bounds[1]), (b"list ", b"list:"), (bounds[1], None), (b"b", b"cell 1")]
        return self._deletes.sample(choices, self._deletes.choice((1, 1, 2)))

    def _read_appended(self, op: Op) -> Iterator[Any]:
        """Read what was appended, in some transactions of seeds that append."""
        if self._has_appends and self._appends.random() < 0.3:
            yield from self._pages(op, APPENDED, SNAPSHOT, op.snapshot)

    def _draw_appends(self, op: Op) -> None:
        """Append up to three values, in seeds that append."""
        if self._has_appends and self._appends.random() < 0.5:
            op.appended = tuple([unversioned_key(APPENDED[0], at) for at in range(self._appends.choice((1, 1, 3)))])
            op.writes.update((key, self.name()) for key in op.appended)
            self.world.counts["appends"] += len(op.appended)

    def _read_counters(self, op: Op) -> Iterator[Any]:
        """Read a counter, in some transactions of seeds with folds."""
        if self._has_folds and self._folds.random() < 0.2:
            yield from self._get(op, [self._folds.choice(COUNTERS)])

    def _with_counters(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Keys to read, in seeds with folds with the counters."""
        return [*keys, *COUNTERS] if self._has_folds else keys

    def _draw_folds(self, op: Op) -> None:
        """Fold one or two counters, or replace one, in seeds with folds."""
        if not self._has_folds or self._folds.random() < 0.5:
            return
        draw, keys = self._folds, list(COUNTERS)
        if draw.random() < 0.1:
            key = keys.pop(draw.randrange(len(keys)))
            op.writes[key] = self.name() if draw.random() < 0.3 else None
        for _ in range(draw.choice((1, 1, 2, 3))):
            op.folds += (Fold(draw.choice((ADD, ADD, MIN, MAX)), draw.choice(keys), draw.randint(-9, 9)),)
        self.world.counts["folds"] += len(op.folds)

    def _new_id(self) -> Generator[Any, Any, TxnId]:
        """The id of a transaction. In some seeds with compactions, some ids are used long after later ones."""
        draw, early = self._early, self._early_ids
        if self._has_early_ids and draw.random() < 0.2:
            early.append((yield requests.NewId()))
        if early and draw.random() < 0.1:
            self.world.counts["early id"] += 1
            return early.pop(draw.randrange(len(early)))
        return (yield requests.NewId())  # type: ignore[no-any-return]

    def _commit(self, op: Op, deletes: Sequence[Range] = ()) -> Iterator[Any]:
        """Commit the reads and writes of the operation; ends it. `deletes`: ranges to be deleted before the writes."""
        self._draw_folds(op)
        self._draw_appends(op)
        writes = dict(op.writes)
        for start, end in deletes:
            left = {*KEYS, *COUNTERS} - writes.keys() - {fold.key for fold in op.folds}
            op.writes.update({key: None for key in sorted(left) if is_within(key, start, end)})
        op.txn = yield from self._new_id()
        op.label = f"{op.what} {op.invoked}"
        deadline = self.deadline(op)
        result = yield requests.Commit(
            writes,
            op.snapshot,
            op.label,
            sorted(op.reads),
            list(op.scans),
            op.conditions,
            op.txn,
            deadline=deadline,
            deletes=deletes,
            appended=len(op.appended),
            folds=op.folds,
        )
        self.world.counts["range deletes"] += len(deletes)
        self._expect(op, result, requests.Committed, Unavailable, OutcomeUnknown)
        if isinstance(result, requests.Committed):
            op.version, op.verdict, op.winner = result.version, result.verdict, result.winner
            if result.verdict.committed:
                op.committed_at(op.version)
            self.world.counts[f"verdict {result.verdict.reason.name}"] += 1
            if result.txn_id != op.txn or result.verdict.reason is Reason.DUPLICATE:
                raise Failure("a verdict is of its transaction", f"{op}: {result}")
            self.end(op, "ok" if result.verdict.committed else "fail")
        else:
            op.error = result
            self.end(op, "fail" if isinstance(result, Unavailable) else "info")

    def _append(self, op: Op) -> Steps:
        """Read some lists, append to one or two of them, or delete one."""
        yield from self._begin(op)
        keys = self.draw.sample(LISTS, self.draw.choice((1, 2, 3)))
        if self.draw.random() < 0.4:
            span = self.draw.choice(((b"list ", b"list:"), (b"cell ", b"cell:")))
            yield from self._pages(op, span, SNAPSHOT, op.snapshot)
        yield from self._read_appended(op)
        yield from self._read_counters(op)
        yield from self._get(op, keys)
        for key in keys[: self.draw.choice((1, 1, 2))]:
            op.writes[key] = b",".join([*elements_of(op.reads[key][1]), self.name()])
        if self.draw.random() < 0.15:
            op.writes[keys[0]] = None
        yield from self._commit(op, self._drawn_deletes())

    def _pages(
        self, op: Op, span: Range, consistency: Consistency, version: int = 0, pause_ns: int = 0
    ) -> Generator[Any, Any, int]:
        """Read a range page by page, forwards or backwards. Returns the version."""
        start, end = span
        reverse = self.draw.random() < 0.5
        rows: dict[bytes, bytes] = {}
        while True:
            result = yield requests.Scan(start, end, reverse, self.draw.choice((2, 1_000)), consistency, version)
            page = self._expect(op, result, requests.Page)
            rows.update((key, value) for key, value in page.rows if not is_of_retention(key))
            if page.rest is None:
                op.scans[span] = rows
                return int(page.version)
            consistency, version = SNAPSHOT, page.version
            if reverse:
                end = page.rest
            else:
                start = page.rest
            if pause_ns:
                yield Pause(int(self.draw.random() * pause_ns))

    def _transfer(self, op: Op) -> Steps:
        yield from self._begin(op)
        one, other = self.draw.sample(ACCOUNTS, 2)
        yield from self._read_appended(op)
        yield from self._read_counters(op)
        yield from self._get(op, [one, other])
        balance = balance_of(op.reads[one][1])
        closes = self.draw.random() < 0.2
        amount = balance - BALANCE if closes else self.draw.randint(1, 20)
        name = self.name()
        op.writes[one] = None if closes else b"%d %s" % (balance - amount, name)
        op.writes[other] = b"%d %s" % (balance_of(op.reads[other][1]) + amount, name)
        yield from self._commit(op)

    def _compare_and_set(self, op: Op) -> Steps:
        """A test-and-multi-put of one key, against its current value."""
        key = self.draw.choice(CELLS)
        result = yield requests.Get([key], self.draw.choice((LINEARIZABLE, SESSION)))
        version, value = self._expect(op, result, requests.Found).entries[0]
        if value is None:
            condition = logdb.absent(key)
        elif self.draw.random() < 0.5:
            condition = logdb.equals(key, value)
        else:
            condition = logdb.version_equals(key, version)
        op.conditions = (condition,)
        op.writes[key] = None if self.draw.random() < 0.25 else self.name()
        yield from self._commit(op)

    def _put(self, op: Op) -> Steps:
        op.writes[self.draw.choice(CELLS)] = self.name()
        yield from self._commit(op)

    def _delete(self, op: Op) -> Steps:
        """Delete a cell, or some ranges."""
        cell = self.draw.choice(CELLS)
        deletes = self._drawn_deletes()
        if not deletes:
            op.writes[cell] = None
        yield from self._commit(op, deletes)

    # ---- reads

    def _read(self, op: Op, consistency: Consistency = LINEARIZABLE) -> Steps:
        keys = self._with_counters(self.draw.choice((ACCOUNTS, LISTS, [self.draw.choice(KEYS)])))
        op.is_linearizable = consistency is LINEARIZABLE
        result = yield requests.Get(keys, consistency)
        found = self._expect(op, result, requests.Found)
        op.version = found.version
        op.reads.update(zip(keys, found.entries, strict=True))
        self.end(op, "ok")

    def _read_session(self, op: Op) -> Steps:
        yield from self._read(op, SESSION)

    def _snapshot(self, op: Op) -> Steps:
        """Read a version that some client has received, perhaps just now from another server."""
        versions = self.shared.versions
        version = self.draw.choice((versions[-1], self.draw.choice(versions)))
        keys = self._with_counters(self.draw.choice((ACCOUNTS, LISTS, CELLS)))
        result = yield requests.Get(keys, SNAPSHOT, version)
        op.version = self._expect(op, result, requests.Found).version
        op.reads.update(zip(keys, result.entries, strict=True))
        self.end(op, "ok")

    def _read_ahead(self, op: Op) -> Steps:
        """Read a version that exists only if others write fast."""
        tail, version = self.shared.tail(), self.shared.versions[-1] + self.draw.choice((1, 2, 4, 9))
        keys = self.draw.choice((ACCOUNTS, LISTS, CELLS))
        result = yield requests.Get(keys, SNAPSHOT, version)
        if isinstance(self._expect(op, result, requests.Found, FutureVersion), FutureVersion):
            if not tail <= result.newest < result.version == version:
                what = f"{op}: {result}; the tail was {tail}"
                raise Failure("DBS-5: a snapshot is future only beyond the tail", what)
        else:
            op.version = result.version
            op.reads.update(zip(keys, result.entries, strict=True))
        self.end(op, "ok")

    def _history(self, op: Op) -> Steps:
        """Read all remaining versions of a key, page by page."""
        key = self.draw.choice(KEYS)
        if self._has_folds and self._folds.random() < 0.3:
            key = self._folds.choice(COUNTERS)
        versions = self.shared.versions
        consistency, below = self.draw.choice(((LINEARIZABLE, 0), (SNAPSHOT, self.draw.choice(versions))))
        op.is_linearizable = consistency is LINEARIZABLE
        entries, more = op.histories.setdefault(key, []), True
        while more:
            result = yield requests.History(key, self.draw.choice((2, 50)), consistency, below)
            found = self._expect(op, result, requests.Versions)
            op.version = op.version or found.version
            entries += found.entries
            more = found.more
            consistency, below = SNAPSHOT, found.entries[-1][0] - 1 if more else 0
        self.end(op, "ok")
        if self.shared.is_tiered and self.shared.floors.copied is not None:
            op.floor = self.shared.floors.attached

    def _follow_tier(self, op: Op) -> Steps:
        """Read the commits of the cold tier from some version on, with their large values."""
        floors, copied = self.shared.floors, self.shared.floors.copied
        if copied is None or copied == floors.attached:
            self.end(op, "ok")
            return
        after = self.draw.choice([floors.attached, *(it for it in self.shared.versions if it >= floors.attached)])
        commits: dict[int, Commit] = {}
        more, end, last = True, after + 1, after
        while more:
            result = yield requests.ColdCommits(end - 1)
            if isinstance(result, VersionTrimmed) and not self.shared.is_tiered:
                raise Overtaken
            page = self._expect(op, result, messages.CommitPage)
            for found in page.commits:
                version, commit = found.version, decode_commit(found.record, found.version)
                writes = dict(commit.writes)
                for key, value in writes.items():
                    if isinstance(value, Place):
                        writes[key] = self._expect(op, (yield requests.ColdValue(value)), bytes)
                if not last < version == commit.sequence:
                    raise Failure("DBS-21: the tier has each commit once, in order", f"{op}: {version} after {last}")
                commits[version], last = commit._replace(writes=writes), version
            if page.end <= last or page.end < end + page.more:
                raise Failure("DBS-21: a page ends after its commits", f"{op}: {page} after {end - 1}")
            end, more, last = page.end, page.more, page.end - 1
        if end <= copied and after < copied:
            raise Failure("DBS-21: a follower gets to the end of the tier", f"{op}: {end}, not beyond {copied}")
        op.followed = after, end, commits
        self.end(op, "ok")

    def _export(self, op: Op) -> Steps:
        """Read all keys slowly, with a lease on the version."""
        result = yield requests.Version(self.draw.choice((LINEARIZABLE, SESSION)))
        op.version = op.snapshot = self._expect(op, result, int)
        holder = "export", op.invoked
        yield requests.LeaseVersion(holder, op.version)
        try:
            yield Pause(int(self.draw.random() * 20 * MILLISECOND))
            for span in ((b"", None), (b"cell ", b"list 2")):
                yield from self._pages(op, span, SNAPSHOT, op.version, 40 * MILLISECOND)
        except Overtaken:
            yield requests.LeaseVersion(holder, None)
            raise
        yield requests.LeaseVersion(holder, None)
        self.end(op, "ok")

    def _pin(self, op: Op) -> Steps:
        """Pin a version that some client has received, read it for a while, and unpin it."""
        left, pinned = self.shared.left, self.shared.pinned
        if left and self.draw.random() < 0.7:
            op.label = left.pop(self.draw.randrange(len(left)))
        else:
            op.label, version = f"pin {op.invoked}", self.draw.choice(self.shared.versions[-20:])
            if not version:
                self.end(op, "ok")
                return
            result = yield requests.Pin(op.label, version)
            self._expect(op, result, int, Unavailable)
            if result == version:
                pinned[op.label] = version, self.history.moment
                for _ in range(self.draw.choice((1, 3))):
                    yield Pause(int(self.draw.random() * 40 * MILLISECOND))
                    keys = self.draw.choice((ACCOUNTS, LISTS, CELLS))
                    reading = self.invoke("snapshot")
                    result = yield requests.Get(keys, SNAPSHOT, version)
                    reading.version = self._expect(reading, result, requests.Found).version
                    reading.reads.update(zip(keys, result.entries, strict=True))
                    self.end(reading, "ok")
            elif isinstance(result, int) and self.shared.floors.floor <= version:
                raise Failure("a pin before the floor is granted", f"{op}: {result}, not {version}")
        pinned.pop(op.label, None)
        result = yield requests.Pin(op.label, 0)
        if isinstance(self._expect(op, result, int, Unavailable), Unavailable):
            left.append(op.label)
        self.end(op, "ok")

    def _scan(self, op: Op) -> Steps:
        span = self.draw.choice(((b"account ", b"account:"), (b"", None), (b"list 1", b"list 3")))
        op.is_linearizable = True
        if self.draw.random() < 0.5:
            op.version = yield from self._pages(op, span, LINEARIZABLE)
        else:
            op.version = yield from self._several(op, (span, (b"cell ", b"cell:"), (b"list 2", None)))
        self.end(op, "ok")

    def _several(self, op: Op, spans: Sequence[Range]) -> Generator[Any, Any, int]:
        """Read several ranges, in pages that may span ranges. Returns the version."""
        reverse = self.draw.random() < 0.5
        pages = RangePages([ScanRange(start, end, None) for start, end in spans], reverse)
        consistency, version = LINEARIZABLE, 0
        while left := pages.left(self.draw.choice((1, 2, 9))):
            rows = self.draw.choice((2, 1_000))
            scans = tuple([messages.Scan(start, end, reverse, rows) for start, end, _ in left])
            found = self._expect(op, (yield requests.MultiScan(scans, consistency, version)), requests.Pages)
            pages.take((page.rows, page.rest) for page in found.pages)
            consistency, version = SNAPSHOT, found.version
        found_rows = [{key: row for key, row in rows if not is_of_retention(key)} for rows in pages.rows]
        op.scans.update(zip(spans, found_rows, strict=True))
        return version

    # ---- ends

    def _outcome(self, op: Op) -> Steps:
        """Request the outcome of a transaction, usually one that has just ended."""
        if not self.shared.ended:
            self.end(op, "ok")
            return
        op.result = self.draw.choice((self.shared.ended[-1], self.draw.choice(self.shared.ended))), None
        result = yield requests.Outcome(op.result[0])
        op.result = op.result[0], self._expect(op, result, Outcome)
        self.end(op, "ok")

    def _settle(self, op: Op, txn: TxnId | None = None) -> Steps:
        """Settle a transaction of unknown outcome, or a later number that was never sent."""
        if txn is None:
            if not self.shared.doubtful:
                self.end(op, "ok")
                return
            txn = self.draw.choice(self.shared.doubtful).txn
            assert txn is not None
            if self.draw.random() < 0.2:
                txn = txn._replace(sequence=txn.sequence + 1)
        result = yield requests.Settle(txn)
        if isinstance(result, OutcomeUnknown) and "compact" in self.load.doing:
            op.result = txn, Outcome(Status.FORGOTTEN, 0)
            self.end(op, "ok")
            return
        op.result = txn, self._expect(op, result, Outcome)
        if op.result[1].status not in (Status.COMMITTED, Status.ABORTED):
            raise Failure("a settled transaction has an outcome", f"{op}")
        self.end(op, "ok")

    def _expire(self, op: Op) -> Steps:
        """Write keys with a time to live, or again without one, and append to a log with a retention."""
        writes, appended = drawn_writes(self.draw, self.name())
        txn = yield requests.NewId()
        result = yield requests.Commit(writes, 0, "", [], [], (), txn, appended=appended)
        self._expect(op, result, requests.Committed, Unavailable, OutcomeUnknown)
        self.end(op, "ok")

    def _compact(self, op: Op) -> Steps:
        """Compact to a version that some client has received. The client may be killed, or give up, before it ends."""
        versions = self.shared.versions
        before = self.draw.choice(versions[-self.draw.choice((4, 20, len(versions))) :])
        deadline = None if self.draw.random() < 0.7 else self.process.now + int(self.draw.random() * 400 * MILLISECOND)
        result = yield requests.Compact(before, deadline)
        if isinstance(self._expect(op, result, requests.Compacted, Unavailable), requests.Compacted):
            self.world.counts["compacted"] += result.oldest_after > result.oldest_before
            if not (self.shared.floors.had(result.floor) and result.oldest_after <= max(self.shared.floors.cleaned, 1)):
                raise Failure("a compaction reports its effect", f"{op}: {result}")
        self.end(op, "ok")

    DO: ClassVar[dict[str, Any]] = {
        "append": _append,
        "transfer": _transfer,
        "compare and set": _compare_and_set,
        "put": _put,
        "delete": _delete,
        "read": _read,
        "read of the session": _read_session,
        "snapshot": _snapshot,
        "scan": _scan,
        "history": _history,
        "read ahead": _read_ahead,
        "export": _export,
        "pin": _pin,
        "outcome": _outcome,
        "settle": _settle,
        "compact": _compact,
        "expire": _expire,
        "follow the tier": _follow_tier,
    }
