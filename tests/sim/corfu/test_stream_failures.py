"""The loss of log and stream replicas (PROTOCOL.md, Streams): vCorfu's promise, beside that of f + 1 log replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from logdb.log.corfu.storage.entry_store import EntryStore
from tests.sim.corfu.cluster import Cluster, Shape
from tests.sim.engine import SimulatedLog

PAYLOADS = [b"%d" % number for number in range(5)]
SOON_S = 5.0


@contextmanager
def a_log(f: int) -> Iterator[SimulatedLog]:
    """A log with one log shard and one stream replica, and spare units, with records of stream 7."""
    shape = Shape(clients=1, replicas=1, shards=1, f=f, spares=2, stream_shards=1)
    with closing(SimulatedLog("corfu", shape)) as log:
        for payload in PAYLOADS:
            log.append_to_streams([(1, payload)], [7])
        yield log


def lose(log: SimulatedLog, *, log_replica: bool = False, stream_replica: bool = False) -> None:
    """Lose the disks of a log replica and of the stream replica, for good."""
    cluster: Any = log.cluster
    assert isinstance(cluster, Cluster)
    shards = cluster.state.shards.values()
    lost = [config.units[0].address for config in shards if (stream_replica if config.holds_streams else log_replica)]
    for process in cluster.storage:
        if process.address in lost:
            process.kill()
            process.wipe()


def payloads(log: SimulatedLog) -> list[bytes]:
    """The records of the stream."""
    return [record.payload for record in log.read_stream(7, timeout=SOON_S).records]


@pytest.mark.parametrize("f", [0, 1])
def test_a_lost_stream_replica_is_rebuilt_from_the_log(f: int) -> None:
    with a_log(f) as log:
        lose(log, stream_replica=True)
        assert payloads(log) == PAYLOADS
        log.append_to_streams([(1, b"more")], [7])
        assert payloads(log) == [*PAYLOADS, b"more"]


def test_two_log_replicas_survive_the_loss_of_one_and_of_the_stream_replica() -> None:
    with a_log(1) as log:
        lose(log, log_replica=True, stream_replica=True)
        assert payloads(log) == PAYLOADS


@pytest.mark.parametrize("stream_replica", [True, False], ids=["with the stream replica", "alone"])
def test_one_log_replica_is_not_rebuilt_so_its_loss_stops_the_log(stream_replica: bool) -> None:
    """Two servers had each record. If both are lost, nothing has the records any more (vCorfu's weaker promise); the
    stream replica alone has them, but the log does not go on with it."""
    with a_log(0) as log:
        lose(log, log_replica=True, stream_replica=stream_replica)
        with pytest.raises(TimeoutError):
            payloads(log)
        cluster: Any = log.cluster
        left = [
            process.core.store.streams.positions(7, 0, 100) for process in cluster.storage if process.core is not None
        ]
        assert any(left) is not stream_replica


def test_a_subscription_gets_the_last_entry_though_its_commit_bit_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bit is not synced before the append returns. Nothing is behind the entry, so no later one shows the hole."""
    monkeypatch.setattr(EntryStore, "commit", lambda self, position: self.streams.uncommitted.discard(position))
    with a_log(0) as log:
        cluster: Any = log.cluster
        log_replicas = [one.units[0].address for one in cluster.state.shards.values() if not one.holds_streams]
        (log_replica,) = [one for one in cluster.storage if one.address in log_replicas]
        log_replica.kill()
        log_replica.start()
        monkeypatch.undo()
        batch = log.subscribe(log.tail()).poll(SOON_S)
        assert batch is not None
        assert [record.payload for record in batch.records] == PAYLOADS[-1:]
