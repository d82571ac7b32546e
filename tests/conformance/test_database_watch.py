"""The Database contract, the change feed: every commit once, in order, from any version that is left."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

import logdb
from tests.harness.opening import host_of
from tests.harness.worlds import World

LARGE = b"large " * 1_000


def seen(db: logdb.Database, since: int = 0, **watched: object) -> list[tuple[int, dict[bytes, bytes | None]]]:
    """The current contents of the feed."""
    return [(item.version, item.changes) for item in db.watch(since=since, timeout=0, **watched)]  # type: ignore[arg-type]


def test_one_item_for_each_transaction(world: World) -> None:
    db = world.db
    first = db.put(b"a", b"1", label="one")
    second = db.multi_put({b"a": None, b"b": LARGE, b"c": b""})
    with db.transaction(label="three") as txn:
        txn[b"d"] = b"1"
    failed = db.test_and_multi_put([logdb.absent(b"b")], {b"never": b"1"})
    third = db.test_and_multi_put([logdb.exists(b"b")], {b"e": b"1"}).version
    db = world.disturb()
    assert not failed.committed
    assert seen(db) == [
        (first, {b"a": b"1"}),
        (second, {b"a": None, b"b": LARGE, b"c": b""}),
        (txn.version, {b"d": b"1"}),
        (third, {b"e": b"1"}),
    ]
    items = list(db.watch(since=0, timeout=0))
    assert [item.label for item in items] == ["one", "", "three", ""]
    assert [item.time for item in items] == sorted(item.time for item in items)
    when = db.time_of(first)
    assert when is not None
    assert abs(items[0].time / 1e9 - when.timestamp()) < 1e-3


def test_resume_from_any_version(world: World) -> None:
    for number in range(30):
        world.db.put(b"%d" % (number % 7), b"%d" % number)
    db = world.disturb()
    everything = seen(db)
    assert len(everything) == 30
    for position, (version, _) in enumerate(everything):
        assert seen(db, version) == everything[position + 1 :]


def test_only_watched_keys(world: World) -> None:
    db = world.db
    first = db.multi_put({b"user/1": b"a", b"other": b"b"})
    db.put(b"other", b"c")
    third = db.multi_put({b"user/2": None, b"k": b"d"})
    db = world.disturb()
    assert seen(db, prefix=b"user/") == [(first, {b"user/1": b"a"}), (third, {b"user/2": None})]
    assert seen(db, keys=[b"k", b"user/1"]) == [(first, {b"user/1": b"a"}), (third, {b"k": b"d"})]
    assert seen(db, prefix=b"user/", keys=[b"k"])[1] == (third, {b"user/2": None, b"k": b"d"})
    assert seen(db, keys=[]) == []
    assert len(seen(db, prefix=b"")) == 3


def test_from_now_on(db: logdb.Database) -> None:
    db.put(b"k", b"old")
    changes = db.watch(timeout=10)
    version = db.put(b"k", b"new")
    assert next(changes).version == version
    changes.close()  # type: ignore[attr-defined]


def test_a_waiting_reader_wakes(db: logdb.Database) -> None:
    got: list[int] = []
    changes = db.watch(since=0)
    reader = threading.Thread(target=lambda: got.extend(item.version for item in islice(changes, 3)))
    reader.start()
    versions = [db.put(b"k", b"%d" % number) for number in range(3)]
    reader.join()
    assert got == versions


def test_close_ends_a_waiting_reader(db: logdb.Database) -> None:
    version = db.put(b"k", b"1")
    changes = db.watch(since=0)
    assert next(changes).version == version
    rest: list[logdb.Change] = []
    reader = threading.Thread(target=lambda: rest.extend(changes))
    reader.start()
    db.close()
    reader.join()
    assert rest == []


def test_no_gap_while_others_write_checkpoint_and_compact(db: logdb.Database) -> None:
    written: list[int] = []
    got = [0]

    def write() -> None:
        for number in range(150):
            written.append(db.put(b"%d" % (number % 5), LARGE if number % 10 == 0 else b"%d" % number))
            if number % 20 == 19:
                db.checkpoint()
                db.compact(before=got[-1])

    changes = db.watch(since=0)
    writer = threading.Thread(target=write)
    writer.start()
    for item in islice(changes, 150):
        got.append(item.version)
    writer.join()
    assert got[1:] == written


def test_large_values_that_a_compaction_has_moved(world: World) -> None:
    """The values were stored before their commit record, and perhaps before the trim point of the log."""
    db = world.db
    version = db.multi_put({b"a": LARGE, b"b": LARGE[::-1], b"c": LARGE + b"c"})
    later = db.put(b"a", b"later")
    db.compact(before=version - 1)
    db = world.disturb()
    expected = [(version, {b"a": LARGE, b"b": LARGE[::-1], b"c": LARGE + b"c"}), (later, {b"a": b"later"})]
    assert seen(db, db.oldest_version) == expected


def test_versions_that_cannot_be_watched(world: World) -> None:
    versions = [world.db.put(b"k", b"%d" % number) for number in range(20)]
    slow = world.db.watch(since=0)
    assert next(slow).version == versions[0]
    version = world.db.version
    floor = world.db.compact().floor
    assert floor >= version - 1
    db = world.disturb()
    with pytest.raises(logdb.VersionTrimmed) as caught:
        db.watch(since=3)
    assert (caught.value.version, caught.value.oldest) == (3, floor)
    with pytest.raises(logdb.FutureVersion):
        db.watch(since=db.version + 1)
    assert seen(db, db.version) == []
    for wrong in (-1, "1", 1.0):
        with pytest.raises((TypeError, ValueError)):
            db.watch(since=wrong)  # type: ignore[arg-type]
    for watched in ({"prefix": "text"}, {"keys": ["text"]}, {"keys": [b""]}):
        with pytest.raises((TypeError, ValueError)):
            db.watch(**watched)  # type: ignore[arg-type]


def test_a_reader_overtaken_by_compaction_gets_an_error_and_no_aborted_writes(embedded: logdb.Database) -> None:
    db = embedded
    for number in range(3_000):
        host_of(db).commits.submit({b"k": b"%d" % number}, conditions=[logdb.absent(b"x")])
        if number == 10:
            db.put(b"x", b"1")
    db.put(b"k", b"last")
    changes = db.watch(since=0, timeout=0)
    assert [next(changes).version for _ in range(5)] == [1, 2, 3, 4, 5]
    db.compact()
    with pytest.raises(logdb.VersionTrimmed):
        for item in changes:
            assert item.version <= 12, "an aborted commit"
