"""The entries of a unit: a write-once address space over a dense journal.

The journal has the records of each entry, and behind them a record that describes the entry: its position, client and
sequence number. An entry without it is incomplete and does not count: a crash has interrupted its write. A position
alone says that the entry there is committed.

The index has 58 bytes of memory for each entry (not for each record) that is not trimmed, and is rebuilt from the
journal at a start. Positions arrive almost in order, so it is kept sorted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from logdb.cores.effects import Effect, Journal, JournalRange, Persist, Trim
from logdb.log.contract import LogRecord, Record
from logdb.log.corfu.messages import Entry
from logdb.log.corfu.projection import gsn_at
from logdb.log.corfu.storage.deleted_records import DeletedRecords
from logdb.log.corfu.storage.descriptions import describe, described
from logdb.log.corfu.storage.stream_index import StreamIndex
from logdb.log.requests import RECORD_OVERHEAD_BYTES, record_bytes

JOURNAL: Final = "entries"
DESCRIPTION: Final = 0
"""The tag of the record behind an entry. Records of applications have other tags."""
_COMMIT: Final = Struct("<Q")
READ_AT_ONCE: Final = 1_000
RUN: Final = 4_096
"""Number of positions that are looked at together."""
MAX_FOUND: Final = 1_000
"""Maximum number of entries in a status."""
ENTRY_BYTES: Final = 64
"""Size of an entry without records, for limits in bytes."""
DELETED_BYTES: Final = 16
"""Size of the GSN of a deleted record, for limits in bytes."""
GONE: Final[Record] = DESCRIPTION, b""
"""In the place of a record that was deleted before it was copied. Its deletion may be durable later than this."""


class EntryStore:
    """`next`: the next LSN; those before `durable` are on the medium. `highest`: the highest position that was ever
    written; `last`: the GSN of its last record; `time`: the latest time of a record. `trimmed`: the last GSN that was
    durable and trimmed. `deleted`: the records that were trimmed one by one. `streams`: those of the entries.
    `has_space`: the journal has records that no entry of the index needs."""

    def __init__(self, out: list[Effect], cache_bytes: int) -> None:
        self._out, self._cache_bytes = out, cache_bytes
        self.deleted = DeletedRecords(out)
        self.streams = StreamIndex()
        self.has_space = False
        self._unsynced: deque[tuple[int, int]] = deque()
        self.next = self.durable = 1
        self.highest = self.last = self.trimmed = self.time = 0
        self._positions, self._ends = array("Q"), array("Q")
        self._times, self._clients, self._sequences = array("Q"), array("Q"), array("Q")
        self._counts, self._sizes = array("Q"), array("Q")
        self._cache: dict[int, Sequence[Record]] = {}
        self._cached: deque[tuple[int, int]] = deque()
        self._cached_bytes = 0

    def load(self, journal: Journal, oldest: int, without_records: Sequence[Entry] = ()) -> None:
        """Rebuild the index, of positions from `oldest` on. `without_records`: entries that the journal may lack."""
        self.next = journal.first
        empty = {entry.position for entry in without_records}
        for entry in without_records:
            self._insert(entry, 0, 0)
            self.streams.uncommitted.discard(entry.position)  # a trim is of a decided entry
        sizes: list[int] = []
        gone: list[int] = []
        for at in range(0, len(journal.records), READ_AT_ONCE):
            for record in journal.records[at : at + READ_AT_ONCE]:
                if (record.tag, record.payload) == GONE:
                    gone.append(len(sizes))
                    sizes.append(RECORD_OVERHEAD_BYTES)
                elif record.tag == DESCRIPTION and len(record.payload) == _COMMIT.size:
                    self.streams.uncommitted.difference_update(_COMMIT.unpack(record.payload))
                elif record.tag == DESCRIPTION:
                    entry = described(record.payload)
                    is_known = entry.position < oldest or entry.position in empty
                    first = len(sizes) - entry.count
                    if not is_known and first >= 0:
                        self._insert(entry, sum(sizes[first:]), self.next)
                        self.deleted.restore(entry, [one - first for one in gone if one >= first])
                    sizes.clear()
                    gone.clear()
                else:
                    sizes.append(len(record.payload) + RECORD_OVERHEAD_BYTES)
                self.next += 1
        self.durable = self.next

    def _insert(self, entry: Entry, size: int, end: int) -> None:
        """Add to the index the entry whose description has the LSN `end`; 0: it has no records any more."""
        position, time, client, sequence, count, _ = entry
        at = bisect_left(self._positions, position)
        assert at == len(self._positions) or self._positions[at] != position, f"COR-1: {position} is written twice"
        self._positions.insert(at, position)
        self._ends.insert(at, end)
        self._times.insert(at, time)
        self._clients.insert(at, client)
        self._sequences.insert(at, sequence)
        self._counts.insert(at, count)
        self._sizes.insert(at, size)
        self.streams.add(entry)
        self.time = max(self.time, time)
        if position >= self.highest:  # equal if a crash has lost what was there
            self.highest, self.last = position, gsn_at(position, max(0, count - 1))

    # ---- writing

    def add(self, entry: Entry, records: Sequence[Record]) -> None:
        """Write an entry at a position that has none. It counts when it is durable."""
        description = DESCRIPTION, describe(entry)
        self._out.append(Persist(JOURNAL, self.next, [*records, description]))
        self.next += len(records)
        self._insert(entry, record_bytes(records), self.next)
        self._unsynced.append((self.next, entry.position))
        self.next += 1
        if records:
            self._keep(entry.position, records)

    def on_persisted(self, end: int) -> list[int]:
        """The journal is durable before this LSN. Returns the positions of the entries that have become durable."""
        self.durable = end
        found = []
        while self._unsynced and self._unsynced[0][0] < end:
            found.append(self._unsynced.popleft()[1])
        return found

    def commit(self, position: int) -> None:
        """Set the commit bit of an entry. A crash may lose it."""
        if position in self.streams.uncommitted:
            self.streams.uncommitted.discard(position)
            self._out.append(Persist(JOURNAL, self.next, [(DESCRIPTION, _COMMIT.pack(position))]))
            self.next += 1

    def add_copy(
        self, entry: Entry, records: Sequence[LogRecord], deleted: frozenset[int], uncommitted: frozenset[int]
    ) -> None:
        """Write an entry of another unit. `deleted`: the GSNs of records that are deleted there; `uncommitted`: the
        positions that are not committed there."""
        by_gsn = {record.gsn: (record.tag, record.payload) for record in records}
        gsns = range(gsn_at(entry.position), gsn_at(entry.position, entry.count))
        missing = [gsn for gsn in gsns if gsn not in by_gsn]
        assert deleted.issuperset(missing), f"COR-1: position {entry.position} was copied without {missing}"
        self.add(entry, [by_gsn.get(gsn, GONE) for gsn in gsns])
        self.deleted.add(entry, [gsn - gsns[0] for gsn in missing])
        if entry.position not in uncommitted:
            self.commit(entry.position)

    def _keep(self, position: int, records: Sequence[Record]) -> None:
        size = record_bytes(records)
        self._cache[position] = records
        self._cached.append((position, size))
        self._cached_bytes += size
        while self._cached_bytes > self._cache_bytes:
            oldest, size = self._cached.popleft()
            self._cached_bytes -= size
            self._cache.pop(oldest, None)

    def trim_index(self, oldest: int) -> None:
        """Remove the entries before a position from the index. `trim_journal` deletes them, once the unit remembers
        durably that it rejects these positions."""
        self.has_space = True
        count = bisect_left(self._positions, oldest)
        if not count:
            return
        self.trimmed = max(self.trimmed, min(self.last_durable(), gsn_at(oldest) - 1))
        for one in (self._positions, self._ends, self._times, self._clients, self._sequences, self._counts):
            del one[:count]
        del self._sizes[:count]
        self.deleted.forget(oldest)
        self.streams.forget(oldest)

    def trim_journal(self) -> None:
        """Delete the records before the first one of the index that has records. Scans the index."""
        self.has_space = False
        firsts = [end - count for end, count in zip(self._ends, self._counts, strict=True) if end]
        self._out.append(Trim(JOURNAL, min([*firsts, self.next, self.durable])))

    # ---- records that are trimmed one by one

    def on_deleted(self, end: int) -> None:
        """The deletions before this LSN of their journal are durable."""
        for position in self.deleted.on_persisted(end):
            at = self.find(position)
            if at is not None and self._ends[at] < self.durable:
                self._ends[at] = self._sizes[at] = 0
                self.has_space = True

    def deleted_gsns(self, entries: Iterable[Entry]) -> tuple[int, ...]:
        """The GSNs of the deleted records of these entries, in order."""
        positions = [entry.position for entry in entries]
        return tuple([gsn_at(position, index) for position in positions for index in sorted(self.deleted.of(position))])

    # ---- reading

    def find(self, position: int) -> int | None:
        """The index of the entry at a position, None if it is unwritten."""
        at = bisect_left(self._positions, position)
        return at if at < len(self._positions) and self._positions[at] == position else None

    @property
    def positions(self) -> Sequence[int]:
        """All positions of the index, in order."""
        return self._positions

    def entry(self, at: int) -> Entry:
        """An entry, by its index."""
        position = self._positions[at]
        fields = position, self._times[at], self._clients[at], self._sequences[at], self._counts[at]
        return Entry(*fields, self.streams.of(position))

    def end(self, at: int) -> int:
        """The LSN behind an entry, by its index: the entry is durable when all before it are."""
        return self._ends[at] + 1

    def durable_at(self, position: int) -> int | None:
        """The index of the entry at a position, None if it is not durable."""
        at = self.find(position)
        return at if at is not None and self._ends[at] < self.durable else None

    def readable_at(self, position: int) -> int | None:
        """As `durable_at`, for readers: None if the entry is not committed (COR-16)."""
        return None if position in self.streams.uncommitted else self.durable_at(position)

    def last_durable(self) -> int:
        """The GSN of the last durable record, or of a later one that was trimmed; 0 if there is none."""
        for at in reversed(range(len(self._positions))):
            if self._ends[at] < self.durable:
                return max(self.trimmed, gsn_at(self._positions[at], max(0, self._counts[at] - 1)))
        return self.trimmed

    def last_at(self, time: int, end: int) -> int:
        """The GSN of the last durable record with this time or an earlier one at a position before `end` (0: any); 0 if
        there is none. Times grow with the positions; junk has none."""
        low, high = 0, bisect_left(self._positions, end) if end else len(self._positions)
        found = 0
        while low < high:
            middle = at = (low + high) // 2
            while at >= low and not (self._counts[at] and self._ends[at] < self.durable):
                at -= 1
            if at < low:
                low = middle + 1
            elif self._times[at] <= time:
                found, low = gsn_at(self._positions[at], self._counts[at] - 1), middle + 1
            else:
                high = at
        return found

    def consecutive(self, first: int, step: int, end: int, max_bytes: int, *, uncommitted: bool = False) -> list[Entry]:
        """The durable entries at `first`, `first` + `step`, and so on, before `end` (0: none) and the first one that is
        missing, or not committed unless `uncommitted`; at least one if there is one, and about `max_bytes` at most."""
        found: list[Entry] = []
        size = 0
        while (not end or first < end) and (not found or size < max_bytes):
            at = self.durable_at(first) if uncommitted else self.readable_at(first)
            if at is None:
                break
            found.append(self.entry(at))
            size += self._response_bytes(at)
            first += step
        return found

    def _response_bytes(self, at: int) -> int:
        """The size of an entry, by its index, for limits in bytes. A response names its deleted records."""
        deleted = len(self.deleted.of(self._positions[at]))
        return self._sizes[at] + ENTRY_BYTES + DELETED_BYTES * deleted

    def missing(self, first: int, step: int, end: int, limit: int) -> list[int]:
        """The positions `first`, `first` + `step`, and so on, before `end` that a reader cannot read; at most
        `limit`. Steps over whole runs of others."""
        found: list[int] = []
        open_ = sorted([one for one in self.streams.uncommitted if first <= one < end])
        while first < end and len(found) < limit:
            run = range(first, min(end, first + RUN * step), step)
            low, high = bisect_left(self._positions, first), bisect_left(self._positions, run.stop)
            is_full = self._positions[low:high] == array("Q", run) and max(self._ends[low:high]) < self.durable
            if not is_full or bisect_left(open_, first) < bisect_left(open_, run.stop):
                found += [one for one in run if self.readable_at(one) is None]
            first += RUN * step
        return found[:limit]

    def first_missing(self, first: int, step: int, end: int) -> int:
        """The first of the positions `first`, `first` + `step`, and so on, before `end` that has no durable entry; one
        that is not before `end` if there is none. Steps over whole runs of others."""
        while first < end:
            run = range(first, min(end, first + RUN * step), step)
            low, high = bisect_left(self._positions, first), bisect_left(self._positions, run.stop)
            if self._positions[low:high] != array("Q", run) or max(self._ends[low:high]) >= self.durable:
                missing = next((one for one in run if self.durable_at(one) is None), None)
                if missing is not None:
                    return missing
            first += len(run) * step
        return first

    def of_stream(self, stream: int, first: int, end: int, max_bytes: int) -> tuple[list[Entry], int]:
        """The durable entries of a stream at positions from `first` to `end` - 1, about `max_bytes` at most, and the
        position up to which these are all."""
        found: list[Entry] = []
        size = 0
        for position in self.streams.positions(stream, first, end):
            at = self.durable_at(position)
            if at is not None:
                if found and size >= max_bytes:
                    return found, position
                found.append(self.entry(at))
                size += self._response_bytes(at)
        return found, end

    def of_client(self, client: int, numbers: Sequence[tuple[int, int]]) -> list[Entry]:
        """The first `MAX_FOUND` durable entries with some of these records of a client. `numbers`: (first, count), in
        order, without overlaps. Scans the index."""
        found: list[Entry] = []
        for at, one in enumerate(self._clients):
            if one == client and self._counts[at] and self._ends[at] < self.durable:
                first, end = self._sequences[at], self._sequences[at] + self._counts[at]
                before = bisect_left(numbers, (end, 0))  # the number of runs that begin before the end of the entry
                if before and first < sum(numbers[before - 1]):
                    found.append(self.entry(at))
                    if len(found) == MAX_FOUND:
                        break
        return found

    def cached(self, position: int) -> Sequence[Record] | None:
        """The records of an entry, if they are in memory."""
        return self._cache.get(position)

    def first_lsn(self, position: int) -> int:
        """The LSN of the first record of an entry."""
        at = self.find(position)
        assert at is not None, f"position {position} has no entry"
        return self._ends[at] - self._counts[at]

    def ranges_of(self, entry: Entry) -> list[JournalRange]:
        """The places of the records of an entry, without those that are deleted."""
        first, gone = self.first_lsn(entry.position), self.deleted.of(entry.position)
        ranges: list[JournalRange] = []
        start = 0
        for index in (*sorted(gone), entry.count):
            if start < index:
                gsn = gsn_at(entry.position, start)
                ranges.append(JournalRange(JOURNAL, first + start, first + index, gsn, entry.time))
            start = index + 1
        return ranges

    def cached_records(self, entry: Entry, tags: frozenset[int] | None) -> list[LogRecord] | None:
        """The records of an entry with these tags; None if they are not in memory."""
        gone = self.deleted.of(entry.position)
        if len(gone) == entry.count:
            return []
        records = self._cache.get(entry.position)
        if records is None:
            return None
        first, time = gsn_at(entry.position), entry.time
        return [
            LogRecord(first + index, time, tag, payload)
            for index, (tag, payload) in enumerate(records)
            if index not in gone and (tags is None or tag in tags)
        ]

    def check(self) -> None:
        """Raises AssertionError."""
        assert len(self._positions) == len(self._ends) == len(self._sizes)
        assert not self._positions or self._positions[-1] <= self.highest, "COR-2"
