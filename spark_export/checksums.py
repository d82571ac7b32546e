"""Verifies the checksums of many frames together, with one pass over their bytes.

A comparison per frame costs a call of Python per frame. CRC-32C is linear: the checksum of a concatenation follows from
the checksums of its two pieces and the length of the second one,

    crc(AB) = shifted(crc(A), len(B)) ^ crc(B)

where `shifted` appends zero bytes. So the checksums in the frames' heads determine the checksum of all frames. NumPy
combines them by pairs, then by pairs of pairs, and so on. One call computes the same checksum from the bytes, and the
two are compared.

If one frame is damaged, the two differ whenever its own checksum does, because shifting loses no information. If
several are damaged, the two agree by chance in one case of 2^32, as for a single checksum. When they differ, frames are
compared one by one to find the damaged one.
"""

from __future__ import annotations

import functools
import mmap
from typing import Final

import numpy as np
import numpy.typing as npt
from google_crc32c import value as crc32c

from logdb.log.segments.format import BODY_AT, FRAME_MAGIC, LOW_HALF

Numbers = npt.NDArray[np.int64]
Checksums = npt.NDArray[np.uint32]

CHECK_AT: Final = len(FRAME_MAGIC)
_POLYNOMIAL: Final = np.uint32(0x82F63B78)
_DIGITS: Final = 4
"""The bytes of a length; a shift goes through them one by one."""


def integers(data: mmap.mmap | bytes, at: Numbers, kind: str) -> Numbers:
    """Read the integers of a kind ("<u4") at these offsets, aligned or not."""
    size = len(data) - np.dtype(kind).itemsize + 1
    found: Numbers = np.ndarray((max(size, 0),), kind, data, strides=(1,))[at].astype(np.int64)
    return found


def are_whole(data: mmap.mmap | bytes, offsets: Numbers, gsns: Numbers, salt: int) -> bool:
    """Return whether consecutive frames, from the first of `offsets` to the last, match their checksums."""
    checks = integers(data, offsets[:-1] + CHECK_AT, "<u4")
    crcs, sizes = np.empty(2 * len(checks), np.uint32), np.full(2 * len(checks), BODY_AT, np.int64)
    crcs[0::2] = shifted(checks.astype(np.uint32), np.full(len(checks), CRC_BYTES)) ^ _MAGIC_AND_ZEROS
    crcs[1::2] = checks ^ (gsns & LOW_HALF) ^ salt
    sizes[1::2] = np.diff(offsets) - BODY_AT
    return combined(crcs, sizes) == int(crc32c(data[int(offsets[0]) : int(offsets[-1])]))


CRC_BYTES: Final = BODY_AT - CHECK_AT
_MAGIC_AND_ZEROS: Final = np.uint32(crc32c(FRAME_MAGIC + bytes(CRC_BYTES)))


def combined(crcs: Checksums, sizes: Numbers) -> int:
    """The checksum of consecutive pieces, from their checksums and sizes."""
    while len(crcs) > 1:
        if len(crcs) % 2:  # an empty piece before the first
            crcs, sizes = np.concatenate([crcs[:1] & 0, crcs]), np.concatenate([sizes[:1] & 0, sizes])
        crcs = shifted(crcs[0::2], sizes[1::2]) ^ crcs[1::2]
        sizes = sizes[0::2] + sizes[1::2]
    return int(crcs[0])


def shifted(crcs: Checksums, counts: Numbers) -> Checksums:
    """Shift each checksum by a number of zero bytes, without their own checksum."""
    for digit in range(_DIGITS):
        left = counts >> (8 * digit)
        if not left.any():
            break
        table, at = _shifts(digit).ravel(), (left & 0xFF) * _shifts(digit)[0].size
        octets = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
        crcs = table.take(at + octets[:, 0])
        for octet in (1, 2, 3):
            crcs ^= table.take(at + (256 * octet) + octets[:, octet])
    return crcs


@functools.cache
def _shifts(digit: int) -> Checksums:
    """[n, i, b]: the checksum in which byte i is b, and the others 0, shifted by n * 256^digit bytes."""
    octets = np.arange(256, dtype=np.uint32)
    tables = np.stack([octets << np.uint32(8 * octet) for octet in range(4)])[None]
    step = _by_one(tables[0]) if digit == 0 else _through(_shifts(digit - 1)[1], _shifts(digit - 1)[255])
    while len(tables) < 256:
        tables = np.concatenate([tables, _through(step, tables)])
        step = _through(step, step)
    return tables


def _by_one(crcs: Checksums) -> Checksums:
    for _ in range(8):
        crcs = (crcs >> np.uint32(1)) ^ (crcs & np.uint32(1)) * _POLYNOMIAL
    return crcs


def _through(step: Checksums, crcs: Checksums) -> Checksums:
    """Shift checksums by `step`, a table for each of their four bytes."""
    shifts = (step[octet][crcs >> np.uint32(8 * octet) & np.uint32(0xFF)] for octet in range(4))
    return functools.reduce(np.bitwise_xor, shifts)
