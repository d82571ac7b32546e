"""Corfu in the simulator (`Engine.simulation`): its clusters, faults, operations, invariants and planted bugs."""

from logdb.log import engine
from logdb.log.requests import AddReplica, AddShard, AddStreamShard, FinalizeShard, ReplaceServer, TrimRecords
from tests.sim.corfu.cluster import SHAPES, Cluster, on_nodes, shape_of
from tests.sim.corfu.faults import AT_OTHERS, HARMLESS, Faults, trouble_of
from tests.sim.corfu.healing import Healing
from tests.sim.corfu.planted import CAUGHT_BY, PLANTED
from tests.sim.engines import Policy

CLUSTERS = {
    "alone": engine.Shape(shards=1, replicas=1, ordering=1, mapping=1, engine="corfu"),
    "many": engine.Shape(shards=2, replicas=2, ordering=3, mapping=2, engine="corfu"),
    "masking": engine.Shape(shards=1, replicas=2, ordering=3, mapping=2, spares=2, engine="corfu"),
}
CHANGES = (AddShard, AddStreamShard, FinalizeShard, ReplaceServer, AddReplica, TrimRecords)
EVENTS = (
    "epoch begun",
    "unit copied its shard",
    "sequencer moved",
    "shard removed",
    "junk written",
    "sealed unit lost its disk",
    "chain without a complete unit",
)

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
