"""Subscriptions: the stretches of all shards, merged by GSN (SCA-11).

Each shard says of a stretch of the log which GSNs in it are its own. GSNs are dense, so the position moves over a GSN
only when a shard has owned it: a shard that is silent, slow or unknown holds the subscription, it never makes a gap.
When every known shard is past the position and none owns it, there is a shard that this client does not know, and it
asks for the view.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address, ProtocolViolation
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.requests import END
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.ordering_client import OrderingClient
from logdb.log.scalog.messages import Pull, Pulled, ReadError, ReadFailed
from logdb.log.scalog.records import HEADER_BYTES

LEAST_BYTES = 1 << 16
"""A pull asks for so much at least, however many shards share what may be fetched ahead."""


class ShardFeed:
    """One shard, as a subscription hears of it: everything before `at`, of which `held` bytes are not delivered yet.

    `turn`: whom it asks. `final`: it will never own anything from `at` on. `damage`: what it has there is unreadable.
    """

    __slots__ = ("at", "damage", "damaged", "final", "held", "request", "shard", "turn")

    def __init__(self, shard: int, at: int, turn: int) -> None:
        self.shard, self.at, self.turn = shard, at, turn
        self.held = self.request = 0
        self.final = False
        self.damaged: dict[Address, str] = {}
        self.damage: Corruption | None = None


class ActiveSubscription:
    """A subscription at `position`, of all shards or of one.

    `ready`: (first, end, shard, records, bytes) of what was fetched, a heap.
    """

    def __init__(
        self,
        number: int,
        request: calls.Subscribe,
        context: ClientContext,
        directory: Directory,
        requests: PendingRequests,
        ordering_client: OrderingClient,
    ) -> None:
        self.number, self.position = number, request.gsn
        self._shard = request.shard
        self._tags, self._fetch_bytes = request.tags, request.fetch_bytes or context.config.fetch_bytes
        self._context, self._directory, self._requests, self._ordering_client = (
            context,
            directory,
            requests,
            ordering_client,
        )
        self._feeds: dict[int, ShardFeed] = {}
        self._ready: list[tuple[int, int, int, Sequence[LogRecord], int]] = []
        self._waiting: deque[int] = deque()
        self._puzzled = Timer(self._look_again)
        self._puzzles = 0

    # ---- the application

    def next(self, call: int, deadline: int | None) -> None:
        """The application waits for a batch."""

        def expired() -> None:
            if call in self._waiting:
                self._waiting.remove(call)
            self._context.answer(call, None)

        self._context.open(call, deadline, expired)
        self._waiting.append(call)
        self.view_changed()

    def close(self) -> None:
        for feed in self._feeds.values():
            self._requests.cancel(feed.request)
        for call in self._waiting:
            self._context.answer(call, StopIteration())
        self._puzzled.at = None

    def view_changed(self) -> None:
        """There may be shards that this one does not follow, or some less."""
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
        self._go_on()

    # ---- fetching

    def _go_on(self) -> None:
        """Give what there is to who waits, and fetch more."""
        self._deliver()
        self._fetch()

    def _fetch(self) -> None:
        share = max(self._fetch_bytes // (2 * max(1, len(self._feeds))), LEAST_BYTES)
        share = min(share, self._context.config.batch_bytes)
        for feed in self._feeds.values():
            if not feed.final and feed.held < share and not self._requests.is_open(feed.request):
                feed.at = max(feed.at, self.position)
                feed.request = self._context.next_number()
                self._pull(feed, share)

    def _pull(self, feed: ShardFeed, share: int) -> None:
        def where(attempt: int) -> Address | None:
            if attempt % 8 == 3:
                self._ordering_client.refresh()
            if attempt:
                feed.turn += 1
            return self._directory.member(feed.shard, feed.turn)

        def answered(answer: Pulled | ReadFailed, sender: Address) -> int | None:
            if isinstance(answer, Pulled):
                if answer.first != feed.at:
                    raise ProtocolViolation(f"SCA-11: {answer.first} was pulled instead of {feed.at}")
                self._requests.cancel(feed.request)
                self._take(feed, answer)
                return None
            return self._refused(feed, answer, sender)

        pull = Pull(feed.request, feed.shard, feed.at, self._tags, share)
        self._requests.send(feed.request, pull, where, answered)

    def _take(self, feed: ShardFeed, pulled: Pulled) -> None:
        """A stretch has come: cut it where the shard changes."""
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
            mine = records[start:start_of_next]
            if first < pulled.first or end > pulled.end or (self._tags is None and len(mine) != count):
                raise ProtocolViolation(f"SCA-11: {len(mine)} records for {first} to {end - 1} of shard {feed.shard}")
            if first < self.position:
                raise ProtocolViolation(f"SCA-4: {first} is of shard {feed.shard}, and another one had it")
            size = sum([len(record.payload) for record in mine]) + 64
            feed.held += size
            heappush(self._ready, (first, end, feed.shard, mine, size))
            start = start_of_next
        self._go_on()

    def _refused(self, feed: ShardFeed, answer: ReadFailed, sender: Address) -> int | None:
        """A member has nothing to give: another may."""
        self._directory.trimmed(answer.oldest)
        if answer.why is ReadError.TRIMMED:
            self._requests.cancel(feed.request)
            feed.at = max(feed.at, answer.oldest)
            self._go_on()
            return None
        if answer.why is ReadError.READABLE:
            feed.damaged[sender] = answer.explanation
            config = self._directory.shards.get(feed.shard)
            members = {member.address for member in config.holders} if config is not None else set()
            if members <= feed.damaged.keys():
                explanation = "; ".join(sorted(set(feed.damaged.values())))
                feed.damage = Corruption(f"shard {feed.shard} from record {feed.at} on", None, explanation)
                self._go_on()
        return self._context.backoff(1)

    # ---- merging

    def _deliver(self) -> None:
        while self._waiting:
            batch = self._merged()
            if batch is None:
                return
            self._context.answer(self._waiting.popleft(), batch)

    def _merged(self) -> Batch | Exception | None:
        """What comes next in the log, as much as is there, about a batch at most; None if it is not there yet."""
        if self.position < self._directory.oldest:
            return Trimmed(self.position, self._directory.oldest)
        if self._shard is not None:
            return self._of_one_shard(self._shard)
        first, size = self.position, 0
        found: list[LogRecord] = []
        ready = self._ready
        while ready and ready[0][0] <= self.position and size < self._context.config.batch_bytes:
            start, end, shard, records, bytes_ = heappop(ready)
            if start < self.position:
                raise ProtocolViolation(f"SCA-4: {start} is of shard {shard}, and another one had it")
            found += records
            self.position = end
            self._feeds[shard].held -= bytes_
            size += bytes_
        if self.position > first:
            self._puzzles = 0
            return Batch(first, self.position, found)
        return self._explain()

    def _of_one_shard(self, shard: int) -> Batch | Exception | None:
        """What comes next in this shard, whoever owns the GSNs between its own."""
        feed = self._feeds.get(shard)
        if feed is None and not self._directory.has_existed(shard):
            return None
        first, size, ready = self.position, 0, self._ready
        found: list[LogRecord] = []
        while ready and size < self._context.config.batch_bytes:
            _, self.position, _, records, bytes_ = heappop(ready)
            found += records
            self._feeds[shard].held -= bytes_
            size += bytes_
        if not ready:
            self.position = END if feed is None or feed.final else feed.at
        if self.position > first:
            return Batch(first, self.position, found)
        return None if feed is None else feed.damage

    def _explain(self) -> Exception | None:
        """Why there is nothing at the position: nobody is there yet, or it is damaged, or its shard is not known."""
        for feed in self._feeds.values():
            if feed.at <= self.position and not feed.final:
                return feed.damage
        if self._puzzled.at is None:
            self._context.set_timer(self._puzzled, self._context.now + self._context.backoff(self._puzzles))
            self._puzzles += 1
        return None

    def _look_again(self) -> None:
        """Ask for a newer view, until one has the shard: who was asked may lag, or there may be no shard at all yet."""
        self._ordering_client.refresh()
        self._deliver()

    def check_invariants(self) -> None:
        ready = self._ready
        assert not ready or ready[0][0] >= self.position, "SCA-11: something fetched was passed over"
        assert sum([feed.held for feed in self._feeds.values()]) == sum([entry[4] for entry in ready])


class Subscriber:
    """All subscriptions of a client, by the number of the call that began them."""

    def __init__(
        self, context: ClientContext, directory: Directory, requests: PendingRequests, ordering_client: OrderingClient
    ) -> None:
        self._context, self._directory, self._requests, self._ordering_client = (
            context,
            directory,
            requests,
            ordering_client,
        )
        self._following: dict[int, ActiveSubscription] = {}

    def subscribe(self, call: int, request: calls.Subscribe) -> None:
        context, oldest = self._context, self._directory.oldest
        context.open(call, None, lambda: None)
        if request.gsn < oldest:
            context.answer(call, Trimmed(request.gsn, oldest))
            return
        self._following[call] = ActiveSubscription(
            call, request, context, self._directory, self._requests, self._ordering_client
        )
        context.answer(call, call)

    def next(self, call: int, request: calls.Next) -> None:
        following = self._following.get(request.subscription)
        if following is not None:
            following.next(call, request.deadline)
        else:
            self._context.open(call, None, lambda: None)
            self._context.answer(call, StopIteration())

    def close(self, call: int, request: calls.Close) -> None:
        self._context.open(call, None, lambda: None)
        following = self._following.pop(request.subscription, None)
        if following is not None:
            following.close()
        self._context.answer(call, None)

    def view_changed(self) -> None:
        for following in list(self._following.values()):
            following.view_changed()

    def check_invariants(self) -> None:
        for following in self._following.values():
            following.check_invariants()
