"""The ledger: transaction id -> GSN of its first commit record, and the GSNs of commit records that were not applied.

A client numbers its transactions one after another, and without other writers they get consecutive GSNs, so the index
consists of runs: the records of `count` transactions from `sequence` on have the GSNs `gsn`, `gsn` + 1, ...
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct

from sortedcontainers import SortedDict

_RUN_KEY = Struct(">QQ")
_RUN = Struct("<QQ")
_GSN = Struct(">Q")
_CLIENT = Struct(">Q")
_BOUND = Struct("<Q")

_LAST_BOUND = (1 << 64) - 1

MAX_STRETCHES = 256
"""Maximum number of stretches of sequence numbers that a client had used before a compaction. More are rare, because
consecutive numbers join. Above it the lowest gaps are closed: a late transaction with a number in such a gap is refused
as a duplicate."""

ABORTED_ROWS = b"a"
RUN_ROWS = b"t"
FORGOTTEN_ROWS = b"s"
ROW_KEY_BYTES = {ABORTED_ROWS: 1 + _GSN.size, RUN_ROWS: 1 + _RUN_KEY.size, FORGOTTEN_ROWS: 1 + _CLIENT.size}
StateRow = tuple[bytes, bytes | None]
Stretches = tuple[int, ...]
"""Sequence numbers as ordered bounds: first, end, first, end, ... An end is the first unused number."""


def aborted_of(rows: Iterable[tuple[bytes, bytes]]) -> list[int]:
    """The GSNs of commit records that were not applied, from rows of `Ledger.rows`."""
    return [_GSN.unpack(row[1:])[0] for row, _ in rows if row[:1] == ABORTED_ROWS]


def joined(stretches: Iterable[tuple[int, int]]) -> Stretches:
    """The bounds of disjoint (first, end) pairs in any order; adjacent pairs are joined."""
    bounds: list[int] = []
    for first, end in sorted(stretches):
        if bounds and bounds[-1] == first:
            bounds[-1] = end
        else:
            bounds += (first, end)
    if len(bounds) > 2 * MAX_STRETCHES:
        del bounds[1 : 1 - 2 * MAX_STRETCHES]
    return tuple(bounds)


class ClientTransactions:
    """The transactions of one client, by sequence number. Those in the stretches `forgotten` were compacted away.

    A record of `next_sequence` at `next_gsn` would lengthen the last run.
    """

    __slots__ = (
        "counts", "forgotten", "gsns", "last", "next_gsn", "next_sequence", "saved", "saved_forgotten", "sequences"
    )  # fmt: skip

    def __init__(self) -> None:
        self.sequences, self.gsns, self.counts = array("Q"), array("Q"), array("Q")
        self.last = 0
        self.forgotten = self.saved_forgotten = Stretches()
        self.next_sequence = self.next_gsn = -1
        self.saved = 0

    def close_run(self) -> None:
        """Write the length of the last run into `counts`."""
        if self.next_sequence >= 0:
            self.counts[-1] = self.next_sequence - self.sequences[-1]

    def add(self, sequence: int, gsn: int) -> None:
        """Begin a run with this transaction."""
        self.close_run()
        at = bisect_right(self.sequences, sequence)
        self.sequences.insert(at, sequence)
        self.gsns.insert(at, gsn)
        self.counts.insert(at, 1)
        self.saved = min(self.saved, max(at - 1, 0))
        if sequence >= self.last:  # no later number is used, not even by a record that was compacted away
            self.next_sequence, self.next_gsn = sequence + 1, gsn + 1
        else:
            self.next_sequence = self.next_gsn = -1
        self.last = max(self.last, sequence)

    def has_forgotten(self, sequence: int) -> bool:
        """Whether a transaction was compacted away."""
        return bisect_right(self.forgotten, sequence) % 2 == 1

    def find(self, sequence: int) -> int | None:
        """The GSN of a transaction, None if it is not in the index."""
        self.close_run()
        at = bisect_right(self.sequences, sequence) - 1
        if at >= 0 and sequence < self.sequences[at] + self.counts[at]:
            return self.gsns[at] + sequence - self.sequences[at]
        return None


def _forgotten_row(client: int, stretches: Stretches) -> tuple[bytes, bytes]:
    return FORGOTTEN_ROWS + _CLIENT.pack(client), b"".join(map(_BOUND.pack, stretches))


class Ledger:
    """Invariant LED-1: an id has one GSN, that of its first commit record in the log."""

    def __init__(self) -> None:
        self.sessions: SortedDict[int, ClientTransactions] = SortedDict()
        self.aborted = array("Q")
        self._saved_aborted = 0
        self._dropped: list[bytes] = []

    def is_new(self, client: int, sequence: int, gsn: int) -> bool:
        """Note the commit record of a transaction at `gsn`. Returns False if the transaction has one already, or may
        have had one before a compaction."""
        session = self.sessions.get(client)
        if session is None:
            session = self.sessions[client] = ClientTransactions()
        if sequence == session.next_sequence and gsn == session.next_gsn:
            session.next_sequence = sequence + 1
            session.next_gsn = gsn + 1
            session.last = sequence
            return True
        if sequence <= session.last and (session.has_forgotten(sequence) or session.find(sequence) is not None):
            return False
        session.add(sequence, gsn)
        return True

    def used_again(self, client: int, sequence: int, gsn: int, count: int) -> list[int]:
        """As `is_new` for `count` transactions with consecutive numbers and GSNs; returns the GSNs of those not new."""
        again = []
        for ahead in range(count):
            session = self.sessions.get(client)
            if session is not None and (session.next_sequence, session.next_gsn) == (sequence + ahead, gsn + ahead):
                session.next_sequence, session.next_gsn = sequence + count, gsn + count
                session.last = sequence + count - 1
                break
            if not self.is_new(client, sequence + ahead, gsn + ahead):
                again.append(gsn + ahead)
        return again

    def find(self, client: int, sequence: int) -> int | None:
        """The GSN of the first commit record of a transaction, None if the log retains none."""
        session = self.sessions.get(client)
        return None if session is None else session.find(sequence)

    def id_at(self, gsn: int) -> tuple[int, int] | None:
        """(client, sequence number) of the transaction whose commit record is at `gsn`."""
        for client, session in self.sessions.items():
            session.close_run()
            for sequence, first, count in zip(session.sequences, session.gsns, session.counts, strict=True):
                if first <= gsn < first + count:
                    return client, sequence + gsn - first
        return None

    def abort(self, gsn: int) -> None:
        """Note that the commit record at `gsn`, the newest one, was not applied."""
        self.aborted.append(gsn)

    def is_aborted(self, gsn: int) -> bool:
        """Whether the commit record at `gsn` was not applied."""
        aborted = self.aborted  # a trim in another thread puts another array in its place
        at = bisect_left(aborted, gsn)
        return at < len(aborted) and aborted[at] == gsn

    def aborted_between(self, after: int, through: int) -> array[int]:
        """The aborted GSNs with `after` < gsn <= `through`."""
        aborted = self.aborted
        return aborted[bisect_right(aborted, after) : bisect_right(aborted, through)]

    def used_before(self, gsn: int) -> dict[int, Stretches]:
        """The sequence numbers that each client has used before `gsn`, for `trim`."""
        used = {}
        for client, session in self.sessions.items():
            session.close_run()
            before = list(zip(session.forgotten[::2], session.forgotten[1::2], strict=True))
            for sequence, first, count in zip(session.sequences, session.gsns, session.counts, strict=True):
                if first < gsn:
                    before.append((sequence, min(sequence + min(count, gsn - first), _LAST_BOUND)))
            if before:
                used[client] = joined(before)
        return used

    def trim(self, gsn: int, forgotten: Mapping[int, Stretches]) -> None:
        """Drop the transactions before `gsn`. The sequence numbers `forgotten` of each client remain used.

        A record behind `gsn` with such a number came a second time. A ledger that was built from a trimmed log took it
        for the first, and drops it here.
        """
        for client, stretches in forgotten.items():
            session = self.sessions.setdefault(client, ClientTransactions())
            session.forgotten = stretches
            session.last = max(session.last, stretches[-1] - 1)
        for client, session in self.sessions.items():
            session.close_run()
            kept = ClientTransactions()
            for sequence, first, count in zip(session.sequences, session.gsns, session.counts, strict=True):
                at, end = sequence + min(count, max(0, gsn - first)), sequence + count
                if at > sequence or session.has_forgotten(sequence):
                    self._dropped.append(RUN_ROWS + _RUN_KEY.pack(client, sequence))
                while at < end:  # pieces that are not forgotten
                    bound = bisect_right(session.forgotten, at)
                    stop = min(end, session.forgotten[bound]) if bound < len(session.forgotten) else end
                    if bound % 2 == 0:
                        kept.sequences.append(at)
                        kept.gsns.append(first + at - sequence)
                        kept.counts.append(stop - at)
                    at = stop
            # The record that trims takes the next GSN: no run continues after it.
            session.next_sequence = session.next_gsn = -1
            session.sequences, session.gsns, session.counts = kept.sequences, kept.gsns, kept.counts
            session.saved = 0
        dead = bisect_left(self.aborted, gsn)
        self._dropped += [ABORTED_ROWS + _GSN.pack(aborted) for aborted in self.aborted[:dead]]
        self.aborted = self.aborted[dead:]
        self._saved_aborted = max(self._saved_aborted - dead, 0)

    def equals(self, other: Ledger) -> bool:
        """Whether both have the same content."""
        return self.aborted == other.aborted and self._runs() == other._runs()

    def _runs(self) -> dict[int, tuple[Stretches, list[tuple[int, int, int]]]]:
        runs = {}
        for client, session in self.sessions.items():
            runs[client] = session.forgotten, list(self._joined(session))
        return runs

    def _joined(self, session: ClientTransactions, after: int = 0) -> Iterator[tuple[int, int, int]]:
        """(sequence, gsn, count) of its runs, as few as can be, from the one with the number `after` on."""
        session.close_run()
        sequences, gsns, counts = session.sequences, session.gsns, session.counts
        last: tuple[int, int, int] | None = None
        for at in range(max(bisect_right(sequences, after) - 1, 0), len(sequences)):
            sequence, gsn, count = sequences[at], gsns[at], counts[at]
            if last is not None and (sequence, gsn) == (last[0] + last[2], last[1] + last[2]):
                last = last[0], last[1], last[2] + count
            else:
                if last is not None:
                    yield last
                last = sequence, gsn, count
        if last is not None:
            yield last

    # ---- in a checkpoint

    def rows(self, after: bytes, through: int) -> Iterator[tuple[bytes, bytes]]:
        """The content for records up to the GSN `through`, as ordered rows for a checkpoint, from the row after
        `after`. Ledgers that are equal have the same rows, whatever their runs."""
        kind = after[:1]
        if kind <= ABORTED_ROWS:
            first = _GSN.unpack(after[1:])[0] if after[1:] else 0
            for gsn in self.aborted_between(first, through):
                yield ABORTED_ROWS + _GSN.pack(gsn), b""
        if kind <= FORGOTTEN_ROWS:
            first = _CLIENT.unpack(after[1:])[0] + 1 if kind == FORGOTTEN_ROWS else 0
            for client in self.sessions.irange(first):
                if self.sessions[client].forgotten:
                    yield _forgotten_row(client, self.sessions[client].forgotten)
        at_client, at_sequence = _RUN_KEY.unpack(after[1:]) if kind == RUN_ROWS else (0, -1)
        for client in self.sessions.irange(at_client):
            first = max(at_sequence, 0) if client == at_client else 0
            for sequence, gsn, count in self._joined(self.sessions[client], first):
                if gsn <= through and (client, sequence) > (at_client, at_sequence):
                    yield RUN_ROWS + _RUN_KEY.pack(client, sequence), _RUN.pack(gsn, min(count, through - gsn + 1))

    def unsaved(self) -> Iterator[StateRow]:
        """The changes since the last call, as rows for a checkpoint; None: remove."""
        for row in self._dropped:
            yield row, None
        self._dropped = []
        for gsn in self.aborted[self._saved_aborted :]:
            yield ABORTED_ROWS + _GSN.pack(gsn), b""
        self._saved_aborted = len(self.aborted)
        for client, session in self.sessions.items():
            session.close_run()
            for at in range(session.saved, len(session.sequences)):
                key = RUN_ROWS + _RUN_KEY.pack(client, session.sequences[at])
                yield key, _RUN.pack(session.gsns[at], session.counts[at])
            session.saved = max(len(session.sequences) - 1, 0)
            if session.forgotten != session.saved_forgotten:
                session.saved_forgotten = session.forgotten
                yield _forgotten_row(client, session.forgotten)

    def restore(self, state: Callable[[bytes], list[tuple[bytes, bytes]]]) -> None:
        """The inverse of `unsaved`; `state` returns the rows under a prefix, without the prefix."""
        self.aborted = array("Q", (_GSN.unpack(key)[0] for key, _ in state(ABORTED_ROWS)))
        self._saved_aborted = len(self.aborted)
        for key, raw in state(FORGOTTEN_ROWS):
            session = self.sessions.setdefault(_CLIENT.unpack(key)[0], ClientTransactions())
            if len(raw) == _BOUND.size:  # the format of versions that kept the last number only
                session.forgotten = 0, _BOUND.unpack(raw)[0] + 1
            else:
                session.forgotten = tuple([bound for (bound,) in _BOUND.iter_unpack(raw)])
            session.last = session.forgotten[-1] - 1
            session.saved_forgotten = session.forgotten
        for key, raw in state(RUN_ROWS):
            client, sequence = _RUN_KEY.unpack(key)
            gsn, count = _RUN.unpack(raw)
            session = self.sessions.setdefault(client, ClientTransactions())
            session.sequences.append(sequence)
            session.gsns.append(gsn)
            session.counts.append(count)
            if sequence + count > session.last:
                session.last = sequence + count - 1
                session.next_sequence, session.next_gsn = sequence + count, gsn + count
            session.saved = len(session.sequences) - 1
