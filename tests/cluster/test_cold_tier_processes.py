"""The cold tier of a running cluster: a store that is away, a server that is killed while it copies, and S3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import logdb
from tests.harness.cluster_processes import Processes
from tests.harness.clusters import Cluster
from tests.harness.object_store import BUCKET, names_in, object_store


def has_failed(processes: Processes, name: str) -> bool:
    """Whether this server has failed to write the tier. Without a tier in the log it has no such metric."""
    is_attached = "logdb_cold_failures" in processes.metrics_of(name)
    return is_attached and processes.metric(name, "logdb_cold_failures") > 0


def test_a_compaction_waits_for_the_store_and_is_taken_over(tmp_path: Path) -> None:
    tier = tmp_path / "store" / "tier"
    tier.parent.write_text("a file, where a folder is needed")
    shape = {"ordering": 1, "storage": 1, "aggregators": 0, "failures": 0, "mapping": 2}
    with (
        ThreadPoolExecutor(1) as thread,
        Processes(tmp_path, policy="finalize-and-add", cold=str(tier), **shape) as processes,
    ):
        processes.start_all()
        with logdb.connect(processes.addresses["m1"]) as db, logdb.log.connect(processes.addresses["s1"]) as log:
            while not log.configuration().spares:
                pass
            log.add_shard()
            first, second = db.put(b"k", b"1"), db.put(b"k", b"2")
            compacting = thread.submit(db.compact)
            while not (failing := [name for name in ("m1", "m2") if has_failed(processes, name)]):
                pass
            (name,) = failing
            assert "the cold tier cannot be written; compactions wait" in processes.log(name)
            assert log.oldest() == 1
            assert db.at(first).get(b"k") == b"1"
            with pytest.raises(logdb.Unavailable, match="the cold tier cannot be written"):
                compacting.result()
            tier.parent.unlink()
            processes.kill(name)
            assert db.compact().oldest_after > first
            assert log.oldest() > first
            assert processes.metric("m2" if name == "m1" else "m1", "logdb_cold_gsn") >= second
    for version, value in ((first, b"1"), (second, b"2")):
        logdb.restore(tier, tmp_path / f"at {version}", version=version)
        with logdb.open(tmp_path / f"at {version}", read_only=True) as restored:
            assert restored.get(b"k") == value


def test_old_versions_are_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = b"large" * 1_000
    with object_store(monkeypatch) as store:
        cluster = Cluster(tmp_path / "cluster", aggregators=0, mapping=1, cold=f"{BUCKET}/tier")
        try:
            cluster.start(1)
            with logdb.connect(cluster.mapping[0], timeout=60) as db:
                versions = [db.put(b"k", value) for value in (b"1", large, b"3")]
                db.compact()
                assert [name[:6] for name in names_in("tier")] == ["000001", "000001"]
                assert [db.at(version).get(b"k") for version in versions] == [b"1", large, b"3"]
                assert [change.version for change in db.watch(since=0, timeout=0)] == versions
                store.stop()
                assert db.get(b"k") == b"3"
                assert db.at(versions[1]).get(b"k") == large  # which the server has in memory
            cluster.check()
        finally:
            cluster.close()
