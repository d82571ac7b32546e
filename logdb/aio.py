"""LogDB for asyncio: the verbs of `logdb.Database`, native.

    async with await logdb.aio.open("data") as db:
        version = await db.put(b"k", b"1")
        async for key, value in db.scan(prefix=b"user/"): ...
        async with db.transaction() as txn:
            txn.put(b"k", await txn.get(b"other"))

Coroutines share what can be shared: a sync of the disk, a message to a server.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from itertools import islice
from os import PathLike
from time import perf_counter
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from logdb.api import database as sync
from logdb.api import opening
from logdb.api.backend import AsyncBackend, AsyncChangeFeed, AsyncReader
from logdb.api.results import ROUND_TRIPS, Change, Compacted, Found, HistoryEntry, ShardHistory, Stats, Tested, stats_of
from logdb.api.timestamps import moment, nanoseconds
from logdb.backups import restoring, taking
from logdb.backups.manifests import Backup
from logdb.clients.background_loop import LoopRunner
from logdb.clients.blocking_backend import BlockingBackend
from logdb.clients.lazy_snapshot import RequestBackend
from logdb.cluster.placement import Placement
from logdb.embedded import EmbeddedBackend
from logdb.embedded.async_backend import CoroutineBackend
from logdb.errors import ConflictError, DatabaseClosed
from logdb.named_logs import AsyncExclusiveLog, AsyncNamedLog, AsyncTransactionLog, Retention
from logdb.named_logs.async_log import names_of
from logdb.retention.expiry import with_expiry
from logdb.retention.sweep import Swept
from logdb.store.arguments import (
    check_body,
    check_flag,
    check_progress,
    checked_conditions,
    checked_items,
    checked_keys,
    checked_version,
    checked_wait,
    listed,
    watched_keys,
)
from logdb.store.folds import ADD, MAX, MIN, check_fold
from logdb.store.key_map import Rows
from logdb.store.limits import check_key, check_pin, check_value
from logdb.store.ranges import check_prefix, key_range, range_to_delete, scan_ranges
from logdb.store.records import Condition, Fold, TxnId, unversioned_key, versioned_key
from logdb.tables.async_table import AsyncTable
from logdb.tables.codecs import Codec
from logdb.tables.operations import Definition
from logdb.txn.coordinator import Outcome
from logdb.txn.retry import ATTEMPTS, Attempts, RunOptions, nested, run_options
from logdb.txn.speculation import Misspeculated
from logdb.txn.transaction import RangeRead, RangeReads, Workspace

__all__ = [
    "Changes",
    "TransactionScope",
    "Database",
    "Snapshot",
    "Transaction",
    "backup",
    "connect",
    "open",
    "restore",
    "shard_history",
]

D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")
T = TypeVar("T")

BATCHES_A_TURN = 2
"""Number of batches after which a scan yields to other coroutines: batches in memory need no await."""


async def open(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    compact_above: float | None = None,
    sweep_interval: float | None = opening.SWEEP_INTERVAL_S,
    cold: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Database:
    """As `logdb.open`; the replay runs in a thread."""
    call = functools.partial(
        opening.open_backend,
        path,
        read_only=read_only,
        create=create,
        compact_above=compact_above,
        sweep_interval=sweep_interval,
        cold=cold,
        progress=progress,
    )
    opened = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return Database(CoroutineBackend(await asyncio.shield(opened)))
    except asyncio.CancelledError:
        opened.add_done_callback(_close_unclaimed)
        raise


async def connect(
    endpoints: str | Iterable[str],
    *,
    timeout: float = opening.TIMEOUT_S,
    placement: Placement | None = None,
    session: int | None = None,
    consistency: opening.Consistency | None = None,
    ca: str | PathLike[str] | None = None,
    certificate: str | PathLike[str] | None = None,
    certificate_key: str | PathLike[str] | None = None,
    token: str | None = None,
) -> Database:
    """As `logdb.connect`."""
    with opening.cluster_needed():
        from logdb.clients.connecting import connect
        from logdb.security.credentials import credentials
        from logdb.system.addresses import endpoints_of
    addresses, timeout_s = endpoints_of(endpoints), opening.checked_timeout(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    since = opening.checked_session(session, consistency)
    return Database(await connect(addresses, timeout_s, placement, since, shown))


async def shard_history(
    endpoints: str | Iterable[str],
    key: bytes,
    *,
    placement: Placement,
    timeout: float = opening.TIMEOUT_S,
    ca: str | PathLike[str] | None = None,
    certificate: str | PathLike[str] | None = None,
    certificate_key: str | PathLike[str] | None = None,
    token: str | None = None,
) -> ShardHistory:
    """As `logdb.shard_history`."""
    with opening.cluster_needed():
        from logdb.clients.shard_history import read_history
        from logdb.security.credentials import credentials
        from logdb.system.addresses import endpoints_of
    check_key(key)
    addresses, timeout_s = endpoints_of(endpoints), opening.checked_timeout(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    through, entries = await read_history(addresses, key, placement, timeout_s, shown)
    return ShardHistory(through, [HistoryEntry(*entry) for entry in entries])


async def backup(
    db: Database,
    to: str | PathLike[str],
    *,
    full: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Backup:
    """As `logdb.backup`, in a thread, which also calls `progress`."""
    reader = _for_threads(db)
    return await _in_thread(lambda tick: taking.backup(reader, to, full=full, progress=tick), progress)


async def restore(
    location: str | PathLike[str],
    into: str | PathLike[str] | Database,
    *,
    version: int | None = None,
    time: dt.datetime | float | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> restoring.Restored:
    """As `logdb.restore`, in a thread, which also calls `progress`."""
    target = _for_threads(into) if isinstance(into, Database) else into
    return await _in_thread(
        lambda tick: restoring.restore(location, target, version=version, time=time, progress=tick), progress
    )


def _for_threads(db: Database) -> sync.Database:
    """The same database, for threads other than that of the running loop."""
    if not isinstance(db, Database):
        raise TypeError(f"db must be a logdb.aio.Database, not {type(db).__name__}")
    host = db._host
    if isinstance(host, CoroutineBackend):
        return sync.Database(host.embedded)
    assert isinstance(host, RequestBackend)
    return sync.Database(BlockingBackend(host, LoopRunner(asyncio.get_running_loop())))


async def _in_thread(
    work: Callable[[Callable[[int, int | None], None]], T], progress: Callable[[int, int | None], None] | None
) -> T:
    """Run `work` in a thread, with a function for its progress. Cancellation ends it at its next report, and waits."""
    cancelled = threading.Event()

    def tick(done: int, total: int | None) -> None:
        if cancelled.is_set():
            raise InterruptedError
        if progress is not None:
            progress(done, total)

    running = asyncio.get_running_loop().run_in_executor(None, work, tick)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait((running,))
        raise


def _close_unclaimed(opened: asyncio.Future[EmbeddedBackend]) -> None:
    """Close a database whose opening was cancelled."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


class Snapshot:
    """The database at one version: `logdb.Snapshot` for asyncio."""

    def __init__(self, host: AsyncBackend, version: int) -> None:
        self._host, self.version = host, version

    @overload
    async def get(self, key: bytes) -> bytes | None: ...
    @overload
    async def get(self, key: bytes, default: D) -> bytes | D: ...
    async def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """As `logdb.Snapshot.get`."""
        check_key(key)
        self._check_open()
        value = await self._host.get(key, self.version)
        return default if value is None else value

    def _check_open(self) -> None:
        if self._host.closed:
            raise DatabaseClosed(self._host.path, self._host.forked_from)

    async def multi_get(self, keys: Iterable[bytes]) -> Found:
        """As `logdb.Snapshot.multi_get`."""
        self._check_open()
        _, found = await self._host.multi_get(checked_keys(keys), self.version)
        return Found(found, self.version)

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """As `logdb.Snapshot.scan`, as an asynchronous iterator."""
        low, high = key_range(start, end, prefix, limit, reverse)
        return _rows(self._host.scan(low, high, self.version, reverse=reverse, limit=limit), limit)

    async def multi_scan(
        self,
        ranges: Iterable[tuple[bytes | None, bytes | None]],
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[list[tuple[bytes, bytes]]]:
        """As `logdb.Snapshot.multi_scan`."""
        self._check_open()
        return await self._host.multi_scan(scan_ranges(ranges, limit, reverse), self.version, reverse=reverse)

    def history(self, key: bytes) -> AsyncIterator[HistoryEntry]:
        """As `logdb.Snapshot.history`, as an asynchronous iterator."""
        check_key(key)
        return _entries(self._host.history(key, self.version))


class Transaction(Workspace):
    """`logdb.Transaction` for asyncio. Reads are awaited; writes take effect with the commit and are plain calls."""

    reader: AsyncReader

    def log(self, name: str) -> AsyncTransactionLog:
        """As `logdb.Transaction.log`."""
        return AsyncTransactionLog(self, name)

    @overload
    async def get(self, key: bytes) -> bytes | None: ...
    @overload
    async def get(self, key: bytes, default: D) -> bytes | D: ...
    async def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """As `logdb.Transaction.get`."""
        found: dict[bytes, bytes] = {}
        if self.unread((key,), found):
            value = await self.reader.get(key, self.snapshot)
            if key in self.folds:
                value = self.folded_value(key, value)
            return default if value is None else value
        return found[key] if key in found else default  # noqa: SIM401 - the types differ

    async def multi_get(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """As `logdb.Transaction.multi_get`."""
        found: dict[bytes, bytes] = {}
        left = self.unread(listed(keys, "keys"), found)
        if left:
            found.update(self.with_folds((await self.reader.multi_get(left, self.snapshot))[1], left))
        return found

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """As `logdb.Transaction.scan`, as an asynchronous iterator."""
        low, high = key_range(start, end, prefix, limit, reverse)
        return self._scan(low, high, reverse, limit)

    async def multi_scan(
        self,
        ranges: Iterable[tuple[bytes | None, bytes | None]],
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[list[tuple[bytes, bytes]]]:
        """As `logdb.Transaction.multi_scan`."""
        reads = RangeReads(self, scan_ranges(ranges, limit, reverse), reverse)
        while asked := reads.ask():
            reads.take(await self.reader.multi_scan(asked, self.snapshot, reverse=reverse))
        return reads.rows

    async def _scan(
        self, start: bytes | None, end: bytes | None, reverse: bool, limit: int | None
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        count, reading = 0, RangeRead(self, start, end, reverse, limit)
        span = reading.span
        async for batch in self._batches(reading, reverse):
            for part in reading.merged(batch):
                for row in part:
                    if self.is_over:
                        self._check_open()
                    span.last = row[0]
                    yield row
                if reading.is_full:
                    break
                count += 1
                if not count % BATCHES_A_TURN:
                    await asyncio.sleep(0)
        if not reading.is_full:
            span.last = None

    async def _batches(self, reading: RangeRead, reverse: bool) -> AsyncIterator[Rows | None]:
        while not (reading.is_over or reading.is_full):
            start, end, limit = reading.ask()
            async for batch in self.reader.scan(start, end, self.snapshot, reverse=reverse, limit=limit):
                yield batch
            yield None


class Changes:
    """The commits that `Database.watch` follows: `async for` yields them.

    Awaiting it first returns when the feed has begun, so that a version that cannot be watched is rejected there.
    """

    def __init__(self, feed: AsyncChangeFeed, timeout: float | None, with_keys_of: AsyncBackend | None) -> None:
        self._feed, self._timeout, self._with_keys_of = feed, timeout, with_keys_of

    async def _begun(self) -> Changes:
        await self._feed.begun()
        return self

    def __await__(self) -> Generator[Any, None, Changes]:
        return self._begun().__await__()

    async def __aiter__(self) -> AsyncIterator[Change]:
        try:
            while (change := await self._feed.poll(self._timeout)) is not None:
                if self._with_keys_of is not None and change.deleted:
                    before = Snapshot(self._with_keys_of, change.version - 1)
                    keys = [key for start, end in change.deleted async for key, _ in before.scan(start, end)]
                    change = change.with_deleted(keys)
                yield change
        finally:
            await self._feed.close()


class Database:
    """`logdb.Database` for asyncio: the same methods, for the coroutines of one event loop."""

    def __init__(self, host: AsyncBackend) -> None:
        self._host = host
        self._running: set[asyncio.Task[Any] | None] = set()

    # ---- reading

    @overload
    async def get(self, key: bytes) -> bytes | None: ...
    @overload
    async def get(self, key: bytes, default: D) -> bytes | D: ...
    async def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """As `logdb.Database.get`."""
        if key.__class__ is not bytes or not key:
            check_key(key)
        value = await self._host.get(key)
        if value is not None:
            return value
        check_key(key)  # its length, which costs time, only here: no key that exists is too long
        return default

    async def multi_get(self, keys: Iterable[bytes]) -> Found:
        """As `logdb.Database.multi_get`."""
        version, found = await self._host.multi_get(checked_keys(keys))
        return Found(found, version)

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """As `logdb.Database.scan`, as an asynchronous iterator."""
        low, high = key_range(start, end, prefix, limit, reverse)
        return _rows(self._host.scan(low, high, reverse=reverse, limit=limit), limit)

    async def multi_scan(
        self,
        ranges: Iterable[tuple[bytes | None, bytes | None]],
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[list[tuple[bytes, bytes]]]:
        """As `logdb.Database.multi_scan`."""
        return await self._host.multi_scan(scan_ranges(ranges, limit, reverse), reverse=reverse)

    def history(self, key: bytes) -> AsyncIterator[HistoryEntry]:
        """As `logdb.Database.history`, as an asynchronous iterator."""
        check_key(key)
        return _entries(self._host.history(key))

    async def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> Snapshot:
        """As `logdb.Database.at`."""
        host = self._host
        if time is not None:
            if version is not None:
                raise ValueError("give a version or a time, but not both")
            return Snapshot(host, await host.at_time(nanoseconds(time)))
        if version is None:
            return Snapshot(host, await host.version())
        return Snapshot(host, await host.at(checked_version(version)))

    async def version(self) -> int:
        """The newest version: that of the last record that is durable. Raises DatabaseClosed, Unavailable."""
        return await self._host.version()

    @property
    def session(self) -> int:
        """As `logdb.Database.session`."""
        return self._host.session

    async def oldest_version(self) -> int:
        """The oldest version that can be read; 0 is the empty database. Raises DatabaseClosed, Unavailable."""
        return await self._host.oldest()

    async def time_of(self, version: int) -> dt.datetime | None:
        """As `logdb.Database.time_of`."""
        time = await self._host.time_of(version) if checked_version(version) else None
        return None if time is None else moment(time)

    # ---- writing

    async def put(self, key: bytes, value: bytes, *, label: str = "", ttl: float | None = None) -> int:
        """As `logdb.Database.put`."""
        check_key(key)
        check_value(key, value)
        if ttl is not None:
            return await self.multi_put({key: value}, label=label, ttl=ttl)
        return (await self._host.write({key: value}, label))[0]

    async def delete(self, key: bytes, *, label: str = "") -> int:
        """As `logdb.Database.delete`."""
        check_key(key)
        return (await self._host.write({key: None}, label))[0]

    async def delete_range(self, start: bytes | None = None, end: bytes | None = None, *, label: str = "") -> int:
        """As `logdb.Database.delete_range`."""
        return (await self._host.write({}, label, (), range_to_delete(start, end)))[0]

    async def delete_prefix(self, prefix: bytes, *, label: str = "") -> int:
        """As `logdb.Database.delete_prefix`."""
        return (await self._host.write({}, label, (), range_to_delete(None, None, prefix)))[0]

    async def add(self, key: bytes, n: int, *, label: str = "") -> int:
        """As `logdb.Database.add`."""
        return await self._fold(Fold(ADD, key, n), label)

    async def min(self, key: bytes, value: int, *, label: str = "") -> int:
        """As `logdb.Database.min`."""
        return await self._fold(Fold(MIN, key, value), label)

    async def max(self, key: bytes, value: int, *, label: str = "") -> int:
        """As `logdb.Database.max`."""
        return await self._fold(Fold(MAX, key, value), label)

    async def _fold(self, fold: Fold, label: str) -> int:
        check_fold(fold)
        return (await self._host.write({}, label, (), (), 0, (fold,)))[0]

    async def append(self, prefix: bytes, value: bytes, *, label: str = "") -> bytes:
        """As `logdb.Database.append`."""
        check_prefix(prefix)
        check_value(prefix, value)
        key = unversioned_key(prefix, 0)
        return versioned_key(key, (await self._host.write({key: value}, label, (), (), 1))[0])

    async def multi_put(self, items: Mapping[bytes, bytes | None], *, label: str = "", ttl: float | None = None) -> int:
        """As `logdb.Database.multi_put`."""
        writes, appended = with_expiry(checked_items(items), ttl)
        return (await self._host.write(writes, label, (), (), appended))[0]

    async def test_and_multi_put(
        self,
        conditions: Iterable[Condition],
        items: Mapping[bytes, bytes | None],
        *,
        label: str = "",
        ttl: float | None = None,
    ) -> Tested:
        """As `logdb.Database.test_and_multi_put`."""
        tested, (writes, appended) = checked_conditions(conditions), with_expiry(checked_items(items), ttl)
        return sync.tested_answer(*await self._host.write(writes, label, tested, (), appended), tested)

    def transaction(self, *, read_only: bool = False, label: str = "", guard_writes: bool = False) -> TransactionScope:
        """As `logdb.Database.transaction`: `async with db.transaction() as txn: ...`."""
        check_flag("read_only", read_only)
        check_flag("guard_writes", guard_writes)
        return TransactionScope(self._host, read_only, label, guard_writes)

    @overload
    async def run(
        self,
        body: Callable[[Transaction], Awaitable[T]],
        *,
        read_only: bool = False,
        label: str | None = None,
        attempts: int = ATTEMPTS,
        timeout: float | None = None,
    ) -> T: ...
    @overload
    async def run(
        self, body: Callable[Concatenate[Transaction, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def run(
        self,
        body: Callable[[Transaction], T],
        *,
        read_only: bool = False,
        label: str | None = None,
        attempts: int = ATTEMPTS,
        timeout: float | None = None,
    ) -> T: ...
    @overload
    async def run(self, body: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def run(  # type: ignore[misc]  # a parameter of the body may have the name of an option
        self,
        body: Callable[..., Any],
        *args: Any,
        read_only: bool = False,
        label: str | None = None,
        attempts: int = ATTEMPTS,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> T:
        """As `logdb.Database.run`, for an async function `body(txn, *args, **kwargs)`, or for a plain one that awaits
        nothing, because it only writes.

        Behind endpoints, `body` may read a version that this process has just written and that is not durable yet. If
        that version is lost, or others have written since, the result of `body` is discarded and it runs again. Until
        the first read that a server answers, `txn.snapshot` is 0.
        """
        check_body(body)
        return await self.attempt(run_options(body, label, attempts, read_only, timeout), body, *args, **kwargs)

    async def attempt(
        self,
        options: RunOptions,
        body: Callable[Concatenate[Transaction, P], Awaitable[T] | T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As `run`, with its `options`."""
        check_body(body)
        attempts = Attempts(options)
        may_speculate = not options.read_only
        task = asyncio.current_task()
        if task in self._running:
            raise nested()
        self._running.add(task)
        try:
            while True:
                try:
                    async with TransactionScope(
                        self._host, options.read_only, options.label, False, may_speculate=may_speculate
                    ) as txn:
                        attempts.begin(txn)
                        result = body(txn, *args, **kwargs)
                        return await result if isinstance(result, Awaitable) else result
                except Misspeculated:
                    may_speculate = False
                except ConflictError as conflict:
                    may_speculate = not options.read_only
                    await asyncio.sleep(attempts.pause(conflict))
        finally:
            self._running.discard(task)

    @overload
    def table(self, name: str, *, key: type[K], value: Codec[V]) -> AsyncTable[K, V]: ...
    @overload
    def table(self, name: str, *, key: tuple[type, ...], value: Codec[V]) -> AsyncTable[tuple[Any, ...], V]: ...
    def table(self, name: str, *, key: Any, value: Codec[V]) -> AsyncTable[Any, V]:
        """As `logdb.Database.table`."""
        return AsyncTable(Definition(name, key, value), self)

    @overload
    def log(
        self, name: str, *, exclusive: Literal[False] = False, retention: Retention | None = None
    ) -> AsyncNamedLog: ...
    @overload
    def log(self, name: str, *, exclusive: Literal[True], retention: Retention | None = None) -> AsyncExclusiveLog: ...
    def log(self, name: str, *, exclusive: bool = False, retention: Retention | None = None) -> AsyncNamedLog:
        """As `logdb.Database.log`."""
        check_flag("exclusive", exclusive)
        return (AsyncExclusiveLog if exclusive else AsyncNamedLog)(self, name, retention)

    async def logs(self) -> list[str]:
        """As `logdb.Database.logs`."""
        return await names_of(await self.at())

    async def outcome(self, txn_id: str, *, settle: bool = False) -> Outcome:
        """As `logdb.Database.outcome`."""
        check_flag("settle", settle)
        return await self._host.outcome(TxnId.parse(txn_id), settle)

    # ---- following

    def watch(
        self,
        prefix: bytes | None = None,
        *,
        keys: Iterable[bytes] | None = None,
        since: int | None = None,
        timeout: float | None = None,
        deleted_keys: bool = False,
    ) -> Changes:
        """As `logdb.Database.watch`, as an asynchronous iterator.

        Errors are raised with the first item, or when the result is awaited.
        """
        watched, wait_s = watched_keys(prefix, keys), checked_wait(timeout)
        check_flag("deleted_keys", deleted_keys)
        after = None if since is None else checked_version(since)
        return Changes(self._host.feed(after, prefix, watched), wait_s, self._host if deleted_keys else None)

    # ---- upkeep

    async def pin(self, name: str, version: int | None = None) -> int:
        """As `logdb.Database.pin`."""
        check_pin(name)
        return await self._host.pin(name, None if version is None else checked_version(version))

    async def unpin(self, name: str) -> None:
        """As `logdb.Database.unpin`."""
        check_pin(name)
        await self._host.unpin(name)

    async def stats(self) -> Stats:
        """As `logdb.Database.stats`."""
        times = []
        for _ in range(ROUND_TRIPS):
            started = perf_counter()
            version = await self._host.version()
            times.append(perf_counter() - started)
        found = await self._host.measures()
        return stats_of(self.path, version, await self._host.oldest(), len(await self._host.pins()), times, found)

    async def pins(self) -> dict[str, int]:
        """The pinned versions by name. Raises DatabaseClosed, Unavailable."""
        return await self._host.pins()

    async def compact(self, before: int | None = None, *, progress: Callable[[int], None] | None = None) -> Compacted:
        """As `logdb.Database.compact`."""
        check_progress(progress)
        return await self._host.compact(None if before is None else checked_version(before), progress)

    async def sweep(self) -> Swept:
        """As `logdb.Database.sweep`, in a thread."""
        database = _for_threads(self)
        return await _in_thread(lambda _: database.sweep(), None)

    async def checkpoint(self, *, progress: Callable[[int], None] | None = None) -> int:
        """As `logdb.Database.checkpoint`."""
        check_progress(progress)
        return await self._host.checkpoint(progress)

    @property
    def path(self) -> str:
        """The directory, ":memory:", or the addresses of the servers."""
        return self._host.path

    async def close(self) -> None:
        """As `logdb.Database.close`."""
        await self._host.close()

    async def __aenter__(self) -> Database:
        if self._host.closed:
            raise DatabaseClosed(self._host.path, self._host.forked_from)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<logdb.aio.Database {self._host.path!r}{' (closed)' if self._host.closed else ''}>"


class TransactionScope:
    """The context of a transaction: begins it, and commits or aborts it at the end.

    `may_speculate`: it may raise Misspeculated.
    """

    def __init__(
        self, host: AsyncBackend, read_only: bool, label: str, guard_writes: bool, *, may_speculate: bool = False
    ) -> None:
        self._host, self._may_speculate = host, may_speculate
        self._options = read_only, label, guard_writes

    async def __aenter__(self) -> Transaction:
        read_only, label, guard_writes = self._options
        host = self._host
        txn = self._txn = Transaction(
            host, read_only=read_only or host.read_only, label=label, guard_writes=guard_writes
        )
        txn.may_speculate = self._may_speculate
        txn.reader = await host.begin_work(txn)
        return txn

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        txn = self._txn
        aborts = kind is not None or txn.is_over
        txn.close()
        if not aborts and (not txn.writes_nothing or txn.speculated is None):
            txn.version = await self._host.commit(txn)
            return
        self._host.end(txn)
        if txn.speculated is not None and not _is_interrupt(kind):
            raise Misspeculated  # the only lasting effect of a speculation is a commit


def _is_interrupt(kind: type[BaseException] | None) -> bool:
    """Whether an exception of this kind came from outside, and does not follow from values that the body has read."""
    if kind is None or not issubclass(kind, asyncio.CancelledError):
        return kind is not None and issubclass(kind, KeyboardInterrupt | GeneratorExit)
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _rows(batches: AsyncIterator[Rows], limit: int | None) -> AsyncIterator[tuple[bytes, bytes]]:
    """The rows of the batches, up to `limit`. Requests batches to their end: the loop would have to close a generator
    that is left earlier."""
    if limit == 0:
        return
    left, count = limit, 0
    async for batch in batches:
        if left is None:
            for row in batch:
                yield row
        else:
            rows = list(islice(batch, left))
            left -= len(rows)
            for row in rows:
                yield row
        count += 1
        if not count % BATCHES_A_TURN:
            await asyncio.sleep(0)


async def _entries(entries: AsyncIterator[tuple[int, bytes | None]]) -> AsyncIterator[HistoryEntry]:
    async for entry in entries:
        yield HistoryEntry(*entry)
