"""The cold tier of a cluster of every engine: what its compactions drop can be restored from the tier alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logdb
from logdb.log.engine import ENGINES
from tests.harness.clusters import Cluster
from tests.sim.engines import simulation_of

LARGE = b"large " * 2_000


@pytest.fixture(params=ENGINES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    shape = simulation_of(request.param).CLUSTERS["alone"]
    cluster = Cluster.of_shape(tmp_path / "cluster", shape, cold=(tmp_path / "tier").as_uri())
    cluster.start(shape.shards)
    yield cluster
    cluster.check()
    cluster.close()


def test_what_a_compaction_drops_is_in_the_tier(cluster: Cluster, tmp_path: Path) -> None:
    with logdb.connect(cluster.mapping[0]) as db:
        versions = [db.put(b"a", b"1"), db.put(b"large", LARGE), db.add(b"n", 5), db.add(b"n", 2)]
        versions += [db.delete_range(b"a", b"b"), db.put(b"a", b"2")]
        expected = {version: dict(db.at(version).scan()) for version in versions}
        db.compact()
        with pytest.raises(logdb.VersionTrimmed):
            db.at(versions[0]).get(b"a")
        newest = dict(db.scan())
    for number, (version, rows) in enumerate(expected.items()):
        logdb.restore(tmp_path / "tier", tmp_path / f"{number}", version=version)
        with logdb.open(tmp_path / f"{number}", read_only=True) as restored:
            assert dict(restored.scan()) == rows
    assert expected[versions[-1]] == newest
