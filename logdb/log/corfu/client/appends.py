"""Appends: records are batched into entries, and each entry is written along the chain of its position.

An entry keeps its records and their sequence numbers. It is written at another position only when the first one is
decided and has another entry, or never was the client's to write (COR-10). So no record is in the log twice, and units
and readers need not remember which records they have seen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address, ProtocolViolation
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, NotOfThisShard, Record
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.client.fills import FillClient
from logdb.log.corfu.client.reads import CompletePositions
from logdb.log.corfu.messages import (
    CommitRequest,
    Committed,
    Reason,
    Rejected,
    Status,
    StatusRequest,
    TokenRefused,
    TokenRequest,
    TokenResponse,
    WriteRequest,
    Written,
)
from logdb.log.corfu.projection import ENTRY_RECORDS, MAX_TOKENS, View, gsn_at
from logdb.log.policies import RecordIndexes
from logdb.log.requests import record_bytes, transfer_ns

REMEMBERED_UNKNOWN: Final = 10_000
"""Number of appends that ended as unknown whose outcomes are kept."""
TRIMMED: Final = "its position was trimmed before its outcome was received"


class PendingAppend:
    """An append under way. `streams`: of all its records. `chunks`: its chunks that are in no entry yet, each with the
    queue that it waits in. `numbers`, `gsns`, `shards`: of its records, 0 until they are
    known. `left`: records without an outcome. `refused`: those that will not be appended. `is_lost`: the outcome of
    some cannot be found out. `waiting`: calls that wait for its outcome."""

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
        "streams",
        "waiting",
    )

    def __init__(self, call: int, records: Sequence[Record], shard: int | None, streams: tuple[int, ...] = ()) -> None:
        self.call, self.records, self.shard, self.streams = call, records, shard, streams
        self.size = record_bytes(records)
        self.chunks: dict[Chunk, PlaceAppender | None] = {}
        self.numbers = [0] * len(records)
        self.gsns = [0] * len(records)
        self.shards = [0] * len(records)
        self.left, self.refused = len(records), 0
        self.is_lost = self.is_over = False
        self.waiting: tuple[int, ...] = ()

    def id(self, client: int) -> AppendId:
        """The id of the append."""
        return AppendId(client, _runs_of(self.numbers))


def _runs_of(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """(first, count) for each run of consecutive numbers, or of zeros."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        first, count = runs[-1] if runs else (0, 0)
        if count and (number == first + count if first else number == 0):
            runs[-1] = first, count + 1
        else:
            runs.append((number, 1))
    return tuple(runs)


class Chunk:
    """Records of an append that fit into one entry. `place`: the shard that the policy chooses, 0: any. `rest`: the
    chunks that must be ordered after this one."""

    __slots__ = ("append", "indexes", "place", "rest", "size")

    def __init__(self, append: PendingAppend, indexes: RecordIndexes, place: int, rest: list[Chunk]) -> None:
        self.append, self.indexes, self.place, self.rest = append, indexes, place, rest
        self.size = record_bytes([append.records[index] for index in indexes])


class PlaceAppender:
    """The entries of one place: a shard, or any (0). `is_fixed`: the application has chosen the shard, not the policy.
    `streams`: of all of them. `collected`: chunks that are in no entry yet. `flight_bytes`: of entries under way."""

    __slots__ = ("collected", "collected_bytes", "flight_bytes", "is_fixed", "linger", "place", "streams")

    def __init__(self, place: int, is_fixed: bool, streams: tuple[int, ...] = ()) -> None:
        self.place, self.is_fixed, self.streams = place, is_fixed, streams
        self.collected: OrderedDict[Chunk, None] = OrderedDict()
        self.collected_bytes = self.flight_bytes = 0
        self.linger: Timer


class Entry:
    """An entry under way. `appender`: that counts it; `place`: the shard that it is written to, 0: any. `position`,
    `time`, `epoch`, `streams`: of its token, 0 or empty while it has none. `shard`, `chain`: of that position, log
    replicas and then stream replicas; `log_units`: the number of the log replicas; `link`: the unit that has not
    acknowledged it. `number`: of the open request; `commits`: requests for commit bits."""

    __slots__ = (
        "appender",
        "chain",
        "chunks",
        "commits",
        "epoch",
        "link",
        "log_units",
        "number",
        "place",
        "position",
        "records",
        "sequence",
        "shard",
        "size",
        "streams",
        "time",
    )

    def __init__(self, appender: PlaceAppender, sequence: int, chunks: list[Chunk]) -> None:
        self.appender, self.sequence, self.chunks = appender, sequence, chunks
        self.place = appender.place
        self.records = [chunk.append.records[index] for chunk in chunks for index in chunk.indexes]
        self.size = sum([chunk.size for chunk in chunks])
        self.position = self.time = self.epoch = self.link = self.number = self.shard = self.log_units = 0
        self.chain: tuple[Address, ...] = ()
        self.streams: tuple[tuple[int, int], ...] = ()
        self.commits: set[int] = set()


class OutcomeSearch:
    """A call that searches for the records of another client. `missing`: sequence numbers not found so far."""

    __slots__ = ("call", "found", "id", "missing", "timer")

    def __init__(self, call: int, append_id: AppendId) -> None:
        self.call, self.id = call, append_id
        self.found: dict[int, int] = {}
        self.missing = {number for first, count in append_id.numbers if first for number in range(first, first + count)}
        self.timer: Timer

    def gsns(self) -> list[int | None]:
        """The GSN of each record, when none is missing."""
        return [
            self.found[number] if first else None
            for first, count in self.id.numbers
            for number in range(first, first + count)
        ]


class AppendClient:
    """All appends of a client. `policy`: chooses the shard of each record. `buffered`: bytes of admitted appends."""

    def __init__(
        self,
        context: ClientContext,
        requests: PendingRequests,
        auxiliary: AuxiliaryClient,
        fills: FillClient,
        complete: CompletePositions,
    ) -> None:
        self._context, self._requests, self._auxiliary = context, requests, auxiliary
        self._fills, self._complete = fills, complete
        self.policy = context.config.policy
        self.buffered = 0
        self._next = 1
        self._epoch = 0
        self._outside: OrderedDict[PendingAppend, None] = OrderedDict()
        self._is_admitting = False
        self._appenders: dict[tuple[int, bool, tuple[int, ...]], PlaceAppender] = {}
        self._unroutable: OrderedDict[Chunk, None] = OrderedDict()
        self._without_token: list[Entry] = []
        self._token_requests: dict[int, list[Entry]] = {}
        self._writing: dict[Entry, None] = {}
        self._appends: dict[int, PendingAppend] = {}
        self._unknown: dict[AppendId, PendingAppend] = {}
        self._searches: list[OutcomeSearch] = []
        self._retry = Timer(self._try_again)

    # ---- calls

    def append(self, call: int, request: calls.Append) -> None:
        """Start an append of the application. Every position is assigned after it began, so `after` is fulfilled."""
        streams = tuple(sorted(set(request.streams)))
        append = PendingAppend(call, tuple(request.records), request.shard, streams)
        self._context.open(call, request.deadline, lambda: self._expired(append))
        if not append.records:
            append.is_over = True
            self._context.answer(call, calls.AppendResult([], []))
            return
        self._appends[call] = append
        self._outside[append] = None
        self._let_in()

    def _let_in(self) -> None:
        """Admit appends while there is room. One may end at once, which calls this again: the outer call goes on then,
        so that the depth of the stack does not depend on their number."""
        if self._is_admitting:
            return
        self._is_admitting = True
        while self._outside:
            append = next(iter(self._outside))
            if self.buffered and self.buffered + append.size > self._context.config.buffer_bytes:
                break
            del self._outside[append]
            self.buffered += append.size
            if append.shard is not None or append.streams:
                splits: Iterable[tuple[int | None, RecordIndexes]] = ((append.shard, range(len(append.records))),)
            else:
                try:
                    splits = self.policy.split(append.records)
                except Exception as error:  # the application's own function
                    self._answer(append, error)
                    append.is_over = True
                    self._drop_unsent(append)
                    continue
            for place, indexes in splits:
                self._route(self._chunk(append, place or 0, indexes))
        self._is_admitting = False

    def _chunk(self, append: PendingAppend, place: int, indexes: RecordIndexes) -> Chunk:
        """The first chunk of these records; the others follow it one after the other, so that they keep their order."""
        limit, parts, size = self._context.config.batch_bytes, [[indexes[0]]], 0
        for index in indexes:
            bytes_ = record_bytes((append.records[index],))
            if index != indexes[0]:
                if len(parts[-1]) == ENTRY_RECORDS or size + bytes_ > limit:
                    parts.append([])
                    size = 0
                parts[-1].append(index)
            size += bytes_
        rest: list[Chunk] = []
        for part in reversed(parts[1:]):
            rest = [Chunk(append, part, place, rest)]
        return Chunk(append, parts[0], place, rest)

    def _expired(self, append: PendingAppend) -> None:
        """The deadline has passed. Entries of the append stay under way: they have records of other appends too."""
        if any(append.numbers):
            append_id = append.id(self._context.client)
            self._remember(append_id, append)
            self._answer(append, AppendUnknown("no answer came before the deadline", append_id))
        else:
            self._answer(append, Unavailable("no storage unit took the records before the deadline"))
        append.is_over = True
        self._drop_unsent(append)

    def _drop_unsent(self, append: PendingAppend) -> None:
        """Send no more records of an append that has ended."""
        if append in self._outside:
            del self._outside[append]
            append.size = 0
        for chunk, appender in append.chunks.items():
            if appender is None:
                del self._unroutable[chunk]
            else:
                del appender.collected[chunk]
                appender.collected_bytes -= chunk.size
        append.chunks.clear()
        unsent = append.numbers.count(0)
        append.left -= unsent
        append.refused += unsent
        self._finish(append)

    def _answer(self, append: PendingAppend, result: object) -> None:
        self._appends.pop(append.call, None)
        self._context.answer(append.call, result)

    def append_id(self, call: int) -> AppendId | None:
        """The id of an append of which something was sent."""
        append = self._appends.get(call)
        return append.id(self._context.client) if append is not None and any(append.numbers) else None

    # ---- places

    def _route(self, chunk: Chunk) -> None:
        """Choose the place of a chunk."""
        append, view = chunk.append, self._auxiliary.view
        live = [config.shard for config in view.live()]
        if append.is_over:
            return
        if append.streams and view.version and not self._has_streams(chunk):
            return
        place: int | None = 0 if live else None
        if append.shard is not None:
            if append.shard in live:
                place = append.shard
            elif 0 < append.shard < view.next_shard:
                self._refuse(chunk, Unavailable(f"shard {append.shard} is finalized"))
                return
            else:
                self._auxiliary.request_view(lambda view: self._route_to_new(chunk))
                return
        elif chunk.place and live:
            place = next((one for one in live if one >= chunk.place), live[0])
        if place is None:
            if not view.version:
                self._auxiliary.refresh()
            self._unroutable[chunk] = append.chunks[chunk] = None
            self._try_later()
            return
        key = place, append.shard is not None, append.streams
        appender = self._appenders.get(key)
        if appender is None:
            appender = self._appenders[key] = PlaceAppender(*key)
            appender.linger = Timer(lambda: self._send_collected(appender, lingered=True))
        appender.collected[chunk] = None
        append.chunks[chunk] = appender
        appender.collected_bytes += chunk.size
        self._send_collected(appender)

    def _has_streams(self, chunk: Chunk) -> bool:
        """Whether the log has shards of streams; requests a newer projection before the chunk is refused."""

        def is_there() -> bool:
            view = self._auxiliary.view
            return all(view.stream_shard(stream, view.start) for stream in chunk.append.streams)

        def answered(view: View) -> None:
            if is_there():
                self._route(chunk)
            elif not chunk.append.is_over:
                self._refuse(chunk, Unavailable("the log has no shard of streams: add one"))

        if is_there():
            return True
        self._auxiliary.request_view(answered)
        return False

    def _route_to_new(self, chunk: Chunk) -> None:
        """The projection is at least as new as the append: a shard that it does not contain does not exist."""
        append = chunk.append
        if append.is_over or append.shard is None:
            return
        if 0 < append.shard < self._auxiliary.view.next_shard:
            self._route(chunk)
        else:
            self._refuse(chunk, NotOfThisShard(0, append.shard))

    def _refuse(self, chunk: Chunk, error: Exception) -> None:
        """The records of a chunk, and of those behind it, are not in the log, and never will be."""
        append, rest = chunk.append, [chunk]
        for one in rest:
            rest += one.rest
            if not append.is_over or append.numbers[one.indexes[0]]:  # else `_drop_unsent` has counted them
                append.left -= len(one.indexes)
                append.refused += len(one.indexes)
        self._conclude(append, error)

    def _conclude(self, append: PendingAppend, error: Exception | None = None) -> None:
        """Answer when no outcome of an append is open. `error`: why some of its records were refused."""
        if append.left:
            return
        if append.call in self._appends:
            result: object = calls.AppendResult(append.gsns, append.shards)
            if append.is_lost or 0 < append.refused < len(append.records):
                append_id = append.id(self._context.client)
                self._remember(append_id, append)
                why = TRIMMED if append.is_lost else f"only some of its records were appended: {error}"
                result = AppendUnknown(why, append_id)
            elif append.refused:
                result = error
            self._answer(append, result)
        self._finish(append)

    # ---- entries

    def _send_collected(self, appender: PlaceAppender, *, lingered: bool = False) -> None:
        config, context = self._context.config, self._context
        launched = []
        while appender.collected:
            if appender.flight_bytes:
                if appender.flight_bytes + min(appender.collected_bytes, config.batch_bytes) > config.window_bytes:
                    break
                if not lingered and appender.collected_bytes < config.batch_bytes:
                    if appender.linger.at is None:
                        context.set_timer(appender.linger, context.now + config.linger_ns)
                    break
            elif config.coalesce_calls and not lingered and appender.collected_bytes < config.batch_bytes:
                if appender.linger.at is None:
                    context.set_timer(appender.linger, context.now)
                break
            launched.append(self._launch(appender))
        else:
            appender.linger.at = None
        if launched:
            self._request_tokens(launched)

    def _launch(self, appender: PlaceAppender) -> Entry:
        """Collect chunks into an entry, and number its records."""
        chunks: list[Chunk] = []
        size = count = 0
        limit = self._context.config.batch_bytes
        while appender.collected:
            chunk = next(iter(appender.collected))
            if chunks and (size + chunk.size > limit or count + len(chunk.indexes) > ENTRY_RECORDS):
                break
            del appender.collected[chunk], chunk.append.chunks[chunk]
            chunks.append(chunk)
            size += chunk.size
            count += len(chunk.indexes)
        appender.collected_bytes -= size
        appender.flight_bytes += size
        entry = Entry(appender, self._next, chunks)
        for chunk in chunks:
            for index in chunk.indexes:
                chunk.append.numbers[index] = self._next
                self._next += 1
        return entry

    # ---- tokens

    def _request_tokens(self, entries: list[Entry]) -> None:
        """Request positions for entries of which none has one."""
        view = self._auxiliary.view
        live = {config.shard for config in view.live()}
        lost = {
            one: None
            for one in entries
            if not all(view.stream_shard(stream, view.start) for stream in one.appender.streams)
        }
        for entry in lost:
            self._give_up(entry, Unavailable("the log has no shard of streams any more"))
        entries = [entry for entry in entries if entry not in lost]
        ready = [entry for entry in entries if live and (not entry.place or entry.place in live)]
        for entry in entries:
            if not live or (entry.place and entry.place not in live):
                self._reroute(entry)
        waiting = {one: None for one in ready if not (view.sequencer and self._has_replicas(one))}
        if waiting:
            self._without_token += waiting
            self._try_later()
        ready = [one for one in ready if one not in waiting]
        for at in range(0, len(ready), MAX_TOKENS):
            self._request_some(ready[at : at + MAX_TOKENS], view)

    def _has_replicas(self, entry: Entry) -> bool:
        """Whether all shards of the streams of an entry have a unit in this epoch."""
        view = self._auxiliary.view
        return all(view.stream_chains(view.start, entry.appender.streams))

    def _request_some(self, entries: list[Entry], view: View) -> None:
        """Request positions of the sequencer of a projection."""
        number = self._context.next_number()
        self._token_requests[number] = entries

        def choose(attempt: int) -> Address:
            if attempt:
                self._auxiliary.refresh()
            return view.sequencer

        places = tuple([entry.place for entry in entries])
        streams = tuple([(index, one) for index, entry in enumerate(entries) for one in entry.appender.streams])
        self._requests.send(number, TokenRequest(number, view.epoch, places, streams), choose, self._assigned)

    def _reroute(self, entry: Entry) -> None:
        """The shard of an entry that has no position accepts no entries any more."""
        live = [config.shard for config in self._auxiliary.view.live()]
        if entry.appender.is_fixed:
            self._give_up(entry, Unavailable(f"shard {entry.place} is finalized"))
        elif live:
            entry.place = next((one for one in live if one >= entry.place), live[0])
            self._request_tokens([entry])
        else:
            self._without_token.append(entry)
            self._try_later()

    def _give_up(self, entry: Entry, error: Exception) -> None:
        """Refuse the records of an entry without a position. The next entries follow in an event of their own, since
        they may be refused, too."""
        self._end(entry)
        for chunk in entry.chunks:
            self._refuse(chunk, error)
        self._context.set_timer(entry.appender.linger, self._context.now)

    def _assigned(self, answer: TokenResponse | TokenRefused, sender: Address) -> int | None:
        """The sequencer has assigned positions. They count only in its epoch (COR-6)."""
        entries = self._token_requests.pop(answer.request, None)
        if entries is None:
            return None
        self._requests.cancel(answer.request)
        view = self._auxiliary.view
        if isinstance(answer, TokenRefused) or answer.epoch != view.epoch:
            self._without_token += entries
            self._auxiliary.refresh()
            self._try_later()
            return None
        previous = iter(answer.previous)
        for entry, position in zip(entries, answer.positions, strict=True):
            config = view.owner(position)
            assert config is not None, f"COR-3: position {position} has no shard"
            entry.position, entry.time, entry.epoch = position, answer.time, answer.epoch
            entry.streams = tuple([(stream, next(previous)) for stream in entry.appender.streams])
            units, chains = config.chain(position), view.stream_chains(position, entry.appender.streams)
            entry.chain = tuple([unit.address for chain in (units, *chains) for unit in chain])
            entry.shard, entry.link, entry.log_units = config.shard, 0, len(units)
            self._writing[entry] = None
            self._write(entry)
        for position in sorted({*range(answer.first, answer.end)}.difference(answer.positions)):
            self._fills.fill(position, lambda entry: None)
        return None

    def _try_later(self) -> None:
        if self._retry.at is None:
            self._context.set_timer(self._retry, self._context.now + self._context.backoff(3))

    def _try_again(self) -> None:
        """The projection had no sequencer, or no live shard: look for a newer one."""
        if self._unroutable or self._without_token:
            self._auxiliary.refresh()
            self._route_waiting()

    def _route_waiting(self) -> None:
        chunks, self._unroutable = self._unroutable, OrderedDict()
        for chunk in chunks:
            del chunk.append.chunks[chunk]
            self._route(chunk)
        entries, self._without_token = self._without_token, []
        if entries:
            self._request_tokens(entries)

    def on_view(self) -> None:
        """Entries of an earlier epoch begin again: with another position, if theirs is not decided for them."""
        view = self._auxiliary.view
        if view.epoch == self._epoch:
            if not self._retry.at:
                self._route_waiting()
            return
        self._epoch = view.epoch
        for number, entries in list(self._token_requests.items()):
            self._requests.cancel(number)
            del self._token_requests[number]
            self._without_token += entries
        for entry in list(self._writing):
            for number in (entry.number, *entry.commits):
                self._requests.cancel(number)
            entry.commits.clear()
            self._resolve(entry)
        self._route_waiting()

    # ---- chains

    def _write(self, entry: Entry) -> None:
        """Send an entry to the next unit of its chain."""
        context = self._context
        entry.number = number = context.next_number()
        address = entry.chain[entry.link]

        def on_reply(answer: Written | Rejected, sender: Address) -> int | None:
            if isinstance(answer, Written):
                self._requests.cancel(number)
                self._written(entry, answer)
                return None
            if answer.why is Reason.TRIMMED:
                self._requests.cancel(number)
                self._auxiliary.trimmed(answer.oldest)
                self._lose(entry)
                return None
            self._auxiliary.rejected(answer)  # the entry is resolved when the next epoch is known
            return context.backoff(3)

        request = WriteRequest(
            number,
            entry.epoch,
            entry.position,
            entry.time,
            context.client,
            entry.sequence,
            entry.streams,
            entry.records,
        )
        self._requests.send(number, request, self._to(address), on_reply, transfer_ns(entry.appender.flight_bytes))

    def _is_own(self, entry: Entry, found: Written) -> bool:
        return (found.client, found.sequence, found.count) == (
            self._context.client,
            entry.sequence,
            len(entry.records),
        )

    def _written(self, entry: Entry, answer: Written) -> None:
        """A unit has an entry at the position."""
        if self._is_own(entry, answer):
            entry.link += 1
            if entry.link < len(entry.chain):
                self._write(entry)
            elif entry.streams:
                self._commit(entry)
            else:
                self._done(entry)
        elif entry.link:
            raise ProtocolViolation(f"COR-1: position {entry.position} has two entries: {answer}")
        else:
            self._begin_again(entry)

    def _commit(self, entry: Entry) -> None:
        """All log and stream replicas have the entry: set the commit bits of the log replicas (COR-16)."""

        def on_reply(answer: Committed | Rejected, sender: Address) -> int | None:
            if isinstance(answer, Rejected) and answer.why is not Reason.TRIMMED:
                self._auxiliary.rejected(answer)
                return self._context.backoff(3)
            self._requests.cancel(answer.request)
            entry.commits.discard(answer.request)
            if not entry.commits:
                self._done(entry)
            return None

        for address in entry.chain[: entry.log_units]:
            number = self._context.next_number()
            entry.commits.add(number)
            request = CommitRequest(number, entry.epoch, entry.position)
            self._requests.send(number, request, self._to(address), on_reply)

    def _to(self, address: Address) -> Callable[[int], Address]:
        def choose(attempt: int) -> Address:
            if attempt:
                self._auxiliary.refresh()
            return address

        return choose

    def _resolve(self, entry: Entry) -> None:
        """The epoch of an entry is over. Find out whether it is in the log: no unit of a chain has it if the new epoch
        assigns its position again (COR-3), else the position is filled."""
        if entry.position >= self._auxiliary.view.start:
            self._begin_again(entry)
            return

        def decided(found: Written | None) -> None:
            if found is None:
                self._lose(entry)
            elif self._is_own(entry, found):
                self._done(entry)
            else:
                self._begin_again(entry)

        del self._writing[entry]
        self._fills.fill(entry.position, decided)

    def _begin_again(self, entry: Entry) -> None:
        """The entry is not at its position, and never will be: write it at another one."""
        self._writing.pop(entry, None)
        entry.position = entry.epoch = 0
        self._without_token.append(entry)
        if self._retry.at is None:
            self._context.set_timer(self._retry, self._context.now)

    def _done(self, entry: Entry) -> None:
        """All units of the chain have the entry."""
        self._writing.pop(entry, None)
        self._complete.add(entry.position)
        gsn, shard = gsn_at(entry.position), entry.shard
        self._end(entry)
        for chunk in entry.chunks:
            append = chunk.append
            for index in chunk.indexes:
                append.gsns[index], append.shards[index] = gsn, shard
                gsn += 1
            append.left -= len(chunk.indexes)
            if chunk.rest:
                self._continue(chunk.rest[0])
            self._conclude(append)
        self._send_collected(entry.appender, lingered=True)

    def _continue(self, chunk: Chunk) -> None:
        """The records before this chunk are in the log, so it comes after them."""
        if not chunk.append.is_over:
            self._route(chunk)

    def _lose(self, entry: Entry) -> None:
        """The position of an entry was trimmed: no unit knows whether it had the entry."""
        self._writing.pop(entry, None)
        self._end(entry)
        for chunk in entry.chunks:
            append = chunk.append
            append.is_lost = True
            append.left -= len(chunk.indexes)
            if chunk.rest:
                self._refuse(chunk.rest[0], Unavailable(TRIMMED))
            self._conclude(append)
        self._send_collected(entry.appender, lingered=True)

    def _end(self, entry: Entry) -> None:
        appender = entry.appender
        appender.flight_bytes -= entry.size
        if appender.streams and not appender.flight_bytes and not appender.collected:
            self._appenders.pop((appender.place, appender.is_fixed, appender.streams), None)

    # ---- outcomes of appends that ended as unknown

    def _remember(self, append_id: AppendId, append: PendingAppend) -> None:
        self._unknown[append_id] = append
        if len(self._unknown) > REMEMBERED_UNKNOWN:
            del self._unknown[next(iter(self._unknown))]

    def outcome(self, call: int, request: calls.Outcome) -> None:
        """Return the outcome of an append."""
        context, append = self._context, self._unknown.get(request.id)
        if append is not None:
            open_ = AppendUnknown("its chain has not acknowledged it yet", request.id)
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
        """No outcome of the records of an append is open any more."""
        if append.left:
            return
        self.buffered -= append.size
        append.size, append.is_over, append.records = 0, True, ()
        for call in append.waiting:
            lost = AppendUnknown(TRIMMED, append.id(self._context.client))
            self._context.answer(call, lost if append.is_lost else [gsn or None for gsn in append.gsns])
        append.waiting = ()
        self._let_in()

    def _search(self, search: OutcomeSearch) -> None:
        """Request the entries with missing records from all units."""
        if not search.missing:
            self._searches.remove(search)
            self._context.discard_timer(search.timer)
            self._context.answer(search.call, search.gsns())
            return
        self._auxiliary.refresh()
        numbers = _runs_of(sorted(search.missing))
        for config in self._auxiliary.view.shards:
            for unit in config.units:
                self._context.send(unit.address, StatusRequest(search.id.client, numbers))
        wait = self._context.config.answer_timeout_ns if self._auxiliary.view.version else self._context.backoff(1)
        self._context.set_timer(search.timer, self._context.now + wait)

    def found(self, answer: Status) -> None:
        """A unit has entries of a client. They count when they are complete."""
        for position in answer.positions:
            self._fills.fill(position, self._decided)

    def _decided(self, entry: Written | None) -> None:
        if entry is None:
            return
        numbers = range(entry.sequence, entry.sequence + entry.count)
        for search in [one for one in self._searches if one.id.client == entry.client]:
            for number in search.missing.intersection(numbers):
                search.found[number] = gsn_at(entry.position, number - entry.sequence)
            if search.missing.intersection(numbers):
                search.missing.difference_update(numbers)
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
