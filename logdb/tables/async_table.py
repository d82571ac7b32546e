"""Tables, the face for asyncio: as `logdb.tables.table`, with reads and writes that are awaited."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Final, Generic, Protocol, TypeVar, overload
from weakref import WeakKeyDictionary

from logdb.errors import UniqueViolation
from logdb.tables.operations import PAGE, Bounds, Definition, Get, Operation, Step, checked_row
from logdb.tables.schema import Index, IndexState
from logdb.tables.verification import IndexesVerified, verify_tables
from logdb.txn.retry import RunOptions
from logdb.txn.transaction import Workspace

D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_WRITING: Final[WeakKeyDictionary[Workspace, asyncio.Lock]] = WeakKeyDictionary()
"""Held while a transaction reads the entries of rows and writes them: a task must see the rows of those before."""


class Reader(Protocol):
    """A database, a snapshot or a transaction of `logdb.aio`."""

    def multi_get(self, keys: list[bytes], /) -> Awaitable[Mapping[bytes, bytes]]: ...
    def multi_scan(
        self, ranges: Iterable[tuple[bytes | None, bytes | None]], /, *, reverse: bool = False, limit: int | None = None
    ) -> Awaitable[list[list[tuple[bytes, bytes]]]]: ...
    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]: ...


class Base(Reader, Protocol):
    """A database of `logdb.aio`."""

    def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> Awaitable[Reader]: ...
    def transaction(
        self, *, read_only: bool = False, label: str = "", guard_writes: bool = False
    ) -> AbstractAsyncContextManager[Any]: ...
    def attempt(self, options: RunOptions, body: Callable[[Any], Awaitable[T]]) -> Awaitable[T]: ...


async def perform(operation: Operation[T], reader: Reader) -> T:
    """Run an operation."""
    answer: Any = None
    while True:
        try:
            request = operation.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(request, Get):
            answer = await reader.multi_get(list(request.keys))
        else:
            answer = await reader.multi_scan(request.ranges, reverse=request.reverse, limit=request.limit)


class AsyncIndexView(Generic[K, V]):
    """`logdb.tables.IndexView` for asyncio."""

    def __init__(
        self, definition: Definition[K, V], name: str, snapshot: Callable[[], AbstractAsyncContextManager[Reader]]
    ) -> None:
        self._definition, self._name, self._snapshot = definition, name, snapshot

    def scan(
        self,
        start: Any = None,
        end: Any = None,
        *,
        prefix: Any = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[K, V]]:
        """As `logdb.tables.IndexView.scan`, as an asynchronous iterator."""
        bounds = self._definition.index_bounds(self._name, start, end, prefix, limit)
        return self._rows(bounds, reverse, limit)

    async def _rows(self, bounds: Bounds | None, reverse: bool, limit: int | None) -> AsyncIterator[tuple[K, V]]:
        async with self._snapshot() as reader:
            while bounds and limit != 0:
                page = PAGE if limit is None else min(limit, PAGE)
                rows, bounds = await perform(self._definition.page(self._name, bounds, reverse, page), reader)
                limit = None if limit is None else limit - len(rows)
                for row in rows:
                    yield row

    async def get(self, *fields: Any) -> tuple[K, V] | None:
        """As `logdb.tables.IndexView.get`."""
        async with self._snapshot() as reader:
            return await perform(self._definition.find(self._name, fields), reader)


class AsyncTableView(Generic[K, V]):
    """`logdb.tables.TableView` for asyncio."""

    def __init__(self, definition: Definition[K, V], reader: Reader) -> None:
        self._definition, self._reader = definition, reader

    @overload
    async def get(self, key: K) -> V | None: ...
    @overload
    async def get(self, key: K, default: D) -> V | D: ...
    async def get(self, key: K, default: D | None = None) -> V | D | None:
        """As `logdb.tables.TableView.get`."""
        row_key = self._definition.row_key(key)
        return (await perform(self._definition.get([row_key]), self._reader)).get(row_key, default)

    async def multi_get(self, keys: Iterable[K]) -> dict[K, V]:
        """As `logdb.tables.TableView.multi_get`."""
        row_keys = {self._definition.row_key(key): key for key in keys}
        found = await perform(self._definition.get(list(row_keys)), self._reader)
        return {row_keys[row_key]: row for row_key, row in found.items()}

    def scan(
        self,
        start: Any = None,
        end: Any = None,
        *,
        prefix: tuple[Any, ...] | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[K, V]]:
        """As `logdb.tables.TableView.scan`, as an asynchronous iterator."""
        return self._rows(self._definition.bounds(start, end, prefix), reverse, limit)

    async def _rows(self, bounds: Bounds, reverse: bool, limit: int | None) -> AsyncIterator[tuple[K, V]]:
        await perform(self._definition.check(), self._reader)
        async for row in self._reader.scan(*bounds, reverse=reverse, limit=limit):
            yield self._definition.row(*row)

    def index(self, name: str) -> AsyncIndexView[K, V]:
        """As `logdb.tables.TableView.index`: the index called `name`."""
        return AsyncIndexView(self._definition, name, lambda: nullcontext(self._reader))


class AsyncTableTransaction(AsyncTableView[K, V]):
    """`logdb.tables.TableTransaction` for asyncio. Writes are awaited, since they read what they replace."""

    def __init__(self, definition: Definition[K, V], txn: Any) -> None:
        super().__init__(definition, txn)
        self._txn: Workspace = txn

    async def put(self, key: K, row: V) -> None:
        """As `logdb.tables.TableTransaction.put`."""
        await self.multi_put({key: checked_row(row)})

    async def delete(self, key: K) -> None:
        """As `logdb.tables.TableTransaction.delete`."""
        await self.multi_put({key: None})

    async def multi_put(self, rows: Mapping[K, V | None]) -> None:
        """As `logdb.tables.TableTransaction.multi_put`."""
        async with _WRITING.setdefault(self._txn, asyncio.Lock()):
            await perform(self._definition.write(self._txn, rows), self._reader)


class AsyncTable(AsyncTableView[K, V]):
    """`logdb.tables.Table` for asyncio: `logdb.aio.Database.table` makes one."""

    _reader: Base

    def __init__(self, definition: Definition[K, V], db: Base) -> None:
        super().__init__(definition, db)
        self._reader = db

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._definition.layout.name

    def within(self, txn: Any) -> AsyncTableTransaction[K, V]:
        """As `logdb.tables.Table.within`, for `txn` of `logdb.aio`."""
        return AsyncTableTransaction(self._definition, txn)

    async def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> AsyncTableView[K, V]:
        """As `logdb.tables.Table.at`."""
        return AsyncTableView(self._definition, await self._reader.at(version, time=time))

    def index(self, name: str) -> AsyncIndexView[K, V]:
        """As `logdb.tables.Table.index`: the index called `name`."""
        return AsyncIndexView(self._definition, name, lambda: self._reader.transaction(read_only=True))

    # ---- writing

    async def put(self, key: K, row: V) -> int:
        """As `logdb.tables.Table.put`."""
        return await self.multi_put({key: checked_row(row)})

    async def delete(self, key: K) -> int:
        """As `logdb.tables.Table.delete`."""
        return await self.multi_put({key: None})

    async def multi_put(self, rows: Mapping[K, V | None]) -> int:
        """As `logdb.tables.Table.multi_put`."""
        return (await self._commit("write", lambda txn: self._definition.write(txn, rows)))[1]

    async def _commit(self, what: str, operation: Callable[[Any], Operation[T]]) -> tuple[T, int]:
        """The result of an operation in a transaction of its own, and its version."""
        last: list[Any] = []

        async def body(txn: Any) -> T:
            last[:] = [txn]
            return await perform(operation(txn), txn)

        result = await self._reader.attempt(RunOptions(f"{self.name}: {what}"), body)
        return result, last[0].version

    # ---- indexes

    async def create_index(self, name: str, *fields: str, unique: bool = False) -> None:
        """As `logdb.tables.Table.create_index`."""
        index = self._definition.index(name, fields, unique)
        while await self._built(index) is not IndexState.READABLE:
            pass

    async def _built(self, index: Index) -> IndexState:
        """Build an index, or continue to build it, and return its state; DROPPING if another program drops it."""
        state, _ = await self._commit("create index", lambda txn: self._definition.begin_index(txn, index))
        if state is IndexState.DROPPING:
            await self._finish_drop(index.name)
            return state
        step = Step()
        try:
            while state is IndexState.BUILDING:
                state, _ = await self._commit(
                    "build index", lambda txn: self._definition.build_step(txn, index.name, step)
                )
                step.committed()
        except (UniqueViolation, TypeError, ValueError):
            with suppress(KeyError):
                await self.drop_index(index.name)
            raise
        return state

    async def drop_index(self, name: str) -> None:
        """As `logdb.tables.Table.drop_index`."""
        await self._commit("drop index", lambda txn: self._definition.begin_drop(txn, name))
        await self._finish_drop(name)

    async def _finish_drop(self, name: str) -> None:
        while not (await self._commit("drop index", lambda txn: self._definition.drop_step(txn, name)))[0]:
            pass

    async def indexes(self) -> dict[str, Index]:
        """The indexes of the table by name. Raises as `get`."""
        return await perform(self._definition.indexes(), self._reader)

    async def verify(self) -> IndexesVerified:
        """As `logdb.tables.Table.verify`."""
        async with self._reader.transaction(read_only=True) as txn:
            return await perform(verify_tables(self.name), txn)
