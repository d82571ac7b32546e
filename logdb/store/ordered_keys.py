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
        if reverse:
            at = (len(firsts) if end is None else bisect_left(firsts, end)) - 1
            if at < 0:
                return []
            last = len(blocks[at]) if end is None else bisect_left(blocks[at], end)
            found = blocks[at][max(last - limit, 0) : last]
            while len(found) < limit and at and (start is None or start < firsts[at]):
                at -= 1
                found = blocks[at][len(found) - limit :] + found
            if start is not None and found and found[0] < start:
                del found[: bisect_left(found, start)]
            found.reverse()
            return found
        at = bisect_right(firsts, start) - 1 if start else 0
        first = bisect_left(blocks[at], start) if start else 0
        found = blocks[at][first : first + limit]
        while len(found) < limit and at + 1 < len(firsts) and (end is None or firsts[at + 1] < end):
            at += 1
            found += blocks[at][: limit - len(found)]
        if end is not None and found and found[-1] >= end:
            del found[bisect_left(found, end) :]
        return found
