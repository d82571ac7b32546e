"""A subscription: the log from a GSN on, pulled in batches ahead of the application."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address, ProtocolViolation
from logdb.cores.subscriptions import Subscription
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.multipaxos.client.leader_tracker import LeaderTracker
from logdb.log.multipaxos.client.read_client import ReadClient, RecordSource
from logdb.log.multipaxos.messages import Pull, Pulled, ReadError, ReadFailed
from logdb.log.multipaxos.records import unwrap_all

RECORD_BYTES = 64
"""Size that is added to the payload of each pulled record."""


class LogSubscription(Subscription):
    """A subscription. `position`: the next GSN for the application; `_at`: the next GSN to pull; `_ready`: the pulled
    batches between, as (end, records, bytes)."""

    def __init__(
        self,
        request: calls.Subscribe,
        context: ClientContext,
        tracker: LeaderTracker,
        requests: PendingRequests,
        reads: ReadClient,
    ) -> None:
        super().__init__(context)
        self._requests, self._reads = requests, reads
        self.position = self._at = request.gsn
        self._tags = request.tags
        self._fetch_bytes = max(request.fetch_bytes or context.config.fetch_bytes, 1)
        self._ready: deque[tuple[int, Sequence[LogRecord], int]] = deque()
        self._ready_bytes = self._question = 0
        self._source = RecordSource(context, tracker, context.config.local)
        self._damage: Exception | None = None
        self._is_single = False
        self._is_urgent = False

    def close(self) -> None:
        super().close()
        self._requests.cancel(self._question)

    def expedite(self) -> bool:
        if self._ready or self._is_urgent:
            return False
        self._is_urgent = True
        if self._requests.is_open(self._question):
            self._requests.replace(self._question, self._next_pull())
        return True

    def advance(self) -> None:
        self._deliver()
        has_room = self._ready_bytes < self._fetch_bytes and not self._requests.is_open(self._question)
        if has_room and self.position >= self._reads.oldest:  # otherwise its next records are trimmed, and it ends
            self._pull()

    def _next_batch(self) -> Batch | Exception | None:
        if self.position < self._reads.oldest:
            return Trimmed(self.position, self._reads.oldest)
        if not self._ready:
            return self._damage
        first, size = self.position, 0
        records: list[LogRecord] = []
        while self._ready and size < self._context.config.batch_bytes:
            self.position, more, bytes_ = self._ready.popleft()
            records += more
            size += bytes_
        self._ready_bytes -= size
        return Batch(first, self.position, records)

    def _pull(self) -> None:
        number = self._question = self._context.next_number()
        self._requests.send(number, self._next_pull(), self._source.where(), self._answered)

    def _next_pull(self) -> Pull:
        size = 1 if self._is_single else min(max(self._fetch_bytes // 2, 1), self._context.config.batch_bytes)
        is_local = bool(self._context.config.local)
        return Pull(self._question, self._at, self._tags, size, is_local, is_local and self._is_urgent)

    def _answered(self, answer: Pulled | ReadFailed, sender: Address) -> int | None:
        if isinstance(answer, Pulled):
            self._requests.cancel(self._question)
            self._source.answered(sender)
            self._is_urgent = False
            self._take(answer)
            return None
        self._reads.trimmed(answer.oldest)
        if answer.why is ReadError.TRIMMED:
            self._requests.cancel(self._question)
            self.advance()
            return None
        if answer.why is ReadError.UNREADABLE and not self._is_single:  # the next record may be sound
            self._is_single = True
            self._requests.cancel(self._question)
            self._pull()
            return None
        wait = self._source.failed(answer, sender)
        if isinstance(wait, int):
            return wait
        self._damage = wait
        self._deliver()
        return self._context.backoff(5)

    def _take(self, pulled: Pulled) -> None:
        first, end = pulled.first, pulled.end
        records = unwrap_all(pulled.records)
        is_whole = self._tags is not None or [record.lsn for record in records] == list(range(first, end))
        if first != self._at or end <= first or not is_whole:
            raise ProtocolViolation(f"MPX-7: {len(records)} records for {first} to {end - 1}, asked from {self._at} on")
        self._at, self._damage, self._is_single = end, None, False
        size = sum([len(record.payload) for record in records]) + RECORD_BYTES * (len(records) + 1)
        self._ready.append((end, records, size))
        self._ready_bytes += size
        self.advance()

    def check(self) -> None:
        """Raises AssertionError."""
        assert self._ready_bytes == sum([bytes_ for _, _, bytes_ in self._ready])
