"""The transaction coordinator (dissertation section 4.3): applies the log in order and decides its commit records.

A deterministic machine without I/O: its state is a function of the log prefix delivered to it, so any number of
coordinators agree, a restart replays, and an auditor can decide everything again.

Invariants:

TXN-1  Records are delivered once each, in log order.
TXN-2  A commit record is decided from the prefix before it and nothing else.
TXN-3  Of the commit records of one transaction at most the first is applied.
TXN-4  `floor` and `decided_through` only grow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from struct import Struct
from typing import NamedTuple

from logdb.errors import NotANumber
from logdb.log.contract import LogRecord
from logdb.store.folds import folded_commit
from logdb.store.key_map import KeyMap
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    DECISION,
    PIN,
    RELOCATION,
    VALUE,
    Commit,
    Decision,
    DeletedRange,
    Place,
    TxnId,
    Value,
    decode_commit,
    decode_compaction,
    decode_decision,
    decode_deleted_range,
    decode_pin,
    decode_relocation,
    encode_deleted_range,
)
from logdb.txn.ledger import Ledger, StateRow, Stretches
from logdb.txn.validation import COMMITTED, Reason, Verdict, validate
from logdb.txn.verdict_counts import VerdictCounts

_U64 = Struct("<Q")
_PIN_ROWS, _FLOOR_ROW, _DECIDED_ROW, _COMPACTED_ROW, _RELOCATED_ROW = b"p", b"f", b"d", b"c", b"m"
_DELETION_ROWS = b"g"
_DELETION_KEY = Struct(">QI")


class Status(Enum):
    """How a transaction ended, as far as the log shows: COMMITTED, ABORTED, NOT_FOUND or FORGOTTEN."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    NOT_FOUND = "not found"
    """The log has no commit record of it: it has not committed, and will not unless its client sends it again."""
    FORGOTTEN = "forgotten"
    """Its record was compacted away."""


class Outcome(NamedTuple):
    """How a transaction ended: `status`, and the `version` of its commit record, 0 if the log has none."""

    status: Status
    version: int

    @property
    def committed(self) -> bool:
        """Whether the transaction's writes were applied."""
        return self.status is Status.COMMITTED


def floor_of(head: Iterable[tuple[bytes, bytes]]) -> int:
    """The floor in rows of `Coordinator.marks`."""
    return next((int(_U64.unpack(raw)[0]) for row, raw in head if row == _FLOOR_ROW), 0)


def deletions_of(head: Iterable[tuple[bytes, bytes]]) -> list[DeletedRange]:
    """The range deletes in rows of `Coordinator.deletion_rows`, in order."""
    return [decode_deleted_range(raw)[0] for row, raw in head if row.startswith(_DELETION_ROWS)]


def _is_before(value: Value, reach: int) -> bool:
    return isinstance(value, Place) and value.gsn < reach


class UnknownRecord(ValueError):
    """A record of a kind that this version does not know."""


class Coordinator:
    """Decides over `key_map`.

    `applied`: the GSN of the last record delivered. `floor`: the oldest version that can be read. `relocated_from`: the
    first copy of a compaction that has not ended, 0 if there is none. `reach`: in a cluster, a compaction may trim the
    records before this GSN, so a transaction that refers to a large value there aborts. `counts`: of the verdicts that
    this process has decided, no part of the state.
    """

    def __init__(self, key_map: KeyMap) -> None:
        self.map = key_map
        self.ledger = Ledger()
        self.counts = VerdictCounts()
        self.applied = 0
        self.floor = 0
        self.reach = 0
        self.compacted_at = self.relocated_from = 0
        self.decided_through = 0
        self.pins: dict[str, int] = {}
        self._saved_pins: set[str] = set()
        self._deletions_saved_to = 0
        self._dropped_deletions: list[bytes] = []
        self._floors: list[tuple[int, int]] = []
        self._trusted_aborted: frozenset[int] = frozenset()
        self._trusted_through = 0

    # ---- delivering

    def deliver(self, gsn: int, commit: Commit) -> Verdict:
        """Decide the commit record at `gsn` and apply its writes if it committed."""
        assert gsn > self.applied, f"TXN-1: {gsn} after {self.applied}"
        client, sequence, writes, _, label, reads, ranges, conditions, deletes, appended, folds = commit
        assert not appended, "the keys of appends are made before"
        if gsn <= self._trusted_through:
            verdict = self._trusted_verdict(gsn, commit)
        elif not self.ledger.is_new(client, sequence, gsn):
            verdict = Verdict(Reason.DUPLICATE, first=self.ledger.find(client, sequence) or 0)
        elif reads or ranges or conditions:
            verdict = validate(commit, gsn, self.floor, self.map)
        else:
            verdict = COMMITTED
            for value in writes.values():
                if value.__class__ is Place:
                    verdict = validate(commit, gsn, self.floor, self.map)
                    break
        if self.reach and verdict is COMMITTED and any(_is_before(value, self.reach) for value in writes.values()):
            verdict = Verdict(Reason.TOO_OLD)
        if folds and verdict is COMMITTED:
            try:
                writes = folded_commit(commit, lambda key: self.map.value(key, gsn - 1)).writes
            except NotANumber as error:
                verdict = Verdict(Reason.NOT_A_NUMBER, error.key)
        if verdict is COMMITTED:
            self.map.apply(gsn, writes, deletes)
            self.counts.commits += 1
        else:
            self.ledger.abort(gsn)
            self.counts.add_abort(verdict.reason, label)
        self.applied = gsn
        return verdict

    def deliver_other(self, gsn: int, tag: int, payload: bytes) -> None:
        """Apply a record of another kind. Raises UnknownRecord, MalformedRecord."""
        assert gsn > self.applied, f"TXN-1: {gsn} after {self.applied}"
        if tag == DECISION:
            self.decided_through = max(self.decided_through, decode_decision(payload).through)
        elif tag == RELOCATION:
            self.map.relocate(gsn, decode_relocation(payload))
            self.relocated_from = self.relocated_from or gsn
        elif tag == COMPACTION:
            floor, used, pins, deletes = decode_compaction(payload)
            self.raise_floor(floor, used)
            self.restate_deletions(deletes)
            self.pins, self.compacted_at, self.relocated_from = dict(pins), gsn, 0
            self._floors.append((gsn, floor))
        elif tag == PIN:
            name, version = decode_pin(payload)
            if not version:
                self.pins.pop(name, None)
            elif version >= self.floor:  # else a compaction was ordered before the pin, and the name keeps what it has
                self.pins[name] = version
        elif tag != VALUE:
            raise UnknownRecord(f"record {gsn} is of kind {tag}, which this LogDB does not know")
        self.applied = gsn

    def raise_floor(self, floor: int, used: Mapping[int, Stretches]) -> None:
        """From here on no version before `floor` is read or committed upon. The ledger forgets the transactions before
        it, except the sequence numbers `used` by each client."""
        assert floor >= self.floor, f"TXN-4: floor {floor} after {self.floor}"
        self.floor = floor
        self.ledger.trim(floor, used)

    def floor_before(self, gsn: int) -> int:
        """The floor that the last compaction before `gsn` has set; 0 if this process does not know that compaction."""
        at = bisect_left(self._floors, (gsn, 0))
        return self._floors[at - 1][1] if at else 0

    def restate_deletions(self, deletes: Sequence[DeletedRange]) -> None:
        """Retain range deletes of the trimmed prefix, of which copies behind it may be older."""
        if deletes:
            self.map.add_deletions(deletes)
            self._deletions_saved_to = min(self._deletions_saved_to, deletes[0].version - 1)

    def drop_deletions(self, before: int, kept: Collection[DeletedRange] = ()) -> None:
        """Drop the range deletes before a version but those `kept`: neither the map nor the log has anything older that
        they delete."""
        del self._floors[: max(bisect_left(self._floors, (before, 0)) - 1, 0)]

        def is_dropped(deleted: DeletedRange) -> bool:
            return deleted.version < before and deleted not in kept

        for row, deleted in self._deletion_rows(0, before - 1):
            if is_dropped(deleted):
                self._dropped_deletions.append(row)
        self.map.drop_deletions(is_dropped)

    def _deletion_rows(self, after: int, through: int) -> Iterator[tuple[bytes, DeletedRange]]:
        """(key of its row in a checkpoint, range delete) of versions from behind `after` to `through`."""
        last = ordinal = 0
        for deleted in () if self.map.deletions is None else self.map.deletions.between(after, through):
            ordinal = ordinal + 1 if deleted.version == last else 0
            last = deleted.version
            yield _DELETION_ROWS + _DELETION_KEY.pack(last, ordinal), deleted

    def deliver_copy(self, gsn: int, tag: int, payload: bytes) -> None:
        """Pass over a record of a compaction under way, which writes the places of its copies to the map itself."""
        assert gsn > self.applied, f"TXN-1: {gsn} after {self.applied}"
        if tag == RELOCATION:
            self.relocated_from = self.relocated_from or gsn
        self.applied = gsn

    def pass_to(self, gsn: int) -> None:
        """Everything up to `gsn` was delivered: the records between are of kinds without effect here, as VALUE."""
        assert gsn >= self.applied, f"TXN-1: {gsn} after {self.applied}"
        self.applied = gsn

    def replay(self, records: Iterable[LogRecord]) -> None:
        """Deliver records in the order of the log."""
        deliver = self.deliver
        for gsn, _, tag, payload in records:
            if tag == COMMIT:
                deliver(gsn, decode_commit(payload, gsn))
            else:
                self.deliver_other(gsn, tag, payload)

    def preload_decisions(self, decisions: Iterable[Decision]) -> None:
        """Trust these decisions instead of deciding again: for a log whose prefix was trimmed."""
        aborted: set[int] = set()
        for decision in decisions:
            aborted.update(decision.aborted)
            self._trusted_through = max(self._trusted_through, decision.through)
        self._trusted_aborted = frozenset(aborted)

    def undeclared(self) -> Decision:
        """The decision record for all that was decided since the last one."""
        aborted = self.ledger.aborted_between(self.decided_through, self.applied)
        return Decision(self.decided_through, self.applied, aborted)

    # ---- queries

    def outcome(self, txn_id: TxnId) -> Outcome:
        """How a transaction ended."""
        gsn = self.ledger.find(*txn_id)
        if gsn is not None:
            return Outcome(Status.ABORTED if self.ledger.is_aborted(gsn) else Status.COMMITTED, gsn)
        session = self.ledger.sessions.get(txn_id.client)
        if session is not None and session.has_forgotten(txn_id.sequence):
            return Outcome(Status.FORGOTTEN, 0)
        return Outcome(Status.NOT_FOUND, 0)

    def oldest_needed(self, floor: int) -> int:
        """The floor that a compaction to `floor` may raise to: that of the oldest pin, if one is older."""
        return min([floor, *self.pins.values()])

    # ---- in a checkpoint

    def unsaved(self) -> list[StateRow]:
        """The changes of the state outside the map since the last call, as rows for a checkpoint; None: remove."""
        rows: list[StateRow] = list(self.ledger.unsaved())
        saved_pins = self._saved_pins - self.pins.keys()
        rows += [(_PIN_ROWS + name.encode(), None) for name in saved_pins]
        self._saved_pins = set(self.pins)
        rows += [(row, None) for row in self._dropped_deletions]
        self._dropped_deletions = []
        added = self._deletion_rows(self._deletions_saved_to, self.applied)
        rows += [(row, encode_deleted_range(deleted)) for row, deleted in added]
        self._deletions_saved_to = self.applied
        return [*rows, *self.marks(), (_RELOCATED_ROW, _U64.pack(self.relocated_from))]

    def deletion_rows(self, after: bytes, through: int) -> Iterator[tuple[bytes, bytes]]:
        """The range deletes that a read at the floor or later can see, up to a version, as rows for a checkpoint from
        the row after `after`."""
        version = int.from_bytes(after[len(_DELETION_ROWS) : len(_DELETION_ROWS) + 8])
        for row, deleted in self._deletion_rows(max(self.floor, version - 1), through):
            if row > after:
                yield row, encode_deleted_range(deleted)

    def marks(self) -> list[tuple[bytes, bytes]]:
        """The rest of the state outside the ledger and the map, as rows for a checkpoint."""
        return [
            *((_PIN_ROWS + name.encode(), _U64.pack(version)) for name, version in sorted(self.pins.items())),
            (_FLOOR_ROW, _U64.pack(self.floor)),
            (_DECIDED_ROW, _U64.pack(self.decided_through)),
            (_COMPACTED_ROW, _U64.pack(self.compacted_at)),
        ]

    def restore(self, covers: int, state: Callable[[bytes], list[tuple[bytes, bytes]]]) -> None:
        """Begin from a checkpoint that covers the log up to `covers`; `state` returns its rows under a prefix."""
        self.ledger.restore(state)
        self.pins = {key.decode(): _U64.unpack(raw)[0] for key, raw in state(_PIN_ROWS)}
        self._saved_pins = set(self.pins)
        self.map.add_deletions([decode_deleted_range(raw)[0] for _, raw in state(_DELETION_ROWS)])
        self._deletions_saved_to = covers
        self.floor, self.decided_through, self.compacted_at, self.relocated_from = (
            next((int(_U64.unpack(raw)[0]) for _, raw in state(row)), 0)
            for row in (_FLOOR_ROW, _DECIDED_ROW, _COMPACTED_ROW, _RELOCATED_ROW)
        )
        self._floors = [(self.compacted_at, self.floor)]
        self.applied = covers

    def check_invariants(self) -> None:
        """TXN-4 and those of the map; for tests and simulations."""
        self.check_marks()
        self.map.check_invariants()

    def check_marks(self) -> None:
        """TXN-4, in constant time."""
        assert self.decided_through <= self.applied, "TXN-4"
        assert self.floor <= self.applied, "TXN-4"

    def _trusted_verdict(self, gsn: int, commit: Commit) -> Verdict:
        self.ledger.is_new(commit.client, commit.sequence, gsn)
        return Verdict(Reason.CONFLICT) if gsn in self._trusted_aborted else COMMITTED
