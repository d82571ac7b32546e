"""The bytes of store and index files, as specified by `FORMAT.md`. No other module depends on their layout.

The checksum of a frame covers all of its bytes, and is combined with its sequence number and the log's id. Therefore a
frame is not valid at another position, in a reused file, or inside a value that is a copy of another log's file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct
from typing import Final

from google_crc32c import extend, value

from logdb.log.contract import LogRecord

FORMAT_VERSION: Final = 1

# Store file header: magic, format version, reserved, base sequence number, log id, crc32c of all that.
STORE_HEADER: Final = Struct("<8sHHIQ16s")
STORE_HEADER_BYTES: Final = 64
STORE_MAGIC: Final = b"LogDBseg"

# Index file: header as above with entry count, store length and the checksum of the entries, then u32 offsets.
INDEX_HEADER: Final = Struct("<8sHHIQ16sQQI")
INDEX_HEADER_BYTES: Final = 64
INDEX_MAGIC: Final = b"LogDBidx"

CRC: Final = Struct("<I")

# Frame: magic, crc32c xor low half of the sequence number xor salt, payload length, sequence numbers not yet durable
# before this one when it was written, time in ns since the epoch, tag.
FRAME: Final = Struct("<4sIIIQB")
FRAME_BODY: Final = Struct("<IIQB")
FRAME_MAGIC: Final = b"\xdbREC"
FRAME_BYTES: Final = FRAME.size
BODY_AT: Final = 8
LOW_HALF: Final = 0xFFFFFFFF
MAX_PAYLOAD_BYTES: Final = 1 << 30

PART_BYTES: Final = 256 << 10
"""The checksum of a longer payload is verified in parts of this size."""

BLOCK_BYTES: Final = 4 << 10
"""A search for frames keeps one checksum for each block of this size."""

MAX_OFFSET: Final = (1 << 32) - 1


Readable = bytes | mmap.mmap
"""The contents of a store file."""


def salt_of(log_id: bytes) -> int:
    """The number with which the checksums of this log's frames are combined."""
    return int(value(log_id))


def frame_head(lsn: int, salt: int, unsynced: int, time: int, tag: int, payload: bytes) -> bytes:
    """The first `FRAME_BYTES` bytes of a frame, before its payload."""
    length = len(payload)
    checksum = extend(value(FRAME_BODY.pack(length, unsynced, time, tag)), payload)
    return FRAME.pack(FRAME_MAGIC, checksum ^ (lsn & LOW_HALF) ^ salt, length, unsynced, time, tag)


def incoming_head(lsn: int, salt: int, unsynced: int, time: int, tag: int, length: int, payload_checksum: int) -> bytes:
    """Like `frame_head`, from the length and the CRC32C of the payload."""
    before = value(FRAME_BODY.pack(length, unsynced, time, tag))
    checksum = joined_checksum(before, payload_checksum, length)
    return FRAME.pack(FRAME_MAGIC, checksum ^ (lsn & LOW_HALF) ^ salt, length, unsynced, time, tag)


_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31


def joined_checksum(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two concatenated strings, from the CRC32C of each: the first is multiplied by x^(8 * second_bytes)
    in GF(2), modulo CRC32C's polynomial, bits reversed (as in `crc32_combine` of zlib)."""
    power, square, left = _ONE, _ONE >> 1, 8 * second_bytes
    while left:
        if left & 1:
            power = _multiplied(power, square)
        square = _multiplied(square, square)
        left >>= 1
    return _multiplied(power, first) ^ second


def _multiplied(a: int, b: int) -> int:
    product, bit = 0, _ONE
    while bit:
        if a & bit:
            product ^= b
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return product


@cache
def _shifts(power: int) -> tuple[list[int], ...]:
    """Of each byte of a CRC32C, the lowest first: its multiple by x^(8 * 2^power), for each of its 256 values."""
    factor = _ONE >> 1
    for _ in range(power + 3):
        factor = _multiplied(factor, factor)
    tables = []
    for shift in range(0, 32, 8):
        table = [0] * 256
        for byte in range(1, 256):
            low = byte & -byte
            table[byte] = table[byte ^ low] ^ (table[low] or _multiplied(factor, byte << shift))
        tables.append(table)
    return tuple(tables)


class _Checksums:
    """The CRC32C of any parts of `data` behind `start`, each in a time that does not depend on its length."""

    def __init__(self, data: Readable, start: int) -> None:
        self._data, self._start = data, start
        self._blocks = [0]

    def of(self, first: int, end: int) -> int:
        """The CRC32C of the bytes from `first` to `end` - 1."""
        if end - first <= 4 * BLOCK_BYTES:
            return int(value(self._data[first:end]))
        crc, left, power = self._before(first), end - first, 0
        while left:
            if left & 1:
                a, b, c, d = _shifts(power)
                crc = a[crc & 255] ^ b[crc >> 8 & 255] ^ c[crc >> 16 & 255] ^ d[crc >> 24]
            left >>= 1
            power += 1
        return crc ^ self._before(end)

    def _before(self, end: int) -> int:
        """The CRC32C of the bytes from `start` to `end` - 1."""
        blocks, (whole, rest) = self._blocks, divmod(end - self._start, BLOCK_BYTES)
        while len(blocks) <= whole:
            at = self._start + len(blocks) * BLOCK_BYTES
            blocks.append(extend(blocks[-1], self._data[at - BLOCK_BYTES : at]))
        return int(extend(blocks[whole], self._data[end - rest : end]))


def read_frame(data: Readable, offset: int, limit: int, lsn: int, salt: int) -> LogRecord | None:
    """The record `lsn` at `offset`, which must end at or before `limit`; None if there is no valid frame of it."""
    found = check_frame(data, offset, limit, lsn, salt)
    if found is None:
        return None
    time, tag, end = found
    return LogRecord(lsn, time, tag, data[offset + FRAME_BYTES : end])


def check_frame(data: Readable, offset: int, limit: int, lsn: int, salt: int) -> tuple[int, int, int] | None:
    """(time, tag, end) of the frame of record `lsn` at `offset`, as of `read_frame`, without a copy of its payload."""
    if offset + FRAME_BYTES > limit or limit > len(data):
        return None
    magic, checksum, length, _, time, tag = FRAME.unpack_from(data, offset)
    end = offset + FRAME_BYTES + length
    if magic != FRAME_MAGIC or end > limit:
        return None
    if length <= PART_BYTES:
        crc = value(data[offset + BODY_AT : end])
    else:
        crc = value(data[offset + BODY_AT : offset + FRAME_BYTES])
        for at in range(offset + FRAME_BYTES, end, PART_BYTES):
            crc = extend(crc, data[at : min(at + PART_BYTES, end)])
    return (time, tag, end) if crc ^ (lsn & LOW_HALF) ^ salt == checksum else None


def read_frames(data: bytes, limits: Sequence[int], lsn: int, salt: int) -> list[tuple[int, bytes] | None]:
    """(tag, payload) of each of the adjacent frames in `data`, which ends at `limits`; None for one that is not valid.

    `lsn`: the sequence number of the first.
    """
    found: list[tuple[int, bytes] | None] = []
    unpack, payload_at, at = FRAME.unpack_from, FRAME_BYTES - BODY_AT, 0
    for limit in limits:
        is_valid = False
        if limit - at >= FRAME_BYTES:
            magic, checksum, length, _, _, tag = unpack(data, at)
            if magic == FRAME_MAGIC and length == limit - at - FRAME_BYTES:
                body = data[at + BODY_AT : limit]
                is_valid = value(body) ^ (lsn & LOW_HALF) ^ salt == checksum
        found.append((tag, body[payload_at:]) if is_valid else None)
        at = limit
        lsn += 1
    return found


def walk_frames(data: Readable, offset: int, limit: int, lsn: int, salt: int) -> Iterator[tuple[int, LogRecord]]:
    """(offset, record) of every frame from `offset` on, up to the first invalid one."""
    while (record := read_frame(data, offset, limit, lsn, salt)) is not None:
        yield offset, record
        offset += FRAME_BYTES + len(record.payload)
        lsn += 1


def claims_durable(data: Readable, offset: int, limit: int, lsn: int, salt: int) -> int | None:
    """The offset of a frame after `offset` that was written when `lsn` was already durable, None if there is none.

    Such a frame shows that an invalid record `lsn` is damaged, not a torn tail.
    """
    for at, ahead, unsynced in _frames_anywhere(data, offset + 1, limit, lsn, salt):
        if 0 < ahead <= (at - offset) // FRAME_BYTES + 1 and ahead > unsynced:
            return at
    return None


def contains_frame(data: Readable, limit: int, base: int, salt: int) -> bool:
    """Whether a store file whose first record is `base` contains a complete frame of this log."""
    return any(
        ahead <= (at - STORE_HEADER_BYTES) // FRAME_BYTES
        for at, ahead, _ in _frames_anywhere(data, STORE_HEADER_BYTES, limit, base, salt)
    )


def _frames_anywhere(data: Readable, start: int, limit: int, lsn: int, salt: int) -> Iterator[tuple[int, int, int]]:
    """(offset, distance of its sequence number from `lsn`, its `unsynced`) of everything that may be a frame.

    The sequence number is computed from the checksum; the frame is valid if that number is possible at its offset. The
    bytes may be a value that is full of magics, and the frames that they claim long.
    """
    at, checksums = start - 1, _Checksums(data, start)
    while (at := data.find(FRAME_MAGIC, at + 1, limit)) != -1:
        head = data[at : at + FRAME_BYTES]
        if len(head) < FRAME_BYTES:
            return
        _, checksum, length, unsynced, _, _ = FRAME.unpack(head)
        end = at + FRAME_BYTES + length
        if end <= limit:
            yield at, (checksums.of(at + BODY_AT, end) ^ checksum ^ salt) - lsn & LOW_HALF, unsynced


def store_header(base: int, log_id: bytes) -> bytes:
    """The first `STORE_HEADER_BYTES` bytes of a store file whose first record is `base`."""
    head = STORE_HEADER.pack(STORE_MAGIC, FORMAT_VERSION, 0, 0, base, log_id)
    return _sealed(head, STORE_HEADER_BYTES)


def index_header(base: int, log_id: bytes, count: int, store_bytes: int, entries: bytes) -> bytes:
    """The first `INDEX_HEADER_BYTES` bytes of an index file of `count` entries over `store_bytes` bytes of store."""
    head = INDEX_HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, 0, 0, base, log_id, count, store_bytes, value(entries))
    return _sealed(head, INDEX_HEADER_BYTES)


def is_sealed(header: bytes, length: int) -> bool:
    """Whether `header` has `length` bytes and a valid checksum."""
    return len(header) == length and CRC.unpack(header[-4:])[0] == value(header[:-4])


def _sealed(head: bytes, length: int) -> bytes:
    padded = head.ljust(length - CRC.size, b"\0")
    return padded + CRC.pack(value(padded))
