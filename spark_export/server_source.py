"""A directory that a server has open, as a source for Spark.

A part is a store file. A task requests the frames of the file as they are stored, one page at a time, verifies their
checksums and decodes them as if it had the file. A page costs the server one read of the file and no work per record,
so writers hardly notice. The alternative is to request rows; then the one process that orders all commits would build
every row of every scan.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import pairwise

from logdb.clients.remote_backend import RemoteBackend
from logdb.embedded.snapshot_plan import SegmentPart
from logdb.errors import Corruption, VersionTrimmed
from logdb.log.contract import LogRecord
from logdb.log.segments.format import FRAME_BYTES, STORE_HEADER_BYTES, read_frame, salt_of
from logdb.store.records import COMMIT, Place
from spark_export.frames import MemoryFrames, verified_frames
from spark_export.places import Records
from spark_export.remote_source import Floor, Layout, RemoteSource, prefetched
from spark_export.snapshot_source import SnapshotPlan


class ServerSource(RemoteSource[RemoteBackend]):
    """The source of a directory behind one server."""

    LARGE_VALUES_AT_ONCE = 16

    async def _lay_out(
        self, version: int, first: int, floor: Floor | None, part_bytes: int, since: int | None
    ) -> Layout:
        host = self._host
        layout = await host.layout(version, since)
        time = await host.time_of(version) if version else None
        bounds = pairwise([*layout.firsts, layout.end])
        parts = [SegmentPart("", host.path, *bound, size) for bound, size in zip(bounds, layout.sizes, strict=True)]
        return Layout(host.database, time, tuple(parts), tuple(layout.sample))

    async def _lease(self, holder: object, version: int) -> None:
        await self._host.lease(holder, version)

    async def _lease_floor(self, holder: object, needed: int | None = None) -> Floor:
        del needed  # the oldest version includes those of the cold tier
        while True:
            try:
                await self._host.lease(holder, oldest := await self._host.oldest())
                return Floor(oldest)
            except VersionTrimmed:  # a compaction has come between the two requests
                continue

    def records(
        self, plan: SnapshotPlan, part: SegmentPart, first: int, end: int, *, copies: bool
    ) -> Iterator[Records]:
        salt = salt_of(plan.log_id)
        with contextlib.closing(prefetched(self._pages(first, end))) as pages:
            for page_first, page_end, frames in pages:
                in_page = part._replace(first=page_first, end=page_end)
                page = MemoryFrames(bytes(STORE_HEADER_BYTES) + frames, in_page, salt)
                for gsns, starts in verified_frames(page):
                    yield Records(page, gsns, starts)

    async def _pages(self, first: int, end: int) -> AsyncGenerator[tuple[int, int, bytes]]:
        while first < end:
            frames, following = await self._host.frames(first, end)
            yield first, following, frames
            first = following

    def commits(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        with contextlib.closing(prefetched(self._pages(first, end))) as pages:
            for page_first, page_end, frames in pages:
                at = 0
                for gsn in range(page_first, page_end):
                    record = self._decode(frames, at, gsn)
                    at += FRAME_BYTES + len(record.payload)
                    if record.tag == COMMIT:
                        yield gsn, record.payload

    def _decode(self, frames: bytes, at: int, gsn: int) -> LogRecord:
        record = read_frame(frames, at, len(frames), gsn, salt_of(self._host.database))
        if record is None:
            raise Corruption(self._host.path, None, f"record {gsn} does not match its checksum")
        return record

    async def _aborted(self, first: int, end: int) -> Iterable[int]:
        return await self._host.aborted(first, end)

    async def _read_record(self, place: Place) -> LogRecord | None:
        try:
            frames, _ = await self._host.frames(place.gsn, place.gsn + 1)
        except VersionTrimmed:
            return None
        return self._decode(frames, 0, place.gsn)
