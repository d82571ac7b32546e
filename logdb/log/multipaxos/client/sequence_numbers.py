"""The sequence numbers of a client's records. Numbers below `settled` have results, and are not requested again."""

from __future__ import annotations

from bisect import insort
from typing import Final

MAX_HELD: Final = 100_000
"""Number of later sequence numbers after which the numbers of an append that ended as unknown are settled."""


class SequenceNumbers:
    """`next`: the number of the next record."""

    def __init__(self) -> None:
        self.next = 1
        self._open: dict[int, None] = {}
        self._held: list[int] = []

    def take(self, count: int) -> int:
        """Allocate numbers for `count` records. They are open until `close` is called with the first. Returns the
        first."""
        first = self.next
        self.next += count
        self._open[first] = None
        return first

    def close(self, first: int) -> None:
        """These records have results."""
        self._open.pop(first, None)

    def hold(self, first: int) -> None:
        """Settle no number from `first` on until `release`: other clients may request the outcome."""
        if first not in self._held:
            insort(self._held, first)

    def release(self, first: int) -> None:
        if self._held and first in self._held:
            self._held.remove(first)

    def settled(self) -> int:
        """The lowest number that is not settled."""
        held = self._held
        while held and held[0] + MAX_HELD < self.next:
            del held[0]
        return min([self.next, *held[:1], *([next(iter(self._open))] if self._open else [])])


def merged(runs: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The (first, count) runs in their order, with adjacent ones joined."""
    found: list[tuple[int, int]] = []
    for first, count in sorted(runs):
        if found and sum(found[-1]) == first:
            found[-1] = found[-1][0], found[-1][1] + count
        else:
            found.append((first, count))
    return tuple(found)
