"""Commits of a client: it appends the commit record itself, and a mapping server pushes the verdict.

A transaction id is decided once, by the first commit record with it (DBS-6). So another copy does no harm: the client
appends one when the first seems lost, or when its shard has stalled. A commit is called Unavailable only if no copy is
in the log or ever will be (DBS-7).

A commit record is appended after its large values, and after nothing else: a mapping server has applied every commit
that has returned, so whatever is appended later is ordered later (DBS-18).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from logdb.cluster.client.leases import Leases
from logdb.cluster.client.query_client import QueryClient
from logdb.cluster.client.requests import Commit, Committed, Settle
from logdb.cluster.log_adapter import LogAdapter
from logdb.cluster.messages import AwaitedTransaction, AwaitVerdicts, Decided, Verdicts
from logdb.cluster.placement import Placement, StickySegmentPolicy, encode_placement, placed
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address
from logdb.errors import OutcomeUnknown, TransactionTooLarge, Unavailable
from logdb.log import requests as calls
from logdb.log.contract import GENESIS, LogFailed, Record
from logdb.store.limits import INLINE_VALUE_BYTES
from logdb.store.records import COMMIT, FENCE, PLACEMENT, VALUE, Place, TxnId, Value, digest, encode_commit
from logdb.store.records import Commit as CommitRecord
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import Reason

MAX_UNUSED_IDS: Final = 10_000
"""Maximum number of ids that are known to be unused: many transactions end without a commit. An older one counts as
used."""


@dataclass(slots=True)
class PendingCommit:
    """A commit under way.

    Of its copies, `under_way` are being appended, `refused` are not and never will be in the log, and of `unknown` the
    outcome is unknown. `gsn`: of a copy that is in the log, else 0. `error`: why a copy was refused. `server`: the
    mapping server that was last asked for the verdict. `is_late`: the deadline has passed. `is_blind`: the transaction
    has read nothing. `after`: the GSN of its last large value.
    """

    call: int
    txn: TxnId
    deadline: int | None
    to_result: Callable[[Decided], Any]
    record: Record = (COMMIT, b"")
    under_way: int = 0
    refused: int = 0
    unknown: int = 0
    gsn: int = 0
    after: int = GENESIS
    server: Address = ""
    is_late: bool = False
    is_ended: bool = False
    is_blind: bool = False
    error: Exception | None = None
    verdict_timer: Timer = field(default_factory=lambda: Timer(_do_nothing))
    hedge_timer: Timer = field(default_factory=lambda: Timer(_do_nothing))


def _do_nothing() -> None:
    """A timer that was not set."""


class CommitClient:
    """All commits of a client. `pending`: those under way, by transaction. `order`: counts the appends under way."""

    def __init__(
        self,
        context: ClientContext,
        log: LogAdapter,
        queries: QueryClient,
        placement: Placement | None,
        hedge_ns: int,
        max_copies: int,
        max_bytes: int,
        leases: Leases,
        order: StickySegmentPolicy,
    ) -> None:
        self._context, self._log, self._queries = context, log, queries
        self._placement, self._hedge_ns, self._max_copies = placement, hedge_ns, max_copies
        self._unstated_placement = encode_placement(placement)
        self._max_bytes, self._leases, self.order = max_bytes, leases, order
        self._sequence = 0
        self._unused_ids = OrderedDict[TxnId, None]()
        self.pending: dict[TxnId, list[PendingCommit]] = {}
        self._unsent: list[PendingCommit] = []
        self._flush = Timer(self._send_requests)

    def new_id(self) -> TxnId:
        """Allocate a transaction id."""
        self._sequence += 1
        txn = TxnId(self._context.client, self._sequence)
        self._unused_ids[txn] = None
        if len(self._unused_ids) > MAX_UNUSED_IDS:
            self._unused_ids.popitem(last=False)
        return txn

    # ---- calls

    def commit(self, call: int, request: Commit) -> None:
        """Commit a transaction: append large values first, then the record that refers to them."""
        txn = request.txn_id or self.new_id()
        self._state_placement()

        def to_result(decided: Decided) -> Committed:
            return Committed(txn, decided.version, decided.verdict, decided.winner, decided.is_contended)

        pending = self._begin(call, txn, request.deadline, to_result)
        pending.is_blind = not (request.reads or request.ranges)
        if txn in self._unused_ids:
            del self._unused_ids[txn]
        else:  # an earlier call, or an earlier client, may have appended a record
            pending.unknown = 1
        large = [key for key, value in request.writes.items() if value is not None and len(value) > INLINE_VALUE_BYTES]
        if large:
            self._append_values(pending, request, large)
        else:
            self._append_record(pending, request, request.writes)

    def settle(self, call: int, request: Settle) -> None:
        """End a transaction: append a record with its id that can never be applied."""

        def to_result(decided: Decided) -> Outcome:
            status = Status.COMMITTED if decided.verdict.committed else Status.ABORTED
            return Outcome(status, decided.version)

        pending = self._begin(call, request.txn_id, request.deadline, to_result)
        pending.record = COMMIT, encode_commit(CommitRecord(*request.txn_id, FENCE))
        self._append_copy(pending)

    def _begin(self, call: int, txn: TxnId, deadline: int | None, to_result: Callable[[Decided], Any]) -> PendingCommit:
        pending = PendingCommit(call, txn, deadline, to_result)
        pending.verdict_timer = Timer(lambda: self._retry_verdict(pending))
        pending.hedge_timer = Timer(lambda: self._append_copy(pending))
        self._context.open(call, deadline, lambda: self._expired(pending))
        self.pending.setdefault(txn, []).append(pending)
        return pending

    def _state_placement(self) -> None:
        """Append the placement before the first record that follows it; after a failure, with the next commit."""
        payload, self._unstated_placement = self._unstated_placement, None
        if payload is not None:

            def on_appended(result: Any) -> None:
                if not isinstance(result, calls.AppendResult):
                    self._unstated_placement = payload

            self._log.call(calls.Append(((PLACEMENT, payload),)), on_appended)

    def _shard(self, key: bytes) -> int | None:
        return None if self._placement is None else self._placement(key)

    def _append_values(self, pending: PendingCommit, request: Commit, large: list[bytes]) -> None:
        """Append the values of the keys `large`, and again after a failure: a copy without a reference is harmless."""
        values = [request.writes[key] or b"" for key in large]
        records = [placed(VALUE, value, self._shard(key)) for key, value in zip(large, values, strict=True)]

        def on_appended(result: Any) -> None:
            if pending.is_ended:
                return
            if isinstance(result, calls.AppendResult):
                writes: dict[bytes, Value] = dict(request.writes)
                for key, value, gsn, shard in zip(large, values, result.gsns, result.shards, strict=True):
                    writes[key] = Place(gsn, shard, len(value), digest(value))
                self._leases.set(pending.txn, min(result.gsns))
                pending.after = max(result.gsns)
                self._append_record(pending, request, writes)
            elif isinstance(result, LogFailed) and not pending.is_late:
                self._context.set_timer(Timer(append), self._context.now + self._context.backoff(3))
            else:
                pending.refused += 1
                pending.error = result
                self._end_if_certain(pending)

        def append() -> None:
            if not pending.is_ended:
                self._log.call(calls.Append(records, None, pending.deadline, GENESIS), on_appended)

        append()

    def _append_record(self, pending: PendingCommit, request: Commit, writes: Any) -> None:
        """Append the commit record; `writes` has the places of large values."""
        _, snapshot, label, reads, ranges, conditions, *_ = request
        record = CommitRecord(*pending.txn, writes, snapshot, label, reads, ranges, conditions)
        record = record._replace(deletes=request.deletes, appended=request.appended, folds=request.folds)
        payload = encode_commit(record)
        if len(payload) > self._max_bytes:
            self._end(pending, TransactionTooLarge(len(payload), self._max_bytes, ", with what it has read,"))
            return
        first = next(iter(writes), request.folds[0].key if request.folds else None)
        pending.record = placed(COMMIT, payload, None if first is None else self._shard(first))
        self._append_copy(pending)

    # ---- the record

    def _append_copy(self, pending: PendingCommit) -> None:
        """Append a copy of the commit record, and request the verdict."""
        if pending.is_ended or pending.gsn:
            return
        pending.under_way += 1
        self.order.appending()
        self._log.call(
            calls.Append((pending.record,), None, pending.deadline, pending.after),
            lambda result: self._appended(pending, result),
        )
        if pending.is_ended:
            return
        self._request_verdict(pending)
        copies = pending.under_way + pending.refused + pending.unknown
        if copies < self._max_copies and type(pending.record) is tuple:
            self._context.set_timer(pending.hedge_timer, self._context.now + self._hedge_ns)

    def _appended(self, pending: PendingCommit, result: Any) -> None:
        """The append of a copy has ended: it is in the log, it never will be, or its outcome is unknown."""
        self.order.appended()
        if pending.is_ended:
            return
        pending.under_way -= 1
        if isinstance(result, calls.AppendResult):
            pending.gsn = pending.gsn or result.gsns[0]
            pending.hedge_timer.at = None
            if pending.server != self._queries.server:
                self._request_verdict(pending)
            self._context.set_timer(pending.verdict_timer, self._context.now + self._context.config.answer_timeout_ns)
        elif isinstance(result, LogFailed):
            pending.unknown += 1
            if not pending.is_late:
                self._context.set_timer(pending.hedge_timer, self._context.now + self._context.backoff(3))
        else:
            pending.refused += 1
            pending.error = result
        self._end_if_certain(pending)

    def _end_if_certain(self, pending: PendingCommit) -> None:
        """End the commit if no copy is in the log or ever will be, or if its verdict is too late."""
        if pending.under_way:
            return
        if not pending.gsn and not pending.unknown:
            self._end(pending, Unavailable(f"nothing was committed: {pending.error}"))
        elif pending.is_late:
            self._end(pending, OutcomeUnknown(str(pending.txn), "no verdict came before the deadline"))

    def _expired(self, pending: PendingCommit) -> None:
        """The deadline has passed. Open appends have the same deadline, and their results report which records were
        sent."""
        pending.is_late = True
        pending.hedge_timer.at = None
        if pending.gsn or pending.under_way or pending.unknown:
            self._end_if_certain(pending)

    # ---- the verdict

    def _request_verdict(self, pending: PendingCommit) -> None:
        """Request the verdict from the server; the requests of one event are sent in one message."""
        pending.server = self._queries.server
        self._unsent.append(pending)
        if self._flush.at is None:
            self._context.set_timer(self._flush, self._context.now)

    def _send_requests(self) -> None:
        unsent, self._unsent = self._unsent, []
        awaited = {}
        for pending in unsent:
            if not pending.is_ended:
                pending.server = self._queries.server
                awaited[pending.txn] = AwaitedTransaction(*pending.txn, pending.gsn)
        if awaited:
            self._context.send(self._queries.server, AwaitVerdicts(tuple(awaited.values())))

    def _retry_verdict(self, pending: PendingCommit) -> None:
        """The record is in the log, and no verdict has arrived: request it from the next server."""
        self._queries.leave(pending.server)
        self._request_verdict(pending)
        self._context.set_timer(pending.verdict_timer, self._context.now + self._context.config.answer_timeout_ns)

    def lost(self, server: Address) -> None:
        """`server` is unreachable: request its verdicts from the current server."""
        for commits in self.pending.values():
            for pending in commits:
                if pending.server == server:
                    self._request_verdict(pending)

    def verdicts(self, message: Verdicts, sender: Address) -> None:
        """End the commits whose verdicts have arrived."""
        for decided in message.verdicts:
            txn = TxnId(decided.client, decided.sequence)
            if decided.version:
                self._queries.saw(decided.version)
            for pending in list(self.pending.get(txn, ())):
                if decided.verdict.reason is Reason.TOO_OLD and pending.is_blind:
                    overtaken = "a compaction was ordered before its large values; nothing was committed, send it again"
                    self._end(pending, Unavailable(overtaken))
                elif decided.verdict.reason is Reason.DUPLICATE:
                    self._end(pending, OutcomeUnknown(str(txn), "its commit record was compacted away"))
                else:
                    self._end(pending, pending.to_result(decided))

    def _end(self, pending: PendingCommit, result: Any) -> None:
        pending.is_ended = True
        self._leases.set(pending.txn, None)
        self._context.discard_timer(pending.verdict_timer)
        self._context.discard_timer(pending.hedge_timer)
        commits = self.pending[pending.txn]
        commits.remove(pending)
        if not commits:
            del self.pending[pending.txn]
        self._context.answer(pending.call, result)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self._unsent or self._flush.at is not None, "verdicts are awaited, and no timer requests them"
        for txn, commits in self.pending.items():
            assert commits, f"{txn} has no commit under way"
            assert not any(pending.is_ended for pending in commits), f"a commit of {txn} has ended"
