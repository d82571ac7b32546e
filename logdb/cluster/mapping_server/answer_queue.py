"""The answers of a mapping server to reads: a byte budget for each event, and clients in turn beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from logdb.cluster.mapping_server.cold_queue import ColdQueue, ParkedRead
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.query_executor import Budget, answer, bytes_of
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import (
    Aborted,
    Answered,
    Answers,
    Busy,
    ColdCommits,
    ColdValue,
    Consistency,
    History,
    MultiScan,
    NotReadable,
    Outcome,
    Result,
    Scan,
    VersionTrimmedReply,
)
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address

MAX_QUEUED_PAGES: Final = 64
"""Maximum number of answers queued for one client while it requests pages; further pages are answered with Busy."""
PAGES: Final = frozenset({Aborted, ColdCommits, ColdValue, History, MultiScan, Scan})
"""Questions with long answers."""


class AnswerQueue:
    """Answers reads from the replica, at most about `config.answer_bytes` in one event.

    The reads beyond that are queued by client, and the clients are answered in turn, in later events. Keys that a scan
    has passed count as bytes, too. `answered`: the number of reads answered. `is_suspended`: the replica has no state
    yet, so every read is rejected with Busy. `cold`: the reads that the cold tier answers.
    """

    def __init__(self, context: ClientContext, replica: Replica, config: MappingConfig) -> None:
        self._context, self._replica, self._max_bytes = context, replica, config.answer_bytes
        self.cold = ColdQueue(context, replica, self.put, config)
        self.answered = 0
        self.is_suspended = False
        self._bytes_left = self._max_bytes
        # By client and number of the read: a client that has sent a read again wants one answer.
        self._queues: dict[Address, dict[int, ParkedRead]] = {}
        self._answers: dict[Address, list[Answered]] = {}
        self._continue = Timer(self._answer_queued)

    def begin_event(self) -> None:
        """Renew the byte budget."""
        self._bytes_left = self._max_bytes

    def suspend(self) -> None:
        """Reject all reads until `resume`: the queued ones and later ones."""
        self.is_suspended = True
        for client, queue in self._queues.items():
            self._context.send(client, Busy(tuple(queue)))
        self._queues.clear()

    def resume(self) -> None:
        """Answer reads again."""
        self.is_suspended = False

    def queued(self, client: Address) -> int:
        """The number of this client's reads in its queue."""
        return len(self._queues.get(client, ()))

    def waiting(self) -> Iterator[ParkedRead]:
        """The reads that have not been answered, also those that wait for the cold tier."""
        return chain(*(queue.values() for queue in self._queues.values()), self.cold.waiting())

    def answer(self, parked: ParkedRead) -> None:
        """Answer a read whose version is applied: now, or in turn once the budget of this event is spent."""
        if self._bytes_left > 0 and not self._queues and not self.is_suspended:
            self._answer_now(parked)
            return
        number, is_page = parked.read.number, type(parked.read.question) in PAGES
        queue = self._queues.get(parked.client, {})
        is_full = is_page and number not in queue and len(queue) >= MAX_QUEUED_PAGES
        if self.is_suspended or is_full:
            self._context.send(parked.client, Busy((number,)))
            return
        self._queues.setdefault(parked.client, queue)[number] = parked
        self._context.set_timer(self._continue, self._context.now + 1)

    def put(self, parked: ParkedRead, version: int, result: Result) -> None:
        """Answer a read with this result, as of `version`."""
        self.answered += 1
        self._bytes_left -= bytes_of(result)
        self._answers.setdefault(parked.client, []).append(Answered(parked.read.number, version, result))

    def flush(self) -> None:
        """Send the answers of this event, in messages of about `max_bytes`."""
        for client, answers in self._answers.items():
            batch, size = [], 0
            for answered in answers:
                batch.append(answered)
                size += bytes_of(answered.result)
                if size >= self._max_bytes:
                    self._context.send(client, Answers(tuple(batch)))
                    batch, size = [], 0
            if batch:
                self._context.send(client, Answers(tuple(batch)))
        self._answers = {}

    def _answer_queued(self) -> None:
        """Answer one read of each client in turn until the budget is spent."""
        queues = self._queues
        while queues and self._bytes_left > 0:
            client = next(iter(queues))
            queue = queues.pop(client)
            self._answer_now(queue.pop(next(iter(queue))))
            if queue:
                queues[client] = queue
        if queues:
            self._context.set_timer(self._continue, self._context.now + 1)

    def _answer_now(self, parked: ParkedRead) -> None:
        read = parked.read
        version = self._replica.applied
        if read.consistency == Consistency.SNAPSHOT and type(read.question) is not Outcome:
            version = read.version
        budget = Budget(self._max_bytes)
        result = self.cold.of(parked, version, answer(self._replica, read.question, version, budget))
        self._bytes_left -= budget.looked
        if result is not None:
            self.put(parked, 0 if type(result) in (VersionTrimmedReply, NotReadable) else version, result)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert all(self._queues.values()), "an empty queue keeps a client in the rotation"
        assert not self._queues or self._continue.at is not None, "reads are queued, and no timer continues them"
        assert not (self.is_suspended and self._queues), "a server without a state has queued reads"
