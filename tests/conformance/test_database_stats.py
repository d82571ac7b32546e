"""The Database contract, stats: the numbers that operators read agree with what was done."""

from __future__ import annotations

import pytest

import logdb
from tests.harness.worlds import World


def decide(db: logdb.Database) -> None:
    """Five commits, a condition that does not hold, and a conflict."""
    for number in range(5):
        db.put(b"k%d" % number, bytes(200))
    assert not db.test_and_multi_put([logdb.absent(b"k1")], {b"k1": b"x"}, label="create").committed
    with pytest.raises(logdb.ConflictError), db.transaction(label="late") as txn:
        txn.get(b"k2")
        db.put(b"k2", b"2")
        txn.put(b"k3", b"3")


def aborted(stats: logdb.Stats) -> set[tuple[str, str]]:
    return {(reason, label) for reason, label, _ in stats.aborts}


def test_stats_agree_with_what_was_done(world: World) -> None:
    db = world.db
    decide(db)
    # A mapping server that took a checkpoint meanwhile has not decided what that covers.
    while not {("condition", "create"), ("conflict", "late")} <= aborted(db.stats()):
        decide(db)
    db.pin("here")
    stats = db.stats()
    assert stats.path == db.path
    assert (stats.version, stats.oldest_version, stats.pins) == (db.version, 0, 1)
    assert stats.max_keys == 5
    assert stats.commits > 0
    assert all(number > 0 for _, _, number in stats.aborts)
    assert stats.log_bytes > 1_000
    assert stats.live_bytes > 800
    assert 0 <= stats.garbage <= 1
    assert stats.memory_bytes + stats.map_bytes > 1_000
    assert 0 < stats.read_s < 60
    assert (stats.sync_s is None) == (stats.process_bytes is None) == (stats.leased_snapshots is None)
    assert stats.process_bytes is None or stats.process_bytes > 1 << 20

    after = world.disturb().stats()
    assert after.version >= stats.version
    assert after.max_keys >= 5
    assert after.memory_bytes + after.map_bytes > 1_000


def test_stats_of_an_empty_and_of_a_closed_database(world: World) -> None:
    stats = world.db.stats()
    assert (stats.version, stats.max_keys, stats.commits, stats.aborts) == (world.db.version, 0, 0, [])
    world.db.close()
    with pytest.raises(logdb.DatabaseClosed):
        world.db.stats()
