"""All parts of the measurement, in clusters that are shared by as many of them as possible."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.clusters import Cluster
from benchmarks.corfu.effort import CORFU, SCALOG, Effort, Progress, shards_of_two
from benchmarks.corfu.machines import Machines, machines
from benchmarks.corfu.objects import ONE_SHARD, VCORFU, OneObject, one_object
from benchmarks.corfu.pauses import Holes, Pauses, failures, holes, reconfigurations
from benchmarks.corfu.scaling import Scaling, TokenRate, scaling, token_rates
from benchmarks.corfu.stores import MultiKey, multi_keys


class Measured(NamedTuple):
    """Everything."""

    scaling: list[Scaling]
    tokens: list[TokenRate]
    reconfigured: list[Pauses]
    failed: list[Pauses]
    holes: Holes
    stores: list[MultiKey]
    machines: list[Machines]
    objects: list[OneObject]


def measure(path: Path, effort: Effort, progress: Progress) -> Measured:
    """Measure all parts, one after another."""
    progress("Logs of Corfu and Scalog")
    with ExitStack() as stack:
        clusters = {
            engine: stack.enter_context(Cluster(path / engine, shards_of_two(engine, effort)))
            for engine in (CORFU, SCALOG)
        }
        replicas = machines(clusters, effort, progress)  # first: the log has nothing else yet
        of_shards = scaling(clusters, effort, progress)
        of_holes = holes(clusters[CORFU], effort, progress)
        reconfigured = [reconfigurations(cluster, effort, progress) for cluster in clusters.values()]
        failed = [failures(cluster, effort, progress) for cluster in clusters.values()]
    of_objects = []
    for system, shape in ONE_SHARD.items():
        with Cluster(path / system / "object", shape) as cluster:
            of_objects.append(one_object(system, cluster, effort, progress))
            if system == VCORFU:  # last: positions that are taken and not written leave holes
                tokens = token_rates(cluster, effort, progress)
    of_keys = multi_keys(path / "nodes", effort, progress)
    return Measured(of_shards, tokens, reconfigured, failed, of_holes, of_keys, replicas, of_objects)
