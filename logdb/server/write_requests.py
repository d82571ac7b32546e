"""Write requests of one stream: the begin and the commit of transactions, answered together after a sync."""

from __future__ import annotations

import functools

from logdb.embedded.async_backend import CoroutineBackend
from logdb.embedded.large_values import OutgoingValue
from logdb.embedded.snapshots import Holder
from logdb.errors import ConflictError, OutcomeUnknown, Unavailable
from logdb.server.leases import StreamLeases
from logdb.server.outbox import Outbox
from logdb.server.pending_answers import PendingAnswers
from logdb.server.stream_uploads import StreamUploads
from logdb.store.limits import check_key, check_label
from logdb.store.records import TxnId
from logdb.transport.unread_answers import DurabilityNotifier
from logdb.txn.validation import Verdict
from logdb.wire.database_codec import (
    PART_BYTES,
    checked_appended,
    checked_writes,
    conditions_from,
    deletes_from,
    folds_from,
    ranges_from,
)
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb


class PendingWrite:
    """A commit record that waits for its sync. `contended`: another client has its turn at a key of its conditions."""

    __slots__ = ("contended", "gsn", "id", "snapshot", "txn_id", "verdict")

    def __init__(
        self, request: int, txn_id: TxnId, gsn: int, verdict: Verdict, snapshot: int | None, contended: bool = False
    ) -> None:
        self.id, self.txn_id, self.gsn, self.verdict, self.snapshot = request, txn_id, gsn, verdict, snapshot
        self.contended = contended


class WriteRequests:
    """The writing verbs of a stream. `client`: the client number of its transactions. `advanced`: notified after each
    sync.

    `syncs`: the number of syncs under way.
    """

    def __init__(
        self,
        backend: CoroutineBackend,
        client: int,
        leases: StreamLeases,
        outbox: Outbox,
        pending: PendingAnswers,
        uploads: StreamUploads,
        advanced: DurabilityNotifier,
    ) -> None:
        self._acknowledgements, self._database = backend.acknowledgements, backend.embedded
        self._commits, self._client = backend.embedded.commits, client
        self._leases, self._outbox, self._pending, self._uploads = leases, outbox, pending, uploads
        self._advanced = advanced
        self._unsynced: list[PendingWrite] = []
        self.syncs = 0

    # ---- writes

    def write(self, request: pb.Request, write: pb.Write) -> None:
        """Order and decide a write; it is answered after a sync."""
        if not write.sequence:
            raise WireError("a write has no sequence number")
        values = self._uploads.values_of(request, write.writes)
        if values is None:
            return
        if write.label:
            check_label(write.label)
        txn_id = TxnId(self._client, write.sequence)
        writes = checked_writes(write.writes, values)
        gsn, verdict = self._commits.submit(
            writes,
            label=write.label,
            conditions=conditions_from(write.conditions) if write.conditions else (),
            deletes=deletes_from(write.deletes) if write.deletes else (),
            appended=checked_appended(writes, write.appended),
            folds=folds_from(write.folds, writes) if write.folds else (),
            txn_id=txn_id,
        )
        contended = any(self._leases.is_contended(condition.key) for condition in write.conditions)
        self._unsynced.append(PendingWrite(request.id, txn_id, gsn, verdict, None, contended))

    # ---- transactions

    def begin(self, request: pb.Request, begin: pb.Begin) -> pb.Response | None:
        """Lease a transaction's snapshot, and read its first key; at a contended key when it is its turn."""
        leases, database = self._leases, self._database
        if not begin.lease or begin.lease in leases:
            raise WireError(f"{begin.lease} is not the number of a new lease")
        leases.check_room()
        holder = Holder()
        if begin.HasField("at"):
            at = database.at(begin.at) if begin.read_only else leases.readable(begin.at)
            leases.lease(holder, at)
            leases.add(begin.lease, holder)
            return pb.Response(version=begin.at)
        if begin.HasField("key"):
            check_key(begin.key)
        leases.add(begin.lease, holder)
        if begin.HasField("key") and not begin.read_only:
            kept = pb.Begin()
            kept.CopyFrom(begin)  # which keeps its whole message
            in_turn = functools.partial(self._begin_in_turn, request.id, kept, holder)
            if not leases.enter(begin.lease, begin.key, in_turn):
                return None
        return self._begun(request.id, begin, holder)

    def _begin_in_turn(self, request: int, begin: pb.Begin, holder: object) -> None:
        self._leases.begin_turn(begin.lease)
        try:
            response = self._begun(request, begin, holder)
        except Exception as error:
            self._outbox.fail(request, error)
        else:
            if response is not None:
                response.id = request
                self._outbox.answer(response)

    def _begun(self, request: int, begin: pb.Begin, holder: object) -> pb.Response | None:
        database = self._database
        try:
            version = database.snapshots.begin(holder, read_only=begin.read_only)
            has_key = begin.HasField("key")
            value = database.get_in_parts(begin.key, version, PART_BYTES) if has_key else None
        except Exception:
            self._leases.release(begin.lease)
            raise
        if isinstance(value, OutgoingValue):
            self._outbox.answer_value(pb.Response(id=request, version=version), value)
            return None
        return pb.Response(version=version) if value is None else pb.Response(version=version, value=value)

    def end(self, _: pb.Request, end: pb.End) -> None:
        """End a lease."""
        self._leases.release(end.lease)

    def commit(self, request: pb.Request, commit: pb.Commit) -> None:
        """Order and decide a transaction; it is answered after a sync."""
        values = self._uploads.values_of(request, commit.writes)
        if values is None:
            return
        try:
            txn_id = TxnId(self._client, commit.sequence)
            if commit.incarnation not in (0, self._database.incarnation):
                self._check_committed(txn_id, commit.snapshot)
            if not commit.sequence:
                self._pending.start(request.id, self._durable(commit.snapshot))
                return
            for key in commit.reads:
                check_key(key)
            if commit.label:
                check_label(commit.label)
            writes = checked_writes(commit.writes, values)
            gsn, verdict = self._commits.submit(
                writes,
                snapshot=self._leases.readable(commit.snapshot),
                label=commit.label,
                reads=list(commit.reads),
                ranges=ranges_from(commit.ranges),
                deletes=deletes_from(commit.deletes) if commit.deletes else (),
                appended=checked_appended(writes, commit.appended),
                folds=folds_from(commit.folds, writes) if commit.folds else (),
                txn_id=txn_id,
            )
        finally:
            self._leases.release(commit.lease)
        self._unsynced.append(PendingWrite(request.id, txn_id, gsn, verdict, commit.snapshot))

    def _check_committed(self, txn_id: TxnId, snapshot: int) -> None:
        """Check that the log has a transaction whose snapshot another incarnation had not made durable: it can only
        have committed there. Raises ConflictError."""
        if not txn_id.sequence or not self._commits.has_record_of(txn_id):
            raise ConflictError.restarted(snapshot)

    async def _durable(self, version: int) -> pb.Response:
        """The answer to a commit without writes: what the transaction has read is durable."""
        self._leases.readable(version)
        try:
            await self._acknowledgements.wait(version, None)
        except OutcomeUnknown as error:
            raise Unavailable(error.cause) from error
        return pb.Response(version=version)

    # ---- syncs

    @property
    def has_room(self) -> bool:
        """Whether a write need not wait until the disk has taken others."""
        return self._commits.has_room

    async def until_room(self) -> None:
        """Wait until `has_room`."""
        self.sync()
        await self._acknowledgements.until_room()

    def sync(self) -> None:
        """Make all submitted records durable with one sync, and answer their requests afterwards."""
        if self._unsynced:
            unsynced, self._unsynced = self._unsynced, []
            self.syncs += 1
            on_durable = functools.partial(self._synced, unsynced)
            self._acknowledgements.notify(unsynced[-1].gsn, on_durable, unsynced[0].gsn)

    def _synced(self, unsynced: list[PendingWrite], failure: BaseException | None) -> None:
        self.syncs -= 1
        durable = self._database.log.durable
        for written in unsynced:
            try:
                if failure is not None and written.gsn > durable:
                    raise OutcomeUnknown(str(written.txn_id), getattr(failure, "cause", repr(failure)))
                response = self._outcome_of(written)
                self._outbox.answer(response, reads=response.HasField("undone"))
            except Exception as error:
                self._outbox.fail(written.id, error)
        self._advanced.notify()

    def _outcome_of(self, written: PendingWrite) -> pb.Response:
        gsn, verdict = written.gsn, written.verdict
        if not verdict.committed:
            gsn, verdict = self._commits.decided_first(written.txn_id, gsn, verdict)
            if not verdict.committed:
                if written.snapshot is not None:
                    self._leases.mark_contended(verdict.key)
                    raise self._commits.conflict(verdict, written.snapshot)
                return pb.Response(id=written.id, version=gsn, undone=pb.Undone(failed=verdict.failed))
        return pb.Response(id=written.id, version=gsn, wanted=written.contended)
