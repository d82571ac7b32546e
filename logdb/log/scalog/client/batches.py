"""The unacknowledged records of a client: sequence numbers, chunks of appends, and batches of chunks."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from logdb.cores.effects import ProtocolViolation
from logdb.log.contract import Record

EXCLUDED = -1
"""Instead of a GSN: the record is not in the segment and never will be."""
FORGOTTEN = -2
"""Instead of a GSN: the record was ordered, but no server has its GSN any more."""
MAX_RETAINED: Final = 100_000
"""Number of later sequence numbers for which the numbers of an unknown append stay unsettled, so that servers keep
their GSNs."""


class Chunk:
    """Consecutive records of an append that are sent to one segment together.

    `owner`: belongs to the `AppendObserver`. `sequence`: the number of the first record; 0 before they are numbered.
    `gsns`: the result for each record, 0 while there is none; None while there is none for any record.
    """

    __slots__ = ("gsns", "indexes", "owner", "records", "sequence", "size")

    def __init__(self, owner: object, indexes: range | list[int], records: Sequence[Record], size: int) -> None:
        self.owner, self.indexes, self.records, self.size = owner, indexes, records, size
        self.sequence = 0
        self.gsns: Sequence[int] | None = None

    def decide(self, start: int, gsns: Sequence[int]) -> list[tuple[int, int]]:
        """Store results for the records from index `start` on. Returns the (start, end) runs that had none before.

        A result stays: a late status may have a GSN that is given up as forgotten, or lack one that is known.
        """
        if self.gsns is None:
            if len(gsns) == len(self.records):
                self.gsns = gsns
                return [(0, len(gsns))]
            self.gsns = (0,) * len(self.records)
        results = list(self.gsns)
        runs: list[tuple[int, int]] = []
        for index, gsn in enumerate(gsns, start):
            if results[index] not in (0, gsn, FORGOTTEN) and gsn != FORGOTTEN:
                raise ProtocolViolation(f"SCA-13: record {self.sequence + index} is at {results[index]} and at {gsn}")
            if not results[index]:
                results[index] = gsn
                if runs and runs[-1][1] == index:
                    runs[-1] = (runs[-1][0], index + 1)
                else:
                    runs.append((index, index + 1))
        self.gsns = results
        return runs


class SequenceNumbers:
    """The sequence numbers of a client. A number is settled when the client has its result and no longer retains it."""

    def __init__(self) -> None:
        self.next = 1
        self._open: set[int] = set()
        self._heap: list[int] = []
        self._retained: list[int] = []

    def take(self, count: int) -> int:
        """Allocate `count` numbers, which are open under the first one. Returns the first."""
        first = self.next
        self.next += count
        self.open(first)
        return first

    def open(self, first: int) -> None:
        """Mark the numbers from `first` up to the next open one as unsettled."""
        if first not in self._open:
            self._open.add(first)
            heappush(self._heap, first)

    def close(self, first: int) -> None:
        self._open.discard(first)

    def retain(self, first: int) -> None:
        """Settle no number from `first` on until `release`, or until `MAX_RETAINED` more numbers were allocated."""
        if first not in self._retained:
            insort(self._retained, first)

    def release(self, first: int) -> None:
        if self._retained and first in self._retained:
            self._retained.remove(first)

    def settled(self) -> int:
        """The lowest number that is not settled."""
        heap, retained = self._heap, self._retained
        while heap and heap[0] not in self._open:
            heappop(heap)
        while retained and retained[0] + MAX_RETAINED < self.next:
            del retained[0]
        return min([self.next, *heap[:1], *retained[:1]])


def merged(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(first, count) runs sorted, adjacent ones merged."""
    found: list[tuple[int, int]] = []
    for first, count in sorted(runs):
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((first, count))
    return found


class Batch:
    """Records in flight in one message. `left`: number of records without a result. `marks`: the numbers that it keeps
    open in `SequenceNumbers`."""

    __slots__ = ("attempts", "chunks", "count", "left", "marks", "records", "resend_at", "sent_at", "sequence", "size")

    def __init__(self, chunks: list[Chunk], marks: set[int]) -> None:
        self.sequence, self.chunks, self.marks = chunks[0].sequence, chunks, marks
        self.records = chunks[0].records if len(chunks) == 1 else [r for chunk in chunks for r in chunk.records]
        self.size = sum([chunk.size for chunk in chunks])
        self.count = self.left = len(self.records)
        self.attempts = self.sent_at = self.resend_at = 0

    def open_runs(self) -> list[tuple[int, int]]:
        """(first number, count) of the records without a result."""
        if self.left == self.count:
            return [(self.sequence, self.count)]
        return merged(
            [
                (number, 1)
                for chunk in self.chunks
                for number, gsn in enumerate(chunk.gsns or (0,) * len(chunk.records), chunk.sequence)
                if not gsn
            ]
        )
