"""The Database contract, range deletes: each stands for the deletion of every key in its range."""

from __future__ import annotations

import pytest

import logdb
from logdb import Change
from tests.harness.worlds import World

KEYS = [b"a", b"b/1", b"b/2", b"b/3", b"c"]
LARGE = b"large " * 2_000


def fill(db: logdb.Database) -> int:
    return db.multi_put({key: LARGE if key == b"b/2" else b"old" for key in KEYS})


def test_a_prefix_is_deleted_for_every_reader(world: World) -> None:
    before = fill(world.db)
    version = world.db.delete_prefix(b"b/")
    world.db.put(b"b/2", b"new")
    db = world.disturb()
    expected = {b"a": b"old", b"b/2": b"new", b"c": b"old"}
    assert dict(db.scan()) == expected
    assert list(db.scan(reverse=True)) == sorted(expected.items(), reverse=True)
    assert list(db.scan(prefix=b"b/", limit=1)) == [(b"b/2", b"new")]
    assert db.multi_scan([(b"a", b"b/2"), (b"b/1", None)]) == [[(b"a", b"old")], sorted(expected.items())[1:]]
    assert db.multi_get(KEYS) == expected
    assert db.get(b"b/1") is None
    assert dict(db.at(before).scan()) == {key: LARGE if key == b"b/2" else b"old" for key in KEYS}
    assert dict(db.at(version).scan()) == {b"a": b"old", b"c": b"old"}
    assert [(entry.version, entry.value) for entry in db.history(b"b/3")] == [(version, None), (before, b"old")]


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (b"b/2", b"c", [b"a", b"b/1", b"c"]),
        (None, b"b/2", [b"b/2", b"b/3", b"c"]),
        (b"b/2", None, [b"a", b"b/1"]),
        (None, None, []),
        (b"b/2", b"b/2", KEYS),
        (b"c", b"a", KEYS),
    ],
)
def test_a_range_has_its_start_and_not_its_end(
    db: logdb.Database, start: bytes | None, end: bytes | None, left: list[bytes]
) -> None:
    fill(db)
    db.delete_range(start, end)
    assert [key for key, _ in db.scan()] == left


def test_a_transaction_sees_its_own_range_deletes(world: World) -> None:
    fill(world.db)
    with world.db.transaction() as txn:
        txn.put(b"b/0", b"before")
        txn.delete_prefix(b"b/")
        assert txn.get(b"b/1") is None
        assert b"b/0" not in txn
        txn.put(b"b/3", b"after")
        assert txn.multi_get(KEYS) == {b"a": b"old", b"b/3": b"after", b"c": b"old"}
        assert list(txn.scan()) == [(b"a", b"old"), (b"b/3", b"after"), (b"c", b"old")]
        assert list(txn.scan(prefix=b"b/", reverse=True)) == [(b"b/3", b"after")]
        txn.delete_range(b"c")
        assert txn.multi_scan([(b"b", None)], limit=2) == [[(b"b/3", b"after")]]
    db = world.disturb()
    assert dict(db.scan()) == {b"a": b"old", b"b/3": b"after"}


def test_a_transaction_that_gives_up_deletes_nothing(db: logdb.Database) -> None:
    fill(db)
    with pytest.raises(InterruptedError), db.transaction() as txn:
        txn.delete_range()
        raise InterruptedError
    assert [key for key, _ in db.scan()] == KEYS


def test_a_range_delete_conflicts_with_what_was_read_there(world: World) -> None:
    for read in ("a key", "a missing key", "a range", "an empty range"):
        fill(world.db)
        with pytest.raises(logdb.ConflictError) as caught, world.db.transaction() as txn:
            if "key" in read:
                assert txn.get(b"b/1" if read == "a key" else b"b/4") == (b"old" if read == "a key" else None)
            else:
                found = list(txn.scan(*((b"b/3", b"c") if read == "a range" else (b"b/4", b"b/5"))))
                assert len(found) == (read == "a range")
            txn.put(b"mine", b"1")
            version = world.db.delete_range(b"b/", b"b0")
        assert caught.value.version == version, read
    assert b"mine" not in world.disturb()


def test_a_range_delete_does_not_conflict_elsewhere(db: logdb.Database) -> None:
    fill(db)
    with db.transaction() as txn:
        txn.get(b"a")
        list(txn.scan(b"c", b"d"))
        txn.put(b"mine", b"1")
        db.delete_prefix(b"b/")
    assert db[b"mine"] == b"1"


def test_a_range_that_a_transaction_deletes_is_guarded_on_request(db: logdb.Database) -> None:
    fill(db)
    for guard_writes in (False, True):
        committing = db.transaction(guard_writes=guard_writes)
        txn = committing.__enter__()
        txn.get(b"a")
        db.put(b"b/7", b"since")
        txn.delete_prefix(b"b/")
        if guard_writes:
            with pytest.raises(logdb.ConflictError):
                committing.__exit__(None, None, None)
        else:
            committing.__exit__(None, None, None)
            assert b"b/7" not in db


def test_conditions_see_range_deletes(world: World) -> None:
    fill(world.db)
    assert world.db.test_and_multi_put([logdb.exists(b"b/1")], {b"seen": b"1"}).committed
    world.db.delete_prefix(b"b/")
    db = world.disturb()
    tested = db.test_and_multi_put(
        [logdb.exists(b"b/1"), logdb.absent(b"b/1"), logdb.version_equals(b"b/2", 0)], {b"seen": b"2"}
    )
    assert [condition.operator for condition in tested.failed] == [logdb.exists(b"b/1").operator]


def test_the_feed_names_the_range(world: World) -> None:
    since = fill(world.db)
    with world.db.transaction(label="tidy") as txn:
        txn.delete_range(b"b/2")
        txn.put(b"b/9", b"new")
    version = txn.version
    db = world.disturb()

    def seen(**options: object) -> list[Change]:
        return list(db.watch(since=since, timeout=0, **options))  # type: ignore[arg-type]

    (change,) = seen()
    assert (change.version, change.label) == (version, "tidy")
    assert change.changes == {b"b/9": b"new"}
    assert change.deleted == ((b"b/2", None),)
    (change,) = seen(prefix=b"b/")
    assert (change.changes, change.deleted) == ({b"b/9": b"new"}, ((b"b/2", b"b0"),))
    (change,) = seen(keys=[b"b/3", b"a"])
    assert (change.changes, change.deleted) == ({b"b/3": None}, ())
    assert seen(prefix=b"a") == []
    (change,) = seen(deleted_keys=True)
    assert change.changes == {b"b/2": None, b"b/3": None, b"c": None, b"b/9": b"new"}
    state = dict(db.at(since).scan())
    change.applied_to(state)
    assert state == dict(db.scan())


def test_compaction_keeps_what_a_pin_reads_and_drops_the_rest(world: World) -> None:
    before = fill(world.db)
    world.db.pin("before", before)
    world.db.delete_prefix(b"b/")
    world.db.put(b"b/1", b"new")
    world.db.compact()
    db = world.disturb()
    assert [key for key, _ in db.at(before).scan()] == KEYS
    assert dict(db.scan()) == {b"a": b"old", b"b/1": b"new", b"c": b"old"}
    db.unpin("before")
    db.compact()
    db = world.disturb()
    assert dict(db.scan()) == {b"a": b"old", b"b/1": b"new", b"c": b"old"}
    assert list(db.history(b"b/3")) == []


def test_ranges_that_cannot_be_deleted(db: logdb.Database) -> None:
    for delete in (db.delete_range, db.transaction().__enter__().delete_range):
        with pytest.raises(TypeError, match="start"):
            delete("a")  # type: ignore[arg-type]
        with pytest.raises(logdb.KeyTooLarge):
            delete(b"a" * 9_000)
    with pytest.raises(TypeError, match="prefix"):
        db.delete_prefix(7)  # type: ignore[arg-type]
    with db.transaction(read_only=True) as txn, pytest.raises(logdb.ReadOnly):
        txn.delete_range(b"a", b"b")
