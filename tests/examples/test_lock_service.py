"""The lock service runs on a log in memory and on a cluster, and its leases are those of the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples import lock_service
from examples.lock_service import LockTable
from logdb.system.addresses import location_of
from tests.harness.clusters import Cluster

MS = 1_000_000


def test_it_runs_on_a_log_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    lock_service.main([])
    assert "the storage refuses alice's late write" in capsys.readouterr().out


def test_it_runs_on_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(tmp_path)
    cluster.start(1)
    try:
        lock_service.main([location_of(cluster.ordering[0])])
    finally:
        cluster.close()
    assert "carol" in capsys.readouterr().out


def command(table: LockTable, time_ms: int, **request: object) -> object:
    return json.loads(table.apply(json.dumps(request).encode(), time_ms * MS))


def test_a_lease_ends_by_the_time_of_the_log() -> None:
    table = LockTable()
    acquire = {"name": "a", "lease_ms": 100}
    assert command(table, 0, **acquire, owner="alice") == ["alice", 1, 100 * MS]
    assert command(table, 99, **acquire, owner="bob") is None
    assert command(table, 99, **acquire, owner="alice") == ["alice", 1, 199 * MS]
    assert command(table, 199, **acquire, owner="bob") == ["bob", 2, 299 * MS]
    assert command(table, 200, name="a", token=1) is None
    again = LockTable()
    again.restore(table.snapshot())
    assert again.snapshot() == table.snapshot()
    assert command(again, 200, name="a", token=2) == ["bob", 2, 299 * MS]
    assert again.holder("a") is None
    with pytest.raises(ValueError, match="milliseconds"):
        command(table, 300, name="b", owner="alice", lease_ms=0)
