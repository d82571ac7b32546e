"""What a client has of several ranges that it reads, as pages of them come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logdb.store.ranges import ScanRange
from logdb.wire.limits import WireError

Row = tuple[bytes, bytes]


class RangePages:
    """`rows`: of each range, as far as they have come."""

    def __init__(self, ranges: Sequence[ScanRange], reverse: bool) -> None:
        self.rows: list[list[Row]] = [[] for _ in ranges]
        self._left = [(index, wanted) for index, wanted in enumerate(ranges) if wanted.limit != 0]
        self._reverse = reverse

    def left(self, most: int) -> list[ScanRange]:
        """What to ask for next: `most` of the ranges that are not complete, without the rows that have come."""
        return [wanted for _, wanted in self._left[:most]]

    def take(self, pages: Iterable[tuple[Sequence[Row], bool]]) -> None:
        """(rows, whether there may be more) of the first of the ranges that are left. Raises WireError."""
        answered, unfinished = 0, []
        for rows, more in pages:
            if answered == len(self._left):
                raise WireError("a page has more ranges than were asked for")
            index, wanted = self._left[answered]
            answered += 1
            self.rows[index] += rows
            if not more:
                continue
            if not rows:
                raise WireError("a page of rows is empty, and not the last")
            start, end, limit = wanted
            last = rows[-1][0]
            if self._reverse:
                end = last
            else:
                start = last + b"\0"
            if limit is not None:
                limit -= len(rows)
            if limit is None or limit > 0:
                unfinished.append((index, ScanRange(start, end, limit)))
        if self._left and not answered:
            raise WireError("a page of ranges is empty, and not the last")
        self._left = unfinished + self._left[answered:]
