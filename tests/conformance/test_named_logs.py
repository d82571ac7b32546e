"""The contract of named logs: entries in the order of the log, in every world and both faces."""

from __future__ import annotations

import contextlib
import threading
from random import Random

import pytest

import logdb
from logdb.named_logs import Entry, LogStats, Position
from tests.harness.worlds import World

LARGE = b"large " * 2_000


def values(db: logdb.Database, name: str = "orders", **start: object) -> list[bytes]:
    return [entry.value for entry in db.log(name).read(**start)]  # type: ignore[arg-type]


def test_entries_are_read_from_any_place(world: World) -> None:
    orders = world.db.log("orders")
    first = orders.append(b"1")
    others = orders.extend([b"2", LARGE, b""], txn_id=7)
    middle = world.db.at().version
    last = orders.append(b"5", txn_id=9)
    db = world.disturb()
    orders = db.log("orders")
    positions = [first, *others, last]
    assert positions == sorted(positions)
    assert [position.index for position in others] == [0, 1, 2]
    ids = [None, 7, 7, 7, 9]
    entries = [Entry(*entry) for entry in zip(positions, [b"1", b"2", LARGE, b"", b"5"], ids, strict=True)]
    assert list(orders.read()) == entries
    assert list(orders.read(reverse=True)) == entries[::-1]
    assert list(orders.read(others[0], limit=2)) == entries[2:4]
    assert list(orders.read(last)) == []
    assert [list(orders.read(from_txn_id=n)) for n in (0, 7, 8, 9, 10)] == [
        entries[1:],
        entries[1:],
        entries[4:],
        entries[4:],
        [],
    ]
    time = db.time_of(middle)
    assert time is not None
    later = [one for one in entries if (db.time_of(one.position.version) or time) > time]
    assert list(orders.read(since=time)) == later
    assert (len(orders), orders.first, orders.last) == (5, first, last)
    assert orders.stats() == LogStats(5, 2 + len(LARGE) + 1, first, last, 9)
    assert db.log("none").stats() == LogStats(0, 0, None, None, None)
    assert list(orders.subscribe(others[1], timeout=0)) == entries[3:]
    assert list(orders.subscribe(timeout=0)) == entries
    assert Position.parse(str(last)) == last


def test_an_entry_is_appended_with_other_keys_or_not_at_all(world: World) -> None:
    with world.db.transaction() as txn:
        txn.put(b"stock/7", b"3")
        txn.log("orders").append(b"sold", txn_id=4)
        txn.log("mail").append(b"thank you")
        txn.log("orders").append(b"left", txn_id=4)
    with contextlib.suppress(InterruptedError), world.db.transaction() as other:
        other.log("orders").append(b"never")
        raise InterruptedError
    db = world.disturb()
    assert txn.log("orders").appended == [Position(txn.version, 0), Position(txn.version, 1)]
    assert txn.log("mail").appended == [Position(txn.version, 0)]
    assert values(db) == [b"sold", b"left"]
    assert values(db, "mail") == [b"thank you"]
    assert db.get(b"stock/7") == b"3"
    assert values(db, from_txn_id=4) == [b"sold", b"left"]


def test_transaction_ids_do_not_decrease(world: World) -> None:
    orders = world.db.log("orders")
    orders.append(b"1", txn_id=5)
    orders.append(b"2")
    with pytest.raises(ValueError, match="4 comes after 5"):
        orders.append(b"3", txn_id=4)
    with pytest.raises(ValueError, match="8 comes after 9"), world.db.transaction() as txn:
        txn.log("orders").append(b"3", txn_id=9)
        txn.log("orders").append(b"4", txn_id=8)
    last = orders.append(b"3", txn_id=(1 << 64) - 1)
    orders.truncate(Position(last.version + 1, 0))
    db = world.disturb()
    assert values(db) == []
    with pytest.raises(ValueError, match="comes after"):
        db.log("orders").append(b"4", txn_id=5)


def test_two_writers_with_ids_conflict_and_keep_the_order(db: logdb.Database) -> None:
    orders = db.log("orders")
    with pytest.raises(logdb.ConflictError), db.transaction() as txn:
        txn.log("orders").append(b"late", txn_id=3)
        orders.append(b"early", txn_id=5)
    assert values(db) == [b"early"]


def test_writers_without_ids_do_not_conflict(db: logdb.Database) -> None:
    orders = db.log("orders")

    def write(number: int) -> None:
        for step in range(10):
            orders.append(b"%d.%d" % (number, step))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = values(db)
    assert len(found) == len(orders) == 40
    for number in range(4):
        own = [value for value in found if value.startswith(b"%d." % number)]
        assert own == [b"%d.%d" % (number, step) for step in range(10)]


def test_a_subscription_waits_for_entries(world: World) -> None:
    orders = world.db.log("orders")
    orders.append(b"0")
    reading = orders.subscribe()
    assert next(reading).value == b"0"
    positions = [orders.append(b"%d" % number) for number in range(1, 4)]
    world.db.put(b"elsewhere", b"x")
    world.db.log("other").append(b"x")
    assert [next(reading).position for _ in range(3)] == positions
    reading.close()  # type: ignore[attr-defined]


def test_a_log_is_truncated_and_deleted(world: World) -> None:
    orders, other = world.db.log("orders"), world.db.log("orders\0b")
    positions = [orders.append(b"%d" % number, txn_id=number // 2) for number in range(8)]
    kept = other.append(b"kept")
    orders.truncate(positions[5])
    world.db.compact()
    db = world.disturb()
    orders = db.log("orders")
    assert values(db) == [b"5", b"6", b"7"]
    assert (orders.first, orders.last, len(orders)) == (positions[5], positions[7], 3)
    assert values(db, from_txn_id=0) == values(db, from_txn_id=2) == [b"5", b"6", b"7"]
    assert values(db, from_txn_id=3) == [b"6", b"7"]
    assert values(db, after=positions[2]) == [b"5", b"6", b"7"]
    assert db.logs() == ["orders", "orders\0b"]
    orders.delete()
    assert db.logs() == ["orders\0b"]
    assert (orders.first, orders.last, len(orders)) == (None, None, 0)
    orders.append(b"new", txn_id=0)
    assert values(db) == [b"new"]
    assert [entry.position for entry in db.log("orders\0b").read()] == [kept]


def test_logs_are_listed_by_name(world: World) -> None:
    assert world.db.logs() == []
    names = ["a", "a\0", "a\0b", "b", "\xe4", "logdb.logs"]
    for name in names:
        world.db.log(name).extend([b"x", b"y"], txn_id=1 if name == "b" else None)
    world.db.log("empty").create()
    assert world.disturb().logs() == sorted([*names, "empty"])


def test_a_log_behaves_as_a_list(world: World) -> None:
    """The model: a list of entries, under random appends, transactions, truncations and compactions."""
    draw, db = Random(5), world.db
    model: list[Entry] = []
    last = 0
    for step in range(60):
        log, kind = db.log("orders"), draw.random()
        if kind < 0.4:
            txn_id = None if draw.random() < 0.5 else last + draw.choice([0, 1, 5])
            last = last if txn_id is None else txn_id
            value = b"%d" % step * draw.choice([1, 1, 3_000])
            key = draw.choice([None, b"", b"key"])
            model.append(Entry(log.append(value, txn_id=txn_id, key=key), value, txn_id, key))
        elif kind < 0.6:
            with db.transaction() as txn:
                some = [b"%d.%d" % (step, number) for number in range(draw.choice([1, 2, 5]))]
                for value in some:
                    txn.log("orders").append(value)
                txn.log("other").append(b"x")
            model += [Entry(at, value, None) for at, value in zip(txn.log("orders").appended, some, strict=True)]
        elif kind < 0.65 and model:
            before = draw.choice(model)[0]
            log.truncate(before)
            model = [entry for entry in model if entry[0] >= before]
        elif kind < 0.7:
            db.compact()
        elif kind < 0.75:
            db = world.disturb()
        elif model:
            start, limit = draw.choice(model), draw.choice([1, 3, None])
            assert list(log.read(start[0], limit=limit)) == model[model.index(start) + 1 :][:limit]
            wanted = draw.randint(0, last + 1)
            found = [at for at, entry in enumerate(model) if entry.txn_id is not None and entry.txn_id >= wanted]
            read = list(log.read(from_txn_id=wanted))
            assert read[-len(model[found[0] :]) :] == model[found[0] :] if found else set(read) <= set(model)
    log = db.log("orders")
    assert list(log.read()) == list(log.subscribe(timeout=0)) == model
    assert len(log) == len(model)


def test_arguments_that_make_no_sense(db: logdb.Database) -> None:
    log = db.log("orders")
    for name, error in ((7, TypeError), ("", ValueError)):
        with pytest.raises(error, match="name of a log"):
            db.log(name)  # type: ignore[arg-type]
    for value in ("text", None):
        with pytest.raises(TypeError, match="value of an entry"):
            log.append(value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="value of an entry"):
        log.append(bytes(logdb.MAX_VALUE_BYTES))
    for txn_id, error in ((-1, ValueError), (1 << 64, ValueError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="transaction id"):
            log.append(b"x", txn_id=txn_id)  # type: ignore[arg-type]
        with pytest.raises(error, match="transaction id"):
            list(log.read(from_txn_id=txn_id))  # type: ignore[arg-type]
    for after, error in (((1, -1), ValueError), (5, TypeError), ((1, "0"), TypeError)):
        with pytest.raises(error, match="after"):
            list(log.read(after))  # type: ignore[arg-type]
        with pytest.raises(error, match="before"):
            log.truncate(after)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one of"):
        list(log.read(Position(1, 0), from_txn_id=1))
    with pytest.raises(ValueError, match="not a position"):
        Position.parse("1")
    assert log.extend([]) == []
