"""The bugs that are planted in Scalog, gathered from `planted_*.py`, and the seed that caught each."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.harness.planting import Plants

CAUGHT_BY = {
    "client: reuse numbers after a restart": 1,
    "client: assume contiguous gsns of an append": 122,
    "client: report pending records as never appended": 10,
    "client: settle numbers that were sent": 1,
    "client: report sent appends as unavailable": 1,
    "client: order without waiting for silent shards": 1,
    "client: acknowledge the start of a chunk for any part": 8,
    "client: adopt an older view": 13,
    "client: settle numbers of unknown appends": 10,
    "client: resend under new numbers": 2,
    "client: assign all chunks at once": 2,
    "client: reuse an earlier tail": 2,
    "client: reroute after a timeout": 2,
    "client: skip trimmed records": 5,
    "client: treat busy as never": 10,
    "client: trust one replica that lacks a record": 57,
    "client: treat sealed as never": 6,
    "ordering: a repeated change is applied again": 1,
    "ordering: a cut of another epoch is applied": 19,
    "ordering: a cut is applied when it is proposed": 1,
    "ordering: a client report counts as a verdict": 27,
    "ordering: a new member counts as caught up at once": 1,
    "ordering: a quorum is one too small": 1,
    "ordering: a replaced server is removed at once": 58,
    "ordering: a returning server reopens its sealed segment": 16,
    "ordering: a server with an empty disk keeps its id": 1,
    "ordering: a snapshot loses the ordered ends of segments": 15,
    "ordering: a snapshot loses the applied changes": 15,
    "ordering: an aggregator verdict is not verified": 27,
    "ordering: a leader verdict is not verified": 87,
    "ordering: an update without links has head zero": 1,
    "ordering: any replica answers tail requests": 1,
    "ordering: sealing does not count the ordered records": 1,
    "ordering: links are dropped before they are placed": 1,
    "ordering: next gsn moves when a cut is proposed": 1,
    "ordering: reports of a finalized shard are ordered": 1,
    "ordering: the log can be trimmed past its end": 5,
    "ordering: records on one member count as durable": 1,
    "paxos: forget values in a promise": 2,
    "paxos: join without the values": 107,
    "paxos: need too few promises": 219,
    "paxos: skip a slot with a snapshot": 39,
    "paxos: vote with an empty disk": 19,
    "storage: accept a gap": 6,
    "storage: acknowledge before the sync": 5,
    "storage: answer appends before they are ordered": 1,
    "storage: reject reads beyond the cut": 69,
    "storage: adopt the registration of another server": 1,
    "storage: adopt the newest gsn despite a gap": 1,
    "storage: drop the mark of settled numbers": 82,
    "storage: lose client sessions in a restart": 1,
    "storage: place links after a gap": 6,
    "storage: replicate before the sync": 1,
    "storage: report before the sync": 1,
    "storage: report links before the sync": 1,
    "storage: report never for an open segment": 5,
}
"""The seed that last caught each bug. A change of the code may change what a seed does."""


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
