"""The logs that implement the contract: the two of this process, and every engine of `ENGINES`, simulated and on
servers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from logdb.log import LocalLog, MemoryLog
from logdb.log.contract import Log, LogRecord, NotOfThisShard, OrderedLog, Reconfigurable, Record
from logdb.log.engine import Shape
from logdb.log.requests import AddShard
from tests.harness.clocks import Clock
from tests.harness.clusters import Cluster, ClusterLog
from tests.sim.engine import SimulatedLog
from tests.sim.engines import ENGINES as CLUSTER_ENGINES
from tests.sim.engines import simulation_of

JOIN_S = 60
MORE_SHARDS = 2
"""Number of shards that can be added with the spare servers of a cluster."""


def on_servers(shape: Shape) -> Callable[[Path, Clock], Reconfigurable]:
    """Builds a log on real servers, sockets and disks."""
    can_grow = AddShard in simulation_of(shape.engine).CHANGES
    spares = MORE_SHARDS * shape.replicas if can_grow else shape.spares
    shape = replace(shape, mapping=0, spares=spares)
    return lambda path, clock: ClusterLog(Cluster.of_shape(path, shape), shape.shards)


ORDERED: dict[str, Callable[[Path, Clock], OrderedLog]] = {
    "local": lambda path, clock: LocalLog(path, bytes(16), segment_bytes=1 << 10, clock=clock),
    "memory": lambda path, clock: MemoryLog(clock),
}
RECONFIGURABLE: dict[str, Callable[[Path, Clock], Reconfigurable]] = {}
ENGINE_OF: dict[str, str] = {}
for _engine in CLUSTER_ENGINES:
    _own = simulation_of(_engine)
    for _which, _simulated in _own.SHAPES.items():
        RECONFIGURABLE[f"{_engine}{_which}"] = lambda path, clock, at=(_engine, _simulated): SimulatedLog(*at)
    for _which in ("alone", "many"):
        RECONFIGURABLE[f"{_engine}-over-grpc-{_which}"] = on_servers(_own.CLUSTERS[_which])
    ENGINE_OF.update({name: _engine for name in RECONFIGURABLE if name not in ENGINE_OF})
ENGINES: dict[str, Callable[[Path, Clock], Log]] = {**ORDERED, **RECONFIGURABLE}


def changed_by(*changes: type) -> pytest.MarkDecorator:
    """Run a test that takes `log` on the engines that carry out these changes."""
    names = [name for name, engine in ENGINE_OF.items() if set(changes) <= set(simulation_of(engine).CHANGES)]
    return pytest.mark.parametrize("log", names, indirect=True)


def numbered(count: int, tag: int = 1) -> list[Record]:
    return [(tag, b"%d" % number) for number in range(count)]


def a_shard(log: Log) -> int:
    """A shard that accepts appends."""
    return min(log.view().active)


def read(log: Log, gsn: int) -> LogRecord:
    """The record at `gsn`, from the one shard that has it."""
    view, found = log.view(), []
    for shard in sorted(view.active | view.finalized):
        try:
            found.append(log.read_record(gsn, shard))
        except NotOfThisShard:
            continue
    (record,) = found
    return record


def all_records(log: Log) -> list[LogRecord]:
    """All records up to the tail."""
    tail, got = log.tail(), []
    for batch in log.subscribe(1):
        got.extend(batch.records)
        if batch.end > tail:
            break
    return [record for record in got if record.gsn <= tail]


def follow(log: Log, gsn: int, count: int, tags: Collection[int] | None = None) -> list[LogRecord]:
    """The next `count` records from `gsn` on. Checks that batches are contiguous."""
    subscription, at = log.subscribe(gsn, tags), gsn
    got: list[LogRecord] = []
    while len(got) < count:
        batch = next(subscription)
        assert batch.first == at < batch.end
        assert all(batch.first <= record.gsn < batch.end for record in batch.records)
        got.extend(batch.records)
        at = batch.end
    subscription.close()
    return got
