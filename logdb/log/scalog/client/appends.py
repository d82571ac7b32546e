"""Appends: splits calls into chunks for segments, and collects the GSNs or the error of each call.

The policy splits an append into portions, one for each shard that it names, and a portion is split into chunks no
larger than a batch. A chunk is sent when the one before it is in the log, so a portion keeps its order in any failure.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, ProtocolViolation
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, LogFailed, NotOfThisShard, Record
from logdb.log.policies import RecordIndexes
from logdb.log.requests import RECORD_OVERHEAD_BYTES, ShardState, record_bytes
from logdb.log.scalog.client.batches import Chunk, SequenceNumbers, merged
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.ordering_client import OrderingClient
from logdb.log.scalog.client.segment_appender import SegmentAppender
from logdb.log.scalog.messages import Appended, AppendStatus, AppendStatusRequest, Rejected, TailResponse

MAX_UNKNOWN = 10_000
"""Number of appends that ended as unknown whose outcomes are kept."""
STILL_OPEN = "its segment is still open, and no server has returned its GSN"


class PendingAppend:
    """An open append. `left`: number of records without a result. `excluded`: number of records that are certainly not
    in the log; `doubtful`: of those that may be in it; `error`: the reason. `sent`: (indexes, first number) of the
    chunks that were sent. `outcome_calls`: (call, id) of the calls that wait for its outcome."""

    __slots__ = (
        *("call", "doubtful", "error", "excluded", "gsns", "left", "outcome_calls", "records"),
        *("sent", "shard", "shards", "size"),
    )

    def __init__(self, call: int, records: Sequence[Record], shard: int | None) -> None:
        self.call, self.records, self.shard = call, records, shard
        self.size = record_bytes(records)
        self.left = len(records)
        self.excluded = self.doubtful = 0
        self.sent: tuple[tuple[RecordIndexes, int], ...] = ()
        self.outcome_calls: tuple[tuple[int, AppendId], ...] = ()
        self.error: Exception | None = None
        self.gsns = [0] * len(records)
        self.shards = [0] * len(records)

    def id(self, client: int) -> AppendId:
        """The id of the append, for `Outcome`."""
        numbers = [0] * len(self.records)
        for indexes, first in self.sent:
            for number, index in enumerate(indexes, first):
                numbers[index] = number
        runs: list[tuple[int, int]] = []
        for number in numbers:
            first, count = runs[-1] if runs else (-1, 0)
            if number == (first + count if first else 0):
                runs[-1] = first, count + 1
            else:
                runs.append((number, 1))
        return AppendId(client, tuple(runs))

    @property
    def first(self) -> int:
        """The lowest of its numbers."""
        return self.sent[0][1]

    def result(self, client: int) -> object:
        """The result of the call when all records have results."""
        missing = self.excluded + self.doubtful
        if not missing:
            return calls.AppendResult(self.gsns, self.shards)
        if self.excluded == len(self.records):
            return self.error
        reason = f"{len(self.records) - missing} of {len(self.records)} records are in the log; {self.error}"
        return AppendUnknown(reason, self.id(client))

    def outcome(self, append_id: AppendId) -> object:
        """The outcome, for `Outcome`, when all records have results."""
        if self.doubtful:
            return AppendUnknown(str(self.error), append_id)
        return [gsn or None for gsn in self.gsns]


class OutcomeSearch:
    """A call that searches for the records of another client's append. `missing`: numbers that were not found yet."""

    __slots__ = ("call", "found", "id", "missing", "timer", "turn")

    def __init__(self, call: int, append_id: AppendId, turn: int) -> None:
        self.call, self.id, self.turn = call, append_id, turn
        self.found: dict[int, int] = {}
        self.missing = {number for first, count in append_id.numbers if first for number in range(first, first + count)}
        self.timer: Timer

    def take(self, first: int, count: int, gsn: int) -> None:
        """Add a result: these numbers have the GSNs from `gsn` on."""
        for number in self.missing.intersection(range(first, first + count)):
            self.found[number] = gsn + number - first
        self.missing -= self.found.keys()

    def gsns(self) -> list[int | None]:
        """The GSN of each record, when none is missing."""
        return [
            self.found[number] if first else None
            for first, count in self.id.numbers
            for number in range(first, first + count)
        ]


class ShardPortion:
    """The records of an append for one shard. `pending`: chunks that are not assigned to a segment yet. `open`: number
    of records of assigned chunks without a result."""

    __slots__ = ("append", "open", "pending", "shard")

    def __init__(self, append: PendingAppend, shard: int | None) -> None:
        self.append, self.shard = append, shard
        self.pending: list[Chunk] = []
        self.open = 0


class AppendClient:
    """All appends of a client. `buffered`: the size of the admitted ones; `_queued`: those that wait for admission."""

    def __init__(self, context: ClientContext, directory: Directory, ordering_client: OrderingClient) -> None:
        self._context, self._directory, self._ordering_client = context, directory, ordering_client
        self.policy = context.config.policy
        self.numbers = SequenceNumbers()
        self.appenders: dict[int, SegmentAppender] = {}
        self.buffered = 0
        self._queued: OrderedDict[PendingAppend, None] = OrderedDict()
        self._is_admitting = False
        self._unassigned: list[Chunk] = []
        self._drawn: dict[int | None, int] = {}
        self._open: dict[int, PendingAppend] = {}
        self._unknown: dict[AppendId, PendingAppend] = {}
        self._searches: list[OutcomeSearch] = []
        self._view_timer = Timer(self._refresh_for_unassigned)

    # ---- calls

    def append(self, call: int, request: calls.Append) -> None:
        """Start an append."""
        context = self._context
        append = PendingAppend(call, tuple(request.records), request.shard)
        context.open(call, request.deadline, lambda: self._expired(append))
        if not append.records:
            context.answer(call, append.result(context.client))
            return
        self._open[call] = append
        if context.now - self._ordering_client.refreshed_at > context.config.view_age_ns:
            self._ordering_client.refresh()
        self._queued[append] = None
        self._admit()

    def _admit(self) -> None:
        """Admit queued appends while the buffer has room. An append may end at once, which calls this again: the outer
        call goes on then, so the depth of the stack is independent of the length of the queue."""
        if self._is_admitting:
            return
        self._is_admitting = True
        while self._queued:
            append = next(iter(self._queued))
            if self.buffered and self.buffered + append.size > self._context.config.buffer_bytes:
                break
            del self._queued[append]
            self.buffered += append.size
            self._split(append)
        self._is_admitting = False

    def _split(self, append: PendingAppend) -> None:
        records = append.records
        try:
            portions = [(append.shard, range(len(records)))] if append.shard is not None else self.policy.split(records)
        except Exception as error:  # the application's own function
            append.excluded, append.left, append.error = len(records), 0, error
            self._end(append)
            return
        for shard, indexes in list(portions):
            portion = ShardPortion(append, shard)
            portion.pending += self._chunks_of(portion, indexes)
            self._assign_next(portion)

    def _chunks_of(self, portion: ShardPortion, indexes: RecordIndexes) -> list[Chunk]:
        """Chunks of at most about a batch."""
        append, limit = portion.append, self._context.config.batch_bytes
        records = append.records if len(indexes) == len(append.records) else [append.records[at] for at in indexes]
        if append.size <= limit:
            size = append.size * len(indexes) // len(append.records)
            return [Chunk(portion, indexes, records, size)]
        pending, start, size = [], 0, 0
        for index, (_, payload) in enumerate(records):
            bytes_ = len(payload) + RECORD_OVERHEAD_BYTES
            if index > start and size + bytes_ > limit:
                pending.append(Chunk(portion, indexes[start:index], records[start:index], size))
                start, size = index, 0
            size += bytes_
        return [*pending, Chunk(portion, indexes[start:], records[start:], size)]

    def _assign_next(self, portion: ShardPortion) -> None:
        if portion.pending:
            chunk = portion.pending.pop(0)
            portion.open += len(chunk.records)
            self._assign(chunk)

    def _expired(self, append: PendingAppend) -> None:
        """The deadline has passed. Records that were sent are not given up: their numbers must get results."""
        if append in self._queued:
            del self._queued[append]
        if append.sent:
            error = AppendUnknown("no answer came before the deadline", append.id(self._context.client))
            self._keep_unknown(error.append_id, append)
            self._answer(append, error)
        else:
            self._answer(append, Unavailable("no server accepted the records before the deadline"))

    def _answer(self, append: PendingAppend, result: object) -> None:
        self._open.pop(append.call, None)
        self._context.answer(append.call, result)

    # ---- outcomes of appends that ended as unknown

    def id_of(self, call: int) -> AppendId | None:
        """The id of an open append; None if none of its records was sent."""
        append = self._open.get(call)
        return append.id(self._context.client) if append is not None and append.sent else None

    def _keep_unknown(self, append_id: AppendId, append: PendingAppend) -> None:
        """Keep an unknown append. Its numbers stay unsettled, so that servers keep their GSNs for other clients too."""
        self._unknown[append_id] = append
        self.numbers.retain(append.first)
        if len(self._unknown) > MAX_UNKNOWN:
            self.numbers.release(self._unknown.pop(next(iter(self._unknown))).first)

    def outcome(self, call: int, request: calls.Outcome) -> None:
        """Return the outcome of an append, of this client or of another one."""
        context, append = self._context, self._unknown.get(request.id)
        if append is not None:
            context.open(call, request.deadline, lambda: context.answer(call, AppendUnknown(STILL_OPEN, request.id)))
            append.outcome_calls += ((call, request.id),)
            self._finish(append)
            return
        search = OutcomeSearch(call, request.id, context.rng.randrange(8))
        search.timer = Timer(lambda: self._search(search))
        context.open(call, request.deadline, lambda: self._not_found(search))
        self._searches.append(search)
        self._ordering_client.confirm(lambda tail: self._search(search))

    def _finish(self, append: PendingAppend) -> None:
        if not append.left:
            for call, append_id in append.outcome_calls:
                self._context.answer(call, append.outcome(append_id))
            append.outcome_calls = ()

    def _search(self, search: OutcomeSearch) -> None:
        """Request the status of missing numbers from one server of each shard, and from another one the next time."""
        if search not in self._searches:
            return
        if not search.missing:
            self._searches.remove(search)
            self._context.discard_timer(search.timer)
            self._context.answer(search.call, search.gsns())
            return
        if search.turn % 4 == 0:
            self._ordering_client.refresh()
        runs = tuple(merged([(number, 1) for number in search.missing]))
        for config in self._directory.shards.values():
            member = self._directory.member(config.shard, search.turn)
            for segment in config.segments:
                if member is not None:
                    self._context.send(member, AppendStatusRequest(search.id.client, segment.id, runs))
        search.turn += 1
        self._context.set_timer(search.timer, self._context.now + self._context.config.answer_timeout_ns)

    def on_foreign_status(self, answer: AppendStatus) -> None:
        """Add a status to the searches. Records that are in no segment yet may still arrive."""
        for search in [one for one in self._searches if one.id.client == answer.client]:
            for first, count, gsn in answer.ordered:
                if gsn:
                    search.take(first, count, gsn)
            if not search.missing:
                self._search(search)

    def _not_found(self, search: OutcomeSearch) -> None:
        self._searches.remove(search)
        self._context.discard_timer(search.timer)
        reason = f"{len(search.missing)} of its records were not found; its client may still be sending them"
        self._context.answer(search.call, AppendUnknown(reason, search.id))

    # ---- assignment to segments

    def _assign(self, chunk: Chunk) -> None:
        """Assign a chunk, which is in no segment, to a segment."""
        portion = chunk.owner
        assert isinstance(portion, ShardPortion)
        if not self.is_awaited(chunk):
            self.numbers.close(chunk.sequence)
            self.on_dropped(chunk)
            return
        append = portion.append
        if append.shard is not None:
            segments: Sequence[int] = self._directory.of(append.shard)
            if not segments and self._reject_if_closed(append.shard, chunk):
                return
        elif portion.shard is not None:
            segments = self._directory.at_or_after(portion.shard)
        else:
            segments = self._directory.everywhere()
        if segments:
            self._appender(self._pick(portion.shard, segments)).push(chunk)
        else:
            self._unassigned.append(chunk)
            if self._view_timer.at is None:
                self._context.set_timer(self._view_timer, self._context.now + self._context.backoff(3))

    def _reject_if_closed(self, shard: int, chunk: Chunk) -> bool:
        """Reject a chunk for a shard that the application named, if the shard is finalized or does not exist. Returns
        whether that was done, or whether the view must be confirmed first."""
        directory = self._directory
        config = directory.shards.get(shard)
        if directory.view is None or (config is not None and config.state is not ShardState.FINALIZED):
            return False
        if config is not None or directory.has_existed(shard):
            self._exclude(chunk, Unavailable(f"shard {shard} is finalized"))
            return True

        def on_tail(tail: TailResponse) -> None:
            if directory.has_existed(shard):
                self._assign(chunk)
            else:
                self._exclude(chunk, NotOfThisShard(0, shard))

        self._ordering_client.confirm(on_tail)
        return True

    def _pick(self, key: int | None, segments: Sequence[int]) -> int:
        """The segment for which a batch is being collected, else one chosen by the policy. Stalled segments are avoided
        if there are others."""
        drawn = self._drawn.get(key, 0)
        appender = self.appenders.get(drawn)
        if appender is not None and appender.waiting and drawn in segments and not self._is_stalled(drawn):
            return drawn
        round_trip, rng = self._directory.round_trip, self._context.rng
        segment = self.policy.pick(segments, round_trip, rng)
        if self._is_stalled(segment) and (others := [other for other in segments if not self._is_stalled(other)]):
            segment = self.policy.pick(others, round_trip, rng)
        self._drawn[key] = segment
        return segment

    def _is_stalled(self, segment: int) -> bool:
        appender = self.appenders.get(segment)
        return appender is not None and appender.is_stalled

    def _appender(self, segment: int) -> SegmentAppender:
        appender = self.appenders.get(segment)
        if appender is None:
            config = self._directory.shard_of(segment)
            assert config is not None
            appender = SegmentAppender(
                segment,
                config.shard,
                self._context,
                self._directory,
                self._ordering_client,
                self.numbers,
                observer=self,
            )
            self.appenders[segment] = appender
        return appender

    def _refresh_for_unassigned(self) -> None:
        """Request newer views while there are chunks that no segment of the current view accepts."""
        if self._unassigned:
            self._ordering_client.refresh()
            self._context.set_timer(self._view_timer, self._context.now + self._context.backoff(5))

    def view_changed(self) -> None:
        """A newer view was adopted: seal appenders of sealed segments, assign unassigned chunks."""
        for segment, appender in list(self.appenders.items()):
            if not self._directory.accepts_appends(segment):
                appender.seal()
                if not appender.flight:
                    del self.appenders[segment]
        unassigned, self._unassigned = self._unassigned, []
        self._view_timer.at = None
        for chunk in unassigned:
            self._assign(chunk)

    # ---- replies

    def on_appended(self, answer: Appended, sender: Address) -> None:
        appender = self.appenders.get(answer.segment)
        if appender is None:
            return
        for first, count, _ in answer.ranges:
            if first + count > self.numbers.next:
                raise ProtocolViolation(f"SCA-13: {first} to {first + count - 1} were appended, but never sent")
        appender.on_appended(answer, sender)
        if answer.leaving and self._directory.mark_draining(appender.shard):
            self._ordering_client.refresh()
            appender.reroute_pending()

    def on_rejected(self, answer: Rejected, sender: Address) -> None:
        appender = self.appenders.get(answer.segment)
        if appender is not None:
            appender.on_rejected(answer, sender)
            if appender.sealed:
                self._ordering_client.refresh()

    def on_status(self, answer: AppendStatus, sender: Address) -> None:
        self.on_foreign_status(answer)
        appender = self.appenders.get(answer.segment)
        if appender is not None:
            appender.on_status(answer, sender)

    # ---- results of chunks (`segment_appender.AppendObserver`)

    def is_awaited(self, chunk: Chunk) -> bool:
        assert isinstance(chunk.owner, ShardPortion)
        return self._context.is_open(chunk.owner.append.call)

    def on_sent(self, chunk: Chunk) -> None:
        assert isinstance(chunk.owner, ShardPortion)
        chunk.owner.append.sent += ((chunk.indexes, chunk.sequence),)

    def on_ordered(self, chunk: Chunk, start: int, gsns: Sequence[int], shard: int) -> None:
        portion = chunk.owner
        assert isinstance(portion, ShardPortion)
        append, count = portion.append, len(gsns)
        indexes = chunk.indexes[start : start + count]
        if isinstance(indexes, range):
            append.gsns[indexes.start : indexes.stop] = gsns
            append.shards[indexes.start : indexes.stop] = (shard,) * count
        else:
            for index, gsn in zip(indexes, gsns, strict=True):
                append.gsns[index], append.shards[index] = gsn, shard
        self._on_results(portion, count)

    def on_unknown(self, chunk: Chunk, start: int, end: int, reason: str) -> None:
        portion = chunk.owner
        assert isinstance(portion, ShardPortion)
        portion.append.doubtful += end - start
        portion.append.error = LogFailed(reason)
        self._on_results(portion, end - start)

    def on_dropped(self, chunk: Chunk) -> None:
        self._exclude(chunk, Unavailable("append cancelled before it was sent"))

    def on_unassigned(self, chunk: Chunk) -> None:
        """Put the chunk before the later ones of its portion; it waits with them for the chunks assigned before it."""
        portion = chunk.owner
        assert isinstance(portion, ShardPortion)
        portion.open -= len(chunk.records)
        insort(portion.pending, chunk, key=lambda part: part.indexes[0])
        if not portion.open:
            self._assign_next(portion)

    def _exclude(self, chunk: Chunk, error: Exception) -> None:
        """Give up a chunk, which is in no segment, and the later ones of its portion."""
        portion = chunk.owner
        assert isinstance(portion, ShardPortion)
        for part in (chunk, *portion.pending):
            self.numbers.close(part.sequence)
        portion.append.error = error
        following = sum([len(part.records) for part in portion.pending])
        portion.pending.clear()
        portion.open += following
        portion.append.excluded += len(chunk.records) + following
        self._on_results(portion, len(chunk.records) + following)

    def _on_results(self, portion: ShardPortion, count: int) -> None:
        """`count` more records of a portion have results: end the append, or send the next chunk."""
        portion.open -= count
        append = portion.append
        append.left -= count
        if not append.left:
            self._end(append)
            return
        if append.sent:  # it may yet end as unknown
            self.numbers.retain(append.first)
        if not portion.open:
            self._assign_next(portion)

    def _end(self, append: PendingAppend) -> None:
        if append.call in self._open:
            result = append.result(self._context.client)
            if isinstance(result, AppendUnknown):
                self._keep_unknown(result.append_id, append)
            elif append.sent:
                self.numbers.release(append.first)
            self._answer(append, result)
        append.records = ()
        if append.outcome_calls:
            self._finish(append)
        self.buffered -= append.size
        self._admit()

    def check_invariants(self) -> None:
        appenders = self.appenders.values()
        runs = [run for appender in appenders for batch in appender.flight.values() for run in batch.open_runs()]
        chunks = [*self._unassigned, *(chunk for appender in appenders for chunk in appender.waiting)]
        runs += [(chunk.sequence, len(chunk.records)) for chunk in chunks if chunk.sequence]
        runs.sort()
        assert not runs or self.numbers.settled() <= runs[0][0], "SCA-13: a number without a result was settled"
        for (first, count), (following, _) in pairwise(runs):
            assert first + count <= following, f"SCA-13: number {following} is in flight to two segments"
        assert self.buffered >= 0, "more bytes were released than admitted"
        for appender in appenders:
            assert appender.flight_bytes == sum([batch.size for batch in appender.flight.values()])
            assert not (appender.sealed and appender.waiting), "records wait for a sealed segment"
