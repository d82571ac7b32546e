"""Reads of streams, from one stream replica each (vCorfu's materialized streams).

A read returns all that was in the stream when it began. It confirms the epoch, requests the stream's last position from
the sequencer, and gets the entries from a stream replica. Two cases are left to the global log:

- Entries of earlier epochs: the reader decides and commits all their positions once in each epoch, so that no earlier
  entry can appear later (COR-18).
- In this epoch, each entry names the position before it in its stream (COR-17). If the replica lacks that one, its
  writer is slow or has died, and the reader fills the position. Junk names nothing: then the reader fills all positions
  from there back to the last one that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address
from logdb.errors import Corruption, Unavailable
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.client.fills import FillClient
from logdb.log.corfu.client.tails import TailClient
from logdb.log.corfu.messages import (
    OpenPositions,
    OpenRequest,
    Reason,
    Rejected,
    StreamPull,
    StreamPulled,
    StreamTailRequest,
    StreamTailResponse,
    TokenRefused,
    Written,
)
from logdb.log.corfu.projection import gsn_at, position_of
from logdb.log.requests import RECORD_OVERHEAD_BYTES

FILLS_AFTER: Final = 4
"""A missing entry of a stream is filled after the answer timeout divided by this."""
FILLS_AT_ONCE: Final = 256


class EarlierEpochs:
    """Decides and commits the positions of earlier epochs, once in each epoch. `closed`: the epoch for which that is
    done. `_open`: the shard of each open request."""

    def __init__(
        self, context: ClientContext, requests: PendingRequests, auxiliary: AuxiliaryClient, fills: FillClient
    ) -> None:
        self._context, self._requests, self._auxiliary, self._fills = context, requests, auxiliary, fills
        self.closed = self._epoch = 0
        self._waiting: list[Callable[[], None]] = []
        self._open: dict[int, int] = {}
        self._found: list[int] = []
        self._fills_left = 0

    def close(self, then: Callable[[], None]) -> None:
        """Call `then` when it is done for the epoch of the projection; never if another epoch begins."""
        if self.closed == self._auxiliary.view.epoch:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._ask()

    def on_view(self) -> None:
        """Begin again in a new epoch: its callers do so, too. In the same one, do without the shards that were trimmed
        and removed meanwhile: their units do not answer."""
        view = self._auxiliary.view
        if view.epoch != self._epoch:
            self._epoch = view.epoch
            self._waiting.clear()
            self._forget(list(self._open))
            self._fills_left = 0
        elif removed := [number for number, shard in self._open.items() if view.shard(shard) is None]:
            self._forget(removed)
            self._fill_if_all()

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._requests.cancel(number)
            del self._open[number]

    def _ask(self) -> None:
        """Request the open positions of all chains. The last unit of a chain lacks what is from before it joined."""
        view = self._auxiliary.view
        self._epoch, self._found = view.epoch, []

        def on_reply(answer: OpenPositions | Rejected, sender: Address) -> int | None:
            if isinstance(answer, Rejected):
                self._auxiliary.rejected(answer)
                return self._context.backoff(3)
            self._forget([answer.request])
            self._found.extend(answer.positions)
            self._fill_if_all()
            return None

        for config in [one for one in view.shards if not one.holds_streams]:
            for unit, first, end in config.lasts(view.start):
                number = self._context.next_number()
                self._open[number] = config.shard
                request = OpenRequest(number, view.epoch, first, end)
                self._requests.send(number, request, self._to(unit.address), on_reply)
        self._fill_if_all()

    def _to(self, address: Address) -> Callable[[int], Address]:
        def choose(attempt: int) -> Address:
            if attempt:
                self._auxiliary.refresh()
            return address

        return choose

    def _fill_if_all(self) -> None:
        """Once all requests are answered, fill what they have found, and ask again; or be done."""
        if self._open:
            return
        epoch, oldest = self._epoch, position_of(self._auxiliary.oldest)
        positions = [position for position in self._found if position >= oldest]
        if not positions:
            self.closed = epoch
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()
            return
        self._fills_left = len(positions)

        def decided(entry: Written | None) -> None:
            if self._epoch == epoch and self._waiting:
                self._fills_left -= 1
                if not self._fills_left:
                    self._ask()

        for position in positions:
            self._fills.fill(position, decided)


class StreamRead:
    """A read under way. `first`: the position of its GSN; `next`: the next position to pull; `known`: no entry of the
    stream is missing before this position. `last`: the last position to read. `missing`: an entry that did not come,
    which is filled at `fill_at`; `tries`: to get it. `records`, `trimmed`: of the entries so far. `damaged`: replicas
    that cannot read the next entry, and why. `attempt`: grows with each epoch."""

    __slots__ = (
        "attempt",
        "bytes",
        "call",
        "damaged",
        "fill_at",
        "first",
        "gsn",
        "known",
        "last",
        "missing",
        "next",
        "number",
        "records",
        "stream",
        "timer",
        "tries",
        "trimmed",
        "turn",
    )

    def __init__(self, call: int, stream: int, gsn: int) -> None:
        self.call, self.stream, self.gsn = call, stream, gsn
        self.first = self.next = self.known = max(1, position_of(gsn))
        self.attempt = self.bytes = self.last = self.missing = self.number = self.turn = 0
        self.fill_at = self.tries = 0
        self.records: list[LogRecord] = []
        self.trimmed: list[int] = []
        self.damaged: dict[Address, str] = {}
        self.timer: Timer


class StreamClient:
    """All reads of streams of a client."""

    def __init__(
        self,
        context: ClientContext,
        requests: PendingRequests,
        auxiliary: AuxiliaryClient,
        tails: TailClient,
        fills: FillClient,
    ) -> None:
        self._context, self._requests, self._auxiliary = context, requests, auxiliary
        self._tails, self._fills = tails, fills
        self._earlier = EarlierEpochs(context, requests, auxiliary, fills)
        self._open: dict[int, StreamRead] = {}
        self._epoch = 0

    def read(self, call: int, request: calls.ReadStream) -> None:
        """Read a stream from a GSN on."""
        late = TimeoutError(f"stream {request.stream} was not read before the deadline")
        self._context.open(call, request.deadline, lambda: self._end(read, late))
        read = self._open[call] = StreamRead(call, request.stream, request.gsn)
        read.timer = Timer(lambda: self._missed(read))
        self._begin(read)

    def on_view(self) -> None:
        """Begin again in a new epoch, which has other positions at its end. A read that began without any projection
        uses the first one. End what was trimmed: its units may have been removed, and do not answer."""
        self._earlier.on_view()
        oldest = self._auxiliary.oldest
        for read in list(self._open.values()):
            if read.gsn < oldest:
                self._end(read, Trimmed(read.gsn, oldest))
        before, self._epoch = self._epoch, self._auxiliary.view.epoch
        if before not in (0, self._epoch):
            for read in list(self._open.values()):
                self._begin(read)

    def _end(self, read: StreamRead, result: object) -> None:
        del self._open[read.call]
        self._requests.cancel(read.number)
        self._context.discard_timer(read.timer)
        self._context.answer(read.call, result)

    def _is_open(self, read: StreamRead, attempt: int) -> bool:
        return read.call in self._open and read.attempt == attempt

    # ---- the end of the stream

    def _begin(self, read: StreamRead) -> None:
        """Confirm the epoch first: a sequencer that was replaced does not know what was appended since."""
        self._requests.cancel(read.number)
        read.timer.at = None
        read.attempt += 1
        attempt = read.attempt
        read.next = read.known = read.first
        read.records.clear()
        read.trimmed.clear()
        read.damaged.clear()
        read.missing = read.bytes = 0

        def confirmed(tail: int) -> None:
            if self._is_open(read, attempt):
                self._earlier.close(lambda: self._ask_sequencer(read, attempt))

        self._tails.tail(confirmed)

    def _ask_sequencer(self, read: StreamRead, attempt: int) -> None:
        if not self._is_open(read, attempt):
            return
        view = self._auxiliary.view
        read.number = number = self._context.next_number()

        def choose(attempt: int) -> Address | None:
            if attempt or not view.sequencer:
                self._auxiliary.refresh()
            return view.sequencer or None

        def on_reply(answer: StreamTailResponse | TokenRefused, sender: Address) -> int | None:
            if isinstance(answer, TokenRefused):
                self._auxiliary.refresh()
                return self._context.backoff(3)
            self._requests.cancel(number)
            read.known = max(read.first, view.start)
            read.last = max(answer.position, view.start - 1)
            self._pull(read)
            return None

        self._requests.send(number, StreamTailRequest(number, view.epoch, read.stream), choose, on_reply)

    # ---- entries

    def _pull(self, read: StreamRead, *, is_single: bool = False) -> None:
        """Request the next entries from a replica of the shard that has them. `is_single`: only one, because one of
        several was damaged."""
        view = self._auxiliary.view
        oldest = self._auxiliary.oldest
        if read.gsn < oldest:
            self._end(read, Trimmed(read.gsn, oldest))
            return
        if read.next > read.last:
            self._finish(read, read.last + 1)
            return
        config = view.shard(view.stream_shard(read.stream, read.next))
        end = view.stream_end(read.next, read.last + 1)
        if config is None:  # the stream had no shard at these positions
            if not view.streams:
                self._end(read, Unavailable("the log has no shard of streams"))
            else:
                read.next = end
                self._pull(read)
            return
        read.number = number = self._context.next_number()
        size = 1 if is_single else self._context.config.batch_bytes - read.bytes

        def choose(attempt: int) -> Address | None:
            """A unit that has copied all entries by now, if the projection says so."""
            now = self._auxiliary.view.shard(config.shard)
            units = [unit for unit in now.units if unit.since <= read.next] if now is not None else []
            if attempt or not units:
                read.turn += bool(attempt)
                self._auxiliary.refresh()
            return units[(read.call + read.turn) % len(units)].address if units else None

        def on_reply(answer: StreamPulled | Rejected, sender: Address) -> int | None:
            if isinstance(answer, StreamPulled):
                self._requests.cancel(number)
                self._take(read, answer)
                return None
            if answer.why is Reason.UNREADABLE and not is_single:
                self._requests.cancel(number)
                self._pull(read, is_single=True)
                return None
            if answer.why is Reason.UNREADABLE:
                read.damaged[sender] = answer.explanation
                if read.damaged.keys() >= {unit.address for unit in config.units}:
                    self._end(read, Corruption("the stream", None, "; ".join(sorted(set(read.damaged.values())))))
                    return None
            self._auxiliary.rejected(answer)
            if answer.why is Reason.TRIMMED:
                self._end(read, Trimmed(read.gsn, answer.oldest))
                return None
            return self._context.backoff(3)

        pull = StreamPull(number, view.epoch, read.stream, read.next, end, max(1, size))
        self._requests.send(number, pull, choose, on_reply)

    def _take(self, read: StreamRead, pulled: StreamPulled) -> None:
        """Take the entries up to the first one before which one is missing."""
        start = self._auxiliary.view.start
        by_position: dict[int, list[LogRecord]] = {}
        for record in pulled.records:
            by_position.setdefault(position_of(record.gsn), []).append(record)
        deleted: dict[int, list[int]] = {}
        for gsn in pulled.deleted:
            deleted.setdefault(position_of(gsn), []).append(gsn)
        for entry in pulled.entries:
            position = entry.position
            if position >= start:
                previous = min(dict(entry.streams).get(read.stream, 0), position - 1)
                if previous >= read.known:
                    self._lacks(read, previous)
                    return
            read.next, read.known = position + 1, max(read.known, position + 1)
            read.damaged.clear()
            records = [one for one in by_position.get(position, ()) if one.gsn >= read.gsn]
            read.records += records
            trimmed = [gsn for gsn in deleted.get(position, ()) if gsn >= read.gsn]
            read.trimmed += trimmed
            read.bytes += sum([len(one.payload) for one in records])
            read.bytes += RECORD_OVERHEAD_BYTES * (len(records) + len(trimmed))
        read.next = max(read.next, min(pulled.end, read.known))  # behind it, the replica may have lacked entries
        if read.bytes >= self._context.config.batch_bytes and read.next <= read.last:
            self._finish(read, read.next)
        elif pulled.end > read.last >= read.known:
            self._lacks(read, read.last)
        elif pulled.end > read.last:
            self._finish(read, read.last + 1)
        else:
            self._pull(read)

    def _finish(self, read: StreamRead, end: int) -> None:
        """No entry of the stream before `end` is missing."""
        self._end(read, Batch(read.gsn, max(gsn_at(end), read.gsn), read.records, tuple(read.trimmed)))

    # ---- missing entries

    def _lacks(self, read: StreamRead, position: int) -> None:
        """The replica lacks the entry at a position. Its writer may be about to write it."""
        context = self._context
        if position != read.missing:
            read.missing, read.tries = position, 0
            read.fill_at = context.now + context.config.answer_timeout_ns // FILLS_AFTER
        read.tries += 1
        context.set_timer(read.timer, max(context.now, min(read.fill_at, context.now + context.backoff(read.tries))))

    def _missed(self, read: StreamRead) -> None:
        """Look again, or fill the position. If it has junk, the positions before it in the stream are unknown: fill all
        of them."""
        if self._context.now < read.fill_at:
            self._pull(read)
            return
        attempt, position = read.attempt, read.missing
        read.missing = 0

        def decided(entry: Written | None) -> None:
            if not self._is_open(read, attempt):
                return
            if entry is not None and any(stream == read.stream for stream, _ in entry.streams):
                self._pull(read)
            else:
                self._fill_up(read, position)

        self._fills.fill(position, decided)

    def _fill_up(self, read: StreamRead, end: int) -> None:
        """Fill the positions before `end` from the first one on that may be missing."""
        attempt, oldest = read.attempt, self._auxiliary.oldest
        if read.gsn < oldest:
            self._end(read, Trimmed(read.gsn, oldest))
            return
        positions = range(read.known, min(end, read.known + FILLS_AT_ONCE))
        left = len(positions)
        stop = positions.stop

        def decided(entry: Written | None) -> None:
            nonlocal left
            left -= 1
            if left or not self._is_open(read, attempt):
                return
            self._pull_filled(read, stop, end)

        if not positions:
            self._pull_filled(read, stop, end)
        for position in positions:
            self._fills.fill(position, decided)

    def _pull_filled(self, read: StreamRead, stop: int, end: int) -> None:
        read.known = stop + (stop == end)
        if stop < end:
            self._fill_up(read, end)
        else:
            self._pull(read)
