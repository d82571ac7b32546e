"""Commits of a client: it appends the commit record itself, and a mapping server tells it the verdict.

A transaction id is decided once, by the first commit record with it (DBS-6), so a copy that is appended because the
first one seems lost, or because its shard has stalled, does no harm. A commit is called refused only when no copy is
in the log or ever will be (DBS-7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
from logdb.log.contract import LogFailed, Record
from logdb.store.limits import INLINE_VALUE_BYTES
from logdb.store.records import COMMIT, FENCE, PLACEMENT, VALUE, Place, TxnId, Value, digest, encode_commit
from logdb.store.records import Commit as CommitRecord
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import Reason


@dataclass(slots=True)
class PendingCommit:
    """A commit under way. Of its copies, `under_way` are not known to be in the log, `refused` will never be, and of
    `doubtful` nobody knows. `gsn`: where one stands. `is_blind`: it has read nothing."""

    call: int
    txn: TxnId
    deadline: int | None
    finish: Callable[[Decided], Any]
    record: Record = (COMMIT, b"")
    under_way: int = 0
    refused: int = 0
    doubtful: int = 0
    gsn: int = 0
    asked: Address = ""
    is_late: bool = False
    is_over: bool = False
    is_blind: bool = False
    why: Exception | None = None
    nag: Timer = field(default_factory=lambda: Timer(_nothing))
    hedge: Timer = field(default_factory=lambda: Timer(_nothing))


def _nothing() -> None:
    """An alarm that was not set."""


class CommitClient:
    """All commits of a client."""

    def __init__(
        self,
        context: ClientContext,
        log: LogAdapter,
        asking: QueryClient,
        placement: Placement | None,
        hedge_ns: int,
        copies: int,
        max_bytes: int,
        holds: Leases,
        order: StickySegmentPolicy,
    ) -> None:
        self._context, self._log, self._asking = context, log, asking
        self._placement, self._hedge_ns, self._copies = placement, hedge_ns, copies
        self._unstated = encode_placement(placement)
        self._max_bytes, self._holds, self._order = max_bytes, holds, order
        self._sequence = 0
        self._fresh: set[TxnId] = set()
        self.open: dict[TxnId, list[PendingCommit]] = {}
        self._unsaid: list[PendingCommit] = []
        self._say = Timer(self._await)

    def new_id(self) -> TxnId:
        """An id that no transaction has."""
        self._sequence += 1
        txn = TxnId(self._context.client, self._sequence)
        self._fresh.add(txn)
        return txn

    # ---- calls

    def commit(self, call: int, request: Commit) -> None:
        """The application commits: large values first, then the record that refers to them."""
        txn = request.txn_id or self.new_id()
        self._state_placement()

        def finish(decided: Decided) -> Committed:
            return Committed(txn, decided.version, decided.verdict, decided.winner)

        committing = self._begin(call, txn, request.deadline, finish)
        committing.is_blind = not (request.reads or request.ranges)
        if txn in self._fresh:
            self._fresh.remove(txn)
        else:  # it may have been sent before, by an earlier call or an earlier client
            committing.doubtful = 1
        large = [key for key, value in request.writes.items() if value is not None and len(value) > INLINE_VALUE_BYTES]
        if large:
            self._append_values(committing, request, large)
        else:
            self._seal(committing, request, request.writes)

    def settle(self, call: int, request: Settle) -> None:
        """The application wants a transaction ended."""

        def finish(decided: Decided) -> Outcome:
            status = Status.COMMITTED if decided.verdict.committed else Status.ABORTED
            return Outcome(status, decided.version)

        committing = self._begin(call, request.txn_id, request.deadline, finish)
        committing.record = COMMIT, encode_commit(CommitRecord(*request.txn_id, FENCE))
        self._append(committing)

    def _begin(self, call: int, txn: TxnId, deadline: int | None, finish: Callable[[Decided], Any]) -> PendingCommit:
        committing = PendingCommit(call, txn, deadline, finish)
        committing.nag = Timer(lambda: self._retry_verdict(committing))
        committing.hedge = Timer(lambda: self._append(committing))
        self._context.open(call, deadline, lambda: self._expired(committing))
        self.open.setdefault(txn, []).append(committing)
        return committing

    def _state_placement(self) -> None:
        """Append the placement, before the first record that follows it; with the next commit again if that fails."""
        payload, self._unstated = self._unstated, None
        if payload is not None:

            def appended(result: Any) -> None:
                if not isinstance(result, calls.AppendResult):
                    self._unstated = payload

            self._log.call(calls.Append(((PLACEMENT, payload),)), appended)

    def _shard(self, key: bytes) -> int | None:
        return None if self._placement is None else self._placement(key)

    def _append_values(self, committing: PendingCommit, request: Commit, large: list[bytes]) -> None:
        """A copy that nobody refers to does no harm, so what failed is simply appended again."""
        values = [request.writes[key] or b"" for key in large]
        records = [placed(VALUE, value, self._shard(key)) for key, value in zip(large, values, strict=True)]

        def appended(result: Any) -> None:
            if committing.is_over:
                return
            if isinstance(result, calls.AppendResult):
                writes: dict[bytes, Value] = dict(request.writes)
                for key, value, gsn, shard in zip(large, values, result.gsns, result.shards, strict=True):
                    writes[key] = Place(gsn, shard, len(value), digest(value))
                self._holds.hold(committing.txn, min(result.gsns))
                self._seal(committing, request, writes)
            elif isinstance(result, LogFailed) and not committing.is_late:
                self._context.set_timer(Timer(again), self._context.now + self._context.backoff(3))
            else:
                committing.refused += 1
                committing.why = result
                self._look(committing)

        def again() -> None:
            if not committing.is_over:
                self._log.call(calls.Append(records, None, committing.deadline), appended)

        again()

    def _seal(self, committing: PendingCommit, request: Commit, writes: Any) -> None:
        """All places are known: make the commit record."""
        _, snapshot, label, reads, ranges, conditions, *_ = request
        payload = encode_commit(CommitRecord(*committing.txn, writes, snapshot, label, reads, ranges, conditions))
        if len(payload) > self._max_bytes:
            too_large = TransactionTooLarge(len(payload), self._max_bytes, ", with what it has read,")
            self._end(committing, too_large)
            return
        committing.record = placed(COMMIT, payload, self._shard(next(iter(writes))) if writes else None)
        self._append(committing)

    # ---- the record

    def _append(self, committing: PendingCommit) -> None:
        """Append a copy of the commit record, and have the server tell."""
        if committing.is_over or committing.gsn:
            return
        committing.under_way += 1
        self._order.appending()
        self._log.call(
            calls.Append((committing.record,), None, committing.deadline),
            lambda result: self._appended(committing, result),
        )
        if committing.is_over:
            return
        self._tell_me(committing)
        copies = committing.under_way + committing.refused + committing.doubtful
        if copies < self._copies and type(committing.record) is tuple:
            self._context.set_timer(committing.hedge, self._context.now + self._hedge_ns)

    def _appended(self, committing: PendingCommit, result: Any) -> None:
        """A copy is in the log, or will never be, or nobody knows."""
        self._order.appended()
        if committing.is_over:
            return
        committing.under_way -= 1
        if isinstance(result, calls.AppendResult):
            committing.gsn = committing.gsn or result.gsns[0]
            committing.hedge.at = None
            if committing.asked != self._asking.server:
                self._tell_me(committing)
            self._context.set_timer(committing.nag, self._context.now + self._context.config.answer_timeout_ns)
        elif isinstance(result, LogFailed):
            committing.doubtful += 1
            if not committing.is_late:
                self._context.set_timer(committing.hedge, self._context.now + self._context.backoff(3))
        else:
            committing.refused += 1
            committing.why = result
        self._look(committing)

    def _look(self, committing: PendingCommit) -> None:
        """Whether there is nothing left to wait for but the verdict, which may not come in time."""
        if committing.under_way:
            return
        if not committing.gsn and not committing.doubtful:
            self._end(committing, Unavailable(f"nothing was committed: {committing.why}"))
        elif committing.is_late:
            self._end(committing, OutcomeUnknown(str(committing.txn), "no verdict came before the deadline"))

    def _expired(self, committing: PendingCommit) -> None:
        """The deadline has passed. Appends under way end at the same time, and say whether they have left."""
        committing.is_late = True
        committing.hedge.at = None
        if committing.gsn or committing.under_way or committing.doubtful:
            self._look(committing)

    # ---- the verdict

    def _tell_me(self, committing: PendingCommit) -> None:
        """Have the server push the verdict; one message for all who ask at the same time."""
        committing.asked = self._asking.server
        self._unsaid.append(committing)
        if self._say.at is None:
            self._context.set_timer(self._say, self._context.now)

    def _await(self) -> None:
        unsaid, self._unsaid = self._unsaid, []
        waits = {}
        for committing in unsaid:
            if not committing.is_over:
                committing.asked = self._asking.server
                waits[committing.txn] = AwaitedTransaction(*committing.txn, committing.gsn)
        if waits:
            self._context.send(self._asking.server, AwaitVerdicts(tuple(waits.values())))

    def _retry_verdict(self, committing: PendingCommit) -> None:
        """It stands in the log, and no verdict has come: ask again, and somebody else."""
        self._asking.leave(committing.asked)
        self._tell_me(committing)
        self._context.set_timer(committing.nag, self._context.now + self._context.config.answer_timeout_ns)

    def lost(self, server: Address) -> None:
        """Whom this server was to tell a verdict shall hear it from the one that is asked now."""
        for committings in self.open.values():
            for committing in committings:
                if committing.asked == server:
                    self._tell_me(committing)

    def verdicts(self, message: Verdicts, sender: Address) -> None:
        for decided in message.verdicts:
            txn = TxnId(decided.client, decided.sequence)
            if decided.version:
                self._asking.saw(decided.version)
            for committing in list(self.open.get(txn, ())):
                if decided.verdict.reason is Reason.TOO_OLD and committing.is_blind:
                    overtaken = "a compaction was faster than its large values; nothing was committed, send it again"
                    self._end(committing, Unavailable(overtaken))
                elif decided.verdict.reason is Reason.DUPLICATE:
                    self._end(committing, OutcomeUnknown(str(txn), "what was written so long ago was compacted away"))
                else:
                    self._end(committing, committing.finish(decided))

    def _end(self, committing: PendingCommit, result: Any) -> None:
        committing.is_over = True
        self._holds.hold(committing.txn, None)
        self._context.discard_timer(committing.nag)
        self._context.discard_timer(committing.hedge)
        waiting = self.open[committing.txn]
        waiting.remove(committing)
        if not waiting:
            del self.open[committing.txn]
        self._context.answer(committing.call, result)

    def check_invariants(self) -> None:
        assert not self._unsaid or self._say.at is not None, "verdicts are wanted, and nobody asks for them"
