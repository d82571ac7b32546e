"""The leader of the auxiliary: when it begins an epoch."""

from __future__ import annotations

import pytest

from logdb.cores.effects import MILLISECOND, Effect, Send
from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.auxiliary.leader import Leader
from logdb.log.corfu.auxiliary.state import ProjectionState
from logdb.log.corfu.messages import ChangeRequest, Report, Seal, Sealed, SequencerReport, Update

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


def with_a_shard(spares: int = 0) -> ProjectionState:
    """A shard of two units, and this number of spare ones."""
    state = ProjectionState()
    for number in range(1, 3 + spares):
        state.apply(c.Register(number, f"s{number}"))
    state.apply(c.NewEpoch(1, (), 0, 0, 0, "q1", 5, (), 9, "AddShard", (1, 2)))
    return state


def report(leader: Leader, state: ProjectionState, server: int, now: int, *, sealed: int = 1, decided: int = 0) -> None:
    """A unit reports itself, with the newest projection."""
    leader.on_report(Report(server, server, state.version, sealed, 0, 0, decided), f"s{server}", state, now)


def a_new_leader(state: ProjectionState) -> Leader:
    """One that begins the next epoch. Its predecessor has sealed one of two units, and only that one has reported."""
    leader = Leader(CONFIG, [], now=0)
    leader.on_sequencer(SequencerReport(5, state.epoch), "q1", state, 1)
    report(leader, state, 1, 1, sealed=state.epoch)
    for spare in state.spares():
        report(leader, state, spare.server, 1)
    leader.look(state, 1)
    leader.on_sealed(Sealed(1, state.epoch, 4, 0, 0), state, 2)
    return leader


def test_a_new_leader_leaves_no_unit_out_before_it_had_the_time_to_report() -> None:
    state = with_a_shard(spares=1)
    leader = a_new_leader(state)
    assert leader.commands == []
    late = CONFIG.suspect_after_ns - 1
    report(leader, state, 1, late)
    report(leader, state, 3, late)
    leader.on_timer(state, late)
    assert leader.commands == []
    report(leader, state, 2, late)
    leader.on_sealed(Sealed(2, state.epoch, 4, 0, 0), state, late)
    (command,) = leader.commands
    assert isinstance(command, c.NewEpoch)
    assert command.sealed == (1, 2)


def test_a_leader_leaves_a_silent_unit_out_after_a_suspicion_time_of_its_own() -> None:
    state = with_a_shard(spares=1)
    leader = a_new_leader(state)
    report(leader, state, 1, CONFIG.suspect_after_ns)
    report(leader, state, 3, CONFIG.suspect_after_ns)
    leader.on_timer(state, CONFIG.suspect_after_ns)
    (command,) = leader.commands
    assert isinstance(command, c.NewEpoch)
    assert (command.sealed, command.joins) == ((1,), ((1, 3),))


def test_a_leader_leaves_no_unit_out_if_a_chain_of_one_would_be_left() -> None:
    """One lost disk would lose what it would acknowledge then."""
    state = with_a_shard()
    leader = a_new_leader(state)
    for now in (CONFIG.suspect_after_ns, 3 * CONFIG.suspect_after_ns):
        report(leader, state, 1, now, sealed=state.epoch)
        leader.on_timer(state, now)
        assert leader.commands == []
    report(leader, state, 2, now)
    leader.look(state, now)
    for server in (1, 2):
        leader.on_sealed(Sealed(server, state.epoch, 4, 0, 0), state, now)
    (command,) = leader.commands
    assert isinstance(command, c.NewEpoch)
    assert command.sealed == (1, 2)


def test_a_spare_joins_where_the_last_reports_of_all_units_say_that_all_is_decided() -> None:
    """The report of the silent one counts, too: it has what it had."""
    state = with_a_shard(spares=1)
    leader = Leader(CONFIG, [], now=0)
    leader.on_sequencer(SequencerReport(5, state.epoch), "q1", state, 1)
    report(leader, state, 1, 1, decided=9)
    report(leader, state, 2, 1, decided=7)
    assert leader.commands == [c.Decided(1, 7)]
    state.apply(leader.commands.pop())
    until = 2 * CONFIG.suspect_after_ns
    for now in range(1, until, CONFIG.heartbeat_ns):
        report(leader, state, 1, now, decided=12)
        report(leader, state, 3, now)
        leader.on_sequencer(SequencerReport(5, state.epoch), "q1", state, now)
        leader.on_timer(state, now)
    leader.on_sealed(Sealed(1, state.epoch, 14, 0, 0), state, now)
    (command,) = leader.commands
    state.apply(command)
    assert [(unit.server, unit.since) for unit in state.shards[1].units] == [(1, 0), (3, 7)]
    assert [(unit.server, unit.end) for unit in state.shards[1].former] == [(2, 15)]


def test_a_leader_that_was_suspended_waits_for_reports_again() -> None:
    """While it did not run, it received nothing; the first reports that it handles are not those of all units."""
    state = with_a_shard()
    leader = Leader(CONFIG, [], now=0)
    until = 2 * CONFIG.suspect_after_ns
    for now in range(1, until, CONFIG.heartbeat_ns):
        report(leader, state, 1, now)
        report(leader, state, 2, now)
        leader.on_sequencer(SequencerReport(5, state.epoch), "q1", state, now)
        leader.on_timer(state, now)
    now = 2 * until
    report(leader, state, 1, now)
    leader.on_sequencer(SequencerReport(5, state.epoch), "q1", state, now)
    leader.on_timer(state, now)
    leader.on_sealed(Sealed(1, state.epoch, 4, 0, 0), state, now)
    assert leader.commands == []


def updates(leader: Leader, out: list[Effect], state: ProjectionState, server: int, now: int) -> list[bool]:
    """Whether a unit that reports is released, by each projection that it gets."""
    out.clear()
    report(leader, state, server, now)
    return [one.message.is_released for one in out if isinstance(one, Send) and isinstance(one.message, Update)]


def test_a_unit_that_was_left_out_keeps_its_records_while_another_one_copies_them() -> None:
    """Until then, one lost disk would lose the shard."""
    state = with_a_shard(spares=1)
    out: list[Effect] = []
    leader = Leader(CONFIG, out, now=0)
    report(leader, state, 1, 1)
    state.apply(c.NewEpoch(state.epoch, (1,), 4, 0, 0, "q1", 5, ((1, 3),), 0, "", ()))
    for now in (1, 3 * CONFIG.suspect_after_ns):
        leader.look(state, now)
        assert updates(leader, out, state, 2, now) == [False]
    state.apply(c.Copied(3, 1))
    assert updates(leader, out, state, 2, now) == [True]


def test_a_unit_that_was_left_out_is_released_if_enough_others_go_on_and_only_it_can_join() -> None:
    state = ProjectionState()
    for number in (1, 2, 3):
        state.apply(c.Register(number, f"s{number}"))
    state.apply(c.NewEpoch(1, (), 0, 0, 0, "q1", 5, (), 9, "AddShard", (1, 2, 3)))
    out: list[Effect] = []
    leader = Leader(CONFIG, out, now=0)
    state.apply(c.NewEpoch(state.epoch, (1, 3), 4, 0, 0, "q1", 5, (), 0, "", ()))
    assert updates(leader, out, state, 2, CONFIG.suspect_after_ns - 1) == [False]
    assert updates(leader, out, state, 2, CONFIG.suspect_after_ns) == [True]


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [("Trim", ()), ("Trim", (1, 2)), ("AddShard", (1, 1)), ("FinalizeShard", ()), ("ReplaceServer", (1,)), ("X", (1,))],
)
def test_a_change_with_wrong_fields_is_rejected(kind: str, numbers: tuple[int, ...]) -> None:
    state = with_a_shard(spares=1)
    leader = Leader(CONFIG, [], now=0)
    leader.on_change(ChangeRequest(9, kind, numbers), state, CONFIG.suspect_after_ns)
    assert [(type(one), one.request) for one in leader.commands] == [(c.Reject, 9)]


def test_a_new_leader_rejects_a_change_for_lack_of_spares_when_all_of_them_have_reported() -> None:
    """Before, one that has not reported may be what the change needs."""
    state = with_a_shard(spares=1)
    leader = Leader(AuxiliaryConfig("o1", ("o1",), units=2), [], now=0)
    leader.on_change(ChangeRequest(9, "AddShard", ()), state, 1)
    assert leader.commands == []
    report(leader, state, 3, 1)
    leader.on_change(ChangeRequest(9, "AddShard", ()), state, 1)
    assert leader.commands == [c.Reject(9, "there are too few spare servers")]


def test_a_change_without_a_number_is_ignored() -> None:
    """0 means in a command that no client has requested a change."""
    state = with_a_shard(spares=2)
    out: list[Effect] = []
    leader = Leader(CONFIG, out, now=0)
    for server in range(1, 5):
        report(leader, state, server, 1)
    out.clear()
    for kind, numbers in (("AddShard", (3, 4)), ("Trim", (5,))):
        leader.on_change(ChangeRequest(0, kind, numbers), state, 1)
    assert (out, leader.commands) == ([], [])


def test_a_change_that_was_carried_out_ends_no_other_epoch() -> None:
    """One more shard would be possible, with the spare unit that is left."""
    state = with_a_shard(spares=2)
    out: list[Effect] = []
    leader = Leader(CONFIG, out, now=0)
    for server in range(1, 5):
        report(leader, state, server, 1)
    leader.on_sequencer(SequencerReport(5, state.epoch), "q1", state, 1)
    leader.on_change(ChangeRequest(10, "AddShard", ()), state, 1)
    for server in (1, 2):
        leader.on_sealed(Sealed(server, state.epoch, 4, 0, 0), state, 1)
    (command,) = leader.commands
    out.clear()
    state.apply(command)
    leader.on_applied(command, state, 1)
    assert len(state.shards) == 2
    assert [one for one in out if isinstance(one, Send) and isinstance(one.message, Seal)] == []


def test_a_leader_forgets_trims_that_it_has_proposed() -> None:
    state, leader = with_a_shard(), Leader(CONFIG, [], now=0)
    for number in range(1, 1_000):
        leader.on_change(ChangeRequest(number, "Trim", (number,)), state, number * MILLISECOND)
        leader.on_timer(state, number * MILLISECOND)
    leader.commands.clear()
    assert sum([len(one) for one in vars(leader).values() if isinstance(one, dict)]) < 500
