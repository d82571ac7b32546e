"""The shared log in real processes on this machine: what an append takes, and what a record costs each role.

Every server is a process of its own, with its journals on a disk and fsync on. The one client is this process. CPU
time is what the operating system has counted for each process, gRPC's own threads included.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from rich.table import Table

from logdb.log import connect

TICKS_S = os.sysconf("SC_CLK_TCK")
READY_S = 30
ROLES = ("ordering", "storage", "aggregator")


class Shape(NamedTuple):
    """How many processes of each role; the storage servers form shards of `failures` + 1."""

    ordering: int = 1
    storage: int = 1
    aggregator: int = 0
    failures: int = 0

    @property
    def shards(self) -> int:
        """How many there will be."""
        return self.storage // (self.failures + 1)


SHAPES = {
    "one of each": Shape(),
    "1 shard of 2, 1 ordering replica": Shape(storage=2, failures=1),
    "2 shards of 2, 3 ordering replicas, 1 aggregator": Shape(ordering=3, storage=4, aggregator=1, failures=1),
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


@contextmanager
def running(path: Path, shape: Shape) -> Iterator[tuple[str, dict[str, list[int]]]]:
    """The cluster's processes. Gives an address of it, and the process ids by role."""
    names = [(role, f"{role[0]}{number}") for role in ROLES for number in range(1, getattr(shape, role) + 1)]
    lines = ["[cluster]", 'name = "benchmark"', f"failures = {shape.failures}"]
    addresses = {}
    with ExitStack() as held:
        for role, name in names:
            probe = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            addresses[name] = f"127.0.0.1:{probe.getsockname()[1]}"
            lines += [f"[{role}.{name}]", f'listen = "{addresses[name]}"']
    config = path / "cluster.toml"
    config.write_text("\n".join(lines) + "\n")
    processes: list[tuple[str, subprocess.Popen[str]]] = []
    try:
        for role, name in names:
            command = [sys.executable, "-m", "logdb_cli", "serve", role, "--config", str(config), "--name", name]
            errors = (path / f"{name}.log").open("w")
            processes.append((role, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)))
        for _, process in processes:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("ready"):
                raise RuntimeError(f"a server did not start; see the logs in {path}")
        yield (
            addresses["o1"],
            {
                role: [process.pid for kind, process in processes if kind == role]
                for role in ROLES
                if getattr(shape, role)
            },
        )
    finally:
        for _, process in processes:
            process.terminate()
        for _, process in processes:
            process.communicate()


def cpu_s(pids: list[int]) -> float:
    """What these processes have used."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS_S


def measure(path: Path, name: str, seconds: float = 3.0, record_bytes: int = 100) -> list[ClusterFigure]:
    """Batches of 1 and of 100 records, each for so many seconds, on the cluster of `SHAPES` with that name."""
    shape = SHAPES[name]
    path.mkdir(parents=True, exist_ok=True)
    with running(path, shape) as (address, pids), connect(address) as log:
        deadline = time.monotonic() + READY_S
        while len(log.configuration().spares) < shape.storage and time.monotonic() < deadline:
            time.sleep(0.05)
        for _ in range(shape.shards):
            log.add_shard()
        pids = {**pids, "client": [os.getpid()]}
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
            found.append(ClusterFigure(name, records, rate, median(took), quantiles(took, n=100)[-1], cpu_us))
        return found


def table(figures: Sequence[ClusterFigure]) -> Table:
    """For people. The last columns are CPU us for each record."""
    columns = (*ROLES, "client")
    shown = Table("cluster", "records", "appends/s", "records/s", "median ms", "p99 ms", *columns, box=None)
    for name, records, rate, middle, p99, cpu_us in figures:
        rates = [str(records), f"{rate:,.0f}", f"{rate * records:,.0f}", f"{middle:.2f}", f"{p99:.2f}"]
        shown.add_row(name, *rates, *[f"{cpu_us[role]:,.1f}" if role in cpu_us else "" for role in columns])
    return shown
