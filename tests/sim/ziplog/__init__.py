"""Ziplog in the simulator (`Engine.simulation`): its clusters, faults, operations, invariants and planted bugs."""

from logdb.log import engine
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, SetCutInterval
from tests.sim.engines import Policy
from tests.sim.ziplog.cluster import SHAPES, Cluster, on_nodes, shape_of
from tests.sim.ziplog.faults import AT_OTHERS, HARMLESS, Faults, trouble_of
from tests.sim.ziplog.healing import Healing
from tests.sim.ziplog.planted import CAUGHT_BY, PLANTED

CLUSTERS = {
    "alone": engine.Shape(shards=1, replicas=1, ordering=1, mapping=1, engine="ziplog"),
    "many": engine.Shape(shards=2, replicas=2, ordering=3, mapping=2, engine="ziplog"),
    "masking": engine.Shape(shards=1, replicas=2, ordering=3, mapping=2, spares=2, engine="ziplog"),
}
CHANGES = (AddShard, FinalizeShard, ReplaceServer, AddReplica, SetCutInterval)
EVENTS = ("view adopted", "set of shards changed", "shard removed", "members of a drained shard changed")

POLICIES = {"": Policy(replicas=2)}
IS_DENSE = False

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
