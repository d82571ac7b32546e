"""The database on a cluster of real processes: each part is measured and reported separately (`PARTS`).

served   the workloads of `served`: three nodes of each engine, a process for each server; etcd (one node, three), Redis
cost     CPU time of each role for a committed transaction
hops     the latency of a commit with one client, hop by hop
leader   throughput over time; the ordering layer's leader is killed
node-*   throughput over time; one of three nodes is killed, on each engine
shards   throughput over time; a shard is added and one finalized
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.table import Table

import logdb.aio
from benchmarks import hops, served, timelines
from benchmarks.clusters import PROCESSES, Cluster, cpu_s
from benchmarks.servers import Server
from benchmarks.servers.cluster import LogDBCluster, MultiPaxosNodes, ScalogNodes
from benchmarks.servers.etcd import Etcd, EtcdCluster
from benchmarks.servers.redis import Redis

SERVERS: tuple[type[Server], ...] = (MultiPaxosNodes, ScalogNodes, LogDBCluster, Etcd, EtcdCluster, Redis)
CLIENTS = (1, 8, 64)
SCALE = served.Scale(keys=10_000, rounds=3, turn_s=1.0)
_LEAST: Mapping[str, Sequence[float]] = {
    "put": (0.7, 1.2, 3.0),
    "multi-put": (1.0, 2.0, 4.0),
    "get": (1.0, 1.5, 3.0),
    "multi-get": (1.0, 1.5, 3.0),
    "transaction": (0.8, 2.0, 8.0),
}
TARGETS = {
    (workload, clients, EtcdCluster.name): ratio
    for workload, ratios in _LEAST.items()
    for clients, ratio in zip(CLIENTS, ratios, strict=True)
}
Progress = Callable[[str], object]


class Found(Protocol):
    """The result of a part."""

    def table(self) -> Table: ...
    def markdown(self) -> str: ...
    def as_json(self) -> Any: ...


class Cost(NamedTuple):
    """CPU microseconds of all processes of a role for one committed transaction, with `clients` clients."""

    clients: int
    commits_per_s: float
    cpu_us: dict[str, float]


class Costs(NamedTuple):
    """See `Found`."""

    costs: list[Cost]

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """(headings, a row for each number of clients)."""
        roles = list(self.costs[0].cpu_us)
        rows = [
            [
                str(clients),
                f"{rate:,.0f}",
                *[f"{cpu_us[role]:,.0f}" for role in roles],
                f"{sum(cpu_us.values()):,.0f}",
            ]
            for clients, rate, cpu_us in self.costs
        ]
        return ["Clients", "Commits/s", *[f"{role}, us" for role in roles], "all, us"], rows

    def table(self) -> Table:
        headings, rows = self.rows()
        table = Table(*headings, title="CPU time of each role for a committed transaction")
        for row in rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        headings, rows = self.rows()
        lines = ["| " + " | ".join(headings) + " |", "|" + "---:|" * len(headings)]
        return "\n".join([*lines, *["| " + " | ".join(row) + " |" for row in rows]]) + "\n"

    def as_json(self) -> Any:
        return [cost._asdict() for cost in self.costs]


def cost(path: Path, seconds: float, progress: Progress) -> Costs:
    """Puts of 100 bytes, for the same time with each number of clients."""
    with Cluster(path, PROCESSES["scalog"]) as cluster:
        pids = {**cluster.pids(), "client": [os.getpid()]}
        return Costs(asyncio.run(_costs(cluster.endpoints, pids, seconds, progress)))


async def _costs(endpoints: str, pids: Mapping[str, Sequence[int]], seconds: float, progress: Progress) -> list[Cost]:
    costs = []
    async with await logdb.aio.connect(endpoints) as db:
        for count in CLIENTS:
            progress(f"CPU time with {count} clients")
            await _puts(db, count, seconds / 10)
            before = {role: cpu_s(ones) for role, ones in pids.items()}
            begun = time.perf_counter()
            done = await _puts(db, count, seconds)
            took = time.perf_counter() - begun
            cpu_us = {role: (cpu_s(ones) - before[role]) * 1e6 / done for role, ones in pids.items()}
            costs.append(Cost(count, done / took, cpu_us))
    return costs


async def _puts(db: logdb.aio.Database, count: int, seconds: float) -> int:
    done, end = 0, time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal done
        while True:
            await db.put(b"key-%d" % number, bytes(100))
            done += 1
            if time.perf_counter() > end:
                return

    await asyncio.gather(*[client(number) for number in range(count)])
    return done


class Served(NamedTuple):
    """See `Found`."""

    results: served.Results

    def table(self) -> Table:
        return self.results.table()

    def markdown(self) -> str:
        return served.markdown(self.results)

    def as_json(self) -> Any:
        return self.results.as_json()

    def plot(self, to: Path) -> None:
        """All workloads."""
        served.plot(self.results, to)


def _served(path: Path, quick: bool, progress: Progress) -> Found:
    return Served(served.measure(SERVERS, path, served.QUICK if quick else SCALE, progress, TARGETS))


def _cost(path: Path, quick: bool, progress: Progress) -> Found:
    return cost(path, 0.2 if quick else 10.0, progress)


def _hops(path: Path, quick: bool, progress: Progress) -> Found:
    return hops.measure(path, *((1, 20) if quick else (20, 50)), progress)


def _leader(path: Path, quick: bool, progress: Progress) -> Found:
    return timelines.leader_killed(path, 4.0 if quick else 30.0, progress)


def _node(engine: str) -> Callable[[Path, bool, Progress], Found]:
    return lambda path, quick, progress: timelines.node_killed(path, engine, 4.0 if quick else 30.0, progress)


def _shards(path: Path, quick: bool, progress: Progress) -> Found:
    return timelines.shards_changed(path, 2.0 if quick else 30.0, progress)


PARTS: Mapping[str, tuple[str, Callable[[Path, bool, Progress], Found]]] = {
    "served": ("The database on a cluster, against its peers", _served),
    "cost": ("Cost of a committed transaction by role", _cost),
    "hops": ("A commit with one client, hop by hop", _hops),
    "leader": ("The ordering layer's leader is killed", _leader),
    "node-corfu": ("A node of three is killed, Corfu", _node("corfu")),
    "node-multipaxos": ("A node of three is killed, Multi-Paxos", _node("multipaxos")),
    "node-scalog": ("A node of three is killed, Scalog", _node("scalog")),
    "node-ziplog": ("A node of three is killed, Ziplog", _node("ziplog")),
    "shards": ("A shard is added, and another one finalized", _shards),
}


def write(part: str, found: Found, to: Path) -> None:
    """cluster-PART.json, .md and, where there is a plot, .png."""
    to.mkdir(parents=True, exist_ok=True)
    title, _ = PARTS[part]
    (to / f"cluster-{part}.json").write_text(json.dumps(found.as_json()) + "\n")
    (to / f"cluster-{part}.md").write_text(f"# {title}\n\n{found.markdown()}")
    if isinstance(found, Served | timelines.Timeline):
        found.plot(to / f"cluster-{part}.png")
