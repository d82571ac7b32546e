"""A subscription: the records of all shards, pulled from each and merged by GSN (ZIP-7)."""

from __future__ import annotations

from collections import deque
from heapq import merge
from operator import itemgetter

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address, ProtocolViolation
from logdb.cores.subscriptions import Subscription
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.requests import END
from logdb.log.ziplog.client.mms_client import MmsClient
from logdb.log.ziplog.client.reads import MemberSource
from logdb.log.ziplog.epochs import time_of
from logdb.log.ziplog.messages import Pull, Pulled, ReadError, ReadFailed, ShardConfig
from logdb.log.ziplog.records import HEADER_BYTES, gsn_of

RECORD_BYTES = 64
"""Bytes that a pulled record counts for beside its payload."""
MIN_FETCH_BYTES = 64 << 10


class Stream:
    """The records of one shard. `at`: the next GSN to pull: all records before it have come, `records` are those that
    the application has not got. `newest`: how far the shard has come. `held`: a response of a version that the client
    does not know yet."""

    __slots__ = ("at", "bytes", "damage", "held", "newest", "number", "records", "source", "wanted")

    def __init__(self, source: MemberSource, at: int) -> None:
        self.source, self.at = source, at
        self.records: deque[LogRecord] = deque()
        self.bytes = self.number = self.wanted = self.newest = 0
        self.held: Pulled | None = None
        self.damage: Exception | None = None


class LogSubscription(Subscription):
    """`position`: the next GSN for the application. `_streams`: of the shards that may have records from there on."""

    def __init__(
        self, request: calls.Subscribe, context: ClientContext, mms: MmsClient, requests: PendingRequests
    ) -> None:
        super().__init__(context)
        self._mms, self._requests = mms, requests
        self.position = request.gsn
        self._tags, self._shard = request.tags, request.shard
        self._fetch_bytes = max(request.fetch_bytes or context.config.fetch_bytes, 1)
        self._streams: dict[int, Stream] = {}
        self._ended: set[int] = set()
        self._is_closed = False
        self._look = Timer(self._mms.refresh)

    def close(self) -> None:
        super().close()
        self._is_closed = True
        self._context.discard_timer(self._look)
        for stream in self._streams.values():
            self._requests.cancel(stream.number)

    def on_view(self) -> None:
        """The configuration may have changed."""
        if not self._is_closed:
            for stream in self._streams.values():
                if stream.held is not None and stream.held.version > self._mms.view.set_version:
                    self._mms.refresh()  # the last request was older than the answer
                elif stream.held is not None:
                    pulled, stream.held = stream.held, None
                    self._take(stream, pulled)
            self.advance()

    def advance(self) -> None:
        if not self._mms.view.version:
            self._mms.refresh()
            return
        self._follow()
        self._deliver()
        if not self._streams and self._waiting:  # no server will mention a newer configuration
            self._context.set_timer(self._look, self._context.now + self._context.config.answer_timeout_ns)
        wanted = max([0, *(stream.newest for stream in self._streams.values())])
        for stream in self._streams.values():
            limit = max(self._fetch_bytes // max(1, len(self._streams)), min(MIN_FETCH_BYTES, self._fetch_bytes))
            is_open = self._requests.is_open(stream.number)
            if is_open and stream.wanted < wanted and stream.at <= wanted:
                self._requests.cancel(stream.number)
                stream.source.ask_again()
                self._pull(stream, stream.number, wanted, limit)
            elif not is_open and stream.bytes < limit and stream.held is None:
                self._pull(stream, self._context.next_number(), wanted, limit)

    def _follow(self) -> None:
        """Have a stream for each shard that may have records from here on, and none for the others."""
        for shard in [one for one in self._streams if self._mms.is_removed(one)]:
            self._end(shard)
        if self._shard is not None and self._mms.is_removed(self._shard):
            self._end(self._shard)
        for config in self._mms.view.shards:
            shard = config.shard
            if self._shard not in (None, shard) or shard in self._ended:
                continue
            stream = self._streams.get(shard)
            if self._has_ended(config, stream.at if stream is not None else self.position):
                if stream is None or not stream.records:
                    self._end(shard)
            elif stream is None:
                self._streams[shard] = Stream(MemberSource(self._context, self._mms, shard), self.position)

    def _end(self, shard: int) -> None:
        """A shard has no records from here on."""
        self._ended.add(shard)
        stream = self._streams.pop(shard, None)
        if stream is not None:
            self._requests.cancel(stream.number)

    def _has_ended(self, config: ShardConfig, at: int) -> bool:
        return config.is_drained and at >= config.bound

    # ---- delivering

    def _next_batch(self) -> Batch | Exception | None:
        if self.position < self._mms.oldest:
            return Trimmed(self.position, self._mms.oldest)
        if not self._streams:
            is_over = self._shard in self._ended and self.position < END
            first, self.position = self.position, END if is_over else self.position
            return Batch(first, END, []) if is_over else None
        live = [stream for shard, stream in self._streams.items() if not self._is_exhausted(shard, stream)]
        end = min([stream.at for stream in live], default=max([stream.at for stream in self._streams.values()]))
        if end <= self.position:
            return next((stream.damage for stream in live if stream.damage is not None), None)
        parts = []
        for stream in self._streams.values():
            part = []
            while stream.records and stream.records[0].gsn < end:
                part.append(stream.records.popleft())
            stream.bytes -= sum([len(record.payload) for record in part]) + RECORD_BYTES * len(part)
            parts.append(part)
        first, self.position = self.position, end
        return Batch(first, end, list(merge(*parts, key=itemgetter(0))))

    def _is_exhausted(self, shard: int, stream: Stream) -> bool:
        config = self._mms.shard(shard)
        return config is not None and self._has_ended(config, stream.at)

    # ---- pulling

    def _pull(self, stream: Stream, number: int, requested: int, limit: int) -> None:
        if stream.at < self._mms.oldest:
            stream.records.clear()
            stream.bytes = 0
            stream.at, number = self._mms.oldest, self._context.next_number()  # answers to the last one begin earlier
        stream.number, stream.wanted = number, requested
        size = max(1, min(limit // 2, self._context.config.batch_bytes))
        pull = Pull(number, stream.source.shard, stream.at, self._tags, size, requested)

        def answered(answer: Pulled | ReadFailed, sender: Address) -> int | None:
            is_damaged = isinstance(answer, ReadFailed) and answer.why is ReadError.UNREADABLE
            if is_damaged and size > 1:  # the next record may be sound
                self._requests.cancel(number)
                stream.source.ask_again()
                self._pull(stream, self._context.next_number(), requested, 1)
                return None
            return self._answered(stream, answer, sender)

        self._requests.send(number, pull, stream.source.choose, answered)

    def _answered(self, stream: Stream, answer: Pulled | ReadFailed, sender: Address) -> int | None:
        if isinstance(answer, Pulled):
            self._requests.cancel(stream.number)
            stream.source.answered()
            if answer.version > self._mms.view.set_version:
                stream.held = answer
                self._mms.refresh()
            else:
                self._take(stream, answer)
                self.advance()
            return None
        self._mms.trimmed(answer.oldest)
        if answer.why is ReadError.TRIMMED:
            self._requests.cancel(stream.number)
            self.advance()
            return None
        wait = stream.source.failed(answer, sender)
        if isinstance(wait, int):
            return wait
        stream.damage = wait
        self._deliver()
        return self._context.backoff(5)

    def _take(self, stream: Stream, pulled: Pulled) -> None:
        if pulled.first != stream.at or pulled.end <= pulled.first:
            raise ProtocolViolation(f"ZIP-7: a response for {pulled.first} to {pulled.end}, requested from {stream.at}")
        origin, last = self._mms.view.origin, stream.at - 1
        for record in pulled.records:
            gsn = gsn_of(record.payload)
            if pulled.first <= gsn < pulled.end:
                if gsn <= last:
                    raise ProtocolViolation(f"ZIP-3: record {gsn} comes behind {last}")
                last = gsn
                payload = record.payload[HEADER_BYTES:]
                stream.records.append(LogRecord(gsn, time_of(gsn, origin), record.tag, payload))
                stream.bytes += len(payload) + RECORD_BYTES
        stream.at, stream.newest, stream.damage = pulled.end, pulled.end - 1, None

    def check(self) -> None:
        """Raises AssertionError."""
        for stream in self._streams.values():
            size = sum([len(record.payload) + RECORD_BYTES for record in stream.records])
            assert stream.bytes == size
            assert stream.at >= self.position or not stream.records
