"""The shared end of the log: how often records are read for many feeds, and what each of them returns."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import logdb
import logdb.aio
from logdb.api.results import Change
from logdb.embedded import EmbeddedBackend
from logdb.embedded.feed import Feed
from logdb.log.contract import LogRecord
from tests.harness.opening import host_of, open_database
from tests.harness.served import Served

LARGE = b"large " * 12_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[logdb.Database]:
    with open_database(tmp_path / "db") as db:
        yield db


def counted(host: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each record is read from the log from now on."""
    reads: Counter[int] = Counter()
    scan = host.log.scan

    def counted_scan(first: int, end: int) -> Iterator[LogRecord]:
        for record in scan(first, end):
            reads[record.gsn] += 1
            yield record

    monkeypatch.setattr(host.log, "scan", counted_scan)
    return reads


def drained(feed: Feed) -> list[Change]:
    found = []
    while (change := feed.poll(0)) is not None:
        found.append(change)
    return found


@pytest.mark.parametrize("feeds", [1, 100, 1_000])
def test_a_record_is_read_once_for_all_feeds(feeds: int, db: logdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(db)
    db.put(b"before", b"")
    followers = [host.feed(None, b"log/", [b"%d" % (number % 3)]) for number in range(feeds)]
    reads = counted(host, monkeypatch)
    expected = []
    for number in range(3):
        expected.append(db.put(b"log/%d" % number, b"x"))
        expected.append(db.put(b"log/large", LARGE))
        for follower in followers:
            drain = drained(follower)
            assert [change.version for change in drain] == expected[-2:]
            assert drain[1].changes == {b"log/large": LARGE}
    assert {version: reads[version] for version in expected} == dict.fromkeys(expected, 1)
    assert max(reads.values()) == 2  # the record of a large value: passed by, and loaded


def test_a_record_is_read_once_for_all_subscribers_of_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served = Served(tmp_path / "db")
    try:
        reads = counted(served.host.embedded, monkeypatch)
        versions = asyncio.run(followed(served.address))
    finally:
        served.close()
    assert set(versions.values()) == {100}
    assert {version: reads[version] for version in versions} == dict.fromkeys(versions, 1)


async def followed(address: str) -> Counter[int]:
    """The versions of five entries, and how many of 100 subscribers have received them."""
    received: Counter[int] = Counter()
    async with await logdb.aio.connect(address) as db:
        log = db.log("events")
        last = await log.append(b"first")

        async def follow() -> None:
            left = 5
            async for entry in log.subscribe(after=last):
                received[entry.position.version] += 1
                left -= 1
                if not left:
                    return

        following = [asyncio.create_task(follow()) for _ in range(100)]
        for _ in range(5):
            await log.append(b"x")
        await asyncio.gather(*following)
    return received


@pytest.mark.parametrize("seed", range(3))
def test_feeds_at_any_distance_return_all_commits(seed: int, tmp_path: Path) -> None:
    """Feeds that are behind, beside others at the end, with compactions and a tail of a few blocks."""
    random = Random(seed)
    with open_database(tmp_path / "db", segment_bytes=8_000, overlay_bytes=60_000) as db:
        host = host_of(db)
        prefixes = [None, b"a", b"b"]
        expected: dict[bytes | None, list[int]] = {prefix: [] for prefix in prefixes}
        followers = [(prefix, host.feed(0, prefix, None), list[int]()) for prefix in prefixes for _ in range(4)]
        for step in range(120):
            key = random.choice([b"a", b"b", b"c"])
            with db.transaction() as txn:
                txn[key] = random.choice([b"small", LARGE])
            for prefix in prefixes:
                if prefix is None or prefix == key:
                    expected[prefix].append(db.version)
            prefix, feed, found = random.choice(followers)
            for _ in range(random.choice([0, 1, 50])):
                if (change := feed.poll(0)) is None:
                    break
                found.append(change.version)
            if step % 30 == 29:
                db.compact(min(feed.since for _, feed, _ in followers))
        for prefix, feed, found in followers:
            found += [change.version for change in drained(feed)]
            assert found == expected[prefix]


def test_a_value_that_is_larger_than_all_that_is_kept(tmp_path: Path) -> None:
    large = bytes(100_000)
    with open_database(tmp_path / "db", overlay_bytes=60_000) as db:
        version = db.put(b"k", large)
        for _ in range(2):
            (change,) = db.watch(since=version - 1, timeout=0)
            assert change.changes == {b"k": large}


def test_a_feed_of_dropped_versions_raises_though_the_tail_has_them(db: logdb.Database) -> None:
    first = db.put(b"k", b"1")
    feed, other = host_of(db).feed(0, None, None), host_of(db).feed(0, None, None)
    db.put(b"k", b"2")
    assert [change.version for change in drained(feed)] == [first, first + 1]
    db.compact()
    with pytest.raises(logdb.VersionTrimmed):
        drained(other)
    version = db.put(b"k", b"3")
    assert [change.version for change in drained(feed)] == [version]


def test_a_tail_that_a_compaction_has_overtaken_begins_again(db: logdb.Database) -> None:
    db.put(b"k", b"1")
    drained(host_of(db).feed(0, None, None))
    db.put(b"k", b"2")
    db.compact()
    feed = host_of(db).feed(None, None, None)
    version = db.put(b"k", b"3")
    assert [change.version for change in drained(feed)] == [version]


def test_many_threads_each_receive_every_commit(db: logdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = counted(host_of(db), monkeypatch)
    feeds = [db.watch(since=0, timeout=30) for _ in range(20)]
    found: list[list[int]] = [[] for _ in feeds]

    def follow(number: int) -> None:
        for change in feeds[number]:
            found[number].append(change.version)
            if change.changes.get(b"end") is not None:
                return

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(len(feeds))]
    for thread in threads:
        thread.start()
    versions = [db.put(b"k", b"%d" % number) for number in range(50)]
    versions.append(db.put(b"end", b""))
    for thread in threads:
        thread.join()
    assert found == [versions] * len(feeds)
    assert {reads[version] for version in versions} == {1}
