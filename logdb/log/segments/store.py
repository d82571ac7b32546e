"""A log segment as its server keeps it: segment files in a directory, appended to by one writer, read by many.

Writing has two halves, so that one fdatasync can serve many appends: `append` gives records their sequence numbers and
keeps their frames, `flush` puts all that were kept on the medium. Appends must be serialized by the caller, flushes
too; an append may run while a flush does.

Invariants (asserted by `check_invariants`, cited by the tests):

SEG-1  Sequence numbers are contiguous: each segment begins where the one before it ends.
SEG-2  `durable_end` never passes `end`, and moves only after the fdatasync of what it covers.
SEG-3  One append call lies in one segment: it is refused whole, before anything is numbered, when the disk is full.
SEG-4  After a failed write or fdatasync nothing is ever appended or flushed again through this object.
SEG-5  Recovery drops only bytes that no writer can have acknowledged: what the watermark, an index or a later frame
       says to be durable must be there, or opening fails with the file and the offset.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from logdb.errors import Corruption, Unavailable
from logdb.log.segments.disk import Disk
from logdb.log.segments.format import FRAME_BYTES, LogRecord, claims_durable, frame_head, read_frame
from logdb.log.segments.segment import STORE_SUFFIX, Segment
from logdb.log.segments.watermark import FILE_NAME, Watermark

SEGMENT_BYTES = 64 << 20


class LogFailed(Exception):
    """A write or fdatasync failed: nothing more can be made durable until the log is opened again."""


Run = tuple[Segment, int, list[bytes]]
"""Frames that follow each other in a segment, and the offset where the first goes."""


class SegmentStore:
    """The records `first` to `end` - 1 of one log, of which those before `durable_end` are on the medium.

    `writable`: become the one writer (the caller holds the lock that makes it so), recover the tail, cut what is torn.
    `follow`: only read while another process may be writing; `refresh` sees what has become durable meanwhile.
    Neither: only read, and nobody writes: the tail is found as a writer would find it, and left as it is.
    """

    def __init__(
        self,
        directory: Path,
        log_id: bytes,
        *,
        writable: bool,
        follow: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        disk: Disk | None = None,
    ) -> None:
        self._directory, self._log_id, self._segment_bytes = directory, log_id, segment_bytes
        self._disk = disk or Disk()
        self._writable = writable
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._frames: list[bytes] = []
        self._runs: list[Run] = []
        self._taken: list[Run] = []
        self._refreshing = threading.Lock()
        self.failure: OSError | None = None
        if writable:
            directory.mkdir(exist_ok=True)
            self._disk.sync_directory(directory.parent)
        self._watermark = Watermark(directory, self._disk, writable=writable)
        try:
            self._open(follow=follow)
        except BaseException:
            self._close_files()
            raise
        self.end = self._segments[-1].end
        self.durable_end = self.end
        self._trimmed_to = self._segments[0].base
        self._run_offset = self._segments[-1].length

    # ---- appending

    def append(self, records: Sequence[tuple[int, bytes]], time: int) -> int:
        """Number the records, given as (tag, payload), and keep their frames for the next `flush`.

        Returns the first sequence number. Raises Unavailable when the disk is full (nothing was done), LogFailed
        after a failed flush.
        """
        if self.failure is not None:
            raise LogFailed(str(self.failure)) from self.failure
        segment = self._segments[-1]
        size = FRAME_BYTES * len(records)
        for _, payload in records:
            size += len(payload)
        if segment.length + size > segment.allocated:
            segment = self._room_for(segment, size)
        first = lsn = self.end
        unsynced = lsn - self.durable_end
        offset = segment.length
        frames, offsets = self._frames, segment.offsets
        for tag, payload in records:
            frames.append(frame_head(lsn, unsynced, time, tag, payload))
            frames.append(payload)
            offsets.append(offset)
            offset += FRAME_BYTES + len(payload)
            lsn += 1
            unsynced += 1
        segment.length = offset
        self.end = lsn
        return first

    def take(self) -> tuple[list[Run], int]:
        """What `flush` is to write, and the sequence number after it. Serialized with `append` by the caller.

        What was taken by a flush that did not get to its end (an interrupt) is taken again: writing it twice is
        harmless.
        """
        runs = self._taken + self._runs
        frames = self._frames
        if frames:
            runs.append((self._segments[-1], self._run_offset, frames))
            self._frames = []
            self._run_offset = self._segments[-1].length
        self._runs = []
        self._taken = runs
        return runs, self.end

    def flush(self, taken: tuple[list[Run], int]) -> None:
        """Put what was taken on the medium. Raises LogFailed, after which nothing is written any more (SEG-4)."""
        runs, end = taken
        if self.failure is not None:
            raise LogFailed(str(self.failure)) from self.failure
        try:
            for segment, offset, frames in runs:
                segment.write(b"".join(frames), offset)
                if segment is not self._segments[-1]:
                    segment.seal(self._log_id)
        except OSError as error:
            self.failure = error
            raise LogFailed(str(error)) from error
        self._watermark.advance(end)
        self.durable_end = end
        self._taken = []

    def _room_for(self, segment: Segment, size: int) -> Segment:
        """The segment that takes `size` more bytes: this one with more blocks, or the next."""
        try:
            if segment.length + size <= self._segment_bytes or not segment.offsets:
                segment.make_room(size)
                return segment
            new = Segment.create(self._directory, self.end, self._log_id, size, self._disk)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Unavailable(
                    f"the disk that holds {self._directory} is full: {size:,} bytes could not be reserved; "
                    "free some space and try again"
                ) from error
            raise Unavailable(f"{self._directory} could not be extended: {error}") from error
        # A run of the old segment, even an empty one, makes the flush seal it.
        self._runs.append((segment, self._run_offset, self._frames))
        self._frames = []
        self._segments.append(new)
        self._bases.append(new.base)
        self._run_offset = new.length
        return new

    # ---- reading

    @property
    def first(self) -> int:
        """The oldest sequence number that can be read."""
        return self._trimmed_to

    @property
    def base(self) -> int:
        """The oldest sequence number in the files: trimming removes whole files, so it may lag behind `first`."""
        return self._bases[0]

    def read(self, lsn: int) -> LogRecord:
        """The durable record `lsn`; `first` <= `lsn` < `durable_end`. Raises Corruption."""
        return self._segment_of(lsn).read(lsn)

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        """Durable records `first` to `end` - 1 in order;

        `base` <= `first`, `end` <= `durable_end`. Raises Corruption.
        """
        while first < end:
            segment = self._segment_of(first)
            stop = min(end, segment.end)
            yield from segment.scan(first, stop)
            first = stop

    def last_at_time(self, time: int) -> int:
        """The last durable record not younger than `time` (ns since the epoch), or `base` - 1 if all are."""
        end = self.durable_end
        for segment in reversed(self._segments):
            stop = min(end, segment.end)
            if segment.base < stop and segment.time(segment.base) <= time:
                return segment.last_at_time(time, stop)
        return self._bases[0] - 1

    def time(self, lsn: int) -> int:
        """When the durable record `lsn` was written, ns since the epoch."""
        return self._segment_of(lsn).time(lsn)

    def refresh(self) -> int:
        """Where another process writes: see what has become durable. Returns `durable_end`."""
        end = self._watermark.next
        if end <= self.durable_end:
            return self.durable_end
        with self._refreshing:
            self._follow_to(end)
        return self.durable_end

    def left_by_trim(self, lsn: int) -> int:
        """The oldest record that the files would still have after `trim(lsn)`."""
        return self._segment_of(lsn).base

    def files(self, first: int, end: int) -> list[tuple[Path, int, int]]:
        """(store file, first record, end) of every segment with records in `first` to `end` - 1."""
        return [
            (segment.path, max(first, segment.base), min(end, segment.end))
            for segment in self._segments
            if segment.base < end and segment.end > first
        ]

    def _segment_of(self, lsn: int) -> Segment:
        return self._segments[bisect_right(self._bases, lsn) - 1]

    # ---- trimming and closing

    def trim(self, lsn: int) -> None:
        """Records before `lsn` may go: no longer readable, and whole files of them are removed."""
        self._trimmed_to = max(self._trimmed_to, min(lsn, self.durable_end))
        while len(self._segments) > 1 and self._segments[1].base <= self._trimmed_to:
            segment = self._segments[0]
            self._segments, self._bases = self._segments[1:], self._bases[1:]
            segment.unlink()
            segment.close()
        if self._writable:
            self._disk.sync_directory(self._directory)

    def close(self) -> None:
        """Seal the last segment and release the files. Everything must have been flushed."""
        try:
            if self._writable and self.failure is None:
                self._segments[-1].seal(self._log_id)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        for segment in self._segments:
            segment.close()
        with contextlib.suppress(OSError):
            self._watermark.close(sync=self._writable and self.failure is None)

    # ---- opening

    def _open(self, *, follow: bool) -> None:
        paths = sorted(self._directory.glob(f"*{STORE_SUFFIX}"))
        if not paths:
            if not self._writable:
                raise Corruption(self._directory, None, "there are no segment files")
            if self._watermark.next > 1:
                raise Corruption(
                    self._directory, None, f"the segment files are gone; the log had {self._watermark.next - 1} records"
                )
            self._adopt(Segment.create(self._directory, 1, self._log_id, 0, self._disk))
            self._watermark.advance(1)
            return
        durable_end = self._watermark.next
        for position, path in enumerate(paths):
            try:
                segment = self._open_segment(path, is_last=position == len(paths) - 1)
            except FileNotFoundError:  # trimmed by the writer since the directory was listed
                continue
            if segment is not None:
                self._adopt(segment)
        if follow:
            self._follow_to(durable_end)
            return
        for position, segment in enumerate(self._segments):
            is_last = position == len(self._segments) - 1
            next_base = None if is_last else self._segments[position + 1].base
            if segment.end == next_base:
                continue
            segment.walk(next_base)
            if segment.end != next_base:
                self._end_at(position, durable_end)
                break
        if self._segments[-1].end < durable_end:
            raise Corruption(
                self._segments[-1].path,
                self._segments[-1].length,
                f"records {self._segments[-1].end} to {durable_end - 1} had been made durable and are gone",
            )
        self._segments[-1].sync()
        if self._writable:
            for segment in self._segments[:-1]:
                segment.seal(self._log_id)
            self._segments[-1].cut()
            self._watermark.advance(self._segments[-1].end)

    def _open_segment(self, path: Path, *, is_last: bool) -> Segment | None:
        """None for a last file that a crash caught before its header was on the medium."""
        try:
            return Segment.open(path, self._log_id, self._disk, writable=self._writable)
        except Corruption:
            head = path.read_bytes()[:4096] if path.stat().st_size <= 1 << 30 else b"?"
            if not is_last or not self._segments or head.strip(b"\0") or self._watermark.next > int(path.stem):
                raise
        if self._writable:
            self._disk.unlink(path)
        return None

    def _end_at(self, position: int, durable_end: int) -> None:
        """The log ends in this segment, if nothing says that the record that should come next had been durable."""
        segment = self._segments[position]
        data, lsn = segment.contents(), segment.end
        witness = claims_durable(data, segment.length, len(data), lsn)
        later = self._segments[position + 1 :]
        if witness is None and not any(self._speaks_of(other, lsn) for other in later) and lsn >= durable_end:
            for other in later:
                if self._writable:
                    other.unlink()
                other.close()
            del self._segments[position + 1 :], self._bases[position + 1 :]
            return
        raise Corruption(segment.path, segment.length, f"record {lsn} is not valid, though it had been made durable")

    @staticmethod
    def _speaks_of(segment: Segment, lsn: int) -> bool:
        """Whether a frame of this later segment was written after `lsn` had become durable."""
        data = segment.contents()
        return segment.indexed > 0 or claims_durable(data, 0, len(data), lsn) is not None

    def _adopt(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base)

    def _follow_to(self, end: int) -> None:
        while self._segments[-1].end < end:
            last = self._segments[-1]
            last.walk(end)
            if last.end >= end:
                break
            path = self._directory / f"{last.end:020d}{STORE_SUFFIX}"
            if not path.exists():
                raise Corruption(last.path, last.length, f"record {last.end} is not valid, though it is durable")
            self._adopt(Segment.open(path, self._log_id, self._disk, writable=False))
        self.end = self.durable_end = end

    # ---- checking

    def check(self) -> Iterator[tuple[int, Corruption | None]]:
        """Check every byte on disk: (bytes checked since the last item, the damage found there or None)."""
        if not self._watermark.is_whole:
            yield 16, Corruption(self._directory / FILE_NAME, 0, "the watermark does not match its complement")
        for segment in self._segments:
            if segment.damaged_index is not None:
                yield 0, segment.damaged_index
            data, offset = segment.contents(), segment.offsets[0] if segment.offsets else segment.length
            for position, start in enumerate(segment.offsets):
                lsn = segment.base + position
                if lsn >= self.durable_end:
                    break
                limit = segment.offsets[position + 1] if position + 1 < len(segment.offsets) else segment.length
                record = read_frame(data, start, limit, lsn)
                if start != offset or record is None or start + FRAME_BYTES + len(record.payload) != limit:
                    yield limit - start, Corruption(segment.path, start, f"record {lsn} does not match its checksum")
                else:
                    yield limit - start, None
                offset = limit

    def check_invariants(self) -> None:
        """SEG-1, SEG-2 and the order of offsets; for tests and simulations."""
        for before, after in zip(self._segments, self._segments[1:], strict=False):
            assert before.end == after.base, f"SEG-1: {before.path} ends at {before.end}, {after.path} follows"
        assert self._segments[-1].end >= self.end >= self.durable_end, "SEG-2"
