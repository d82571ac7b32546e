"""The records of each client that are in the log and their GSNs, to append none of them twice (MPX-3).

A client numbers its records. A *run* is a range of consecutive numbers with consecutive GSNs. Runs of settled numbers
are dropped; one integer is kept for each client, its *mark*: numbers below it are never appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from logdb.cores.effects import ProtocolViolation


class Run(NamedTuple):
    """The records `sequence` and following of a client, `count` of them, have the GSNs from `gsn` on; `gsn` 0: they are
    not in the log."""

    sequence: int
    count: int  # type: ignore[assignment]  # tuple.count is not used
    gsn: int

    @property
    def end(self) -> int:
        return self.sequence + self.count

    def part(self, first: int, end: int) -> Run:
        """The records `first` to `end` - 1, by sequence number."""
        return Run(first, end - first, self.gsn and self.gsn + first - self.sequence)


_sequence_of = itemgetter(0)


class Sessions:
    """All clients. The runs of a client are in the order of their numbers and do not overlap."""

    def __init__(self) -> None:
        self._runs: dict[int, list[Run]] = {}
        self._marks: dict[int, int] = {}

    def settle(self, client: int, settled: int) -> None:
        """Drop the numbers below `settled`: the client never requests them again."""
        if settled <= self._marks.get(client, 0):
            return
        self._marks[client] = settled
        runs = self._runs.get(client)
        if runs is None:
            return
        at = bisect_right(runs, settled - 1, key=_sequence_of)
        if at and runs[at - 1].end > settled:
            at -= 1
            runs[at] = runs[at].part(settled, runs[at].end)
        del runs[:at]
        if not runs:
            del self._runs[client]

    def find(self, client: int, sequence: int, count: int) -> list[Run]:
        """The runs of these numbers, in their order: they cover exactly the numbers at or above the mark."""
        end = sequence + count
        sequence = max(sequence, self._marks.get(client, 0))
        runs = self._runs.get(client, [])
        found: list[Run] = []
        for run in runs[max(0, bisect_right(runs, sequence, key=_sequence_of) - 1) :]:
            if run.sequence >= end:
                break
            if run.end <= sequence:
                continue
            if run.sequence > sequence:
                found.append(Run(sequence, run.sequence - sequence, 0))
                sequence = run.sequence
            found.append(run.part(sequence, min(end, run.end)))
            sequence = min(end, run.end)
        if sequence < end:
            found.append(Run(sequence, end - sequence, 0))
        return found

    def add(self, client: int, run: Run) -> None:
        """Add the records of a run. Raises ProtocolViolation if one of them is already in the log."""
        runs = self._runs.setdefault(client, [])
        at = bisect_right(runs, run.sequence, key=_sequence_of)
        before = runs[at - 1] if at else None
        if (before is not None and before.end > run.sequence) or (at < len(runs) and runs[at].sequence < run.end):
            raise ProtocolViolation(f"MPX-3: record {run.sequence} of client {client} is in the log twice")
        if before is not None and before.end == run.sequence and before.gsn + before.count == run.gsn:
            runs[at - 1] = Run(before.sequence, before.count + run.count, before.gsn)
        else:
            runs.insert(at, run)

    def to_json(self) -> list[Any]:
        """The sessions as JSON values."""
        return [list(self._marks.items()), [[client, runs] for client, runs in self._runs.items()]]

    @classmethod
    def from_json(cls, state: Sequence[Any]) -> Sessions:
        """The sessions of `to_json`."""
        sessions = cls()
        marks, runs = state
        sessions._marks = dict(marks)
        sessions._runs = {client: [Run(*run) for run in of_client] for client, of_client in runs}
        return sessions
