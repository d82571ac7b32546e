"""Appends to one segment: batches, records in flight, acknowledgements and statuses.

Every record gets a sequence number when it is first sent. The number stays with its segment: it is sent there again
until the segment's primary acknowledges it or a member of the shard returns its status. Only when a status says that it
*never* will be in the segment is it sent to another one, under the same number (SCA-13). So no failure on the way can
append it twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address
from logdb.log.requests import transfer_ns
from logdb.log.scalog.client.batches import EXCLUDED, FORGOTTEN, Batch, Chunk, SequenceNumbers, merged
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.ordering_client import OrderingClient
from logdb.log.scalog.messages import Append, Appended, AppendStatus, AppendStatusRequest, Rejected, RejectReason


class AppendObserver(Protocol):
    """Is informed about the chunks of a `SegmentAppender`."""

    def is_awaited(self, chunk: Chunk) -> bool:
        """Whether a call waits for the chunk. A chunk that is in no segment and not awaited is not sent."""

    def on_sent(self, chunk: Chunk) -> None:
        """The chunk is sent for the first time."""

    def on_ordered(self, chunk: Chunk, start: int, gsns: Sequence[int], shard: int) -> None:
        """The chunk's records from index `start` on have these GSNs."""

    def on_unknown(self, chunk: Chunk, start: int, end: int, reason: str) -> None:
        """No server can return the result of the chunk's records `start` to `end` - 1 any more."""

    def on_dropped(self, chunk: Chunk) -> None:
        """The chunk is in no segment, and was not sent because it is not awaited."""

    def on_unassigned(self, chunk: Chunk) -> None:
        """The chunk is in no segment and must be sent to another one; with its number, if it has one."""


class SegmentAppender:
    """The appends of this client to one segment.

    If no batch is in flight, one is sent at once, with all records appended at the same moment. Otherwise records are
    collected until a reply arrives, the linger time has passed, or they fill a batch; at most the window is in flight.
    `_busy`: the primary has rejected a batch for now, so no new one is sent. `sealed`: the segment accepts no more
    records; only statuses of those in flight are requested.
    """

    def __init__(
        self,
        segment: int,
        shard: int,
        context: ClientContext,
        directory: Directory,
        ordering_client: OrderingClient,
        numbers: SequenceNumbers,
        observer: AppendObserver,
    ) -> None:
        self.segment, self.shard = segment, shard
        self._context, self._directory, self._ordering_client = context, directory, ordering_client
        self._numbers, self._observer = numbers, observer
        self.waiting: deque[Chunk] = deque()
        self.waiting_bytes = 0
        self.flight: dict[int, Batch] = {}
        self.flight_bytes = 0
        self.sealed = False
        self._busy = False
        self._last_reply_at = 0
        self._turn = context.rng.randrange(8)
        self._forgotten_since: int | None = None
        self._linger_timer = Timer(lambda: self.flush(lingered=True))
        self._resend_timer = Timer(self._retransmit)

    @property
    def is_stalled(self) -> bool:
        """Whether the primary is busy, or an acknowledgement is overdue."""
        oldest = next(iter(self.flight.values()), None)
        return self._busy or (oldest is not None and self._context.now - oldest.sent_at >= self._resend_after_ns)

    @property
    def _resend_after_ns(self) -> int:
        """Time without a reply after which a batch is sent again."""
        return self._context.config.answer_timeout_ns + transfer_ns(self.flight_bytes)

    # ---- sending

    def push(self, chunk: Chunk) -> None:
        """Append a chunk after those that wait."""
        self.waiting.append(chunk)
        self.waiting_bytes += chunk.size
        self.flush()

    def flush(self, *, lingered: bool = False) -> None:
        """Send the batches that may be sent now. `lingered`: do not wait for more records."""
        config = self._context.config
        while self.waiting and not self._busy and not self.sealed:
            if self.flight:
                if self.flight_bytes + min(self.waiting_bytes, config.batch_bytes) > config.window_bytes:
                    return
                if not lingered and self.waiting_bytes < config.batch_bytes:
                    if self._linger_timer.at is None:
                        self._context.set_timer(self._linger_timer, self._context.now + config.linger_ns)
                    return
            elif config.coalesce_calls and not lingered and self.waiting_bytes < config.batch_bytes:
                if self._linger_timer.at is None:
                    self._context.set_timer(self._linger_timer, self._context.now)
                return
            chunks = self._collect()
            if chunks:
                self._launch(chunks)
        self._linger_timer.at = None

    def _collect(self) -> list[Chunk]:
        """The next chunks that fit into one batch. The numbers of numbered chunks must be consecutive."""
        chunks: list[Chunk] = []
        size = follows = 0
        while self.waiting:
            chunk = self.waiting[0]
            if chunks and (size + chunk.size > self._context.config.batch_bytes or chunk.sequence != follows):
                break
            self.waiting.popleft()
            self.waiting_bytes -= chunk.size
            if not self._observer.is_awaited(chunk):
                self._numbers.close(chunk.sequence)
                self._observer.on_dropped(chunk)
                continue
            chunks.append(chunk)
            size += chunk.size
            follows = chunk.sequence + len(chunk.records) if chunk.sequence else 0
        return chunks

    def _launch(self, chunks: list[Chunk]) -> None:
        marks = {chunk.sequence for chunk in chunks}
        if 0 in marks:
            number = self._numbers.take(sum([len(chunk.records) for chunk in chunks]))
            marks = {number}
            for chunk in chunks:
                chunk.sequence = number
                number += len(chunk.records)
        batch = Batch(chunks, marks)
        for chunk in chunks:
            self._observer.on_sent(chunk)
        batch.sent_at = self._context.now
        self.flight[batch.sequence] = batch
        self.flight_bytes += batch.size
        self._send(batch)
        if self._resend_timer.at is None:
            self._context.set_timer(self._resend_timer, batch.resend_at)

    def _send(self, batch: Batch) -> None:
        batch.attempts += 1
        batch.resend_at = self._context.now + self._resend_after_ns
        primary = self._directory.primary(self.segment)
        if primary is not None:
            settled = self._numbers.settled()
            self._context.send(
                primary[1], Append(self._context.client, batch.sequence, settled, self.segment, batch.records)
            )

    # ---- replies

    def on_appended(self, answer: Appended, sender: Address) -> None:
        """The primary has acknowledged records."""
        self._last_reply_at = self._context.now
        for first, count, gsn in answer.ranges:
            self._decide(first, first + count, gsn)
        self._busy = False
        self.flush(lingered=True)

    def on_rejected(self, answer: Rejected, sender: Address) -> None:
        """A batch was rejected. That does not decide whether its records are in the segment."""
        self._last_reply_at = self._context.now
        if answer.why is RejectReason.SEALED:
            self.seal()
            return
        number = answer.sequence
        batch = next((it for it in self.flight.values() if it.sequence <= number < it.sequence + it.count), None)
        if batch is None:
            return
        self._busy = True
        batch.resend_at = self._context.now + self._context.backoff(batch.attempts)
        if self._resend_timer.at is None or batch.resend_at < self._resend_timer.at:
            self._context.set_timer(self._resend_timer, batch.resend_at)
        if answer.why is RejectReason.NOT_PRIMARY:
            self._ordering_client.refresh()

    def on_status(self, answer: AppendStatus, sender: Address) -> None:
        """A member returns the results of sequence numbers."""
        primary = self._directory.primary(self.segment)
        if primary is not None and sender == primary[1]:
            self._last_reply_at = self._context.now
        is_forgotten = self._is_forgotten(any(not gsn for _, _, gsn in answer.ordered))
        for first, count, gsn in answer.ordered:
            if gsn or is_forgotten:
                self._decide(first, first + count, gsn or FORGOTTEN)
        if answer.never:
            self.seal()
        for first, count in merged(answer.never):
            self._decide(first, first + count, EXCLUDED)
        if not self.sealed:
            self.flush(lingered=True)
        elif self.flight:
            self._context.set_timer(self._resend_timer, self._context.now + self._context.backoff(2))

    def _is_forgotten(self, without_gsn: bool) -> bool:
        """Whether records are given up whose GSNs a member does not have (`without_gsn`): when requests have gone to
        all servers of the shard twice since the first such status."""
        config = self._directory.shard_of(self.segment)
        if not without_gsn or config is None:
            return False
        if self._forgotten_since is None:
            self._forgotten_since = self._turn
        return self._turn - self._forgotten_since > 2 * self._directory.rotation(config)

    def _decide(self, start: int, end: int, gsn: int) -> None:
        """The numbers `start` to `end` - 1 have GSNs from `gsn` on, or `gsn` is EXCLUDED or FORGOTTEN."""
        whole = self.flight.get(start)
        moved: list[Chunk] = []
        for batch in [whole] if whole is not None and whole.count == end - start else list(self.flight.values()):
            for chunk in batch.chunks:
                low = max(start, chunk.sequence)
                high = min(end, chunk.sequence + len(chunk.records))
                if low < high:
                    found = range(gsn + low - start, gsn + high - start) if gsn > 0 else (gsn,) * (high - low)
                    self._decide_chunk(batch, chunk, low - chunk.sequence, found, moved)
            if batch.left:
                self._mark(batch)
            elif self.flight.get(batch.sequence) is batch:
                self._finish(batch)
        for chunk in moved:
            self._observer.on_unassigned(chunk)

    def _decide_chunk(self, batch: Batch, chunk: Chunk, start: int, found: Sequence[int], moved: list[Chunk]) -> None:
        decided = chunk.decide(start, found)
        batch.left -= sum([high - low for low, high in decided])
        if found[0] == FORGOTTEN:
            for low, high in decided:
                self._observer.on_unknown(
                    chunk, low, high, "it is in the log, but was trimmed before its GSN was received"
                )
            return
        if found[0] != EXCLUDED:
            for low, high in decided:
                self._observer.on_ordered(chunk, low, found[low - start : high - start], self.shard)
            return
        for low, high in decided:
            size = chunk.size * (high - low) // len(chunk.records)
            left = Chunk(chunk.owner, chunk.indexes[low:high], chunk.records[low:high], size)
            left.sequence = chunk.sequence + low
            moved.append(left)
            self._numbers.open(left.sequence)
            batch.marks.discard(left.sequence)

    def _mark(self, batch: Batch) -> None:
        """Keep exactly those numbers of a batch open that have no result."""
        marks = {first for first, _ in batch.open_runs()}
        for first in marks - batch.marks:
            self._numbers.open(first)
        for first in batch.marks - marks:
            self._numbers.close(first)
        batch.marks = marks

    def _finish(self, batch: Batch) -> None:
        """All records of a batch have results."""
        self._remove(batch)
        self._busy = self._busy and bool(self.flight)
        primary = self._directory.primary(self.segment)
        if batch.attempts == 1 and primary is not None:
            self._directory.add_round_trip(primary[0], self._context.now - batch.sent_at)

    def _remove(self, batch: Batch) -> None:
        del self.flight[batch.sequence]
        self.flight_bytes -= batch.size
        for mark in batch.marks:
            self._numbers.close(mark)
        if not self.flight:
            self._forgotten_since = None

    # ---- missing replies

    def seal(self) -> None:
        """The segment is sealed: reroute chunks that were not sent, request the status of the others."""
        if self.sealed:
            return
        self.sealed = True
        self._directory.mark_sealed(self.segment)
        self._linger_timer.at = None
        self.reroute_pending()
        self._context.set_timer(self._resend_timer, self._context.now)

    def reroute_pending(self) -> None:
        """Give chunks that were not sent to other segments."""
        waiting = list(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        for chunk in waiting:
            self._observer.on_unassigned(chunk)

    def _retransmit(self) -> None:
        """Send overdue batches again, request statuses, and report a primary that is silent for long."""
        if not self.flight:
            return
        context, config = self._context, self._directory.shard_of(self.segment)
        if config is None:
            self._give_up()
            return
        if not self._directory.accepts_appends(self.segment):
            self.seal()
        if self.sealed:
            self._request_statuses(self._directory.member(self.shard, self._turn))
            self._turn += 1
            if self._turn % 4 == 0:  # the members may have changed, or the segment may be trimmed away
                self._ordering_client.refresh()
            context.set_timer(self._resend_timer, context.now + context.config.answer_timeout_ns)
            return
        due = [batch for batch in self.flight.values() if batch.resend_at <= context.now]
        silent = [batch for batch in due if context.now - batch.sent_at >= self._resend_after_ns]
        for batch in due:
            self._send(batch)
        if silent:
            self._check_primary(silent[0])
        context.set_timer(self._resend_timer, min(batch.resend_at for batch in self.flight.values()))

    def _check_primary(self, batch: Batch) -> None:
        """A batch is overdue: request statuses from the primary and another server, and report a silent primary."""
        context, config = self._context, self._directory.shard_of(self.segment)
        primary = self._directory.primary(self.segment)
        if config is None or primary is None:
            return
        self._directory.add_round_trip(primary[0], context.config.answer_timeout_ns)
        self._request_statuses(primary[1])
        other = self._directory.member(self.shard, self._turn)
        self._turn += 1
        if other != primary[1]:
            self._request_statuses(other)
        silent_ns = context.now - max(self._last_reply_at, batch.sent_at) - transfer_ns(self.flight_bytes)
        if silent_ns >= context.config.suspect_after_ns:
            self._ordering_client.suspect(primary[0])
            self._ordering_client.refresh()

    def _request_statuses(self, member: Address | None) -> None:
        if member is not None:
            runs = merged([run for batch in self.flight.values() for run in batch.open_runs()])
            self._context.send(member, AppendStatusRequest(self._context.client, self.segment, tuple(runs)))

    def _give_up(self) -> None:
        """The segment was trimmed away: no server can return the results of the records in flight."""
        self.seal()
        for batch in list(self.flight.values()):
            for first, count in batch.open_runs():
                for chunk in batch.chunks:
                    low = max(first, chunk.sequence) - chunk.sequence
                    high = min(first + count, chunk.sequence + len(chunk.records)) - chunk.sequence
                    if low < high:
                        self._observer.on_unknown(
                            chunk, low, high, "its segment was trimmed away before its status was received"
                        )
            self._remove(batch)
