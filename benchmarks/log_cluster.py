"""The shared log in real processes on this machine: what an append takes, and what a record costs each role.

Every server is a process of its own, with its journals on a disk and fsync on. The one client is this process. CPU
time is what the operating system has counted for each process, gRPC's own threads included.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.table import Table

from benchmarks.clusters import ROLES, Cluster, Shape, cpu_s
from logdb.log import connect

SHAPES = {
    "one of each": Shape(),
    "1 shard of 2, 1 ordering replica": Shape(storage=2, failures=1),
    "2 shards of 2, 3 ordering replicas, 1 aggregator": Shape(
        ordering=3, storage=4, aggregator=1, failures=1, shards=2
    ),
}


class ClusterFigure(NamedTuple):
    """Of appends of `records` records each, one after another. `cpu_us`: for each record, of the client and of all
    processes of each role together."""

    cluster: str
    records: int
    appends_per_s: float
    median_ms: float
    p99_ms: float
    cpu_us: dict[str, float]


def measure(path: Path, name: str, seconds: float = 3.0, record_bytes: int = 100) -> list[ClusterFigure]:
    """Batches of 1 and of 100 records, each for `seconds`, on the cluster of `SHAPES` with that name."""
    with Cluster(path, SHAPES[name]) as cluster, connect(cluster.endpoints) as log:
        pids = {**cluster.pids(), "client": [os.getpid()]}
        found = []
        for records in (1, 100):
            batch = [(1, bytes(record_bytes))] * records
            for _ in range(20):
                log.append(batch)
            before = {role: cpu_s(ones) for role, ones in pids.items()}
            took, end = [], time.perf_counter() + seconds
            while (begun := time.perf_counter()) < end:
                log.append(batch)
                took.append((time.perf_counter() - begun) * 1e3)
            appended = len(took) * records
            cpu_us = {role: (cpu_s(ones) - before[role]) * 1e6 / appended for role, ones in pids.items()}
            rate = len(took) / (sum(took) / 1e3)
            slow = sorted(took)[len(took) * 99 // 100]
            found.append(ClusterFigure(name, records, rate, median(took), slow, cpu_us))
        return found


def table(figures: Sequence[ClusterFigure]) -> Table:
    """For people. The last columns are CPU us for each record."""
    columns = (*[role for role in ROLES if role != "mapping"], "client")
    shown = Table("cluster", "records", "appends/s", "records/s", "median ms", "p99 ms", *columns, box=None)
    for name, records, rate, middle, p99, cpu_us in figures:
        rates = [str(records), f"{rate:,.0f}", f"{rate * records:,.0f}", f"{middle:.2f}", f"{p99:.2f}"]
        shown.add_row(name, *rates, *[f"{cpu_us[role]:,.1f}" if role in cpu_us else "" for role in columns])
    return shown
