"""Databases behind endpoints: tasks fetch the log, and their rows are those of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import logdb
from logdb import Database
from logdb.clients.cluster_backend import ClusterBackend
from logdb.cluster.client import requests as calls
from logdb.log.contract import NotOfThisShard
from logdb.log.requests import Read
from logdb.log.segments import segment
from spark_export import (
    ExportFailed,
    cluster_source,
    export,
    export_snapshot,
    import_export,
    remote_source,
    server_source,
    servers,
    verify_export,
)
from spark_export.snapshot_source import PlanRequest, close_sources, source_of
from spark_export.source import LogDBSource
from tests.harness.clusters import Cluster
from tests.harness.ports import free_addresses
from tests.harness.served import Served
from tests.spark_export import histories, planning
from tests.spark_export.test_changes import FEED, watched, with_images
from tests.spark_export.test_export import exported_rows, scanned_rows
from tests.spark_export.test_stream import Query

SMALL = {"partitionBytes": "20000"}


class Behind:
    """A database and its location."""

    def __init__(self, db: Database, endpoints: str, cluster: Cluster | None = None) -> None:
        self.db, self.endpoints, self.cluster = db, endpoints, cluster
        self._versions = histories.write(db, Random(31), 50)
        db.compact(self._versions[20])

    @property
    def versions(self) -> list[int]:
        """At least 50 readable versions. More are written after a test that has compacted the database."""
        self._versions = [version for version in self._versions if version > self.db.oldest_version]
        if len(self._versions) < 50:
            self._versions += histories.write(self.db, Random(32), 50)
        return self._versions

    def rows(self, **options: str) -> list[tuple[bytes, bytes]]:
        return [(row["key"], row["value"]) for row in planning.read(self.endpoints, **{**SMALL, **options})]


class Planned:
    """A DataFrame, with access to its partitions."""

    def __init__(self, endpoints: str, **options: str) -> None:
        source = LogDBSource({"endpoints": endpoints, **options})
        self._reader = source.reader(planning.struct("key BINARY, value BINARY"))
        self._partitions = self._reader.partitions()

    def rows(self) -> list[tuple[bytes, bytes]]:
        read = [row for part in self._partitions for batch in self._reader.read(part) for row in batch.to_pylist()]
        return [(row["key"], row["value"]) for row in read]


def disconnect() -> None:
    close_sources()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), storage=3, mapping=1, aggregators=0)
    cluster.start(2)
    with logdb.connect(cluster.mapping[0]) as db:
        yield Behind(db, ",".join(cluster.ordering), cluster)
    disconnect()
    cluster.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment, "ALLOCATE_BYTES", 1 << 14)
        served = Served(tmp_path_factory.mktemp("served"), log_options={"segment_bytes": 1 << 15})
        with logdb.connect(served.address) as db:
            yield Behind(db, served.address)
    disconnect()
    served.close()


@pytest.fixture(params=["cluster", "server"])
def behind(request: pytest.FixtureRequest) -> Behind:
    found: Behind = request.getfixturevalue(request.param)
    return found


def test_two_databases_in_turn_keep_their_connections(cluster: Behind, server: Behind) -> None:
    """A plan of one database does not end the leases of another one."""
    sources = [source_of(servers(behind.endpoints)) for behind in (cluster, server)]
    assert [source.version() for source in sources] == [cluster.db.version, server.db.version]
    assert source_of(servers(cluster.endpoints)) is sources[0]


def test_snapshots(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    db, versions = behind.db, behind.versions
    monkeypatch.setattr(remote_source, "ABORTED_PER_REQUEST", 7)
    assert behind.rows() == list(db.scan())
    for version in (db.oldest_version, versions[10], versions[40]):
        assert behind.rows(versionAsOf=str(version)) == list(db.at(version).scan())
    assert behind.rows(prefix="a/", endKey="a/060") == list(db.scan(start=b"a/", end=b"a/060"))
    assert len(list(planning.partitions(behind.endpoints, **SMALL))) > 1


def test_changes_with_labels(behind: Behind) -> None:
    db, versions = behind.db, behind.versions
    given = {**FEED, **SMALL, "labels": "true"}
    for first, last in ((db.oldest_version + 1, db.version), (versions[12], versions[30])):
        rows = planning.read(behind.endpoints, startingVersion=str(first), endingVersion=str(last), **given)
        labels = {row["_commit_version"]: row.pop("_commit_label") for row in rows}
        assert rows == watched(db, first - 1, last)
        commits = {commit.version: commit.label for commit in db.watch(since=first - 1, timeout=0)}
        assert labels == {version: commits[version] for version in labels}
        assert set(labels.values()) == {"", "several"}


def test_a_listing_of_versions_and_images_from_a_time_on(behind: Behind) -> None:
    db, versions = behind.db, behind.versions
    first = versions[10]
    expected = [(change.version, change.label, len(change.changes)) for change in db.watch(since=first - 1, timeout=0)]
    times = {"startingTimestamp": str(db.time_of(first)), **SMALL}
    rows = planning.read(behind.endpoints, listing="versions", **times)
    assert [(row["version"], row["label"], row["keys"]) for row in rows] == expected
    rows = planning.read(behind.endpoints, readChangeFeed="true", updateImages="true", **times)
    assert rows == with_images(watched(db, first - 1, db.version))


def test_a_stream_continues_while_shards_are_added_and_finalized(behind: Behind) -> None:
    db, rng = behind.db, Random(33)
    query = Query(behind.endpoints, maxRowsPerTrigger="15", **SMALL)
    begin = query.checkpoint["version"]
    seen: list[dict[str, Any]] = []
    for step in range(3):
        histories.write(db, rng, 8)
        if behind.cluster is not None:
            with behind.cluster.connect() as log:
                if step == 0:
                    log.add_shard()
                if step == 1:
                    log.finalize_shard(1)
        seen += query.batch(commit=step != 1)
        if step == 1:  # it fails before that batch is committed
            query.reader.stop()
            query = Query(behind.endpoints, query.checkpoint, maxRowsPerTrigger="15", **SMALL)
            again = query.batch()
            assert seen[-len(again) :] == again
    while rows := query.batch():
        seen += rows
    query.reader.stop()
    assert seen == watched(db, begin, db.version)


@pytest.mark.usefixtures("tasks")
def test_exports_full_incremental_and_with_a_history_that_is_imported(behind: Behind, tmp_path: Path) -> None:
    db, where, middle = behind.db, servers(behind.endpoints), behind.versions[25]
    export_snapshot(where, tmp_path / "full", version=middle, file_bytes=20_000)
    assert exported_rows(tmp_path / "full") == scanned_rows(db, middle)
    export_snapshot(where, tmp_path / "next", base=tmp_path / "full", file_bytes=20_000)
    assert exported_rows(tmp_path / "next") == scanned_rows(db, db.version)
    done = export_snapshot(where, tmp_path / "history", history=True, file_bytes=20_000)
    assert done == verify_export(tmp_path / "history")
    with logdb.open(":memory:") as back:
        import_export(back, tmp_path / "history")
        expected = [(commit.changes, commit.label) for commit in db.watch(since=db.oldest_version, timeout=0)]
        found = [(commit.changes, commit.label) for commit in back.watch(since=0, timeout=0)]
    assert found[-len(expected) :] == expected
    assert {label for _, label in found} == {"", "several"}


def test_errors_name_the_version_or_the_address(behind: Behind) -> None:
    oldest, newest = behind.db.oldest_version, behind.db.version
    with pytest.raises(
        logdb.VersionTrimmed, match=f"version 1 was compacted away; the oldest version left is {oldest}"
    ):
        behind.rows(versionAsOf="1")
    with pytest.raises(logdb.FutureVersion, match=f"version 99999 does not exist yet; the newest is {newest}"):
        behind.rows(versionAsOf="99999")
    with pytest.raises(ValueError, match=r"path.*or.*endpoints"):
        LogDBSource({"endpoints": behind.endpoints, "path": "data"})
    unused = next(free_addresses())
    with pytest.raises(logdb.Unavailable, match=rf"{unused} .*(refused|connect)"):
        planning.read(unused, timeout="1")


def test_a_compaction_between_planning_and_reading_and_between_two_uses(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here only a pin keeps the version. A task that has not started plans again, and the runs of a first use have
    locations of large values that compaction has moved."""
    db = behind.db
    monkeypatch.setattr(remote_source, "PLANNER_LEASE_S", 0)
    disconnect()
    db.put(b"large", bytes(20_000))
    version = db.pin("kept", db.put(b"later", b""))
    expected = list(db.at(version).scan())
    given = {**SMALL, "versionAsOf": str(version)}
    used, planned = Planned(behind.endpoints, **given), Planned(behind.endpoints, **given)
    assert used.rows() == expected
    while db.compact().floor < version:  # until earlier leases have ended
        pass
    assert planned.rows() == expected
    assert used.rows() == expected
    db.unpin("kept")
    gone = Planned(behind.endpoints, **SMALL)
    for _ in range(3):  # a server's directory is trimmed in whole files
        version = db.put(b"later", bytes(40_000))
    while db.compact().floor < version:
        pass
    with pytest.raises(logdb.VersionTrimmed, match="was compacted away"):
        gone.rows()


def test_a_compaction_that_begins_before_the_lease_is_received(
    cluster: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The floor moves between the request for it and the lease."""
    db = cluster.db
    disconnect()
    version = db.pin("asked", db.put(b"asked", b""))
    call, floors = ClusterBackend.call, list[int]()

    async def overtaken(host: ClusterBackend, request: Any) -> Any:
        answer = await call(host, request)
        if isinstance(request, calls.Oldest) and not floors:
            floors.append(answer.version)
            while floors[-1] < version:  # until the leases of earlier tests have ended
                floors.append((await asyncio.to_thread(db.compact)).floor)
        return answer

    monkeypatch.setattr(ClusterBackend, "call", overtaken)
    plan = source_of(servers(cluster.endpoints)).plan(PlanRequest(version=version, part_bytes=20_000))
    assert plan.floor == floors[-1] == version, floors
    db.unpin("asked")


@pytest.mark.parametrize("error", [logdb.Unavailable("no server answers"), logdb.VersionTrimmed(1, 2)])
def test_a_stream_that_cannot_look_up_old_values_fails(
    behind: Behind, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    query = Query(behind.endpoints)
    behind.db.put(next(behind.db.scan())[0], b"updated")
    with monkeypatch.context() as patched, pytest.raises(type(error)):
        patched.setattr(remote_source.RemoteSource, "values_at", fail)
        query.batch()
    assert [row["_change_type"] for row in query.batch()] == ["update"]
    query.reader.stop()


def test_a_stream_leases_only_its_offset(server: Behind) -> None:
    disconnect()
    query = Query(server.endpoints)
    for _ in range(2):
        server.db.put(b"followed", b"")
        assert query.batch()
        source = source_of(servers(server.endpoints))
        assert isinstance(source, server_source.ServerSource)
        assert [held.version for held in source._host._leases.values()] == [query.checkpoint["version"]]
    query.reader.stop()


def test_a_failed_plan_leaves_no_lease(cluster: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    disconnect()
    call, hold, end = ClusterBackend.call, ClusterBackend.lease, ClusterBackend.end
    holders: list[object] = []

    async def compacting(host: ClusterBackend, request: Any) -> Any:
        answer = await call(host, request)
        return answer._replace(cleaned=0) if isinstance(request, calls.Oldest) else answer

    def holding(host: ClusterBackend, holder: object, version: int) -> None:
        holders.append(holder)
        hold(host, holder, version)

    def ending(host: ClusterBackend, holder: object) -> None:
        holders[:] = [other for other in holders if other is not holder]
        end(host, holder)

    monkeypatch.setattr(remote_source, "PLANNER_LEASE_S", 0)
    monkeypatch.setattr(cluster_source, "COMPACTION_TIMEOUT_S", 0.5)
    monkeypatch.setattr(ClusterBackend, "call", compacting)
    monkeypatch.setattr(ClusterBackend, "lease", holding)
    monkeypatch.setattr(ClusterBackend, "end", ending)
    with pytest.raises(logdb.Unavailable, match=r"a compaction of .* has not ended within 0\.5 s"):
        cluster.rows()
    assert source_of(servers(cluster.endpoints)).version()  # the cluster still answers
    assert not holders


def test_large_values_of_a_removed_shard(cluster: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has become a spare again no longer has the records of its former shard."""
    put = ClusterBackend.put

    def gone(host: ClusterBackend, request: Any, timeout_s: float | None) -> asyncio.Future[Any]:
        if not isinstance(request, Read):
            return put(host, request, timeout_s)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(NotOfThisShard(request.gsn, request.shard))
        return answer

    cluster.db.put(b"large", bytes(20_000))
    monkeypatch.setattr(ClusterBackend, "put", gone)
    assert cluster.rows() == list(cluster.db.scan())


def test_an_export_whose_server_stops_fails(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops between planning and the first task, which runs in another process."""
    assert spark
    served, run = Served(tmp_path / "served"), export._run
    with logdb.connect(served.address) as db:
        db.put(b"k", b"v")

    def run_without(plan: Any, tasks: Any) -> Any:
        served.close()
        return run(plan, tasks)

    monkeypatch.setattr(export, "_run", run_without)
    message = rf"Spark could not write the export: logdb\.errors\.Unavailable: {served.address} cannot be reached"
    with pytest.raises(ExportFailed, match=message):
        export_snapshot(servers(served.address, timeout_s=1), tmp_path / "to")
    disconnect()
