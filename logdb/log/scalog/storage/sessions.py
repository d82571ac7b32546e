"""What each client has appended to one segment, so that nothing is appended to it twice (PROTOCOL.md, Sessions).

A client numbers its records one after another and a batch gets consecutive LSNs, so a *run* says much in little: the
sequence numbers from one on are at the LSNs from another on. When the client has settled numbers, runs go; what is left
of a client that has nothing under way is one integer, its mark.

A trim takes the chain's knowledge of old GSNs, so before it runs of trimmed records change from LSNs to GSNs (`fix`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

from logdb.cores.effects import ProtocolViolation


class ClientRun(NamedTuple):
    """The records `sequence` and following of a client, `count` of them, are in the segment from `lsn` on.

    `lsn` = 0: they are not. `gsn` > 0: they have the GSNs from there on, though the chain does not know them any more;
    -1: they had some that nobody here knows.
    """

    sequence: int
    count: int  # type: ignore[assignment]  # a tuple has a method of that name, which nobody calls
    lsn: int
    gsn: int = 0

    def part(self, first: int, end: int) -> ClientRun:
        """The records `first` to `end` - 1 of it, by sequence numbers."""
        skipped = first - self.sequence
        lsn = self.lsn and self.lsn + skipped
        return ClientRun(first, end - first, lsn, self.gsn + skipped if self.gsn > 0 else self.gsn)


_sequence_of = itemgetter(0)


def _before(run: ClientRun, lsn: int) -> ClientRun:
    return run.part(run.sequence, run.sequence + min(run.count, lsn - run.lsn))


class ClientSessions:
    """The clients of one segment. Runs of a client are in the order of its numbers, and none overlap (SCA-13)."""

    def __init__(self) -> None:
        self._runs: dict[int, list[ClientRun]] = {}
        self._marks: dict[int, int] = {}
        self.news: dict[int, int] = {}

    def mark(self, client: int) -> int:
        """Everything below has been settled by the client."""
        return self._marks.get(client, 0)

    def settle(self, client: int, settled: int) -> None:
        """The client will never again ask for a number below `settled`."""
        if settled <= self._marks.get(client, 0):
            return
        self._marks[client] = self.news[client] = settled
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
        """Whether everything from `sequence` on has never been seen: the usual case, told fast."""
        runs = self._runs.get(client)
        if runs:
            last = runs[-1]
            return sequence >= last.sequence + last.count
        return sequence >= self._marks.get(client, 0)

    def add(self, client: int, sequence: int, count: int, lsn: int) -> None:
        """The records are in the segment, from `lsn` on. Raises ProtocolViolation if some of them were before."""
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
        """What is known of these numbers: runs that cover exactly those at or above the mark, in their order."""
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
        """Runs of LSNs below `before` keep their GSNs themselves from now on: `gsns_of(first, end)` still knows."""
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

    # ---- as another member gets it

    def known_before(self, lsn: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int, int, int, int], ...]]:
        """The marks, and the runs of records before `lsn`: what a copy that begins there cannot know by itself."""
        runs = [
            (client, *_before(run, lsn))
            for client, of_client in self._runs.items()
            for run in of_client
            if run.lsn < lsn
        ]
        return tuple(self._marks.items()), tuple(runs)

    def merge(self, marks: Iterable[tuple[int, int]], runs: Iterable[tuple[int, int, int, int, int]]) -> None:
        """The reverse; what is known here already may come again."""
        for client, settled in marks:
            self.settle(client, settled)
        for client, *fields in runs:
            run = ClientRun(*fields)
            for part in self.find(client, run.sequence, run.count):
                if not part.lsn:
                    of_client = self._runs.setdefault(client, [])
                    of_client.append(run.part(part.sequence, part.sequence + part.count))
                    of_client.sort(key=_sequence_of)

    # ---- as a checkpoint keeps it

    def state(self, before: int) -> list[Any]:
        """All of it, for JSON, but for records from LSN `before` on: those may yet be lost."""
        runs = []
        for client, of_client in self._runs.items():
            runs.append([client, [_before(run, before) for run in of_client if run.lsn < before]])
        return [list(self._marks.items()), runs]

    @classmethod
    def restored(cls, state: list[Any], before: int) -> ClientSessions:
        """The reverse, for a journal that ends at `before`."""
        sessions = cls()
        marks, runs = state
        sessions._marks = dict(marks)
        for client, of_client in runs:
            kept = [_before(ClientRun(*run), before) for run in of_client if run[2] < before]
            if kept:
                sessions._runs[client] = kept
        return sessions

    def check(self, client: int) -> None:
        """SCA-13, of the newest runs of a client."""
        runs = self._runs.get(client, [])
        if len(runs) > 1:
            assert runs[-2].sequence + runs[-2].count <= runs[-1].sequence, "SCA-13: a record is in the segment twice"
