"""A member's copy of one segment: how far it goes, how far it is durable, and how large its records are."""

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
    """How many bytes lie between two records: exact every 16 KiB or at both ends of larger batches, even in between."""

    def __init__(self, first: int) -> None:
        self._lsns, self._totals = array("q", [first]), array("q", [0])
        self.total = 0
        self._end = first

    def add(self, end: int, added: int) -> None:
        """The records up to `end` - 1 have been added, `added` bytes."""
        if added >= SAMPLE_BYTES and self._end > self._lsns[-1]:
            self._lsns.append(self._end)
            self._totals.append(self.total)
        self.total += added
        self._end = end
        if self.total - self._totals[-1] >= SAMPLE_BYTES:
            self._lsns.append(end)
            self._totals.append(self.total)

    def at(self, lsn: int) -> int:
        """About the bytes before a record."""
        at = bisect_right(self._lsns, lsn) - 1
        if at < 0:
            return 0
        begin, total = self._lsns[at], self._totals[at]
        if at + 1 < len(self._lsns):
            end, following = self._lsns[at + 1], self._totals[at + 1]
        else:
            end, following = self._end, self.total
        return following if lsn >= end else total + (following - total) * (lsn - begin) // (end - begin)

    def reach(self, first: int, end: int, limit: int) -> int:
        """The end of about `limit` bytes of records from `first` on: one record at least, `end` - 1 the last."""
        wanted = self.at(first) + limit
        if self.at(end) <= wanted:
            return end
        at = bisect_right(self._totals, wanted) - 1
        begin, total = self._lsns[at], self._totals[at]
        if at + 1 < len(self._lsns):
            stop, following = self._lsns[at + 1], self._totals[at + 1]
        else:
            stop, following = self._end, self.total
        reached = begin + (stop - begin) * (wanted - total) // max(1, following - total)
        return max(first + 1, min(end, reached))

    def state(self, before: int) -> list[list[int]]:
        """For JSON: the samples of records before `before`."""
        kept = bisect_right(self._lsns, before)
        return [self._lsns[:kept].tolist(), self._totals[:kept].tolist(), [before, self.at(before)]]

    @classmethod
    def restored(cls, state: list[list[int]]) -> RecordSizes:
        """The reverse."""
        lsns, totals, (end, total) = state
        sizes = cls(end)
        if lsns:
            sizes._lsns, sizes._totals = array("q", lsns), array("q", totals)
        sizes._end, sizes.total = end, total
        return sizes


class SegmentReplica:
    """Records `base` to `end` - 1 of a segment, of which those before `durable` are on the medium.

    `base` is the first that must be kept; the journal may still have some before it. `whole`: the sessions know all
    records that ever were in the segment, also those before `began`, where they begin otherwise. `source`: who sent the
    last records; `since`: when (or when some were last asked for). `told`: the end that another member has been told
    to be durable. `ordered_bytes`: those of the records that the chain places.
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
        self.since = self.asked_again = self.told = 0
        self.ordered_bytes = 0

    @classmethod
    def empty(cls, segment: Segment) -> SegmentReplica:
        """A copy that begins where the segment does now."""
        base = segment.base
        return cls(segment, base, base, RecordSizes(base), ClientSessions(), base == 1)

    def take(self, records: Sequence[Record], size: int) -> int:
        """The records go on where the copy ends; returns where. They are not in the sessions yet."""
        first = self.end
        self.end = first + len(records)
        self.sizes.add(self.end, size)
        return first

    def learn(self, records: Sequence[Record], first: int) -> None:
        """Put the records, which begin at `first`, into the sessions."""
        lsn = first
        for client, sequence, count in runs_of([payload for _, payload in records]):
            self.sessions.add(client, sequence, count, lsn)
            lsn += count

    def recover(self, records: Sequence[LogRecord], first: int) -> None:
        """Learn the records of a journal that the checkpoint did not cover, and their sizes."""
        for at in range(0, len(records), 1000):
            batch = [(record.tag, record.payload) for record in records[at : at + 1000]]
            self.learn(batch, first + at)
            self.sizes.add(first + at + len(batch), record_bytes(batch))

    def reach(self, first: int, limit: int) -> int:
        """The end of about `limit` bytes of durable records from `first` on."""
        return self.sizes.reach(first, self.durable, limit)

    def bytes_between(self, first: int, end: int) -> int:
        """About."""
        return self.sizes.at(end) - self.sizes.at(first)

    def check(self) -> None:
        """SCA-1 and SCA-2, as far as one copy shows them."""
        assert max(self.base, self.durable) <= self.end, "SCA-1: durable beyond what was written"
        assert self.told <= self.durable, "SCA-2: acknowledged what is not durable"


def journal_of(segment: int) -> str:
    """The journal of a segment's records."""
    return f"segment-{segment}"
