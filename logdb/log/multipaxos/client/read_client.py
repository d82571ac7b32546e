"""Reads of single records, and of the GSN at a time."""

from __future__ import annotations

from collections.abc import Callable

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard, Trimmed
from logdb.log.multipaxos.client.leader_tracker import LeaderTracker
from logdb.log.multipaxos.configuration import SHARD
from logdb.log.multipaxos.messages import (
    NotLeader,
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    TimeRequest,
    TimeResponse,
)
from logdb.log.multipaxos.records import unwrap


class RecordSource:
    """Which replica a request for records goes to: the one that answered last, the leader when that one is behind,
    another one when it does not answer."""

    def __init__(self, context: ClientContext, tracker: LeaderTracker) -> None:
        self._context, self._replicas = context, tracker.replicas
        self._target = context.rng.choice(self._replicas)
        self._redirects = 0
        self.damaged: dict[Address, str] = {}

    def where(self) -> Callable[[int], Address]:
        """For one question: a replica that was asked before and is asked again did not answer."""
        asked: Address | None = None

        def where(attempt: int) -> Address:
            nonlocal asked
            if asked == self._target:
                self._next(asked)
            asked = self._target
            return self._target

        return where

    def _next(self, replica: Address) -> None:
        self._target = self._replicas[(self._replicas.index(replica) + 1) % len(self._replicas)]

    def answered(self) -> None:
        """The replica has sent records."""
        self._redirects = 0
        self.damaged.clear()

    def failed(self, answer: ReadFailed, sender: Address) -> int | Exception:
        """It has not: how long to wait before the next replica is asked, or the error if no replica can have them."""
        if answer.why is ReadError.UNREADABLE:
            self.damaged[sender] = answer.explanation
            if self.damaged.keys() >= set(self._replicas):
                return Corruption("the log", None, "; ".join(sorted(set(self.damaged.values()))))
        self._redirects += 1
        is_known = answer.leader in self._replicas and answer.leader != sender
        if answer.why is ReadError.BEHIND and is_known:
            self._target = answer.leader
        else:
            self._next(sender)
        return 0 if is_known and self._redirects == 1 else self._context.backoff(1)


class ReadClient:
    """All reads of a client. `oldest`: the oldest readable GSN, as far as this client knows."""

    def __init__(self, context: ClientContext, tracker: LeaderTracker, requests: PendingRequests) -> None:
        self._context, self._tracker, self._requests = context, tracker, requests
        self.oldest = 1

    def trimmed(self, oldest: int) -> None:
        """A replica says that this is the oldest readable GSN."""
        self.oldest = max(self.oldest, oldest)

    # ---- records

    def read(self, call: int, request: calls.Read) -> None:
        """The application wants a record."""
        context, number, gsn = self._context, self._context.next_number(), request.gsn

        def expired() -> None:
            self._requests.cancel(number)
            context.answer(call, TimeoutError(f"record {gsn} did not come before the deadline"))

        context.open(call, request.deadline, expired)
        if gsn < 1 or request.shard != SHARD:
            context.answer(call, NotOfThisShard(gsn, request.shard))
        elif gsn < self.oldest:
            context.answer(call, Trimmed(gsn, self.oldest))
        else:
            self._ask(number, gsn, lambda result: context.answer(call, result))

    def _ask(self, number: int, gsn: int, then: Callable[[LogRecord | Exception], None]) -> None:
        source = RecordSource(self._context, self._tracker)

        def answered(answer: ReadResponse | ReadFailed, sender: Address) -> int | None:
            result: int | LogRecord | Exception
            if isinstance(answer, ReadResponse):
                result = unwrap(gsn, answer.records[0])
            else:
                self.trimmed(answer.oldest)
                is_gone = answer.why is ReadError.TRIMMED
                result = Trimmed(gsn, answer.oldest) if is_gone else source.failed(answer, sender)
            if isinstance(result, int):
                return result
            self._requests.cancel(number)
            then(result)
            return None

        self._requests.send(number, ReadRequest(number, gsn), source.where(), answered)

    # ---- times

    def at_time(self, call: int, request: calls.AtTime) -> None:
        """The newest GSN at a time: between the two that the leader names, by halves."""
        context, time = self._context, request.time
        number = context.next_number()

        def expired() -> None:
            self._requests.cancel(number)
            context.answer(call, TimeoutError("no replica answered before the deadline"))

        def answered(answer: TimeResponse | NotLeader, sender: Address) -> int | None:
            if isinstance(answer, NotLeader):
                return self._tracker.not_leader(answer, sender)
            self._tracker.found(sender)
            self._requests.cancel(number)
            self.trimmed(answer.oldest)
            halve(max(answer.first, answer.oldest) - 1, answer.end)
            return None

        def halve(newest: int, end: int) -> None:
            """Records up to `newest` were ordered at the time or before (or are gone), those from `end` on later."""
            nonlocal number
            if not context.is_open(call):
                return
            if newest + 1 >= end:
                context.answer(call, newest)
                return
            middle = (newest + end) // 2
            number = context.next_number()

            def found(result: LogRecord | Exception) -> None:
                if isinstance(result, LogRecord):
                    halve(*((middle, end) if result.time <= time else (newest, middle)))
                elif isinstance(result, Trimmed):
                    halve(max(newest, min(result.oldest, end) - 1), end)
                else:
                    context.answer(call, result)

            self._ask(number, middle, found)

        context.open(call, request.deadline, expired)
        self._requests.send(number, TimeRequest(number, time), self._tracker.where(), answered)
