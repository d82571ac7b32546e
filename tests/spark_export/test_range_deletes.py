"""Range deletes in snapshots, changes and exports: what Spark says of a version is what the database says."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

import logdb
from logdb import Database
from logdb.embedded import EmbeddedBackend
from logdb.store.records import COMPACTION, decode_compaction
from spark_export import export_snapshot
from tests.harness.clusters import Cluster
from tests.harness.opening import host_of
from tests.harness.served import Served
from tests.spark_export.planning import read

KEYS = [b"k%02d" % number for number in range(30)]
State = dict[bytes, bytes]


def write(db: Database, draw: Random, steps: int) -> None:
    for step in range(steps):
        kind = draw.random()
        if kind < 0.2:
            with db.transaction(label="range") as txn:
                start, end = sorted(draw.sample(KEYS, 2))
                txn.delete_range(draw.choice([start, None]), draw.choice([end, end, None]))
                for key in draw.sample(KEYS, draw.choice([0, 0, 2])):
                    txn.put(key, b"with it")
        elif kind < 0.3:
            db.delete(draw.choice(KEYS))
        else:
            db.multi_put({key: b"%d" % step * draw.choice([1, 1, 2_000]) for key in draw.sample(KEYS, 3)})


def states(db: Database) -> dict[int, State]:
    """The state at each version from the oldest on."""
    floor, newest = db.oldest_version, db.version
    return {version: dict(db.at(version).scan()) for version in range(floor, newest + 1)}


def check(place: str, known: dict[int, State], draw: Random) -> None:
    versions = sorted(known)
    for version in draw.sample(versions, 3):
        found = {row["key"]: row["value"] for row in read(place, versionAsOf=str(version))}
        assert found == known[version], version
    since, until = sorted(draw.sample(versions, 2))
    options = {"startingVersion": str(since + 1), "endingVersion": str(until), "readChangeFeed": "true"}
    state = dict(known[since])
    seen = 0
    for row in read(place, oldValues="true", **options):
        key, value, version, kind = row["key"], row["value"], row["_commit_version"], row["_change_type"]
        if version != seen:
            assert state == known[version - 1], version
            seen = version
        assert row["old_value"] == state.get(key), (key, version)
        assert kind == ("delete" if value is None else "update" if key in state else "insert")
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    assert state == known[until]
    plain = read(place, "key BINARY, value BINARY, _commit_version LONG", **options)
    state = dict(known[since])
    for row in plain:
        if row["value"] is None:
            state.pop(row["key"], None)
        else:
            state[row["key"]] = row["value"]
    assert state == known[until]


def opened(path: Path) -> Database:
    options = {"segment_bytes": 6_000}
    return logdb.Database(EmbeddedBackend.open(path, read_only=False, create=True, log_options=options))


@pytest.mark.parametrize("seed", range(4))
def test_of_a_directory(tmp_path: Path, seed: int) -> None:
    draw, path = Random(seed), tmp_path / "db"
    with opened(path) as db:
        write(db, draw, 40)
        check(str(path), states(db), draw)
        middle = draw.randint(1, db.version)
        db.compact(middle)
        write(db, draw, 10)
        check(str(path), states(db), draw)
        db.compact(draw.randint(db.oldest_version, db.version))
        check(str(path), states(db), draw)


def test_of_a_server(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        write(db, Random(7), 40)
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


def rows_of(directory: Path) -> list[tuple[Any, ...]]:
    found = [row for file in sorted(directory.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    return [(row["key"], row["value"]) for row in found]


def test_of_an_incremental_export(tmp_path: Path) -> None:
    draw, path = Random(3), tmp_path / "db"
    with opened(path) as db:
        db.multi_put(dict.fromkeys(KEYS, b"base"))
        export_snapshot(path, tmp_path / "first")
        db.delete_range(KEYS[3], KEYS[9])
        export_snapshot(path, tmp_path / "second", base=tmp_path / "first")
        assert rows_of(tmp_path / "second") == list(db.scan())
        write(db, draw, 20)
        export_snapshot(path, tmp_path / "third", base=tmp_path / "second")
        assert rows_of(tmp_path / "third") == list(db.scan())


def test_an_incremental_export_behind_a_compaction(tmp_path: Path, tasks: list[str]) -> None:
    """The compaction restates a range delete that is older than the base, which has a later version of a key."""
    with opened(tmp_path / "db") as db:
        kept = db.put(b"k", b"deleted")
        db.delete_prefix(b"k")
        for number in range(100):
            db.put(b"other %d" % (number % 10), bytes(100))
        db.compact(before=kept)
        db.put(b"k", b"again")
        base = export_snapshot(db.path, tmp_path / "first")
        db.compact(before=base.version)
        log = host_of(db).records
        *_, ended = [record for record in log.scan(log.oldest(), db.version + 1) if record.tag == COMPACTION]
        assert decode_compaction(ended.payload).deletes, "it restates no range delete"
        export_snapshot(db.path, tmp_path / "second", base=tmp_path / "first")
        assert rows_of(tmp_path / "second") == list(db.scan())
