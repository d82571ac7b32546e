"""Reads at a mapping server until the version that they need is applied (DBS-3, DBS-5)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Final

from logdb.cluster.log_adapter import LogAdapter
from logdb.cluster.mapping_server.answer_queue import AnswerQueue
from logdb.cluster.mapping_server.cold_queue import ParkedRead
from logdb.cluster.mapping_server.contention_queue import ContentionQueue
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import (
    AtTime,
    Busy,
    Consistency,
    FutureVersionReply,
    Get,
    History,
    MultiScan,
    Outcome,
    Question,
    Reads,
    Scan,
    Turn,
)
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address
from logdb.log import requests as log_requests

MAX_PARKED: Final = 10_000
"""Maximum number of parked reads. Above it, a client that has more than a quarter of them is answered with Busy."""
MAX_PARKED_BYTES: Final = 64 << 20
"""The same for the bytes of all reads that wait, also for the cold tier or to be answered in turn. Above four times as
many, every client is answered with Busy."""
READ_BYTES: Final = 400
KEY_BYTES: Final = 50
"""Sizes of a read in memory without its keys, and of a key beside its bytes."""


def size_of(question: Question) -> int:
    """The bytes of a question in memory."""
    if isinstance(question, Get):
        return READ_BYTES + KEY_BYTES * len(question.keys) + sum(map(len, question.keys))
    if isinstance(question, MultiScan):
        return READ_BYTES + sum(map(size_of, question.scans))
    if isinstance(question, Scan):
        return READ_BYTES + len(question.start or b"") + len(question.end or b"")
    return READ_BYTES + (len(question.key) if isinstance(question, History | Turn) else 0)


class ReadQueue:
    """Parks each read until the replica has applied what it must see. `tail`: the newest GSN known to be in the log;
    `by_time`: by number, the reads whose time the log resolves to a version.

    A read that needs the tail waits for the next tail request: one request serves all reads that came before it was
    sent. A read that names a version waits in a heap. Reads older than `ttl_ns` are dropped: by then the client has
    sent them again, perhaps to another server.
    """

    def __init__(
        self,
        context: ClientContext,
        log: LogAdapter,
        replica: Replica,
        answers: AnswerQueue,
        contention: ContentionQueue,
        ttl_ns: int,
    ) -> None:
        self._context, self._log, self._replica, self._answers = context, log, replica, answers
        self._contention, self._ttl_ns = contention, ttl_ns
        self.tail = 0
        # Reads that the tail request under way serves, those for the next one, and those that wait for a version.
        self._requesting_tail: list[ParkedRead] = []
        self._needing_tail: list[ParkedRead] = []
        self._by_version: list[tuple[int, int, ParkedRead]] = []
        self.by_time: dict[int, ParkedRead] = {}
        self._max_bytes = 0  # of all reads that wait: those that were answered count until the next sum
        self._expiry = Timer(self._expire)

    @property
    def is_awaited(self) -> bool:
        """Whether a read waits for a version."""
        return bool(self._by_version)

    def on_reads(self, message: Reads, client: Address) -> None:
        """Answer or park the reads of a message; Busy rejects all of them."""
        sizes = [size_of(read.question) for read in message.reads]
        if self._answers.is_suspended or self._has_too_many(client) or not self._has_room(client, sum(sizes)):
            self._context.send(client, Busy(tuple([read.number for read in message.reads])))
            return
        now, applied = self._context.now, self._replica.applied
        for read, size in zip(message.reads, sizes, strict=True):
            parked = ParkedRead(client, read, now, size)
            kind = type(read.question)
            if kind is AtTime:
                self._resolve_time(parked)
            elif kind is Turn and self._contention.extend(parked):
                continue
            elif read.consistency == Consistency.LINEARIZABLE or kind is Outcome:
                self._needing_tail.append(parked)
            elif read.version <= applied:
                self._park(read.applied, parked)
            elif read.consistency == Consistency.SESSION:
                self._park(read.version, parked)
            else:
                self._needing_tail.append(parked)
        self._request_tail()
        self._set_expiry()

    def on_applied(self) -> None:
        """Answer the reads whose version the replica has applied now."""
        heap, applied = self._by_version, self._replica.applied
        while heap and heap[0][0] <= applied:
            self._answer(heappop(heap)[2])

    def _has_too_many(self, client: Address) -> bool:
        queued = self._answers.queued(client)
        lists: tuple[Collection[Any], ...] = self._needing_tail, self._requesting_tail, self._by_version, self.by_time
        if queued + sum(map(len, lists)) < MAX_PARKED:
            return False
        return queued + sum([parked.client == client for parked in self._parked()]) > MAX_PARKED // 4

    def _parked(self) -> Iterator[ParkedRead]:
        by_version = (entry[2] for entry in self._by_version)
        return chain(self._needing_tail, self._requesting_tail, by_version, self.by_time.values())

    def _has_room(self, client: Address, size: int) -> bool:
        """Whether reads of this client with these bytes may wait."""
        self._max_bytes += size
        if self._max_bytes <= MAX_PARKED_BYTES:
            return True
        total = mine = size
        for parked in chain(self._parked(), self._answers.waiting()):
            total += parked.size
            mine += parked.size if parked.client == client else 0
        is_full = total > MAX_PARKED_BYTES and (mine > MAX_PARKED_BYTES // 4 or total > 4 * MAX_PARKED_BYTES)
        self._max_bytes = total - size if is_full else total
        return not is_full

    def _request_tail(self) -> None:
        """Send one tail request for all reads received before it (DBS-3)."""
        if self._needing_tail and not self._requesting_tail:
            self._requesting_tail, self._needing_tail = self._needing_tail, []
            self._log.call(log_requests.Tail(), self._on_tail)

    def _on_tail(self, tail: int) -> None:
        self.tail = max(self.tail, tail)
        served, self._requesting_tail = self._requesting_tail, []
        for parked in served:
            read = parked.read
            if read.consistency == Consistency.SNAPSHOT and type(read.question) is not Outcome:
                if read.version > tail:
                    self._answers.put(parked, 0, FutureVersionReply(tail))
                else:
                    self._park(max(read.version, read.applied), parked)
            else:
                self._park(max(tail, read.version), parked)
        self._request_tail()

    def _park(self, version: int, parked: ParkedRead) -> None:
        """Answer a read once `version` is applied."""
        if version <= self._replica.applied:
            self._answer(parked)
        else:
            heappush(self._by_version, (version, self._context.next_number(), parked))

    def _answer(self, parked: ParkedRead) -> None:
        """Answer a read whose version is applied; if it takes a turn, once it has it."""
        if type(parked.read.question) is Turn:
            self._contention.enter(parked)
        else:
            self._answers.answer(parked)

    def _resolve_time(self, parked: ParkedRead) -> None:
        """Request the version of a time from the log, and answer once that version is applied."""
        question = parked.read.question
        assert isinstance(question, AtTime)
        if question.time > self._context.now:
            self._answers.put(parked, 0, FutureVersionReply(self._replica.applied))
            return

        number = self._context.next_number()
        self.by_time[number] = parked

        def on_version(gsn: int | Exception) -> None:
            del self.by_time[number]
            if isinstance(gsn, Exception):
                return  # a shard does not answer, and the client has sent the read again
            read = parked.read._replace(consistency=Consistency.SNAPSHOT, version=gsn)
            self._park(gsn, parked._replace(read=read))

        self._log.call(log_requests.AtTime(question.time, self._context.now + self._ttl_ns), on_version)

    def _set_expiry(self) -> None:
        if self._expiry.at is None and (self._by_version or self._needing_tail):
            self._context.set_timer(self._expiry, self._context.now + self._ttl_ns)

    def _expire(self) -> None:
        oldest = self._context.now - self._ttl_ns
        self._needing_tail = [parked for parked in self._needing_tail if parked.received_at > oldest]
        self._by_version = [entry for entry in self._by_version if entry[2].received_at > oldest]
        heapify(self._by_version)
        self._set_expiry()

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self._needing_tail or self._requesting_tail, "DBS-3: reads need the tail, and it is not requested"
        heap = self._by_version
        assert not heap or heap[0][0] > self._replica.applied, "a read waits for a version that is applied"
