"""Scalog in the simulator (`Engine.simulation`): its clusters, faults, operations, invariants and planted bugs."""

from logdb.log import engine
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, SetCutInterval
from tests.sim.engines import Policy
from tests.sim.scalog.cluster import SHAPES, Cluster, on_nodes, shape_of
from tests.sim.scalog.faults import AT_OTHERS, HARMLESS, Faults, trouble_of
from tests.sim.scalog.healing import Healing
from tests.sim.scalog.planted import CAUGHT_BY, PLANTED

CLUSTERS = {
    "alone": engine.Shape(shards=1, replicas=1, ordering=1, mapping=1, aggregators=1, engine="scalog"),
    "many": engine.Shape(shards=2, replicas=2, ordering=3, mapping=2, engine="scalog"),
    "masking": engine.Shape(shards=1, replicas=3, ordering=3, mapping=2, aggregators=1, policy="mask", engine="scalog"),
}
CHANGES = (AddShard, FinalizeShard, ReplaceServer, AddReplica, SetCutInterval)

EVENTS = ("core stopped itself",)

IS_DENSE = True
POLICIES = {
    "remove-and-replace": Policy(replicas=2),
    "mask": Policy(replicas=3),
    "finalize-and-add": Policy(replicas=2, finalizes=True),
}

__all__ = [
    "AT_OTHERS",
    "CAUGHT_BY",
    "CHANGES",
    "CLUSTERS",
    "EVENTS",
    "HARMLESS",
    "IS_DENSE",
    "PLANTED",
    "POLICIES",
    "SHAPES",
    "Cluster",
    "Faults",
    "Healing",
    "on_nodes",
    "shape_of",
    "trouble_of",
]
