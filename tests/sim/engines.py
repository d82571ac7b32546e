"""The engines in the simulator. Each has a module of its own (`Engine.simulation`), found by the engine's name."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from logdb.log.engine import ENGINES, engine_of
from tests.harness.planting import Plants

if TYPE_CHECKING:
    from logdb.log import engine as seam
    from tests.sim.checks import Copy
    from tests.sim.cluster import Cluster, Shape
    from tests.sim.faults import Faults, Trouble
    from tests.sim.world import World

__all__ = ["ENGINES", "Healing", "Policy", "Simulated", "module_of", "simulation_of"]


class Healing(Protocol):
    """Brings a cluster back to normal after its faults, and reads the records of its servers."""

    def configured(self) -> Any:
        """The part of the configuration that only a reconfiguration changes."""

    def make_writable(self, limit: int) -> None:
        """Make the operator's changes after which appends succeed again. Raises Failure at the limit."""

    def wait_for_copies(self, limit: int) -> None:
        """Wait until every server has all records of its shard. Raises Failure at the limit."""

    def copies(self, tail: int, limit: int) -> tuple[int, list[Copy]]:
        """The oldest record, and the copy of every server from there to `tail`. Raises Failure where they differ."""


class Policy(NamedTuple):
    """An engine's reaction to a failed server. `replicas`: of a shard, so that one failure loses no record;
    `finalizes`: whether the failure finalizes the shard."""

    replicas: int
    finalizes: bool = False


class Simulated(Protocol):
    """The contents of an engine's module (`Engine.simulation`).

    `shape_of`, `trouble_of`: draw the cluster and the faults of a seed. `on_nodes`: the same cluster on nodes, with a
    server of each role on each. `Cluster`, `Faults`, `Healing`: build the
    cluster, its faults, and the way back to normal. `HARMLESS`: faults that never cut clients and mapping servers off
    from the log for long; `AT_OTHERS`: faults after which no server may be replaced. `EVENTS`: events of the engine's
    servers that must occur in some seeds, beside its faults. `CHANGES`: the changes of `logdb.log.requests` that the
    engine carries out; it refuses others with Unavailable. `SHAPES`: clusters for the conformance suites, by a suffix
    of the engine's name; with spare servers for two more shards if it can add shards.
    `CLUSTERS`: likewise of real servers: "alone" (one of each role), "many", "masking" (without its last storage server
    the log continues as before). `POLICIES`: for failed servers, by their name in `cluster.toml` ("" where there is no
    such key); nemesis takes one after the other. `IS_DENSE`: GSNs follow each other without gaps. `PLANTED`: bugs,
    and `CAUGHT_BY`, the seed that caught each.
    """

    shape_of: Callable[[random.Random], Shape]
    on_nodes: Callable[[Any, random.Random], Any]
    trouble_of: Callable[[random.Random], Trouble]
    Cluster: Callable[[World, Any], Cluster]
    Faults: Callable[[Any, Any, Trouble], Faults]
    Healing: Callable[[Any, Any], Healing]
    HARMLESS: Collection[str]
    AT_OTHERS: Collection[str]
    EVENTS: Collection[str]
    CHANGES: Collection[type]
    SHAPES: Mapping[str, Shape]
    CLUSTERS: Mapping[str, seam.Shape]
    POLICIES: Mapping[str, Policy]
    IS_DENSE: bool
    PLANTED: Plants
    CAUGHT_BY: Mapping[str, int]


def module_of(engine: str, name: str = "") -> ModuleType:
    """The engine's module for the simulator, or the module `name` inside it."""
    return import_module(".".join(part for part in (engine_of(engine).simulation, name) if part))


def simulation_of(engine: str) -> Simulated:
    """The simulated engine of that name."""
    return cast("Simulated", module_of(engine))
