"""The files of a backup: records as in a log, in files with the format of the log's own (`log/segments/FORMAT.md`).

Each frame has its checksum, and the file's header the number of its first record. So a file that was written whole
shows by itself which records it has: an interrupted backup continues after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from google_crc32c import value

from logdb.backups.places import STAGING_SUFFIX, Place
from logdb.errors import Corruption, Unavailable
from logdb.log.contract import LogRecord
from logdb.log.segments.format import (
    FORMAT_VERSION,
    FRAME_BYTES,
    STORE_HEADER,
    STORE_HEADER_BYTES,
    STORE_MAGIC,
    Readable,
    check_frame,
    frame_head,
    is_sealed,
    salt_of,
    store_header,
)
from logdb.system.file_names import check_file_name

PART_SUFFIX: Final = ".log"
PART_BYTES: Final = 32 << 20
"""A part has about this size, or one record."""


class Part(NamedTuple):
    """A file of a backup. `first`, `end`: its records are `first` to `end` - 1. `first_time`, `last_time`: of its first
    and its last record, in ns since the epoch. `size`: in bytes. `crc`: the CRC32C of the file."""

    name: str
    first: int
    end: int
    first_time: int
    last_time: int
    size: int
    crc: int

    @classmethod
    def of(cls, *fields: Any, **named: Any) -> Part:
        """Check fields that were read. Raises ValueError, TypeError, AttributeError."""
        found = cls(*fields, **named)
        check_file_name(found.name, PART_SUFFIX)
        return found


class Frame(NamedTuple):
    """The frame of a record in a file: its bytes are `offset` to `end` - 1."""

    number: int
    offset: int
    end: int
    time: int
    tag: int


def frames_of(data: Readable, path: str | Path, log_id: bytes, end: int) -> Iterator[Frame]:
    """The frames in the content `data` of the file `path`, from its first record to record `end` - 1. Raises
    Corruption."""
    header = bytes(data[:STORE_HEADER_BYTES])
    if not is_sealed(header, STORE_HEADER_BYTES):
        raise Corruption(path, 0, "its header does not match its checksum")
    magic, version, _, _, number, its_log_id = STORE_HEADER.unpack_from(header)
    if (magic, version, its_log_id) != (STORE_MAGIC, FORMAT_VERSION, log_id):
        raise Corruption(path, 0, "it belongs to another log")
    salt, offset = salt_of(log_id), STORE_HEADER_BYTES
    while number < end:
        found = check_frame(data, offset, len(data), number, salt)
        if found is None:
            raise Corruption(path, offset, f"record {number} does not match its checksum")
        time, tag, behind = found
        yield Frame(number, offset, behind, time, tag)
        number, offset = number + 1, behind


def missing(place: Place, name: str) -> Corruption | Unavailable:
    """The error for a file that is not in the place. Where nothing is at all, it is rather not mounted than damaged."""
    if place.sizes():
        return Corruption(place.location(name), None, "the file is missing")
    return Unavailable(f"{place.location()} has no files, also not {name}: bring back what it had")


def read_part(place: Place, part: Part, log_id: bytes) -> bytes:
    """The content of a part, with the size and the checksum that it was written with. Raises Corruption, and
    Unavailable for a place that is away."""
    path = place.location(part.name)
    try:
        data = place.read(part.name)
    except FileNotFoundError:
        raise missing(place, part.name) from None
    if len(data) != part.size:
        raise Corruption(path, min(len(data), part.size), f"the file has {len(data):,} bytes instead of {part.size:,}")
    if value(data) != part.crc:
        for _ in frames_of(data, path, log_id, part.end):
            pass  # the error of the first damaged frame says more
        raise Corruption(path, None, "the file does not match its checksum")
    return data


def records_of(place: Place, part: Part, log_id: bytes) -> Iterator[LogRecord]:
    """The records of a part. Raises Corruption."""
    data = read_part(place, part, log_id)
    path, number = place.location(part.name), part.first
    for frame in frames_of(data, path, log_id, part.end):
        if frame.number != number:
            raise Corruption(path, 0, f"it begins with record {frame.number} instead of {part.first}")
        number += 1
        yield LogRecord(frame.number, frame.time, frame.tag, data[frame.offset + FRAME_BYTES : frame.end])


class PartWriter:
    """Writes the records of one backup to parts. `end`: the number of the next record. `parts`: those written."""

    def __init__(self, place: Place, number: int, log_id: bytes, first: int, part_bytes: int = PART_BYTES) -> None:
        self._place, self._prefix, self._part_bytes = place, f"{number:06}-", part_bytes
        self._begin(log_id, first)

    def _begin(self, log_id: bytes, first: int) -> None:
        self.log_id, self._salt = log_id, salt_of(log_id)
        self.parts: list[Part] = []
        self.end = first
        self._open()

    def _open(self) -> None:
        self._first, self._frames = self.end, [store_header(self.end, self.log_id)]
        self._size, self._first_time, self._last_time = STORE_HEADER_BYTES, 0, 0

    def leftovers(self) -> list[str]:
        """The parts that an interrupted attempt at this backup has written, in order."""
        names = self._place.sizes()
        return sorted(name for name in names if name.startswith(self._prefix) and name.endswith(PART_SUFFIX))

    def resume(self, *, log_id: bytes | None = None) -> None:
        """Keep the parts of an interrupted attempt at this backup, if they are whole and follow each other from `end`
        on, and remove all others. `log_id`: use it instead, if the parts have it."""
        if log_id is not None:
            self._begin(log_id, self.end)
        for name in self.leftovers():
            part = self._checked(name)
            if part is None:
                self._place.remove(name)
            else:
                self.parts.append(part)
                self.end = part.end
        for name in self._place.sizes():
            if name.endswith(STAGING_SUFFIX):
                self._place.remove(name)
        self._open()

    def discard(self, log_id: bytes, first: int) -> None:
        """Remove all parts, and begin again with record `first` of the log `log_id`."""
        for name in self.leftovers():
            self._place.remove(name)
        self._begin(log_id, first)

    def _checked(self, name: str) -> Part | None:
        data = self._place.read(name)
        try:
            numbers = list(_all_frames(data, name, self.log_id))
        except Corruption:
            return None
        if not numbers or numbers[0].number != self.end or numbers[-1].end != len(data):
            return None
        first, last = numbers[0], numbers[-1]
        return Part(name, first.number, last.number + 1, first.time, last.time, len(data), value(data))

    def add(self, tag: int, payload: bytes, time: int) -> None:
        """Write a record."""
        self.add_frame(frame_head(self.end, self._salt, 0, time, tag, payload) + payload, time)

    def add_frame(self, frame: bytes, time: int) -> None:
        """Write a record, which is framed as record `end` of this log."""
        if self._size + len(frame) > self._part_bytes and len(self._frames) > 1:
            self.flush()
        if len(self._frames) == 1:
            self._first_time = time
        self._frames.append(frame)
        self._size += len(frame)
        self._last_time = time
        self.end += 1

    def flush(self) -> None:
        """Write the part begun."""
        if len(self._frames) == 1:
            return
        data = b"".join(self._frames)
        name = f"{self._prefix}{self._first:020}{PART_SUFFIX}"
        self._place.write(name, data)
        times = self._first_time, self._last_time
        self.parts.append(Part(name, self._first, self.end, *times, len(data), value(data)))
        self._open()


def _all_frames(data: bytes, name: str, log_id: bytes) -> Iterator[Frame]:
    """The frames up to the end of the file. Raises Corruption."""
    for frame in frames_of(data, name, log_id, 1 << 64):
        yield frame
        if frame.end == len(data):
            return


def log_id_of(place: Place, name: str) -> bytes | None:
    """The log that a part belongs to; None if its header is damaged."""
    header = place.read(name)[:STORE_HEADER_BYTES]
    if not is_sealed(header, STORE_HEADER_BYTES):
        return None
    its_id: bytes = STORE_HEADER.unpack_from(header)[5]
    return its_id
