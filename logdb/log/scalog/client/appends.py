"""Appends: from calls to pieces for segments, from GSNs to answers, and which error says what.

An append is split by the policy into shares, one for each shard that it names, and a share into parts no larger than a
batch. A part is placed when the one before it is in the log, so a share keeps its order whatever happens.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
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

REMEMBERED_UNKNOWN = 10_000
"""Of so many appends that were told to be unknown the outcome is remembered."""
STILL_OPEN = "its segment has not ended, and no server has told where it is"


class PendingAppend:
    """An append under way. `left`: so many records are neither in the log nor given up. `refused`: so many are certain
    not to be in the log, `doubtful` may be or not; `why`. `sent`: (places, first number) of pieces that have left
    this client. `asked`: (call, id) of calls that wait for its outcome."""

    __slots__ = (
        *("asked", "call", "doubtful", "gsns", "left", "records", "refused", "sent", "shard", "shards", "size", "why"),
    )

    def __init__(self, call: int, records: Sequence[Record], shard: int | None) -> None:
        self.call, self.records, self.shard = call, records, shard
        self.size = record_bytes(records)
        self.left = len(records)
        self.refused = self.doubtful = 0
        self.sent: tuple[tuple[RecordIndexes, int], ...] = ()
        self.asked: tuple[tuple[int, AppendId], ...] = ()
        self.why: Exception | None = None
        self.gsns = [0] * len(records)
        self.shards = [0] * len(records)

    def id(self, client: int) -> AppendId:
        """By what it can be asked for."""
        numbers = [0] * len(self.records)
        for places, first in self.sent:
            for number, place in enumerate(places, first):
                numbers[place] = number
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
        """What the application is told when nothing is left."""
        lost = self.refused + self.doubtful
        if not lost:
            return calls.AppendResult(self.gsns, self.shards)
        if self.refused == len(self.records):
            return self.why
        why = f"{len(self.records) - lost} of {len(self.records)} records are in the log; {self.why}"
        return AppendUnknown(why, self.id(client))

    def outcome(self, append_id: AppendId) -> object:
        """What is told of each record when nothing is left."""
        if self.doubtful:
            return AppendUnknown(str(self.why), append_id)
        return [gsn or None for gsn in self.gsns]


class OutcomeSearch:
    """A call that looks for what another client has appended. `missing`: numbers that were not found yet."""

    __slots__ = ("call", "found", "id", "missing", "timer", "turn")

    def __init__(self, call: int, append_id: AppendId, turn: int) -> None:
        self.call, self.id, self.turn = call, append_id, turn
        self.found: dict[int, int] = {}
        self.missing = {number for first, count in append_id.numbers if first for number in range(first, first + count)}
        self.timer: Timer

    def take(self, first: int, count: int, gsn: int) -> None:
        """These numbers have the GSNs from `gsn` on."""
        for number in self.missing.intersection(range(first, first + count)):
            self.found[number] = gsn + number - first
        self.missing -= self.found.keys()

    def gsns(self) -> list[int | None]:
        """Of each record, when none is missing."""
        return [
            self.found[number] if first else None
            for first, count in self.id.numbers
            for number in range(first, first + count)
        ]


class ShardPortion:
    """The records of an append that want the same shard. `parts` are not placed yet, of those that are, `open` records
    are not settled."""

    __slots__ = ("append", "open", "parts", "shard")

    def __init__(self, append: PendingAppend, shard: int | None) -> None:
        self.append, self.shard = append, shard
        self.parts: list[Chunk] = []
        self.open = 0


class AppendClient:
    """All appends of a client. `buffered`: bytes of those that were let in; the others wait at the door."""

    def __init__(self, context: ClientContext, directory: Directory, ordering_client: OrderingClient) -> None:
        self._context, self._directory, self._ordering_client = context, directory, ordering_client
        self.policy = context.config.policy
        self.numbers = SequenceNumbers()
        self.appenders: dict[int, SegmentAppender] = {}
        self.buffered = 0
        self._door: deque[PendingAppend] = deque()
        self._homeless: list[Chunk] = []
        self._drawn: dict[int | None, int] = {}
        self._open: dict[int, PendingAppend] = {}
        self._unknown: dict[AppendId, PendingAppend] = {}
        self._searches: list[OutcomeSearch] = []
        self._look = Timer(self._look_for_homes)

    # ---- calls

    def append(self, call: int, request: calls.Append) -> None:
        """The application appends."""
        context = self._context
        append = PendingAppend(call, tuple(request.records), request.shard)
        context.open(call, request.deadline, lambda: self._expired(append))
        if not append.records:
            context.answer(call, append.result(context.client))
            return
        self._open[call] = append
        if context.now - self._ordering_client.looked_at > context.config.view_age_ns:
            self._ordering_client.refresh()
        self._door.append(append)
        self._let_in()

    def _let_in(self) -> None:
        while self._door:
            append = self._door[0]
            if self.buffered and self.buffered + append.size > self._context.config.buffer_bytes:
                return
            self._door.popleft()
            self.buffered += append.size
            self._split(append)

    def _split(self, append: PendingAppend) -> None:
        records = append.records
        try:
            shares = [(append.shard, range(len(records)))] if append.shard is not None else self.policy.split(records)
        except Exception as error:  # the application's own function
            append.refused, append.left, append.why = len(records), 0, error
            self._end(append)
            return
        for shard, places in list(shares):
            share = ShardPortion(append, shard)
            share.parts += self._parts(share, places)
            self._next_part(share)

    def _parts(self, share: ShardPortion, places: RecordIndexes) -> list[Chunk]:
        """Pieces of about a batch at most."""
        append, most = share.append, self._context.config.batch_bytes
        records = append.records if len(places) == len(append.records) else [append.records[at] for at in places]
        if append.size <= most:
            size = append.size * len(places) // len(append.records)
            return [Chunk(share, places, records, size)]
        parts, start, size = [], 0, 0
        for index, (_, payload) in enumerate(records):
            bytes_ = len(payload) + RECORD_OVERHEAD_BYTES
            if index > start and size + bytes_ > most:
                parts.append(Chunk(share, places[start:index], records[start:index], size))
                start, size = index, 0
            size += bytes_
        return [*parts, Chunk(share, places[start:], records[start:], size)]

    def _next_part(self, share: ShardPortion) -> None:
        if share.parts:
            chunk = share.parts.pop(0)
            share.open += len(chunk.records)
            self._place(chunk)

    def _expired(self, append: PendingAppend) -> None:
        """The deadline has passed. What was sent is not given up: its numbers must be settled, here or there."""
        if append in self._door:
            self._door.remove(append)
        if append.sent:
            error = AppendUnknown("no answer came before the deadline", append.id(self._context.client))
            self._remember(error.append_id, append)
            self._answer(append, error)
        else:
            self._answer(append, Unavailable("no server took the records before the deadline"))

    def _answer(self, append: PendingAppend, result: object) -> None:
        self._open.pop(append.call, None)
        self._context.answer(append.call, result)

    # ---- outcomes of appends that were told to be unknown

    def id_of(self, call: int) -> AppendId | None:
        append = self._open.get(call)
        return append.id(self._context.client) if append is not None and append.sent else None

    def _remember(self, append_id: AppendId, append: PendingAppend) -> None:
        """Others may ask for it when this client has ended, so it does not have servers forget it."""
        self._unknown[append_id] = append
        self.numbers.hold(append.first)
        if len(self._unknown) > REMEMBERED_UNKNOWN:
            self.numbers.release(self._unknown.pop(next(iter(self._unknown))).first)

    def outcome(self, call: int, request: calls.Outcome) -> None:
        """The application asks what became of an append."""
        context, append = self._context, self._unknown.get(request.id)
        if append is not None:
            context.open(call, request.deadline, lambda: context.answer(call, AppendUnknown(STILL_OPEN, request.id)))
            append.asked += ((call, request.id),)
            self._finish(append)
            return
        search = OutcomeSearch(call, request.id, context.rng.randrange(8))
        search.timer = Timer(lambda: self._search(search))
        context.open(call, request.deadline, lambda: self._not_found(search))
        self._searches.append(search)
        self._ordering_client.confirm(lambda tail: self._search(search))

    def _finish(self, append: PendingAppend) -> None:
        if not append.left:
            for call, append_id in append.asked:
                self._context.answer(call, append.outcome(append_id))
            append.asked = ()

    def _search(self, search: OutcomeSearch) -> None:
        """Ask one member of each shard, and another one the next time."""
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

    def found(self, answer: AppendStatus) -> None:
        """A member tells where the records of a client are. What is in no segment by now may yet come."""
        for search in [one for one in self._searches if one.id.client == answer.client]:
            for first, count, gsn in answer.ordered:
                if gsn:
                    search.take(first, count, gsn)
            if not search.missing:
                self._search(search)

    def _not_found(self, search: OutcomeSearch) -> None:
        self._searches.remove(search)
        self._context.discard_timer(search.timer)
        why = f"{len(search.missing)} of its records were not found; only its client knows if they may yet come"
        self._context.answer(search.call, AppendUnknown(why, search.id))

    # ---- places

    def _place(self, chunk: Chunk) -> None:
        """Give a piece, which is nowhere, to a lane."""
        share = chunk.owner
        assert isinstance(share, ShardPortion)
        if not self.wanted(chunk):
            self.numbers.close(chunk.sequence)
            self.dropped(chunk)
            return
        append = share.append
        if append.shard is not None:
            segments: Sequence[int] = self._directory.of(append.shard)
            if not segments and self._is_closed(append.shard, chunk):
                return
        elif share.shard is not None:
            segments = self._directory.instead_of(share.shard)
        else:
            segments = self._directory.everywhere()
        if segments:
            self._appender(self._pick(share.shard, segments)).push(chunk)
        else:
            self._homeless.append(chunk)
            if self._look.at is None:
                self._context.set_timer(self._look, self._context.now + self._context.backoff(3))

    def _is_closed(self, shard: int, chunk: Chunk) -> bool:
        """Whether a shard that the application named has ended, or must be asked for: then the piece is seen to."""
        directory = self._directory
        config = directory.shards.get(shard)
        if directory.view is None or (config is not None and config.state is not ShardState.FINALIZED):
            return False
        if config is not None or directory.has_existed(shard):
            self._refuse(chunk, Unavailable(f"shard {shard} is finalized"))
            return True

        def told(tail: TailResponse) -> None:
            if directory.has_existed(shard):
                self._place(chunk)
            else:
                self._refuse(chunk, NotOfThisShard(0, shard))

        self._ordering_client.confirm(told)
        return True

    def _pick(self, key: int | None, segments: Sequence[int]) -> int:
        """The segment where a batch is being collected, else one by the policy; not where nothing moves, if it does
        elsewhere."""
        drawn = self._drawn.get(key, 0)
        appender = self.appenders.get(drawn)
        if appender is not None and appender.waiting and drawn in segments and not self._stalls(drawn):
            return drawn
        round_trip, rng = self._directory.round_trip, self._context.rng
        segment = self.policy.pick(segments, round_trip, rng)
        if self._stalls(segment) and (moving := [other for other in segments if not self._stalls(other)]):
            segment = self.policy.pick(moving, round_trip, rng)
        self._drawn[key] = segment
        return segment

    def _stalls(self, segment: int) -> bool:
        appender = self.appenders.get(segment)
        return appender is not None and appender.stalls

    def _appender(self, segment: int) -> SegmentAppender:
        appender = self.appenders.get(segment)
        if appender is None:
            config = self._directory.shard_of(segment)
            assert config is not None
            appender = SegmentAppender(
                segment, config.shard, self._context, self._directory, self._ordering_client, self.numbers, sink=self
            )
            self.appenders[segment] = appender
        return appender

    def _look_for_homes(self) -> None:
        """Ask for a newer view, again and again while there are pieces that have no place in this one."""
        if self._homeless:
            self._ordering_client.refresh()
            self._context.set_timer(self._look, self._context.now + self._context.backoff(5))

    def view_changed(self) -> None:
        """A newer view has come: lanes may have ended, what had no place may have one."""
        for segment, appender in list(self.appenders.items()):
            if not self._directory.takes_appends(segment):
                appender.seal()
                if not appender.flight:
                    del self.appenders[segment]
        on_unassigned, self._homeless = self._homeless, []
        self._look.at = None
        for chunk in on_unassigned:
            self._place(chunk)

    # ---- answers

    def appended(self, answer: Appended, sender: Address) -> None:
        appender = self.appenders.get(answer.segment)
        if appender is None:
            return
        for first, count, _ in answer.ranges:
            if first + count > self.numbers.next:
                raise ProtocolViolation(f"SCA-13: {first} to {first + count - 1} were appended, but never sent")
        appender.appended(answer, sender)
        if answer.leaving and self._directory.leaves(appender.shard):
            self._ordering_client.refresh()
            appender.reroute_pending()

    def refused(self, answer: Rejected, sender: Address) -> None:
        appender = self.appenders.get(answer.segment)
        if appender is not None:
            appender.refused(answer, sender)
            if appender.sealed:
                self._ordering_client.refresh()

    def fate(self, answer: AppendStatus, sender: Address) -> None:
        self.found(answer)
        appender = self.appenders.get(answer.segment)
        if appender is not None:
            appender.fate(answer, sender)

    # ---- what lanes tell of pieces (`appenders.AppendObserver`)

    def wanted(self, chunk: Chunk) -> bool:
        assert isinstance(chunk.owner, ShardPortion)
        return self._context.is_open(chunk.owner.append.call)

    def sent(self, chunk: Chunk) -> None:
        assert isinstance(chunk.owner, ShardPortion)
        chunk.owner.append.sent += ((chunk.places, chunk.sequence),)

    def ordered(self, chunk: Chunk, start: int, gsns: Sequence[int], shard: int) -> None:
        share = chunk.owner
        assert isinstance(share, ShardPortion)
        append, count = share.append, len(gsns)
        places = chunk.places[start : start + count]
        if isinstance(places, range):
            append.gsns[places.start : places.stop] = gsns
            append.shards[places.start : places.stop] = (shard,) * count
        else:
            for place, gsn in zip(places, gsns, strict=True):
                append.gsns[place], append.shards[place] = gsn, shard
        self._settled(share, count)

    def lost(self, chunk: Chunk, start: int, end: int, why: str) -> None:
        share = chunk.owner
        assert isinstance(share, ShardPortion)
        share.append.doubtful += end - start
        share.append.why = LogFailed(why)
        self._settled(share, end - start)

    def dropped(self, chunk: Chunk) -> None:
        self._refuse(chunk, Unavailable("nobody waits for it"))

    def on_unassigned(self, chunk: Chunk) -> None:
        """It comes before the parts that are not placed yet, and waits with them for what was placed before it."""
        share = chunk.owner
        assert isinstance(share, ShardPortion)
        share.open -= len(chunk.records)
        insort(share.parts, chunk, key=lambda part: part.places[0])
        if not share.open:
            self._next_part(share)

    def _refuse(self, chunk: Chunk, why: Exception) -> None:
        """The piece is nowhere and goes nowhere, and what was to follow it neither."""
        share = chunk.owner
        assert isinstance(share, ShardPortion)
        for part in (chunk, *share.parts):
            self.numbers.close(part.sequence)
        share.append.why = why
        following = sum([len(part.records) for part in share.parts])
        share.parts.clear()
        share.open += following
        share.append.refused += len(chunk.records) + following
        self._settled(share, len(chunk.records) + following)

    def _settled(self, share: ShardPortion, count: int) -> None:
        share.open -= count
        append = share.append
        append.left -= count
        if not append.left:
            self._end(append)
            return
        if append.sent:  # it may yet end as unknown
            self.numbers.hold(append.first)
        if not share.open:
            self._next_part(share)

    def _end(self, append: PendingAppend) -> None:
        if append.call in self._open:
            result = append.result(self._context.client)
            if isinstance(result, AppendUnknown):
                self._remember(result.append_id, append)
            elif append.sent:
                self.numbers.release(append.first)
            self._answer(append, result)
        append.records = ()
        if append.asked:
            self._finish(append)
        self.buffered -= append.size
        self._let_in()

    def check_invariants(self) -> None:
        appenders = self.appenders.values()
        runs = [run for appender in appenders for batch in appender.flight.values() for run in batch.open_runs()]
        chunks = [*self._homeless, *(chunk for appender in appenders for chunk in appender.waiting)]
        runs += [(chunk.sequence, len(chunk.records)) for chunk in chunks if chunk.sequence]
        runs.sort()
        assert not runs or self.numbers.settled() <= runs[0][0], "SCA-13: settled is above a number that is not"
        for (first, count), (following, _) in pairwise(runs):
            assert first + count <= following, f"SCA-13: number {following} is on its way to two segments"
        assert self.buffered >= 0, "bytes are let out that were never let in"
        for appender in appenders:
            assert appender.flight_bytes == sum([batch.size for batch in appender.flight.values()])
            assert not (appender.sealed and appender.waiting), "records wait for a segment that has ended"
