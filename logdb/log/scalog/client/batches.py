"""What a client has under way to segments: numbers, pieces of appends, and batches of them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from logdb.cores.effects import ProtocolViolation
from logdb.log.contract import Record

NEVER = -1
"""In the place of a GSN: the record is not in the segment and never will be."""
FORGOTTEN = -2
"""In the place of a GSN: the record was ordered, and nobody knows where any more."""
HELD: Final = 100_000
"""Numbers that a client has not settled, for others to ask for them; servers remember where they are."""


class Chunk:
    """Records that stay together: consecutive ones of an append, for one segment.

    `owner`: what `AppendObserver` knows it by. `sequence`: the number of the first one, once it has one. `gsns`: of
    each what is known, 0 if nothing is; None if nothing is known at all.
    """

    __slots__ = ("gsns", "owner", "places", "records", "sequence", "size")

    def __init__(self, owner: object, places: range | list[int], records: Sequence[Record], size: int) -> None:
        self.owner, self.places, self.records, self.size = owner, places, records, size
        self.sequence = 0
        self.gsns: Sequence[int] | None = None

    def decide(self, start: int, gsns: Sequence[int]) -> list[tuple[int, int]]:
        """Note what became of the records from index `start` on. Returns the (start, end) runs for which it is news."""
        if self.gsns is None:
            if len(gsns) == len(self.records):
                self.gsns = gsns
                return [(0, len(gsns))]
            self.gsns = (0,) * len(self.records)
        known = list(self.gsns)
        runs: list[tuple[int, int]] = []
        for index, gsn in enumerate(gsns, start):
            if known[index] and known[index] != gsn:
                raise ProtocolViolation(f"SCA-13: record {self.sequence + index} is at {known[index]} and at {gsn}")
            if not known[index]:
                known[index] = gsn
                if runs and runs[-1][1] == index:
                    runs[-1] = (runs[-1][0], index + 1)
                else:
                    runs.append((index, index + 1))
        self.gsns = known
        return runs


class SequenceNumbers:
    """The sequence numbers of a client, and below which all are settled."""

    def __init__(self) -> None:
        self.next = 1
        self._open: set[int] = set()
        self._heap: list[int] = []
        self._held: list[int] = []

    def take(self, count: int) -> int:
        """Numbers for so many records; they are open under the first."""
        first = self.next
        self.next += count
        self.open(first)
        return first

    def open(self, first: int) -> None:
        """The numbers from `first` on, up to the next open one, are not settled."""
        if first not in self._open:
            self._open.add(first)
            heappush(self._heap, first)

    def close(self, first: int) -> None:
        self._open.discard(first)

    def hold(self, first: int) -> None:
        """Settle no number from `first` on, open or not, until it is released or `HELD` more were given."""
        if first not in self._held:
            insort(self._held, first)

    def release(self, first: int) -> None:
        if self._held and first in self._held:
            self._held.remove(first)

    def settled(self) -> int:
        """Every number below it is settled."""
        heap, held = self._heap, self._held
        while heap and heap[0] not in self._open:
            heappop(heap)
        while held and held[0] + HELD < self.next:
            del held[0]
        return min([self.next, *heap[:1], *held[:1]])


def merged(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(first, count) runs in their order, those that follow each other as one."""
    found: list[tuple[int, int]] = []
    for first, count in sorted(runs):
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((first, count))
    return found


class Batch:
    """Records under way in one message; `left`: of so many of them nothing is known yet. `marks`: what it keeps open in
    `SequenceNumbers`."""

    __slots__ = ("attempts", "chunks", "count", "left", "marks", "records", "resend_at", "sent_at", "sequence", "size")

    def __init__(self, chunks: list[Chunk], marks: set[int]) -> None:
        self.sequence, self.chunks, self.marks = chunks[0].sequence, chunks, marks
        self.records = chunks[0].records if len(chunks) == 1 else [r for chunk in chunks for r in chunk.records]
        self.size = sum([chunk.size for chunk in chunks])
        self.count = self.left = len(self.records)
        self.attempts = self.sent_at = self.resend_at = 0

    def open_runs(self) -> list[tuple[int, int]]:
        """(first number, count) of what is not known yet."""
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
