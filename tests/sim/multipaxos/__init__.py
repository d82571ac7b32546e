"""Multi-Paxos in the simulator (`Engine.simulation`): its clusters, faults, invariants and planted bugs."""

from logdb.log import engine
from tests.sim.engines import Policy
from tests.sim.multipaxos.cluster import SHAPES, Cluster, on_nodes, shape_of
from tests.sim.multipaxos.faults import AT_OTHERS, HARMLESS, Faults, trouble_of
from tests.sim.multipaxos.healing import Healing
from tests.sim.multipaxos.planted import CAUGHT_BY, PLANTED

CHANGES = frozenset[type]()
"""The replicas of a log are fixed; a replica that has lost its disk is taken in again under its address."""

CLUSTERS = {
    "alone": engine.Shape(shards=1, replicas=1, ordering=1, mapping=1, engine="multipaxos"),
    "many": engine.Shape(shards=1, replicas=3, ordering=3, mapping=2, engine="multipaxos"),
    "masking": engine.Shape(shards=1, replicas=3, ordering=3, mapping=2, engine="multipaxos"),
}
EVENTS = ("leader elected", "missing records copied")

IS_DENSE = True
POLICIES = {"": Policy(replicas=3)}

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
