"""How transactions of coroutines begin where the database is a network away: with their first read, or a belief."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from logdb.api.backend import AsyncBackend, AsyncReader
from logdb.errors import ConflictError, VersionTrimmed
from logdb.store.key_map import Rows
from logdb.store.ranges import ScanRange
from logdb.txn.speculation import WRONG, Misspeculated, SpeculatedWrites, Speculation
from logdb.txn.transaction import Workspace


class SnapshotSource(AsyncBackend):
    """A backend behind a network, whose transactions take their snapshots with their first reads."""

    speculation: Speculation

    @abstractmethod
    async def begin(self, work: Workspace, first_key: bytes | None) -> bytes | None:
        """Take a transaction's snapshot; returns the value of `first_key`, if one is given."""

    @abstractmethod
    def check_held(self, holder: object) -> None:
        """Raises ConflictError if a snapshot is lost."""


class LazySnapshotReader(AsyncReader):
    """What a transaction reads with. Versions given are ignored: its first read takes the snapshot, unless what it
    reads is believed (`txn/speculation.py`). Raises Misspeculated; ConflictError where its snapshot is lost."""

    def __init__(self, host: SnapshotSource, work: Workspace) -> None:
        self._host, self._work = host, work
        self._begun = False
        self._one_begin = asyncio.Lock()

    async def begin(self, first_key: bytes | None) -> bytes | None:
        """Take the snapshot, or begin with a belief, if nobody has; and read the key in it, if one is given."""
        host, work = self._host, self._work
        if not self._begun:
            async with self._one_begin:
                if not self._begun:
                    if first_key is not None and work.may_speculate:
                        work.speculated = host.speculation.speculated(first_key)
                    if work.speculated is None:
                        value = await host.begin(work, first_key)
                        self._begun = True
                        return value
                    self._begun = True
        if work.speculated is not None:
            async with self._one_begin:
                if (speculated := work.speculated) is not None:
                    if first_key is not None and first_key in speculated.values:
                        return speculated.values[first_key]
                    await self._verify(speculated)
        return None if first_key is None else await host.get(first_key, work.snapshot)

    async def _verify(self, speculated: SpeculatedWrites) -> None:
        """Take a snapshot after all, in which all that was read must be as it was believed to be."""
        if speculated is WRONG:
            raise Misspeculated
        host, work = self._host, self._work
        first, *others = believed = [key for key in work.read_set.keys if key in speculated.values]
        try:
            found = {first: await host.begin(work, first)}
            if others:
                found.update((await host.multi_get(others, work.snapshot))[1])
            if any(found.get(key) != speculated.values[key] for key in believed):
                work.speculated = WRONG
                host.speculation.suppress_speculation(believed)
                raise Misspeculated
        except BaseException:
            host.end(work)
            raise
        work.speculated = None

    async def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key`."""
        with self._checked():
            return await self.begin(key)

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """(the version read, those of `keys` that exist)."""
        with self._checked():
            await self.begin(None)
            return await self._host.multi_get(keys, self._work.snapshot)

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of each range."""
        with self._checked():
            await self.begin(None)
            return await self._host.multi_scan(ranges, self._work.snapshot, reverse=reverse)

    async def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """Batches of (key, value)."""
        with self._checked():
            await self.begin(None)
            async for batch in self._host.scan(start, end, self._work.snapshot, reverse=reverse, limit=limit):
                self._host.check_held(self._work)
                yield batch

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """An answer that came after the snapshot was lost is none."""
        try:
            yield
        except VersionTrimmed:
            self._host.check_held(self._work)
            raise ConflictError.compacted(self._work.snapshot) from None
        except Exception:
            self._host.check_held(self._work)
            raise
        self._host.check_held(self._work)
