"""The frames of a part of the log: their offsets, and the check of their contents.

The offset of a frame follows from the lengths of those before it. A full segment has an index of offsets, which needs
no trust: if each frame in it ends where the next one begins, a walk finds the same offsets.
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

from logdb.embedded.snapshot_plan import SegmentPart
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
"""The frames, or the bytes and one frame more, that are checked together."""

_INTEGER: Final = Struct("<I")
LENGTH_AT: Final = BODY_AT


class Frames(Protocol):
    """Bytes that contain frames, and the error for damage at an offset."""

    @property
    def data(self) -> mmap.mmap | bytes: ...

    def damaged(self, offset: int, what: str) -> Corruption: ...


class PartFrames(Frames, Protocol):
    """The frames of a part, after the room of a file's header, and the salt of their checksums."""

    part: SegmentPart
    salt: int


class MemoryFrames:
    """Frames of a part that were fetched."""

    def __init__(self, data: bytes, part: SegmentPart, salt: int = 0) -> None:
        self.data, self.part, self.salt = data, part, salt

    def damaged(self, offset: int, what: str) -> Corruption:
        """The error for damage. It names the database, since an offset in fetched frames has no meaning."""
        return Corruption(self.part.origin, None, what)


class SegmentFile:
    """The store file of a part, mapped through the plan's link. Raises Corruption if it is not the planned one."""

    def __init__(self, folder: str, log_id: bytes, part: SegmentPart) -> None:
        self.part, self.salt = part, salt_of(log_id)
        link = Path(folder) / part.link
        with open(link, "rb") as file:
            try:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise Corruption(part.origin, 0, "the file is empty") from None
        if self.data[:STORE_HEADER_BYTES] != store_header(part.first, log_id):
            raise Corruption(part.origin, 0, "the header is not the one of this segment")
        try:
            index = link.with_suffix(INDEX_SUFFIX).read_bytes()
        except FileNotFoundError:
            index = b""
        self.offsets = offsets_of(self, index)

    def damaged(self, offset: int, what: str) -> Corruption:
        """The error for damage at `offset`."""
        return Corruption(self.part.origin, offset, what)


def verified_frames(
    frames: PartFrames, offsets: Numbers | None = None, *, first: int = 0
) -> Iterator[tuple[Numbers, Numbers]]:
    """Compare the checksums of a part's frames from GSN `first` on; yields (GSNs, offsets) of some thousands at a time.

    `offsets`: those of all frames, if they are known. Raises Corruption.
    """
    offsets = offsets_of(frames) if offsets is None else offsets
    part_first, count = frames.part.first, len(offsets) - 1
    at = max(first - part_first, 0)
    while at < count:
        end = min(int(np.searchsorted(offsets, offsets[at] + CHUNK_BYTES)), at + FRAMES, count)
        gsns = np.arange(part_first + at, part_first + end, dtype=np.int64)
        if not are_whole(frames.data, offsets[at : end + 1], gsns, frames.salt):
            _find_damage(frames, offsets[at : end + 1], part_first + at)
        yield gsns, offsets[at:end]
        at = end
    if count < frames.part.end - part_first:
        raise _mismatch(frames, int(offsets[count]), part_first + count)


def offsets_of(frames: PartFrames, index: bytes = b"") -> Numbers:
    """The offsets of a part's frames, and the end of the last one; of a damaged part, those that lie within its bytes.

    `index`: the content of the index file, b"" if there is none.
    """
    data, part, unpack = frames.data, frames.part, _INTEGER.unpack_from
    limit, count = len(data), part.end - part.first
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
    """The offsets that an index has and the frames confirm; at least that of the first frame."""
    begin, content = np.array([STORE_HEADER_BYTES], np.int64), index[INDEX_HEADER_BYTES:][: 4 * count]
    starts = np.frombuffer(content[: len(content) // 4 * 4], "<u4").astype(np.int64)
    if not len(starts) or starts[0] != begin[0] or starts.max() + FRAME_BYTES > len(data):
        return begin
    ends = starts + FRAME_BYTES + integers(data, starts + LENGTH_AT, "<u4")
    agrees = ends[-1] <= len(data) and bool((ends[:-1] == starts[1:]).all())
    return np.concatenate([begin, ends]) if agrees else begin


def _find_damage(frames: PartFrames, offsets: Numbers, first: int) -> None:
    """Compare checksums one by one, and raise Corruption for the first frame that differs."""
    bounds = pairwise(offsets.tolist())
    for gsn, (start, end) in enumerate(bounds, first):
        (check,) = _INTEGER.unpack_from(frames.data, start + CHECK_AT)
        found = crc32c(frames.data[start + BODY_AT : end]) ^ (gsn & LOW_HALF) ^ frames.salt
        if found != check or frames.data[start : start + CHECK_AT] != FRAME_MAGIC:
            raise _mismatch(frames, start, gsn)


def _mismatch(frames: PartFrames, offset: int, gsn: int) -> Corruption:
    return frames.damaged(offset, f"record {gsn} does not match its checksum")
