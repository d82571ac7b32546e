"""The records that each client has appended to one segment, to append none of them twice (PROTOCOL.md, Sessions).

A client numbers its records one after another and a batch gets consecutive LSNs, so records are kept as *runs*: a range
of sequence numbers that maps to a range of LSNs. Runs below the client's settled number are dropped; for a client
without open appends one integer remains, its mark.

A trim removes old GSNs from the chain. Before it, the GSNs of the trimmed records are written into their runs (`fix`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

from logdb.cores.effects import ProtocolViolation


class ClientRun(NamedTuple):
    """`count` records of a client, from sequence number `sequence` on, are in the segment from `lsn` on.

    `lsn` = 0: they are not in the segment. `gsn` > 0: they have the GSNs from there on, which the chain no longer
    contains; -1: they were ordered, but their GSNs are not available here.
    """

    sequence: int
    count: int  # type: ignore[assignment]  # hides an unused method of tuple
    lsn: int
    gsn: int = 0

    def part(self, first: int, end: int) -> ClientRun:
        """The part with the sequence numbers `first` to `end` - 1."""
        skipped = first - self.sequence
        lsn = self.lsn and self.lsn + skipped
        return ClientRun(first, end - first, lsn, self.gsn + skipped if self.gsn > 0 else self.gsn)


Mark = tuple[int, int]
RunRow = tuple[int, int, int, int, int]
PART_ROWS: Final = 20_000
"""Marks and runs in a message to another member: a row has up to 50 bytes."""

_sequence_of = itemgetter(0)


def _before(run: ClientRun, lsn: int) -> ClientRun:
    return run.part(run.sequence, run.sequence + min(run.count, lsn - run.lsn))


class ClientSessions:
    """The clients of one segment. The runs of a client are ordered by sequence number and do not overlap (SCA-13).

    `new_marks`: the marks that have changed since the last message to the backups.
    """

    def __init__(self) -> None:
        self._runs: dict[int, list[ClientRun]] = {}
        self._marks: dict[int, int] = {}
        self.new_marks: dict[int, int] = {}

    def mark(self, client: int) -> int:
        """The client's settled number: it has received the results of all lower numbers."""
        return self._marks.get(client, 0)

    def settle(self, client: int, settled: int) -> None:
        """Drop the numbers below `settled`: the client never asks for them again."""
        if settled <= self._marks.get(client, 0):
            return
        self._marks[client] = self.new_marks[client] = settled
        runs = self._runs.get(client)
        if runs is None or runs[0].sequence >= settled:
            return
        at = bisect_right(runs, settled - 1, key=_sequence_of)
        last = runs[at - 1]
        end = last.sequence + last.count
        if end > settled:
            at -= 1
            runs[at] = last.part(settled, end)
        del runs[:at]
        if not runs:
            del self._runs[client]

    def is_new(self, client: int, sequence: int) -> bool:
        """Whether all numbers from `sequence` on are new. A fast test for the usual case."""
        runs = self._runs.get(client)
        if runs:
            last = runs[-1]
            return sequence >= last.sequence + last.count
        return sequence >= self._marks.get(client, 0)

    def add(self, client: int, sequence: int, count: int, lsn: int) -> None:
        """Add records that are in the segment from `lsn` on. Raises ProtocolViolation if one was added before."""
        runs = self._runs.get(client)
        mark = self._marks.get(client, 0)
        if sequence < mark:
            lsn, count, sequence = lsn + mark - sequence, count - (mark - sequence), mark
            if count <= 0:
                return
        if not runs:
            self._runs[client] = [ClientRun(sequence, count, lsn)]
            return
        last = runs[-1]
        end = last.sequence + last.count
        if sequence >= end:
            if sequence == end and lsn == last.lsn + last.count and not last.gsn:
                runs[-1] = ClientRun(last.sequence, last.count + count, last.lsn)
            else:
                runs.append(ClientRun(sequence, count, lsn))
            return
        at = bisect_right(runs, sequence, key=_sequence_of)
        before = runs[at - 1] if at else ClientRun(0, 0, 0)
        if before.sequence + before.count > sequence or (at < len(runs) and runs[at].sequence < sequence + count):
            raise ProtocolViolation(f"SCA-13: record {sequence} of client {client} is in the segment twice")
        runs.insert(at, ClientRun(sequence, count, lsn))

    def find(self, client: int, sequence: int, count: int) -> list[ClientRun]:
        """Look up sequence numbers. Returns runs, in order, that cover exactly those at or above the mark."""
        end = sequence + count
        sequence = max(sequence, self._marks.get(client, 0))
        runs = self._runs.get(client, [])
        at = max(0, bisect_right(runs, sequence, key=_sequence_of) - 1)
        found = []
        while sequence < end:
            run = runs[at] if at < len(runs) else None
            if run is None or run.sequence >= end:
                found.append(ClientRun(sequence, end - sequence, 0))
                break
            if run.sequence > sequence:
                found.append(ClientRun(sequence, run.sequence - sequence, 0))
                sequence = run.sequence
            stop = min(end, run.sequence + run.count)
            if stop > sequence:
                found.append(run.part(sequence, stop))
                sequence = stop
            at += 1
        return found

    def fix(self, before: int, gsns_of: Callable[[int, int], Iterable[tuple[int, int]]]) -> None:
        """Write the GSNs into the runs of LSNs below `before`; `gsns_of(first, end)` gives (first GSN, count) pairs."""
        for client, runs in self._runs.items():
            if all(run.gsn or run.lsn >= before for run in runs):
                continue
            fixed = []
            for run in runs:
                if run.gsn or run.lsn >= before:
                    fixed.append(run)
                    continue
                sequence, end = run.sequence, run.sequence + run.count
                for gsn, count in gsns_of(run.lsn, min(run.lsn + run.count, before)):
                    fixed.append(ClientRun(sequence, count, run.lsn + sequence - run.sequence, gsn))
                    sequence += count
                if sequence < end:
                    fixed.append(run.part(sequence, end))
            self._runs[client] = fixed

    # ---- for other members

    def before(self, lsn: int) -> Iterator[tuple[int, int, tuple[Mark, ...], tuple[RunRow, ...]]]:
        """The marks, and the runs of records before `lsn`, which a copy that begins there does not contain: in parts of
        a message each, with their first client and the one that follows, 0 if none does."""
        first, marks, runs = 0, list[Mark](), list[RunRow]()
        for client in sorted(self._marks.keys() | self._runs.keys()):
            if len(marks) + len(runs) >= PART_ROWS:
                yield first, client, tuple(marks), tuple(runs)
                first, marks, runs = client, [], []
            if client in self._marks:
                marks.append((client, self._marks[client]))
            runs += [(client, *_before(run, lsn)) for run in self._runs.get(client, ()) if run.lsn < lsn]
        yield first, 0, tuple(marks), tuple(runs)

    def merge(self, marks: Iterable[Mark], runs: Iterable[RunRow]) -> None:
        """Add what `before` of another member returned. Runs that are present already are skipped."""
        for client, settled in marks:
            self.settle(client, settled)
        for client, *fields in runs:
            run = ClientRun(*fields)
            for part in self.find(client, run.sequence, run.count):
                if not part.lsn:
                    of_client = self._runs.setdefault(client, [])
                    of_client.append(run.part(part.sequence, part.sequence + part.count))
                    of_client.sort(key=_sequence_of)

    # ---- for checkpoints

    def state(self, before: int) -> list[Any]:
        """The sessions as JSON, without records from LSN `before` on, which may yet be lost."""
        runs = []
        for client, of_client in self._runs.items():
            runs.append([client, [_before(run, before) for run in of_client if run.lsn < before]])
        return [list(self._marks.items()), runs]

    @classmethod
    def restored(cls, state: list[Any], before: int) -> ClientSessions:
        """The inverse of `state`, for a journal that ends at `before`."""
        sessions = cls()
        marks, runs = state
        sessions._marks = dict(marks)
        for client, of_client in runs:
            kept = [_before(ClientRun(*run), before) for run in of_client if run[2] < before]
            if kept:
                sessions._runs[client] = kept
        return sessions

    def check(self, client: int) -> None:
        """SCA-13, for the newest runs of a client. Raises AssertionError."""
        runs = self._runs.get(client, [])
        if len(runs) > 1:
            assert runs[-2].sequence + runs[-2].count <= runs[-1].sequence, "SCA-13: a record is in the segment twice"
