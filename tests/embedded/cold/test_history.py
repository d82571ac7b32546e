"""With a cold tier every version stays readable: what a model has at each version, however it is asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from random import Random

import pytest

import logdb
import logdb.aio
from logdb.api.results import Change
from logdb.embedded.cold.history import CACHED_OVERLAYS
from logdb.embedded.cold.views import View
from logdb.embedded.feed import Feed
from tests.harness.opening import host_of, open_database
from tests.harness.served import Served

States = dict[int, dict[bytes, bytes]]
SMALL = 8_000


def conflict(db: logdb.Database) -> None:
    """A commit record that is not applied."""
    with pytest.raises(logdb.ConflictError), db.transaction() as txn:
        txn[b"lost"] = b"%r" % txn.get(b"k00")
        db.put(b"k00", b"other")


def write(db: logdb.Database, random: Random, states: States, steps: int) -> None:
    """Random writes, with the state after each."""
    for _ in range(steps):
        kind = random.random()
        key = b"k%02d" % random.randrange(30)
        if kind < 0.6:
            db.put(key, random.randbytes(random.choice([3, 200, 2_000])))
        elif kind < 0.7:
            db.delete(key)
        elif kind < 0.75:
            db.delete_range(key, b"k%02d" % random.randrange(30, 60))
        elif kind < 0.8:
            db.put(key, random.randbytes(70_000))
        elif kind < 0.9:
            db.log("events").append(random.randbytes(20))
        else:
            conflict(db)
        states[db.version] = dict(db.scan())


def check(db: logdb.Database, states: States, random: Random, versions: int = 10) -> None:
    for version in random.sample(sorted(states), min(versions, len(states))):
        state, snapshot = states[version], db.at(version)
        assert dict(snapshot.scan()) == state
        keys = [b"k%02d" % number for number in range(0, 30, 3)]
        assert snapshot.multi_get(keys) == {key: state[key] for key in keys if key in state}
        for key in keys[:3]:
            assert snapshot.get(key) == state.get(key)
        rows = sorted(item for item in state.items() if b"k05" <= item[0] < b"k20")
        assert list(snapshot.scan(b"k05", b"k20", reverse=True, limit=4)) == rows[::-1][:4]


def check_feed(db: logdb.Database, states: States) -> None:
    found: dict[bytes, bytes] = {}
    for change in db.watch(since=0, timeout=0):
        change.applied_to(found)
        if change.version in states:
            assert found == states[change.version], change.version


def distinct(values: Iterable[bytes | None]) -> list[bytes | None]:
    """Without repetitions, and without the deletions before the first value: a range may delete what does not exist."""
    found = [value for value, _ in groupby(values)]
    while found and found[-1] is None:
        found.pop()
    return found


def check_history(db: logdb.Database, states: States, key: bytes) -> None:
    values = [state.get(key) for _, state in sorted(states.items(), reverse=True)]
    assert distinct(entry.value for entry in db.history(key)) == distinct(values)


@pytest.mark.parametrize("seed", range(2))
def test_every_version_of_a_random_history_stays_readable(tmp_path: Path, seed: int) -> None:
    random, states = Random(seed), States()
    db = open_database(tmp_path / "db", cold=tmp_path / "tier", segment_bytes=SMALL)
    for _ in range(6):
        write(db, random, states, 20)
        kind = random.random()
        if kind < 0.5:
            db.compact()
        elif kind < 0.8:
            db.compact(random.choice([version for version in states if version > host_of(db).snapshots.oldest()]))
        elif kind < 0.9:
            db.pin("old")
        else:
            db.close()
            db = open_database(tmp_path / "db", segment_bytes=SMALL)
    db.compact()
    db.put(b"k01", b"newest")
    states[db.version] = dict(db.scan())
    assert db.oldest_version == 0
    assert host_of(db).snapshots.oldest() > min(states)
    check(db, states, random)
    check_feed(db, states)
    for key in (b"k00", b"k01", b"k07"):
        check_history(db, states, key)
    for version in random.sample(sorted(states), 5):
        time = db.time_of(version)
        assert time is not None
        assert db.at(time=time).version == version
    with logdb.open(tmp_path / "db", read_only=True) as reader:
        check(reader, states, random, 8)
        check_feed(reader, states)
    db.close()
    assert not (tmp_path / "db" / "exports").exists()


def test_reads_of_a_server_and_of_coroutines_go_on_in_the_tier(tmp_path: Path) -> None:
    random, states = Random(5), States()
    server = Served(tmp_path / "db", log_options={"segment_bytes": SMALL}, cold=tmp_path / "tier")
    try:
        with logdb.connect(server.address) as db:
            for _ in range(3):
                write(db, random, states, 15)
                db.compact()
            check(db, states, random)
            check_feed(db, states)
            assert db.oldest_version == 0
            check_history(db, states, b"k01")
            stats = db.stats()
            assert stats.cold_bytes
            assert stats.cold_version
    finally:
        server.close()

    async def read() -> None:
        async with await logdb.aio.open(tmp_path / "db") as db:
            for version in sorted(states)[::12]:
                snapshot = await db.at(version)
                assert dict([row async for row in snapshot.scan()]) == states[version]
                assert await snapshot.get(b"k01") == states[version].get(b"k01")
                assert await snapshot.multi_get([b"k02"]) == {
                    key: value for key, value in states[version].items() if key == b"k02"
                }
            changes = [change async for change in db.watch(since=0, timeout=0)]
            assert [change.version for change in changes][-1] == max(states)
            values = [state.get(b"k01") for _, state in sorted(states.items(), reverse=True)]
            assert distinct([entry.value async for entry in db.history(b"k01")]) == distinct(values)

    asyncio.run(read())


def test_a_tier_that_begins_late_has_the_versions_from_then_on(tmp_path: Path) -> None:
    random, early, states = Random(7), States(), States()
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        write(db, random, early, 40)
        db.compact()
        oldest = db.oldest_version
        write(db, random, states, 40)
    with open_database(tmp_path / "db", segment_bytes=SMALL, cold=tmp_path / "tier") as db:
        db.compact()
        write(db, random, states, 20)
        db.compact()
        assert db.oldest_version == oldest
        check(db, states, random)
        with pytest.raises(logdb.VersionTrimmed) as caught:
            db.at(oldest - 1)
        assert caught.value.oldest == oldest


def test_truncated_entries_of_a_named_log_are_in_old_versions_only(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "db", cold=tmp_path / "tier") as db:
        orders = db.log("orders")
        first, second = orders.append(b"one"), orders.append(b"two")
        before = db.version
        db.compact()
        orders.truncate(before=second)
        db.compact()
        assert [entry.value for entry in orders.read()] == [b"two"]
        assert len(dict(db.at(before).scan())) == 2
        assert db.time_of(first.version) is not None


def test_the_cache_of_segments_and_views_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random, states = Random(9), States()
    overlay_bytes = 3 * SMALL // CACHED_OVERLAYS
    cold = tmp_path / "tier"
    with open_database(tmp_path / "db", segment_bytes=SMALL, overlay_bytes=overlay_bytes, cold=cold) as db:
        for _ in range(7):
            write(db, random, states, 20)
            db.compact()
        check(db, states, random, 20)
        folder = next((tmp_path / "db" / "exports").iterdir())
        assert len(list(folder.glob("view-*"))) <= 4
        stats = db.stats()
        assert stats.cold_cache_bytes is not None
        assert stats.cold_cache_bytes < 3 * SMALL + 80_000  # a large value is a segment of its own


def test_an_era_is_folded_once_while_its_view_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random, states, folded = Random(4), States(), []
    fold = View.fold
    monkeypatch.setattr(View, "fold", lambda view, log: (folded.append(view.era), fold(view, log)))
    with open_database(tmp_path / "db", segment_bytes=SMALL, cold=tmp_path / "tier") as db:
        for _ in range(6):
            write(db, random, states, 10)
            db.compact()
        check_history(db, states, b"k00")
        check_history(db, states, b"k01")
        for version in random.sample(sorted(states), 20):
            assert db.at(version).get(b"k02") == states[version].get(b"k02")
        assert len(folded) == len(set(folded)) == 6


def test_a_server_reads_the_values_of_old_changes_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its clients waited while its event loop read the large values of a watch from the cold tier."""
    take, threads = Feed.take, set[int]()

    def recorded(feed: Feed) -> Change:
        if feed.is_cold:
            threads.add(threading.get_ident())
        return take(feed)

    async def thread_of_loop() -> int:
        return threading.get_ident()

    server = Served(tmp_path / "db", log_options={"segment_bytes": SMALL}, cold=tmp_path / "tier")
    with logdb.connect(server.address) as db:
        values = [db.put(b"k", bytes(50_000 + number)) for number in range(5)]
        db.compact()
        monkeypatch.setattr(Feed, "take", recorded)
        assert [change.version for change in db.watch(since=0, timeout=0)] == values
    assert threads
    assert server.loop.run(thread_of_loop()) not in threads
    server.close()
