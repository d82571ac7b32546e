"""Spark reads versions and changes that only the cold tier has, from a directory, a server and a cluster."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import logdb
from logdb.log.segments import segment
from spark_export.snapshot_source import close_sources
from tests.harness.clusters import Cluster
from tests.harness.opening import open_database
from tests.harness.served import Served
from tests.spark_export import histories, planning
from tests.spark_export.test_changes import FEED, watched
from tests.spark_export.test_stream import Query


def check(db: logdb.Database, where: str, versions: list[int]) -> None:
    for version in [*versions[::25], db.version]:
        rows = [(row["key"], row["value"]) for row in planning.read(where, versionAsOf=str(version))]
        assert rows == list(db.at(version).scan())
    first, last = versions[5], versions[-5]
    found = planning.read(where, startingVersion=str(first), endingVersion=str(last), **FEED)
    assert sorted(found, key=repr) == sorted(watched(db, first - 1, last), key=repr)
    query = Query(where, startingVersion="oldest")
    assert query.checkpoint == {"version": 0}
    assert sorted(query.batch(), key=repr) == sorted(watched(db, 0, db.version), key=repr)
    query.reader.stop()


def test_old_versions_of_a_directory_and_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 1 << 14)
    versions = []
    with open_database(tmp_path / "db", cold=tmp_path / "tier", segment_bytes=20_000) as db:
        for seed in range(3):
            versions += histories.write(db, Random(seed), 40)
            db.compact()
        assert db.oldest_version == 0
        check(db, db.path, versions)
        close_sources()
    server = Served(tmp_path / "db")
    try:
        with logdb.connect(server.address) as db:
            check(db, server.address, versions)
    finally:
        close_sources()
        server.close()


def test_old_versions_of_a_cluster(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", aggregators=0, mapping=1, cold=str(tmp_path / "tier"))
    try:
        cluster.start(1)
        with logdb.connect(cluster.ordering[0]) as db:
            versions = histories.write(db, Random(1), 30)
            db.compact()
            versions += histories.write(db, Random(2), 10)
            assert db.oldest_version == 0
            check(db, cluster.ordering[0], versions)
    finally:
        close_sources()
        cluster.close()
