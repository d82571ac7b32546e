"""LogDB for asyncio: the verbs of `logdb.Database`, native.

    async with await logdb.aio.open("data") as db:
        version = await db.put(b"k", b"1")
        async for key, value in db.scan(prefix=b"user/"): ...
        async with db.transaction() as txn:
            txn.put(b"k", await txn.get(b"other"))

Coroutines share syncs: those that commit while one is under way are made durable together by the next, in a thread of
the
database's own, so the loop never waits for the disk. Reads answer from memory and the map and do not leave the loop.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from logdb import database as sync
from logdb import opening
from logdb.database import Database as SyncDatabase
from logdb.database import Found, HistoryEntry, Tested
from logdb.embedded import EmbeddedHost
from logdb.embedded.compactor import Compacted
from logdb.embedded.feed import Change, Feed
from logdb.errors import ConflictError, DatabaseClosed, OutcomeUnknown, Unavailable
from logdb.log.contract import LogFailed
from logdb.store.limits import check_key, check_value
from logdb.store.records import Condition, TxnId
from logdb.txn.coordinator import Outcome
from logdb.txn.retry import ATTEMPTS, pauses
from logdb.txn.transaction import Transaction as SyncTransaction

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")

ROWS_A_TURN = 1_000
"""After so many rows of a scan, which come from memory, the other coroutines have their turn."""


async def open(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Database:
    """As `logdb.open`; the replay runs in a thread."""
    call = functools.partial(opening.open, path, read_only=read_only, create=create, progress=progress)
    opened = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return Database(await asyncio.shield(opened))
    except asyncio.CancelledError:
        opened.add_done_callback(_close_unclaimed)
        raise


def _close_unclaimed(opened: asyncio.Future[SyncDatabase]) -> None:
    """Who asked for the database has gone."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


class Acknowledgements:
    """The commits of one event loop that wait to be durable, and the thread that syncs for all of them."""

    def __init__(self, host: EmbeddedHost) -> None:
        self._host = host
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._syncing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-sync")

    def wait(self, gsn: int) -> asyncio.Future[None]:
        """To be awaited: done when `gsn` is durable. Raises OutcomeUnknown."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._host.log.durable >= gsn:
            future.set_result(None)
            return future
        self._waiting.append((gsn, future))
        if not self._syncing:
            # Not before the coroutines that are ready now have had their turn: their commits ride along.
            self._syncing = True
            loop.call_soon(self._sync, loop)
        return future

    async def close(self) -> None:
        """End the thread. What waits is answered first."""
        while self._waiting:
            await asyncio.wait([future for _, future in self._waiting])
        self._thread.shutdown()

    def _sync(self, loop: asyncio.AbstractEventLoop) -> None:
        last = max(gsn for gsn, _ in self._waiting)
        done = self._thread.submit(self._sync_aside, last)
        done.add_done_callback(lambda future: loop.call_soon_threadsafe(self._answer, loop, future))

    def _sync_aside(self, last: int) -> None:
        self._host.log.wait_durable(last)
        self._host.relieve()

    def _answer(self, loop: asyncio.AbstractEventLoop, done: Future[None]) -> None:
        failure, durable = done.exception(), self._host.log.durable
        later = []
        for waiting in self._waiting:
            gsn, future = waiting
            if gsn <= durable:
                if not future.done():
                    future.set_result(None)
            elif failure is None:
                later.append(waiting)
            elif not future.done():
                told = self._host.outcome_unknown(gsn, failure) if isinstance(failure, LogFailed) else failure
                future.set_exception(told)
        self._waiting = later
        self._syncing = bool(later)
        if later:
            self._sync(loop)


class Snapshot:
    """The database at one version: `logdb.Snapshot` for asyncio."""

    def __init__(self, host: EmbeddedHost, version: int) -> None:
        self._sync, self.version = sync.Snapshot(host, version), version

    @overload
    async def get(self, key: bytes) -> bytes | None: ...
    @overload
    async def get(self, key: bytes, default: D) -> bytes | D: ...
    async def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """The value of `key`, or `default` where it does not exist."""
        return self._sync.get(key, default)

    async def multi_get(self, keys: Iterable[bytes]) -> Found:
        """Those of `keys` that exist, with their values."""
        return self._sync.multi_get(keys)

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """(key, value) in key order: see `logdb.Snapshot.scan`."""
        return _each(self._sync.scan(start, end, prefix=prefix, reverse=reverse, limit=limit))

    def history(self, key: bytes) -> AsyncIterator[HistoryEntry]:
        """The versions of `key` up to this one, newest first."""
        return _each(self._sync.history(key))


class Transaction:
    """A transaction for asyncio. Reads are awaited; writes are only noted until it commits, so they are plain calls."""

    def __init__(self, txn: SyncTransaction) -> None:
        self.sync = txn

    @property
    def id(self) -> str:
        """The transaction's id, for `Database.outcome` after a crash."""
        return self.sync.id

    @property
    def snapshot(self) -> int:
        """The version that it reads."""
        return self.sync.snapshot

    @property
    def version(self) -> int:
        """The version that it committed at, 0 before that."""
        return self.sync.version

    async def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """The value of `key` in this transaction's snapshot and writes, or `default`."""
        return self.sync.get(key, default)

    async def multi_get(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that exist."""
        return self.sync.multi_get(keys)

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """(key, value) in key order, own writes included, without phantoms."""
        return _each(self.sync.scan(start, end, prefix=prefix, reverse=reverse, limit=limit))

    def put(self, key: bytes, value: bytes) -> None:
        """Write `value` under `key` when the transaction commits."""
        self.sync.put(key, value)

    def delete(self, key: bytes) -> None:
        """Delete `key` when the transaction commits."""
        self.sync.delete(key)

    def multi_put(self, items: Mapping[bytes, bytes | None]) -> None:
        """Write all of `items` when the transaction commits; None deletes."""
        self.sync.multi_put(items)

    __setitem__ = put
    __delitem__ = delete


class Database:
    """`logdb.Database` for asyncio: the same verbs, for the coroutines of one event loop."""

    def __init__(self, database: SyncDatabase) -> None:
        self._sync = database
        self._host = database._host
        self._acknowledgements = Acknowledgements(self._host)

    # ---- reading

    @overload
    async def get(self, key: bytes) -> bytes | None: ...
    @overload
    async def get(self, key: bytes, default: D) -> bytes | D: ...
    async def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """The newest value of `key`, or `default` where it does not exist."""
        return self._sync.get(key, default)

    async def multi_get(self, keys: Iterable[bytes]) -> Found:
        """Those of `keys` that exist, with their values, all of one snapshot."""
        return self._sync.multi_get(keys)

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """(key, value) in key order of one snapshot: see `logdb.Database.scan`."""
        return _each(self._sync.scan(start, end, prefix=prefix, reverse=reverse, limit=limit))

    def history(self, key: bytes) -> AsyncIterator[HistoryEntry]:
        """The versions of `key`, newest first."""
        return _each(self._sync.history(key))

    def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> Snapshot:
        """The database as it was at a version or a point in time; neither: the newest snapshot."""
        return Snapshot(self._host, self._sync.at(version, time=time).version)

    @property
    def version(self) -> int:
        """The newest version."""
        return self._sync.version

    @property
    def oldest_version(self) -> int:
        """The oldest version that can be read."""
        return self._sync.oldest_version

    def time_of(self, version: int) -> dt.datetime | None:
        """When `version` was written (UTC), None if it is 0 or its record was compacted away."""
        return self._sync.time_of(version)

    # ---- writing

    async def put(self, key: bytes, value: bytes, *, label: str = "") -> int:
        """Write `value` under `key`. Returns the version, durable."""
        check_key(key)
        check_value(key, value)
        gsn, _ = self._host.submit({key: value}, label=label)
        await self._acknowledgements.wait(gsn)
        return gsn

    async def delete(self, key: bytes, *, label: str = "") -> int:
        """Delete `key`, which need not exist. Returns the version, durable."""
        check_key(key)
        gsn, _ = self._host.submit({key: None}, label=label)
        await self._acknowledgements.wait(gsn)
        return gsn

    async def multi_put(self, items: Mapping[bytes, bytes | None], *, label: str = "") -> int:
        """Write all of `items` or nothing (None deletes). Returns the version, durable."""
        gsn, _ = self._host.submit(sync.checked_items(items), label=label)
        await self._acknowledgements.wait(gsn)
        return gsn

    async def test_and_multi_put(
        self, conditions: Iterable[Condition], items: Mapping[bytes, bytes | None], *, label: str = ""
    ) -> Tested:
        """Write all of `items` if all of `conditions` hold, else nothing."""
        tested = sync.checked_conditions(conditions)
        gsn, verdict = self._host.submit(sync.checked_items(items), label=label, conditions=tested)
        await self._acknowledgements.wait(gsn)
        return sync.tested_answer(gsn, verdict, tested)

    def transaction(self, *, read_only: bool = False, label: str = "", guard_writes: bool = False) -> Committing:
        """`async with db.transaction() as txn: ...`: see `logdb.Database.transaction`."""
        return Committing(self._host, self._acknowledgements, read_only, label, guard_writes)

    async def run(
        self, body: Callable[Concatenate[Transaction, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Await `body(txn, ...)` in a transaction, again after each conflict: see `logdb.transactional`."""
        return await self.attempt(getattr(body, "__name__", ""), ATTEMPTS, body, *args, **kwargs)

    async def attempt(
        self,
        label: str,
        attempts: int,
        body: Callable[Concatenate[Transaction, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As `run`, with the transaction's label and the bound on attempts given."""
        pause = pauses(attempts)
        while True:
            try:
                async with self.transaction(label=label) as txn:
                    return await body(txn, *args, **kwargs)
            except ConflictError:
                wait = next(pause, None)
                if wait is None:
                    raise
                await asyncio.sleep(wait)

    async def outcome(self, txn_id: str) -> Outcome:
        """How the transaction with this id ended."""
        return await asyncio.to_thread(self._host.outcome, TxnId.parse(txn_id))

    # ---- following

    def watch(
        self,
        prefix: bytes | None = None,
        *,
        keys: Iterable[bytes] | None = None,
        since: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Change]:
        """The commits after version `since` that touch the prefix or the keys: see `logdb.Database.watch`."""
        watched = sync.watched_keys(prefix, keys)
        feed = self._host.feed(None if since is None else sync.checked_version(since), prefix, watched)
        return _changes(feed, timeout)

    # ---- upkeep

    async def pin(self, name: str, version: int | None = None) -> int:
        """Keep a version (default: the newest) readable until `unpin(name)`. Returns it."""
        return await asyncio.to_thread(self._sync.pin, name, version)

    async def unpin(self, name: str) -> None:
        """Give up a pin. Raises KeyError."""
        await asyncio.to_thread(self._sync.unpin, name)

    @property
    def pins(self) -> dict[str, int]:
        """The pinned versions by name."""
        return self._sync.pins

    async def compact(
        self, before: int | None = None, *, progress: Callable[[int], None] | None = None
    ) -> Compacted:
        """Drop what can only be seen by reading before version `before`: see `logdb.Database.compact`."""
        return await asyncio.to_thread(functools.partial(self._sync.compact, before, progress=progress))

    async def checkpoint(self, *, progress: Callable[[int], None] | None = None) -> int:
        """Bring the checkpoint of the map up to date. Returns the version covered."""
        return await asyncio.to_thread(functools.partial(self._sync.checkpoint, progress=progress))

    @property
    def path(self) -> str:
        """The directory, or ":memory:"."""
        return self._sync.path

    async def close(self) -> None:
        """Make durable what was written and release the directory."""
        try:
            await asyncio.to_thread(self._host.close)
        finally:
            await self._acknowledgements.close()

    async def __aenter__(self) -> Database:
        if self._host.closed:
            raise DatabaseClosed(self._host.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._sync).replace("<logdb.", "<logdb.aio.")


class Committing:
    """The context of a transaction: begins it, and commits or aborts it at the end."""

    def __init__(
        self,
        host: EmbeddedHost,
        acknowledgements: Acknowledgements,
        read_only: bool,
        label: str,
        guard_writes: bool,
    ) -> None:
        self._host, self._acknowledgements = host, acknowledgements
        self._options: dict[str, Any] = {"read_only": read_only, "label": label, "guard_writes": guard_writes}

    async def __aenter__(self) -> Transaction:
        self._txn = self._host.begin(**self._options)
        return Transaction(self._txn)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        host, txn = self._host, self._txn
        if kind is not None or txn.is_over:
            host.end(txn)
            return
        try:
            gsn, verdict = host.submit_transaction(txn)
        finally:
            host.end(txn)
        try:
            await self._acknowledgements.wait(gsn)
        except OutcomeUnknown as error:
            if verdict is None:  # it only read, and what it read is another's
                raise Unavailable(error.cause) from error
            raise
        if verdict is not None and not verdict.committed:
            raise host.conflict(verdict, txn.snapshot)
        txn.version = gsn


async def _each(items: Iterator[T]) -> AsyncIterator[T]:
    for count, item in enumerate(items, 1):
        yield item
        if not count % ROWS_A_TURN:
            await asyncio.sleep(0)


async def _changes(feed: Feed, timeout: float | None) -> AsyncIterator[Change]:
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-watch")
    try:
        while (change := feed.poll(0) or await loop.run_in_executor(thread, feed.poll, timeout)) is not None:
            yield change
    finally:
        feed.close()
        thread.shutdown()
