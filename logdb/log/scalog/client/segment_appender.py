"""The way of records to one segment: batches, what is under way, its acknowledgements and fates.

Every record has a number, given when it is first sent. A number stays with its segment: it is sent there again and
again, until the segment's primary acknowledges it, or a member of the shard tells its fate. Only after the fate *never*
it goes to another segment, under the same number (SCA-13). So nothing that happens on the way can append it twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address
from logdb.log.scalog.client.batches import FORGOTTEN, NEVER, Batch, Chunk, SequenceNumbers, merged
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.ordering_client import OrderingClient
from logdb.log.scalog.messages import Append, Appended, AppendStatus, AppendStatusRequest, Rejected, RejectReason
from logdb.log.scalog.records import transfer_ns


class AppendObserver(Protocol):
    """What a lane tells of its pieces."""

    def wanted(self, chunk: Chunk) -> bool:
        """Whether anybody waits for it; what nobody waits for, and is nowhere yet, is not sent."""

    def sent(self, chunk: Chunk) -> None:
        """It has left this client."""

    def ordered(self, chunk: Chunk, start: int, gsns: Sequence[int], shard: int) -> None:
        """Its records from `start` on have these GSNs."""

    def lost(self, chunk: Chunk, start: int, end: int, why: str) -> None:
        """Its records `start` to `end` - 1 may be in the log or not: nobody can tell any more."""

    def dropped(self, chunk: Chunk) -> None:
        """It was not sent, as nobody waits for it, and is nowhere."""

    def on_unassigned(self, chunk: Chunk) -> None:
        """It is nowhere, and must go to another segment; with its number, if it has one."""


class SegmentAppender:
    """One segment, as this client appends to it.

    A batch leaves at once when nothing is under way, with all that is called at the same moment. Otherwise records are
    collected until an answer comes, they have lingered, or they are a batch; and no more than the window may be under
    way. `busy`: the server refused something for now, so nothing new is sent. `sealed`: nothing will ever be taken
    again, only fates are to be learned.
    """

    def __init__(
        self,
        segment: int,
        shard: int,
        context: ClientContext,
        directory: Directory,
        ordering_client: OrderingClient,
        numbers: SequenceNumbers,
        sink: AppendObserver,
    ) -> None:
        self.segment, self.shard = segment, shard
        self._context, self._directory, self._ordering_client = context, directory, ordering_client
        self._numbers, self._sink = numbers, sink
        self.waiting: deque[Chunk] = deque()
        self.waiting_bytes = 0
        self.flight: dict[int, Batch] = {}
        self.flight_bytes = 0
        self.sealed = False
        self._busy = False
        self._heard_at = 0
        self._turn = context.rng.randrange(8)
        self._forgotten: int | None = None
        self._linger = Timer(lambda: self.flush(lingered=True))
        self._again = Timer(self._retransmit)

    @property
    def stalls(self) -> bool:
        """Whether its server takes nothing new for now, or should long have acknowledged something."""
        oldest = next(iter(self.flight.values()), None)
        return self._busy or (oldest is not None and self._context.now - oldest.sent_at >= self._request_ttl_ns)

    @property
    def _request_ttl_ns(self) -> int:
        """After so long without an answer a batch is sent again."""
        return self._context.config.answer_timeout_ns + transfer_ns(self.flight_bytes)

    # ---- sending

    def push(self, chunk: Chunk) -> None:
        """Append this when its turn comes."""
        self.waiting.append(chunk)
        self.waiting_bytes += chunk.size
        self.flush()

    def flush(self, *, lingered: bool = False) -> None:
        """Send what may be sent now."""
        config = self._context.config
        while self.waiting and not self._busy and not self.sealed:
            if self.flight:
                if self.flight_bytes + min(self.waiting_bytes, config.batch_bytes) > config.window_bytes:
                    return
                if not lingered and self.waiting_bytes < config.batch_bytes:
                    if self._linger.at is None:
                        self._context.set_timer(self._linger, self._context.now + config.linger_ns)
                    return
            elif config.coalesce_calls and not lingered and self.waiting_bytes < config.batch_bytes:
                if self._linger.at is None:
                    self._context.set_timer(self._linger, self._context.now)
                return
            chunks = self._collect()
            if chunks:
                self._launch(chunks)
        self._linger.at = None

    def _collect(self) -> list[Chunk]:
        """The next pieces that fit into one batch. Numbered ones must follow each other."""
        chunks: list[Chunk] = []
        size = follows = 0
        while self.waiting:
            chunk = self.waiting[0]
            if chunks and (size + chunk.size > self._context.config.batch_bytes or chunk.sequence != follows):
                break
            self.waiting.popleft()
            self.waiting_bytes -= chunk.size
            if not self._sink.wanted(chunk):
                self._numbers.close(chunk.sequence)
                self._sink.dropped(chunk)
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
            self._sink.sent(chunk)
        batch.sent_at = self._context.now
        self.flight[batch.sequence] = batch
        self.flight_bytes += batch.size
        self._send(batch)
        if self._again.at is None:
            self._context.set_timer(self._again, batch.resend_at)

    def _send(self, batch: Batch) -> None:
        batch.attempts += 1
        batch.resend_at = self._context.now + self._request_ttl_ns
        primary = self._directory.primary(self.segment)
        if primary is not None:
            settled = self._numbers.settled()
            self._context.send(
                primary[1], Append(self._context.client, batch.sequence, settled, self.segment, batch.records)
            )

    # ---- answers

    def appended(self, answer: Appended, sender: Address) -> None:
        """The primary has acknowledged records."""
        self._heard_at = self._context.now
        for first, count, gsn in answer.ranges:
            self._decide(first, first + count, gsn)
        self._busy = False
        self.flush(lingered=True)

    def refused(self, answer: Rejected, sender: Address) -> None:
        """A batch was not taken. That is no fate."""
        self._heard_at = self._context.now
        if answer.why is RejectReason.SEALED:
            self.seal()
            return
        number = answer.sequence
        batch = next((it for it in self.flight.values() if it.sequence <= number < it.sequence + it.count), None)
        if batch is None:
            return
        self._busy = True
        batch.resend_at = self._context.now + self._context.backoff(batch.attempts)
        if self._again.at is None or batch.resend_at < self._again.at:
            self._context.set_timer(self._again, batch.resend_at)
        if answer.why is RejectReason.NOT_PRIMARY:
            self._ordering_client.refresh()

    def fate(self, answer: AppendStatus, sender: Address) -> None:
        """A member tells what became of numbers."""
        primary = self._directory.primary(self.segment)
        if primary is not None and sender == primary[1]:
            self._heard_at = self._context.now
        forgotten = self._forget(any(not gsn for _, _, gsn in answer.ordered))
        for first, count, gsn in answer.ordered:
            if gsn or forgotten:
                self._decide(first, first + count, gsn or FORGOTTEN)
        if answer.never:
            self.seal()
        for first, count in merged(answer.never):
            self._decide(first, first + count, NEVER)
        if not self.sealed:
            self.flush(lingered=True)
        elif self.flight:
            self._context.set_timer(self._again, self._context.now + self._context.backoff(2))

    def _forget(self, said: bool) -> bool:
        """Whether to believe that nobody knows where records are: all members had the time to say otherwise."""
        config = self._directory.shard_of(self.segment)
        if not said or config is None:
            return False
        if self._forgotten is None:
            self._forgotten = self._turn
        return self._turn - self._forgotten > 2 * self._directory.turns(config)

    def _decide(self, start: int, end: int, gsn: int) -> None:
        """The records with the numbers `start` to `end` - 1 have GSNs from `gsn` on, or are NEVER in this segment, or
        FORGOTTEN."""
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
            self._sink.on_unassigned(chunk)

    def _decide_chunk(self, batch: Batch, chunk: Chunk, start: int, found: Sequence[int], moved: list[Chunk]) -> None:
        news = chunk.decide(start, found)
        batch.left -= sum([high - low for low, high in news])
        if found[0] == FORGOTTEN:
            for low, high in news:
                self._sink.lost(chunk, low, high, "it is in the log, and was trimmed before anybody could tell where")
            return
        if found[0] != NEVER:
            for low, high in news:
                self._sink.ordered(chunk, low, found[low - start : high - start], self.shard)
            return
        for low, high in news:
            size = chunk.size * (high - low) // len(chunk.records)
            left = Chunk(chunk.owner, chunk.places[low:high], chunk.records[low:high], size)
            left.sequence = chunk.sequence + low
            moved.append(left)
            self._numbers.open(left.sequence)
            batch.marks.discard(left.sequence)

    def _mark(self, batch: Batch) -> None:
        """Keep open what is open of a batch."""
        marks = {first for first, _ in batch.open_runs()}
        for first in marks - batch.marks:
            self._numbers.open(first)
        for first in batch.marks - marks:
            self._numbers.close(first)
        batch.marks = marks

    def _finish(self, batch: Batch) -> None:
        """Everything about a batch is known."""
        self._remove(batch)
        self._busy = self._busy and bool(self.flight)
        primary = self._directory.primary(self.segment)
        if batch.attempts == 1 and primary is not None:
            self._directory.measured(primary[0], self._context.now - batch.sent_at)

    def _remove(self, batch: Batch) -> None:
        del self.flight[batch.sequence]
        self.flight_bytes -= batch.size
        for mark in batch.marks:
            self._numbers.close(mark)

    # ---- when no answer comes

    def seal(self) -> None:
        """The segment has ended: what was not sent goes elsewhere, of the rest the fate is to be learned."""
        if self.sealed:
            return
        self.sealed = True
        self._directory.ends(self.segment)
        self._linger.at = None
        self.reroute_pending()
        self._context.set_timer(self._again, self._context.now)

    def reroute_pending(self) -> None:
        """Send what was not sent elsewhere."""
        waiting = list(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        for chunk in waiting:
            self._sink.on_unassigned(chunk)

    def _retransmit(self) -> None:
        """Send again what is due, ask for fates, and report a primary that is silent for long."""
        if not self.flight:
            return
        context, config = self._context, self._directory.shard_of(self.segment)
        if config is None:
            self._give_up()
            return
        if not self._directory.takes_appends(self.segment):
            self.seal()
        if self.sealed:
            self._request_statuses(self._directory.member(self.shard, self._turn))
            self._turn += 1
            if self._turn % 4 == 0:  # the members may be others by now, or the segment trimmed away
                self._ordering_client.refresh()
            context.set_timer(self._again, context.now + context.config.answer_timeout_ns)
            return
        due = [batch for batch in self.flight.values() if batch.resend_at <= context.now]
        silent = [batch for batch in due if context.now - batch.sent_at >= self._request_ttl_ns]
        for batch in due:
            self._send(batch)
        if silent:
            self._doubt(silent[0])
        context.set_timer(self._again, min(batch.resend_at for batch in self.flight.values()))

    def _doubt(self, batch: Batch) -> None:
        """A batch has been under way for long: ask the primary and another one, and perhaps tell."""
        context, config = self._context, self._directory.shard_of(self.segment)
        primary = self._directory.primary(self.segment)
        if config is None or primary is None:
            return
        self._directory.measured(primary[0], context.config.answer_timeout_ns)
        self._request_statuses(primary[1])
        other = self._directory.member(self.shard, self._turn)
        self._turn += 1
        if other != primary[1]:
            self._request_statuses(other)
        silent_ns = context.now - max(self._heard_at, batch.sent_at) - transfer_ns(self.flight_bytes)
        if silent_ns >= context.config.suspect_after_ns:
            self._ordering_client.suspect(primary[0])
            self._ordering_client.refresh()

    def _request_statuses(self, member: Address | None) -> None:
        if member is not None:
            runs = merged([run for batch in self.flight.values() for run in batch.open_runs()])
            self._context.send(member, AppendStatusRequest(self._context.client, self.segment, tuple(runs)))

    def _give_up(self) -> None:
        """The segment was trimmed away: nobody can tell any more what became of the rest."""
        self.seal()
        for batch in list(self.flight.values()):
            for first, count in batch.open_runs():
                for chunk in batch.chunks:
                    low = max(first, chunk.sequence) - chunk.sequence
                    high = min(first + count, chunk.sequence + len(chunk.records)) - chunk.sequence
                    if low < high:
                        self._sink.lost(chunk, low, high, "the segment was trimmed away before anybody could tell")
            self._remove(batch)
