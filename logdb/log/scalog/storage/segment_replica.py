"""A member's copy of one segment: its end, its durable end, its clients, and the sizes of its records."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from logdb.cores.effects import Address
from logdb.log.contract import LogRecord, Record
from logdb.log.requests import record_bytes
from logdb.log.scalog.messages import Segment
from logdb.log.scalog.records import runs_of
from logdb.log.scalog.storage.sessions import ClientSessions

SAMPLE_BYTES: Final = 16 << 10


class RecordSizes:
    """The size of ranges of records: exact every 16 KiB or at both ends of larger batches, interpolated in between."""

    def __init__(self, first: int) -> None:
        self._lsns, self._totals = array("q", [first]), array("q", [0])
        self.total = 0
        self._end = first

    def add(self, end: int, added: int) -> None:
        """Add records up to `end` - 1, of `added` bytes."""
        if added >= SAMPLE_BYTES and self._end > self._lsns[-1]:
            self._lsns.append(self._end)
            self._totals.append(self.total)
        self.total += added
        self._end = end
        if self.total - self._totals[-1] >= SAMPLE_BYTES:
            self._lsns.append(end)
            self._totals.append(self.total)

    def at(self, lsn: int) -> int:
        """The approximate number of bytes before a record, counted from the same record for all of them."""
        at = bisect_right(self._lsns, lsn) - 1
        if at < 0:
            return self._totals[0]
        begin, total = self._lsns[at], self._totals[at]
        if at + 1 < len(self._lsns):
            end, following = self._lsns[at + 1], self._totals[at + 1]
        else:
            end, following = self._end, self.total
        return following if lsn >= end else total + (following - total) * (lsn - begin) // (end - begin)

    def reach(self, first: int, end: int, limit: int) -> int:
        """The end of about `limit` bytes of records from `first` on: at least one record, at most up to `end`."""
        target = self.at(first) + limit
        if self.at(end) <= target:
            return end
        at = bisect_right(self._totals, target) - 1
        begin, total = self._lsns[at], self._totals[at]
        if at + 1 < len(self._lsns):
            stop, following = self._lsns[at + 1], self._totals[at + 1]
        else:
            stop, following = self._end, self.total
        reached = begin + (stop - begin) * (target - total) // max(1, following - total)
        return max(first + 1, min(end, reached))

    def trim(self, first: int) -> None:
        """Drop what no record from `first` on needs."""
        dropped = bisect_right(self._lsns, first) - 1
        if dropped > 0:
            del self._lsns[:dropped], self._totals[:dropped]

    def state(self, before: int) -> list[list[int]]:
        """The samples of records before `before`, as JSON."""
        kept = bisect_right(self._lsns, before)
        return [self._lsns[:kept].tolist(), self._totals[:kept].tolist(), [before, self.at(before)]]

    @classmethod
    def restored(cls, state: list[list[int]]) -> RecordSizes:
        """The inverse of `state`."""
        lsns, totals, (end, total) = state
        sizes = cls(end)
        sizes._lsns, sizes._totals = array("q", lsns or [end]), array("q", totals or [total])
        sizes._end, sizes.total = end, total
        return sizes


class SegmentReplica:
    """Records `base` to `end` - 1 of a segment; those before `durable` are durable.

    `base`: the first record that must be kept; `first`: the first one in the journal. `whole`: whether the sessions
    contain all records that ever were in the segment, or only those from `began` on. `source`: the sender of the last
    records; `since`: the time at which they were received, or at which some were last requested; `repeat_requested_at`:
    the time at which the primary was last asked to send records again. `next_client`: the sessions of lower ones were
    received, the last ones or a request for them at `clients_requested_at`. `acknowledged`: the durable end last sent
    to another member. `ordered_bytes`: the size of the ordered records. Times are in ns.
    """

    def __init__(
        self, segment: Segment, first: int, end: int, sizes: RecordSizes, sessions: ClientSessions, whole: bool
    ) -> None:
        self.id, self.primary, self.sealed = segment.id, segment.primary, segment.sealed
        self.base = max(first, segment.base)
        self.journal = journal_of(segment.id)
        self.first = first
        self.end = self.durable = end
        self.sizes, self.sessions, self.whole, self.began = sizes, sessions, whole, first
        self.source: Address = ""
        self.since = self.repeat_requested_at = self.acknowledged = 0
        self.ordered_bytes = self.next_client = 0
        self.clients_requested_at: int | None = None

    @classmethod
    def empty(cls, segment: Segment) -> SegmentReplica:
        """An empty copy that begins at the segment's base."""
        base = segment.base
        return cls(segment, base, base, RecordSizes(base), ClientSessions(), base == 1)

    def trim(self, base: int) -> bool:
        """Keep only the records from `base` on. Returns whether there were others."""
        if base <= self.base:
            return False
        self.base = base
        self.sizes.trim(base)
        return True

    def extend(self, records: Sequence[Record], size: int) -> int:
        """Add records of `size` bytes, but not to the sessions. Returns the LSN of the first."""
        first = self.end
        self.end = first + len(records)
        self.sizes.add(self.end, size)
        return first

    def add_to_sessions(self, records: Sequence[Record], first: int) -> None:
        """Add the records, which begin at LSN `first`, to the sessions."""
        lsn = first
        for client, sequence, count in runs_of([payload for _, payload in records]):
            self.sessions.add(client, sequence, count, lsn)
            lsn += count

    def recover(self, records: Sequence[LogRecord], first: int) -> None:
        """Add journal records after the checkpoint, which begin at LSN `first`, to the sessions and sizes."""
        for at in range(0, len(records), 1000):
            batch = [(record.tag, record.payload) for record in records[at : at + 1000]]
            self.add_to_sessions(batch, first + at)
            self.sizes.add(first + at + len(batch), record_bytes(batch))

    def reach(self, first: int, limit: int) -> int:
        """The end of about `limit` bytes of durable records from `first` on."""
        return self.sizes.reach(first, self.durable, limit)

    def bytes_between(self, first: int, end: int) -> int:
        """The approximate size of the records `first` to `end` - 1."""
        return self.sizes.at(end) - self.sizes.at(first)

    def check(self) -> None:
        """The parts of SCA-1 and SCA-2 that concern one copy. Raises AssertionError."""
        assert max(self.base, self.durable) <= self.end, "SCA-1: durable beyond what was written"
        assert self.acknowledged <= self.durable, "SCA-2: acknowledged records that are not durable"


def journal_of(segment: int) -> str:
    """The name of the journal with a segment's records."""
    return f"segment-{segment}"
