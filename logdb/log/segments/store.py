"""A sequence of records in segment files of one directory, with one writer and many readers.

A write has two steps, so that one fdatasync can serve many appends: `append` numbers records and buffers their frames,
`flush` writes and syncs a batch of them. The caller must serialize appends, and likewise flushes; an append may run
during a flush.

Invariants (asserted by `check_invariants`, cited by the tests):

SEG-1  Sequence numbers are contiguous: each segment begins where the one before it ends.
SEG-2  `durable_end` never passes `end`, and moves only after the fdatasync of what it covers.
SEG-3  The records of one append are in one segment. If the disk is full, the append is rejected before any record is
       numbered.
SEG-4  After a failed write or fdatasync, this object rejects all appends and flushes.
       An interrupt (an exception from a signal handler) is not a failure: the interrupted call can be repeated.
SEG-5  Recovery drops only records that cannot have been acknowledged: if a record is missing that is durable according
       to the watermark, an index or a later frame, opening fails with the file and the offset.
SEG-6  Frames are written to a segment only after the segment before it is completely on the medium.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from logdb.errors import Corruption, Unavailable
from logdb.log.contract import LogFailed, LogRecord, Trimmed
from logdb.log.segments.format import (
    FRAME_BYTES,
    MAX_OFFSET,
    STORE_HEADER_BYTES,
    claims_durable,
    contains_frame,
    frame_head,
    incoming_head,
    salt_of,
    store_header,
)
from logdb.log.segments.incoming import Incoming, remove_leftovers
from logdb.log.segments.segment import INDEX_SUFFIX, REFUSED, STORE_NAME, STORE_SUFFIX, Segment, SegmentClosed
from logdb.log.segments.watermark import FILE_NAME, Watermark
from logdb.system.disk import DISK_FULL, Disk, described

SEGMENT_BYTES = 64 << 20
_READ_BYTES = 1 << 20

Run = tuple[Segment, int, list[bytes], bool]
"""(segment, offset, consecutive frames to write there, whether they are the last of the segment)."""


class SegmentStore:
    """The records `first` to `end` - 1, of which those before `durable_end` are on the medium.

    `writable`: open as the only writer (the caller must hold the lock), recover the tail and truncate a torn one.
    `follow`: open for reading during writes of another process; `refresh` updates `durable_end`.
    Neither: open for reading while there is no writer; the tail is determined as a writer would, but not changed.
    `first`: the number of the first record of a new log; must be the same at each opening.
    `min_allocation_bytes`: the minimum size by which files grow; the maximum is `segment.ALLOCATE_BYTES`.
    """

    def __init__(
        self,
        directory: Path,
        log_id: bytes,
        *,
        writable: bool,
        follow: bool = False,
        first: int = 1,
        segment_bytes: int = SEGMENT_BYTES,
        min_allocation_bytes: int = MAX_OFFSET,
        disk: Disk | None = None,
    ) -> None:
        directory = directory.absolute()  # the current directory may change
        self._directory, self._log_id, self._segment_bytes = directory, log_id, segment_bytes
        self._begin, self._min_allocation_bytes = first, min_allocation_bytes
        self._salt = salt_of(log_id)
        self._disk = disk or Disk()
        self._writable = writable
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._frames: list[bytes] = []
        self._runs: list[Run] = []
        self._taken: list[Run] = []
        self._appended_bytes = self._taken_bytes = self._synced_bytes = 0
        self._refreshing = threading.Lock()
        self._closed = False
        self.failure: OSError | None = None
        if writable:
            self._disk.make_directory(directory)
            self._disk.sync_directory(directory.parent)
        self._identity = self._disk.identity(directory) if writable else (0, 0)
        self.end = self.durable_end = 0
        self._watermark = Watermark(directory, self._disk, writable=writable)
        try:
            self._open(follow=follow)
        except BaseException:
            self._close_files()
            raise
        self._trimmed_to = self._segments[0].base
        self._run_offset = self._segments[-1].length

    # ---- appending

    def append(self, records: Sequence[tuple[int, bytes]], time: int) -> int:
        """Number `records`, pairs (tag, payload), and buffer their frames for the next `flush`.

        Returns the first sequence number. Raises Unavailable if the disk is full (nothing was done), LogFailed after a
        failed flush.
        """
        if self.failure is not None:
            raise LogFailed(described(self.failure)) from self.failure
        segment = self._segments[-1]
        size = FRAME_BYTES * len(records)
        for _, payload in records:
            size += len(payload)
        if segment.length + size > segment.allocated:
            segment = self._room_for(segment, size)
        first = lsn = self.end
        unsynced = lsn - self.durable_end
        offset = segment.length
        frames, offsets, salt = self._frames, segment.offsets, self._salt
        kept, known = len(frames), len(offsets)
        try:
            for tag, payload in records:
                frames.append(frame_head(lsn, salt, unsynced, time, tag, payload))
                frames.append(payload)
                offsets.append(offset)
                offset += FRAME_BYTES + len(payload)
                lsn += 1
                unsynced += 1
        except BaseException:
            del frames[kept:], offsets[known:]
            raise
        segment.length = offset
        self._appended_bytes += size
        self.end = lsn
        return first

    @property
    def unsynced_bytes(self) -> int:
        """Size of the frames in memory: appended and not yet flushed."""
        return self._appended_bytes - self._synced_bytes

    def receive(self, length: int) -> Incoming:
        """Begin to receive a record of `length` bytes in parts. The caller must append or discard it.

        Raises Unavailable if the disk is full, OSError.
        """
        self._disk.check_identity(self._directory, self._identity)
        return Incoming(self._directory, length, self._disk)

    def append_incoming(self, tag: int, incoming: Incoming, time: int) -> int:
        """Like `append`, for one completely received record: its file becomes a new segment, and the next flush only
        writes the frame's head.

        If this raises, the file is discarded.
        """
        if self.failure is not None:
            raise LogFailed(described(self.failure)) from self.failure
        if not self._segments[-1].offsets:  # the new segment would have the same name
            return self.append([(tag, incoming.take())], time)
        lsn = self.end
        unsynced, checksum = lsn - self.durable_end, incoming.checksum
        head = incoming_head(lsn, self._salt, unsynced, time, tag, incoming.length, checksum)
        try:
            self._disk.check_identity(self._directory, self._identity)
            new = Segment.from_incoming(
                incoming,
                self._directory,
                lsn,
                self._log_id,
                self._disk,
                min_allocation_bytes=self._min_allocation_bytes,
            )
        except OSError as error:
            raise self._refusal(error, incoming.length) from error
        self._switch_to(new, [head], lsn + 1)
        return lsn

    def take_batch(self) -> tuple[list[Run], int]:
        """Take the buffered frames for `flush`; returns them and the sequence number after them. The caller must
        serialize this with `append`.

        Includes the frames of a flush that was interrupted: writing them twice is harmless.
        """
        segment = self._segments[-1]
        runs = self._taken + self._runs
        if self._frames:
            runs.append((segment, self._run_offset, self._frames, False))
        # Without a call between these assignments, no interrupt can occur between them.
        self._taken, self._runs, self._frames, self._run_offset = runs, [], [], segment.length
        self._taken_bytes = self._appended_bytes
        return runs, self.end

    def flush(self, batch: tuple[list[Run], int]) -> None:
        """Write and sync a batch of `take_batch`. Raises LogFailed, after which nothing is written any more (SEG-4)."""
        runs, end = batch
        if self.failure is not None:
            raise LogFailed(described(self.failure)) from self.failure
        try:
            for segment, offset, frames, is_last in runs:
                segment.write(frames, offset)
                if is_last and self._is_in_place():
                    segment.seal()
        except OSError as error:
            self.failure = error
            raise LogFailed(described(error)) from error
        self._watermark.advance(end)
        self.durable_end = end
        self._synced_bytes = self._taken_bytes
        self._taken = []

    def begin_file(self) -> None:
        """Start a new segment with the next record. The caller must serialize this with `append`. Raises Unavailable,
        LogFailed."""
        if self.failure is not None:
            raise LogFailed(described(self.failure)) from self.failure
        segment = self._segments[-1]
        if segment.offsets:
            self._room_for(segment, 0, begin=True)

    def _room_for(self, segment: Segment, size: int, *, begin: bool = False) -> Segment:
        """The segment for `size` more bytes: `segment` with more blocks, or a new one; with `begin`, always a new
        one."""
        try:
            used = segment.length - segment.incoming_bytes
            if not begin and (used + size <= self._segment_bytes or not segment.offsets):
                segment.make_room(size)
                return segment
            new = self._new_segment(self.end, size)
        except OSError as error:
            raise self._refusal(error, size) from error
        self._switch_to(new, [], self.end)
        return new

    def _switch_to(self, new: Segment, frames: list[bytes], end: int) -> None:
        """Continue in the segment `new`; `frames` are its first, up to record `end` - 1."""
        # A run of the old segment, even an empty one, makes the flush seal it. Without a call between these
        # statements, no interrupt can occur between them.
        self._runs += [(self._segments[-1], self._run_offset, self._frames, True)]
        if frames:
            self._runs += [(new, STORE_HEADER_BYTES, frames, False)]
        self._frames, self._run_offset = [], new.length
        self._segments += [new]
        self._bases += [new.base]
        self.end = end

    def _refusal(self, error: OSError, size: int) -> Exception:
        """The exception for a failure to extend a segment or to create one."""
        if error.errno in DISK_FULL:
            return Unavailable(
                f"the disk of {self._directory} is full: {size:,} bytes could not be reserved; "
                "free some space and try again"
            )
        if error.errno in REFUSED:
            return Unavailable(f"{self._directory} could not be extended: {described(error)}")
        self.failure = error
        return LogFailed(described(error))

    # ---- reading

    @property
    def first(self) -> int:
        """The oldest sequence number that can be read."""
        return self._trimmed_to

    @property
    def base(self) -> int:
        """The oldest sequence number in the files. May be less than `first`, because a trim removes only whole
        files."""
        return self._bases[0]

    def read(self, lsn: int) -> LogRecord:
        """The durable record `lsn`; `first` <= `lsn` < `durable_end`. Raises Corruption."""
        try:
            return self._segment_of(lsn).read(lsn)
        except SegmentClosed:
            raise self._unreadable(lsn) from None

    def payload(self, lsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        """(tag, length, the payload in parts) of the durable record `lsn`. The parts stay readable if it is trimmed
        meanwhile; the checksum is verified before the last part. Raises Trimmed, Corruption."""
        try:
            return self._segment_of(lsn).payload(lsn, part_bytes)
        except SegmentClosed:
            raise self._unreadable(lsn) from None

    def scan(self, first: int, end: int, tags: frozenset[int] | None = None) -> Iterator[LogRecord]:
        """Durable records `first` to `end` - 1 with one of the `tags` (None: all) in order; `base` <= `first`, `end` <=
        `durable_end`. The checksums of the others are verified, too.

        Raises Corruption, and Trimmed if the records are trimmed meanwhile.
        """
        while first < end:
            segment = self._segment_of(first)
            stop = min(end, segment.end)
            try:
                yield from segment.scan(first, stop, tags)
            except SegmentClosed:
                raise self._unreadable(first) from None
            first = stop

    def frames(self, first: int, end: int, max_bytes: int) -> tuple[bytes, int]:
        """(the unverified frames of durable records from `first` on, the next record): consecutive frames of one file,
        about `max_bytes`, all before record `end`. Raises Trimmed."""
        segment = self._segment_of(first)
        try:
            return segment.frames(first, min(end, segment.end), max_bytes)
        except SegmentClosed:
            raise self._unreadable(first) from None

    def last_at_time(self, time: int) -> int:
        """The last durable record with this `time` (ns since the epoch) or an earlier one; `base` - 1 if there is
        none."""
        end = self.durable_end
        for segment in reversed(self._segments):
            stop = min(end, segment.end)
            try:
                if segment.base < stop and segment.time(segment.base) <= time:
                    return segment.last_at_time(time, stop)
            except SegmentClosed:  # trimmed meanwhile, with all before it
                break
        return self._bases[0] - 1

    def time(self, lsn: int) -> int:
        """The time of the durable record `lsn`, ns since the epoch."""
        return self.read(lsn).time

    def refresh(self) -> int:
        """Update `durable_end` with what another process has written; returns it."""
        end = self._watermark.next
        if end > self.durable_end:
            with self._refreshing:
                if end > self.durable_end and not self._closed:
                    self._follow_to(end)
        return self.durable_end

    def size(self, first: int) -> int:
        """The size in bytes of the files from the one that contains record `first` on."""
        return sum([segment.length for segment in self._segments if segment.end > first])

    def oldest_after_trim(self, lsn: int) -> int:
        """The oldest record that would remain in the files after `trim(lsn)`."""
        return self._segment_of(max(lsn, self.base)).base

    def files(self, first: int, end: int) -> list[tuple[Path, int, int]]:
        """(store file, first record, end) of every segment with records in `first` to `end` - 1."""
        return [
            (segment.path, max(first, segment.base), min(end, segment.end))
            for segment in self._segments
            if segment.base < end and segment.end > first
        ]

    def _segment_of(self, lsn: int) -> Segment:
        # Both at once: a trim in another thread replaces them together.
        segments, bases = self._segments, self._bases
        position = bisect_right(bases, lsn)
        if position == 0:
            raise Trimmed(lsn, self.first)
        return segments[position - 1]

    def _unreadable(self, lsn: int) -> Exception:
        return Trimmed(lsn, self.first) if lsn < self.base else LogFailed("the log is closed")

    # ---- trimming and closing

    def trim(self, lsn: int) -> None:
        """Make the records before `lsn` unreadable, and delete files that contain only such records. Raises
        LogFailed."""
        self._trimmed_to = max(self._trimmed_to, min(lsn, self.durable_end))
        while len(self._segments) > 1 and self._segments[1].base <= self._trimmed_to:
            segment = self._segments[0]
            try:
                self._disk.check_identity(self._directory, self._identity)
                # One at a time, so that a crash leaves no gap between the files.
                segment.unlink()
                self._disk.sync_directory(self._directory)
            except OSError as error:
                self.failure = error
                raise LogFailed(described(error)) from error
            self._segments, self._bases = self._segments[1:], self._bases[1:]
            segment.close()

    def close(self) -> None:
        """Seal the last segment, if everything was flushed, and close the files. Raises LogFailed."""
        try:
            if self._writable and self.failure is None and self.durable_end == self.end and self._is_in_place():
                self._segments[-1].seal()
        except OSError as error:
            self.failure = error
            raise LogFailed(described(error)) from error
        finally:
            self._close_files()

    def abandon(self) -> None:
        """Close the files without flushing or sealing: the log is no longer needed."""
        self._writable = False
        self._close_files()

    def disown(self) -> None:
        """In a child of fork(): like `abandon`, even if a thread of the parent held a lock."""
        self._refreshing = threading.Lock()
        for segment in self._segments:
            segment.disown()
        self.abandon()

    def _close_files(self) -> None:
        with self._refreshing:
            self._closed = True
            for segment in self._segments:
                segment.close()
        with contextlib.suppress(OSError):
            self._watermark.close(sync=self._writable and self.failure is None)

    # ---- opening

    def _open(self, *, follow: bool) -> None:
        paths = self._paths()
        if follow:
            self._open_following(paths)
            return
        durable_end = self._watermark.next
        unfinished = self._adopt_all(paths)
        if not self._segments:
            self._open_empty(durable_end)
            return
        unused = self._find_end(durable_end)
        last = self._segments[-1]
        if self._writable:
            for path in [*unfinished, *unused]:
                self._disk.unlink(path)
            remove_leftovers(self._directory, self._disk)
            # Sync the directory too: new names may not be durable yet, and removed ones must not reappear.
            self._disk.sync_directory(self._directory)
            for segment in self._segments[:-1]:
                segment.seal()
            last.cut()
            self._watermark.advance(last.end)
        self.end = self.durable_end = last.end

    def _paths(self) -> list[Path]:
        """The store files, oldest first."""
        names = sorted(filter(STORE_NAME.fullmatch, self._disk.names(self._directory)))
        return [self._directory / name for name in names]

    def _open_empty(self, durable_end: int) -> None:
        if durable_end > self._begin:
            raise Corruption(
                self._directory, None, f"the segment files are gone; the log had {durable_end - self._begin} records"
            )
        if not self._writable:
            raise Corruption(self._directory, None, "there are no segment files")
        self._adopt(self._new_segment(self._begin, 0))
        self._watermark.advance(self._begin)
        self.end = self.durable_end = self._begin

    def _is_in_place(self) -> bool:
        """Whether the directory was not moved. In a moved one nothing is sealed: its next opening does that."""
        try:
            return self._disk.identity(self._directory) == self._identity
        except FileNotFoundError:
            return False

    def _new_segment(self, base: int, size: int) -> Segment:
        self._disk.check_identity(self._directory, self._identity)
        return Segment.create(
            self._directory, base, self._log_id, size, self._disk, min_allocation_bytes=self._min_allocation_bytes
        )

    def _adopt_all(self, paths: list[Path]) -> list[Path]:
        """Open the segments. Returns the files without a complete header: their creation was interrupted."""
        unfinished: list[Path] = []
        for path in paths:
            try:
                self._adopt(
                    Segment.open(
                        path,
                        self._log_id,
                        self._disk,
                        writable=self._writable,
                        min_allocation_bytes=self._min_allocation_bytes,
                    )
                )
            except Corruption:
                if not self._is_unfinished(path) or (not self._segments and len(paths) > 1):
                    raise
                unfinished.append(path)
        return unfinished

    def _is_unfinished(self, path: Path) -> bool:
        """Whether the creation of the file was interrupted: it has no index, and only a part of its header and
        zeros."""
        if path.with_suffix(INDEX_SUFFIX).exists():
            return False
        base = int(path.stem)
        if not self._segments and base > self._begin:
            return False
        with path.open("rb") as file:
            head = file.read(STORE_HEADER_BYTES)
            if any(byte not in (0, right) for byte, right in zip(head, store_header(base, self._log_id), strict=False)):
                return False
            return all(not chunk.strip(b"\0") for chunk in iter(lambda: file.read(_READ_BYTES), b""))

    def _find_end(self, durable_end: int) -> list[Path]:
        """Read the records that no index covers, up to the end of the log. Returns the files that contain no record.

        A segment that begins before the end of its predecessor is left from a rotation that failed or was interrupted,
        after which the log continued in the old file.
        """
        unused: list[Path] = []
        position = 0
        while position < len(self._segments):
            segment, later = self._segments[position], self._segments[position + 1 :]
            if not later or segment.end != later[0].base:
                segment.walk()
                if self._writable:
                    segment.rewrite(max(durable_end, segment.base + segment.indexed))
                else:
                    segment.sync()
            if later and later[0].base < segment.end:
                if self._was_used(later[0]):
                    raise Corruption(later[0].path, 0, f"{segment.path.name} also contains record {later[0].base}")
                unused += self._drop(position + 1, position + 2)
                continue
            if not later or segment.end < later[0].base:
                self._check_end(segment, later, durable_end)
                unused += self._drop(position + 1, len(self._segments))
            position += 1
        return unused

    def _check_end(self, segment: Segment, later: list[Segment], durable_end: int) -> None:
        """Raise Corruption if there is evidence that the next record was durable."""
        data, lsn = segment.rest(), segment.end
        witness = claims_durable(data, 0, len(data), lsn, self._salt)
        if witness is not None or any(self._was_used(other) for other in later) or lsn < durable_end:
            raise Corruption(
                segment.path, segment.length, f"record {lsn} is not valid, though it had been made durable"
            )

    def _drop(self, start: int, end: int) -> list[Path]:
        dropped = self._segments[start:end]
        del self._segments[start:end], self._bases[start:end]
        for segment in dropped:
            segment.close()
        return [segment.path for segment in dropped]

    def _was_used(self, segment: Segment) -> bool:
        """Whether a record was ever written to this later segment: then its predecessors were complete (SEG-6)."""
        data = segment.contents()
        return segment.index_path.exists() or contains_frame(data, len(data), segment.base, self._salt)

    def _adopt(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base)

    # ---- following a writer

    def _open_following(self, paths: list[Path]) -> None:
        end = self._watermark.next
        if not paths or end == 0:
            raise Unavailable(f"{self._directory} is being created or recovered; try again")
        self._adopt(self._open_oldest(0))
        self._follow_to(end)

    def _follow_to(self, end: int) -> None:
        last = self._segments[-1]
        while last.end < end:
            last.walk(end)
            if last.end < end:
                last = self._open_next(last)
        self.end = self.durable_end = max(end, last.base)

    def _open_next(self, last: Segment) -> Segment:
        """Open the next segment. If it was trimmed, replace all segments by the oldest remaining one."""
        path = self._directory / f"{last.end:020d}{STORE_SUFFIX}"
        try:
            segment = Segment.open(path, self._log_id, self._disk, writable=False)
        except FileNotFoundError:
            if last.path.exists():
                raise Corruption(
                    last.path, last.length, f"record {last.end} is not valid, though it is durable"
                ) from None
        else:
            self._adopt(segment)
            return segment
        trimmed, segment = self._segments, self._open_oldest(last.end)
        self._segments, self._bases, self._trimmed_to = [segment], [segment.base], segment.base
        for gone in trimmed:
            gone.close()
        return segment

    def _open_oldest(self, after: int) -> Segment:
        """Open the first segment that begins after `after`; the writer may trim at the same time."""
        while True:
            paths = [path for path in self._paths() if int(path.stem) > after]
            if not paths:
                raise Corruption(self._directory, None, f"there are no records after {after}, though they are durable")
            with contextlib.suppress(FileNotFoundError):
                return Segment.open(paths[0], self._log_id, self._disk, writable=False)

    # ---- checking

    @property
    def segments(self) -> Sequence[Segment]:
        """The current segments, oldest first."""
        return self._segments

    def damaged_watermark(self) -> Corruption | None:
        """The damage of the watermark; None if it is valid."""
        if self._watermark.is_whole:
            return None
        return Corruption(self._directory / FILE_NAME, 0, "the watermark does not match its complement")

    def check_invariants(self) -> None:
        """Check SEG-1 and SEG-2; for tests and simulations."""
        for before, after in zip(self._segments, self._segments[1:], strict=False):
            assert before.end == after.base, f"SEG-1: {before.path} ends at {before.end}, {after.path} follows"
        assert self._segments[-1].end >= self.end >= self.durable_end, "SEG-2"
