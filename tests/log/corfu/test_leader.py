"""The leader of the auxiliary: when it begins an epoch."""

from __future__ import annotations

import pytest

from logdb.cores.effects import MILLISECOND, Effect, Send
from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.auxiliary.leader import Leader
from logdb.log.corfu.auxiliary.state import ProjectionState
from logdb.log.corfu.messages import Report, Seal, SequencerReport

CONFIG = AuxiliaryConfig("o1", ("o1",), units=1, suspect_after_ns=20_000 * MILLISECOND)


@pytest.mark.parametrize(
    ("named", "reported", "begins"),
    [(0, 5, True), (5, 5, False), (5, 6, True)],
    ids=["none was named", "it is the named one", "it has restarted"],
)
def test_a_new_leader_names_a_sequencer_at_once_if_there_is_certainly_none(
    named: int, reported: int, begins: bool
) -> None:
    """Otherwise it waits until every sequencer had the time to report."""
    state = ProjectionState()
    state.apply(c.Register(1, "s1"))
    state.apply(c.NewEpoch(1, (), 0, 0, 0, "q1", named, (), 9, "AddShard", (1,)))
    out: list[Effect] = []
    leader = Leader(CONFIG, out, now=0)
    leader.on_report(Report(1, 1, state.version, 1, 0, 0), "s1", state, 1)
    leader.on_sequencer(SequencerReport(reported, 0), "q1", state, 1)
    out.clear()
    leader.look(state, 1)
    assert out == [Send("s1", Seal(state.epoch))] * begins
