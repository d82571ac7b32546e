"""Commands of replicated state machines against the number of replicas (Corfu's figure 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.clusters import Cluster
from benchmarks.corfu.effort import Effort, Progress
from benchmarks.corfu.replica import COMMAND, Commands, Executed
from benchmarks.ziplog.driver import Drivers


class Machines(NamedTuple):
    """Replicas in processes of their own. Commands per second that all offer together, and that each executes (mean,
    least and most); linearizable queries per second of all together."""

    engine: str
    replicas: int
    offered: float
    executed_per_s: float
    least_per_s: float
    most_per_s: float
    queries_per_s: float


def machines(clusters: Mapping[str, Cluster], effort: Effort, progress: Progress) -> list[Machines]:
    """The engines by turns, on logs that have nothing but commands."""
    found = []
    for replicas in effort.replicas:
        for engine, cluster in clusters.items():
            progress(f"State machines: {engine}, {replicas} replicas")
            load = Commands(cluster.endpoints, effort.commands, effort.seconds)
            drivers = Drivers({str(number): load for number in range(replicas)}, COMMAND)
            try:
                drivers.start()
                results = [Executed(*one) for one in drivers.outputs().values()]
            finally:
                drivers.close()
            rates = [one.commands_per_s for one in results]
            queries = sum([one.queries_per_s for one in results])
            offered = replicas * effort.commands
            mean = sum(rates) / replicas
            found.append(Machines(engine, replicas, offered, mean, min(rates), max(rates), queries))
    return found
