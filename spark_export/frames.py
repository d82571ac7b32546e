"""The frames of a part of the log: where they are, and that they are what was written.

Where frames begin follows from their lengths, one after the other; a segment that is full has an index that says it.
The index needs no trust: if each frame it names ends where the next one begins, walking would have found the same.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final, Protocol

import numpy as np
from google_crc32c import value as crc32c

from logdb.embedded.plan import Part, Plan
from logdb.errors import Corruption
from logdb.log.segments.format import (
    BODY_AT,
    FRAME_BYTES,
    FRAME_MAGIC,
    INDEX_HEADER_BYTES,
    LOW_HALF,
    STORE_HEADER_BYTES,
    salt_of,
    store_header,
)
from logdb.log.segments.segment import INDEX_SUFFIX
from spark_export.checksums import CHECK_AT, Numbers, are_whole, integers

FRAMES: Final = 65_536
CHUNK_BYTES: Final = 32 << 20
"""So many frames, or a frame more than so many bytes, are checked together."""

_INTEGER: Final = Struct("<I")
LENGTH_AT: Final = BODY_AT


class Frames(Protocol):
    """Bytes in which there are frames, and the error for damage at an offset."""

    @property
    def data(self) -> mmap.mmap | bytes: ...

    def damaged(self, offset: int, what: str) -> Corruption: ...


class Checked(Frames, Protocol):
    """The frames of a part, after a header, and what their checksums are folded with."""

    part: Part
    salt: int


class Opened:
    """A part's file, through the plan's link. Raises Corruption if it is not what the plan says."""

    def __init__(self, plan: Plan, part: Part) -> None:
        self.part, self.salt = part, salt_of(plan.log_id)
        link = Path(plan.folder) / part.link
        with open(link, "rb") as file:
            try:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise Corruption(part.origin, 0, "the file is empty") from None
        if self.data[:STORE_HEADER_BYTES] != store_header(part.first, plan.log_id):
            raise Corruption(part.origin, 0, "the header is not the one of this segment")
        try:
            index = link.with_suffix(INDEX_SUFFIX).read_bytes()
        except FileNotFoundError:
            index = b""
        self.offsets = offsets_of(self, index)

    def damaged(self, offset: int, what: str) -> Corruption:
        """The error for damage at `offset`."""
        return Corruption(self.part.origin, offset, what)


def checked(file: Checked, offsets: Numbers | None = None, *, after: int = -1) -> Iterator[tuple[Numbers, Numbers]]:
    """(GSNs, where they begin) of a part's frames after a GSN, some thousands at a time, whose checksums are right.

    `offsets`: those of the file, if they are known. Raises Corruption.
    """
    offsets = offsets_of(file) if offsets is None else offsets
    first, count = file.part.first, len(offsets) - 1
    at = max(after + 1 - first, 0)
    while at < count:
        end = min(int(np.searchsorted(offsets, offsets[at] + CHUNK_BYTES)), at + FRAMES, count)
        gsns = np.arange(first + at, first + end, dtype=np.int64)
        if not are_whole(file.data, offsets[at : end + 1], gsns, file.salt):
            _find_damage(file, offsets[at : end + 1], first + at)
        yield gsns, offsets[at:end]
        at = end
    if count < file.part.end - first:
        raise _mismatch(file, int(offsets[count]), first + count)


def offsets_of(file: Checked, index: bytes = b"") -> Numbers:
    """Where a part's frames begin, and the last one ends; if it is damaged, of those that lie in the file.

    `index`: what the index file holds, as far as there is one.
    """
    data, limit, unpack, count = file.data, len(file.data), _INTEGER.unpack_from, file.part.end - file.part.first
    known = _indexed(data, index, count)
    at, found = int(known[-1]), array("q")
    for _ in range(count + 1 - len(known)):
        if at + FRAME_BYTES > limit:
            break
        at += FRAME_BYTES + unpack(data, at + LENGTH_AT)[0]
        if at > limit:
            break
        found.append(at)
    return np.concatenate([known, np.array(found, np.int64)])


def _indexed(data: mmap.mmap | bytes, index: bytes, count: int) -> Numbers:
    """The first offsets, as far as an index has them and the frames agree: at least where the first one begins."""
    begin, content = np.array([STORE_HEADER_BYTES], np.int64), index[INDEX_HEADER_BYTES:][: 4 * count]
    starts = np.frombuffer(content[: len(content) // 4 * 4], "<u4").astype(np.int64)
    if not len(starts) or starts[0] != begin[0] or starts.max() + FRAME_BYTES > len(data):
        return begin
    ends = starts + FRAME_BYTES + integers(data, starts + LENGTH_AT, "<u4")
    agrees = ends[-1] <= len(data) and bool((ends[:-1] == starts[1:]).all())
    return np.concatenate([begin, ends]) if agrees else begin


def _find_damage(file: Checked, offsets: Numbers, first: int) -> None:
    """Compare frames one by one."""
    bounds = pairwise(offsets.tolist())
    for gsn, (start, end) in enumerate(bounds, first):
        (check,) = _INTEGER.unpack_from(file.data, start + CHECK_AT)
        found = crc32c(file.data[start + BODY_AT : end]) ^ (gsn & LOW_HALF) ^ file.salt
        if found != check or file.data[start : start + CHECK_AT] != FRAME_MAGIC:
            raise _mismatch(file, start, gsn)


def _mismatch(file: Checked, offset: int, gsn: int) -> Corruption:
    return file.damaged(offset, f"record {gsn} does not match its checksum")
