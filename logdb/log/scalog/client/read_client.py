"""Reads of single records, and lookups of the GSN at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard, Trimmed
from logdb.log.requests import transfer_ns
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.ordering_client import OrderingClient
from logdb.log.scalog.messages import (
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    TailResponse,
    TimeRequest,
    TimeResponse,
)
from logdb.log.scalog.records import unwrap


class ReadClient:
    """Sends requests to the members of a shard in turn, from a random one on, until one has the result."""

    def __init__(
        self, context: ClientContext, directory: Directory, requests: PendingRequests, ordering_client: OrderingClient
    ) -> None:
        self._context, self._directory, self._requests, self._ordering_client = (
            context,
            directory,
            requests,
            ordering_client,
        )

    # ---- records

    def read(self, call: int, request: calls.Read) -> None:
        """Read a record."""
        context, number = self._context, self._context.next_number()
        gsn, shard = request.gsn, request.shard

        def expired() -> None:
            self._requests.cancel(number)
            context.answer(call, TimeoutError(f"record {gsn} did not arrive before the deadline"))

        context.open(call, request.deadline, expired)
        if gsn < 1 or shard < 1:
            context.answer(call, NotOfThisShard(gsn, shard))
        elif gsn < self._directory.oldest:
            context.answer(call, Trimmed(gsn, self._directory.oldest))
        elif shard in self._directory.shards:
            self._request(call, request, number)
        else:
            self._ordering_client.confirm(lambda tail: self._look_for_shard(call, request, number))

    def _look_for_shard(self, call: int, request: calls.Read, number: int) -> None:
        """The view is as new as the call: a shard that it lacks was trimmed away, or did not exist at the call."""
        directory = self._directory
        if not self._context.is_open(call):
            return
        if request.gsn < directory.oldest:
            self._context.answer(call, Trimmed(request.gsn, directory.oldest))
        elif request.shard in directory.shards:
            self._request(call, request, number)
        else:
            self._context.answer(call, NotOfThisShard(request.gsn, request.shard))

    def _request(self, call: int, request: calls.Read, number: int) -> None:
        turn = self._context.rng.randrange(8)
        damaged: dict[Address, str] = {}

        def choose_server(attempt: int) -> Address | None:
            if request.shard not in self._directory.shards:
                self._requests.cancel(number)
                self._ordering_client.confirm(lambda tail: self._look_for_shard(call, request, number))
                return None
            if attempt % 8 == 3:
                self._ordering_client.refresh()
            return self._directory.member(request.shard, turn + attempt)

        def on_reply(answer: ReadResponse | ReadFailed, sender: Address) -> int | None:
            if isinstance(answer, ReadResponse):
                if answer.gsn != request.gsn:
                    return 0
                tag, payload = answer.records[0]
                self._context.answer(call, LogRecord(answer.gsn, answer.time, tag, unwrap(payload)))
                return None
            self._directory.advance_oldest(answer.oldest)
            if answer.why is ReadError.TRIMMED:
                self._context.answer(call, Trimmed(request.gsn, answer.oldest))
            elif answer.why is ReadError.SHARD:
                self._context.answer(call, NotOfThisShard(request.gsn, request.shard))
            else:
                if answer.why is ReadError.READABLE:
                    damaged[sender] = answer.explanation
                return self._retry(call, request, damaged)
            return None

        message = ReadRequest(number, request.shard, request.gsn)
        self._requests.send(number, message, choose_server, on_reply, transfer_ns(request.size))

    def _retry(self, call: int, request: calls.Read, damaged: dict[Address, str]) -> int | None:
        """Retry at another server, unless all report the record as damaged. Returns the time to wait (ns)."""
        config = self._directory.shards.get(request.shard)
        members = {member.address for member in config.holders} if config is not None else set()
        if members and members <= damaged.keys():
            place = f"record {request.gsn} of shard {request.shard}"
            self._context.answer(call, Corruption(place, None, "; ".join(sorted(set(damaged.values())))))
            return None
        return self._context.backoff(1)

    # ---- times

    def at_time(self, call: int, request: calls.AtTime) -> None:
        """Look up the newest GSN at a time: the newest one of all shards."""
        query = _AtTime(call, request.time)

        def expired() -> None:
            for number in query.numbers:
                self._requests.cancel(number)
            self._context.answer(call, TimeoutError("the shards did not answer before the deadline"))

        self._context.open(call, request.deadline, expired)
        query.numbers.append(self._ordering_client.confirm(lambda tail: self._request_shards(query, tail)))

    def _request_shards(self, query: _AtTime, tail: TailResponse) -> None:
        if not self._context.is_open(query.call):
            return
        query.tail = tail.last
        query.waiting = set(self._directory.shards)
        for shard in sorted(query.waiting):
            self._request_shard(query, shard)
        self._answer_if_complete(query)

    def _request_shard(self, query: _AtTime, shard: int) -> None:
        number, turn = self._context.next_number(), self._context.rng.randrange(8)
        query.numbers.append(number)

        def choose_server(attempt: int) -> Address | None:
            if shard not in self._directory.shards:
                self._requests.cancel(number)
                query.waiting.discard(shard)
                self._answer_if_complete(query)
                return None
            if attempt % 8 == 3:
                self._ordering_client.refresh()
            return self._directory.member(shard, turn + attempt)

        def on_reply(answer: TimeResponse | ReadFailed, sender: Address) -> int | None:
            if isinstance(answer, ReadFailed) or answer.known < query.tail:
                return self._context.backoff(2)
            query.newest = max(query.newest, answer.gsn)
            query.waiting.discard(shard)
            self._answer_if_complete(query)
            return None

        self._requests.send(number, TimeRequest(number, shard, query.time), choose_server, on_reply)

    def _answer_if_complete(self, query: _AtTime) -> None:
        """Answer when all shards have. A shard that was trimmed away has no readable record, so the result is at least
        the GSN before the oldest."""
        if not query.waiting:
            self._context.answer(query.call, max(query.newest, self._directory.oldest - 1))


@dataclass(slots=True)
class _AtTime:
    """A lookup at all shards. Each must have the links up to `tail`, or it could lack records before the time.

    `newest`: the largest result so far. `waiting`: shards without a result. `numbers`: of the open requests.
    """

    call: int
    time: int
    tail: int = 0
    newest: int = 0
    waiting: set[int] = field(default_factory=set)
    numbers: list[int] = field(default_factory=list)
