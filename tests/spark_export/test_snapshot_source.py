"""The contract of `SnapshotSource`, for a directory, a server of a directory, and a cluster."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import logdb
from logdb import Database
from spark_export import remote_source, servers
from spark_export.decoding import EVERYTHING, decoded
from spark_export.snapshot_source import Location, PlanRequest, SnapshotSource, close_sources, source_of
from tests.harness.clusters import Cluster
from tests.harness.served import Served
from tests.spark_export import histories

PART_BYTES = 20_000


class Sourced(NamedTuple):
    """A database with a history, the versions of its commits, and its location."""

    db: Database
    versions: list[int]
    location: Location

    @property
    def source(self) -> SnapshotSource:
        """The source of the database, also after another test has closed all sources."""
        return source_of(self.location)

    def rows(self, request: PlanRequest) -> list[tuple[bytes, bytes]]:
        with self.source.plan(request._replace(part_bytes=PART_BYTES)).job() as plan:
            return histories.rows(plan)


@contextmanager
def directory(folder: Path) -> Iterator[Sourced]:
    with logdb.open(folder / "db") as db:
        yield Sourced(db, histories.write(db, Random(71), 60), Path(db.path))
        close_sources()


@contextmanager
def server(folder: Path) -> Iterator[Sourced]:
    served = Served(folder)
    with logdb.connect(served.address) as db:
        yield Sourced(db, histories.write(db, Random(72), 60), servers(served.address))
    close_sources()
    served.close()


@contextmanager
def cluster(folder: Path) -> Iterator[Sourced]:
    cluster = Cluster(folder, storage=2, mapping=1, aggregators=0)
    cluster.start(2)
    with logdb.connect(cluster.mapping[0]) as db:
        yield Sourced(db, histories.write(db, Random(73), 60), servers(cluster.ordering))
    close_sources()
    cluster.close()


WORLDS = {"directory": directory, "server": server, "cluster": cluster}


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_source, "PLANNER_LEASE_S", 0)


@pytest.fixture(scope="module", params=WORLDS)
def sourced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sourced]:
    """For tests that only read or write."""
    with WORLDS[request.param](tmp_path_factory.mktemp(request.param)) as sourced:
        yield sourced


@pytest.fixture(params=WORLDS)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sourced]:
    """For a test that compacts."""
    with WORLDS[request.param](tmp_path) as sourced:
        yield sourced


def test_a_plan_is_of_the_newest_version_a_version_or_a_time(sourced: Sourced) -> None:
    db, version = sourced.db, sourced.versions[30]
    assert sourced.rows(PlanRequest()) == list(db.scan())
    assert sourced.rows(PlanRequest(version=version)) == list(db.at(version).scan())
    with sourced.source.plan(PlanRequest(version=version)).job() as plan:
        assert (plan.version, plan.location) == (version, sourced.source.location)
        time_ns = plan.time
        assert time_ns is not None
    when = dt.datetime.fromtimestamp(time_ns / 1e9, dt.UTC) + dt.timedelta(microseconds=1)
    at_time = sourced.rows(PlanRequest(time_ns=round(when.timestamp() * 1e9)))
    assert at_time == list(db.at(time=when).scan())


def test_versions_that_cannot_be_planned(sourced: Sourced) -> None:
    source, newest = sourced.source, sourced.db.version
    with pytest.raises(logdb.FutureVersion, match=f"version 99999 does not exist yet; the newest is {newest}"):
        source.plan(PlanRequest(version=99_999))
    with pytest.raises(ValueError, match=f"no changes after version {newest} up to version {newest - 1}"):
        source.plan(PlanRequest(version=newest - 1, since=newest))


def test_the_parts_of_changes_have_every_commit_once(sourced: Sourced) -> None:
    db, since, until = sourced.db, sourced.versions[10], sourced.versions[40]
    expected = {(commit.version, key) for commit in db.watch(since=since, timeout=0) for key in commit.changes}
    source = sourced.source
    for changes_only in (False, True):
        source.lease("stream", since)
        request = PlanRequest(version=until, since=since, changes_only=changes_only, part_bytes=PART_BYTES)
        with source.plan(request).job() as plan:
            batches = [
                batch for part in plan.parts for batch in decoded(plan, part, EVERYTHING, copies=False, after=since)
            ]
        source.release("stream")
        found = [(row["version"], row["key"]) for batch in batches for row in batch.to_pylist()]
        assert sorted(found) == sorted(one for one in expected if one[0] <= until)


def test_commits_are_those_that_were_applied_and_aborted_ones_which_the_source_names(sourced: Sourced) -> None:
    """A source of a cluster leaves the aborted ones out itself."""
    db, since = sourced.db, sourced.versions[0]
    applied = {commit.version for commit in db.watch(since=since, timeout=0)}
    commits = {gsn for gsn, _ in sourced.source.commits(since + 1, db.version + 1)}
    sourced.source.release("nothing")
    with sourced.source.plan(PlanRequest()).job() as plan:
        aborted = {
            gsn
            for part in plan.parts
            for gsn in sourced.source.aborted(plan, part, max(part.first, since + 1), part.end)
            if since < gsn <= plan.version
        }
    assert aborted or commits == applied
    assert commits - aborted == applied


def test_values_at_a_version(sourced: Sourced) -> None:
    db, version = sourced.db, sourced.versions[30]
    keys = [key for key, _ in db.scan()] + [b"never"]
    expected = list(db.at(version).multi_get(keys).items())
    assert sorted(sourced.source.values_at(version, keys, with_values=True) or ()) == sorted(expected)
    found = sourced.source.values_at(version, keys, with_values=False) or ()
    assert sorted(key for key, _ in found) == sorted(key for key, _ in expected)
    sourced.source.release("nothing")


def test_a_lease_keeps_its_version_from_compaction_until_its_release(own: Sourced) -> None:
    db, source = own.db, own.source
    while db.compact(own.versions[1]).floor < own.versions[1]:  # until the leases of planners have ended
        pass
    oldest = source.lease_oldest("first")
    assert oldest == db.oldest_version > 0
    early, late = db.put(b"held", b"1"), db.put(b"held", b"2")
    source.lease("second", late)
    db.compact(late)
    assert source.at(oldest) == db.oldest_version == oldest
    source.lease("first", late)  # a holder has one version
    source.release("second")
    while db.compact().floor < late:  # until servers have received the new lease
        pass
    assert db.oldest_version == late
    with pytest.raises(logdb.VersionTrimmed, match=f"version {early} was compacted away"):
        source.at(early)
    with pytest.raises(logdb.VersionTrimmed, match=f"version {early} was compacted away"):
        source.plan(PlanRequest(version=early))
    assert source.lease_oldest("first") == late
    newest = db.put(b"held", b"3")
    source.release("first")
    source.release("first")
    while db.compact().floor < newest:
        pass
