"""The contract of keys that expire and of the retention of named logs, in every world and both faces."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import logdb
from logdb import Retention
from logdb.named_logs.layout import Layout
from logdb.retention.expiry import TTL_MARKS, ttl_ms
from logdb.retention.marks import Mark, encode_marks, end_of
from tests.harness.worlds import World

TTL = 0.01
DAY_S = 86_400


def sweep_until(db: logdb.Database, is_over: Callable[[], bool]) -> None:
    """Sweep until something has expired."""
    end = time.monotonic() + 20
    while not is_over():
        db.sweep()
        time.sleep(0.005)
        assert time.monotonic() < end, "it does not expire"


def values(db: logdb.Database, name: str) -> list[bytes]:
    return [entry.value for entry in db.log(name).read()]


def test_a_key_expires_by_a_deletion_in_the_log(world: World) -> None:
    db = world.db
    db.put(b"put", b"1", ttl=TTL)
    db.multi_put({b"multi": b"2", b"gone": None}, ttl=TTL)
    assert db.test_and_multi_put([logdb.absent(b"tested")], {b"tested": b"3"}, ttl=TTL).committed
    with db.transaction() as txn:
        txn.put(b"txn", b"4", ttl=TTL)
        txn.multi_put({b"more": b"5"}, ttl=TTL)
        txn.put(b"kept", b"6")
    before = db.version
    keys = {b"put", b"multi", b"tested", b"txn", b"more"}
    db = world.disturb()
    assert keys < {key for key, _ in db.at(before).scan()}
    sweep_until(db, lambda: not db.multi_get(sorted(keys)))
    assert db.get(b"kept") == b"6"
    assert set(db.at(before).multi_get(sorted(keys))) == keys
    deleted = {
        key: change.label
        for change in db.watch(since=before, timeout=0)
        for key, value in change.changes.items()
        if value is None
    }
    assert {key: deleted[key] for key in keys} == dict.fromkeys(keys, "retention")
    assert next(iter(db.history(b"put"))).value is None
    assert list(db.scan(prefix=logdb.keys.pack((None, "logdb.expiring")))) == []


def test_only_the_version_with_the_time_to_live_expires(world: World) -> None:
    db = world.db
    names = [b"again", b"longer", b"deleted", b"restored", b"range"]
    db.multi_put(dict.fromkeys([*names, b"due"], b"1"), ttl=TTL)
    db.put(b"again", b"2")
    db.put(b"longer", b"2", ttl=DAY_S)
    db.delete(b"deleted")
    db.delete(b"restored")
    db.put(b"restored", b"2")
    db.delete_range(b"range", b"rangf")
    db = world.disturb()
    sweep_until(db, lambda: b"due" not in db)
    assert db.multi_get(names) == {b"again": b"2", b"longer": b"2", b"restored": b"2"}
    assert [key for key, _ in db.scan(b"a", b"z")] == [b"again", b"longer", b"restored"]


def test_the_last_write_of_a_transaction_decides(db: logdb.Database) -> None:
    with db.transaction() as txn:
        for key in (b"a", b"b", b"c", b"d", b"e"):
            txn.put(key, b"1", ttl=TTL)
        txn.put(b"a", b"2")
        txn.delete(b"b")
        txn.delete_range(b"c", b"d")
        txn.put(b"e", b"3", ttl=DAY_S)
        txn.log("log").append(b"entry")
    assert len(txn.log("log").appended) == 1
    rows = list(db.scan(prefix=logdb.keys.pack((None, "logdb.expiring"))))
    assert sorted(key for _, key in rows) == [b"d", b"e"]
    sweep_until(db, lambda: b"d" not in db)
    assert [key for key, _ in db.scan(b"a", b"z")] == [b"a", b"e"]


def test_an_aborted_write_does_not_expire(db: logdb.Database) -> None:
    db.put(b"k", b"1")
    assert not db.test_and_multi_put([logdb.absent(b"k")], {b"k": b"2"}, ttl=TTL).committed
    with pytest.raises(RuntimeError), db.transaction() as txn:
        txn.put(b"k", b"2", ttl=TTL)
        raise RuntimeError
    version = db.version
    assert db.sweep() == (0, 0, True)
    assert db.version == version, "a sweep without work writes nothing"


def test_a_log_keeps_the_newest_bytes(world: World) -> None:
    orders = world.db.log("orders", retention=Retention(size_bytes=1_000))
    for number in range(40):
        orders.append(b"%050d" % number, txn_id=number)
    world.db.sweep()
    db = world.disturb()
    orders = db.log("orders")
    assert orders.retention == Retention(size_bytes=1_000)
    assert values(db, "orders") == [b"%050d" % number for number in range(23, 40)], "59 bytes each"
    assert [entry.txn_id for entry in orders.read(from_txn_id=0, limit=1)] == [23]
    orders.extend([b"%0500d" % number for number in (40, 41)], txn_id=40)
    db.sweep()
    assert values(db, "orders") == [b"%0500d" % number for number in (40, 41)]
    with pytest.raises(ValueError, match="39 comes after 40"):
        orders.append(b"", txn_id=39)
    version = db.version
    db.sweep()
    assert db.version == version, "a sweep without work writes nothing"


def test_entries_of_one_transaction_are_dropped_one_by_one(db: logdb.Database) -> None:
    log = db.log("log", retention=Retention(size_bytes=100))
    log.extend([b"%010d" % number for number in range(30)], txn_id=7)
    db.sweep()
    assert [entry.value for entry in log.read()] == [b"%010d" % number for number in range(24, 30)]
    assert [entry.value for entry in log.read(from_txn_id=7)][-1] == b"%010d" % 29


def test_a_log_keeps_entries_for_an_age_by_the_clock_of_the_log(world: World) -> None:
    db = world.db
    old = db.log("events", retention=Retention(age_s=TTL)).append(b"old")
    db.log("kept", retention=Retention(age_s=DAY_S)).append(b"kept")
    db.sweep()
    compacted = db.version
    db.compact()
    db = world.disturb()
    events = db.log("events")
    sweep_until(db, lambda: not len(events))
    assert db.version > compacted
    new = events.append(b"new")
    assert (events.first, new > old) == (new, True)
    assert values(db, "kept") == [b"kept"]
    assert db.logs() == ["events", "kept"]


def test_a_retention_is_of_the_log_and_can_be_changed(world: World) -> None:
    db = world.db
    log = db.log("log", retention=Retention(age_s=7 * DAY_S, size_bytes=1 << 30))
    assert log.retention is None
    log.create()
    assert log.retention == Retention(7 * DAY_S, 1 << 30)
    db = world.disturb()
    other = db.log("log", retention=Retention(age_s=DAY_S))
    assert other.retention == Retention(7 * DAY_S, 1 << 30)
    other.append(b"1")
    assert db.log("log").retention == Retention(DAY_S)
    version = db.version
    assert other.set_retention(Retention(DAY_S)) == version, "the same retention is not written again"
    other.set_retention(None)
    assert db.log("log").retention is None
    assert values(db, "log") == [b"1"]
    other.set_retention(Retention(size_bytes=1))
    db.log("log").delete()
    assert db.log("log").retention is None


def test_a_consumer_continues_behind_what_its_log_no_longer_keeps(world: World) -> None:
    db = world.db
    log = db.log("log", retention=Retention(size_bytes=100))
    log.extend([b"%050d" % number for number in range(3)])
    seen: list[bytes] = []

    def body(txn: logdb.Transaction, entry: object) -> None:
        txn.put(b"seen", entry.value)  # type: ignore[attr-defined]
        seen.append(entry.value)  # type: ignore[attr-defined]

    with log.consumer("reader") as consumer:
        assert consumer.run(body, limit=1) == 1
    log.extend([b"%050d" % number for number in range(3, 9)])
    db.sweep()
    db = world.disturb()
    with db.log("log").consumer("reader") as consumer:
        assert consumer.lag == 2
        assert consumer.run(body, until_end=True) == 2
    assert seen == [b"%050d" % number for number in (0, 7, 8)]


def test_bad_arguments_are_refused(db: logdb.Database) -> None:
    for ttl, error in ((0, ValueError), (-1.0, ValueError), (1e12, ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(error, match="ttl"):
            db.put(b"k", b"v", ttl=ttl)  # type: ignore[arg-type]
        with pytest.raises(error, match="ttl"), db.transaction() as txn:
            txn.put(b"k", b"v", ttl=ttl)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ttl"):
        db.multi_put({}, ttl=float("nan"))
    with pytest.raises(ValueError, match="needs age_s"):
        Retention()
    with pytest.raises(TypeError, match="size_bytes"):
        Retention(size_bytes=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size_bytes"):
        Retention(size_bytes=0)
    with pytest.raises(TypeError, match="retention"):
        db.log("log", retention=10)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="retention"):
        db.log("log").set_retention("1d")  # type: ignore[arg-type]


def test_marks_of_another_database_expire_nothing(db: logdb.Database) -> None:
    """Its rows were restored here, where versions begin anew: its marks are old, and before them are all new rows."""
    marks = encode_marks([Mark(end_of(1 << 40), 1, 0)])
    orders = db.log("orders", retention=Retention(age_s=DAY_S))
    db.multi_put({TTL_MARKS.pack((ttl_ms(DAY_S),)): marks, Layout("orders").marks: marks})
    db.put(b"k", b"v", ttl=DAY_S)
    orders.append(b"entry")
    for _ in range(2):
        db.sweep()
    assert db.get(b"k") == b"v"
    assert values(db, "orders") == [b"entry"]


def test_rows_that_a_program_wrote_itself_stop_no_sweep(world: World) -> None:
    """Any program that may write can write the keys of retention: such a row once stopped all mapping servers."""
    db, pack = world.db, logdb.keys.pack
    expiring, policies = pack((None, "logdb.expiring")), (None, "logdb.retention", 0)
    ttl = pack((None, "logdb.expiring", 9))
    place = (1).to_bytes(8) + bytes(4)
    orders = db.log("orders", retention=Retention(size_bytes=100))
    orders.extend([bytes(50)] * 4, txn_id=1)
    db.multi_put(
        {
            expiring: b"no time to live",
            expiring + b"\xfe" * 20: b"no tuple",
            expiring + b"\x15" * 8_000: b"long",
            pack((None, "logdb.expiring", "text")) + place: b"not a number",
            pack((None, "logdb.expiring", -5)) + place: b"negative",
            pack((None, "logdb.expiring", True)) + place: b"bool",
            pack((None, "logdb.expiring", 1 << 500)) + place: b"a long time",
            ttl + place: b"",
            ttl + b"\x00": b"no place",
            ttl + place + b"behind": bytes(9_000),
            ttl + b"\x90" * 12: b"no version is so large",
            ttl + b"\xff" * 14: b"behind all places",
            pack((*policies, "a")): b"no tuple",
            pack((*policies, "b")): pack((10**400, None)),
            pack((*policies, "c")): pack(("1", 1)),
            pack((*policies, "d")): pack((None, None)),
            pack((*policies, 5)): Retention(size_bytes=1).encode(),
            pack((*policies, "e", "f")): Retention(size_bytes=1).encode(),
            pack((*policies, "large")): bytes(100_000),
            pack((None, "logdb.retention", 1, "orders")): b"\xff" * 28,
            pack((None, "logdb.retention", 1, "other")): bytes(5),
            pack((None, "logdb.retention", 2, 9)): b"\x7f" + b"\xff" * 27,
            pack((None, "logdb.logs", "orders", 1)) + b"\xff": b"no id",
            pack((None, "logdb.logs", "orders", 1)) + b"\x00" * 3: b"no id",
        }
    )
    db = world.disturb()
    db.put(b"k", b"v", ttl=TTL)
    sweep_until(db, lambda: b"k" not in db)
    db.log("orders").extend([bytes(60)] * 4)
    sweep_until(db, lambda: len(values(db, "orders")) == 2)
    db = world.disturb()
    db.put(b"k", b"v")
    assert db.get(b"k") == b"v"
