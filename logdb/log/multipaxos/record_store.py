"""The records of a replica: the newest in memory, all of them in journals, in which a record's LSN is its GSN.

A replica that has received a snapshot because it was too slow lacks the records before it. It writes the records after
the snapshot to a new journal, and copies the missing ones from other replicas into the old one. So the journals
together are the log, with gaps that are filled; the name and the end of a journal define the records that it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from logdb.cores.effects import Create, Drop, Effect, Journal, JournalRange, Persist, ProtocolViolation, Trim
from logdb.log.contract import LogRecord, Record
from logdb.log.requests import RECORD_OVERHEAD_BYTES

PREFIX: Final = "records-"
"""The prefix of the names of all journals with records."""


@dataclass(slots=True)
class StoredRun:
    """A journal with the records `first` to `end` - 1. Records before `durable` are durable."""

    journal: str
    first: int
    end: int
    durable: int


class RecordStore:
    """Records of one replica. `next_gsn`: the GSN after the newest record. `out`: the list for effects.

    Records from `_cached_from` on are in memory; records from `flushed` on are only in memory.
    """

    def __init__(self, journals: Mapping[str, Journal], out: list[Effect], cache_bytes: int) -> None:
        self._out, self._cache_bytes = out, cache_bytes
        runs = [
            StoredRun(name, found.first, found.end, found.end)
            for name, found in journals.items()
            if name.startswith(PREFIX)
        ]
        self._runs = sorted(runs, key=lambda run: (run.first, run.end))
        self._cache: deque[Record] = deque()
        self._cached_bytes = 0
        self._cached_from = self.flushed = self.next_gsn = 1
        self.unflushed_bytes = 0

    # ---- writing

    def reset(self, next_gsn: int) -> None:
        """The state of the log was replaced by a snapshot: the next record is `next_gsn`. Stored records are kept."""
        self.flush()
        self._cache.clear()
        self._cached_bytes = 0
        self._cached_from = self.flushed = self.next_gsn = next_gsn

    def append(self, first: int, records: Sequence[Record]) -> None:
        """Add ordered records, in stored form. `first`: the GSN of the first."""
        if first != self.next_gsn:
            raise ProtocolViolation(f"MPX-5: record {first} was ordered after {self.next_gsn - 1}")
        size = sum([len(payload) for _, payload in records]) + RECORD_OVERHEAD_BYTES * len(records)
        self._cache.extend(records)
        self.next_gsn += len(records)
        self._cached_bytes += size
        self.unflushed_bytes += size

    def flush(self) -> None:
        """Write the records that are only in memory to a journal."""
        if self.flushed < self.next_gsn:
            start = self.flushed - self._cached_from
            self.store(self.flushed, list(islice(self._cache, start, None)))
            self.flushed, self.unflushed_bytes = self.next_gsn, 0
            self._shrink()

    def store(self, gsn: int, records: Sequence[Record]) -> None:
        """Write the records from `gsn` on, except those that a journal already has (records never change)."""
        while records:
            run, end = self._around(gsn)
            if run is not None and gsn < run.end:
                skipped = min(run.end - gsn, len(records))
                gsn, records = gsn + skipped, records[skipped:]
                continue
            part = records if end is None else records[: end - gsn]
            if run is None or run.end < gsn:
                run = self._create(gsn)
            self._out.append(Persist(run.journal, gsn, part))
            run.end += len(part)
            gsn, records = gsn + len(part), records[len(part) :]

    def _around(self, gsn: int) -> tuple[StoredRun | None, int | None]:
        """The last journal that starts at `gsn` or before, and the first GSN of the next one."""
        before = None
        for run in self._runs:
            if run.first > gsn:
                return before, run.first
            before = run
        return before, None

    def _create(self, first: int) -> StoredRun:
        names = {run.journal for run in self._runs}
        name, more = f"{PREFIX}{first}", 0
        while name in names:
            more += 1
            name = f"{PREFIX}{first}-{more}"
        run = StoredRun(name, first, first, first)
        self._runs.append(run)
        self._runs.sort(key=lambda one: (one.first, one.end))
        self._out.append(Create(name, first))
        return run

    def persisted(self, journal: str, end: int) -> None:
        """The records of a journal before `end` are durable."""
        for run in self._runs:
            if run.journal == journal:
                run.durable = max(run.durable, end)
        self._shrink()

    def _shrink(self) -> None:
        """Remove the oldest records from memory until `cache_bytes` are left, but only flushed, durable ones (MPX-8).

        After a restart, a journal may have records that were applied again and are not flushed yet.
        """
        if self._cached_bytes <= self._cache_bytes:
            return
        end = min(self.flushed, self._durable_from(self._cached_from))
        while self._cached_from < end and self._cached_bytes > self._cache_bytes:
            self._cached_bytes -= len(self._cache.popleft()[1]) + RECORD_OVERHEAD_BYTES
            self._cached_from += 1

    def trim(self, oldest: int) -> None:
        """Trim the records before `oldest`."""
        for run in list(self._runs):
            if run.end <= oldest and run is not self._runs[-1]:
                self._runs.remove(run)
                self._out.append(Drop(run.journal))
            elif run.first < oldest and run.first < (before := min(oldest, run.durable)):
                run.first = before
                self._out.append(Trim(run.journal, before))

    # ---- stored records

    def _durable_from(self, gsn: int) -> int:
        """The end of the durable records from `gsn` on without a gap."""
        for run in self._runs:
            if run.first <= gsn < run.durable:
                gsn = run.durable
        return gsn

    def is_durable(self, first: int, end: int) -> bool:
        """Whether the records `first` to `end` - 1 are all durable."""
        return self._durable_from(first) >= end

    def missing(self, oldest: int) -> tuple[int, int] | None:
        """The first gap: (first GSN, end)."""
        at = oldest
        for run in self._runs:
            if at >= self.flushed:
                return None
            if run.first > at:
                return at, min(run.first, self.flushed)
            at = max(at, run.end)
        return (at, self.flushed) if at < self.flushed else None

    # ---- reading

    def cached(self, first: int, end: int, tags: Collection[int] | None = None) -> list[LogRecord] | None:
        """The records `first` to `end` - 1 with these tags, in stored form; None if they are not all in memory."""
        if first < self._cached_from or end > self.next_gsn:
            return None
        start = first - self._cached_from
        records = islice(self._cache, start, end - self._cached_from)
        return [
            LogRecord(gsn, 0, tag, payload)
            for gsn, (tag, payload) in enumerate(records, first)
            if tags is None or tag in tags
        ]

    def ranges(self, first: int, end: int) -> list[JournalRange]:
        """The journal ranges of the records `first` to `end` - 1, up to the first that is not durable."""
        found = []
        for run in self._runs:
            if run.first <= first < min(end, run.durable):
                stop = min(end, run.durable)
                found.append(JournalRange(run.journal, first, stop, first, 0))
                first = stop
        return found

    def check(self) -> None:
        """Raises AssertionError."""
        assert self._cached_from + len(self._cache) == self.next_gsn, "MPX-5"
        assert self._cached_from <= self.flushed <= self.next_gsn, "MPX-8"
        ends = 0
        for run in self._runs:
            assert ends <= run.first <= run.durable <= run.end or run.first == run.end, "MPX-5"
            ends = run.end
