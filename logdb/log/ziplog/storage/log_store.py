"""The order of a shard on one server: the newest records in memory, all of them in journals, by growing GSNs.

Each view has a journal of its own, which begins behind the GSN up to which the server kept what it had; what an older
journal has behind that does not count. An index has the GSN and the position of one record every few KiB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from logdb.cores.effects import Create, Drop, Effect, Journal, JournalRange, Persist, Trim
from logdb.log.contract import LogRecord, Record
from logdb.log.requests import RECORD_OVERHEAD_BYTES
from logdb.log.ziplog.records import gsn_of

GRAIN_BYTES: Final = 8 << 10
READ_AT_ONCE: Final = 1_000


class Segment:
    """A journal. Its records have GSNs above `start`, and count up to `limit` (None: all). The index: `gsns`, `places`
    (numbers in the journal), `offsets` (sizes of all records in front). `end`: the next number; those before `durable`
    are on the medium. `size`: of all records."""

    def __init__(self, journal: str, start: int) -> None:
        self.journal, self.start = journal, start
        self.limit: int | None = None
        self.gsns = array("Q")
        self.places = array("Q")
        self.offsets = array("Q")
        self.end = self.durable = 1
        self.size = 0

    def add(self, records: Sequence[Record], oldest: int = 0) -> None:
        """Note records that were written behind the others. Those before `oldest` cannot be read any more."""
        for _, payload in records:
            is_due = not self.offsets or self.size - self.offsets[-1] >= GRAIN_BYTES
            if is_due and gsn_of(payload) >= oldest:
                self.gsns.append(gsn_of(payload))
                self.places.append(self.end)
                self.offsets.append(self.size)
            self.size += len(payload) + RECORD_OVERHEAD_BYTES
            self.end += 1

    def copy(self) -> Segment:
        """The same journal with the same records."""
        segment = Segment(self.journal, self.start)
        segment.limit, segment.end, segment.durable, segment.size = self.limit, self.end, self.durable, self.size
        segment.gsns, segment.places, segment.offsets = self.gsns[:], self.places[:], self.offsets[:]
        return segment

    def cut(self, limit: int) -> None:
        """Ignore records behind `limit`."""
        self.limit = limit if self.limit is None else min(limit, self.limit)


class Fetched(NamedTuple):
    """The records behind a GSN up to `end`, and perhaps others: from memory, or from the medium (`ranges`). `size`: of
    all of these records."""

    end: int
    records: list[LogRecord]
    ranges: tuple[JournalRange, ...]
    size: int


class LogStore:
    """`last`: the GSN of the last record. Records behind `cached_from` are in memory."""

    def __init__(self, out: list[Effect], cache_bytes: int) -> None:
        self._out, self._cache_bytes = out, cache_bytes
        self.segments: list[Segment] = []
        self._cache: deque[tuple[int, Record]] = deque()
        self._cached_bytes = 0
        self.cached_from = self.last = 0

    def load(self, journals: Mapping[str, Journal], saved: Sequence[tuple[str, int]], stable: int, oldest: int) -> None:
        """Load the segments of a restarted server, as (journal, start). Records behind `stable` come into memory."""
        self.cached_from = stable
        for journal, start in saved:
            self._follow(Segment(journal, start))
            segment, found = self.segments[-1], journals.get(journal)
            if found is None:
                self._out.append(Create(journal, 1))
                continue
            segment.end = found.first
            for at in range(0, len(found.records), READ_AT_ONCE):
                records = [(one.tag, one.payload) for one in found.records[at : at + READ_AT_ONCE]]
                segment.add(records, oldest)
                self._keep(segment, records)
            segment.durable = segment.end

    def _keep(self, segment: Segment, records: Sequence[Record]) -> None:
        for record in records:
            gsn = gsn_of(record[1])
            if gsn > self.last:
                self.last = gsn
                if gsn > self.cached_from:
                    self._cache.append((gsn, record))
                    self._cached_bytes += len(record[1]) + RECORD_OVERHEAD_BYTES

    def _follow(self, segment: Segment) -> None:
        """This segment comes behind the others, which count up to its start."""
        for before in self.segments:
            before.cut(segment.start)
        self.segments.append(segment)
        while self._cache and self._cache[-1][0] > segment.start:
            self._cached_bytes -= len(self._cache.pop()[1][1]) + RECORD_OVERHEAD_BYTES
        self.last = min(self.last, segment.start)

    # ---- writing

    def copy(self) -> LogStore:
        """The same records in the same journals."""
        store = LogStore(self._out, self._cache_bytes)
        store.segments = [segment.copy() for segment in self.segments]
        store._cache, store._cached_bytes = self._cache.copy(), self._cached_bytes
        store.cached_from, store.last = self.cached_from, self.last
        return store

    def begin(self, journal: str, start: int) -> None:
        """Begin a journal for a new view, and ignore older records behind `start`."""
        self._follow(Segment(journal, start))
        self.cached_from = min(self.cached_from, start)
        self._out.append(Create(journal, 1))

    def append(self, records: Sequence[Record]) -> None:
        """Write records, as stored."""
        segment = self.segments[-1]
        self._out.append(Persist(segment.journal, segment.end, records))
        segment.add(records)
        self._keep(segment, records)

    def persisted(self, journal: str, end: int) -> None:
        """The records of a journal before `end` are on the medium."""
        for segment in self.segments:
            if segment.journal == journal:
                segment.durable = max(segment.durable, end)

    def shrink(self, stable: int) -> None:
        """Remove the oldest records from memory, but no record behind `stable`."""
        cache = self._cache
        while self._cached_bytes > self._cache_bytes and cache and cache[0][0] <= stable:
            gsn, record = cache.popleft()
            self.cached_from = gsn
            self._cached_bytes -= len(record[1]) + RECORD_OVERHEAD_BYTES

    def trim(self, oldest: int) -> None:
        """Records before `oldest` may go."""
        for segment in list(self.segments[:-1]):
            if segment.limit is not None and segment.limit < oldest:
                self.segments.remove(segment)
                self._out.append(Drop(segment.journal))
        for segment in self.segments:
            block = bisect_right(segment.gsns, oldest) - 1
            if block > 0 and segment.places[block] <= segment.durable:
                self._out.append(Trim(segment.journal, segment.places[block]))
                del segment.gsns[:block], segment.places[:block], segment.offsets[:block]

    # ---- reading

    def behind(self, gsn: int) -> list[Record]:
        """All records behind `gsn`, which must be in memory. A log without records has none behind any GSN, though it
        may have passed many."""
        assert gsn >= min(self.cached_from, self.last), "ZIP-2: records that a view may need are not in memory"
        return [record for one, record in self._cache if one > gsn]

    def fetch(self, after: int, upto: int, max_bytes: int, tags: Collection[int] | None = None) -> Fetched:
        """The records behind `after`, up to `upto` or about `max_bytes` of them. `upto`: at most what is durable, or
        the records must be in memory."""
        if after >= self.cached_from:
            return self._cached(after, upto, max_bytes, tags)
        upto = min(upto, self.cached_from)
        for segment in self.segments:
            limit = upto if segment.limit is None else min(upto, segment.limit)
            if after >= limit or not segment.gsns:
                continue
            first = max(0, bisect_right(segment.gsns, after + 1) - 1)
            most = segment.offsets[first] + max_bytes
            end = max(first + 1, bisect_right(segment.offsets, most) - (segment.size > most))
            is_rest = end >= len(segment.gsns)
            place = segment.durable if is_rest else min(segment.places[end], segment.durable)
            if place <= segment.places[first]:
                continue
            found = JournalRange(segment.journal, segment.places[first], place, segment.places[first], 0)
            size = (segment.size if is_rest else segment.offsets[end]) - segment.offsets[first]
            return Fetched(limit if is_rest else min(limit, segment.gsns[end] - 1), [], (found,), size)
        return Fetched(upto, [], (), 0)

    def _cached(self, after: int, upto: int, max_bytes: int, tags: Collection[int] | None) -> Fetched:
        found: list[LogRecord] = []
        size = 0
        cache = self._cache
        at = bisect_right(cache, after, key=lambda one: one[0])
        for index in range(at, len(cache)):
            gsn, (tag, payload) = cache[index]
            if gsn > upto:
                break
            if size >= max_bytes:
                return Fetched(gsn - 1, found, (), size)
            size += len(payload) + RECORD_OVERHEAD_BYTES
            if tags is None or tag in tags:
                found.append(LogRecord(gsn, 0, tag, payload))
        return Fetched(upto, found, (), size)

    def check(self) -> None:
        """Raises AssertionError."""
        assert all(
            a.limit is not None and a.limit <= b.start for a, b in zip(self.segments, self.segments[1:], strict=False)
        ), "ZIP-3"
        assert not self._cache or self._cache[0][0] > self.cached_from, "ZIP-3"
