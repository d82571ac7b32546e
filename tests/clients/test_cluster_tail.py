"""The shared end of a cluster's log: how often it is read for many feeds, and what each of them returns."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from logdb.clients.cluster_feed import ClusterFeed
from logdb.clients.cluster_tail import ClusterTail
from logdb.errors import DatabaseClosed, Unavailable
from logdb.log import requests as log
from logdb.log.contract import Batch, LogFailed, LogRecord
from logdb.store.records import COMMIT, VALUE, Commit, Place, Value, digest, encode_commit

LARGE = b"large " * 1_000


class Cluster:
    """A client of a log in memory. `reads`: how often each record was read. `fails` decides about each request."""

    path, timeout_s, closed, forked_from = "cluster", 5.0, False, 0

    def __init__(self) -> None:
        self.log: list[LogRecord] = []
        self.aborted: set[int] = set()
        self.reads: Counter[int] = Counter()
        self.subscriptions: dict[int, int] = {}
        self.fails = lambda request: False
        self._grown = asyncio.Event()
        self._last = 0

    def add(self, writes: dict[bytes, Value]) -> int:
        gsn = len(self.log) + 1
        self._append(COMMIT, encode_commit(Commit(1, gsn, writes)))
        return gsn

    def add_large(self) -> Place:
        self._append(VALUE, LARGE)
        return Place(len(self.log), 0, len(LARGE), digest(LARGE))

    def _append(self, tag: int, payload: bytes) -> None:
        self.log.append(LogRecord(len(self.log) + 1, 0, tag, payload))
        self._grown.set()
        self._grown = asyncio.Event()

    def put(self, request: Any, timeout_s: float | None) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._answer(request))

    async def _answer(self, request: Any) -> Any:
        await asyncio.sleep(0)
        if not isinstance(request, log.Close) and self.fails(request):
            return LogFailed("planted")
        if isinstance(request, log.Subscribe):
            self._last += 1
            self.subscriptions[self._last] = request.gsn
            return self._last
        if isinstance(request, log.Close):
            del self.subscriptions[request.subscription]
            return None
        if isinstance(request, log.Read):
            self.reads[request.gsn] += 1
            return self.log[request.gsn - 1]
        assert isinstance(request, log.Next)
        first = self.subscriptions[request.subscription]
        while len(self.log) < first:
            await self._grown.wait()
        found = self.log[first - 1 : first + 9]
        if request.subscription in self.subscriptions:
            self.subscriptions[request.subscription] = first + len(found)
        commits = [record for record in found if record.tag == COMMIT]
        self.reads.update([record.gsn for record in commits])
        return Batch(first, first + len(found), commits)

    async def call(self, request: Any) -> Any:
        await asyncio.sleep(0)
        if self.fails(request):
            raise Unavailable("planted")
        return [gsn for gsn in self.aborted if request.after < gsn <= request.through]

    async def version(self) -> int:
        return len(self.log)

    async def at(self, version: int) -> int:
        return version


async def versions_of(feed: ClusterFeed, count: int) -> list[int]:
    found = []
    while len(found) < count:
        change = await feed.poll(None)
        assert change is not None
        found.append(change.version)
    return found


@pytest.mark.parametrize("feeds", [1, 100, 1_000])
def test_a_record_is_read_once_for_all_feeds(feeds: int) -> None:
    async def follow() -> None:
        cluster = Cluster()
        cluster.add({b"before": b""})
        tail = ClusterTail(cluster)
        followers = [ClusterFeed(cluster, tail, None, b"log/", None, lambda feed: None) for _ in range(feeds)]
        for feed in followers:
            await feed.begun()
        expected = []
        for number in range(3):
            waiting = [asyncio.ensure_future(versions_of(feed, 2)) for feed in followers]
            await asyncio.sleep(0)
            expected.append(cluster.add({b"log/%d" % number: b"x", b"other": b""}))
            expected.append(cluster.add({b"log/large": cluster.add_large()}))
            assert await asyncio.gather(*waiting) == [expected[-2:]] * feeds
        assert set(cluster.reads.values()) == {1}
        assert len(cluster.reads) == 9
        assert len(cluster.subscriptions) == 1
        for feed in followers:
            await feed.close()
        tail.stop()
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert not cluster.subscriptions

    asyncio.run(follow())


def test_a_cancelled_poll_stays_cancelled_when_its_feed_is_closed() -> None:
    """Else the task continues after its feed, and a task that waits for its end may wait without end."""

    async def follow() -> None:
        cluster = Cluster()
        tail = ClusterTail(cluster)
        feed = ClusterFeed(cluster, tail, None, None, None, lambda feed: None)
        await feed.begun()
        polling = asyncio.ensure_future(feed.poll(None))
        await asyncio.sleep(0)
        polling.cancel()
        await feed.close()
        await asyncio.wait((polling,))
        assert polling.cancelled()
        tail.stop()

    asyncio.run(follow())


class Silent(Cluster):
    """A client that gets no answer about versions."""

    async def version(self) -> int:
        await asyncio.Event().wait()
        return 0


def test_a_feed_that_is_closed_before_it_has_begun_cancels_no_caller() -> None:
    async def follow() -> None:
        silent = Silent()
        feed = ClusterFeed(silent, ClusterTail(silent), None, None, None, lambda feed: None)
        polling = asyncio.ensure_future(feed.poll(None))
        await asyncio.sleep(0)
        await feed.close()
        assert await polling is None
        with pytest.raises(DatabaseClosed):
            await feed.begun()

    asyncio.run(follow())


@pytest.mark.parametrize("seed", range(30))
def test_feeds_at_any_distance_return_all_commits_though_requests_fail(seed: int) -> None:
    random = Random(seed)

    async def follow() -> None:
        cluster = Cluster()
        share = random.choice([0, 0, 0.05, 0.3])
        cluster.fails = lambda request: random.random() < share
        tail = ClusterTail(cluster)
        prefixes = [None, b"a", b"b"]
        expected: dict[bytes | None, list[int]] = {prefix: [] for prefix in prefixes}

        def write() -> None:
            key = random.choice([b"a", b"b", b"c"])
            gsn = cluster.add({key: cluster.add_large() if random.random() < 0.2 else b"small"})
            if random.random() < 0.2:
                cluster.aborted.add(gsn)
                return
            for prefix in prefixes:
                if prefix is None or prefix == key:
                    expected[prefix].append(gsn)

        async def read(prefix: bytes | None, since: int | None) -> None:
            feed = ClusterFeed(cluster, tail, since, prefix, None, lambda feed: None)
            first = len(cluster.log) if since is None else since
            await feed.begun()
            begun = len(cluster.log) if since is None else since
            found: list[int] = []
            # A feed from now on begins between `first` and `begun`. When it has returned one commit, the rest follow.
            while not ended or ((found or expected[prefix][-1] > begun) and found[-1:] != expected[prefix][-1:]):
                try:
                    change = await feed.poll(random.choice([0, 0.001, 0.002]))
                except Unavailable:
                    continue
                if change is not None:
                    found.append(change.version)
                for _ in range(random.choice([0, 0, 5])):
                    await asyncio.sleep(0)
            assert found == expected[prefix][len(expected[prefix]) - len(found) :]
            assert {each for each in expected[prefix] if each > begun} <= set(found)
            assert all(version > first for version in found)
            await feed.close()

        ended = False
        readers = []
        for _ in range(60):
            for _ in range(random.choice([1, 3, 12])):
                write()
            if len(readers) < 8 and random.random() < 0.3:
                since = random.choice([0, None, random.randrange(len(cluster.log))])
                readers.append(asyncio.ensure_future(read(random.choice(prefixes), since)))
            for _ in range(random.choice([0, 1, 20])):
                await asyncio.sleep(0)
        ended = True
        async with asyncio.timeout(60):
            await asyncio.gather(*readers)
        tail.stop()

    asyncio.run(follow())


def test_a_feed_that_is_closed_does_not_end_the_wait_of_others() -> None:
    async def follow() -> None:
        cluster = Cluster()
        tail = ClusterTail(cluster)
        first, second = (ClusterFeed(cluster, tail, None, None, None, lambda feed: None) for _ in range(2))
        waiting = [asyncio.ensure_future(feed.poll(None)) for feed in (first, second)]
        while not cluster.subscriptions:
            await asyncio.sleep(0)
        await first.close()
        version = cluster.add({b"k": b"v"})
        assert await waiting[0] is None
        change = await waiting[1]
        assert change is not None
        assert change.version == version
        await second.close()
        tail.stop()

    asyncio.run(follow())
