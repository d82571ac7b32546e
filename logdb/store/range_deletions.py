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
from typing import Final, NamedTuple, Protocol

from logdb.store.records import DeletedRange, Range

EARLIER_INDEXES: Final = 8
"""Number of indexes of earlier versions that are kept for readers of these versions."""
MAX_CHUNK: Final = 512
"""Number of bounds of a chunk: a range delete copies one or two chunks, and the list of all chunks."""
PART: Final = 16
"""Number of parts that are joined to a larger one, see `RangeDeletions._parts_before`."""
VERSION: Final = attrgetter("version")
START: Final = attrgetter("start")


class Stretch(NamedTuple):
    """The keys of [start, end), which have the same newest range delete, that of `version` (0: none)."""

    version: int
    start: bytes | None
    end: bytes | None


class RangeIndex(Protocol):
    """The newest of some range deletes for each key. `last`: the newest of all."""

    @property
    def last(self) -> int: ...

    def newest(self, key: bytes) -> int:
        """The version of the newest range delete of the key, 0 if there is none."""

    def first(self, start: bytes | None, end: bytes | None, reverse: bool) -> Stretch:
        """The first stretch of [start, end), the last one when `reverse`."""


Chunk = tuple[Sequence[bytes], Sequence[int]]
"""Bounds in order, and versions: from each bound on, the version at the same place counts."""


class ChunkedIndex:
    """A `RangeIndex` that is immutable: another one with one more range shares all chunks but those that it changes.

    `firsts`: the first bound of each of `chunks`, in order; the first of all is b"". `last`: the newest version.
    """

    __slots__ = ("_chunks", "_firsts", "last")

    def __init__(self, firsts: Sequence[bytes], chunks: Sequence[Chunk], last: int) -> None:
        self._firsts, self._chunks, self.last = firsts, chunks, last

    def newest(self, key: bytes) -> int:
        """The version of the newest range delete of the key, 0 if there is none."""
        bounds, versions = self._chunks[bisect_right(self._firsts, key) - 1]
        return versions[bisect_right(bounds, key) - 1]

    def first(self, start: bytes | None, end: bytes | None, reverse: bool) -> Stretch:
        """The first stretch of [start, end), the last one when `reverse`."""
        firsts, chunks = self._firsts, self._chunks
        if reverse:
            bounds, versions = chunks[-1 if end is None else max(bisect_left(firsts, end) - 1, 0)]
            at = len(bounds) - 1 if end is None else max(bisect_left(bounds, end) - 1, 0)
            low = bounds[at]
            return Stretch(versions[at], start if start is not None and start >= low else low or start, end)
        number = bisect_right(firsts, start or b"") - 1
        bounds, versions = chunks[number]
        at = bisect_right(bounds, start or b"") - 1
        high = bounds[at + 1] if at + 1 < len(bounds) else firsts[number + 1] if number + 1 < len(firsts) else None
        return Stretch(versions[at], start, end if high is None or (end is not None and end <= high) else high)

    def with_range(self, start: bytes, end: bytes | None, version: int) -> ChunkedIndex:
        """This index and a range delete that is not older than the others. `end` is after `start`."""
        firsts, chunks = self._firsts, self._chunks
        low = bisect_right(firsts, start) - 1
        high = len(chunks) - 1 if end is None else bisect_left(firsts, end) - 1
        low_bounds, low_versions = chunks[low]
        kept = bisect_left(low_bounds, start)
        bounds, versions = [*low_bounds[:kept], start], [*low_versions[:kept], version]
        if end is not None:
            high_bounds, high_versions = chunks[high]
            rest = bisect_left(high_bounds, end)
            following = high_bounds[rest:] or firsts[high + 1 : high + 2]
            if not following or following[0] != end:
                bounds.append(end)
                versions.append(high_versions[rest - 1])
            bounds += high_bounds[rest:]
            versions += high_versions[rest:]
        changed = _chunks(bounds, versions)
        all_firsts = [*firsts[:low], *[bounds[0] for bounds, _ in changed], *firsts[high + 1 :]]
        return ChunkedIndex(all_firsts, [*chunks[:low], *changed, *chunks[high + 1 :]], version)


def _chunks(bounds: Sequence[bytes], versions: Sequence[int]) -> list[Chunk]:
    """Chunks of about the same size, none above `MAX_CHUNK`."""
    count = len(bounds)
    if count <= MAX_CHUNK:
        return [(bounds, versions)]
    size = -(-count // -(-2 * count // MAX_CHUNK))
    return [(bounds[at : at + size], versions[at : at + size]) for at in range(0, count, size)]


NOTHING: Final = ChunkedIndex((b"",), (((b"",), (0,)),), 0)


def index_of(ranges: Iterable[DeletedRange]) -> ChunkedIndex:
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
    chunks = _chunks(bounds, versions)
    last = max([deleted.version for deleted in by_start], default=0)
    return ChunkedIndex([bounds[0] for bounds, _ in chunks], chunks, last)


class EarlierIndex:
    """The `RangeIndex` of range deletes up to an earlier version.

    `last`: the newest of them. `newest_of_all`: the index of these and later ones, which answers for a key whose newest
    range delete of all is one of these. `parts`: indexes that have all of these together, each one's newer than those
    of the next.
    """

    __slots__ = ("_newest_of_all", "_parts", "last")

    def __init__(self, last: int, newest_of_all: ChunkedIndex, parts: Sequence[ChunkedIndex]) -> None:
        self.last, self._newest_of_all, self._parts = last, newest_of_all, parts

    def newest(self, key: bytes) -> int:
        """The version of the newest range delete of the key, 0 if there is none."""
        version = self._newest_of_all.newest(key)
        if version <= self.last:
            return version
        for part in self._parts:
            if version := part.newest(key):
                return version
        return 0

    def first(self, start: bytes | None, end: bytes | None, reverse: bool) -> Stretch:
        """The first stretch of [start, end), the last one when `reverse`."""
        stretch = self._newest_of_all.first(start, end, reverse)
        if stretch.version <= self.last:
            return stretch
        newest = 0
        for part in self._parts:
            version, start, end = part.first(start, end, reverse)
            newest = max(newest, version)
        return Stretch(newest, start, end)


def _in_order(ranges: Iterable[DeletedRange]) -> list[DeletedRange]:
    """The different ones, by version, start and end."""
    return sorted(
        set(ranges), key=lambda deleted: (deleted.version, deleted.start, deleted.end is None, deleted.end or b"")
    )


class RangeDeletions:
    """Range deletes in the order of their versions. One thread at a time adds and drops; any thread may read.

    Adding one, and reading a key at any version, take time in proportion to about the logarithm of their number.
    """

    def __init__(self, ranges: Iterable[DeletedRange] = ()) -> None:
        self._ranges = _in_order(ranges)
        self._index = index_of(self._ranges)
        self._earlier: dict[int, RangeIndex] = {}
        self._parts: dict[tuple[int, int], ChunkedIndex] = {}

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
            found = EarlierIndex(ranges[count - 1].version, index, self._parts_before(count))
            self._keep(earlier, count, found)
        return found

    def _parts_before(self, count: int) -> list[ChunkedIndex]:
        """Indexes of the first `count` range deletes, the newest ones first: those that make no whole part of `PART`,
        then the parts that make no whole larger part of `PART` parts, and so on."""
        whole, size = count // PART, PART
        found = [index_of(self._ranges[whole * PART : count])]
        while whole:
            larger = whole // PART
            found += [self._part(size, number) for number in range(whole - 1, larger * PART - 1, -1)]
            whole, size = larger, size * PART
        return found

    def _part(self, size: int, number: int) -> ChunkedIndex:
        """The index of a part of `size` range deletes, which never changes."""
        part = self._parts.get((size, number))
        if part is None:
            part = self._parts[size, number] = index_of(self._ranges[number * size : (number + 1) * size])
        return part

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
