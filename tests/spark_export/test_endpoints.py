"""Databases behind endpoints: tasks fetch the log themselves, and what they make of it is what the database says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

import logdb
from logdb import Database
from spark_export import remote
from tests.net.clusters import Cluster
from tests.net.serving import Served
from tests.spark_export import histories, planning

SMALL = {"partitionBytes": "20000"}


class Behind:
    """A database and where it is; `versions`: those of a history that was written."""

    def __init__(self, db: Database, endpoints: str) -> None:
        self.db, self.endpoints = db, endpoints
        self.versions = histories.write(db, Random(31), 80)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    served = Served(tmp_path_factory.mktemp("served"), log_options={"segment_bytes": 1 << 16})
    with logdb.connect(served.address) as db:
        yield Behind(db, served.address)
    disconnect()
    served.close()


def disconnect() -> None:
    for source in remote._sources.values():
        source.close()
    remote._sources.clear()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    servers = Cluster(tmp_path_factory.mktemp("cluster"), storage=2, mapping=1, aggregators=0)
    servers.start(2)
    with logdb.connect(servers.mapping[0]) as db:
        yield Behind(db, ",".join(servers.ordering))
    disconnect()
    servers.close()


@pytest.fixture(params=["cluster", "server"])
def behind(request: pytest.FixtureRequest) -> Behind:
    found: Behind = request.getfixturevalue(request.param)
    return found


def rows(behind: Behind, **options: str) -> list[tuple[bytes, bytes]]:
    return [(row["key"], row["value"]) for row in planning.read(behind.endpoints, **SMALL, **options)]


def test_snapshots(behind: Behind) -> None:
    db, versions = behind.db, behind.versions
    assert rows(behind) == list(db.scan())
    for version in (0, 1, versions[30], versions[60]):
        assert rows(behind, versionAsOf=str(version)) == list(db.at(version).scan())
    assert rows(behind, prefix="a/", endKey="a/060") == list(db.scan(start=b"a/", end=b"a/060"))
    parts = planning.partitions(behind.endpoints, **SMALL)
    assert len(list(parts)) > 1
