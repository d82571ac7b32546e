"""The engines that are simulated: each has a module of its own (`Engine.simulation`), found by its name."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from logdb.log.engine import ENGINES, engine_of
from tests.harness.planting import Plants

if TYPE_CHECKING:
    from tests.sim.checks import Copy
    from tests.sim.cluster import Cluster, Shape
    from tests.sim.faults import Faults, Trouble
    from tests.sim.world import World

__all__ = ["ENGINES", "Healing", "Simulated", "module_of", "simulation_of"]


class Healing(Protocol):
    """What a cluster needs to be well again after its faults, and what its servers then have."""

    def configured(self) -> Any:
        """What only a reconfiguration changes."""

    def make_writable(self, limit: int) -> None:
        """Do what an operator does so that appends succeed again. Raises Failure at the limit."""

    def settle(self, limit: int) -> None:
        """Wait until the servers have what they should. Raises Failure at the limit."""

    def copies(self, tail: int, limit: int) -> tuple[int, list[Copy]]:
        """The oldest record, and all that every server has from there to `tail`. Raises Failure where they differ."""


class Simulated(Protocol):
    """What the module of an engine has.

    `shape_of`, `trouble_of`: the cluster and the trouble of a seed. `Cluster`, `Faults`, `Healing`: made for that.
    `HARMLESS`: faults that keep no client and no mapping server from reaching the log for long; `AT_OTHERS`: faults for
    which no server is to be replaced. `SHAPES`: clusters for the conformance suites, by what is said after the engine's
    name; with servers to spare for two more shards. `PLANTED`: bugs, and `CAUGHT_BY`, the seed that caught each.
    """

    shape_of: Callable[[random.Random], Shape]
    trouble_of: Callable[[random.Random], Trouble]
    Cluster: Callable[[World, Any], Cluster]
    Faults: Callable[[Any, Any, Trouble], Faults]
    Healing: Callable[[Any, Any], Healing]
    HARMLESS: Collection[str]
    AT_OTHERS: Collection[str]
    SHAPES: Mapping[str, Shape]
    PLANTED: Plants
    CAUGHT_BY: Mapping[str, int]


def module_of(engine: str, name: str = "") -> ModuleType:
    """The engine's own module, or one inside it."""
    return import_module(".".join(part for part in (engine_of(engine).simulation, name) if part))


def simulation_of(engine: str) -> Simulated:
    """What is the engine's own in a simulation."""
    return cast("Simulated", module_of(engine))
