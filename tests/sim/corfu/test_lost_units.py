"""One unit that is removed while it is paused, and another one of its shard that loses its disk (PROTOCOL.md, Tolerated
losses)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from logdb.cores.effects import SECOND
from logdb.log import requests as calls
from logdb.log.contract import GENESIS, LogFailed
from logdb.log.corfu.projection import ShardConfig
from logdb.log.corfu.storage.copier import Copier
from tests.sim.corfu.cluster import Cluster, Shape
from tests.sim.engine import SimulatedLog
from tests.sim.process import Process

PAYLOADS = [b"%d" % number for number in range(5)]
SOON_S = 5.0


@contextmanager
def a_log(f: int, spares: int) -> Iterator[tuple[SimulatedLog, Cluster]]:
    """A log with one shard and some records."""
    with closing(SimulatedLog("corfu", Shape(clients=1, replicas=1, shards=1, f=f, spares=spares))) as log:
        log.append([(1, payload) for payload in PAYLOADS])
        assert isinstance(log.cluster, Cluster)
        yield log, log.cluster


def the_shard(cluster: Cluster) -> ShardConfig:
    """The only shard, in the newest projection."""
    (config,) = cluster.state.shards.values()
    assert isinstance(config, ShardConfig)
    return config


def unit(cluster: Cluster, place: int) -> Process:
    """The process of a unit of the chain."""
    address = the_shard(cluster).units[place].address
    return next(one for one in cluster.storage if one.address == address)


def wait(cluster: Cluster, condition: Callable[[], bool]) -> None:
    """Run the world until this holds."""
    cluster.world.run(cluster.world.now + 5 * SECOND, condition)
    assert condition()


def lose_disk(process: Process) -> None:
    """Lose the disk of a unit, for good."""
    process.kill()
    process.wipe()


def payloads(log: SimulatedLog) -> list[bytes]:
    """The records of the log."""
    batch = log.subscribe(GENESIS + 1).poll(SOON_S)
    if batch is None:
        raise TimeoutError
    return [record.payload for record in batch.records]


def remove_while_paused(cluster: Cluster) -> Process:
    """Pause the last unit until the next epoch has left it out. Returns it."""
    last = unit(cluster, -1)
    last.pause()
    wait(cluster, lambda: all(one.address != last.address for one in the_shard(cluster).units))
    return last


def test_of_three_units_one_pause_and_one_lost_disk_lose_nothing() -> None:
    with a_log(f=2, spares=0) as (log, cluster):
        paused = remove_while_paused(cluster)
        paused.resume()
        lose_disk(unit(cluster, 0))
        assert payloads(log) == PAYLOADS
        log.append([(1, b"more")])
        assert payloads(log) == [*PAYLOADS, b"more"]


@pytest.mark.parametrize("spares", [0, 1])
def test_of_two_units_one_pause_and_one_lost_disk_stop_the_log(spares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known limit. The log does not go on without the records: an epoch needs a unit with all of them (COR-5)."""
    monkeypatch.setattr(Copier, "_ask", lambda self, now: None)  # the copy takes long
    with a_log(f=1, spares=spares) as (log, cluster):
        left = unit(cluster, 0)
        paused = remove_while_paused(cluster)
        wipes = paused.wipes
        paused.resume()
        wait(cluster, lambda: bool(the_shard(cluster).joining) and paused.core is not None)
        cluster.world.run(cluster.world.now + SECOND)
        lose_disk(left)
        monkeypatch.undo()
        with pytest.raises(TimeoutError):
            payloads(log)
        with pytest.raises(LogFailed):
            log.call(calls.Append(((1, b"more"),)), SOON_S)
        assert paused.wipes - wipes == (not spares), "with a spare unit it keeps its disk, which nothing uses"
