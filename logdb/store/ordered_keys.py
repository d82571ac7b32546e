"""Keys in order, in blocks of sorted lists: a range of keys is a few slices."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

BLOCK_KEYS: Final = 1_000
"""A block of twice as many keys is split. Small blocks make an insertion cheap, few blocks make finding one cheap."""
FEW_KEYS: Final = 32
"""Maximum number of keys inserted into a block one by one; more are appended and sorted."""


class OrderedKeys:
    """Block i has the keys from `_firsts[i]` to before `_firsts[i + 1]`. For one thread at a time."""

    def __init__(self) -> None:
        self._firsts: list[bytes] = [b""]
        self._blocks: list[list[bytes]] = [[]]

    def add(self, keys: list[bytes]) -> None:
        """Insert keys that are not yet present."""
        firsts, blocks = self._firsts, self._blocks
        keys = sorted(keys)
        done = 0
        while done < len(keys):
            at = bisect_right(firsts, keys[done]) - 1
            end = len(keys) if at + 1 == len(firsts) else bisect_left(keys, firsts[at + 1], done)
            block = blocks[at]
            if end - done <= FEW_KEYS:
                for key in keys[done:end]:
                    insort(block, key)
            else:
                block += keys[done:end]
                block.sort()
            done = end
            if len(block) > 2 * BLOCK_KEYS:
                parts = [block[first : first + BLOCK_KEYS] for first in range(0, len(block), BLOCK_KEYS)]
                blocks[at : at + 1] = parts
                firsts[at + 1 : at + 1] = [part[0] for part in parts[1:]]

    def remove(self, key: bytes) -> None:
        """Remove a key that is present."""
        block = self._blocks[bisect_right(self._firsts, key) - 1]
        del block[bisect_left(block, key)]

    def between(self, start: bytes | None, end: bytes | None, reverse: bool, limit: int) -> list[bytes]:
        """Up to `limit` keys of [start, end), from the first, or from the last when `reverse`."""
        firsts, blocks = self._firsts, self._blocks
        low = bisect_right(firsts, start) - 1 if start else 0
        high = len(firsts) if end is None else bisect_left(firsts, end)
        found: list[bytes] = []
        for at in range(high - 1, low - 1, -1) if reverse else range(low, high):
            block = blocks[at]
            first = bisect_left(block, start) if at == low and start else 0
            last = bisect_left(block, end, first) if at == high - 1 and end is not None else len(block)
            left = limit - len(found)
            if last - first > left:
                first, last = (last - left, last) if reverse else (first, first + left)
            part = block[first:last]
            if reverse:
                part.reverse()
            if len(part) == left:
                return found + part if found else part
            found += part
        return found
