"""Finds the last row of each key, in the order of the keys, with one sort.

Keys are compared eight bytes at a time, as integers, which NumPy sorts several times faster than Arrow sorts or groups
bytes. The common prefix of all keys is left out. If too many bytes remain, because one key is very long, Arrow does the
grouping.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_export.checksums import Numbers

MAX_WORDS: Final = 4
_WORD_BYTES: Final = 8
_LEFT: Final = np.array([0, *(~0 << 8 * (_WORD_BYTES - count) & (1 << 64) - 1 for count in range(1, 9))], np.uint64)
"""[n]: a mask for the first n bytes of a word."""

Words = npt.NDArray[np.uint64]


def last_of_each(keys: pa.Array) -> Numbers:
    """The position of the last row of each key, in the order of the keys (BINARY)."""
    words = _words(keys) if len(keys) else []
    if words is None:
        places = pa.table({"key": keys, "at": np.arange(len(keys))})
        last = places.group_by("key", use_threads=False).aggregate([("at", "max")]).combine_chunks()
        order = pc.sort_indices(last.column("key").combine_chunks())
        found: Numbers = last.column("at_max").take(order).to_numpy()
        return found
    if not words:  # all are the same
        return np.arange(len(keys))[-1:]
    order = np.lexsort(words)
    is_last = np.zeros(len(order), np.bool_)
    is_last[-1] = True
    for word in words:
        ordered = word[order]
        is_last[:-1] |= ordered[1:] != ordered[:-1]
    return order[is_last]


def _words(keys: pa.Array) -> list[Words] | None:
    """The words by which the keys differ, the least significant first; None if there are more than `MAX_WORDS`."""
    ends = pc.min_max(keys).as_py()
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ends["min"], ends["max"], strict=False)))
    _, offsets, content = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(bounds)
    longest = int(lengths.max())
    if longest - common > MAX_WORDS * _WORD_BYTES:
        return None
    octets = np.zeros(bounds[-1] - bounds[0] + _WORD_BYTES, np.uint8)
    octets[:-_WORD_BYTES] = np.frombuffer(content or b"", np.uint8)[bounds[0] : bounds[-1]]
    anywhere = np.ndarray((len(octets) - _WORD_BYTES + 1,), ">u8", octets, strides=(1,))
    words: list[Words] = []
    for skipped in range(common, longest, _WORD_BYTES):
        left = np.clip(lengths - skipped, 0, _WORD_BYTES)
        at = np.minimum(bounds[:-1] - bounds[0] + skipped, len(anywhere) - 1)
        words.insert(0, anywhere[at].astype(np.uint64) & _LEFT[left])
    if lengths.min() < longest:  # a shorter key is padded with zeros
        words.insert(0, lengths.astype(np.uint64))
    return words
