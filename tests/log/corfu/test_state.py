"""The state of the auxiliary: what its commands change."""

from __future__ import annotations

from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.state import ProjectionState
from logdb.log.corfu.projection import gsn_at


def with_units(count: int) -> ProjectionState:
    """The state with this number of spare units."""
    state = ProjectionState()
    for number in range(1, count + 1):
        state.apply(c.Register(number, f"s{number}"))
    return state


def change(state: ProjectionState, kind: str, *numbers: int, highest: int = 0) -> None:
    """Begin an epoch with a change; all units are sealed."""
    units = tuple(sorted(unit.server for config in state.shards.values() for unit in config.units))
    command = c.NewEpoch(state.epoch, units, highest, gsn_at(highest), 0, "q1", 7, (), state.epoch + 1, kind, numbers)
    result = state.apply(command)
    assert result is not None
    assert not result.error
    state.check()


def test_a_finalized_shard_without_records_stays_until_a_trim() -> None:
    """A client that waits until the shard is finalized must see it, whether it has records or not."""
    state = with_units(3)
    for number in (1, 2):
        change(state, "AddShard", number)
    change(state, "FinalizeShard", 1, 0)
    assert [(one.shard, one.is_live) for one in state.view().shards] == [(1, False), (2, True)]
    change(state, "AddShard", 3, highest=5)
    state.apply(c.Trim(0, gsn_at(2)))
    assert [one.shard for one in state.view().shards] == [2, 3]
    assert state.servers[1].is_gone
    state.check()
