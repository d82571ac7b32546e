"""A bounded index over the log: the number of bytes before a GSN, and the time when it was ordered.

An entry covers the records from its GSN up to the next entry's. When there are too many entries, every second one is
removed and later ones are twice as far apart, so the size of the index does not depend on the length of the log. All
replicas have the same index after the same commands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

ENTRIES: Final = 16_384
GRAIN_BYTES: Final = 64 << 10


class LogIndex:
    """`gsns`, `times`, `offsets`: of the entries, the first GSN, its time and the bytes of all records before it since
    the log began. `end`, `size`: the GSN and the bytes after the newest record."""

    def __init__(self) -> None:
        self.gsns: list[int] = []
        self.times: list[int] = []
        self.offsets: list[int] = []
        self.grain = GRAIN_BYTES
        self.end = 1
        self.size = 0

    def add(self, time: int, count: int, size: int) -> None:
        """`count` more records of `size` bytes together, ordered at `time`."""
        if not self.gsns or self.size - self.offsets[-1] >= self.grain:
            self.gsns.append(self.end)
            self.times.append(time)
            self.offsets.append(self.size)
            if len(self.gsns) > ENTRIES:
                self.grain *= 2
                for column in (self.gsns, self.times, self.offsets):
                    del column[1::2]
        self.end += count
        self.size += size

    def trim(self, oldest: int) -> None:
        """Remove the entries of records before `oldest`."""
        before = bisect_right(self.gsns, oldest) - 1
        if before > 0:
            for column in (self.gsns, self.times, self.offsets):
                del column[:before]

    def reach(self, gsn: int, size: int) -> int:
        """The end of about `size` bytes of records from `gsn` on: at least one record, at most up to the log's end."""
        at = bisect_right(self.gsns, gsn) - 1
        if at < 0:
            return min(gsn + 1, self.end)
        first, end, offset, bytes_ = self._chunk(at)
        target = offset + bytes_ * (gsn - first) // max(1, end - first) + size
        at = bisect_right(self.offsets, target) - 1
        first, end, offset, bytes_ = self._chunk(at)
        found = min(end, first + (end - first) * (target - offset) // max(1, bytes_))
        return min(max(gsn + 1, found), self.end)

    def _chunk(self, at: int) -> tuple[int, int, int, int]:
        """(first GSN, end, bytes before it, bytes in it) of the records that an entry covers."""
        is_last = at + 1 == len(self.gsns)
        end = self.end if is_last else self.gsns[at + 1]
        size = self.size if is_last else self.offsets[at + 1]
        return self.gsns[at], end, self.offsets[at], size - self.offsets[at]

    def around(self, time: int) -> tuple[int, int]:
        """(first, end): records before `first` were ordered at `time` or before; from `end` on later."""
        at = bisect_right(self.times, time)
        first = self.gsns[at - 1] + 1 if at else 0
        return first, self.gsns[at] if at < len(self.gsns) else self.end

    def to_json(self) -> list[Any]:
        """The index as JSON values."""
        return [self.gsns, self.times, self.offsets, self.grain, self.end, self.size]

    @classmethod
    def from_json(cls, state: Sequence[Any]) -> LogIndex:
        """The index of `to_json`."""
        index = cls()
        index.gsns, index.times, index.offsets, index.grain, index.end, index.size = state
        return index
