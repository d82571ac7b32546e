"""A log segment: a store file of frames and, once it is sealed, an index file of their offsets."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import sys
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from google_crc32c import extend, value

from logdb.errors import Corruption, UnsupportedFormat
from logdb.log.contract import LogRecord
from logdb.log.segments.format import (
    BODY_AT,
    FORMAT_VERSION,
    FRAME,
    FRAME_BYTES,
    FRAME_MAGIC,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_MAGIC,
    LOW_HALF,
    MAX_OFFSET,
    STORE_HEADER,
    STORE_HEADER_BYTES,
    STORE_MAGIC,
    check_frame,
    index_header,
    is_sealed,
    read_frame,
    read_frames,
    salt_of,
    store_header,
    walk_frames,
)
from logdb.log.segments.incoming import Incoming
from logdb.system.disk import DISK_FULL, Disk

STORE_SUFFIX = ".log"
STORE_NAME = re.compile(r"\d{20}" + re.escape(STORE_SUFFIX), re.ASCII)
INDEX_SUFFIX = ".idx"
REFUSED = (*DISK_FULL, errno.EMFILE, errno.ENFILE)
"""Errors that prevent the creation or extension of a file only temporarily; any other error is a disk failure."""
ALLOCATE_BYTES = 16 << 20
CHECK_BYTES = 1 << 20
WRITE_BYTES = 1 << 20
"""Frames up to this size are joined and written together; larger ones are written separately, without a copy."""


RELEASE_BYTES = 1 << 20
"""A frame of this size is unmapped after it was read: the file stays in the page cache, but not in this process."""


class SegmentClosed(Exception):
    """The segment was closed, by a trim or with the log."""


class Segment:
    """A store file, the offsets of its records (`offsets`), and the end of the last one (`length`).

    `length` includes appended records that are not flushed yet. Blocks are allocated in steps of a quarter of the file,
    with a minimum of `min_allocation_bytes` and a maximum of ALLOCATE_BYTES. `incoming_bytes`: the size of the first
    frame if its record was received in parts, else 0.
    """

    def __init__(
        self, path: Path, base: int, log_id: bytes, fd: int, disk: Disk, *, min_allocation_bytes: int = MAX_OFFSET
    ) -> None:
        self.path, self.base, self._log_id, self._fd, self._disk = path, base, log_id, fd, disk
        self._min_allocation_bytes = min_allocation_bytes
        self._salt = salt_of(log_id)
        self.offsets: array[int] = array("I")
        self.length = STORE_HEADER_BYTES
        self.indexed = 0
        self.damaged_index: Corruption | None = None
        self.allocated = disk.size(fd)
        self.incoming_bytes = 0
        self._map: mmap.mmap | None = None
        self._mapping = threading.Lock()
        self._closed = False

    @classmethod
    def create(
        cls, directory: Path, base: int, log_id: bytes, size: int, disk: Disk, *, min_allocation_bytes: int = MAX_OFFSET
    ) -> Segment:
        """Create an empty segment with `size` bytes allocated, on the medium. Removes the file if it fails."""
        path = directory / f"{base:020d}{STORE_SUFFIX}"
        try:
            fd = disk.create(path)
        except FileExistsError:  # left by a creation whose clean-up was interrupted
            disk.unlink(path)
            fd = disk.create(path)
        try:
            desired = max(size, min(min_allocation_bytes, ALLOCATE_BYTES))
            _reserve(disk, fd, 0, STORE_HEADER_BYTES + desired, STORE_HEADER_BYTES + size)
            disk.write(fd, store_header(base, log_id), 0)
            disk.sync(fd)
            disk.sync_directory(directory)
            return cls(path, base, log_id, fd, disk, min_allocation_bytes=min_allocation_bytes)
        except BaseException:
            disk.close(fd)
            with contextlib.suppress(OSError):
                disk.unlink(path)
                disk.sync_directory(directory)
            raise

    @classmethod
    def from_incoming(
        cls, incoming: Incoming, directory: Path, base: int, log_id: bytes, disk: Disk, *, min_allocation_bytes: int
    ) -> Segment:
        """Turn the file of an incoming record into a segment: its header is on the medium, the frame's head is not
        written yet."""
        path = directory / f"{base:020d}{STORE_SUFFIX}"
        fd = incoming.release()
        try:
            disk.write(fd, store_header(base, log_id), 0)
            disk.sync(fd)
            disk.rename(incoming.path, path)
            disk.sync_directory(directory)
            segment = cls(path, base, log_id, fd, disk, min_allocation_bytes=min_allocation_bytes)
        except BaseException:
            disk.close(fd)
            for name in (incoming.path, path):
                with contextlib.suppress(OSError):
                    disk.unlink(name)
            raise
        segment.incoming_bytes = FRAME_BYTES + incoming.length
        segment.offsets.append(STORE_HEADER_BYTES)
        segment.length = STORE_HEADER_BYTES + segment.incoming_bytes
        return segment

    @classmethod
    def open(
        cls, path: Path, log_id: bytes, disk: Disk, *, writable: bool, min_allocation_bytes: int = MAX_OFFSET
    ) -> Segment:
        """Open an existing segment with the records that its index covers; `walk` finds the others."""
        return cls.of(disk.open(path, writable=writable), path, log_id, disk, min_allocation_bytes=min_allocation_bytes)

    @classmethod
    def of(cls, fd: int, path: Path, log_id: bytes, disk: Disk, *, min_allocation_bytes: int = MAX_OFFSET) -> Segment:
        """Like `open`, for an open file, whose name may have been removed."""
        try:
            segment = cls(path, int(path.stem), log_id, fd, disk, min_allocation_bytes=min_allocation_bytes)
            segment._check_header()
            segment._load_index()
        except BaseException:
            disk.close(fd)
            raise
        return segment

    @property
    def end(self) -> int:
        """The sequence number after the last record."""
        return self.base + len(self.offsets)

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(INDEX_SUFFIX)

    # ---- appending

    def make_room(self, size: int) -> None:
        """Allocate blocks for `size` more bytes. If the disk is full, raises OSError and changes nothing."""
        needed = self.length + size
        if needed > self.allocated:
            minimum = needed - self.allocated
            desired = max(minimum, min(ALLOCATE_BYTES, max(self._min_allocation_bytes, self.allocated // 4)))
            self.allocated += _reserve(self._disk, self._fd, self.allocated, desired, minimum)

    def write(self, frames: list[bytes], offset: int) -> None:
        """Write frames, or parts of them, at `offset` and sync them."""
        for data in _chunks(frames):
            self._disk.write(self._fd, data, offset)
            offset += len(data)
        self._disk.sync(self._fd)

    def seal(self) -> None:
        """Release the blocks after the last record and write the index. All records must be durable.

        If the disk is full, or too many files are open, no index is written; opening the segment then reads all frames.
        """
        if self.indexed == len(self.offsets) and self.damaged_index is None and self.allocated == self.length:
            return
        self.cut()
        try:
            self._write_index()
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            with contextlib.suppress(OSError):
                self._disk.unlink(self.index_path.with_suffix(".tmp"))

    def _write_index(self) -> None:
        entries = _little_endian(self.offsets)
        header = index_header(self.base, self._log_id, len(self.offsets), self.length, entries)
        staging = self.index_path.with_suffix(".tmp")
        if staging.exists():
            self._disk.unlink(staging)
        fd = self._disk.create(staging)
        try:
            self._disk.write(fd, header + entries, 0)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.rename(staging, self.index_path)
        self._disk.sync_directory(self.path.parent)
        self.indexed, self.damaged_index = len(self.offsets), None

    def cut(self) -> None:
        """Truncate the file after the last record, which also removes a torn tail."""
        if self._disk.size(self._fd) != self.length:
            self._map = None
            self._disk.truncate(self._fd, self.length)
            self._disk.sync(self._fd)
        self.allocated = self.length

    def rewrite(self, lsn: int) -> None:
        """Write the records from `lsn` on once more, as they are, and sync the file.

        If the system has failed to write a page, it counts the page as written: it is read as if it were on the medium,
        and a sync reports success. Only writing the page again makes it durable.
        """
        if lsn < self.end:
            data, offset = self._mapped(self.length), self.offsets[max(lsn - self.base, 0)]
            for at in range(offset, self.length, WRITE_BYTES):
                self._disk.write(self._fd, data[at : min(at + WRITE_BYTES, self.length)], at)
        self._disk.sync(self._fd)

    def sync(self) -> None:
        """Sync the file."""
        self._disk.sync(self._fd)

    # ---- reading

    def read(self, lsn: int) -> LogRecord:
        """The record `lsn`. Verifies its checksum; raises Corruption."""
        position = lsn - self.base
        offset = self.offsets[position]
        limit = self.offsets[position + 1] if position + 1 < len(self.offsets) else self.length
        data = self._mapped(limit)
        record = read_frame(data, offset, limit, lsn, self._salt)
        if record is None:
            raise Corruption(self.path, offset, f"record {lsn} does not match its checksum")
        _release(data, offset, limit)
        return record

    def payload(self, lsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        """(tag, length, the payload in parts) of record `lsn`. The last part is returned only if the checksum matches;
        raises Corruption."""
        position = lsn - self.base
        offset = self.offsets[position]
        limit = self.offsets[position + 1] if position + 1 < len(self.offsets) else self.length
        data = self._mapped(limit)
        magic, checksum, length, _, _, tag = FRAME.unpack_from(data, offset)
        if magic != FRAME_MAGIC or offset + FRAME_BYTES + length != limit:
            raise Corruption(self.path, offset, f"record {lsn} does not match its checksum")
        return tag, length, self._parts(data, offset, limit, checksum ^ (lsn & LOW_HALF) ^ self._salt, lsn, part_bytes)

    def _parts(
        self, data: mmap.mmap, offset: int, limit: int, checksum: int, lsn: int, part_bytes: int
    ) -> Iterator[bytes]:
        found, at = value(data[offset + BODY_AT : offset + FRAME_BYTES]), offset + FRAME_BYTES
        while at < limit:
            part = data[at : min(at + part_bytes, limit)]
            found = extend(found, part)
            if at + len(part) == limit and found != checksum:
                raise Corruption(self.path, offset, f"record {lsn} does not match its checksum")
            yield part
            data.madvise(mmap.MADV_DONTNEED, at // mmap.PAGESIZE * mmap.PAGESIZE, len(part))  # still in the page cache
            at += len(part)

    def scan(self, first: int, end: int, tags: frozenset[int] | None = None) -> Iterator[LogRecord]:
        """Records `first` to `end` - 1 with one of the `tags` (None: all). Verifies the checksums of all; raises
        Corruption."""
        if first >= end:
            return
        last = end - 1 - self.base
        limit = self.offsets[last + 1] if last + 1 < len(self.offsets) else self.length
        data, offset = self._mapped(limit), self.offsets[first - self.base]
        for lsn in range(first, end):
            found = check_frame(data, offset, limit, lsn, self._salt)
            if found is None:
                raise Corruption(self.path, offset, f"record {lsn} does not match its checksum")
            time, tag, end_of_frame = found
            if tags is None or tag in tags:
                yield LogRecord(lsn, time, tag, data[offset + FRAME_BYTES : end_of_frame])
            _release(data, offset, end_of_frame)
            offset = end_of_frame

    def check(self, end: int) -> Iterator[tuple[int, int, list[tuple[int, bytes] | Corruption]]]:
        """Check every frame before record `end`, about `CHECK_BYTES` at a time.

        Yields (first record, bytes, (tag, payload) or damage of each frame) in order, and before them damage to the
        index, with 0 bytes.
        """
        if self.damaged_index is not None:
            yield self.base, 0, [self.damaged_index]
        offsets, salt, position, stop = self.offsets, self._salt, 0, min(len(self.offsets), end - self.base)
        while position < stop:
            first, lsn = offsets[position], self.base + position
            data, following = self.frames(lsn, self.base + stop, CHECK_BYTES)
            limits = [offset - first for offset in offsets[position + 1 : following - self.base]] + [len(data)]
            found: list[tuple[int, bytes] | Corruption] = []
            for index, frame in enumerate(read_frames(data, limits, lsn, salt)):
                if frame is None:
                    reason = f"record {lsn + index} does not match its checksum"
                    found.append(Corruption(self.path, offsets[position + index], reason))
                else:
                    found.append(frame)
            yield lsn, len(data), found
            position = following - self.base

    def frames(self, first: int, end: int, max_bytes: int) -> tuple[bytes, int]:
        """(the unverified frames of records `first` to `next` - 1, `next`): about `max_bytes` and at least one
        record."""
        position, stop = first - self.base, end - self.base
        start = self.offsets[position]
        last = max(bisect_right(self.offsets, start + max_bytes, position, stop), position + 1)
        limit = self.offsets[last] if last < len(self.offsets) else self.length
        return self._mapped(limit)[start:limit], self.base + last

    def time(self, lsn: int) -> int:
        """The time of record `lsn`, ns since the epoch. Raises Corruption."""
        return self.read(lsn).time

    def last_at_time(self, time: int, end: int) -> int:
        """The last record before `end` with this `time` (ns) or an earlier one; `base` - 1 if there is none."""
        return self.base + bisect_right(range(self.base, end), time, key=self.time) - 1

    def walk(self, end: int | None = None) -> None:
        """Add the records after the indexed ones, up to the first invalid frame or to record `end`."""
        data, size = self._whole()
        for offset, record in walk_frames(data, self.length, size, self.end, self._salt):
            self.offsets.append(offset)
            self.length = offset + FRAME_BYTES + len(record.payload)
            if end is not None and self.end >= end:
                return

    def fileno(self) -> int:
        """The descriptor of the store file."""
        return self._fd

    def contents(self) -> mmap.mmap:
        """The current contents of the file."""
        return self._whole()[0]

    def rest(self) -> bytes:
        """The bytes after the last record. Not mapped: a writer that starts meanwhile truncates the file, and
        the system ends a process that reads a map behind the end of its file."""
        parts, at = [], self.length
        while part := os.pread(self._fd, WRITE_BYTES, at):
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file. Readers can continue to use their maps of it."""
        with self._mapping:
            if not self._closed:
                self._closed, self._map = True, None
                self._disk.close(self._fd)

    def disown(self) -> None:
        """In a child of fork(): like `close`, even if a thread of the parent held the lock."""
        self._mapping = threading.Lock()
        self.close()

    def unlink(self) -> None:
        """Unlink both files; readers that have them open can continue."""
        for path in (self.index_path, self.path):
            if path.exists():
                self._disk.unlink(path)

    def _whole(self) -> tuple[mmap.mmap, int]:
        """The current contents of the file, and their size."""
        while True:
            size = self._disk.size(self._fd)
            try:
                return self._mapped(size), size
            except ValueError:
                if self._disk.size(self._fd) >= size:  # not because the writer has truncated the file meanwhile
                    raise

    def _mapped(self, length: int) -> mmap.mmap:
        mapped = self._map
        if mapped is None or len(mapped) < length:
            with self._mapping:
                if self._closed:  # the descriptor may have been reused
                    raise SegmentClosed(str(self.path))
                try:
                    mapped = self._disk.map(self._fd, max(length, self._disk.size(self._fd)))
                except ValueError:  # the writer has truncated the file after the call of `size`
                    mapped = self._disk.map(self._fd, max(length, self._disk.size(self._fd)))
                self._map = mapped
        return mapped

    # ---- opening

    def _check_header(self) -> None:
        header = bytes(self._mapped(1)[:STORE_HEADER_BYTES]) if self.allocated else b""
        if len(header) == STORE_HEADER_BYTES and header[:8] == STORE_MAGIC:
            found = STORE_HEADER.unpack_from(header)[1]
            if found > FORMAT_VERSION and is_sealed(header, STORE_HEADER_BYTES):
                raise UnsupportedFormat(self.path, found, FORMAT_VERSION)
        if header != store_header(self.base, self._log_id):
            raise Corruption(self.path, 0, "the header does not belong to this segment")

    def _load_index(self) -> None:
        try:
            raw = self.index_path.read_bytes()
        except FileNotFoundError:
            return
        header = raw[:INDEX_HEADER_BYTES]
        if not is_sealed(header, INDEX_HEADER_BYTES):
            self.damaged_index = Corruption(self.index_path, 0, "the header does not match its checksum")
            return
        magic, version, _, _, base, owner, count, store_bytes, checksum = INDEX_HEADER.unpack_from(header)
        if magic == INDEX_MAGIC and version > FORMAT_VERSION:
            raise UnsupportedFormat(self.index_path, version, FORMAT_VERSION)
        entries = raw[INDEX_HEADER_BYTES:]
        if (magic, base, owner) != (INDEX_MAGIC, self.base, self._log_id):
            self.damaged_index = Corruption(self.index_path, 0, "the index does not belong to this segment")
            return
        size = self._disk.size(self._fd)
        if store_bytes > size:
            raise Corruption(self.path, size, f"the file ends before byte {store_bytes}")
        if len(entries) != 4 * count or value(entries) != checksum:
            self.damaged_index = Corruption(
                self.index_path, INDEX_HEADER_BYTES, "the entries do not match their checksum"
            )
            return
        self.offsets = array("I", entries)
        if sys.byteorder == "big":
            self.offsets.byteswap()
        self.length = store_bytes
        self.indexed = count


def _release(data: mmap.mmap, start: int, end: int) -> None:
    """Unmap the pages of a large frame that was read."""
    if end - start >= RELEASE_BYTES:
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, first, end - first)


def _reserve(disk: Disk, fd: int, offset: int, desired: int, minimum: int) -> int:
    """Allocate `desired` bytes, or only `minimum` if the disk is full. Returns the allocated size."""
    try:
        disk.allocate(fd, offset, desired)
    except OSError as error:
        if error.errno not in DISK_FULL or minimum == desired:
            raise
        if disk.size(fd) > offset:  # release the blocks allocated before the disk was full
            disk.truncate(fd, offset)
        disk.allocate(fd, offset, minimum)
        return minimum
    return desired


def _chunks(frames: list[bytes]) -> Iterator[bytes]:
    """The same bytes, with small frames joined."""
    start = 0
    for position, part in enumerate(frames):
        if len(part) > WRITE_BYTES:
            if start < position:
                yield b"".join(frames[start:position])
            yield part
            start = position + 1
    if start < len(frames):
        yield b"".join(frames[start:])


def _little_endian(offsets: array[int]) -> bytes:
    if sys.byteorder == "big":
        offsets = array("I", offsets)
        offsets.byteswap()
    return offsets.tobytes()
