"""Reads of single records, and of the GSN at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard, Trimmed
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
from logdb.log.scalog.records import transfer_ns, unwrap


class ReadClient:
    """Asks one member of a shard after another, from a random one on, until one has the answer."""

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
        """The application wants a record."""
        context, number = self._context, self._context.next_number()
        gsn, shard = request.gsn, request.shard

        def expired() -> None:
            self._requests.cancel(number)
            context.answer(call, TimeoutError(f"record {gsn} did not come before the deadline"))

        context.open(call, request.deadline, expired)
        if gsn < 1 or shard < 1:
            context.answer(call, NotOfThisShard(gsn, shard))
        elif gsn < self._directory.oldest:
            context.answer(call, Trimmed(gsn, self._directory.oldest))
        elif shard in self._directory.shards:
            self._ask(call, request, number)
        else:
            self._ordering_client.confirm(lambda tail: self._look_for_shard(call, request, number))

    def _look_for_shard(self, call: int, request: calls.Read, number: int) -> None:
        """The view is fresh: a shard that is not in it was trimmed away, or has not existed when this was asked."""
        directory = self._directory
        if not self._context.is_open(call):
            return
        if request.gsn < directory.oldest:
            self._context.answer(call, Trimmed(request.gsn, directory.oldest))
        elif request.shard in directory.shards:
            self._ask(call, request, number)
        else:
            self._context.answer(call, NotOfThisShard(request.gsn, request.shard))

    def _ask(self, call: int, request: calls.Read, number: int) -> None:
        turn = self._context.rng.randrange(8)
        damaged: dict[Address, str] = {}

        def where(attempt: int) -> Address | None:
            if request.shard not in self._directory.shards:
                self._requests.cancel(number)
                self._ordering_client.confirm(lambda tail: self._look_for_shard(call, request, number))
                return None
            if attempt % 8 == 3:
                self._ordering_client.refresh()
            return self._directory.member(request.shard, turn + attempt)

        def answered(answer: ReadResponse | ReadFailed, sender: Address) -> int | None:
            if isinstance(answer, ReadResponse):
                if answer.gsn != request.gsn:
                    return 0
                tag, payload = answer.records[0]
                self._context.answer(call, LogRecord(answer.gsn, answer.time, tag, unwrap(payload)))
                return None
            self._directory.trimmed(answer.oldest)
            if answer.why is ReadError.TRIMMED:
                self._context.answer(call, Trimmed(request.gsn, answer.oldest))
            elif answer.why is ReadError.SHARD:
                self._context.answer(call, NotOfThisShard(request.gsn, request.shard))
            else:
                if answer.why is ReadError.READABLE:
                    damaged[sender] = answer.explanation
                return self._elsewhere(call, request, damaged)
            return None

        message = ReadRequest(number, request.shard, request.gsn)
        self._requests.send(number, message, where, answered, transfer_ns(request.size))

    def _elsewhere(self, call: int, request: calls.Read, damaged: dict[Address, str]) -> int | None:
        """A member cannot give the record, which others may; unless all have said that it is damaged."""
        config = self._directory.shards.get(request.shard)
        members = {member.address for member in config.holders} if config is not None else set()
        if members and members <= damaged.keys():
            where = f"record {request.gsn} of shard {request.shard}"
            self._context.answer(call, Corruption(where, None, "; ".join(sorted(set(damaged.values())))))
            return None
        return self._context.backoff(1)

    # ---- times

    def at_time(self, call: int, request: calls.AtTime) -> None:
        """The application wants the newest GSN at a time: the newest of those of all shards."""
        asked = _AtTime(call, request.time)

        def expired() -> None:
            for number in asked.numbers:
                self._requests.cancel(number)
            self._context.answer(call, TimeoutError("the shards did not answer before the deadline"))

        self._context.open(call, request.deadline, expired)
        asked.numbers.append(self._ordering_client.confirm(lambda tail: self._ask_shards(asked, tail)))

    def _ask_shards(self, asked: _AtTime, tail: TailResponse) -> None:
        if not self._context.is_open(asked.call):
            return
        asked.tail = tail.last
        asked.waiting = set(self._directory.shards)
        for shard in sorted(asked.waiting):
            self._ask_shard(asked, shard)
        self._told(asked)

    def _ask_shard(self, asked: _AtTime, shard: int) -> None:
        number, turn = self._context.next_number(), self._context.rng.randrange(8)
        asked.numbers.append(number)

        def where(attempt: int) -> Address | None:
            if shard not in self._directory.shards:
                self._requests.cancel(number)
                asked.waiting.discard(shard)
                self._told(asked)
                return None
            if attempt % 8 == 3:
                self._ordering_client.refresh()
            return self._directory.member(shard, turn + attempt)

        def answered(answer: TimeResponse | ReadFailed, sender: Address) -> int | None:
            if isinstance(answer, ReadFailed) or answer.known < asked.tail:
                return self._context.backoff(2)
            asked.newest = max(asked.newest, answer.gsn)
            asked.waiting.discard(shard)
            self._told(asked)
            return None

        self._requests.send(number, TimeRequest(number, shard, asked.time), where, answered)

    def _told(self, asked: _AtTime) -> None:
        """A shard trimmed away had nothing that can still be read, so the newest may be the one before the oldest."""
        if not asked.waiting:
            self._context.answer(asked.call, max(asked.newest, self._directory.oldest - 1))


@dataclass(slots=True)
class _AtTime:
    """A question to all shards. They must know the log up to `tail`, or they may not know of younger records."""

    call: int
    time: int
    tail: int = 0
    newest: int = 0
    waiting: set[int] = field(default_factory=set)
    numbers: list[int] = field(default_factory=list)
