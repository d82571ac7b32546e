"""The log of a database that a server of its directory answers for, for tasks of Spark's.

A part is a store file. A task asks for its frames as they stand there, a megabyte at a time, compares their checksums
and decodes them as if it had the file. That costs the server a read of its file for each page and nothing for each
record, so those who write hardly notice; to ask it for rows instead would have the one process that orders all commits
build every row of every scan.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from logdb.embedded.plan import Part
from logdb.errors import Corruption, VersionTrimmed
from logdb.log.contract import LogRecord
from logdb.log.segments.format import FRAME_BYTES, STORE_HEADER_BYTES, read_frame, salt_of
from logdb.net.loops import in_shared_loop, shared_loop
from logdb.net.service.client import RemoteHost
from logdb.store.records import COMMIT
from spark_export.frames import checked
from spark_export.remote import Asked, Laid, Large, RemotePlan, Stretch, pulled

HELD_S: Final = 10.0
"""Who has planned holds what is needed for so long, if it lives."""
AT_ONCE: Final = 16
"""Large values that are asked for at a time."""


class Received:
    """A page of frames, after a header's room as in a file."""

    def __init__(self, part: Part, frames: bytes, salt: int) -> None:
        self.part, self.salt = part, salt
        self.data = bytes(STORE_HEADER_BYTES) + frames

    def damaged(self, offset: int, what: str) -> Corruption:
        """The error for damage at an offset of the page."""
        return Corruption(self.part.origin, None, what)


class ServerSource:
    """A client of a server, for threads."""

    def __init__(self, host: RemoteHost) -> None:
        self._host = host

    # ---- planning

    def lay_out(self, asked: Asked) -> Laid:
        """See `remote.laid_out`."""
        return in_shared_loop(self._lay_out(asked))

    async def _lay_out(self, asked: Asked) -> Laid:
        host, holder = self._host, object()
        version = await asked.of(host)
        if asked.since is not None:
            await host.at(asked.since)
        if asked.follows:
            assert asked.since is not None
            return await self._laid(version, asked.since)
        floor = await self._hold_oldest(holder)
        try:
            return await self._laid(await host.at(version), floor)
        finally:  # whoever is to read it holds it by then
            asyncio.get_running_loop().call_later(HELD_S, host.end, holder)

    async def _laid(self, version: int, floor: int) -> Laid:
        host = self._host
        laid = await host.layout(version)
        time = await host.time_of(version) if version else None
        bounds, sizes = pairwise([*laid.firsts, laid.end]), laid.sizes
        parts = [Part("", host.path, *bound, size) for bound, size in zip(bounds, sizes, strict=True)]
        return Laid(host.database, version, time, floor, 0, tuple(parts), tuple(laid.sample))

    async def _hold_oldest(self, holder: object) -> int:
        while True:
            try:
                await self._host.hold(holder, oldest := await self._host.oldest())
                return oldest
            except VersionTrimmed:  # a compaction came between the two
                continue

    # ---- the log

    def fetch(self, plan: RemotePlan, part: Part, *, copies: bool) -> Iterator[Stretch]:
        """The records of a part. Raises Corruption, VersionTrimmed, Unavailable."""
        salt = salt_of(plan.log_id)
        with contextlib.closing(pulled(self._pages(part.first, part.end))) as pages:
            for first, end, frames in pages:
                page = Received(part._replace(first=first, end=end), frames, salt)
                for gsns, starts in checked(page):
                    yield page, gsns, starts

    async def _pages(self, first: int, end: int) -> AsyncGenerator[tuple[int, int, bytes]]:
        while first < end:
            frames, following = await self._host.frames(first, end)
            yield first, following, frames
            first = following

    def commits(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(GSN, payload) of the commit records there, applied or not."""
        with contextlib.closing(pulled(self._pages(first, end))) as pages:
            for at_first, at_end, frames in pages:
                at = 0
                for gsn in range(at_first, at_end):
                    record = self._record(frames, at, gsn)
                    at += FRAME_BYTES + len(record.payload)
                    if record.tag == COMMIT:
                        yield gsn, record.payload

    def _record(self, frames: bytes, at: int, gsn: int) -> LogRecord:
        record = read_frame(frames, at, len(frames), gsn, salt_of(self._host.database))
        if record is None:
            raise Corruption(self._host.path, None, f"record {gsn} does not match its checksum")
        return record

    def aborted(self, plan: RemotePlan, part: Part) -> Iterable[int]:
        """Raises VersionTrimmed."""
        return in_shared_loop(self._host.aborted(part.first, part.end))

    def values(self, plan: RemotePlan, large: Sequence[Large]) -> list[bytes]:
        """Large values. Raises Corruption, VersionTrimmed, Unavailable."""
        return in_shared_loop(self._values(large))

    async def _values(self, large: Sequence[Large]) -> list[bytes]:
        found: list[bytes] = []
        for first in range(0, len(large), AT_ONCE):
            found += await asyncio.gather(*map(self._value, large[first : first + AT_ONCE]))
        return found

    async def _value(self, large: Large) -> bytes:
        place = large.place
        try:
            frames, _ = await self._host.frames(place.gsn, place.gsn + 1)
        except VersionTrimmed:  # a compaction has moved it: the map knows where to
            value = await self._host.get(large.key, large.version)
            assert value is not None
            return value
        record = self._record(frames, 0, place.gsn)
        if not place.has(record.tag, record.payload):
            what = f"record {place.gsn} is not the large value that a commit placed there"
            raise Corruption(self._host.path, None, what)
        return record.payload

    # ---- versions

    def version(self) -> int:
        """The newest version."""
        return in_shared_loop(self._host.version())

    def at(self, version: int) -> int:
        """A version that can be read. Raises VersionTrimmed, FutureVersion."""
        return in_shared_loop(self._host.at(version))

    def hold(self, holder: object, version: int) -> None:
        """Have nothing compacted away that a read at `version` needs, until `end`. Raises VersionTrimmed."""
        in_shared_loop(self._host.hold(holder, version))

    def hold_oldest(self, holder: object) -> int:
        """Hold the oldest version that can be read, which is returned."""
        return in_shared_loop(self._hold_oldest(holder))

    def end(self, holder: object) -> None:
        """Let go."""
        shared_loop().call_soon_threadsafe(self._host.end, holder)

    def held_at(self, version: int, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Those of `keys` that existed at a version."""
        return in_shared_loop(self._host.multi_get(keys, version))[1]

    def close(self) -> None:
        """Let go of the server."""
        in_shared_loop(self._host.close())
