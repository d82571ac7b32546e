"""How transactions begin where the database is behind a network: with their first read, or with speculation."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from logdb.api.backend import AsyncBackend, AsyncReader
from logdb.clients.pages import BATCH_ROWS
from logdb.errors import ConflictError, DatabaseClosed, VersionTrimmed
from logdb.store.key_map import Rows
from logdb.store.ranges import ScanRange
from logdb.txn.speculation import WRONG, Misspeculated, SpeculatedWrites, Speculation
from logdb.txn.transaction import Workspace


class RequestBackend(AsyncBackend):
    """A backend that sends requests to servers. Its transactions take their snapshots with their first reads."""

    read_only = False
    speculation: Speculation

    async def begin_work(self, work: Workspace) -> AsyncReader:
        """See `Backend.begin_work`: the snapshot is taken with the first read."""
        reader = self.reader_of(work)
        if work.guard_writes:
            await reader.begin(None)
        return reader

    def reader_of(self, work: Workspace) -> LazySnapshotReader:
        """The reader of a transaction. May be called in any thread. Raises DatabaseClosed."""
        return LazySnapshotReader(self, work)

    def ends_without_request(self, work: Workspace) -> bool:
        """Whether the transaction commits without a request: its version is its snapshot. May be called in any
        thread."""
        return False

    @abstractmethod
    async def begin(self, work: Workspace, first_key: bytes | None) -> bytes | None:
        """Take a transaction's snapshot; returns the value of `first_key`, if one is given."""

    async def first_multi_get(self, work: Workspace, keys: list[bytes]) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Take a transaction's snapshot, and read keys at it."""
        await self.begin(work, None)
        return await self.multi_get(keys, work.snapshot)

    async def first_multi_scan(
        self, work: Workspace, ranges: Sequence[ScanRange], *, reverse: bool
    ) -> list[list[tuple[bytes, bytes]]]:
        """Take a transaction's snapshot, and read ranges at it."""
        await self.begin(work, None)
        return await self.multi_scan(ranges, work.snapshot, reverse=reverse)

    async def first_page(
        self, work: Workspace, requested: ScanRange, *, reverse: bool
    ) -> tuple[list[tuple[bytes, bytes]], ScanRange | None]:
        """Take a transaction's snapshot, and read the first rows of a range at it: (rows, the rest of the range)."""
        await self.begin(work, None)
        return [], requested

    @abstractmethod
    def check_lease(self, holder: object) -> None:
        """Raises ConflictError if the holder's snapshot is lost."""


class LazySnapshotReader(AsyncReader):
    """The reader of a transaction: it reads at the transaction's snapshot, whatever version is passed. The first read
    takes the snapshot, unless its value is speculated (`txn/speculation.py`).

    Raises Misspeculated; ConflictError where the snapshot is lost.
    """

    def __init__(self, backend: RequestBackend, work: Workspace) -> None:
        """Raises DatabaseClosed."""
        self._backend, self._work = backend, work
        self._check_open()
        self._begun = False
        self._one_begin = asyncio.Lock()

    def _check_open(self) -> None:
        if self._backend.closed:
            raise DatabaseClosed(self._backend.path, self._backend.forked_from)

    async def begin(self, first_key: bytes | None) -> bytes | None:
        """Take the snapshot or speculate, if the transaction has done neither; returns the value of `first_key`, if one
        is given."""
        backend, work = self._backend, self._work
        if not self._begun:
            async with self._one_begin:
                if not self._begun:
                    if first_key is not None and work.may_speculate:
                        work.speculated = backend.speculation.speculated(first_key)
                    if work.speculated is None:
                        value = await backend.begin(work, first_key)
                        self._begun = True
                        return value
                    self._begun = True
        if work.speculated is not None:
            async with self._one_begin:
                if (speculated := work.speculated) is not None:
                    if first_key is not None and first_key in speculated.values:
                        return speculated.values[first_key]
                    await self._verify(speculated)
        return None if first_key is None else await backend.get(first_key, work.snapshot)

    async def _verify(self, speculated: SpeculatedWrites) -> None:
        """Take a snapshot, and check that all speculated values that were read are those of the snapshot. Raises
        Misspeculated."""
        if speculated is WRONG:
            raise Misspeculated
        backend, work = self._backend, self._work
        first, *others = keys = [key for key in work.read_set.keys if key in speculated.values]
        try:
            found = {first: await backend.begin(work, first)}
            if others:
                found.update((await backend.multi_get(others, work.snapshot))[1])
            if any(found.get(key) != speculated.values[key] for key in keys):
                work.speculated = WRONG
                backend.speculation.suppress_speculation(keys)
                raise Misspeculated
        except BaseException:
            backend.end(work)
            raise
        work.speculated = None

    async def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """See `Reader.get`."""
        with self._checked():
            return await self.begin(key)

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `Reader.multi_get`."""
        with self._checked():
            if not self._begun:
                async with self._one_begin:
                    if not self._begun:
                        found = await self._backend.first_multi_get(self._work, keys)
                        self._begun = True
                        return found
            await self.begin(None)
            return await self._backend.multi_get(keys, self._work.snapshot)

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `Reader.multi_scan`."""
        with self._checked():
            if not self._begun:
                async with self._one_begin:
                    if not self._begun:
                        rows = await self._backend.first_multi_scan(self._work, ranges, reverse=reverse)
                        self._begun = True
                        return rows
            await self.begin(None)
            return await self._backend.multi_scan(ranges, self._work.snapshot, reverse=reverse)

    async def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """See `Reader.scan`."""
        backend, work = self._backend, self._work
        rows: list[tuple[bytes, bytes]] = []
        rest: ScanRange | None = ScanRange(start, end, limit)
        with self._checked():
            if not self._begun and limit != 0:
                async with self._one_begin:
                    if not self._begun:
                        rows, rest = await backend.first_page(work, ScanRange(start, end, limit), reverse=reverse)
                        self._begun = True
            await self.begin(None)
            for first in range(0, len(rows), BATCH_ROWS):
                backend.check_lease(work)
                yield rows[first : first + BATCH_ROWS]
            if rest is None:
                return
            async for batch in backend.scan(*rest[:2], work.snapshot, reverse=reverse, limit=rest.limit):
                backend.check_lease(work)
                yield batch

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Discard an answer that came after the snapshot was lost. Raises DatabaseClosed, also where no request follows
        or, in a child of fork(), the parent holds the lock; ConflictError."""
        self._check_open()
        try:
            yield
        except VersionTrimmed:
            self._backend.check_lease(self._work)
            raise ConflictError.compacted(self._work.snapshot) from None
        except Exception:
            self._backend.check_lease(self._work)
            raise
        self._backend.check_lease(self._work)
