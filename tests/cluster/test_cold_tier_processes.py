"""The cold tier of a cluster of processes: a store that is away, and a server that is killed while it copies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import logdb
from tests.harness.cluster_processes import Processes


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
