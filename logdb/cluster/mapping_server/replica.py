"""The deterministic machine that every mapping server runs: the log in, verdicts and answers out (DBS-1).

The coordinator decides and the map holds what was committed. Beside them stands what is needed to explain recent
decisions: it is a function of the log prefix too, so that all servers give the same explanation.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from struct import Struct
from typing import Any, Final

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
from logdb.store.overlay import Overlay
from logdb.store.records import (
    BEGINNING,
    COMMIT,
    COMPACTION,
    DECISION,
    ENDING,
    PART,
    PLACEMENT,
    SUMMARY,
    VALUE,
    MalformedRecord,
    Place,
    TxnId,
    Value,
    decode_commit,
    decode_decision,
)
from logdb.store.values import Values
from logdb.txn.coordinator import Coordinator, Status, UnknownRecord
from logdb.txn.ledger import StateRow
from logdb.txn.validation import COMMITTED, Reason, Verdict

FOLLOWED = frozenset(range(1, 256)) - {VALUE}
"""What a server follows: every kind of record but large values. One of a kind that it does not know stops it."""

KEYS_AT_ONCE = 500
"""So many keys of the map are looked up before a part of a checkpoint is measured."""

KEYS_COMPARED: Final = 100
VERSIONS_COMPARED: Final = 4
"""So many keys, and so many versions of each, are compared at a time."""

CLEANING_ROW: Final = b"b"
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

SLICE_BYTES: Final = 128 << 10
"""Of a part of a checkpoint at most: who gives it has others to serve."""

FORGOTTEN = Verdict(Reason.DUPLICATE)
UNEXPLAINED = Verdict(Reason.CONFLICT)


class UnresolvedValues(Values):
    """The values of a map that hands on the places of large values as they are: who asked reads them from the log."""

    def __init__(self) -> None:
        super().__init__(self._refuse)

    def load(self, value: Value) -> Any:
        return value

    def _refuse(self, gsn: int, shard: int) -> LogRecord:
        raise AssertionError(f"a map in memory needs nothing of the log, not even record {gsn}")


class Replica:
    """The state at `applied`.

    `recent`: GSN -> (label, None) of a commit that has one, or (label of the winner, verdict) of one that was not
    applied: the last `keep` of them.

    `begun`: the BEGINNING of the compaction under way, 0 if there is none; `begun_by`: who appended it, as it says;
    `begun_with`: the head and the recent decisions just after it; `parts`: so many of it, and of its summaries, have
    come. `logged`: the bytes of the log's records, large values included, since the last compaction began, and
    `logged_before`: of those before the one under way; `logged_left`: of those that the last one left, `freed`: of
    those that it made needless. `ended`: the last compaction that was brought to its end, by the ENDING `ending`.
    `cleaned`: nothing needs what stands in the log before it (DBS-12). `placement`: what the PLACEMENT records say
    together, b"" if there was none. `summarized`: by shard, up to where SUMMARY records of this placement have told it
    what its records do not say.
    """

    def __init__(self, key_map: KeyMap | None, keep: int) -> None:
        self.coordinator = Coordinator(KeyMap(UnresolvedValues(), None) if key_map is None else key_map)
        self.map = self.coordinator.map
        self.recent: OrderedDict[int, tuple[str, Verdict | None]] = OrderedDict()
        self.begun = self.begun_by = self.parts = self.ended = self.ending = self.cleaned = 0
        self.logged = self.logged_before = self.logged_left = self.freed = 0
        self.placement = b""
        self.summarized: dict[int, int] = {}
        self.begun_with: tuple[StateRows, list[RecentRow]] = [], []
        self._keep = keep
        self._unsaved_recent: dict[int, bool] = {}
        self._unsaved_state: StateRows = []
        self._last_key = b""
        checkpoint = self.map.checkpoint
        if checkpoint is not None:
            self._restore(checkpoint.covers, checkpoint.state)

    @property
    def applied(self) -> int:
        return self.coordinator.applied

    # ---- the log

    def apply(self, batch: Batch) -> list[TxnId]:
        """Take in what comes next in the log. Returns whose verdicts are known now. Raises ProtocolViolation."""
        coordinator = self.coordinator
        if batch.first != coordinator.applied + 1:
            raise ProtocolViolation(f"DBS-2: records from {batch.first} on came after {coordinator.applied}")
        decided = []
        try:
            for record in batch.records:
                gsn, _, tag, payload = record
                self.logged += len(payload)
                if tag == COMMIT:
                    commit = decode_commit(payload)
                    for value in commit.writes.values():
                        if value.__class__ is Place:
                            self.logged += value.length
                    verdict = coordinator.deliver(gsn, commit)
                    if verdict is COMMITTED:
                        if commit.label:
                            self._note(gsn, commit.label, None)
                    elif verdict.reason is not Reason.DUPLICATE:
                        self._note(gsn, self.recent.get(verdict.version, ("",))[0], verdict)
                    decided.append(TxnId(commit.client, commit.sequence))
                elif tag in (BEGINNING, PART, ENDING):
                    self._clean(gsn, tag, payload)
                    coordinator.pass_to(gsn)
                elif tag == PLACEMENT:
                    self._place(joined(self.placement, payload))
                    coordinator.pass_to(gsn)
                elif tag == SUMMARY:
                    self._take_summary(gsn, payload)
                    coordinator.pass_to(gsn)
                else:
                    if tag == DECISION:
                        self._compare(gsn, payload)
                    coordinator.deliver_other(gsn, tag, payload)
                    if tag == COMPACTION and self.map.checkpoint is None:
                        self.map.active.prune(coordinator.floor)
        except (MalformedRecord, UnknownRecord) as error:
            raise ProtocolViolation(f"the log holds what this version cannot read: {error}") from error
        coordinator.pass_to(batch.end - 1)
        return decided

    def _note(self, gsn: int, label: str, verdict: Verdict | None) -> None:
        self.recent[gsn] = label, verdict
        gone = self.recent.popitem(last=False)[0] if len(self.recent) > self._keep else 0
        if self.map.checkpoint is not None:
            self._unsaved_recent[gsn] = True
            if gone:
                self._unsaved_recent[gone] = False

    def _compare(self, gsn: int, payload: bytes) -> None:
        """DBS-8: who wrote the decision record has decided as this one has."""
        after, through, told = decode_decision(payload)
        floor = self.coordinator.floor
        own = self.coordinator.ledger.aborted_between(max(after, floor - 1), through)
        if through >= gsn or list(own) != [aborted for aborted in told if aborted >= floor]:
            raise ProtocolViolation(f"DBS-8: the decision record at {gsn} says {told} aborted, not {list(own)}")

    # ---- what shards are told

    def _place(self, placement: bytes) -> None:
        """Under another placement a shard may have objects whose earlier versions it was not told."""
        if placement != self.placement:
            self.placement = placement
            self.summarized.clear()

    def summarized_to(self, shard: int) -> int:
        """Up to which version this shard has been told. Of what stands before the floor a compaction tells."""
        return max(self.summarized.get(shard, 0), self.coordinator.floor - 1, 0)

    def _take_summary(self, gsn: int, payload: bytes) -> None:
        """DBS-17: who wrote it has decided as this one has. One that does not begin where the last one ended, as that
        of a server that was overtaken, leaves no gap: it counts for nothing here."""
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

    def _clean(self, gsn: int, tag: int, payload: bytes) -> None:
        if tag == BEGINNING:
            self._begin(gsn, *decode_beginning(payload))
        elif tag == PART:
            began, part = decode_part(payload)
            if began != self.begun:
                return
            self.parts += 1
            if isinstance(part, MapRows):
                for key, version, value, _ in part.rows:
                    if isinstance(value, Place) and self.map.version(key, version) == version:
                        self.map.replace(key, version, value)
        elif decode_ending(payload) == self.begun:
            self.begun, self.ended, self.ending, self.cleaned = 0, self.begun, gsn, self.coordinator.floor
            self.freed, self.logged_before, self.logged = self.logged_before, 0, self.logged - self.logged_before
            self.logged_left = self.logged
            if self.map.checkpoint is None:
                self.map.active.prune(self.cleaned)

    def _begin(self, gsn: int, by: int, before: int) -> None:
        """From here on nobody reads before the floor, and nothing commits upon it. Another compaction that was under
        way is over (DBS-11)."""
        coordinator = self.coordinator
        floor = coordinator.oldest_needed(min(before, gsn - 1))
        if floor > coordinator.floor:
            coordinator.raise_floor(floor, coordinator.ledger.used_before(floor))
            coordinator.reach = floor
        self.begun, self.begun_by, self.parts, self.logged_before = gsn, by, 0, self.logged
        coordinator.pass_to(gsn)
        self.begun_with = self.head(), [RecentRow(at, *what) for at, what in self.recent.items()]

    def head(self) -> StateRows:
        """All that is neither of the map nor of the ledger nor recent, as rows for a checkpoint."""
        cleaning = _CLEANING.pack(self.begun, self.coordinator.reach, self.cleaned, self.ended, self.ending)
        placement = []
        if self.placement:
            summarized = b"".join([_SUMMARIZED.pack(*entry) for entry in sorted(self.summarized.items())])
            placement = [(PLACEMENT_ROW, self.placement), (SUMMARY_ROW, summarized)]
        logged = _LOGGED.pack(self.logged, self.logged_before, self.logged_left)
        return [*self.coordinator.head(), *placement, (LOGGED_ROW, logged), (CLEANING_ROW, cleaning)]

    def _restore(self, covers: int, state: Callable[[bytes], StateRows]) -> None:
        self.coordinator.restore(covers, state)
        for key, raw in state(RECENT_ROWS):
            self.recent[int.from_bytes(key)] = decode_recent(raw)
        for _, raw in state(PLACEMENT_ROW):
            self.placement = raw
        for _, raw in state(SUMMARY_ROW):
            self.summarized = dict(_SUMMARIZED.iter_unpack(raw))
        for _, raw in state(CLEANING_ROW):
            self.begun, self.coordinator.reach, self.cleaned, self.ended, self.ending = _CLEANING.unpack(raw)
        for _, raw in state(LOGGED_ROW):
            self.logged, self.logged_before, self.logged_left = _LOGGED.unpack(raw)

    # ---- transactions

    def decided(self, txn: TxnId) -> Decided | None:
        """The verdict of a transaction, None while there is none (DBS-6)."""
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
        """All that is not of the map and has changed since the last call, as rows for a checkpoint; None: remove."""
        rows: list[StateRow] = [*self._unsaved_state, *self.coordinator.unsaved(), *self.head()[-4:]]
        self._unsaved_state = []
        for gsn, is_there in self._unsaved_recent.items():
            key = RECENT_ROWS + gsn.to_bytes(8)
            rows.append((key, encode_recent(*self.recent[gsn]) if is_there and gsn in self.recent else None))
        self._unsaved_recent = {}
        return rows

    def slice(self, version: int, cursor: At | None, max_bytes: int) -> tuple[Part, At | None]:
        """Rows of the checkpoint at `version`, of one section, about `max_bytes` of them; and where to go on."""
        if cursor is None:
            return HeadRows(tuple(self.head())), At(Section.MAP, b"")
        if cursor.section == Section.MAP:
            rows, on = self._map_rows(version, cursor, max_bytes)
            return MapRows(tuple(rows)), on or At(Section.LEDGER, b"")
        if cursor.section == Section.LEDGER:
            count = max(max_bytes // 64, 1)
            ledger = tuple(islice(self.coordinator.ledger.rows(cursor.after, version), count))
            full = len(ledger) == count
            return LedgerRows(ledger), At(Section.LEDGER, ledger[-1][0]) if full else At(Section.RECENT, b"")
        return self._recent_rows(version, int.from_bytes(cursor.after), max_bytes)

    def _map_rows(self, version: int, cursor: At, max_bytes: int) -> tuple[list[MapRow], At | None]:
        rows, size = [], 0
        start, below = cursor.after, cursor.below
        while keys := self.map.keys_from(start, KEYS_AT_ONCE):
            for key in keys:
                at = min(version, below - 1) if below and key == start else version
                for row in self._visible(key, at):
                    rows.append(row)
                    size += len(key) + 40 + (len(row.value) if row.value.__class__ is bytes else 0)
                    if size >= max_bytes:
                        return rows, At(Section.MAP, key, row.version)
            start, below = keys[-1] + b"\0", 0
        return rows, None

    def excerpt(self, after: int, version: int, start: bytes, end: bytes) -> bytes:
        """A digest of a part of the state at `version`: which commit records after `after` were not applied, and the
        newest versions of the keys of [start, end), to the last key if `end` is b"". The same for all servers that have
        this floor and have applied that version (DBS-14): where large values stand is left out."""
        aborted = self.coordinator.ledger.aborted_between(after, version)
        if sys.byteorder == "big":
            aborted.byteswap()
        digest = blake2b(_GSN.pack(len(aborted)) + aborted.tobytes(), digest_size=16)
        while keys := self.map.keys_from(start, KEYS_COMPARED):
            for key in keys:
                if end and key >= end:
                    return digest.digest()
                for row in islice(self._visible(key, version), VERSIONS_COMPARED):
                    value = row.value.digest if isinstance(row.value, Place) else row.value
                    size = -1 if value is None else len(value)
                    digest.update(_COMPARED.pack(row.version, len(key), size) + key + (value or b""))
            start = keys[-1] + b"\0"
        return digest.digest()

    def end_of_excerpt(self, start: bytes) -> bytes:
        """Where to end the one that begins there, b"" with the last key."""
        keys = self.map.keys_from(start, KEYS_COMPARED)
        return keys[-1] + b"\0" if len(keys) == KEYS_COMPARED else b""

    def _visible(self, key: bytes, at: int) -> Iterator[MapRow]:
        """The versions of a key that a read at the floor or later can see: whatever else is still in the map is not of
        the state."""
        floor = self.coordinator.floor
        for version, value, copy in self.map.versions(key, at):
            if version > floor or value is not None:
                yield MapRow(key, version, value, copy)
            if version <= floor:
                return

    def _recent_rows(self, version: int, after: int, max_bytes: int) -> tuple[Part, At | None]:
        rows, size = [], 0
        for gsn, (label, verdict) in self.recent.items():
            if after < gsn <= version:
                rows.append(RecentRow(gsn, label, verdict))
                size += 64 + len(label) + (0 if verdict is None else len(verdict.key) + 4 * len(verdict.failed))
                if size >= max_bytes:
                    return RecentRows(tuple(rows)), At(Section.RECENT, gsn.to_bytes(8))
        return RecentRows(tuple(rows)), None

    def install(self, version: int, parts: list[Part]) -> None:
        """Begin from a whole checkpoint. This replica must have nothing yet."""
        assert not self.applied, "DBS-9"
        state: list[tuple[bytes, bytes]] = []
        for part in parts:
            if isinstance(part, HeadRows | LedgerRows):
                state += part.rows
        for part in parts:
            if isinstance(part, MapRows):
                self.take_in(part)
            if isinstance(part, RecentRows):
                for gsn, label, verdict in part.rows:
                    self._note(gsn, label, verdict)
        self._restore(
            version, lambda prefix: [(key[len(prefix) :], raw) for key, raw in state if key.startswith(prefix)]
        )
        if self.map.checkpoint is not None:
            self._unsaved_state = state

    def forget(self) -> bool:
        """What was taken in of a checkpoint is of no use. Returns whether it could be forgotten."""
        self._last_key = b""
        if self.map.checkpoint is None:
            self.map.active = Overlay()
        return self.map.checkpoint is None or not self.map.keys_from(b"", 1)

    def take_in(self, part: MapRows) -> None:
        """Rows of the map of a checkpoint that is to be installed. They come in their order."""
        for row in reversed(part.rows):
            if row.key == self._last_key and self.map.checkpoint is not None:  # its newer rows may be there already
                self.map.replace(row.key, row.version, row.value)
            else:
                self.map.insert(*row)
        if part.rows:
            self._last_key = part.rows[-1].key

    def image(self) -> list[Part]:
        """All that there is: what two servers at the same version have in common, to the last bit."""
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
        assert len(self.recent) <= self._keep, "too much is remembered"


def size_of(value: Value) -> int:
    """Bytes of a value, wherever it is."""
    if value is None:
        return 0
    return value.length if isinstance(value, Place) else len(value)
