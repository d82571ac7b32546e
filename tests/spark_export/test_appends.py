"""Appends in snapshots, changes and exports: Spark has the keys that the commits made."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import logdb
from logdb import Database
from spark_export import export_snapshot
from tests.harness.clusters import Cluster
from tests.harness.served import Served
from tests.spark_export.test_range_deletes import KEYS, check, opened, rows_of, states

PREFIXES = [b"k1", b"k2/", b""]


def write(db: Database, draw: Random, steps: int) -> None:
    for step in range(steps):
        kind = draw.random()
        if kind < 0.2:
            db.append(draw.choice(PREFIXES), b"%d" % step * draw.choice([1, 2_000]))
        elif kind < 0.3:
            db.delete_range(*sorted(draw.sample(KEYS, 2)))
        else:
            with db.transaction(label="order") as txn:
                txn.multi_put(dict.fromkeys(draw.sample(KEYS, draw.choice([0, 1, 3])), b"%d" % step))
                for _ in range(draw.choice([1, 1, 2, 30])):
                    txn.append(draw.choice(PREFIXES), b"%d" % step * draw.choice([1, 1, 2_000]))


@pytest.mark.parametrize("seed", range(3))
def test_of_a_directory(tmp_path: Path, seed: int) -> None:
    draw, path = Random(seed), tmp_path / "db"
    with opened(path) as db:
        write(db, draw, 40)
        check(str(path), states(db), draw)
        db.compact(draw.randint(1, db.version))
        write(db, draw, 10)
        check(str(path), states(db), draw)


def test_a_key_that_was_put_and_made_is_one_row(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        newest = db.put(b"k", b"0")
        with db.transaction() as txn:
            txn.append(b"k1", b"appended")
            txn.multi_put({b"k1" + (newest + 1).to_bytes(8) + bytes(4): b"put", b"k2": b"2"})
        assert db.get(txn.appended[0]) == b"appended"
        check(str(tmp_path / "db"), states(db), Random(1))


def test_of_a_server(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        write(db, Random(7), 30)
        known = states(db)
    served = Served(tmp_path / "db")
    try:
        check(served.address, known, Random(8))
    finally:
        served.close()


def test_of_a_cluster(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", aggregators=0, mapping=1)
    try:
        cluster.start(1)
        with logdb.connect(cluster.ordering[0]) as db:
            write(db, Random(9), 20)
            db.compact(db.version - 10)
            write(db, Random(10), 5)
            check(cluster.ordering[0], states(db), Random(11))
    finally:
        cluster.close()


def test_of_an_export(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with opened(path) as db:
        write(db, Random(3), 10)
        export_snapshot(path, tmp_path / "first")
        write(db, Random(4), 10)
        export_snapshot(path, tmp_path / "second", base=tmp_path / "first")
        assert rows_of(tmp_path / "second") == list(db.scan())
