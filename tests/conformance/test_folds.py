"""The Database contract, folds: `add`, `min` and `max` change a number under a key and do not conflict."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import logdb
from logdb import Change
from tests.harness.worlds import World

K, N, M = b"k", b"n", b"m"


def test_folds_change_the_number_under_a_key(world: World) -> None:
    first = world.db.add(K, 5)
    second = world.db.add(K, -12, label="less")
    db = world.disturb()
    third = db.min(K, -3)
    fourth = db.max(K, 40)
    assert first < second < third < fourth
    assert db[K] == b"40"
    db.put(N, b"007")
    assert db.add(N, 1) > fourth
    assert db[N] == b"8"
    assert db.max(M, -9) > 0  # absent: the number itself
    assert db[M] == b"-9"
    assert [(entry.version, entry.value) for entry in db.history(K)] == [
        (fourth, b"40"),
        (third, b"-7"),
        (second, b"-7"),
        (first, b"5"),
    ]
    assert db.at(second).get(K) == b"-7"


def test_a_transaction_makes_folds_beside_other_writes(world: World) -> None:
    world.db.multi_put({K: b"1", N: b"10", b"other": b"x"})
    with world.db.transaction(label="all") as txn:
        txn.get(b"other")
        txn.add(K, 2)
        txn.add(K, 3)
        txn.min(K, 5)
        txn.add(K, 100)
        txn.append(b"log/", b"1")
        txn.put(b"other", b"y")
        txn.max(N, 11)
    db = world.disturb()
    assert db.multi_get([K, N, b"other"]) == {K: b"105", N: b"11", b"other": b"y"}
    (change,) = db.watch(since=txn.version - 1, timeout=0)
    assert change == Change(
        txn.version, change.time, "all", {**change.changes, K: b"105", N: b"11", b"other": b"y", txn.appended[0]: b"1"}
    )


def test_the_feed_has_the_values(world: World) -> None:
    since = world.db.put(K, b"1")
    versions = [world.db.add(K, 1), world.db.add(N, 7), world.db.add(K, 1)]
    db = world.disturb()
    changes = list(db.watch(since=since, timeout=0))
    assert [(change.version, change.changes) for change in changes] == [
        (versions[0], {K: b"2"}),
        (versions[1], {N: b"7"}),
        (versions[2], {K: b"3"}),
    ]
    assert [change.changes for change in db.watch(keys=[N], since=since, timeout=0)] == [{N: b"7"}]


def test_folds_do_not_conflict_with_each_other(db: logdb.Database) -> None:
    db.put(b"read", b"")

    def write() -> None:
        for step in range(5):
            with db.transaction() as txn:
                txn.get(b"read")
                txn.add(K, 3)
                txn.max(M, step)
            db.add(K, -1)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db.multi_get([K, M]) == {K: b"40", M: b"4"}


READS = ["get", "multi_get", "scan", "get after add", "scan after add"]


def test_a_read_of_the_key_conflicts_with_a_fold(db: logdb.Database) -> None:
    for read in READS:
        conflict(db, read)


def conflict(db: logdb.Database, read: str) -> None:
    db.put(K, b"1")
    with pytest.raises(logdb.ConflictError) as caught, db.transaction() as txn:
        own = 0
        if "after" in read:
            txn.add(K, 10)
            own = 10
        if "scan" in read:
            assert list(txn.scan(prefix=K)) == [(K, b"%d" % (1 + own))]
        elif read == "multi_get":
            assert txn.multi_get([K, N]) == {K: b"1"}
        else:
            assert txn.get(K) == b"%d" % (1 + own)
        txn.put(b"other", b"")
        db.add(K, 1)
    assert caught.value.key == K
    assert db[K] == b"2"


def test_own_reads_see_folds(db: logdb.Database) -> None:
    db.multi_put({b"a": b"1", b"c": b"3", b"d": b"4"})
    with db.transaction() as txn:
        txn.add(b"b", 20)
        txn.add(b"c", 30)
        txn.put(b"d", b"40")
        txn.add(b"d", 1)
        txn.delete(b"a")
        txn.max(b"a", -1)
        rows = [(b"a", b"-1"), (b"b", b"20"), (b"c", b"33"), (b"d", b"41")]
        assert list(txn.scan()) == rows
        assert list(txn.scan(reverse=True, limit=2)) == rows[:1:-1]
        assert txn.multi_scan([(b"b", b"d"), (None, b"b")]) == [rows[1:3], rows[:1]]
        assert txn.multi_get([b"a", b"b", b"c", b"e"]) == {b"a": b"-1", b"b": b"20", b"c": b"33"}
        assert txn.get(b"b") == b"20"
    assert list(db.scan()) == rows


def test_the_order_within_a_transaction_counts(db: logdb.Database) -> None:
    db.multi_put({b"a": b"1", b"b": b"1", b"c": b"1", b"d": b"1"})
    with db.transaction() as txn:
        txn.add(b"a", 5)
        txn.put(b"a", b"x")
        txn.add(b"b", 5)
        txn.delete(b"b")
        txn.add(b"c", 5)
        txn.delete_prefix(b"c")
        txn.delete_prefix(b"d")
        txn.add(b"d", 5)
    assert dict(db.scan()) == {b"a": b"x", b"d": b"5"}


@pytest.mark.parametrize("value", [b"x", b"", b"1.5", b" 1", b"+1", b"1" * 101, b"9" * 100, b"1" * 6_000])
def test_what_is_no_number_is_refused(embedded: logdb.Database, value: bytes) -> None:
    embedded.put(K, value)
    with pytest.raises(logdb.NotANumber):
        embedded.add(K, 1)
    assert embedded[K] == value


@pytest.mark.parametrize("value", [b"x", b"1" * 6_000])
def test_a_refused_fold_writes_nothing(world: World, value: bytes) -> None:
    db = world.db
    version = db.put(K, value)
    for refused in (lambda: db.add(K, 1), lambda: db.run(lambda txn: [txn.put(N, b""), txn.add(K, 1)])):
        with pytest.raises(logdb.NotANumber, match="nothing was written") as caught:
            refused()
        assert caught.value.key == K
    with pytest.raises(logdb.NotANumber), db.transaction() as txn:
        txn.add(K, 1)
        txn.get(K)
    with pytest.raises(logdb.NotANumber), db.transaction() as txn:
        txn.put(K, value)
        txn.add(K, 1)
    db = world.disturb()
    assert dict(db.scan()) == {K: value}
    assert [entry.version for entry in db.history(K)] == [version]
    assert list(db.watch(since=version, timeout=0)) == []
    db.delete(K)
    db.add(K, 1)
    assert db[K] == b"1"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda db: db.add("k", 1), TypeError),
        (lambda db: db.add(b"", 1), ValueError),
        (lambda db: db.add(K, 1.5), TypeError),
        (lambda db: db.add(K, True), TypeError),
        (lambda db: db.min(K, 10**100), ValueError),
        (lambda db: db.max(bytes(20_000), 1), logdb.KeyTooLarge),
        (lambda db: db.add(K, 1, label=b"x"), TypeError),
    ],
)
def test_arguments_are_checked(
    embedded: logdb.Database, call: Callable[[logdb.Database], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(embedded)
    assert dict(embedded.scan()) == {}


def test_a_read_only_transaction_folds_nothing(embedded: logdb.Database) -> None:
    with embedded.transaction(read_only=True) as txn, pytest.raises(logdb.ReadOnly):
        txn.add(K, 1)


def test_folds_survive_a_compaction(world: World) -> None:
    db = world.db
    for number in range(6):
        db.multi_put({b"other": b"%d" % number})
        floor = db.add(K, 1)
    db.add(K, 10)
    db.compact(floor)
    db.add(K, 100)
    db = world.disturb()
    assert db[K] == b"116"
    assert [entry.value for entry in db.history(K)] == [b"116", b"16", b"6"]
    assert [change.changes for change in db.watch(keys=[K], since=floor, timeout=0)] == [{K: b"16"}, {K: b"116"}]
    db.compact()
    db.add(K, -16)
    assert world.disturb()[K] == b"100"
