"""The range deletes that a map retains: for each key, the newest version that has deleted a range with it.

A range delete at version v stands for the deletion of every key of its range at v. It stays one entry: the map's layers
hold the versions that were written, and a reader compares them with the newest range delete of the key.

Invariant RNG-1: a version of a key that was written before a range delete of it is visible only to reads before that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from logdb.store.records import DeletedRange, Range

EARLIER_INDEXES: Final = 8
"""Number of indexes of earlier versions that are kept for readers of these versions."""
VERSION: Final = attrgetter("version")
START: Final = attrgetter("start")


class Stretch(NamedTuple):
    """The keys of [start, end), which have the same newest range delete, that of `version` (0: none)."""

    version: int
    start: bytes | None
    end: bytes | None


class RangeIndex:
    """The newest of some range deletes for each key. Immutable: from each of `bounds` on, the version at the same place
    counts. `last`: the newest of all."""

    __slots__ = ("_bounds", "_versions", "last")

    def __init__(self, bounds: Sequence[bytes] = (b"",), versions: Sequence[int] = (0,), last: int = 0) -> None:
        self._bounds, self._versions, self.last = bounds, versions, last

    def newest(self, key: bytes) -> int:
        """The version of the newest range delete of the key, 0 if there is none."""
        return self._versions[bisect_right(self._bounds, key) - 1]

    def first(self, start: bytes | None, end: bytes | None, reverse: bool) -> Stretch:
        """The first stretch of [start, end), the last one when `reverse`."""
        bounds, versions = self._bounds, self._versions
        if reverse:
            at = len(bounds) - 1 if end is None else max(bisect_left(bounds, end) - 1, 0)
            low = bounds[at]
            return Stretch(versions[at], start if start is not None and start >= low else low or start, end)
        at = bisect_right(bounds, start or b"") - 1
        high = bounds[at + 1] if at + 1 < len(bounds) else None
        return Stretch(versions[at], start, end if high is None or (end is not None and end <= high) else high)

    def with_range(self, start: bytes, end: bytes | None, version: int) -> RangeIndex:
        """This index and a range delete that is not older than the others."""
        bounds, versions = self._bounds, self._versions
        low = bisect_left(bounds, start)
        high = len(bounds) if end is None else bisect_left(bounds, end)
        inner_bounds, inner_versions = [start], [version]
        if end is not None and (high == len(bounds) or bounds[high] != end):
            inner_bounds.append(end)
            inner_versions.append(versions[high - 1])
        all_bounds = [*bounds[:low], *inner_bounds, *bounds[high:]]
        return RangeIndex(all_bounds, [*versions[:low], *inner_versions, *versions[high:]], version)


NOTHING: Final = RangeIndex()


def index_of(ranges: Iterable[DeletedRange]) -> RangeIndex:
    """The index of some range deletes in any order."""
    by_start = sorted(ranges, key=START)
    points = {deleted.start for deleted in by_start}
    points.update([deleted.end for deleted in by_start if deleted.end is not None])
    bounds, versions, open_ranges, begun = [b""], [0], list[tuple[int, int]](), 0
    for point in sorted(points):
        while begun < len(by_start) and by_start[begun].start <= point:
            heappush(open_ranges, (-by_start[begun].version, begun))
            begun += 1
        while open_ranges and (end := by_start[open_ranges[0][1]].end) is not None and end <= point:
            heappop(open_ranges)
        version = -open_ranges[0][0] if open_ranges else 0
        if bounds[-1] == point:
            versions[-1] = version
        elif versions[-1] != version:
            bounds.append(point)
            versions.append(version)
    return RangeIndex(bounds, versions, max([deleted.version for deleted in by_start], default=0))


def _in_order(ranges: Iterable[DeletedRange]) -> list[DeletedRange]:
    """The different ones, by version, start and end."""
    return sorted(
        set(ranges), key=lambda deleted: (deleted.version, deleted.start, deleted.end is None, deleted.end or b"")
    )


class RangeDeletions:
    """Range deletes in the order of their versions. One thread at a time adds and drops; any thread may read."""

    def __init__(self, ranges: Iterable[DeletedRange] = ()) -> None:
        self._ranges = _in_order(ranges)
        self._index = index_of(self._ranges)
        self._earlier: dict[int, RangeIndex] = {}

    def __iter__(self) -> Iterator[DeletedRange]:
        """In the order of versions."""
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    # ---- reading

    def at(self, version: int) -> RangeIndex:
        """The index of the range deletes up to a version."""
        index = self._index
        if index.last <= version:
            return index
        ranges, earlier = self._ranges, self._earlier
        count = bisect_right(ranges, version, key=VERSION)
        if not count:
            return NOTHING
        found = earlier.get(count)
        if found is None:
            found = index_of(ranges[:count])
            self._keep(earlier, count, found)
        return found

    def newest(self, key: bytes, at: int) -> int:
        """The version of the newest range delete of the key up to version `at`, 0 if there is none."""
        return (self._index if self._index.last <= at else self.at(at)).newest(key)

    def changed(self, start: bytes, end: bytes | None, since: int, at: int) -> DeletedRange | None:
        """The range delete after version `since`, and not after `at`, of the first key of [start, end) that has one; of
        several the newest."""
        ranges, found = self._ranges, None
        for place in range(bisect_right(ranges, at, key=VERSION) - 1, -1, -1):
            deleted = ranges[place]
            if deleted.version <= since:
                break
            if deleted.overlaps(start, end):
                first = max(start, deleted.start)
                if found is None or first < found.start:
                    found = DeletedRange(deleted.version, first, deleted.end)
        return found

    def between(self, after: int, through: int) -> list[DeletedRange]:
        """The range deletes with `after` < version <= `through`, in the order of versions."""
        ranges = self._ranges
        return ranges[bisect_right(ranges, after, key=VERSION) : bisect_right(ranges, through, key=VERSION)]

    # ---- adding and dropping

    def add(self, version: int, ranges: Sequence[Range]) -> None:
        """Add the range deletes of the commit at `version`, which is after every version added before."""
        index = self._index
        self._keep(self._earlier, len(self._ranges), index)
        for start, end in ranges:
            index = index.with_range(start, end, version)
        # A reader of an earlier version may see the new ranges with the old index, or the other way round: both are
        # right for it.
        self._ranges += _in_order([DeletedRange(version, start, end) for start, end in ranges])
        self._index = index

    def _keep(self, earlier: dict[int, RangeIndex], count: int, index: RangeIndex) -> None:
        earlier[count] = index
        for oldest in list(earlier)[:-EARLIER_INDEXES]:
            earlier.pop(oldest, None)

    def with_older(self, ranges: Iterable[DeletedRange]) -> RangeDeletions:
        """These and other range deletes, which may be older, or the same."""
        return RangeDeletions([*self._ranges, *ranges])

    def without(self, dropped: Callable[[DeletedRange], bool]) -> RangeDeletions:
        """The range deletes that are not `dropped`."""
        return RangeDeletions([deleted for deleted in self._ranges if not dropped(deleted)])
