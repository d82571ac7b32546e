"""A log segment as its server keeps it: segment files in a directory, appended to by one writer, read by many.

Writing has two halves, so that one fdatasync can serve many appends: `append` gives records their sequence numbers and
keeps their frames, `flush` puts all that were kept on the medium. Appends must be serialized by the caller, flushes
too; an append may run while a flush does.

Invariants (asserted by `check_invariants`, cited by the tests):

SEG-1  Sequence numbers are contiguous: each segment begins where the one before it ends.
SEG-2  `durable_end` never passes `end`, and moves only after the fdatasync of what it covers.
SEG-3  One append call lies in one segment: it is refused whole, before anything is numbered, when the disk is full.
SEG-4  After a failed write or fdatasync nothing is ever appended or flushed again through this object.
       An interrupt (an exception out of a signal handler) is no failure: what it cut short can be called again.
SEG-5  Recovery drops only bytes that no writer can have acknowledged: what the watermark, an index or a later frame
       says to be durable must be there, or opening fails with the file and the offset.
SEG-6  Frames go to a segment only after all of the one before it is on the medium.
"""

from __future__ import annotations

import contextlib
import errno
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
    frame_head,
    holds_frame,
    incoming_head,
    salt_of,
    store_header,
)
from logdb.log.segments.incoming import Incoming, remove_leftovers
from logdb.log.segments.segment import INDEX_SUFFIX, STORE_SUFFIX, Segment, SegmentClosed
from logdb.log.segments.watermark import FILE_NAME, Watermark
from logdb.system.disk import DISK_FULL, Disk, described

SEGMENT_BYTES = 64 << 20
REFUSED = (*DISK_FULL, errno.EMFILE, errno.ENFILE)
"""What keeps a segment from being extended now, and may not a moment later; anything else is a failing disk."""
_READ_BYTES = 1 << 20

Run = tuple[Segment, int, list[bytes], bool]
"""Frames that follow each other in a segment, the offset where the first goes, and whether no other frames follow."""


class SegmentStore:
    """The records `first` to `end` - 1 of one log, of which those before `durable_end` are on the medium.

    `writable`: become the one writer (the caller holds the lock that makes it so), recover the tail, cut what is torn.
    `follow`: only read while another process may be writing; `refresh` sees what has become durable meanwhile.
    Neither: only read, and nobody writes: the tail is found as a writer would find it, and left as it is.
    `first`: the number at which the log begins when there is none yet; it must be the same at each opening.
    `least_bytes`: blocks are allocated in steps that begin with this and grow, up to `segment.ALLOCATE_BYTES`.
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
        least_bytes: int = MAX_OFFSET,
        disk: Disk | None = None,
    ) -> None:
        self._directory, self._log_id, self._segment_bytes = directory, log_id, segment_bytes
        self._begin, self._least_bytes = first, least_bytes
        self._salt = salt_of(log_id)
        self._disk = disk or Disk()
        self._writable = writable
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._frames: list[bytes] = []
        self._runs: list[Run] = []
        self._taken: list[Run] = []
        self._refreshing = threading.Lock()
        self._closed = False
        self.failure: OSError | None = None
        if writable:
            self._disk.make_directory(directory)
            self._disk.sync_directory(directory.parent)
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
        """Number the records, given as (tag, payload), and keep their frames for the next `flush`.

        Returns the first sequence number. Raises Unavailable when the disk is full (nothing was done), LogFailed
        after a failed flush.
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
        self.end = lsn
        return first

    def receive(self, length: int) -> Incoming:
        """A record of `length` bytes that comes in parts. Whoever does not append it discards it.

        Raises Unavailable when the disk has no room, OSError.
        """
        return Incoming(self._directory, length, self._disk)

    def append_incoming(self, tag: int, incoming: Incoming, time: int) -> int:
        """As `append` of the one record, which is whole: it begins a segment, and a flush has only its head to write.

        Its file is discarded where this raises.
        """
        if self.failure is not None:
            raise LogFailed(described(self.failure)) from self.failure
        if not self._segments[-1].offsets:  # the segment would have the name of this one
            return self.append([(tag, incoming.take())], time)
        lsn = self.end
        unsynced, checksum = lsn - self.durable_end, incoming.checksum
        head = incoming_head(lsn, self._salt, unsynced, time, tag, incoming.length, checksum)
        try:
            new = Segment.begun_by(
                incoming, self._directory, lsn, self._log_id, self._disk, least_bytes=self._least_bytes
            )
        except OSError as error:
            raise self._refusal(error, incoming.length) from error
        self._go_on_in(new, [head], lsn + 1)
        return lsn

    def take(self) -> tuple[list[Run], int]:
        """What `flush` is to write, and the sequence number after it. Serialized with `append` by the caller.

        What was taken by a flush that did not get to its end (an interrupt) is taken again: writing it twice is
        harmless.
        """
        segment = self._segments[-1]
        runs = self._taken + self._runs
        if self._frames:
            runs.append((segment, self._run_offset, self._frames, False))
        # No call stands between these, so no interrupt comes between them.
        self._taken, self._runs, self._frames, self._run_offset = runs, [], [], segment.length
        return runs, self.end

    def flush(self, taken: tuple[list[Run], int]) -> None:
        """Put what was taken on the medium. Raises LogFailed, after which nothing is written any more (SEG-4)."""
        runs, end = taken
        if self.failure is not None:
            raise LogFailed(described(self.failure)) from self.failure
        try:
            for segment, offset, frames, is_last in runs:
                segment.write(frames, offset)
                if is_last:
                    segment.seal()
        except OSError as error:
            self.failure = error
            raise LogFailed(described(error)) from error
        self._watermark.advance(end)
        self.durable_end = end
        self._taken = []

    def begin_file(self) -> None:
        """Let the next record begin a segment. Serialized with `append`. Raises Unavailable, LogFailed."""
        if self.failure is not None:
            raise LogFailed(described(self.failure)) from self.failure
        segment = self._segments[-1]
        if segment.offsets:
            self._room_for(segment, 0, begin=True)

    def _room_for(self, segment: Segment, size: int, *, begin: bool = False) -> Segment:
        """The segment that takes `size` more bytes: this one with more blocks, or the next, which `begin` demands."""
        try:
            used = segment.length - segment.incoming_bytes
            if not begin and (used + size <= self._segment_bytes or not segment.offsets):
                segment.make_room(size)
                return segment
            new = self._new_segment(self.end, size)
        except OSError as error:
            raise self._refusal(error, size) from error
        self._go_on_in(new, [], self.end)
        return new

    def _go_on_in(self, new: Segment, frames: list[bytes], end: int) -> None:
        """Append to another segment from now on; these frames are the first of it, up to before record `end`."""
        # A run of the old segment, even an empty one, makes the flush seal it. No call stands between these, so no
        # interrupt comes between them.
        self._runs += [(self._segments[-1], self._run_offset, self._frames, True)]
        if frames:
            self._runs += [(new, STORE_HEADER_BYTES, frames, False)]
        self._frames, self._run_offset = [], new.length
        self._segments += [new]
        self._bases += [new.base]
        self.end = end

    def _refusal(self, error: OSError, size: int) -> Exception:
        """What it means that a segment could not be extended, or another one begun."""
        if error.errno in DISK_FULL:
            return Unavailable(
                f"the disk that holds {self._directory} is full: {size:,} bytes could not be reserved; "
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
        """The oldest sequence number in the files: trimming removes whole files, so it may lag behind `first`."""
        return self._bases[0]

    def read(self, lsn: int) -> LogRecord:
        """The durable record `lsn`; `first` <= `lsn` < `durable_end`. Raises Corruption."""
        try:
            return self._segment_of(lsn).read(lsn)
        except SegmentClosed:
            raise self._gone(lsn) from None

    def payload(self, lsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        """(tag, length, the payload in parts) of the durable record `lsn`. The parts stay readable when it is trimmed;
        with the last one the checksum is compared. Raises Trimmed, Corruption."""
        try:
            return self._segment_of(lsn).payload(lsn, part_bytes)
        except SegmentClosed:
            raise self._gone(lsn) from None

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        """Durable records `first` to `end` - 1 in order;

        `base` <= `first`, `end` <= `durable_end`. Raises Corruption, and Trimmed when a trim overtakes it.
        """
        while first < end:
            segment = self._segment_of(first)
            stop = min(end, segment.end)
            try:
                yield from segment.scan(first, stop)
            except SegmentClosed:
                raise self._gone(first) from None
            first = stop

    def frames(self, first: int, end: int, max_bytes: int) -> tuple[bytes, int]:
        """(the frames of durable records from `first` on, as they stand in one file, not checked; the next record):
        about so many bytes, and no further than `end`. Raises Trimmed."""
        segment = self._segment_of(first)
        try:
            return segment.frames(first, min(end, segment.end), max_bytes)
        except SegmentClosed:
            raise self._gone(first) from None

    def last_at_time(self, time: int) -> int:
        """The last durable record not younger than `time` (ns since the epoch), or `base` - 1 if all are."""
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
        """When the durable record `lsn` was written, ns since the epoch."""
        return self.read(lsn).time

    def refresh(self) -> int:
        """Where another process writes: see what has become durable. Returns `durable_end`."""
        end = self._watermark.next
        if end > self.durable_end:
            with self._refreshing:
                if end > self.durable_end and not self._closed:
                    self._follow_to(end)
        return self.durable_end

    def size(self, first: int) -> int:
        """The bytes of the files, from the one that holds record `first` on."""
        return sum([segment.length for segment in self._segments if segment.end > first])

    def oldest_after_trim(self, lsn: int) -> int:
        """The oldest record that the files would still have after `trim(lsn)`."""
        return self._segment_of(max(lsn, self.base)).base

    def files(self, first: int, end: int) -> list[tuple[Path, int, int]]:
        """(store file, first record, end) of every segment with records in `first` to `end` - 1."""
        return [
            (segment.path, max(first, segment.base), min(end, segment.end))
            for segment in self._segments
            if segment.base < end and segment.end > first
        ]

    def _segment_of(self, lsn: int) -> Segment:
        # Both of one moment: a trim in another thread replaces the two together.
        segments, bases = self._segments, self._bases
        position = bisect_right(bases, lsn)
        if position == 0:
            raise Trimmed(lsn, self.first)
        return segments[position - 1]

    def _gone(self, lsn: int) -> Exception:
        return Trimmed(lsn, self.first) if lsn < self.base else LogFailed("the log is closed")

    # ---- trimming and closing

    def trim(self, lsn: int) -> None:
        """Records before `lsn` may go: no longer readable, and whole files of them are removed. Raises LogFailed."""
        self._trimmed_to = max(self._trimmed_to, min(lsn, self.durable_end))
        while len(self._segments) > 1 and self._segments[1].base <= self._trimmed_to:
            segment = self._segments[0]
            try:
                # One by one, so that a crash leaves no hole between the files.
                segment.unlink()
                self._disk.sync_directory(self._directory)
            except OSError as error:
                self.failure = error
                raise LogFailed(described(error)) from error
            self._segments, self._bases = self._segments[1:], self._bases[1:]
            segment.close()

    def close(self) -> None:
        """Seal the last segment, if everything was flushed, and release the files. Raises LogFailed."""
        try:
            if self._writable and self.failure is None and self.durable_end == self.end:
                self._segments[-1].seal()
        except OSError as error:
            self.failure = error
            raise LogFailed(described(error)) from error
        finally:
            self._close_files()

    def abandon(self) -> None:
        """Release the files of a log that nobody needs any more, in whatever state they are."""
        self._writable = False
        self._close_files()

    def disown(self) -> None:
        """In a child of fork(): as `abandon`, whoever held a lock in the parent."""
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
        unborn = self._adopt_all(paths)
        if not self._segments:
            self._open_empty(durable_end)
            return
        unused = self._find_end(durable_end)
        last = self._segments[-1]
        if self._writable:
            for path in [*unborn, *unused]:
                self._disk.unlink(path)
            remove_leftovers(self._directory, self._disk)
            # The names too: those of new files may not have been synced, those of removed ones must not come back.
            self._disk.sync_directory(self._directory)
            for segment in self._segments[:-1]:
                segment.seal()
            last.cut()
            self._watermark.advance(last.end)
        self.end = self.durable_end = last.end

    def _paths(self) -> list[Path]:
        """The store files, oldest first."""
        return sorted(self._directory.glob("[0-9]" * 20 + STORE_SUFFIX))

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

    def _new_segment(self, base: int, size: int) -> Segment:
        return Segment.create(self._directory, base, self._log_id, size, self._disk, least_bytes=self._least_bytes)

    def _adopt_all(self, paths: list[Path]) -> list[Path]:
        """Adopt the segments. Returns the files that never got their header: a crash or an interrupt came before."""
        unborn: list[Path] = []
        for path in paths:
            try:
                self._adopt(
                    Segment.open(path, self._log_id, self._disk, writable=self._writable, least_bytes=self._least_bytes)
                )
            except Corruption:
                if not self._is_unborn(path) or (not self._segments and len(paths) > 1):
                    raise
                unborn.append(path)
        return unborn

    def _is_unborn(self, path: Path) -> bool:
        """Whether the file has never had a whole header: no index, nothing but zeros after a header half written."""
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
        """Walk through what no index vouches for, to where the log ends. Returns the files that hold nothing of it.

        One that begins before the segment before it ends is left over from a rotation that failed or was interrupted,
        after which the log went on in the old file.
        """
        unused: list[Path] = []
        position = 0
        while position < len(self._segments):
            segment, later = self._segments[position], self._segments[position + 1 :]
            if not later or segment.end != later[0].base:
                segment.walk()
                segment.sync()
            if later and later[0].base < segment.end:
                if self._was_used(later[0]):
                    raise Corruption(later[0].path, 0, f"{segment.path.name} holds record {later[0].base} too")
                unused += self._drop(position + 1, position + 2)
                continue
            if not later or segment.end < later[0].base:
                self._check_end(segment, later, durable_end)
                unused += self._drop(position + 1, len(self._segments))
            position += 1
        return unused

    def _check_end(self, segment: Segment, later: list[Segment], durable_end: int) -> None:
        """Raises Corruption if something says that the record that should come next had been durable."""
        data, lsn = segment.contents(), segment.end
        witness = claims_durable(data, segment.length, len(data), lsn, self._salt)
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
        """Whether a record was ever written to this later segment: then those before it were whole (SEG-6)."""
        data = segment.contents()
        return segment.index_path.exists() or holds_frame(data, len(data), segment.base, self._salt)

    def _adopt(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base)

    # ---- following a writer

    def _open_following(self, paths: list[Path]) -> None:
        end = self._watermark.next
        if not paths or end == 0:
            raise Unavailable(f"{self._directory} is just being created or recovered; try again")
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
        """Adopt the segment that follows; if it was trimmed, the oldest one left instead of all there are."""
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
        """The first segment that begins after `after`; the writer may be trimming."""
        while True:
            paths = [path for path in self._paths() if int(path.stem) > after]
            if not paths:
                raise Corruption(self._directory, None, f"there are no records after {after}, though they are durable")
            with contextlib.suppress(FileNotFoundError):
                return Segment.open(paths[0], self._log_id, self._disk, writable=False)

    # ---- checking

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments there are now, oldest first."""
        return self._segments

    def damaged_watermark(self) -> Corruption | None:
        """What is wrong with the watermark, if anything is."""
        if self._watermark.is_whole:
            return None
        return Corruption(self._directory / FILE_NAME, 0, "the watermark does not match its complement")

    def check_invariants(self) -> None:
        """SEG-1, SEG-2 and the order of offsets; for tests and simulations."""
        for before, after in zip(self._segments, self._segments[1:], strict=False):
            assert before.end == after.base, f"SEG-1: {before.path} ends at {before.end}, {after.path} follows"
        assert self._segments[-1].end >= self.end >= self.durable_end, "SEG-2"
