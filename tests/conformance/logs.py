"""The engines that keep the log contract: whoever implements it joins by a line here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from logdb.log import LocalLog, MemoryLog
from logdb.log.contract import Log, LogRecord, NotOfThisShard, OrderedLog, Reconfigurable, Record
from tests.harness.clocks import Clock
from tests.harness.clusters import Cluster, ClusterLog
from tests.sim.cluster import Shape
from tests.sim.engine import SimulatedLog
from tests.sim.engines import ENGINES as CLUSTER_ENGINES
from tests.sim.engines import simulation_of

JOIN_S = 60


def simulated(engine: str, shape: Shape) -> Callable[[Path, Clock], Reconfigurable]:
    """On a simulated cluster, which has servers to spare for two more shards."""
    return lambda path, clock: SimulatedLog(engine, shape)


def over_grpc(engine: str, replicas: int, shards: int, f: int) -> Callable[[Path, Clock], Reconfigurable]:
    """On real servers, sockets and disks, which has servers to spare for two more shards."""
    storage = (shards + 2) * (f + 1)
    shape = {"engine": engine, "replicas": replicas, "storage": storage, "failures": f}
    return lambda path, clock: ClusterLog(Cluster(path, **shape), shards)


ORDERED: dict[str, Callable[[Path, Clock], OrderedLog]] = {
    "local": lambda path, clock: LocalLog(path, bytes(16), segment_bytes=1 << 10, clock=clock),
    "memory": lambda path, clock: MemoryLog(clock),
}
RECONFIGURABLE: dict[str, Callable[[Path, Clock], Reconfigurable]] = {}
for _engine in CLUSTER_ENGINES:
    for _which, _shape in simulation_of(_engine).SHAPES.items():
        RECONFIGURABLE[f"{_engine}{_which}"] = simulated(_engine, _shape)
    RECONFIGURABLE[f"{_engine}-over-grpc-alone"] = over_grpc(_engine, 1, 1, 0)
    RECONFIGURABLE[f"{_engine}-over-grpc"] = over_grpc(_engine, 3, 2, 1)
ENGINES: dict[str, Callable[[Path, Clock], Log]] = {**ORDERED, **RECONFIGURABLE}


def numbered(count: int, tag: int = 1) -> list[Record]:
    return [(tag, b"%d" % number) for number in range(count)]


def a_shard(log: Log) -> int:
    """One that takes appends."""
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


def follow(log: Log, gsn: int, count: int, tags: Collection[int] | None = None) -> list[LogRecord]:
    """So many records from `gsn` on; batches must follow each other."""
    subscription, at = log.subscribe(gsn, tags), gsn
    got: list[LogRecord] = []
    while len(got) < count:
        batch = next(subscription)
        assert batch.first == at < batch.end
        assert all(batch.first <= record.lsn < batch.end for record in batch.records)
        got.extend(batch.records)
        at = batch.end
    subscription.close()
    return got
