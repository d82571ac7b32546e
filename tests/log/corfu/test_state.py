"""The state of the auxiliary: what its commands change."""

from __future__ import annotations

from random import Random

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


def test_a_unit_joins_no_shard_that_was_trimmed_away_since_its_epoch_was_proposed() -> None:
    state = with_units(4)
    for number in (1, 2):
        change(state, "AddShard", number)
    change(state, "FinalizeShard", 1, 0, highest=5)
    joins = ((1, 3), (2, 4))
    proposed = c.NewEpoch(state.epoch, (1, 2), 9, gsn_at(9), 0, "q1", 7, joins, 0, "", ())
    state.shards[2] = state.shards[2]._replace(size=2)
    state.apply(c.Trim(0, gsn_at(7)))
    state.apply(proposed)
    assert [(one.shard, [unit.server for unit in one.units]) for one in state.view().shards] == [(2, [2, 4])]
    assert [one.server for one in state.spares()] == [3]
    state.check()


def test_a_shard_has_each_unit_once() -> None:
    state = with_units(2)
    command = c.NewEpoch(state.epoch, (), 0, 0, 0, "q1", 7, (), 1, "AddShard", (1, 1))
    result = state.apply(command)
    assert result is not None
    assert result.error == "a shard needs different servers"
    state.check()


def test_no_command_stops_the_replicas_whatever_was_decided_since_it_was_proposed() -> None:
    """Every command was possible in some state before the one that it is applied to, which a leader had then."""
    for seed in range(40):
        draw = Random(seed)
        state, proposed = with_units(6), list[c.Command]()
        for number in range(80):
            proposed.append(command_for(state, draw, number))
            state.apply(proposed.pop(draw.randrange(len(proposed))) if draw.random() < 0.7 else proposed[-1])
            state.check()
            state.view()
            assert ProjectionState.from_bytes(state.to_bytes()).to_bytes() == state.to_bytes()


def command_for(state: ProjectionState, draw: Random, number: int) -> c.Command:
    """A command that a leader with this state may propose."""
    units = [unit for config in state.shards.values() for unit in config.units]
    kind = draw.choice(("epoch", "epoch", "epoch", "trim", "copied", "register"))
    if kind == "register":
        return c.Register(100 + number, f"s{draw.randrange(9)}")
    if kind == "trim":
        return c.Trim(number, draw.randrange(gsn_at(state.start + 1)))
    if kind == "copied" and units:
        unit = draw.choice(units)
        return c.Copied(unit.server, unit.since)
    spares = [one.server for one in state.spares()]
    shards = list(state.shards) or [1]
    servers = [unit.server for unit in units] or [1]
    spare = draw.choice(spares) if spares else 0
    change: tuple[str, tuple[int, ...]] = draw.choice(
        (
            ("", ()),
            ("AddShard", tuple(spares[:2])),
            ("FinalizeShard", (draw.choice(shards), 0)),
            ("ReplaceServer", (draw.choice(servers), spare)),
            ("AddReplica", (draw.choice(shards), spare)),
        )
    )
    sealed = tuple(sorted([unit.server for unit in units if draw.random() < 0.9]))
    joins = tuple([(shard, server) for shard, server in zip(shards, spares, strict=False)])
    highest = state.start + draw.randrange(5)
    return c.NewEpoch(
        state.epoch, sealed, highest, gsn_at(highest), 0, "q1", 7, joins, number * bool(change[0]), *change
    )


def test_a_change_is_carried_out_once() -> None:
    state = with_units(2)
    for sealed, server in (((), 1), ((1,), 2)):
        state.apply(c.NewEpoch(state.epoch, sealed, 0, 0, 0, "q1", 7, (), 9, "AddShard", (server,)))
    assert [one.shard for one in state.view().shards] == [1]


def test_the_time_of_an_epoch_is_that_of_the_latest_record() -> None:
    state = with_units(1)
    for time in (30, 20):
        state.apply(c.NewEpoch(state.epoch, (), 0, 0, time, "q1", 7, (), 0, "", ()))
    assert state.view().time == 30


def test_a_unit_is_complete_when_it_and_those_before_it_have_copied() -> None:
    """The head of a chain has all entries, or no unit of the chain has them."""
    state = with_units(3)
    change(state, "AddShard", 1)
    state.shards[1] = state.shards[1]._replace(size=3)
    decided = ((1, 4),)
    state.apply(c.NewEpoch(state.epoch, (1,), 4, gsn_at(4), 0, "q1", 7, ((1, 2), (1, 3)), 0, "", (), decided))
    state.apply(c.Copied(3, 4))
    assert [(unit.server, unit.since) for unit in state.shards[1].units] == [(1, 0), (2, 4), (3, 4)]
    state.apply(c.Copied(2, 4))
    assert state.shards[1].joining == (3,)
    state.apply(c.Copied(3, 4))
    assert state.shards[1].joining == ()
