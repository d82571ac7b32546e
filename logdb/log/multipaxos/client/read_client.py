"""Reads of single records, and of the GSN at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
from logdb.log.requests import transfer_ns

LOCAL_ATTEMPTS: Final = 4
"""A request that waits for records at the replica on the client's node is sent to another one with every fourth
attempt."""


class RecordSource:
    """Chooses the replica for a request for records: the one that answered last, the leader if that one is behind,
    another one if it does not answer. `local`: the replica on the client's node, if there is one: it is preferred,
    except for a while after it has refused, or another one has answered in its place twice."""

    def __init__(self, context: ClientContext, tracker: LeaderTracker, local: Address = "") -> None:
        self._context, self._tracker, self._local = context, tracker, local
        self._avoid_local_until = 0
        self._asks_local = False
        self._misses = 0
        self._target = context.rng.choice(tracker.replicas)
        self._redirects = 0
        self.damaged: dict[Address, str] = {}

    def where(self) -> Callable[[int], Address]:
        """A function that returns the receiver of each attempt of one request. A replica that got an earlier attempt
        counts as silent."""
        asked: Address | None = None

        def where(attempt: int) -> Address:
            nonlocal asked
            self._asks_local = attempt % LOCAL_ATTEMPTS != LOCAL_ATTEMPTS - 1 and self._prefers_local()
            if self._asks_local:
                return self._local
            if asked == self._target:
                self._next(asked)
            asked = self._target
            return self._target

        return where

    def _prefers_local(self) -> bool:
        return bool(self._local) and self._context.now >= self._avoid_local_until

    def _avoid_local(self) -> None:
        self._avoid_local_until = self._context.now + LOCAL_ATTEMPTS * self._context.config.answer_timeout_ns

    def _next(self, replica: Address) -> None:
        self._target = self._tracker.rested(replica)

    def answered(self, sender: Address) -> None:
        """A replica has sent records."""
        self._tracker.answered(sender)
        if sender == self._local:
            self._misses = 0
        elif not self._asks_local and self._prefers_local():
            self._misses += 1
            if self._misses > 1:
                self._avoid_local()
        self._redirects = 0
        self.damaged.clear()

    def failed(self, answer: ReadFailed, sender: Address) -> int | Exception:
        """`sender` has sent no records. Returns the time to wait before the next attempt, in ns, or the error if no
        replica can have the records."""
        self._tracker.answered(sender)
        if sender == self._local:
            self._avoid_local()
        if answer.why is ReadError.UNREADABLE:
            self.damaged[sender] = answer.explanation
            if self.damaged.keys() >= set(self._tracker.replicas):
                return Corruption("the log", None, "; ".join(sorted(set(self.damaged.values()))))
        self._redirects += 1
        is_known = answer.leader in self._tracker.replicas and answer.leader != sender
        is_known = is_known and not self._tracker.rests(answer.leader)
        if answer.why is ReadError.BEHIND and is_known:
            self._target = answer.leader
        else:
            self._next(sender)
        return 0 if is_known and self._redirects == 1 else self._context.backoff(1)


class ReadClient:
    """All reads of a client. `oldest`: the oldest readable GSN in the answers so far."""

    def __init__(self, context: ClientContext, tracker: LeaderTracker, requests: PendingRequests) -> None:
        self._context, self._tracker, self._requests = context, tracker, requests
        self.oldest = 1

    def trimmed(self, oldest: int) -> None:
        """A replica has reported `oldest` as the oldest readable GSN."""
        self.oldest = max(self.oldest, oldest)

    # ---- records

    def read(self, call: int, request: calls.Read) -> None:
        """Read a record."""
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
            self._ask(number, gsn, lambda result: context.answer(call, result), request.size)

    def _ask(self, number: int, gsn: int, then: Callable[[LogRecord | Exception], None], size: int = 0) -> None:
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

        self._requests.send(number, ReadRequest(number, gsn), source.where(), answered, transfer_ns(size))

    # ---- times

    def at_time(self, call: int, request: calls.AtTime) -> None:
        """Find the newest GSN at a time, by a binary search between the two GSNs that the leader returns."""
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
            """Records up to `newest` were ordered at the time or before (or are trimmed), those from `end` on later."""
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
