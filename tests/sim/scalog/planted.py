"""The bugs that are planted in Scalog, gathered from `planted_*.py`, and the seed that caught each."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.harness.planting import Plants

CAUGHT_BY = {
    "client: begin again with the same numbers": 1,
    "client: believe that gsns follow numbers": 122,
    "client: call never what is not known yet": 10,
    "client: call settled what was sent": 1,
    "client: call unavailable what was sent": 1,
    "client: conclude from silence": 1,
    "client: credit a part to the beginning": 8,
    "client: go back to an older view": 13,
    "client: have servers forget what was unknown": 10,
    "client: number anew what is sent again": 2,
    "client: place all parts at once": 2,
    "client: remember the tail": 2,
    "client: send elsewhere after a timeout": 2,
    "client: skip what was trimmed": 5,
    "client: take busy for never": 10,
    "client: take one replica for all": 57,
    "client: take sealed for never": 6,
    "ordering: a change is carried out each time it comes": 1,
    "ordering: a cut counts in any epoch": 19,
    "ordering: a cut is applied when it is proposed": 1,
    "ordering: a client that reaches no server is believed": 9,
    "ordering: a new member counts as caught up at once": 1,
    "ordering: a quorum is one too small": 1,
    "ordering: a replaced server goes at once": 58,
    "ordering: a server that is back goes on with its sealed segment": 16,
    "ordering: a server without its disk is taken for the old one": 1,
    "ordering: a snapshot forgets how far segments are ordered": 15,
    "ordering: a snapshot forgets which changes were carried out": 15,
    "ordering: an aggregator that hears no server is believed": 27,
    "ordering: a leader that hears no server believes itself": 87,
    "ordering: an update without links tells the newest gsn to all": 1,
    "ordering: any replica tells the tail": 1,
    "ordering: finalizing does not fold": 1,
    "ordering: links are dropped before they are placed": 1,
    "ordering: next gsn moves when a cut is proposed": 1,
    "ordering: reports of a finalized shard count": 1,
    "ordering: the log can be trimmed past its end": 3,
    "ordering: what one member has is durable": 1,
    "paxos: forget values in a promise": 2,
    "paxos: join without the values": 107,
    "paxos: need too few promises": 242,
    "paxos: skip a slot with a snapshot": 39,
    "paxos: vote with an empty disk": 19,
    "storage: accept a gap": 9,
    "storage: acknowledge before the sync": 5,
    "storage: answer appends before they are ordered": 1,
    "storage: answer not mine behind the cut": 69,
    "storage: become whoever is meant": 1,
    "storage: believe the newest gsn despite a gap": 1,
    "storage: forget settled numbers without a mark": 82,
    "storage: forget the clients in a restart": 1,
    "storage: link without asking what was before": 6,
    "storage: replicate before the sync": 1,
    "storage: report before the sync": 1,
    "storage: report links before the sync": 1,
    "storage: say never of an open segment": 5,
}
"""The seed that caught each bug when it was last looked at; changes give seeds another meaning."""


def gather() -> Plants:
    """All of them, by name."""
    found: Plants = {}
    for path in sorted(Path(__file__).parent.glob("planted_*.py")):
        module = importlib.import_module(f"tests.sim.scalog.{path.stem}")
        for name, plant in module.PLANTED.items():
            assert name not in found, f"two planted bugs are called {name}"
            found[name] = plant
    return found


PLANTED = gather()
