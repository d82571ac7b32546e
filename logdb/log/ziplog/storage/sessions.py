"""Which records of each client are in the order of a shard, and where (ZIP-5)."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from logdb.cores.effects import ProtocolViolation

PART_ROWS: Final = 20_000
"""About half of the maximum number of marks and records in a message to another member: a row has up to 50 bytes."""


class Sessions:
    """All clients: the GSN of each record that its client has not settled, and the number below which all are."""

    def __init__(self) -> None:
        self._gsns: dict[int, dict[int, int]] = {}
        self._marks: dict[int, int] = {}

    def add(self, client: int, sequence: int, gsn: int) -> None:
        """The record is in the order. Raises ProtocolViolation if it was there before."""
        gsns = self._gsns.setdefault(client, {})
        if gsns.setdefault(sequence, gsn) != gsn:
            raise ProtocolViolation(f"ZIP-5: record {sequence} of client {client} is at {gsns[sequence]} and {gsn}")

    def find(self, client: int, sequence: int) -> int:
        """The GSN of a record; 0 if it is not there."""
        gsns = self._gsns.get(client)
        return gsns.get(sequence, 0) if gsns is not None else 0

    def find_all(self, client: int, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """(number, GSN) of each record of `client` in one of the ranges (first number, count), each once, ascending.

        The work is that of the ranges and of the records found, whatever the counts claim.
        """
        gsns = self._gsns.get(client, {})
        numbers = sorted(gsns)
        found: list[tuple[int, int]] = []
        at = 0
        for first, count in sorted(ranges):
            at = max(at, bisect_left(numbers, first))
            end = bisect_left(numbers, first + count, at)
            found += [(number, gsns[number]) for number in numbers[at:end]]
            at = end
        return found

    def mark(self, client: int) -> int:
        """The client has settled all numbers below this one."""
        return self._marks.get(client, 0)

    def settle(self, client: int, settled: int) -> None:
        """The client does not ask again for numbers below `settled`."""
        before = self._marks.get(client, 0)
        if settled <= before:
            return
        self._marks[client] = settled
        gsns = self._gsns.get(client)
        if gsns is None:
            return
        numbers = range(before, settled) if settled - before < len(gsns) else [one for one in gsns if one < settled]
        for number in numbers:
            gsns.pop(number, None)
        if not gsns:
            del self._gsns[client]

    def parts(self) -> Iterator[tuple[int, int, str]]:
        """All of it in parts of a message each: the first client, the one that follows (0: none), and as `to_json`.

        Of a client whose records are in several parts, each but the first begins with the last record of the one
        before.
        """
        first, part, rows = 0, Sessions(), 0
        for client in sorted(self._marks.keys() | self._gsns.keys()):
            gsns = sorted(self._gsns.get(client, {}).items())
            for at in range(0, max(1, len(gsns)), PART_ROWS):
                if rows >= PART_ROWS or at:
                    yield first, client, part.to_json()
                    first, part, rows = client, Sessions(), 0
                if client in self._marks:
                    part._marks[client] = self._marks[client]
                if gsns:
                    part._gsns[client] = dict(gsns[max(0, at - 1) : at + PART_ROWS])
                rows += 1 + len(gsns[at : at + PART_ROWS])
        yield first, 0, part.to_json()

    def merge(self, part: Sessions, first: int) -> bool:
        """Add the next part, which begins with the client `first`. Returns False if parts of this client between the
        last one and this one are missing."""
        gsns = self._gsns.get(first)
        if gsns and gsns.keys().isdisjoint(part._gsns.get(first, ())):
            return False
        self._marks.update(part._marks)
        for client, more in part._gsns.items():
            self._gsns.setdefault(client, {}).update(more)
        return True

    def to_json(self) -> str:
        """All of it."""
        return json.dumps([list(self._marks.items()), [[one, list(gsns.items())] for one, gsns in self._gsns.items()]])

    @classmethod
    def from_json(cls, text: str) -> Sessions:
        """The reverse."""
        sessions = cls()
        marks, gsns = json.loads(text)
        sessions._marks = dict(map(tuple, marks))
        sessions._gsns = {client: dict(map(tuple, of_client)) for client, of_client in gsns}
        return sessions
