"""Long answers in pages, of any kind of server: each page is one request, and continues where the one before ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from logdb.store.key_map import Rows
from logdb.store.ranges import ScanRange
from logdb.wire.limits import WireError

BATCH_ROWS: Final = 256
"""Rows of a page that a scan yields together: a transaction overlays later ones with its writes until then."""

Row = tuple[bytes, bytes]
Entry = tuple[int, bytes | None]
"""A version of a key, and its value."""


class RangePage(NamedTuple):
    """Rows of a range at a version. `rest`: the bound of its rest, the start, or the end when `reverse`; None: there is
    none. A server may have found no rows up to there."""

    version: int
    rows: Sequence[Row]
    rest: bytes | None


RequestRange = Callable[[ScanRange, int | None], Awaitable[RangePage]]
"""Requests a page of a range at a version; None: the newest."""
RequestHistory = Callable[[int | None], Awaitable[tuple[Sequence[Entry], bool]]]
"""Requests a page of versions, from one on back (None: the newest); returns whether there may be more."""
PageRows = tuple[Sequence[Row], bytes | None]
"""The rows and the rest of a `RangePage`."""
RequestRanges = Callable[[list[ScanRange], int | None], Awaitable[tuple[int, Iterable[PageRows]]]]
"""Requests the first rows of several ranges at a version; returns the version, and a page of each of the first
ranges."""


async def scan_pages(
    request: RequestRange, requested: ScanRange, at: int | None, *, reverse: bool
) -> AsyncIterator[Rows]:
    """Batches of the rows of a range, all of the version of the first page. Raises WireError."""
    rest: ScanRange | None = requested
    while rest is not None and rest.limit != 0:
        at, rows, bound = await request(rest, at)
        for first in range(0, len(rows), BATCH_ROWS):
            yield list(rows[first : first + BATCH_ROWS])
        rest = None if bound is None else rest_of(rest, rows, bound, reverse)


async def history_pages(request: RequestHistory, at: int | None) -> AsyncIterator[Entry]:
    """The versions of a key, newest first. Raises WireError."""
    more = True
    while more:
        entries, more = await request(at)
        for entry in entries:
            yield entry
        if more and not entries:
            raise WireError("a page of versions is empty, and not the last")
        at = entries[-1][0] - 1 if entries else None


async def multi_scan_pages(
    request: RequestRanges, ranges: Sequence[ScanRange], at: int | None, *, reverse: bool, max_ranges: int
) -> list[list[Row]]:
    """The rows of each range, all of the version of the first page. `max_ranges`: of one request. Raises WireError."""
    pages = RangePages(ranges, reverse)
    while True:
        at, answered = await request(pages.left(max_ranges), at)
        pages.take(answered)
        if not pages.left(1):
            return pages.rows


class RangePages:
    """The rows of several ranges, as their pages come in: `rows`, a list for each range."""

    def __init__(self, ranges: Sequence[ScanRange], reverse: bool) -> None:
        self.rows: list[list[Row]] = [[] for _ in ranges]
        self._left = [(index, requested) for index, requested in enumerate(ranges) if requested.limit != 0]
        self._reverse = reverse

    def left(self, max_ranges: int) -> list[ScanRange]:
        """The first of the ranges that are not complete, without the rows that have come."""
        return [requested for _, requested in self._left[:max_ranges]]

    def take(self, pages: Iterable[PageRows]) -> None:
        """Add pages of the first of the ranges that are left. Raises WireError."""
        answered, unfinished = 0, []
        for rows, bound in pages:
            if answered == len(self._left):
                raise WireError("a page has more ranges than were requested")
            index, requested = self._left[answered]
            answered += 1
            self.rows[index] += rows
            if bound is not None and (rest := rest_of(requested, rows, bound, self._reverse)).limit != 0:
                unfinished.append((index, rest))
        if self._left and not answered:
            raise WireError("a page of ranges is empty, and not the last")
        self._left = unfinished + self._left[answered:]


def rest_of(requested: ScanRange, rows: Sequence[Row], bound: bytes, reverse: bool) -> ScanRange:
    """The rest of a range after a page with these rows and the rest at `bound`. Raises WireError if the page does not
    advance: a loop over such pages would not end."""
    start, end, limit = requested
    if (end is not None and bound >= end) if reverse else bound <= (start or b""):
        raise WireError("a page of a range is empty, and not the last")
    left = None if limit is None else max(limit - len(rows), 0)
    return ScanRange(start, bound, left) if reverse else ScanRange(bound, end, left)


def end_of(rows: Sequence[Row], reverse: bool) -> bytes:
    """The bound of the rest of a range after its last row so far. Raises WireError if there is none."""
    if not rows:
        raise WireError("a page of rows is empty, and not the last")
    last = rows[-1][0]
    return last if reverse else last + b"\0"
