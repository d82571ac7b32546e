"""Committing to a database of this process: commit records are ordered, decided, and acknowledged when durable."""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.large_values import IncomingValue
from logdb.embedded.snapshots import Snapshots
from logdb.embedded.state_machine import StateMachine
from logdb.errors import (
    ConflictError,
    DatabaseClosed,
    LogDBError,
    NotANumber,
    OutcomeUnknown,
    ReadOnly,
    TransactionTooLarge,
    Unavailable,
    VersionTrimmed,
)
from logdb.log.contract import LogFailed, Trimmed
from logdb.store.folds import folded_commit
from logdb.store.limits import INLINE_VALUE_BYTES, MAX_TRANSACTION_BYTES, check_label
from logdb.store.overlay import ENTRY_BYTES
from logdb.store.pacing import Pacer
from logdb.store.records import (
    COMMIT,
    FENCE,
    VALUE,
    Commit,
    Condition,
    Fold,
    Place,
    Range,
    TxnId,
    Value,
    decode_commit,
    digest,
    encode_commit,
)
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.transaction import Workspace
from logdb.txn.validation import COMMITTED, SETTLED, Reason, Verdict, validate

CHECK_EVERY: Final = 1_024
"""Number of records after which the growth of the log is checked: it may make a checkpoint due."""
MAX_UNSYNCED_BYTES: Final = 64 << 20
"""Size of ordered records that are not durable, above which the next writes wait: they are all in memory."""
NO_LARGE: Sequence[bytes] = ()


class Commits:
    """The writing verbs of `Backend`, in steps: `submit` orders and decides, `acknowledge` waits for the disk.
    `client`: drawn at each opening; the client number in the transaction ids that it allocates."""

    def __init__(self, machine: StateMachine, snapshots: Snapshots, checkpointer: Checkpointer | None) -> None:
        self._machine, self._snapshots, self._checkpointer = machine, snapshots, checkpointer
        self.client = secrets.randbits(63) + 1
        self._sequence = 0

    @property
    def pacer(self) -> Pacer | None:
        """Delays commits while checkpoints are behind; None in memory."""
        return None if self._checkpointer is None else self._checkpointer.pacer

    def new_txn_id(self) -> TxnId:
        """A transaction id that has not been used."""
        with self._machine.order_lock:
            self._sequence += 1
            return TxnId(self.client, self._sequence)

    # ---- ordering and deciding

    def receive(self, length: int) -> IncomingValue:
        """A large value of `length` bytes, to be written in parts and passed to `submit`. Raises Unavailable, ReadOnly,
        DatabaseClosed."""
        machine = self._machine
        machine.check_writable()
        try:
            return IncomingValue(machine.log.receive(length))
        except LogFailed as error:
            raise Unavailable(machine.failure_text(error)) from error

    def submit(
        self,
        writes: Mapping[bytes, bytes | IncomingValue | None],
        *,
        snapshot: int = 0,
        label: str = "",
        reads: Sequence[bytes] = (),
        ranges: Sequence[Range] = (),
        conditions: Sequence[Condition] = (),
        deletes: Sequence[Range] = (),
        appended: int = 0,
        folds: Sequence[Fold] = (),
        txn_id: TxnId | None = None,
    ) -> tuple[int, Verdict]:
        """Order a commit record and decide it: (version, verdict). The keys of the last `appended` of `writes` are made
        from its version, and what `folds` write from the map just before. Neither is durable yet: the caller waits for
        that before it acknowledges (EMB-1).

        Raises NotANumber, Unavailable (nothing was ordered), ReadOnly, DatabaseClosed, OutcomeUnknown (ordered and not
        decided).
        """
        machine = self._machine
        values = cast("Mapping[bytes, Value]", writes)
        if label != "":
            check_label(label)
        large: Sequence[bytes | IncomingValue] = NO_LARGE
        digests = NO_LARGE
        for value in writes.values():
            if value is not None and len(value) > INLINE_VALUE_BYTES:
                large = [value for value in writes.values() if value is not None and len(value) > INLINE_VALUE_BYTES]
                digests = [value.digest if isinstance(value, IncomingValue) else digest(value) for value in large]
                break
        with machine.order_lock:
            try:
                if machine.closed or machine.read_only or machine.stop_reason is not None:
                    machine.check_writable()
                if txn_id is None:
                    self._sequence = sequence = self._sequence + 1
                    client = self.client
                else:
                    client, sequence = txn_id
                if large:
                    values = self._append_values(writes, large, digests)
                commit = Commit(client, sequence, values, snapshot, label, reads, ranges, conditions, deletes, appended)
                if folds:
                    commit = self._folded(commit._replace(folds=folds))
                payload = encode_commit(commit)
                if len(payload) > MAX_TRANSACTION_BYTES:
                    raise TransactionTooLarge(len(payload), MAX_TRANSACTION_BYTES, ", with what it has read,")
                gsn = machine.log.order(((COMMIT, payload),))
                verdict = machine.coordinator.deliver(gsn, commit.ordered_at(gsn) if appended else commit)
            except (Unavailable, ReadOnly, DatabaseClosed, TransactionTooLarge, NotANumber):
                raise
            except LogFailed as error:
                raise machine.log_failed(error) from error
            except BaseException as error:
                if machine.stop_unless_applied(error) and isinstance(error, Exception):
                    raise OutcomeUnknown(str(TxnId(client, sequence)), f"its decision failed ({error})") from error
                raise
            checkpointer, active = self._checkpointer, machine.coordinator.map.active.size
            if checkpointer is not None and checkpointer.pacer.is_pressed:
                size = len(payload) + ENTRY_BYTES * len(writes)
                checkpointer.pacer.charge(gsn, size, active, machine.log.sync_s)
        if checkpointer is not None and (active > machine.overlay_bytes or large or not gsn % CHECK_EVERY):
            checkpointer.maybe_checkpoint()
        return gsn, verdict

    def _folded(self, commit: Commit) -> Commit:
        """The commit, which comes next, with plain writes instead of its folds. Raises NotANumber."""
        coordinator = self._machine.coordinator
        try:
            return folded_commit(commit, lambda key: coordinator.map.value(key, coordinator.applied))
        except NotANumber:
            if coordinator.outcome(TxnId(commit.client, commit.sequence)).status is Status.NOT_FOUND:
                raise
            return commit._replace(folds=())  # its transaction was decided before, so it will not be applied

    def _append_values(
        self,
        writes: Mapping[bytes, bytes | IncomingValue | None],
        large: Sequence[bytes | IncomingValue],
        digests: Sequence[bytes],
    ) -> dict[bytes, Value]:
        """Append the large values as records of their own; returns the writes with their places."""
        machine = self._machine
        gsn = machine.append_locked([(VALUE, value) for value in large if not isinstance(value, IncomingValue)])
        values: dict[bytes, Value] = {}
        digest_of = iter(digests)
        for key, value in writes.items():
            if value is None or len(value) <= INLINE_VALUE_BYTES:
                values[key] = cast("bytes | None", value)
            elif isinstance(value, IncomingValue):
                order = functools.partial(machine.log.order_incoming, VALUE, value.payload)
                at = machine.order(order, [(VALUE, b"")], machine.coordinator.deliver_other)
                values[key] = Place(at, 0, len(value), next(digest_of))
            else:
                values[key] = Place(gsn, 0, len(value), next(digest_of))
                gsn += 1
        return values

    # ---- waiting for the disk

    @property
    def has_room(self) -> bool:
        """Whether a write need not wait until the disk has taken others."""
        return self._machine.log.unsynced_bytes <= MAX_UNSYNCED_BYTES

    def wait_for_room(self) -> None:
        """Wait in this thread until `has_room`, or the log has failed: then the next write raises the error."""
        log = self._machine.log
        with contextlib.suppress(LogFailed):
            while not self.has_room:
                log.wait_durable(log.end() - 1)

    def acknowledge(self, gsn: int) -> None:
        """Return when the commit at `gsn` is durable. Raises OutcomeUnknown; then the database must be opened again."""
        try:
            self._machine.log.wait_durable(gsn)
        except LogFailed as error:
            raise self.outcome_unknown(gsn, error) from error
        if self._checkpointer is not None:
            self._checkpointer.pacer.wait(gsn)

    def outcome_unknown(self, gsn: int, error: LogFailed) -> OutcomeUnknown:
        """Stop the database; returns the error for the commit record at `gsn`, which did not become durable."""
        machine = self._machine
        machine.stop(f"its log failed ({error})")
        with machine.order_lock:
            found = machine.coordinator.ledger.id_at(gsn)
        return OutcomeUnknown("" if found is None else str(TxnId(*found)), machine.failure_text(error))

    # ---- writes and transactions

    def write(
        self,
        writes: Mapping[bytes, bytes | None],
        label: str = "",
        conditions: Sequence[Condition] = (),
        deletes: Sequence[Range] = (),
        appended: int = 0,
        folds: Sequence[Fold] = (),
    ) -> tuple[int, Verdict]:
        """Delete the ranges `deletes` and write all if all conditions hold: (version, verdict), durable. Raises as
        `submit` and `acknowledge`."""
        if not self.has_room:
            self.wait_for_room()
        written = self.submit(
            writes, label=label, conditions=conditions, deletes=deletes, appended=appended, folds=folds
        )
        self.acknowledge(written[0])
        return written

    def submit_work(self, work: Workspace) -> tuple[int, Verdict | None]:
        """Submit what a transaction has read and written, and end its lease: (the version to wait for, the verdict or
        None if it only read). Raises as `submit`."""
        try:
            if work.writes_nothing:
                if self._machine.closed:
                    raise DatabaseClosed(self._machine.path, self._machine.forked_from)
                return work.snapshot, None
            return self.submit(
                work.all_writes,
                snapshot=work.snapshot,
                label=work.label,
                reads=work.guarded_keys,
                ranges=work.guarded_ranges,
                deletes=work.deletes,
                appended=work.append_count,
                folds=work.all_folds,
                txn_id=work.known_id,
            )
        finally:
            self._snapshots.end(work)

    def commit(self, work: Workspace) -> int:
        """Commit the reads and writes of a transaction. Returns its version, which is durable. Raises as `write`,
        ConflictError."""
        if not self.has_room:
            self.wait_for_room()
        gsn, verdict = self.submit_work(work)
        if verdict is None:
            self._machine.wait_durable(gsn)
        else:
            self.acknowledge(gsn)
            if not verdict.committed:
                raise self.conflict(verdict, work.snapshot)
        return gsn

    def conflict(self, verdict: Verdict, snapshot: int) -> LogDBError:
        """The error for a transaction that aborted; the version that it names is durable."""
        machine = self._machine
        if verdict.reason is Reason.TOO_OLD:
            return VersionTrimmed(snapshot, machine.coordinator.floor)
        if verdict.reason in (Reason.DUPLICATE, Reason.DANGLING):
            return Unavailable(SETTLED)
        assert verdict.reason is Reason.CONFLICT, verdict
        winner = ""
        with contextlib.suppress(Trimmed):
            record = machine.log.read_record(verdict.version, 0)
            if record.tag == COMMIT:
                winner = decode_commit(record.payload, verdict.version).label
        return ConflictError(verdict.key, verdict.version, winner, snapshot, in_range=verdict.in_range)

    # ---- outcomes

    def has_record_of(self, txn_id: TxnId) -> bool:
        """Whether the log has a commit record of the transaction, or may have had one."""
        machine = self._machine
        with machine.order_lock:
            return machine.coordinator.outcome(txn_id).status is not Status.NOT_FOUND

    def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome:
        """How a transaction ended, as far as that is durable. `settle`: abort it if the log has no record of it."""
        machine = self._machine
        machine.version()
        with machine.order_lock:
            outcome = machine.coordinator.outcome(txn_id)
        machine.wait_applied(machine.log.end() - 1)  # a record whose decision failed is noted, and not decided
        if settle and outcome.status is Status.NOT_FOUND:
            self.acknowledge(self.submit(cast(Any, FENCE), txn_id=txn_id)[0])
            return self.outcome(txn_id)
        machine.wait_durable(outcome.version)
        return outcome

    def decided_first(self, txn_id: TxnId, gsn: int, verdict: Verdict) -> tuple[int, Verdict]:
        """The version and the verdict of a transaction's first commit record, if the one at `gsn` is a duplicate.

        Decisions follow from the log, so the first one is made again. Raises OutcomeUnknown where compaction has
        removed what it follows from.
        """
        if verdict.reason is not Reason.DUPLICATE:
            return gsn, verdict
        coordinator, first = self._machine.coordinator, verdict.first
        if first and not coordinator.ledger.is_aborted(first):
            return first, COMMITTED
        if first > coordinator.floor:
            with contextlib.suppress(Trimmed):
                commit = decode_commit(self._machine.read_record(first, 0).payload, first)
                return first, validate(commit, first, coordinator.floor, coordinator.map)
        raise OutcomeUnknown(str(txn_id), "it was sent before, and what it was decided from was compacted away")
