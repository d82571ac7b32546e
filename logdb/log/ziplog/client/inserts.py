"""Appends: records are numbered once, batched for a shard, and sent to all of its members until they agree.

A batch belongs to a shard and a view. If that view ends, its primary's successor tells which of the records are in the
log; the others are inserted again, under the same numbers (ZIP-5).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, ProtocolViolation
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, NotOfThisShard, Record
from logdb.log.policies import RecordIndexes
from logdb.log.requests import ShardState, record_bytes, transfer_ns
from logdb.log.ziplog.client.frontiers import Floor, FrontierClient
from logdb.log.ziplog.client.mms_client import MmsClient
from logdb.log.ziplog.messages import (
    Insert,
    Inserted,
    Refused,
    ShardConfig,
    Stale,
    Status,
    StatusRequest,
)

REMEMBERED_UNKNOWN: Final = 10_000
"""Maximum number of appends that ended as unknown and whose outcome is remembered."""
LOST: Final = "its shard was trimmed away before its outcome was received"
MAX_DOUBLINGS: Final = 2
"""The timeout of a batch doubles this often: sending it again burdens servers that are slow already."""
MAX_HELD: Final = 100_000
"""When this many later numbers have been issued, the number of an append that ended as unknown is released."""


class PendingAppend:
    """An append under way. `numbers`, `gsns`, `shards`: of its records, 0 until they are known. `left`: records that
    are not in the log yet. `refused`: those that cannot be. `is_lost`: no server can return the outcome of some.
    `waiting`: calls that wait for its outcome. `chunks`: the chunks that wait, each with its appender, None while no
    shard takes it."""

    __slots__ = (
        "call",
        "chunks",
        "gsns",
        "is_lost",
        "is_over",
        "left",
        "numbers",
        "records",
        "refused",
        "shard",
        "shards",
        "size",
        "waiting",
    )

    def __init__(self, call: int, records: Sequence[Record], shard: int | None) -> None:
        self.call, self.records, self.shard = call, records, shard
        self.size = record_bytes(records)
        self.numbers = [0] * len(records)
        self.gsns = [0] * len(records)
        self.shards = [0] * len(records)
        self.left, self.refused = len(records), 0
        self.is_lost = self.is_over = False
        self.waiting: tuple[int, ...] = ()
        self.chunks: dict[Chunk, ShardAppender | None] = {}

    def id(self, client: int) -> AppendId:
        """The id of the append."""
        runs: list[tuple[int, int]] = []
        for number in self.numbers:
            first, count = runs[-1] if runs else (0, 0)
            if count and (number == first + count if first else number == 0):
                runs[-1] = first, count + 1
            else:
                runs.append((number, 1))
        return AppendId(client, tuple(runs))


class Chunk:
    """Records of an append that go to one shard. `place`: the shard that the policy wants, None: any. `rest`: those
    that are inserted when these are in the log."""

    __slots__ = ("append", "floor", "indexes", "place", "rest", "size", "version")

    def __init__(
        self, append: PendingAppend, indexes: RecordIndexes, place: int | None, floor: Floor, rest: RecordIndexes
    ) -> None:
        self.append, self.indexes, self.place, self.rest = append, indexes, place, rest
        self.floor, self.version = floor.gsn, floor.version
        self.size = record_bytes([append.records[index] for index in indexes])


class Batch:
    """Records under way, in one message. `members`: of the view, the primary first. `open`: numbers that are not known
    to be in the log; `refused`: those of them that are not; `stable`: numbers that are in the log for good. `acks`: by
    member, the GSN of each number. `attempts`: how often it was sent in a configuration that `looks` like this."""

    __slots__ = (
        "acks",
        "attempts",
        "chunks",
        "floor",
        "is_asking",
        "items",
        "looks",
        "members",
        "open",
        "records",
        "refused",
        "resend_at",
        "sent_at",
        "sequence",
        "shard",
        "size",
        "stable",
        "version",
        "view",
    )

    def __init__(self, config: ShardConfig, sequence: int, chunks: list[Chunk]) -> None:
        self.shard, self.view = config.shard, config.view
        self.members = tuple([member.address for member in config.members])
        self.sequence, self.chunks = sequence, chunks
        self.items = [(chunk.append, index) for chunk in chunks for index in chunk.indexes]
        self.records = [append.records[index] for append, index in self.items]
        self.size = sum([chunk.size for chunk in chunks])
        self.floor = max([chunk.floor for chunk in chunks])
        self.version = min([chunk.version for chunk in chunks if chunk.version], default=0)
        self.open = set(range(sequence, sequence + len(self.records)))
        self.refused: set[int] = set()
        self.stable: set[int] = set()
        self.acks: dict[Address, dict[int, int]] = {}
        self.resend_at = self.sent_at = self.attempts = 0
        self.looks = self.view, True, True, False
        self.is_asking = False


class ShardAppender:
    """The inserts to one shard. `collected`: chunks that are not sent. `flight_bytes`: of batches under way."""

    __slots__ = ("collected", "collected_bytes", "flight_bytes", "linger")

    def __init__(self) -> None:
        self.collected: OrderedDict[Chunk, None] = OrderedDict()
        self.collected_bytes = self.flight_bytes = 0
        self.linger: Timer


class OutcomeSearch:
    """A call that looks for the records of another client. `missing`: numbers that were not found yet."""

    __slots__ = ("call", "found", "id", "missing", "timer", "turn")

    def __init__(self, call: int, append_id: AppendId) -> None:
        self.call, self.id, self.turn = call, append_id, 0
        self.found: dict[int, int] = {}
        self.missing = {number for first, count in append_id.numbers if first for number in range(first, first + count)}
        self.timer: Timer

    def gsns(self) -> list[int | None]:
        """Of each record, when none is missing."""
        return [
            self.found[number] if first else None
            for first, count in self.id.numbers
            for number in range(first, first + count)
        ]


class InsertClient:
    """All appends of a client. `policy`: chooses the shard of each record."""

    def __init__(self, context: ClientContext, mms: MmsClient, frontiers: FrontierClient) -> None:
        self._context, self._mms, self._frontiers = context, mms, frontiers
        self.policy = context.config.policy
        self.buffered = 0
        self._outside: OrderedDict[PendingAppend, int | None] = OrderedDict()
        self._is_admitting = False
        self._appenders: dict[int, ShardAppender] = {}
        self._unroutable: OrderedDict[Chunk, None] = OrderedDict()
        self._open: dict[int, Batch] = {}
        self._numbers: deque[int] = deque()
        self._unsettled: set[int] = set()
        self._held: dict[int, None] = {}
        self._next = 1
        self._appends: dict[int, PendingAppend] = {}
        self._unknown: dict[AppendId, PendingAppend] = {}
        self._searches: list[OutcomeSearch] = []
        self._round_trips: dict[int, int] = {}
        self._resend = Timer(self._send_again)
        self._route_again = Timer(self._ask_for_view)

    # ---- calls

    def append(self, call: int, request: calls.Append) -> None:
        """The application appends."""
        context = self._context
        append = PendingAppend(call, tuple(request.records), request.shard)
        context.open(call, request.deadline, lambda: self._expired(append))
        if not append.records:
            append.is_over = True
            context.answer(call, calls.AppendResult([], []))
            return
        self._appends[call] = append
        self._outside[append] = request.after
        self._let_in()

    def _let_in(self) -> None:
        """Admit appends while there is room. One may end at once, which calls this again: the outer call goes on then,
        so that the depth of the stack does not depend on their number."""
        if self._is_admitting:
            return
        self._is_admitting = True
        while self._outside:
            append, after = next(iter(self._outside.items()))
            if self.buffered and self.buffered + append.size > self._context.config.buffer_bytes:
                break
            del self._outside[append]
            self.buffered += append.size
            if after is not None:
                self._split(append, Floor(after, 0, 0))
            else:
                self._frontiers.for_insert(partial(self._split, append), append.call)
        self._is_admitting = False

    def _split(self, append: PendingAppend, floor: Floor) -> None:
        """The floor of an append is known: send its records where the policy wants them."""
        if append.is_over:
            return
        if append.shard is not None:
            self._insert(append, range(len(append.records)), append.shard, floor)
            return
        try:
            splits = self.policy.split(append.records)
        except Exception as error:  # the application's own function
            self._answer(append, error)
            append.is_over = True
            self._drop_unsent(append)
            return
        for place, indexes in splits:
            self._insert(append, indexes, place, floor)

    def _insert(self, append: PendingAppend, indexes: RecordIndexes, place: int | None, floor: Floor) -> None:
        """Insert records for one shard, in their order: those behind a full window when the others are in the log. A
        larger message would have to be split, and servers might place a part without the one before it."""
        count, size, window = len(indexes), 0, self._context.config.window_bytes
        if append.size > window:
            for at, index in enumerate(indexes):
                size += record_bytes((append.records[index],))
                if size > window and at:
                    count = at
                    break
        self._route(Chunk(append, indexes[:count], place, floor, indexes[count:]))

    def _expired(self, append: PendingAppend) -> None:
        """The deadline has passed. Records that were sent are not given up: their numbers must be settled."""
        if any(append.numbers):
            append_id = append.id(self._context.client)
            self._remember(append_id, append)
            self._answer(append, AppendUnknown("no answer came before the deadline", append_id))
        else:
            self._answer(append, Unavailable("no shard took the records before the deadline"))
        append.is_over = True
        self._drop_unsent(append)

    def _drop_unsent(self, append: PendingAppend) -> None:
        """Send no more records of an append that has ended."""
        if append in self._outside:
            del self._outside[append]
            append.size = 0
        for chunk, appender in [one for one in append.chunks.items() if not self._was_sent(one[0])]:
            del append.chunks[chunk]
            if appender is None:
                del self._unroutable[chunk]
            else:
                del appender.collected[chunk]
                appender.collected_bytes -= chunk.size
        unsent = append.numbers.count(0)
        append.left -= unsent
        append.refused += unsent
        self._finish(append)
        self._let_in()

    def _was_sent(self, chunk: Chunk) -> bool:
        return chunk.append.numbers[chunk.indexes[0]] > 0

    def _answer(self, append: PendingAppend, result: object) -> None:
        self._appends.pop(append.call, None)
        self._context.answer(append.call, result)

    def append_id(self, call: int) -> AppendId | None:
        """The id of an append of which something was sent."""
        append = self._appends.get(call)
        return append.id(self._context.client) if append is not None and any(append.numbers) else None

    # ---- routes

    def _route(self, chunk: Chunk) -> None:
        """Choose the shard of a chunk."""
        accepting = self._mms.accepting()
        numbers = [config.shard for config in accepting]
        append = chunk.append
        if append.is_over:
            self._give_up(chunk, "its deadline has passed")
            return
        if append.shard is not None:
            config = self._mms.shard(append.shard)
            is_removed = self._mms.is_removed(append.shard)
            if config is None and not is_removed:
                self._mms.request_view(lambda view: self._route_to_new(chunk, view.next_shard))
                return
            if is_removed or (config is not None and config.state is not ShardState.LIVE):
                self._give_up(chunk, f"shard {append.shard} is finalized")
                return
            chosen = append.shard if append.shard in numbers else None
        elif chunk.place is not None:
            chosen = next((one for one in numbers if one >= chunk.place), numbers[0]) if numbers else None
        else:
            chosen = self.policy.pick(numbers, self._round_trip, self._context.rng) if numbers else None
        if chosen is None:
            self._unroutable[chunk] = append.chunks[chunk] = None
            if self._route_again.at is None:
                self._ask_for_view()
            return
        appender = self._appenders.get(chosen)
        if appender is None:
            appender = self._appenders[chosen] = ShardAppender()
            appender.linger = Timer(lambda: self._send_collected(chosen, lingered=True))
        appender.collected[chunk] = None
        append.chunks[chunk] = appender
        appender.collected_bytes += chunk.size
        self._send_collected(chosen)

    def _route_to_new(self, chunk: Chunk, next_shard: int) -> None:
        append = chunk.append
        if append.is_over or append.shard is None:
            return
        if 0 < append.shard < next_shard:
            self._route(chunk)
        else:
            self._give_up(chunk, "", NotOfThisShard(0, append.shard))

    def _round_trip(self, shard: int) -> int:
        return self._round_trips.get(shard, 0)

    def _give_up(self, chunk: Chunk, why: str, error: Exception | None = None) -> None:
        """The records of a chunk are not in the log, and never will be."""
        append = chunk.append
        count = len(chunk.indexes) + (0 if append.is_over else len(chunk.rest))
        append.left -= count
        append.refused += count
        for index in chunk.indexes:
            self._close(append.numbers[index])
        self._conclude(append, error or Unavailable(why))

    def _lose(self, batch: Batch) -> None:
        """The shard of a batch is gone: no server can return the outcome of its records."""
        for number in batch.open - batch.refused:
            append, _ = batch.items[number - batch.sequence]
            append.left, append.is_lost = append.left - 1, True
            batch.open.discard(number)
            self._close(number)
            self._conclude(append)
        self._end_batch(batch)

    def _conclude(self, append: PendingAppend, error: Exception | None = None) -> None:
        """Answer when no outcome of an append is open. `error`: why some of its records were refused."""
        if append.left:
            return
        if append.call in self._appends:
            result: object = calls.AppendResult(append.gsns, append.shards)
            if append.is_lost or 0 < append.refused < len(append.records):
                append_id = append.id(self._context.client)
                self._remember(append_id, append)
                why = f": {error}" if error else ""
                why = LOST if append.is_lost else f"only some of its records were appended{why}"
                result = AppendUnknown(why, append_id)
            elif append.refused:
                result = error
            self._answer(append, result)
        self._finish(append)

    def _route_anew(self, chunks: Collection[Chunk]) -> None:
        """Choose the shards of chunks that were removed from a queue. An append may end meanwhile."""
        for chunk in chunks:
            del chunk.append.chunks[chunk]
        for chunk in chunks:
            self._route(chunk)

    def _ask_for_view(self) -> None:
        if self._unroutable:
            self._mms.refresh()
            self._context.set_timer(self._route_again, self._context.now + self._context.backoff(4))

    def on_view(self) -> None:
        """The configuration may have changed: route what could not be, and look after batches of views that ended."""
        chunks, self._unroutable = self._unroutable, OrderedDict()
        self._route_anew(chunks)
        for batch in {id(one): one for one in self._open.values()}.values():
            config = self._mms.shard(batch.shard)
            if self._mms.is_removed(batch.shard):
                self._lose(batch)
            elif config is not None and (config.view != batch.view or not config.is_in_set):
                looks = config.view, config.is_established, config.is_in_set, config.is_drained
                if batch.looks != looks:
                    batch.looks, batch.attempts = looks, 0
                    self._wait(batch, self._context.now + self._context.backoff(4))
        for number, appender in self._appenders.items():
            if appender.collected:
                self._send_collected(number)

    # ---- sending

    def _send_collected(self, shard: int, *, lingered: bool = False) -> None:
        config, context, appender = self._context.config, self._context, self._appenders[shard]
        while appender.collected:
            if appender.flight_bytes:
                if appender.flight_bytes + min(appender.collected_bytes, config.batch_bytes) > config.window_bytes:
                    return
                if not lingered and appender.collected_bytes < config.batch_bytes:
                    if appender.linger.at is None:
                        context.set_timer(appender.linger, context.now + config.linger_ns)
                    return
            elif config.coalesce_calls and not lingered and appender.collected_bytes < config.batch_bytes:
                if appender.linger.at is None:
                    context.set_timer(appender.linger, context.now)
                return
            view = next((one for one in self._mms.accepting() if one.shard == shard), None)
            if view is None:
                chunks, appender.collected, appender.collected_bytes = appender.collected, OrderedDict(), 0
                self._route_anew(chunks)
                return
            self._launch(appender, view)
        appender.linger.at = None

    def _launch(self, appender: ShardAppender, config: ShardConfig) -> None:
        chunks: list[Chunk] = []
        size = 0
        is_again = False
        most = self._context.config.batch_bytes
        while appender.collected:
            chunk = next(iter(appender.collected))
            if chunks and (size + chunk.size > most or is_again or self._was_sent(chunk)):
                break
            is_again = self._was_sent(chunk)
            del appender.collected[chunk], chunk.append.chunks[chunk]
            chunks.append(chunk)
            size += chunk.size
        appender.collected_bytes -= size
        first = chunks[0]
        sequence = first.append.numbers[first.indexes[0]] if is_again else self._take(chunks)
        batch = Batch(config, sequence, chunks)
        appender.flight_bytes += batch.size
        for number in batch.open:
            self._open[number] = batch
        batch.sent_at = self._context.now
        self._send(batch)

    def _take(self, chunks: list[Chunk]) -> int:
        first = self._next
        for chunk in chunks:
            for index in chunk.indexes:
                chunk.append.numbers[index] = self._next
                self._numbers.append(self._next)
                self._unsettled.add(self._next)
                self._next += 1
        return first

    def _settled(self) -> int:
        """All numbers below this one are settled: their appends have ended, and are not remembered as unknown."""
        numbers, held = self._numbers, self._held
        while numbers and numbers[0] not in self._unsettled and numbers[0] not in held:
            numbers.popleft()
        oldest = next(iter(held), self._next)
        if oldest + MAX_HELD < self._next:
            del held[oldest]
        return numbers[0] if numbers else self._next

    def _send(self, batch: Batch) -> None:
        """Send a batch to all members of its view. Once a later one is established, its primary knows what became of
        the batch, and before that no server does; when the shard is drained, all members know."""
        context, members, config = self._context, batch.members, self._mms.shard(batch.shard)
        if config is not None and config.view != batch.view:
            if not (config.is_established or config.is_drained):
                self._wait(batch, context.now + context.backoff(4))
                return
            members = tuple([member.address for member in config.members[: None if config.is_drained else 1]])
        timeout_ns = context.config.answer_timeout_ns + transfer_ns(self._appenders[batch.shard].flight_bytes)
        self._wait(batch, context.now + (timeout_ns << min(batch.attempts, MAX_DOUBLINGS)))
        batch.attempts += 1
        insert = Insert(
            context.client,
            batch.shard,
            batch.view,
            batch.sequence,
            self._settled(),
            batch.floor,
            batch.version,
            batch.records,
        )
        for address in members:
            context.send(address, insert)

    def _wait(self, batch: Batch, at: int) -> None:
        batch.resend_at = at if not batch.resend_at else min(at, max(batch.resend_at, self._context.now))
        if self._resend.at is None or batch.resend_at < self._resend.at:
            self._context.set_timer(self._resend, batch.resend_at)

    def _send_again(self) -> None:
        """Send again what was not acknowledged in time."""
        batches = list({id(batch): batch for batch in self._open.values()}.values())
        due = [batch for batch in batches if batch.resend_at <= self._context.now]
        if due:
            self._mms.refresh()
        for batch in due:
            batch.resend_at = 0
            self._send(batch)
        if batches:
            self._context.set_timer(self._resend, min([batch.resend_at for batch in batches]))

    def lost(self, server: Address) -> None:
        """The stream to a server has ended: send again what it was sent."""
        for batch in {id(one): one for one in self._open.values()}.values():
            if server in batch.members and server not in batch.acks:
                self._wait(batch, self._context.now + self._context.backoff(2))

    # ---- answers

    def inserted(self, answer: Inserted, sender: Address) -> None:
        """A member has records durably; all of them, if that is stable."""
        for first, gsns in answer.placed:
            for number, gsn in enumerate(gsns, first):
                batch = self._open.get(number)
                if batch is None:
                    if number >= self._next:
                        raise ProtocolViolation(f"ZIP-5: record {number} was inserted, but never sent")
                    continue
                if batch.shard != answer.shard or number in batch.refused or number not in batch.open:
                    continue  # the acknowledgement may come after the refusal: its view has ended without the record
                if answer.is_stable:
                    batch.stable.add(number)
                    self._done(batch, number, gsn)
                elif answer.view == batch.view and sender in batch.members:
                    batch.acks.setdefault(sender, {})[number] = gsn
                    self._compare(batch, number, gsn)

    def _compare(self, batch: Batch, number: int, gsn: int) -> None:
        """A record that all members have at the same GSN is in the log (ZIP-2)."""
        for member in batch.members:
            acks = batch.acks.get(member)
            if acks is None or acks.get(number) != gsn:
                return
        self._done(batch, number, gsn)

    def _done(self, batch: Batch, number: int, gsn: int) -> None:
        append, index = batch.items[number - batch.sequence]
        if append.gsns[index]:
            raise ProtocolViolation(f"ZIP-5: record {number} is at {append.gsns[index]} and {gsn}")
        append.gsns[index], append.shards[index] = gsn, batch.shard
        append.left -= 1
        batch.open.discard(number)
        self._close(number)
        round_trip = self._context.now - batch.sent_at
        before = self._round_trips.get(batch.shard, round_trip)
        self._round_trips[batch.shard] = before + (round_trip - before) // 8
        self._conclude(append)
        self._end_batch(batch)

    def _close(self, number: int) -> None:
        self._open.pop(number, None)

    def refused(self, answer: Refused) -> None:
        """Records are not in the shard of their batch, and never will be by it."""
        self._mms.has_ended(answer.shard, answer.view)
        for first, count in answer.numbers:
            for number in range(first, first + count):
                batch = self._open.get(number)
                if batch is not None and (batch.shard, batch.view) == (answer.shard, answer.view):
                    batch.refused.add(number)
                    self._end_batch(batch)

    def _end_batch(self, batch: Batch) -> None:
        """When all is known about a batch: insert again what was refused, behind what was not.

        The view has nothing behind a record that it lacks (ZIP-13). Records that were acknowledged there are lost, as
        may happen to those that were not synced (ZIP-12), and are inserted again too.
        """
        if batch.open != batch.refused or (not batch.open and not batch.chunks):
            return
        chunks, batch.chunks = batch.chunks, []
        appender = self._appenders[batch.shard]
        appender.flight_bytes -= batch.size
        at = batch.sequence
        for chunk in chunks:
            numbers = range(at, at + len(chunk.indexes))
            at += len(chunk.indexes)
            append, refused = chunk.append, min(batch.open.intersection(numbers), default=0)
            if refused:
                left = chunk.indexes[refused - numbers.start :]
                if batch.stable.intersection(range(refused, numbers.stop)):
                    raise ProtocolViolation(f"ZIP-13: record {refused} was refused, but not those behind it")
                for index in left:
                    append.left += append.gsns[index] > 0
                    append.gsns[index] = append.shards[index] = 0
                gsn = max([batch.floor, *(append.gsns[index] for index in chunk.indexes)])
                for number in numbers:
                    self._open.pop(number, None)
                for index in left:
                    self._open[append.numbers[index]] = batch
                self._route(Chunk(append, left, chunk.place, Floor(gsn, 0, batch.version), chunk.rest))
            elif chunk.rest and not append.is_over:
                gsn = max(batch.floor, append.gsns[chunk.indexes[-1]])
                self._insert(append, chunk.rest, chunk.place, Floor(gsn, 0, batch.version))
        batch.open = set()
        self._send_collected(batch.shard, lingered=True)

    def stale(self, answer: Stale) -> None:
        """The set of shards has changed: the floor of this batch does not count any more."""
        batch = self._open.get(answer.sequence) or next(
            (one for one in self._open.values() if one.sequence == answer.sequence), None
        )
        if batch is None or batch.is_asking or not batch.version or batch.version >= answer.version:
            return
        batch.is_asking = True

        def again(floor: Floor) -> None:
            batch.is_asking = False
            batch.floor, batch.version = max(batch.floor, floor.gsn), floor.version
            if batch.chunks:
                self._send(batch)

        self._mms.request_view(lambda view: self._frontiers.for_insert(again))

    # ---- outcomes of appends that ended as unknown

    def _remember(self, append_id: AppendId, append: PendingAppend) -> None:
        """Other clients may ask for it when this one has ended, so its numbers are not settled."""
        self._unknown[append_id] = append
        for number in append.numbers:
            if number:
                self._held[number] = None
        if len(self._unknown) > REMEMBERED_UNKNOWN:
            for number in self._unknown.pop(next(iter(self._unknown))).numbers:
                self._held.pop(number, None)

    def outcome(self, call: int, request: calls.Outcome) -> None:
        """The application asks what became of an append."""
        context, append = self._context, self._unknown.get(request.id)
        if append is not None:
            open_ = AppendUnknown("its servers have not acknowledged it yet", request.id)
            context.open(call, request.deadline, lambda: context.answer(call, open_))
            append.waiting += (call,)
            self._finish(append)
            return
        search = OutcomeSearch(call, request.id)
        search.timer = Timer(lambda: self._search(search))
        context.open(call, request.deadline, lambda: self._not_found(search))
        self._searches.append(search)
        self._search(search)

    def _finish(self, append: PendingAppend) -> None:
        """Nothing is open any more about an append."""
        if append.left:
            return
        self.buffered -= append.size
        append.size, append.is_over, append.records = 0, True, ()
        self._unsettled.difference_update(append.numbers)
        for call in append.waiting:
            lost = AppendUnknown(LOST, append.id(self._context.client))
            self._context.answer(call, lost if append.is_lost else [gsn or None for gsn in append.gsns])
        append.waiting = ()
        self._let_in()

    def _search(self, search: OutcomeSearch) -> None:
        """Ask one member of each shard, and another one the next time."""
        if not search.missing:
            self._searches.remove(search)
            self._context.discard_timer(search.timer)
            self._context.answer(search.call, search.gsns())
            return
        self._mms.refresh()
        numbers = tuple([(number, 1) for number in sorted(search.missing)])
        for config in self._mms.view.shards:
            member = config.members[search.turn % len(config.members)] if config.is_drained else config.members[0]
            self._context.send(member.address, StatusRequest(search.id.client, numbers))
        search.turn += 1
        wait = self._context.config.answer_timeout_ns if self._mms.view.version else self._context.backoff(1)
        self._context.set_timer(search.timer, self._context.now + wait)

    def found(self, answer: Status) -> None:
        """A shard has records of a client. The others may still come."""
        for search in [one for one in self._searches if one.id.client == answer.client]:
            for first, gsns in answer.placed:
                for number, gsn in enumerate(gsns, first):
                    if number in search.missing:
                        search.found[number] = gsn
            search.missing -= search.found.keys()
            if not search.missing:
                self._search(search)

    def _not_found(self, search: OutcomeSearch) -> None:
        self._searches.remove(search)
        self._context.discard_timer(search.timer)
        why = f"{len(search.missing)} of its records were not found; only its client knows if they may yet come"
        self._context.answer(search.call, AppendUnknown(why, search.id))

    def check(self) -> None:
        """Raises AssertionError."""
        for appender in self._appenders.values():
            assert appender.flight_bytes >= 0
            assert appender.collected_bytes >= 0
        assert self.buffered >= 0
