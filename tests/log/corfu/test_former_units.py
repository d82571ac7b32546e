"""Units that have left a chain, and what those that are in it copy from them (COR-5)."""

from __future__ import annotations

import pytest

from logdb.log.contract import LogRecord
from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.chains import covers, without_silent
from logdb.log.corfu.auxiliary.state import ProjectionState
from logdb.log.corfu.messages import (
    Entry,
    FillRequest,
    OpenPositions,
    OpenRequest,
    Pull,
    Pulled,
    ReadRequest,
    Reason,
    Rejected,
    Report,
    Seal,
    TimeRequest,
    TimeResponse,
    Update,
    WriteRequest,
    Written,
)
from logdb.log.corfu.projection import Former, Range, ShardConfig, Unit, View, gsn_at
from tests.log.corfu.client_stage import shard_of, view_of
from tests.log.corfu.test_unit import Scripted, fill, write

FIRST = Former(11, "s11", 0, 0, 4, 9, 20, is_sealed=True)
"""From the beginning until the epoch 4, which began at position 9."""
LATER = Former(12, "s12", 3, 2, 5, 12, 30, is_sealed=True)
"""Joined at position 3 in the epoch 2, and left before it had copied what was before."""


@pytest.mark.parametrize(
    ("units", "former", "covered"),
    [
        ([(0, 1)], [], True),
        ([(5, 4)], [], False),
        ([(5, 4)], [(0, 1, 4)], True),
        ([(5, 4)], [(0, 1, 3)], False),
        ([(5, 4)], [(0, 1, 3), (5, 3, 4)], True),
        ([(5, 4)], [(0, 1, 3), (5, 2, 3)], False),
        ([(5, 4)], [(0, 1, 2), (5, 3, 6)], False),
        ([], [(0, 1, 4), (5, 2, 9)], False),
    ],
)
def test_units_have_all_entries_if_they_leave_no_gap(
    units: list[tuple[int, int]], former: list[tuple[int, int, int]], covered: bool
) -> None:
    """Counted by the epochs in which they were in the chain, from one that had all entries until now."""
    chain = tuple([Unit(number, "", since, joined=joined) for number, (since, joined) in enumerate(units, 1)])
    left = tuple([Former(number, "", *span, 9, 9) for number, span in enumerate(former, 11)])
    config = ShardConfig(1, (*chain, Unit(9, "", 0)), 2, True, former=left)
    assert covers(config, {unit.server for unit in (*chain, *left)}) == covered


@pytest.mark.parametrize(
    ("living", "chain"), [({2}, [1, 2]), ({1}, [2, 1]), ({1, 3}, [2, 1, 3]), ({1, 2, 3}, [1, 2, 3]), ({3}, [1, 2, 3])]
)
def test_the_last_living_unit_is_read_where_all_is_decided(living: set[int], chain: list[int]) -> None:
    units = Unit(1, "s1", 0), Unit(2, "s2", 0), Unit(3, "s3", 7)
    config = ShardConfig(1, units, 3, is_live=False)
    found = [unit.server for unit in without_silent(config, living)]
    assert found == [one for one in chain if one != 3 or 3 in living or living == {3}]


def test_no_epoch_begins_with_units_that_leave_a_gap() -> None:
    """Entries that were decided while 1 and 3 were the chain, and that 4 has not copied yet, may be on 3 alone."""
    state = ProjectionState()
    for number in range(1, 6):
        state.apply(c.Register(number, f"s{number}"))

    def begin(sealed: tuple[int, ...], joins: tuple[tuple[int, int], ...], kind: str = "", *numbers: int) -> None:
        request = state.epoch * bool(kind)
        state.apply(c.NewEpoch(state.epoch, sealed, 4, 0, 0, "q1", 7, joins, request, kind, numbers))
        state.check()

    begin((), (), "AddShard", 1, 2)
    begin((1,), ((1, 3),))
    begin((1,), ((1, 4),))
    assert [unit.server for unit in state.shards[1].former] == [2, 3]
    epoch = state.epoch
    begin((2, 4), ((1, 5),))
    assert state.epoch == epoch
    begin((2, 3, 4), ())
    assert state.epoch == epoch, "one unit would be left"
    begin((2, 3, 4), ((1, 5),))
    assert state.epoch == epoch + 1
    assert [unit.server for unit in state.shards[1].units] == [4, 5]
    assert [(unit.server, unit.is_sealed) for unit in state.shards[1].former] == [(2, True), (3, True), (1, False)]


# ---- the head of a chain without complete units


def head(*former: Former, since: int = 7) -> Scripted:
    """The unit s13 at the head, where the epoch begins at 14."""
    config = ShardConfig(
        1, (Unit(13, "s13", since, joined=2), Unit(14, "s14", since, joined=2)), 2, True, former=former
    )
    return Scripted(view_of(config, start=14))


def entry(position: int, client: int, time: int = 9) -> Entry:
    return Entry(position, time, client, position, 1)


def give(unit: Scripted, server: str, *entries: Entry) -> tuple[int, int]:
    """A former unit answers the open request, which is for its entries in this range."""
    to, pull = unit.one(Pull)
    assert (to, pull.uncommitted) == (server, True)
    records = [LogRecord(gsn_at(one.position), one.time, 1, b"x") for one in entries]
    unit.give(server, Pulled(pull.request, 99, entries, records=records))
    unit.sync()
    return pull.first, pull.end


def held(unit: Scripted) -> list[tuple[int, int]]:
    """The positions of a unit, and whose entry is there."""
    store = unit.core.store
    return [(position, store.entry(store.find(position)).client) for position in store.positions]


def test_the_head_copies_from_the_latest_former_unit_that_has_an_entry() -> None:
    """Where none has one, the head writes junk. Nothing is copied that was written after a unit had left."""
    unit = head(FIRST, LATER)
    assert give(unit, "s12", entry(7, 2)) == (7, 12)
    assert give(unit, "s12") == (8, 12)
    assert give(unit, "s11", entry(8, 1)) == (8, 9)
    assert give(unit, "s12") == (9, 12)  # s11 left before
    assert give(unit, "s12", entry(10, 2), entry(11, 2)) == (10, 12)
    assert held(unit) == [(7, 2), (8, 1), (9, 0), (10, 2), (11, 2), (12, 0), (13, 0)]
    assert unit.core.copier.is_current
    assert not unit.core.copier.copied
    assert give(unit, "s12") == (1, 3)
    assert give(unit, "s11", entry(1, 1), entry(2, 1)) == (1, 3)
    assert give(unit, "s12", entry(3, 2), entry(4, 2), entry(5, 2), entry(6, 2)) == (3, 7)
    assert unit.core.copier.copied == 7


def test_the_head_copies_deletions_from_a_later_former_unit_that_had_not_copied_all() -> None:
    """A trim of the record at 1 has returned while s12 was in the chain, after s11. The unit s12 gets no more entries,
    so it is asked once."""
    unit = head(FIRST, LATER._replace(since=7), since=7)
    assert give(unit, "s12", *[entry(position, 2) for position in range(7, 12)]) == (7, 12)
    to, pull = unit.one(Pull)
    assert (to, pull.first, pull.end) == ("s12", 1, 7)
    unit.give(to, Pulled(pull.request, 99, (entry(1, 1),), deleted=(gsn_at(1),)))
    assert give(unit, "s12") == (2, 7)
    assert give(unit, "s11", entry(2, 1)) == (2, 7)
    assert give(unit, "s11", *[entry(position, 1) for position in range(3, 7)]) == (3, 7)
    assert unit.core.copier.copied == 7
    assert list(unit.core.store.deleted.of(1)) == [0]


def test_the_head_goes_on_with_an_earlier_former_unit_if_a_later_one_lacks_an_entry_at_which_it_joined() -> None:
    """The shard has the positions 1, 3, 5, and so on, and the later unit the first one of an epoch only."""
    former = FIRST._replace(end=9), LATER._replace(since=5, end=9)
    config = ShardConfig(1, (Unit(13, "s13", 7, joined=2), Unit(14, "s14", 7, joined=2)), 2, True, former=former)
    unit = Scripted(view_of(config, shard_of(2, 0), start=9))
    assert give(unit, "s12", entry(7, 2)) == (7, 9)
    assert give(unit, "s12", entry(1, 2), entry(3, 2)) == (1, 5)
    assert give(unit, "s12") == (5, 7)
    assert give(unit, "s11", entry(5, 1)) == (5, 6)
    assert unit.core.copier.copied == 7


def test_an_entry_of_a_former_unit_that_is_later_than_its_epoch_was_not_decided() -> None:
    """Times grow along the log, and the next epoch began with an earlier one."""
    unit = head(FIRST)
    assert give(unit, "s11", entry(7, 1, FIRST.time), entry(8, 1, FIRST.time + 1)) == (7, 9)
    assert give(unit, "s11", entry(8, 1, FIRST.time + 1)) == (8, 9)
    assert held(unit)[:3] == [(7, 1), (8, 0), (9, 0)]


def test_the_head_fills_no_position_that_it_may_get_from_a_former_unit() -> None:
    unit = head(FIRST)
    for position in (3, 8, 13):
        unit.give("me", fill(position))
        assert unit.one(Rejected)[1].why is Reason.BUSY
    unit.give("me", write(14))
    unit.sync()
    assert held(unit) == [(14, 7)]


def test_no_entry_is_copied_from_a_former_unit_that_was_not_sealed() -> None:
    """Such a unit may still get another one."""
    unit = head(FIRST, LATER._replace(is_sealed=False))
    assert give(unit, "s11") == (7, 9)


def test_the_next_unit_waits_until_the_head_has_the_entry() -> None:
    config = ShardConfig(1, (Unit(12, "s12", 7, joined=2), Unit(13, "s13", 7, joined=2)), 2, True, former=(FIRST,))
    unit = Scripted(view_of(config, start=14))
    to, pull = unit.one(Pull)
    assert (to, pull.first) == ("s12", 7)
    unit.give("me", fill(3))
    assert unit.one(Pull)[0] == "s12"
    assert not unit.core.store.positions


# ---- a unit that has joined


def test_a_unit_that_has_joined_answers_for_all_when_it_has_what_was_not_decided() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 7), start=9))
    questions = TimeRequest(5, 2, 99, 0), OpenRequest(6, 2, 7, 9)
    for question in questions:
        unit.give("me", question)
        assert unit.one(Rejected)[1].why is Reason.BUSY
    assert give(unit, "s12", entry(7, 1), entry(8, 1)) == (7, 9)
    unit.give("me", questions[0])
    assert unit.one(TimeResponse)[1].last == gsn_at(8)
    unit.give("me", questions[1])
    assert unit.one(OpenPositions)[1].positions == ()
    unit.give("me", TimeRequest(5, 2, 99, 7))
    assert unit.one(Rejected)[1].why is Reason.BUSY


def test_a_unit_fills_what_the_units_before_it_lack() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 7), start=9))
    assert give(unit, "s12") == (7, 9)
    for link in ("s11", "s12"):
        to, request = unit.one(FillRequest)
        assert (to, request.position) == (link, 7)
        unit.give(link, Written(request.request, 7, 0, 0, 0))
    assert unit.one(Pull)[0] == "s12"


# ---- what is decided


def decided(unit: Scripted) -> int:
    unit.take(Report)
    unit.wait(unit.core.config.heartbeat_ns)
    return int(unit.take(Report)[-1][1].decided)


def test_a_unit_reports_the_first_position_that_it_does_not_have_durably() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=1))
    for position in (1, 2, 4):
        unit.give("me", write(position))
    assert decided(unit) == 1
    unit.sync()
    assert decided(unit) == 3
    unit.give("me", write(3))
    unit.sync()
    assert decided(unit) == 5


def test_a_unit_reports_nothing_as_decided_that_may_come_to_belong_to_its_shard() -> None:
    """The next epoch may have other ranges, and begin before the next position of this shard."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), shard_of(2, 0), shard_of(3, 0), start=1))
    unit.give("me", write(1))
    unit.sync()
    assert decided(unit) == 2


def test_a_unit_reports_what_it_lacks_at_the_beginning_of_a_range() -> None:
    """The positions of its shard in the range before are 1, 4, 7, and would be 10, if the range had not ended."""
    view = view_of(shard_of(1, 0, 0, 0), shard_of(2, 0), shard_of(3, 0), start=9)
    unit = Scripted(view._replace(ranges=(*view.ranges, Range(9, (1,)))))
    for position in (1, 4, 7, 10):
        unit.give("me", write(position))
    unit.sync()
    assert decided(unit) == 9
    unit.give("me", write(9))
    unit.sync()
    assert decided(unit) == 11


def test_a_unit_reports_nothing_as_decided_behind_its_last_durable_entry() -> None:
    """A crash may take the entry away. The next epoch begins behind the last one that is left."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), shard_of(2, 0), start=1))
    unit.give("me", write(1))
    unit.sync()
    unit.give("me", write(3))
    assert decided(unit) == 2


def test_a_unit_reports_nothing_of_an_epoch_whose_ranges_it_does_not_know() -> None:
    """The epoch 3 has the positions from 8 on in the shard 1 alone, and the projection arrives late."""
    view = view_of(shard_of(1, 0, 0, 0), shard_of(2, 0), shard_of(3, 0), start=1)
    unit = Scripted(view)
    for position in (1, 4, 7):
        unit.give("me", write(position))
    unit.sync()
    assert decided(unit) == 8
    unit.give("o1", Seal(2))
    unit.sync()
    unit.restart()
    for position in (10, 13):
        unit.give("me", write(position)._replace(epoch=3))
    unit.sync()
    unit.update(view)
    assert decided(unit) == 1, "only all before `start` is known"
    unit.wait(unit.core.config.heartbeat_ns)
    later = view._replace(version=3, epoch=3, start=8, ranges=(*view.ranges, Range(8, (1,))))
    unit.update(later)
    assert decided(unit) == 8
    unit.give("o1", Seal(3))
    unit.sync()
    unit.restart()
    unit.sync()
    unit.update(later)
    assert decided(unit) == 8, "all before `start` is known"


# ---- a unit that has left


LEFT = Former(13, "s13", 0, 2, 3, 2, 99)
"""The unit was in the chain in the epoch 2 alone."""
COPY = Pull(5, 2, 1, 1, 9, 0, None, 99, uncommitted=True)
"""A unit that copies requests what it had then."""


def without_it(*former: Former, epoch: int = 3) -> View:
    """The projection in which the unit s13 has left the chain."""
    return view_of(shard_of(1, 0, 0)._replace(former=former), epoch=epoch, start=2)


def test_a_former_unit_sends_its_entries_to_units_that_copy_and_to_no_others() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=1))
    unit.give("me", write(1))
    unit.sync()
    unit.update(without_it(LEFT))
    unit.give("s12", COPY)
    assert [one.position for one in unit.one(Pulled)[1].entries] == [1]
    unit.give("me", COPY._replace(uncommitted=False))
    unit.give("me", ReadRequest(6, 3, gsn_at(1)))
    unit.give("me", WriteRequest(7, 3, 2, 9, 7, 2, (), [(1, b"x")]))
    assert [one.why for _, one in unit.take(Rejected)] == [Reason.SEALED] * 3


def test_a_former_unit_that_knew_no_chain_in_time_sends_that_it_has_nothing() -> None:
    """The head would wait for it, though another former unit has the entries."""
    unit = Scripted(without_it(LEFT))
    unit.give("s12", COPY)
    assert unit.one(Pulled)[1].entries == ()


@pytest.mark.parametrize("is_former", [False, True])
def test_a_unit_that_has_the_address_of_a_former_one_does_not_answer_for_it(is_former: bool) -> None:
    """The former one was sealed, and lost its disk before the epoch began. The head would write junk then."""
    units = Unit(11, "s11", 7, joined=6), Unit(13, "s13", 9, joined=6)
    lost = Former(9, "s13", 0, 0, 4, 9, 20, is_sealed=True)
    view = view_of(ShardConfig(1, units, 2, True, former=(lost,)), epoch=6, start=14)
    copying = Scripted(view, server=11)
    unit = Scripted(view)
    if is_former:
        unit.wait(unit.core.config.heartbeat_ns)
        later = Former(13, "s13", 9, 6, 7, 14, 20)
        unit.update(view_of(ShardConfig(1, units[:1], 2, True, former=(lost, later)), epoch=7, start=14))
    to, pull = copying.one(Pull)
    assert to == "s13"
    unit.take(Rejected)
    unit.give("s11", pull)
    assert unit.one(Rejected)[1].why is Reason.SEALED


def test_a_unit_that_was_sealed_while_it_joined_knows_after_a_restart_that_it_has() -> None:
    unit = Scripted(view_of(start=1))
    unit.wait(unit.core.config.heartbeat_ns)
    (_, report), *_ = unit.take(Report)
    view = view_of(shard_of(1, 0, 0, 0), start=1)._replace(version=3)
    unit.give("o1", Update(13, report.nonce, view, False))
    unit.give("o1", Seal(2))
    unit.sync()
    unit.restart()
    assert unit.core.reads.has_joined
