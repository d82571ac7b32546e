"""The Database contract, appends: the commit makes their keys, so writers of one prefix do not conflict."""

from __future__ import annotations

import threading

import pytest

import logdb
from logdb import Change
from tests.harness.worlds import World

LARGE = b"large " * 2_000
HUGE = bytes(17 << 20)


def key_of(prefix: bytes, version: int, index: int = 0) -> bytes:
    return prefix + version.to_bytes(8, "big") + index.to_bytes(4, "big")


def test_a_transaction_learns_the_keys_of_its_appends(world: World) -> None:
    with world.db.transaction(label="order") as txn:
        txn.append(b"a/", b"1")
        txn.put(b"stock", b"7")
        txn.append(b"b/", LARGE)
        txn.append(b"a/", b"2")
        with pytest.raises(logdb.LogDBError, match="once the transaction has committed"):
            _ = txn.appended
    keys = [key_of(b"a/", txn.version), key_of(b"b/", txn.version), key_of(b"a/", txn.version, 1)]
    assert txn.appended == keys
    db = world.disturb()
    expected = {keys[0]: b"1", keys[1]: LARGE, keys[2]: b"2", b"stock": b"7"}
    assert dict(db.scan()) == expected
    assert db.multi_get(keys) == {key: expected[key] for key in keys}
    assert [value for _, value in db.scan(prefix=b"a/")] == [b"1", b"2"]
    assert list(db.scan(prefix=b"a/", reverse=True, limit=1)) == [(keys[2], b"2")]
    assert [(entry.version, entry.value) for entry in db.history(keys[1])] == [(txn.version, LARGE)]
    assert dict(db.at(txn.version - 1).scan()) == {}


def test_a_single_append_returns_its_key(world: World) -> None:
    first, second = world.db.append(b"log/", b"1"), world.db.append(b"log/", LARGE, label="second")
    db = world.disturb()
    third = db.append(b"log/", b"")
    assert first < second < third
    assert list(db.scan(prefix=b"log/")) == [(first, b"1"), (second, LARGE), (third, b"")]
    assert third == key_of(b"log/", int.from_bytes(third[4:12], "big"))
    assert [change.label for change in db.watch(prefix=second, since=0, timeout=0)] == ["second"]


def test_writers_of_one_prefix_do_not_conflict(db: logdb.Database) -> None:
    db.put(b"k", b"0")
    kept: list[logdb.Transaction] = []

    def write(number: int) -> None:
        for step in range(5):
            with db.transaction() as txn:
                txn.get(b"k")
                txn.append(b"log/", b"%d.%d" % (number, step))
            kept.append(txn)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = list(db.scan(prefix=b"log/"))
    assert len(rows) == 20
    assert sorted(key for txn in kept for key in txn.appended) == [key for key, _ in rows]
    for number in range(4):
        own = [value for _, value in rows if value.startswith(b"%d." % number)]
        assert own == [b"%d.%d" % (number, step) for step in range(5)]


def test_an_append_conflicts_with_what_was_read_there(world: World) -> None:
    known = [world.db.append(b"log/", b"1")]
    for read in ("a range", "an empty range"):
        with pytest.raises(logdb.ConflictError) as caught, world.db.transaction() as txn:
            if read == "a range":
                assert [key for key, _ in txn.scan(prefix=b"log/")] == known
            else:
                assert list(txn.scan(known[-1] + b"\0", b"log0")) == []
            txn.put(b"mine", b"1")
            known.append(world.db.append(b"log/", b"2"))
        assert caught.value.version == int.from_bytes(known[-1][4:12], "big")
        assert caught.value.key == known[-1]
    assert b"mine" not in world.disturb()


def test_an_append_conflicts_with_a_read_of_its_key(world: World) -> None:
    """The key that the append will make can be guessed only if versions are dense; else a guess harms nothing."""
    newest = int.from_bytes(world.db.append(b"log/", b"1")[4:12], "big")
    guesses = [key_of(b"log/", newest + ahead) for ahead in range(1, 200)]
    key = b""
    try:
        with world.db.transaction() as txn:
            assert txn.multi_get(guesses) == {}
            txn.put(b"mine", b"1")
            key = world.db.append(b"log/", b"2")
    except logdb.ConflictError as error:
        assert error.key == key in guesses
        assert b"mine" not in world.disturb()
    else:
        assert key not in guesses
        assert world.disturb()[b"mine"] == b"1"


def test_an_append_does_not_conflict_elsewhere(db: logdb.Database) -> None:
    with db.transaction() as txn:
        list(txn.scan(prefix=b"log/a"))
        txn.append(b"log/b", b"mine")
        db.append(b"log/b", b"other")
    assert [value for _, value in db.scan(prefix=b"log/")] == [b"other", b"mine"]


def test_a_transaction_that_gives_up_appends_nothing(db: logdb.Database) -> None:
    with pytest.raises(InterruptedError), db.transaction() as txn:
        txn.append(b"log/", b"1")
        raise InterruptedError
    assert list(db.scan()) == []
    with pytest.raises(logdb.LogDBError):
        _ = txn.appended


def test_own_reads_do_not_see_appends_and_range_deletes_leave_them(world: World) -> None:
    world.db.append(b"log/", b"old")
    with world.db.transaction() as txn:
        txn.append(b"log/", b"before")
        txn.delete_prefix(b"log/")
        txn.append(b"log/", b"after")
        assert list(txn.scan(prefix=b"log/")) == []
    db = world.disturb()
    assert list(db.scan(prefix=b"log/")) == list(zip(txn.appended, [b"before", b"after"], strict=True))


def test_the_feed_has_the_keys(world: World) -> None:
    since = world.db.put(b"k", b"0")
    with world.db.transaction(label="both") as txn:
        txn.put(b"k", b"1")
        txn.append(b"log/", LARGE)
    alone = world.db.append(b"log/", b"2")
    db = world.disturb()
    changes = list(db.watch(since=since, timeout=0))
    assert [change.changes for change in changes] == [{b"k": b"1", txn.appended[0]: LARGE}, {alone: b"2"}]
    assert [change.changes for change in db.watch(prefix=b"log/", since=since, timeout=0)] == [
        {txn.appended[0]: LARGE},
        {alone: b"2"},
    ]
    assert [change.version for change in db.watch(keys=[alone], since=since, timeout=0)] == [changes[1].version]
    assert isinstance(changes[0], Change)


def test_compaction_and_deletes_treat_made_keys_as_any_other(world: World) -> None:
    keys = [world.db.append(b"log/", b"%d" % number * (3_000 if number == 3 else 1)) for number in range(6)]
    world.db.delete(keys[0])
    world.db.put(keys[1], b"changed")
    world.db.delete_range(keys[4])
    world.db.compact()
    db = world.disturb()
    assert dict(db.scan()) == {keys[1]: b"changed", keys[2]: b"2", keys[3]: b"3" * 3_000}
    later = db.append(b"log/", b"later")
    assert next(db.scan(reverse=True)) == (later, b"later")


def test_a_value_that_travels_alone_can_be_appended(db: logdb.Database) -> None:
    key = db.append(b"log/", HUGE)
    assert db[key] == HUGE


def test_a_key_that_the_commit_makes_too_keeps_the_appended_value(db: logdb.Database) -> None:
    newest = db.put(b"k", b"0")
    with db.transaction() as txn:
        for ahead in range(1, 1_000):  # one of them is the key that the commit makes
            txn.put(key_of(b"log/", newest + ahead), b"put")
        txn.append(b"log/", b"appended")
    assert db.get(txn.appended[0]) == b"appended"
    assert sum(value == b"appended" for _, value in db.scan(prefix=b"log/")) == 1


def test_appends_that_cannot_be_written(db: logdb.Database) -> None:
    for append in (db.append, db.transaction().__enter__().append):
        with pytest.raises(TypeError, match="prefix"):
            append("a", b"v")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be bytes"):
            append(b"a", None)  # type: ignore[arg-type]
        with pytest.raises(logdb.KeyTooLarge):
            append(b"a" * (logdb.MAX_KEY_BYTES - 11), b"v")
        with pytest.raises(logdb.ValueTooLarge):
            append(b"a", bytes(logdb.MAX_VALUE_BYTES + 1))
    with db.transaction(read_only=True) as txn, pytest.raises(logdb.ReadOnly):
        txn.append(b"a", b"v")
    with pytest.raises(ValueError, match="before it gets its version"), db.transaction() as txn:
        txn.append(b"a", b"v")
        txn.put(key_of(b"a", 0), b"v")
    with pytest.raises(ValueError, match="before it gets its version"), db.transaction() as txn:
        txn.put(key_of(b"a", 0), b"v")
        txn.append(b"a", b"v")
    longest = db.append(b"a" * (logdb.MAX_KEY_BYTES - 12), b"v")
    assert list(db.scan()) == [(longest, b"v")]
    assert len(db.append(b"", b"v")) == 12
