"""Scalog in the simulator (`Engine.simulation`): its clusters, faults, operations, invariants and planted bugs."""

from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, SetCutInterval
from tests.sim.scalog.cluster import SHAPES, Cluster, shape_of
from tests.sim.scalog.faults import AT_OTHERS, HARMLESS, Faults, trouble_of
from tests.sim.scalog.healing import Healing
from tests.sim.scalog.planted import CAUGHT_BY, PLANTED

CHANGES = (AddShard, FinalizeShard, ReplaceServer, AddReplica, SetCutInterval)

__all__ = [
    "AT_OTHERS",
    "CAUGHT_BY",
    "CHANGES",
    "HARMLESS",
    "PLANTED",
    "SHAPES",
    "Cluster",
    "Faults",
    "Healing",
    "shape_of",
    "trouble_of",
]
