"""Named logs for asyncio: the verbs of `log.py`, awaited."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Final, Protocol, TypeVar

from logdb.errors import VersionTrimmed
from logdb.named_logs.async_consumer import AsyncConsumer, AsyncGroupConsumer, Reader, consumers_of, end_of
from logdb.named_logs.async_consumer import Base as ConsumerBase
from logdb.named_logs.cursors import ConsumerState
from logdb.named_logs.layout import (
    LOGS,
    NO_ENTRIES,
    Appends,
    Entry,
    Layout,
    LogStats,
    Position,
    behind,
    check_entry,
    check_start,
    check_txn_id,
    checked_position,
    name_in,
    stored,
    with_entry,
)
from logdb.named_logs.retention import Retention, check_retention
from logdb.named_logs.snapshots import at_newest_async
from logdb.store.arguments import checked_wait, listed

T = TypeVar("T")
PAGE: Final = 128
"""Number of entries that `truncate` reads together."""


class Writer(Appends, Reader, Protocol):
    """A transaction."""

    def put(self, key: bytes, value: bytes) -> None: ...
    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None: ...
    async def get(self, key: bytes, /) -> bytes | None: ...
    def log(self, name: str) -> AsyncTransactionLog: ...


class Base(ConsumerBase, Protocol):
    """A database."""

    async def append(self, prefix: bytes, value: bytes, *, label: str = "") -> bytes: ...
    async def put(self, key: bytes, value: bytes, *, label: str = "") -> int: ...
    def transaction(
        self, *, read_only: bool = False, label: str = "", guard_writes: bool = False
    ) -> AbstractAsyncContextManager[Any]: ...


async def names_of(reader: Reader) -> list[str]:
    """As `log.names_of`."""
    start, end = LOGS.range()
    names = list[str]()
    while (row := await _first(reader.scan(start, end, limit=1))) is not None:
        names.append(name_in(row[0]))
        start = LOGS.range((names[-1],))[1]
    return names


async def _first(rows: AsyncIterator[T]) -> T | None:
    """The first row; reads to the end."""
    found = [row async for row in rows]
    return found[0] if found else None


class AsyncTransactionLog:
    """`TransactionLog` for asyncio: `logdb.aio.Transaction.log` makes one."""

    def __init__(self, txn: Writer, name: str, epoch: int | None = None) -> None:
        self._txn, self._layout, self._epoch = txn, Layout(name), epoch

    async def append(self, value: bytes, *, txn_id: int | None = None, key: bytes | None = None) -> None:
        """As `logdb.named_logs.TransactionLog.append`."""
        check_entry(value, txn_id, key)
        if self._epoch is not None:
            self._layout.check_epoch(self._epoch, await self._txn.get(self._layout.writer))
        last = None
        if txn_id is not None:
            last = self._layout.last_own_id(self._txn)
            if last is None:
                row = await _first(self._txn.scan(*self._layout.id_range, reverse=True, limit=1))
                last = self._layout.last_own_id(self._txn)  # of another task, meanwhile
                if last is None and row is not None:
                    last = self._layout.id_of(row[0])
        self._layout.append(self._txn, value, txn_id, key, last)

    @property
    def appended(self) -> list[Position]:
        """As `logdb.named_logs.TransactionLog.appended`."""
        return self._layout.appended(self._txn)


class AsyncNamedLog:
    """`NamedLog` for asyncio: `logdb.aio.Database.log` makes one."""

    def __init__(self, db: Base, name: str, retention: Retention | None = None) -> None:
        check_retention(retention)
        self._db, self._layout, self._retention = db, Layout(name), retention

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._layout.name

    async def create(self) -> int:
        """As `logdb.named_logs.NamedLog.create`."""
        await self._store_retention()
        return await self._db.put(self._layout.created, b"")

    async def delete(self) -> int:
        """As `logdb.named_logs.NamedLog.delete`."""
        layout = self._layout
        async with self._db.transaction() as txn:
            txn.delete_range(*layout.all)
            txn.multi_put({layout.policy: None, layout.marks: None})
        return int(txn.version)

    # ---- retention

    async def retention(self) -> Retention | None:
        """As `logdb.named_logs.NamedLog.retention`."""
        policy = self._layout.policy
        found = await at_newest_async(self._db, lambda snapshot: snapshot.multi_get([policy]))
        return self._layout.kept(found.get(policy))

    async def set_retention(self, retention: Retention | None) -> int:
        """As `logdb.named_logs.NamedLog.set_retention`."""
        check_retention(retention)
        policy = self._layout.policy

        async def body(txn: Any) -> Any:
            txn.multi_put(self._layout.with_retention(await txn.get(policy), retention))
            return txn

        version = int((await self._db.run(body, label="retention")).version)
        self._retention = None
        return version

    async def _store_retention(self) -> None:
        if self._retention is not None:
            await self.set_retention(self._retention)

    # ---- appending

    async def append(self, value: bytes, *, txn_id: int | None = None, key: bytes | None = None) -> Position:
        """As `logdb.named_logs.NamedLog.append`."""
        if txn_id is not None:
            return (await self.extend([value], txn_id=txn_id, key=key))[0]
        check_entry(value, None, key)
        await self._store_retention()
        return self._layout.position(await self._db.append(self._layout.entries, stored(value, None, key)))

    async def extend(
        self, values: Iterable[bytes], *, txn_id: int | None = None, key: bytes | None = None
    ) -> list[Position]:
        """As `logdb.named_logs.NamedLog.extend`."""
        all_values = listed(values, "values")

        async def body(txn: Writer) -> AsyncTransactionLog:
            log = self.within(txn)
            for value in all_values:
                await log.append(value, txn_id=txn_id, key=key)
            return log

        if not all_values:
            return []
        await self._store_retention()
        log: AsyncTransactionLog = await self._db.run(body)
        return log.appended

    def within(self, txn: Any) -> AsyncTransactionLog:
        """As `logdb.named_logs.NamedLog.within`."""
        return AsyncTransactionLog(txn, self.name)

    # ---- reading

    async def read(
        self,
        after: Position | None = None,
        *,
        since: dt.datetime | float | None = None,
        from_txn_id: int | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Entry]:
        """As `logdb.named_logs.NamedLog.read`, as an asynchronous iterator."""
        check_start(after, since, from_txn_id)
        snapshot = await self._db.at()
        start = self._layout.range(None if after is None else checked_position("after", after))
        if since is not None:
            start = self._layout.range(behind((await self._db.at(time=since)).version))
        elif from_txn_id is not None:
            check_txn_id(from_txn_id)
            ids = self._layout.id_key(from_txn_id), self._layout.id_range[1]
            found = await _first(snapshot.scan(*ids, limit=1))
            if found is None:
                return
            start = self._layout.key(self._layout.position_of_id(*found)), start[1]
        async for row in snapshot.scan(*start, reverse=reverse, limit=limit):
            yield self._layout.entry(*row)

    async def subscribe(self, after: Position | None = None, *, timeout: float | None = None) -> AsyncIterator[Entry]:
        """As `logdb.named_logs.NamedLog.subscribe`, as an asynchronous iterator."""
        checked_wait(timeout)
        position = None if after is None else checked_position("after", after)
        while True:
            snapshot = await self._db.at()
            try:
                async for row in snapshot.scan(*self._layout.range(position)):
                    entry = self._layout.entry(*row)
                    position = entry.position
                    yield entry
                changes: Any = aiter(self._db.watch(self._layout.entries, since=snapshot.version, timeout=timeout))
                async with aclosing(changes):
                    async for change in changes:
                        for entry in self._layout.changed(change.changes, position):
                            position = entry.position
                            yield entry
            except VersionTrimmed:  # a compaction has overtaken the reader: the entries are still there
                continue
            return

    async def count(self) -> int:
        """The number of entries. Reads all of them. Raises as `Database.scan`."""
        count = 0
        async with self._db.transaction(read_only=True) as txn:  # a lease keeps its version, however long it takes
            async for _ in txn.scan(*self._layout.range()):
                count += 1
        return count

    async def first(self) -> Position | None:
        """As `logdb.named_logs.NamedLog.first`."""
        return await end_of(self._db, self._layout, reverse=False)

    async def last(self) -> Position | None:
        """As `logdb.named_logs.NamedLog.last`."""
        return await end_of(self._db, self._layout, reverse=True)

    async def stats(self) -> LogStats:
        """As `logdb.named_logs.NamedLog.stats`."""
        stats = NO_ENTRIES
        async with self._db.transaction(read_only=True) as txn:
            async for row in txn.scan(*self._layout.range()):
                stats = with_entry(stats, self._layout.entry(*row))
        return stats

    # ---- consumers

    def consumer(self, name: str) -> AsyncConsumer:
        """As `logdb.named_logs.NamedLog.consumer`."""
        return AsyncConsumer(self._db, self._layout, name)

    def group(self, name: str, *, partitions: int = 8, lease: float = 10.0) -> AsyncGroupConsumer:
        """As `logdb.named_logs.NamedLog.group`, for `async with`."""
        return AsyncGroupConsumer(self._db, self._layout, name, partitions, lease)

    async def consumers(self) -> list[ConsumerState]:
        """As `logdb.named_logs.NamedLog.consumers`."""
        names = await at_newest_async(self._db, lambda snapshot: consumers_of(snapshot, self._layout))
        return [state for name in names for state in await self.consumer(name).states()]

    # ---- truncating

    async def truncate(self, before: Position) -> int:
        """As `logdb.named_logs.NamedLog.truncate`."""
        layout, position = self._layout, checked_position("before", before)

        async def read(snapshot: Reader) -> Entry | None:
            if await _first(snapshot.scan(*layout.id_range, limit=1)) is None:
                return None
            start = position
            while True:
                rows = snapshot.scan(*layout.range(before=start), reverse=True, limit=PAGE)
                page = [layout.entry(*row) async for row in rows]
                last = next((entry for entry in page if entry.txn_id is not None), None)
                if last is not None or len(page) < PAGE:
                    return last
                start = page[-1].position

        last = await at_newest_async(self._db, read)
        async with self._db.transaction() as txn:
            txn.delete_range(*layout.range(before=position))
            if last is not None:
                txn.delete_range(*layout.ids_before(last))
        return int(txn.version)

    def __repr__(self) -> str:
        return f"<logdb.named_logs.AsyncNamedLog {self.name!r}>"


class AsyncExclusiveLog(AsyncNamedLog):
    """`ExclusiveLog` for asyncio: `logdb.aio.Database.log` with `exclusive` makes one."""

    def __init__(self, db: Base, name: str, retention: Retention | None = None) -> None:
        super().__init__(db, name, retention)
        self._epoch: int | None = None
        self._claiming = asyncio.Lock()

    @property
    def epoch(self) -> int | None:
        """As `logdb.named_logs.ExclusiveLog.epoch`."""
        return self._epoch

    async def claim(self) -> int:
        """As `logdb.named_logs.ExclusiveLog.claim`."""

        async def body(txn: Writer) -> int:
            epoch, value = self._layout.next_epoch(await txn.get(self._layout.writer))
            txn.put(self._layout.writer, value)
            return epoch

        self._epoch = int(await self._db.run(body, label="claim"))
        return self._epoch

    def within(self, txn: Any) -> AsyncTransactionLog:
        """As `logdb.named_logs.ExclusiveLog.within`."""
        if self._epoch is None:
            raise self._layout.not_claimed()
        return AsyncTransactionLog(txn, self.name, self._epoch)

    async def append(self, value: bytes, *, txn_id: int | None = None, key: bytes | None = None) -> Position:
        """As `logdb.named_logs.ExclusiveLog.append`."""
        return (await self.extend([value], txn_id=txn_id, key=key))[0]

    async def extend(
        self, values: Iterable[bytes], *, txn_id: int | None = None, key: bytes | None = None
    ) -> list[Position]:
        """As `logdb.named_logs.ExclusiveLog.extend`."""
        async with self._claiming:  # once, whatever the number of tasks
            if self._epoch is None:
                await self.claim()
        return await super().extend(values, txn_id=txn_id, key=key)
