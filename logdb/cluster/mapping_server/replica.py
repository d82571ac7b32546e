"""The deterministic state machine of a mapping server: a function of the log (DBS-1).

The coordinator decides, and the map has the committed versions. The replica adds the reasons of recent decisions, and
the state of compactions and placements. All of it follows from the log's prefix, so all servers give the same answers.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from struct import Struct
from typing import Any, Final

from logdb.cluster.compaction.cold_records import Attached, ColdState, decode_cold, first_state
from logdb.cluster.compaction.records import (
    decode_beginning,
    decode_ending,
    decode_part,
    decode_recent,
    encode_recent,
)
from logdb.cluster.messages import Cursor as At
from logdb.cluster.messages import Decided, HeadRows, LedgerRows, MapRow, MapRows, Part, RecentRow, RecentRows, Section
from logdb.cluster.placement import joined
from logdb.cluster.summaries import decode_summary
from logdb.cores.effects import ProtocolViolation
from logdb.log.contract import Batch, LogRecord
from logdb.store.key_map import KeyMap
from logdb.store.limits import MAX_TRANSACTION_BYTES
from logdb.store.overlay import Overlay
from logdb.store.range_deletions import RangeIndex
from logdb.store.records import (
    BEGINNING,
    COLD,
    COMMIT,
    COMPACTION,
    DECISION,
    ENDING,
    PART,
    PLACEMENT,
    SUMMARY,
    VALUE,
    Commit,
    MalformedRecord,
    Place,
    TxnId,
    Value,
    decode_commit,
    decode_decision,
    encode_deleted_range,
)
from logdb.store.values import Values
from logdb.txn.coordinator import Coordinator, Status, UnknownRecord
from logdb.txn.ledger import StateRow
from logdb.txn.validation import COMMITTED, Reason, Verdict

FOLLOWED = frozenset(range(1, 256)) - {VALUE}
"""The kinds of records that a server follows: all but large values. A record of an unknown kind stops it."""

KEYS_AT_ONCE = 500
"""Number of keys read from the map at a time."""

KEYS_COMPARED: Final = 100
VERSIONS_COMPARED: Final = 4
"""Number of keys in a comparison, and of the newest versions of each."""

CLEANING_ROW: Final = b"b"
COLD_ROW: Final = b"k"
LOGGED_ROW: Final = b"l"
PLACEMENT_ROW: Final = b"o"
RECENT_ROWS: Final = b"r"
SUMMARY_ROW: Final = b"h"
_CLEANING: Final = Struct("<QQQQQ")
_LOGGED: Final = Struct("<QQQ")
_COMPARED: Final = Struct("<QIi")
_GSN: Final = Struct("<Q")
_SUMMARIZED: Final = Struct("<IQ")
StateRows = list[tuple[bytes, bytes]]
DecidedCommit = tuple[Commit, Verdict]

SLICE_BYTES: Final = 128 << 10
"""Maximum size of a slice of a checkpoint: the source serves other requests between two of them."""

MAX_RECENT_BYTES: Final = 32 << 20
"""Maximum size of the recent decisions, as they are encoded: each has the positions of all conditions that failed."""
ROW_BYTES: Final = 16
"""Size of a row in a message beside its bytes."""

FORGOTTEN = Verdict(Reason.DUPLICATE)
UNEXPLAINED = Verdict(Reason.CONFLICT)
WITHOUT_VALUES: Final = frozenset({Reason.DANGLING, Reason.DUPLICATE})
"""The large values to which such a commit record refers are not before it in the log, or were counted before."""
MAX_LOGGED: Final = 1 << 62
"""More than any log has: earlier releases counted the lengths that forged records state."""


class UnresolvedValues(Values):
    """Values of a map whose readers receive the places of large values, and read them from the log."""

    def __init__(self) -> None:
        super().__init__(self._refuse)

    def load(self, value: Value) -> Any:
        return value

    def _refuse(self, gsn: int, shard: int) -> LogRecord:
        raise AssertionError(f"the map of a mapping server reads no record of the log, so not record {gsn}")


class Replica:
    """The state at `applied`.

    `recent`: GSN -> (label, None) of an applied commit with a label, or (label of the winner, verdict) of one that was
    not applied: the last `keep` of them, or fewer of `MAX_RECENT_BYTES`.

    The compaction under way: `begun` is the GSN of its BEGINNING, 0 if there is none; `begun_by` the client number of
    the server that appended it; `begun_with` the head and the recent decisions just after it; `parts` the number of its
    PARTs and summaries so far. The last one that ended: `ended` is the GSN of its BEGINNING and `ending` of its ENDING;
    the log may be trimmed to `cleaned` (DBS-12).

    Bytes of the log's records, large values included: `logged` since the last compaction began, `logged_before` before
    the BEGINNING of the one under way; `logged_left` the last one left, `freed` it made free.

    `cold`: what the cold tier has, None if there is none.

    `placement`: the PLACEMENT records taken together, b"" if there was none. `summarized`: by shard, the version that
    the SUMMARY records of this placement reach.
    """

    def __init__(self, key_map: KeyMap | None, keep: int) -> None:
        self.coordinator = Coordinator(KeyMap(UnresolvedValues(), None) if key_map is None else key_map)
        self.map = self.coordinator.map
        self.recent: OrderedDict[int, tuple[str, Verdict | None]] = OrderedDict()
        self.begun = self.begun_by = self.parts = self.ended = self.ending = self.cleaned = 0
        self.logged = self.logged_before = self.logged_left = self.freed = 0
        self.cold: ColdState | None = None
        self.placement = b""
        self.summarized: dict[int, int] = {}
        self.begun_with: tuple[StateRows, list[RecentRow]] = [], []
        self._keep = keep
        # By GSN of a commit record that will not be applied: the label of the winner, which `recent` may lack.
        self._winners: dict[int, str] = {}
        self._recent_bytes = 0
        self._unsaved_recent: dict[int, bool] = {}
        self._unsaved_state: StateRows = []
        # The rows of the last key taken in, newest first.
        self._key_rows: list[MapRow] = []
        checkpoint = self.map.checkpoint
        if checkpoint is not None:
            self._restore(checkpoint.covers, checkpoint.state)

    @property
    def applied(self) -> int:
        return self.coordinator.applied

    # ---- the log

    def apply(self, batch: Batch) -> list[DecidedCommit]:
        """Apply the next records of the log. Returns the commits decided by them. Raises ProtocolViolation."""
        coordinator = self.coordinator
        if batch.first != coordinator.applied + 1:
            raise ProtocolViolation(f"DBS-2: records from {batch.first} on came after {coordinator.applied}")
        decided: list[DecidedCommit] = []
        try:
            for record in batch.records:
                gsn, _, tag, payload = record
                self.logged += len(payload)
                if tag == COMMIT:
                    commit = decode_commit(payload, gsn)
                    verdict = coordinator.deliver(gsn, commit)
                    lengths = [value.length for value in commit.writes.values() if value.__class__ is Place]
                    if lengths and verdict.reason not in WITHOUT_VALUES:
                        self.logged += min(sum(lengths), MAX_TRANSACTION_BYTES)
                    if verdict is COMMITTED:
                        if commit.label:
                            self._remember(gsn, commit.label, None)
                    elif verdict.reason is not Reason.DUPLICATE:
                        winner = self._winners.pop(gsn, "") or self.recent.get(verdict.version, ("",))[0]
                        self._remember(gsn, winner, verdict)
                    decided.append((commit, verdict))
                elif tag in (BEGINNING, PART, ENDING):
                    self._apply_compaction(gsn, tag, payload)
                    coordinator.pass_to(gsn)
                elif tag == COLD:
                    self._take_cold(gsn, record.time, payload)
                    coordinator.pass_to(gsn)
                elif tag == PLACEMENT:
                    self._set_placement(joined(self.placement, payload))
                    coordinator.pass_to(gsn)
                elif tag == SUMMARY:
                    self._take_summary(gsn, payload)
                    coordinator.pass_to(gsn)
                else:
                    if tag == DECISION:
                        self._compare(gsn, payload)
                    coordinator.deliver_other(gsn, tag, payload)
                    if tag == COMPACTION and self.map.checkpoint is None:
                        self.map.prune(coordinator.floor)
        except (MalformedRecord, UnknownRecord) as error:
            raise ProtocolViolation(f"this version cannot read a record of the log: {error}") from error
        coordinator.pass_to(batch.end - 1)
        return decided

    def _remember(self, gsn: int, label: str, verdict: Verdict | None) -> None:
        if gsn in self.recent:  # a part of a compaction is there twice
            return
        self.recent[gsn] = label, verdict
        self._recent_bytes += size_of_decision(RecentRow(gsn, label, verdict))
        if self.map.checkpoint is not None:
            self._unsaved_recent[gsn] = True
        while len(self.recent) > self._keep or (self._recent_bytes > MAX_RECENT_BYTES and len(self.recent) > 1):
            dropped, decision = self.recent.popitem(last=False)
            self._recent_bytes -= size_of_decision(RecentRow(dropped, *decision))
            if self.map.checkpoint is not None:
                self._unsaved_recent[dropped] = False

    def _compare(self, gsn: int, payload: bytes) -> None:
        """DBS-8: the writer of a decision record has decided as this replica has."""
        after, through, stated = decode_decision(payload)
        floor = self.coordinator.floor
        own = self.coordinator.ledger.aborted_between(max(after, floor - 1), through)
        if through >= gsn or list(own) != [aborted for aborted in stated if aborted >= floor]:
            raise ProtocolViolation(f"DBS-8: the decision record at {gsn} says {stated} aborted, not {list(own)}")

    # ---- placements and summaries

    def _set_placement(self, placement: bytes) -> None:
        """Restart the summaries when the placement changes: a shard may have objects without earlier summaries."""
        if placement != self.placement:
            self.placement = placement
            self.summarized.clear()

    def summarized_to(self, shard: int) -> int:
        """The version up to which this shard has summaries. Before the floor, those of a compaction count."""
        return max(self.summarized.get(shard, 0), self.coordinator.floor - 1, 0)

    def _take_summary(self, gsn: int, payload: bytes) -> None:
        """DBS-17: the writer of a summary has decided as this replica has. A summary that does not continue the last
        one, because another server was faster, is ignored, so a gap cannot arise."""
        summary = decode_summary(payload)
        floor, ledger = self.coordinator.floor, self.coordinator.ledger
        applied = [aborted for aborted in summary.aborted if aborted >= floor and not ledger.is_aborted(aborted)]
        if summary.through >= gsn or applied:
            raise ProtocolViolation(f"DBS-17: the summary at {gsn} says {applied} aborted, up to {summary.through}")
        if summary.began:
            self.parts += summary.began == self.begun
            return
        reached = self.summarized_to(summary.shard)
        if summary.placement == self.placement and summary.after <= reached < summary.through:
            self.summarized[summary.shard] = summary.through

    # ---- compaction

    def _take_cold(self, gsn: int, time: int, payload: bytes) -> None:
        record = decode_cold(payload)
        if not isinstance(record, Attached):
            self.cold = None if self.cold is None else self.cold.after(gsn, record)
        elif self.cold is None:
            self.cold = first_state(record, self.coordinator.floor, time)

    def compactable(self, before: int) -> int:
        """The floor that a compaction to `before` may raise to: no later than a pin, and what the cold tier has
        (DBS-20)."""
        needed = self.coordinator.oldest_needed(before)
        return needed if self.cold is None else min(needed, self.cold.copied.version)

    def _apply_compaction(self, gsn: int, tag: int, payload: bytes) -> None:
        if tag == BEGINNING:
            self._begin(gsn, *decode_beginning(payload))
        elif tag == PART:
            began, part = decode_part(payload)
            if began != self.begun:
                return
            self.parts += 1
            if isinstance(part, MapRows):
                for key, version, value, _ in part.rows:
                    if isinstance(value, Place) and self.map.written_version(key, version) == version:
                        self.map.replace(key, version, value)
        elif decode_ending(payload) == self.begun:
            self.begun, self.ended, self.ending, self.cleaned = 0, self.begun, gsn, self.coordinator.floor
            self.freed, self.logged_before, self.logged = self.logged_before, 0, self.logged - self.logged_before
            self.logged_left = self.logged
            if self.map.checkpoint is None:
                self.map.prune(self.cleaned)

    def _begin(self, gsn: int, by: int, before: int) -> None:
        """From here on no version before the floor is read or committed upon. The compaction that was under way is void
        (DBS-11)."""
        coordinator = self.coordinator
        floor = self.compactable(min(before, gsn - 1))
        if floor > coordinator.floor:
            coordinator.raise_floor(floor, coordinator.ledger.used_before(floor))
            coordinator.reach = floor
        self.begun, self.begun_by, self.parts, self.logged_before = gsn, by, 0, self.logged
        coordinator.pass_to(gsn)
        self.begun_with = self.head(), [RecentRow(at, *what) for at, what in self.recent.items()]

    def head(self) -> StateRows:
        """The state outside the map, the ledger and `recent`, as rows for a checkpoint: range deletes, then marks."""
        return [*self.coordinator.deletion_rows(b"", self.applied), *self._marks()]

    def _marks(self) -> StateRows:
        cleaning = _CLEANING.pack(self.begun, self.coordinator.reach, self.cleaned, self.ended, self.ending)
        placement = []
        if self.placement:
            summarized = b"".join([_SUMMARIZED.pack(*entry) for entry in sorted(self.summarized.items())])
            placement = [(PLACEMENT_ROW, self.placement), (SUMMARY_ROW, summarized)]
        cold = [] if self.cold is None else [(COLD_ROW, self.cold.encode())]
        logged = _LOGGED.pack(self.logged, self.logged_before, self.logged_left)
        return [*self.coordinator.marks(), *cold, *placement, (LOGGED_ROW, logged), (CLEANING_ROW, cleaning)]

    def _restore(self, covers: int, state: Callable[[bytes], StateRows]) -> None:
        self.coordinator.restore(covers, state)
        for key, raw in state(RECENT_ROWS):
            gsn, decision = int.from_bytes(key), decode_recent(raw)
            self.recent[gsn] = decision
            self._recent_bytes += size_of_decision(RecentRow(gsn, *decision))
        for _, raw in state(PLACEMENT_ROW):
            self.placement = raw
        for _, raw in state(COLD_ROW):
            self.cold = ColdState.decode(raw)
        for _, raw in state(SUMMARY_ROW):
            self.summarized = dict(_SUMMARIZED.iter_unpack(raw))
        for _, raw in state(CLEANING_ROW):
            self.begun, self.coordinator.reach, self.cleaned, self.ended, self.ending = _CLEANING.unpack(raw)
        for _, raw in state(LOGGED_ROW):
            counts = [min(count, MAX_LOGGED) for count in _LOGGED.unpack(raw)]
            self.logged, self.logged_before, self.logged_left = counts

    # ---- transactions

    def decided(self, txn: TxnId) -> Decided | None:
        """The verdict of a transaction, None until it is decided (DBS-6)."""
        outcome = self.coordinator.outcome(txn)
        if outcome.status is Status.NOT_FOUND:
            return None
        if outcome.status is Status.FORGOTTEN:
            return Decided(*txn, 0, FORGOTTEN, "")
        if outcome.committed:
            return Decided(*txn, outcome.version, COMMITTED, "")
        winner, verdict = self.recent.get(outcome.version, ("", None))
        return Decided(*txn, outcome.version, verdict or UNEXPLAINED, winner)

    # ---- checkpoints

    def unsaved(self) -> list[StateRow]:
        """The changes of the state outside the map since the last call, as rows for a checkpoint; None: remove."""
        rows: list[StateRow] = [*self._unsaved_state, *self.coordinator.unsaved(), *self._marks()[-5:]]
        self._unsaved_state = []
        for gsn, is_there in self._unsaved_recent.items():
            key = RECENT_ROWS + gsn.to_bytes(8)
            rows.append((key, encode_recent(*self.recent[gsn]) if is_there and gsn in self.recent else None))
        self._unsaved_recent = {}
        return rows

    def slice(self, version: int, cursor: At | None, max_bytes: int) -> tuple[Part, At | None]:
        """Rows of one section of the checkpoint at `version`, about `max_bytes`, and the cursor of the next ones.

        The first slice is of the version applied; it has all marks. The range deletes may be very many.
        """
        if cursor is None or cursor.section == Section.HEAD:
            head = [] if cursor is not None else self._marks()
            deletions = self.coordinator.deletion_rows(b"" if cursor is None else cursor.after, version)
            rows, is_full = first_rows(deletions, max_bytes)
            on = At(Section.HEAD, rows[-1][0]) if is_full else At(Section.MAP, b"")
            return HeadRows((*rows, *head)), on
        if cursor.section == Section.MAP:
            map_rows, next_on = self._map_rows(version, cursor, max_bytes)
            return MapRows(tuple(map_rows)), next_on or At(Section.LEDGER, b"")
        if cursor.section == Section.LEDGER:
            rows, is_full = first_rows(self.coordinator.ledger.rows(cursor.after, version), max_bytes)
            return LedgerRows(tuple(rows)), At(Section.LEDGER, rows[-1][0]) if is_full else At(Section.RECENT, b"")
        return self._recent_rows(int.from_bytes(cursor.after), max_bytes)

    def _map_rows(self, version: int, cursor: At, max_bytes: int) -> tuple[list[MapRow], At | None]:
        rows, size = [], 0
        start, below, deleted = cursor.after, cursor.below, self.map.deleted_to(self.coordinator.floor)
        while keys := self.map.keys_from(start, KEYS_AT_ONCE):
            for key in keys:
                at = min(version, below - 1) if below and key == start else version
                for row in self._visible(key, at, deleted):
                    rows.append(row)
                    size += len(key) + 40 + (len(row.value) if row.value.__class__ is bytes else 0)
                    if size >= max_bytes:
                        return rows, At(Section.MAP, key, row.version)
            start, below = keys[-1] + b"\0", 0
        return rows, None

    def excerpt(self, after: int, version: int, start: bytes, end: bytes) -> bytes:
        """A digest of a part of the state at `version`: which commit records after `after` were not applied, and the
        newest versions of the keys of [start, end), to the last key if `end` is b"", and the ranges deleted there.
        Servers that have this floor and have applied that version have the same (DBS-14): it excludes the places of
        large values."""
        aborted = self.coordinator.ledger.aborted_between(after, version)
        if sys.byteorder == "big":
            aborted.byteswap()
        digest = blake2b(_GSN.pack(len(aborted)) + aborted.tobytes(), digest_size=16)
        floor = self.coordinator.floor
        for deletion in () if self.map.deletions is None else self.map.deletions.between(floor, version):
            if deletion.overlaps(start, end or None):
                digest.update(encode_deleted_range(deletion))
        deleted = self.map.deleted_to(floor)
        while keys := self.map.keys_from(start, KEYS_COMPARED):
            for key in keys:
                if end and key >= end:
                    return digest.digest()
                for row in islice(self._visible(key, version, deleted), VERSIONS_COMPARED):
                    value = row.value.digest if isinstance(row.value, Place) else row.value
                    size = -1 if value is None else len(value)
                    digest.update(_COMPARED.pack(row.version, len(key), size) + key + (value or b""))
            start = keys[-1] + b"\0"
        return digest.digest()

    def end_of_excerpt(self, start: bytes) -> bytes:
        """The end of an excerpt that begins at `start`, b"" for the last key."""
        keys = self.map.keys_from(start, KEYS_COMPARED)
        return keys[-1] + b"\0" if len(keys) == KEYS_COMPARED else b""

    def _visible(self, key: bytes, at: int, deleted: RangeIndex) -> Iterator[MapRow]:
        """The versions of a key that a read at the floor or later can see. The state excludes older ones still in the
        map. `deleted`: the range deletes up to the floor."""
        floor = self.coordinator.floor
        for version, value, copy in self.map.versions(key, at):
            if version > floor or (value is not None and version >= deleted.newest(key)):
                yield MapRow(key, version, value, copy)
            if version <= floor:
                return

    def _recent_rows(self, after: int, max_bytes: int) -> tuple[Part, At | None]:
        """The recent decisions, those after the version of the checkpoint included: they have the labels of winners
        that are not recent any more."""
        rows, size = [], 0
        for gsn, (label, verdict) in self.recent.items():
            if gsn > after:
                rows.append(RecentRow(gsn, label, verdict))
                size += size_of_decision(rows[-1])
                if size >= max_bytes:
                    return RecentRows(tuple(rows)), At(Section.RECENT, gsn.to_bytes(8))
        return RecentRows(tuple(rows)), None

    def install(self, version: int, parts: list[Part]) -> None:
        """Start from a complete checkpoint. The replica must be empty except for the rows of that checkpoint. A part
        may be there twice: a compaction repeats an append of unknown outcome."""
        assert not self.applied, "DBS-9"
        state: dict[bytes, bytes] = {}
        for part in parts:
            if isinstance(part, HeadRows | LedgerRows):
                state.update(part.rows)
        for part in parts:
            if isinstance(part, MapRows):
                self.take_in(part)
            if isinstance(part, RecentRows):
                for gsn, label, verdict in part.rows:
                    if gsn <= version:
                        self._remember(gsn, label, verdict)
                    elif verdict is not None:
                        self._winners[gsn] = label
        self._insert_key()
        self._restore(
            version, lambda prefix: [(key[len(prefix) :], raw) for key, raw in state.items() if key.startswith(prefix)]
        )
        if self.map.checkpoint is not None:
            self._unsaved_state = list(state.items())

    def forget(self) -> bool:
        """Drop the rows of an incomplete checkpoint. Returns False if some are on disk."""
        self._key_rows = []
        if self.map.checkpoint is None:
            self.map.active = Overlay()
        return self.map.checkpoint is None or not self.map.keys_from(b"", 1)

    def take_in(self, part: MapRows) -> None:
        """Take in rows of the map of a checkpoint, in their order, before `install`. The map gets the versions of a key
        when all are there, oldest first: to put each one below the newer ones is quadratic."""
        for row in part.rows:
            if self._key_rows and self._key_rows[0].key != row.key:
                self._insert_key()
            self._key_rows.append(row)

    def _insert_key(self) -> None:
        for row in reversed(self._key_rows):
            self.map.insert(*row)
        self._key_rows = []

    def image(self) -> list[Part]:
        """The whole state: two servers at the same version have the same, to the last bit."""
        parts: list[Part] = []
        cursor: At | None = None
        while True:
            part, cursor = self.slice(self.applied, cursor, 1 << 62)
            parts.append(part)
            if cursor is None:
                return parts

    def check_invariants(self) -> None:
        self.coordinator.check_marks()
        assert self.cleaned <= self.coordinator.floor, "DBS-12"
        assert self.cold is None or self.coordinator.floor <= self.cold.copied.version, "DBS-20"
        assert len(self.recent) <= self._keep, "more recent decisions than configured"


def first_rows(rows: Iterator[tuple[bytes, bytes]], max_bytes: int) -> tuple[StateRows, bool]:
    """The next rows, about `max_bytes`; and whether there may be more."""
    found, size = StateRows(), 0
    for row in rows:
        found.append(row)
        size += ROW_BYTES + len(row[0]) + len(row[1])
        if size >= max_bytes:
            return found, True
    return found, False


def size_of_decision(row: RecentRow) -> int:
    """The approximate size of a recent decision in a message or a record."""
    _, label, verdict = row
    return 64 + len(label) + (0 if verdict is None else len(verdict.key) + 4 * len(verdict.failed))


def size_of(value: Value) -> int:
    """The size of a value in bytes, also of a large one."""
    if value is None:
        return 0
    return value.length if isinstance(value, Place) else len(value)
