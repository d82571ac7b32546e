"""The contract of exclusive writers: the appends of a writer are refused once another one has taken over."""

from __future__ import annotations

import threading

import pytest

import logdb
from logdb.errors import LogDBError
from tests.harness.worlds import World


def values(db: logdb.Database) -> list[bytes]:
    return [entry.value for entry in db.log("orders").read()]


def test_a_writer_that_was_replaced_is_refused(world: World) -> None:
    assert world.db.log("orders", exclusive=True).claim() == 1
    db = world.disturb()
    first, second = (db.log("orders", exclusive=True) for _ in range(2))
    assert first.epoch is None
    position = first.append(b"1", txn_id=1, key=b"k")
    assert (first.epoch, first.last) == (2, position)
    second.extend([b"2", b"3"])
    assert second.epoch == 3
    with pytest.raises(logdb.WriterFenced, match="fenced") as refused:
        first.append(b"late")
    assert (refused.value.log, refused.value.epoch, refused.value.newest) == ("orders", 2, 3)
    for _ in range(2):
        with pytest.raises(logdb.WriterFenced):
            first.extend([b"late", b"late"])
    with pytest.raises(logdb.WriterFenced), db.transaction() as txn:
        txn.put(b"stock", b"3")
        first.within(txn).append(b"late")
    with db.transaction() as txn:
        txn.put(b"stock", b"4")
        second.within(txn).append(b"4")
    assert values(db) == [b"1", b"2", b"3", b"4"]
    assert db.get(b"stock") == b"4"
    assert first.claim() == 4
    first.append(b"5")
    with pytest.raises(logdb.WriterFenced):
        second.append(b"late")
    assert values(db)[4:] == [b"5"]
    assert db.logs() == ["orders"]


def test_a_transaction_under_way_conflicts_with_a_new_writer(db: logdb.Database) -> None:
    first, second = (db.log("orders", exclusive=True) for _ in range(2))
    first.claim()
    with pytest.raises(logdb.ConflictError), db.transaction() as txn:
        first.within(txn).append(b"late")
        second.claim()
    with pytest.raises(logdb.ConflictError), db.transaction() as txn:
        txn.get(b"a snapshot before the claim")
        first.claim()
        first.within(txn).append(b"early")
    assert values(db) == []


def test_a_log_that_is_deleted_keeps_its_epoch(db: logdb.Database) -> None:
    first, second = (db.log("orders", exclusive=True) for _ in range(2))
    first.append(b"1")
    second.append(b"2")
    db.log("orders").delete()
    assert db.logs() == []
    with pytest.raises(logdb.WriterFenced):
        first.append(b"late")
    second.append(b"3")
    assert values(db) == [b"3"]


def test_the_writers_of_a_log_do_not_mix(db: logdb.Database) -> None:
    """Each entry has the epoch of its writer: epochs do not decrease along the log."""

    def write() -> None:
        for _ in range(3):
            orders = db.log("orders", exclusive=True)
            try:
                for _ in range(10):
                    orders.epoch or orders.claim()
                    orders.append(b"%d" % (orders.epoch or 0))
            except logdb.WriterFenced:
                pass

    db.log("orders", exclusive=True).append(b"1")
    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    epochs = [int(value) for value in values(db)]
    assert epochs == sorted(epochs)
    assert epochs[-1] == 1 + 3 * 3


def test_a_log_is_claimed_before_a_transaction(db: logdb.Database) -> None:
    orders = db.log("orders", exclusive=True)
    with pytest.raises(LogDBError, match="claim the exclusive log"), db.transaction() as txn:
        orders.within(txn)
    with pytest.raises(TypeError, match="exclusive"):
        db.log("orders", exclusive=1)  # type: ignore[call-overload]
    with db.transaction() as txn:
        db.log("orders").within(txn).append(b"plain")
    assert values(db) == [b"plain"]
