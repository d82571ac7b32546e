"""The chain of a shard: the GSNs of its records, from the links that the cuts made for it.

A link names the one before it, so the chain has no gap. Ranges are kept in arrays, ordered by GSN, which is the order
of the links, and for each segment ordered by LSN; lookups in both directions are bisections.

    gsns      1     4     9   ...        the first GSN of each range; parallel arrays: count, segment, first LSN
    numbers   7     9     ...            the number of each link; parallel arrays: time, index of its first range
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from logdb.cores.effects import ProtocolViolation
from logdb.log.scalog.messages import Range, ShardCut


class RecordLocation(NamedTuple):
    """`count` records with the GSNs from `gsn` on are in `segment` from `lsn` on. `time`: of their cut (ns)."""

    gsn: int
    count: int  # type: ignore[assignment]  # hides an unused method of tuple
    segment: int
    lsn: int
    time: int


class PlacementIndex:
    """The links after number `trimmed` up to `head`. `last`: the newest GSN that these or earlier links have placed.

    `ends`: the ordered end of each segment (the LSN after its last ordered record); 1 for segments not in it.
    """

    def __init__(self) -> None:
        self.trimmed = self.head = self.last = 0
        self.ends: dict[int, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._numbers, self._times, self._starts = array("q"), array("q"), array("q")
        self._gsns, self._counts, self._segments, self._lsns = array("q"), array("q"), array("q"), array("q")
        self._by_lsn: dict[int, tuple[array[int], array[int]]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    # ---- growing

    def place(self, link: ShardCut) -> None:
        """Append a link, which must follow the head. Raises ProtocolViolation (SCA-3)."""
        if link.previous != self.head or link.number <= self.head:
            raise ProtocolViolation(f"SCA-3: link {link.number} follows {link.previous}, the head is {self.head}")
        self._numbers.append(link.number)
        self._times.append(link.time)
        self._starts.append(len(self._gsns))
        for segment, lsn, count, gsn in link.ranges:
            end = self.ends.get(segment, 1)
            if lsn != end or gsn <= self.last or count <= 0:
                raise ProtocolViolation(
                    f"SCA-3: link {link.number} places {count} records of segment {segment} from {lsn} on at {gsn},"
                    f" where {end} is next and GSN {self.last} is taken"
                )
            self.ends[segment] = lsn + count
            self.last = gsn + count - 1
            self._gsns.append(gsn)
            self._counts.append(count)
            self._segments.append(segment)
            self._lsns.append(lsn)
            by_lsn = self._by_lsn.get(segment)
            if by_lsn is None:
                by_lsn = self._by_lsn[segment] = (array("q"), array("q"))
            by_lsn[0].append(lsn)
            by_lsn[1].append(gsn)
        self.head = link.number

    def restart(self, trimmed: int, ends: Iterable[tuple[int, int]]) -> None:
        """Drop all links and continue after link `trimmed`: no record that it or an earlier link placed is readable."""
        self._clear()
        self.trimmed = self.head = trimmed
        self.ends = dict(ends)

    # ---- from GSN to segment and LSN

    def find(self, gsn: int) -> RecordLocation | None:
        """The location of record `gsn` and of the rest of its range; None: not of this shard, or trimmed."""
        at = bisect_right(self._gsns, gsn) - 1
        if at < 0 or gsn >= self._gsns[at] + self._counts[at]:
            return None
        return self._location(at, gsn)

    def locations(self, gsn: int) -> Iterator[RecordLocation]:
        """The locations of all records from `gsn` on, in the order of GSNs."""
        at = bisect_right(self._gsns, gsn) - 1
        if at < 0 or gsn >= self._gsns[at] + self._counts[at]:
            at += 1
        for index in range(at, len(self._gsns)):
            yield self._location(index, max(gsn, self._gsns[index]))

    def _location(self, at: int, gsn: int) -> RecordLocation:
        skipped = gsn - self._gsns[at]
        time = self._times[bisect_right(self._starts, at) - 1]
        return RecordLocation(gsn, self._counts[at] - skipped, self._segments[at], self._lsns[at] + skipped, time)

    def last_at_time(self, time: int) -> int:
        """The newest GSN that was placed at `time` or before; 0 if there is none, or if it was trimmed."""
        links = bisect_right(self._times, time)
        end = self._starts[links] if links < len(self._starts) else len(self._gsns)
        return self._gsns[end - 1] + self._counts[end - 1] - 1 if end else 0

    # ---- from segment and LSN to GSN

    def gsns_of(self, segment: int, first: int, end: int) -> list[tuple[int, int]]:
        """(first GSN, count) of the records `first` to `end` - 1 of a segment, all of which must be placed and not
        trimmed."""
        lsns, gsns = self._by_lsn[segment]
        at = bisect_right(lsns, first) - 1
        found = []
        while first < end:
            following = lsns[at + 1] if at + 1 < len(lsns) else self.ends[segment]
            stop = min(end, following)
            assert -1 < at < len(lsns), "SCA-8: the GSN of a record that has none was requested"
            assert lsns[at] <= first < stop, "SCA-8: the GSN of a record that has none was requested"
            found.append((gsns[at] + first - lsns[at], stop - first))
            first = stop
            at += 1
        return found

    def placed_from(self, segment: int) -> int:
        """The first LSN of a segment whose GSN is in the chain; its ordered end if there is none."""
        by_lsn = self._by_lsn.get(segment)
        return by_lsn[0][0] if by_lsn and by_lsn[0] else self.ends.get(segment, 1)

    # ---- links for others, and for the journal

    def links(self, after: int, limit: int) -> tuple[ShardCut, ...]:
        """At most `limit` links after number `after`, which is at or after `trimmed`."""
        begin = bisect_right(self._numbers, after)
        return tuple(self._link(index) for index in range(begin, min(begin + limit, len(self._numbers))))

    def _link(self, index: int) -> ShardCut:
        previous = self._numbers[index - 1] if index else self.trimmed
        stop = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._gsns)
        ranges = tuple(
            Range(self._segments[at], self._lsns[at], self._counts[at], self._gsns[at])
            for at in range(self._starts[index], stop)
        )
        return ShardCut(self._numbers[index], previous, self._times[index], ranges)

    def ends_at_trimmed(self) -> tuple[tuple[int, int], ...]:
        """The ordered ends of the segments at link `trimmed`."""
        return tuple((segment, self.placed_from(segment)) for segment in self.ends)

    # ---- trimming

    def links_before(self, oldest: int) -> int:
        """Number of links at the beginning that place only GSNs before `oldest`."""
        kept = bisect_left(self._gsns, oldest)
        if kept and self._gsns[kept - 1] + self._counts[kept - 1] > oldest:
            kept -= 1
        if kept == len(self._gsns):
            return len(self._numbers)
        return bisect_right(self._starts, kept) - 1

    def placed_after(self, oldest: int) -> dict[int, int]:
        """The first LSN of each segment that is still placed after `trim(oldest)`."""
        links = self.links_before(oldest)
        kept: dict[int, int] = {}
        for at in range(self._starts[links] if links < len(self._starts) else len(self._gsns), len(self._gsns)):
            kept.setdefault(self._segments[at], self._lsns[at])
        return kept

    def trim(self, oldest: int) -> None:
        """Drop the links that place only GSNs before `oldest`."""
        links = self.links_before(oldest)
        if links == 0:
            return
        ranges = self._starts[links] if links < len(self._starts) else len(self._gsns)
        self.trimmed = self._numbers[links - 1]
        for segment in set(self._segments[:ranges]):
            lsns, gsns = self._by_lsn[segment]
            dropped = self._segments[:ranges].count(segment)
            del lsns[:dropped], gsns[:dropped]
        for column in (self._gsns, self._counts, self._segments, self._lsns):
            del column[:ranges]
        del self._numbers[:links], self._times[:links], self._starts[:links]
        for index in range(len(self._starts)):
            self._starts[index] -= ranges

    def forget_all_but(self, segments: Collection[int]) -> None:
        """Drop the ends of segments that no later link places: those that are not in `segments` and whose ranges were
        trimmed."""
        for segment in [segment for segment in self.ends if segment not in segments]:
            if not self._by_lsn.get(segment, ((),))[0]:
                del self.ends[segment]
                self._by_lsn.pop(segment, None)

    # ---- invariants

    def check(self) -> None:
        """SCA-3, for the newest ranges. Raises AssertionError."""
        if len(self._gsns) > 1:
            assert self._gsns[-1] >= self._gsns[-2] + self._counts[-2], "SCA-3: GSNs of ranges overlap"
        if self._numbers:
            assert self._numbers[-1] == self.head > self.trimmed, "SCA-3: the head is not the newest link"
            assert self.last == self._gsns[-1] + self._counts[-1] - 1, "SCA-3: the newest GSN is not the last range's"
            segment = self._segments[-1]
            assert self.ends[segment] == self._lsns[-1] + self._counts[-1], "SCA-3: a segment's end is not its last"
