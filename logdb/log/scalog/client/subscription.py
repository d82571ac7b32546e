"""A subscription: the records of all shards, merged by GSN (SCA-11).

For a range of the log, each shard returns which GSNs it owns. GSNs are dense, so the position advances over a GSN only
when a shard owns it: a silent, slow or unknown shard delays the subscription, but never causes a gap. When every shard
in the view is past the position and none owns it, the view lacks a shard, and the client requests a newer one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address, ProtocolViolation
from logdb.cores.subscriptions import Subscription
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.requests import END
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.ordering_client import OrderingClient
from logdb.log.scalog.messages import Pull, Pulled, ReadError, ReadFailed
from logdb.log.scalog.records import HEADER_BYTES

MIN_PULL_BYTES = 1 << 16
"""Minimum size of a pull, however many shards share the prefetched bytes."""


NEIGHBOUR_ATTEMPTS = 4
"""A pull that the member on the client's own node has not answered, or not yet durably copied, is sent to another one
with every fourth attempt."""


class ShardFeed:
    """The state of one shard in a subscription: everything before GSN `at` was fetched; `buffered` bytes of it are not
    delivered yet.

    `turn`: selects the server for the next pull. The one on the client's own node is preferred; after two `misses`, for
    which others answered, from `avoid_neighbour_until` (ns) on. `final`: the shard will never own a GSN from `at` on.
    `damage`: set if no server can read the shard's records at `at`.
    """

    __slots__ = (
        "at",
        "avoid_neighbour_until",
        "buffered",
        "damage",
        "damaged",
        "final",
        "misses",
        "request",
        "shard",
        "turn",
    )

    def __init__(self, shard: int, at: int, turn: int) -> None:
        self.shard, self.at, self.turn = shard, at, turn
        self.buffered = self.request = self.avoid_neighbour_until = self.misses = 0
        self.final = False
        self.damaged: dict[Address, str] = {}
        self.damage: Corruption | None = None


class LogSubscription(Subscription):
    """A subscription at GSN `position`, of all shards or of one.

    `_ready`: a heap of (first GSN, end, shard, records, bytes), fetched but not delivered yet.
    """

    def __init__(
        self,
        request: calls.Subscribe,
        context: ClientContext,
        directory: Directory,
        requests: PendingRequests,
        ordering_client: OrderingClient,
    ) -> None:
        super().__init__(context)
        self.position = request.gsn
        self._shard = request.shard
        self._tags, self._fetch_bytes = request.tags, request.fetch_bytes or context.config.fetch_bytes
        self._directory, self._requests, self._ordering_client = directory, requests, ordering_client
        self._feeds: dict[int, ShardFeed] = {}
        self._ready: list[tuple[int, int, int, Sequence[LogRecord], int]] = []
        self._gap_timer = Timer(self._on_gap_timer)
        self._gap_attempts = 0

    # ---- the application

    def close(self) -> None:
        super().close()
        for feed in self._feeds.values():
            self._requests.cancel(feed.request)
        self._gap_timer.at = None

    def advance(self) -> None:
        """Start feeds for new shards and end those of removed ones, deliver the next records, and fetch more."""
        if not self._waiting and not self._feeds:
            return
        shards = self._directory.shards
        for shard in shards:
            if shard not in self._feeds and self._shard in (None, shard):
                self._feeds[shard] = ShardFeed(shard, self.position, self._context.rng.randrange(8))
        for feed in self._feeds.values():
            if feed.shard not in shards and not feed.final:
                feed.final = True
                self._requests.cancel(feed.request)
        self._deliver_and_fetch()

    # ---- fetching

    def _deliver_and_fetch(self) -> None:
        self._deliver()
        self._fetch()

    def _fetch(self) -> None:
        share = max(self._fetch_bytes // (2 * max(1, len(self._feeds))), MIN_PULL_BYTES)
        share = min(share, self._context.config.batch_bytes)
        for feed in self._feeds.values():
            if not feed.final and feed.buffered < share and not self._requests.is_open(feed.request):
                feed.at = max(feed.at, self.position)
                feed.request = self._context.next_number()
                self._pull(feed, share)

    def _pull(self, feed: ShardFeed, share: int) -> None:
        neighbour = self._directory.neighbour(feed.shard, self._context.config.neighbours)
        asks_neighbour = False

        def choose_server(attempt: int) -> Address | None:
            is_preferred = neighbour is not None and self._context.now >= feed.avoid_neighbour_until
            nonlocal asks_neighbour
            asks_neighbour = is_preferred and attempt % NEIGHBOUR_ATTEMPTS != NEIGHBOUR_ATTEMPTS - 1
            if asks_neighbour:
                return neighbour
            if attempt % 8 == 3:
                self._ordering_client.refresh()
            if attempt:
                feed.turn += 1
            return self._directory.member(feed.shard, feed.turn)

        def on_reply(answer: Pulled | ReadFailed, sender: Address) -> int | None:
            if isinstance(answer, Pulled):
                if sender == neighbour:
                    feed.misses = 0
                elif not asks_neighbour and self._context.now >= feed.avoid_neighbour_until:
                    feed.misses += 1
                    if feed.misses > 1:
                        timeout_ns = self._context.config.answer_timeout_ns
                        feed.avoid_neighbour_until = self._context.now + NEIGHBOUR_ATTEMPTS * timeout_ns
                if answer.first != feed.at:
                    raise ProtocolViolation(f"SCA-11: {answer.first} was pulled instead of {feed.at}")
                self._requests.cancel(feed.request)
                self._add(feed, answer)
                return None
            if answer.why is ReadError.READABLE and share > 1:  # the next record may be sound
                self._requests.cancel(feed.request)
                feed.request = self._context.next_number()
                self._pull(feed, 1)
                return None
            return self._on_failed(feed, answer, sender)

        pull = Pull(feed.request, feed.shard, feed.at, self._tags, share)
        self._requests.send(feed.request, pull, choose_server, on_reply)

    def _add(self, feed: ShardFeed, pulled: Pulled) -> None:
        """Split a fetched range into the runs that the shard owns."""
        feed.damaged.clear()
        feed.damage = None
        feed.at, feed.final = pulled.end, pulled.final
        make, skip = tuple.__new__, HEADER_BYTES
        records: list[LogRecord] = [
            make(LogRecord, (gsn, time, tag, payload[skip:])) for gsn, time, tag, payload in pulled.records
        ]
        start = 0
        for first, count in pulled.owned:
            end = first + count
            start_of_next = bisect_left(records, (end,), start)
            run = records[start:start_of_next]
            if first < pulled.first or end > pulled.end or (self._tags is None and len(run) != count):
                raise ProtocolViolation(f"SCA-11: {len(run)} records for {first} to {end - 1} of shard {feed.shard}")
            if first < self.position:
                raise ProtocolViolation(f"SCA-4: {first} belongs to shard {feed.shard} and to another one")
            size = sum([len(record.payload) for record in run]) + 64
            feed.buffered += size
            heappush(self._ready, (first, end, feed.shard, run, size))
            start = start_of_next
        self._deliver_and_fetch()

    def _on_failed(self, feed: ShardFeed, answer: ReadFailed, sender: Address) -> int | None:
        """A server cannot return records: retry at another one. Returns the time to wait (ns)."""
        self._directory.advance_oldest(answer.oldest)
        if answer.why is ReadError.TRIMMED:
            self._requests.cancel(feed.request)
            feed.at = max(feed.at, answer.oldest)
            self._deliver_and_fetch()
            return None
        if answer.why is ReadError.READABLE:
            feed.damaged[sender] = answer.explanation
            config = self._directory.shards.get(feed.shard)
            members = {member.address for member in config.holders} if config is not None else set()
            if members <= feed.damaged.keys():
                explanation = "; ".join(sorted(set(feed.damaged.values())))
                feed.damage = Corruption(f"shard {feed.shard} from record {feed.at} on", None, explanation)
                self._deliver_and_fetch()
        return self._context.backoff(1)

    # ---- merging

    def _next_batch(self) -> Batch | Exception | None:
        if self.position < self._directory.oldest:
            return Trimmed(self.position, self._directory.oldest)
        if self._shard is not None:
            return self._next_of_shard(self._shard)
        first, size = self.position, 0
        found: list[LogRecord] = []
        ready = self._ready
        while ready and ready[0][0] <= self.position and size < self._context.config.batch_bytes:
            start, end, shard, records, bytes_ = heappop(ready)
            if start < self.position:
                raise ProtocolViolation(f"SCA-4: {start} belongs to shard {shard} and to another one")
            found += records
            self.position = end
            self._feeds[shard].buffered -= bytes_
            size += bytes_
        if self.position > first:
            self._gap_attempts = 0
            return Batch(first, self.position, found)
        return self._explain()

    def _next_of_shard(self, shard: int) -> Batch | Exception | None:
        """The next records of one shard, with gaps where other shards own the GSNs."""
        feed = self._feeds.get(shard)
        if feed is None and not self._directory.has_existed(shard):
            self._await_view()
            return None
        first, size, ready = self.position, 0, self._ready
        found: list[LogRecord] = []
        while ready and size < self._context.config.batch_bytes:
            _, self.position, _, records, bytes_ = heappop(ready)
            found += records
            self._feeds[shard].buffered -= bytes_
            size += bytes_
        if not ready:
            self.position = END if feed is None or feed.final else feed.at
        if self.position > first:
            return Batch(first, self.position, found)
        return None if feed is None else feed.damage

    def _explain(self) -> Exception | None:
        """No record at the position: returns the damage, if that is the cause. If all shards are past the position, a
        newer view is requested."""
        for feed in self._feeds.values():
            if feed.at <= self.position and not feed.final:
                return feed.damage
        self._await_view()
        return None

    def _await_view(self) -> None:
        if self._gap_timer.at is None:
            self._context.set_timer(self._gap_timer, self._context.now + self._context.backoff(self._gap_attempts))
            self._gap_attempts += 1

    def _on_gap_timer(self) -> None:
        """Request a newer view, until one contains the shard: replicas may lag, or no shard may exist yet."""
        self._ordering_client.refresh()
        self._deliver()

    def check_invariants(self) -> None:
        ready = self._ready
        assert not ready or ready[0][0] >= self.position, "SCA-11: fetched records were skipped"
        assert sum([feed.buffered for feed in self._feeds.values()]) == sum([entry[4] for entry in ready])
