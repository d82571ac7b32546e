"""The cold tier of a cluster of every engine: what compactions drop can be read there, and restored from it alone."""

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


KEYS = [b"a", b"b", b"deleted", b"large", b"missing", b"n"]


def everything(db: logdb.Database, versions: list[int]) -> dict:
    """The results of all kinds of reads of these versions."""
    found: dict = {}
    for version in versions:
        old = db.at(version)
        found[version] = (
            old.multi_get(KEYS),
            list(old.scan()),
            list(old.scan(b"b", b"m", reverse=True, limit=2)),
            old.multi_scan([(b"a", b"b"), (b"c", None)]),
            [entry[:2] for entry in old.history(b"n")],
            db.time_of(version),
        )
    found["histories"] = [[entry[:2] for entry in db.history(key)] for key in KEYS]
    found["changes"] = [list(db.watch(since=version, timeout=0)) for version in (0, versions[-1])]
    found["watched"] = list(db.watch(b"l", since=0, timeout=0))
    orders = db.log("orders")
    found["entries"] = list(orders.read()), list(orders.subscribe(after=orders.first, timeout=0))
    found["oldest"] = db.oldest_version
    return found


def test_what_a_compaction_drops_is_in_the_tier(cluster: Cluster, tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    with logdb.connect(cluster.mapping[0]) as db:
        versions = [db.put(b"a", b"1"), db.put(b"large", LARGE), db.add(b"n", 5), db.put(b"b", b"x", label="first")]
        versions += [db.put(b"deleted", b"soon"), db.log("orders").append(b"an order").version, db.delete(b"deleted")]
        versions += [db.put(b"large", LARGE[1:]), db.add(b"n", 2), db.delete_range(b"a", b"b")]
        versions += [db.log("orders").append(LARGE).version, db.put(b"a", b"2"), db.put(b"b", b"y")]
        some = versions[::4]
        before = everything(db, some)
        time = db.time_of(versions[4])
        at_time = dict(db.at(time=time).scan())
        assert db.compact().floor >= versions[-1]

        tier.rename(tmp_path / "moved")
        tier.write_text("a file, where a folder is needed")
        with pytest.raises(logdb.Unavailable, match=r"000001.json cannot be read"):
            db.at(versions[0])
        assert db.get(b"a") == b"2"
        tier.unlink()
        (tmp_path / "moved").rename(tier)
        (part,) = tier.glob("*.log")
        content = part.read_bytes()
        part.write_bytes(content[:-1])
        with pytest.raises(logdb.Corruption) as damage:
            db.at(versions[0]).get(b"a")
        assert damage.value.path == str(part)
        part.write_bytes(content)

        assert everything(db, some) == before
        assert dict(db.at(time=time).scan()) == at_time
        assert db.at(version=0).get(b"a") is None
        with pytest.raises(logdb.VersionTrimmed):
            db.pin("old", versions[0])
        db.put(b"a", b"3")
        rows = [dict(db.at(version).scan()) for version in versions[-2:]]
        db.compact()
        assert [dict(db.at(version).scan()) for version in versions[-2:]] == rows
        assert [entry.value for entry in db.history(b"a")] == [b"3", b"2", None, b"1"]
    for version in some:
        logdb.restore(tier, tmp_path / f"at {version}", version=version)
        with logdb.open(tmp_path / f"at {version}", read_only=True) as restored:
            assert list(restored.scan()) == before[version][1]
