"""Appends: batches of records, numbered once and sent to the leader until it has acknowledged them.

If no batch is in flight, one is sent at once, with all records appended at the same moment. Otherwise records are
collected until a response arrives, the linger time has passed, or they fill a batch; at most the window is in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, ProtocolViolation
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, NotOfThisShard, Record
from logdb.log.multipaxos.client.leader_tracker import LeaderTracker
from logdb.log.multipaxos.client.sequence_numbers import SequenceNumbers, merged
from logdb.log.multipaxos.configuration import SHARD
from logdb.log.multipaxos.messages import (
    AppendRefused,
    AppendRequest,
    AppendResponse,
    AppendStatus,
    AppendStatusRequest,
)
from logdb.log.requests import record_bytes, transfer_ns

REMEMBERED_UNKNOWN: Final = 10_000
"""Number of appends that ended as unknown whose outcomes are kept."""
SEARCHING: Final = 2
"""Number of refused batches that search for a leader; one of them may wait for a replica that has ended. The others are
sent when a leader has answered."""


class PendingAppend:
    """An open append. `first`: its first sequence number, 0 until it is sent. `gsns`: the GSNs of its records, 0 while
    unknown. `left`: number of records without a GSN. `waiting`: calls that wait for its outcome."""

    __slots__ = ("call", "first", "gsns", "left", "records", "size", "waiting")

    def __init__(self, call: int, records: Sequence[Record]) -> None:
        self.call, self.records = call, records
        self.size = record_bytes(records)
        self.first = 0
        self.gsns = [0] * len(records)
        self.left = len(records)
        self.waiting: tuple[int, ...] = ()

    def id(self, client: int) -> AppendId:
        """The id of the append."""
        return AppendId(client, ((self.first, len(self.records)),))


class Batch:
    """Appends in flight in one message, or an append that is larger than the window. `left`: number of records that are
    not acknowledged. `sent_to`: the replica; `sent`: the first number of the message."""

    __slots__ = ("appends", "attempts", "count", "left", "records", "resend_at", "sent", "sent_to", "sequence", "size")

    def __init__(self, sequence: int, appends: list[PendingAppend]) -> None:
        self.sequence, self.appends = sequence, appends
        self.records = appends[0].records if len(appends) == 1 else [it for one in appends for it in one.records]
        self.size = sum([append.size for append in appends])
        self.count = self.left = len(self.records)
        self.attempts = self.resend_at = self.sent = 0
        self.sent_to: Address = ""

    def message(self, window: int) -> tuple[int, Sequence[Record]]:
        """The first number and the records of the next message. Of an append that is larger than the window, those that
        follow the acknowledged ones: a larger message would have to be split, and a leader might order a part before
        the one in front of it."""
        if self.size <= window or len(self.appends) > 1:
            return self.sequence, self.records
        first = self.appends[0].gsns.index(0)
        end, size = first, 0
        while end < self.count and (end == first or size + record_bytes((self.records[end],)) <= window):
            size += record_bytes((self.records[end],))
            end += 1
        return self.sequence + first, self.records[first:end]

    def open_runs(self) -> tuple[tuple[int, int], ...]:
        """(first number, count) of the records that are not acknowledged."""
        if self.left == self.count:
            return ((self.sequence, self.count),)
        return merged([(n, 1) for one in self.appends for n, gsn in enumerate(one.gsns, one.first) if not gsn])


class OutcomeSearch:
    """A call that searches for the records of another client. `missing`: sequence numbers not found so far."""

    __slots__ = ("call", "found", "id", "missing", "timer", "turn")

    def __init__(self, call: int, append_id: AppendId, turn: int) -> None:
        self.call, self.id, self.turn = call, append_id, turn
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
    """All appends of a client. `buffered`: bytes of admitted appends; the others wait until the buffer has room."""

    def __init__(self, context: ClientContext, tracker: LeaderTracker) -> None:
        self._context, self._tracker = context, tracker
        self.numbers = SequenceNumbers()
        self.buffered = 0
        self._outside: deque[PendingAppend] = deque()
        self._collected: deque[PendingAppend] = deque()
        self._collected_bytes = 0
        self._flight: dict[int, Batch] = {}
        self._strays: dict[int, Batch] = {}
        self._flight_bytes = 0
        self._busy = False
        self._open: dict[int, PendingAppend] = {}
        self._unknown: dict[AppendId, PendingAppend] = {}
        self._searches: list[OutcomeSearch] = []
        self._linger = Timer(lambda: self._send_collected(lingered=True))
        self._resend = Timer(self._send_again)

    # ---- calls

    def append(self, call: int, request: calls.Append) -> None:
        """Start an append of the application."""
        context = self._context
        append = PendingAppend(call, tuple(request.records))
        context.open(call, request.deadline, lambda: self._expired(append))
        if request.shard not in (None, SHARD):
            context.answer(call, NotOfThisShard(0, request.shard or 0))
        elif not append.records:
            context.answer(call, calls.AppendResult([], []))
        else:
            self._open[call] = append
            self._outside.append(append)
            self._let_in()

    def _let_in(self) -> None:
        while self._outside:
            append = self._outside[0]
            if self.buffered and self.buffered + append.size > self._context.config.buffer_bytes:
                return
            self._outside.popleft()
            self.buffered += append.size
            self._collected.append(append)
            self._collected_bytes += append.size
            self._send_collected()

    def _expired(self, append: PendingAppend) -> None:
        """The deadline has passed. Records that were sent stay in flight, because their numbers must get results."""
        if append.first:
            append_id = append.id(self._context.client)
            self._remember(append_id, append)
            self._answer(append, AppendUnknown("no answer came before the deadline", append_id))
            return
        if append in self._outside:
            self._outside.remove(append)
        else:
            self._collected.remove(append)
            self._collected_bytes -= append.size
            self.buffered -= append.size
        self._answer(append, Unavailable("no server took the records before the deadline"))
        self._let_in()

    def _answer(self, append: PendingAppend, result: object) -> None:
        self._open.pop(append.call, None)
        self._context.answer(append.call, result)

    def append_id(self, call: int) -> AppendId | None:
        """The id of an append that was sent."""
        append = self._open.get(call)
        return append.id(self._context.client) if append is not None and append.first else None

    # ---- sending

    def _send_collected(self, *, lingered: bool = False) -> None:
        config, context = self._context.config, self._context
        while self._collected and not self._busy:
            if self._flight:
                if self._flight_bytes + min(self._collected_bytes, config.batch_bytes) > config.window_bytes:
                    return
                if not lingered and self._collected_bytes < config.batch_bytes:
                    if self._linger.at is None:
                        context.set_timer(self._linger, context.now + config.linger_ns)
                    return
            elif config.coalesce_calls and not lingered and self._collected_bytes < config.batch_bytes:
                if self._linger.at is None:
                    context.set_timer(self._linger, context.now)
                return
            self._launch()
        self._linger.at = None

    def _launch(self) -> None:
        appends: list[PendingAppend] = []
        size = 0
        while self._collected and (not appends or size + self._collected[0].size <= self._context.config.batch_bytes):
            append = self._collected.popleft()
            size += append.size
            appends.append(append)
        self._collected_bytes -= size
        number = sequence = self.numbers.take(sum([len(append.records) for append in appends]))
        for append in appends:
            append.first = number
            number += len(append.records)
        batch = Batch(sequence, appends)
        self._flight[sequence] = batch
        self._flight_bytes += size
        self._send(batch)

    def _send(self, batch: Batch) -> None:
        context = self._context
        batch.attempts += 1
        batch.sent_to = self._tracker.receiver()
        if batch.sent_to == self._tracker.leader:
            self._wait(batch, context.config.answer_timeout_ns + transfer_ns(self._flight_bytes))
        else:  # it was silent, and may well be now
            self._wait(batch, context.backoff(3))
        batch.sent, records = batch.message(context.config.window_bytes)
        context.send(batch.sent_to, AppendRequest(context.client, batch.sent, self.numbers.settled(), records))

    def _wait(self, batch: Batch, wait_ns: int) -> None:
        batch.resend_at = self._context.now + wait_ns
        if self._resend.at is None or batch.resend_at < self._resend.at:
            self._context.set_timer(self._resend, batch.resend_at)

    def _send_again(self) -> None:
        """Resend batches that were not acknowledged in time."""
        due = [batch for batch in self._flight.values() if batch.resend_at <= self._context.now]
        for replica in {batch.sent_to: None for batch in due}:
            self._tracker.silent(replica)
        for batch in due:
            self._send(batch)
        if self._flight:
            self._context.set_timer(self._resend, min(batch.resend_at for batch in self._flight.values()))

    def lost(self, replica: Address) -> None:
        """The stream to a replica has ended: resend the batches that were sent to it."""
        for batch in [batch for batch in self._flight.values() if batch.sent_to == replica]:
            self._wait(batch, self._context.backoff(batch.attempts))
            batch.sent_to = ""

    # ---- answers

    def refused(self, answer: AppendRefused, sender: Address) -> None:
        """A replica has rejected a batch."""
        batch = self._flight.get(answer.sequence)
        if batch is None:
            batch = next((one for one in self._flight.values() if one.sent == answer.sequence), None)
        if batch is None or batch.sent_to != sender:
            return
        batch.sent_to = ""
        if answer.leader == sender:
            self._busy = True
            self._wait(batch, self._context.backoff(batch.attempts))
        else:
            wait_ns = self._tracker.refused(sender, answer.leader, self._context.backoff(3))
            self._strays[batch.sequence] = batch
            if not wait_ns:
                self._send(batch)
            elif batch.sequence in islice(self._strays, SEARCHING):
                self._wait(batch, wait_ns)
            else:
                self._wait(batch, self._context.config.answer_timeout_ns)

    def appended(self, answer: AppendResponse, sender: Address) -> None:
        """The leader has acknowledged records."""
        self._tracker.found(sender)
        for first, count, gsn in answer.ranges:
            self._ordered(first, count, gsn)
        strays, self._strays = self._strays, {}
        for batch in strays.values():
            if batch.left and batch.sent_to != sender:
                self._send(batch)
        self._busy = False
        self._let_in()
        self._send_collected(lingered=True)

    def _ordered(self, first: int, count: int, gsn: int) -> None:
        """The records with the numbers from `first` on have the GSNs from `gsn` on."""
        if first + count > self.numbers.next:
            raise ProtocolViolation(f"MPX-3: {first} to {first + count - 1} were appended, but never sent")
        whole = self._flight.get(first)
        batches = [whole] if whole is not None and whole.count >= count else list(self._flight.values())
        for batch in batches:
            if batch.sequence >= first + count or batch.sequence + batch.count <= first:
                continue
            for append in batch.appends:
                low, high = max(first, append.first), min(first + count, append.first + len(append.records))
                if low < high:
                    batch.left -= self._place(append, low - append.first, range(gsn + low - first, gsn + high - first))
            if not batch.left:
                del self._flight[batch.sequence]
                self._strays.pop(batch.sequence, None)
                self._flight_bytes -= batch.size
                self.numbers.close(batch.sequence)
            elif batch.message(self._context.config.window_bytes)[0] > batch.sent:
                batch.attempts = 0
                self._send(batch)

    def _place(self, append: PendingAppend, start: int, gsns: range) -> int:
        """Store GSNs of an append, and answer it when it has all. Returns the number of new GSNs."""
        if append.left == len(gsns) == len(append.gsns):
            append.gsns, news = list(gsns), len(gsns)
        else:
            news = 0
            for index, gsn in enumerate(gsns, start):
                if append.gsns[index] not in (0, gsn):
                    raise ProtocolViolation(
                        f"MPX-3: record {append.first + index} is at {append.gsns[index]} and {gsn}"
                    )
                news += not append.gsns[index]
                append.gsns[index] = gsn
        append.left -= news
        if news and not append.left:
            self.buffered -= append.size
            self._answer(append, calls.AppendResult(append.gsns, [SHARD] * len(append.gsns)))
            self._finish(append)
        return news

    # ---- outcomes of appends that ended as unknown

    def _remember(self, append_id: AppendId, append: PendingAppend) -> None:
        """Keep the numbers of an append open: other clients may request its outcome after this client has ended."""
        self._unknown[append_id] = append
        self.numbers.hold(append.first)
        if len(self._unknown) > REMEMBERED_UNKNOWN:
            self.numbers.release(self._unknown.pop(next(iter(self._unknown))).first)

    def outcome(self, call: int, request: calls.Outcome) -> None:
        """Return the outcome of an append."""
        context, append = self._context, self._unknown.get(request.id)
        if append is not None:
            open_ = AppendUnknown("no leader has acknowledged it yet", request.id)
            context.open(call, request.deadline, lambda: context.answer(call, open_))
            append.waiting += (call,)
            self._finish(append)
            return
        search = OutcomeSearch(call, request.id, context.rng.randrange(8))
        search.timer = Timer(lambda: self._search(search))
        context.open(call, request.deadline, lambda: self._not_found(search))
        self._searches.append(search)
        self._search(search)

    def _finish(self, append: PendingAppend) -> None:
        if not append.left:
            for call in append.waiting:
                self._context.answer(call, list(append.gsns))
            append.waiting = ()

    def _search(self, search: OutcomeSearch) -> None:
        """Send the request to one replica; the next attempt goes to another one."""
        if not search.missing:
            self._searches.remove(search)
            self._context.discard_timer(search.timer)
            self._context.answer(search.call, search.gsns())
            return
        replicas = self._tracker.replicas
        runs = merged([(number, 1) for number in search.missing])
        self._context.send(replicas[search.turn % len(replicas)], AppendStatusRequest(search.id.client, runs))
        search.turn += 1
        self._context.set_timer(search.timer, self._context.now + self._context.config.answer_timeout_ns)

    def found(self, answer: AppendStatus) -> None:
        """A replica has reported records of a client that are in the log. The others may still be appended."""
        for search in [one for one in self._searches if one.id.client == answer.client]:
            for first, count, gsn in answer.ordered:
                for number in search.missing.intersection(range(first, first + count)):
                    search.found[number] = gsn + number - first
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
        assert self._flight_bytes == sum([batch.size for batch in self._flight.values()])
        assert self._collected_bytes == sum([append.size for append in self._collected])
        assert all(batch.left for batch in self._flight.values()), "MPX-3"
