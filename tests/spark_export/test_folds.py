"""Folds in snapshots, changes and exports of a cluster, whose log has the folds and not their values."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import logdb
from logdb import Database
from tests.harness.clusters import Cluster
from tests.spark_export.test_range_deletes import KEYS, check, states


def write(db: Database, draw: Random, steps: int) -> None:
    for step in range(steps):
        kind = draw.random()
        if kind < 0.2:
            db.delete_range(*sorted(draw.sample(KEYS, 2)))
        elif kind < 0.3:
            db.put(b"text", b"x")
            with pytest.raises(logdb.NotANumber):
                db.add(b"text", 1)
        else:
            with db.transaction(label="count") as txn:
                txn.add(draw.choice(KEYS), step)
                txn.max(b"k newest", step)
                txn.append(b"k log/", b"%d" % step)


def test_of_a_cluster(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", aggregators=0, mapping=1)
    try:
        cluster.start(1)
        with logdb.connect(cluster.ordering[0]) as db:
            write(db, Random(1), 20)
            db.compact(db.version - 8)
            write(db, Random(2), 5)
            check(cluster.ordering[0], states(db), Random(3))
    finally:
        cluster.close()
