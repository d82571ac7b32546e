"""A storage unit: what it copies, and which positions it accepts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from logdb.cores.effects import SECOND, Received
from logdb.log.contract import LogRecord
from logdb.log.corfu.messages import (
    Entry,
    FillRequest,
    HighestRequest,
    OpenPositions,
    OpenRequest,
    Pull,
    Pulled,
    ReadRequest,
    ReadResponse,
    Reason,
    Rejected,
    Report,
    Seal,
    Sealed,
    TimeRequest,
    TokenRequest,
    TokenResponse,
    Update,
    WriteRequest,
    Written,
)
from logdb.log.corfu.projection import (
    ENTRY_RECORDS,
    POSITION_WINDOW,
    TIME_WINDOW_NS,
    Range,
    ShardConfig,
    Unit,
    View,
    gsn_at,
)
from logdb.log.corfu.sequencer.sequencer import Sequencer, SequencerConfig
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.corfu.storage.entry_store import JOURNAL, EntryStore
from logdb.log.corfu.storage.read_server import MAX_PARKED
from logdb.log.corfu.storage.unit import META, StorageUnit
from tests.harness.script import Script
from tests.log.corfu.client_stage import shard_of, view_of


class Scripted(Script):
    """The unit s13 of shard 1, or another one, with the projection `view`."""

    def __init__(self, view: View, server: int = 13) -> None:
        self.server = server
        config = UnitConfig("s13", ("o1",))
        super().__init__(lambda journals: StorageUnit(config, journals, Random(1)))
        self.sync()
        self.update(view)

    def update(self, view: View) -> None:
        """The auxiliary answers a report with a projection."""
        (_, report), *_ = self.take(Report)
        self.give("o1", Update(self.server, report.nonce, view, False))
        self.sync()


def test_a_unit_copies_each_entry_from_the_last_unit_of_its_chain() -> None:
    """s12 has joined later than the first positions, and the entries there are complete only on s11."""
    unit = Scripted(view_of(shard_of(1, 0, 5, 9), start=9))
    to, pull = unit.one(Pull)
    assert (to, pull.first, pull.end) == ("s11", 1, 5)


def test_a_filler_learns_that_the_unit_before_has_trimmed_the_position() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    unit.give("me", fill(4))
    to, pull = unit.one(Pull)
    assert (to, pull.first, pull.end) == ("s12", 4, 5)
    unit.give("s12", Rejected(pull.request, Reason.TRIMMED, 1, gsn_at(9)))
    to, rejected = unit.one(Rejected)
    assert (to, rejected.request, rejected.why) == ("me", 5, Reason.TRIMMED)


def test_a_filler_gets_an_entry_that_is_damaged_on_the_unit_before_from_an_earlier_one() -> None:
    """Readers used to wait for the entry until an operator had emptied the disk of that unit."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    unit.give("me", fill(4))
    for server in ("s12", "s11"):
        to, pull = unit.one(Pull)
        assert (to, pull.first, pull.end) == (server, 4, 5)
        if server == "s12":
            unit.give(server, Rejected(pull.request, Reason.UNREADABLE, 1, 1, "damaged"))
    unit.give(to, Pulled(pull.request, 8, (Entry(4, 1, 7, 1, 1),), records=[LogRecord(gsn_at(4), 1, 1, b"x")]))
    unit.sync()
    assert unit.one(Written) == ("me", Written(5, 4, 7, 1, 1))


def test_a_unit_behind_the_head_copies_whatever_a_filler_wants() -> None:
    """Only the head may write junk, and the unit knows from its own projection whether it is the head."""
    unit = Scripted(view_of(shard_of(1, 0, 4, 0), start=9))
    assert [unit.give("me", fill(position))[0].to for position in (3, 4)] == ["s11", "s12"]
    unit.give("me", FillRequest(6, 3, 5))
    assert unit.one(Rejected)[1].why is Reason.BUSY
    assert not unit.core.store.positions


ALONE = ShardConfig(1, (Unit(13, "s13", 0),), 1, is_live=True)


def write(position: int, records: int = 1) -> WriteRequest:
    """A write in the epoch 2."""
    return WriteRequest(5, 2, position, 9, 7, 1, (), [(1, b"x")] * records)


def fill(position: int) -> FillRequest:
    """A fill in the epoch 2."""
    return FillRequest(5, 2, position)


@pytest.mark.parametrize(
    "message",
    [write(20 + POSITION_WINDOW), write(1 << 48), write((1 << 63) - 1), fill(20), fill(21), fill(1 << 60)],
    ids=str,
)
@pytest.mark.parametrize("answers", [True, False], ids=["the sequencer answers", "it is silent"])
def test_a_unit_refuses_a_position_that_the_sequencer_has_not_assigned(message: Any, answers: bool) -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    unit.give("me", message)
    to, question = unit.one(TokenRequest)
    assert (to, question.epoch, question.places) == ("q1", 2, ())
    assert not unit.take(Rejected)
    if answers:
        unit.give("q1", TokenResponse(question.request, 2, 20, 20, (), 9))
    else:
        unit.wait(SECOND)
    to, rejected = unit.one(Rejected)
    assert (to, rejected.request, rejected.why) == ("me", 5, Reason.UNASSIGNED)
    assert f"position {message.position} is not assigned" in rejected.explanation
    assert not unit.core.store.positions


def test_what_the_sequencer_has_assigned_is_written_when_it_answers() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    for message in (write(2000), write(1 << 60), write(1999)):
        unit.give("me", message)
    _, question = unit.one(TokenRequest)
    unit.give("q1", TokenResponse(question.request, 2, 2001, 2001, (), 9))
    assert list(unit.core.store.positions) == [1999, 2000]
    assert [one.why for _, one in unit.take(Rejected)] == [Reason.UNASSIGNED]


def test_a_position_that_a_later_epoch_assigns_again_is_not_filled_before() -> None:
    """The junk would be the tail, and readers would wait for the positions before it until these are assigned."""
    view = view_of(ALONE, start=9)
    unit = Scripted(view)
    unit.give("me", fill(12))
    _, question = unit.one(TokenRequest)
    unit.give("q1", TokenResponse(question.request, 2, 20, 20, (), 9))
    unit.sync()
    unit.give("o1", Seal(2))
    unit.sync()
    unit.wait(unit.core.config.heartbeat_ns)
    unit.update(view._replace(version=3, epoch=3, start=13))
    unit.give("me", fill(15)._replace(epoch=3))
    assert unit.one(TokenRequest)[1].epoch == 3
    assert list(unit.core.store.positions) == [12]


def test_a_seal_refuses_what_waits_for_the_sequencer() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    unit.give("me", write(2000))
    unit.give("o1", Seal(2))
    assert unit.one(Rejected)[1].why is Reason.SEALED


def test_a_unit_asks_the_sequencer_before_it_must_refuse_a_position() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    unit.give("me", write(9))
    assert not unit.take(TokenRequest)
    unit.give("me", write(POSITION_WINDOW + 8))
    _, question = unit.one(TokenRequest)
    assert not unit.take(Rejected)
    unit.give("q1", TokenResponse(question.request, 2, 2000, 2000, (), 9))
    unit.give("me", write(2000))
    assert list(unit.core.store.positions) == [9, POSITION_WINDOW + 8, 2000]


def test_a_unit_with_an_entry_that_is_not_assigned_makes_the_sequencer_skip_it() -> None:
    """Otherwise the tail would be an entry behind positions that may not be filled, and readers would wait for it."""
    unit = Scripted(view_of(ALONE, start=9))
    unit.give("me", write(1000))
    unit.wait(SECOND)
    sequencer = Sequencer(SequencerConfig("q1", ("o1",)), {}, Random(1))
    view = unit.core.view._replace(nonce=sequencer.nonce)
    sequencer.handle(Received("o1", Update(0, sequencer.nonce, view, False)), 1)
    while questions := unit.take(TokenRequest):
        _, question = questions[-1]
        (answer,) = sequencer.handle(Received("s13", question), 1)
        unit.give("q1", answer.message)
    assert sequencer.next == unit.core.assigned == 1001
    unit.give("me", fill(9))
    unit.give("me", fill(999))
    assert list(unit.core.store.positions) == [9, 999, 1000]


def test_an_entry_that_was_assigned_while_the_sequencer_answered_is_not_skipped() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    unit.give("me", write(9))
    unit.wait(SECOND)
    _, question = unit.take(TokenRequest)[-1]
    unit.give("me", write(12))
    unit.give("q1", TokenResponse(question.request, 2, 10, 10, (), 9))
    assert not unit.take(TokenRequest)


@pytest.mark.parametrize("knows", [True, False], ids=["the sequencer has this time", "it has an earlier one"])
def test_a_time_far_ahead_of_the_sequencer_is_refused(knows: bool) -> None:
    """The sequencer of the next epoch would date all later records with it."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    late = write(9)._replace(time=TIME_WINDOW_NS)
    unit.give("me", late)
    _, question = unit.one(TokenRequest)
    assert not unit.core.store.positions
    unit.give("q1", TokenResponse(question.request, 2, 10, 10, (), late.time if knows else 0))
    assert list(unit.core.store.positions) == [9] * knows
    assert [one.why for _, one in unit.take(Rejected)] == [Reason.UNASSIGNED] * (not knows)


def test_a_unit_that_restarts_fills_nothing_that_is_not_assigned() -> None:
    unit = Scripted(view_of(ALONE, start=9))
    unit.give("me", write(1000))
    unit.sync()
    view = unit.core.view
    unit.restart()
    unit.sync()
    unit.update(view)
    unit.give("me", fill(999))
    assert list(unit.core.store.positions) == [1000]
    assert unit.take(TokenRequest)


def test_a_unit_that_restarts_accepts_what_it_could_have_accepted_before() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), start=9))
    unit.give("me", write(500))
    unit.sync()
    unit.restart()
    unit.give("me", write(499 + POSITION_WINDOW))
    assert not unit.take(Rejected)


FINALIZED = view_of(shard_of(1, 0, 0, 0, is_live=False), start=9)._replace(ranges=(Range(1, (1,)), Range(9, ())))
"""No shard has the positions from 9 on."""


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (FINALIZED, write(9)),
        (view_of(shard_of(1, 0, 0, 0), shard_of(2, 0), start=9), write(10)),
        (view_of(shard_of(1, 0, 0, 0), start=9), write(10)._replace(epoch=3)),
    ],
    ids=["of no shard", "of another shard", "of an epoch that the unit does not know"],
)
def test_a_unit_writes_only_positions_of_its_own_shard(view: View, message: WriteRequest) -> None:
    """An entry where no shard has positions made the next epoch begin behind it, and no subscription got past it."""
    unit = Scripted(view)
    unit.give("me", message)
    assert unit.one(Rejected)[1].why is Reason.BUSY
    assert not unit.core.store.positions


@pytest.mark.parametrize("records", [0, ENTRY_RECORDS + 1])
def test_an_entry_has_a_record_and_not_more_than_a_position_has_gsns(records: int) -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0)))
    unit.give("me", write(1, records))
    assert unit.one(Rejected)[1].why is Reason.INVALID
    unit.give("me", write(1, ENTRY_RECORDS))
    assert list(unit.core.store.positions) == [1]


def test_a_sealed_unit_reports_its_end_once_that_is_durable_and_answers_for_no_earlier_epoch() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0)))
    unit.give("me", write(4))
    unit.give("o1", Seal(2))
    unit.sync("meta")
    assert not unit.take(Sealed)
    unit.sync()
    assert unit.one(Sealed)[1] == Sealed(13, 2, 4, gsn_at(4), 9)
    for question in (HighestRequest(6, 2), TimeRequest(6, 2, 9, 0), Pull(6, 2, 4, 1, 0, 0, None, 9), write(5)):
        unit.give("me", question)
        assert unit.one(Rejected)[1].why is Reason.SEALED
    unit.restart()
    unit.give("me", HighestRequest(6, 2))
    assert unit.one(Rejected)[1].why is Reason.SEALED


def test_a_unit_that_lost_junk_in_a_crash_reports_the_entry_that_was_written_instead() -> None:
    """A trim had made the highest position durable before the junk there was. The next epoch has this as its tail."""
    view = view_of(ALONE, start=5)
    unit = Scripted(view)
    unit.fire("storage.heartbeat")
    _, report = unit.take(Report)[-1]
    view = view._replace(version=3, oldest=gsn_at(1))
    unit.give("me", fill(3))
    unit.give("o1", Update(13, report.nonce, view, False))
    unit.sync(META)
    unit.restart()
    unit.sync()
    unit.update(view)
    unit.give("me", write(3, 5))
    unit.give("o1", Seal(2))
    unit.sync()
    sealed = unit.one(Sealed)[1]
    assert (sealed.highest, sealed.last) == (3, gsn_at(3, 4))


def test_a_write_wakes_only_the_requests_that_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync looked at all waiting requests, and a client may let many wait for positions of other units."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 0)))
    for number in range(500):
        unit.give("greedy", ReadRequest(number, 2, gsn_at(100 + number)))
        unit.give("greedy", Pull(1_000 + number, 2, 100, 1, 0, 50, None, 9))
    unit.give("me", ReadRequest(1, 2, gsn_at(4)))
    unit.give("me", Pull(2, 2, 4, 1, 0, 9, None, 9))
    unit.give("me", Pull(3, 2, 8, 1, 0, 3, None, 9))
    unit.give("me", ReadRequest(4, 2, gsn_at(7)))
    unit.give("me", ReadRequest(4, 2, gsn_at(6)))
    looks = []
    readable_at = EntryStore.readable_at

    def counted(self: EntryStore, position: int) -> int | None:
        looks.append(position)
        return readable_at(self, position)

    monkeypatch.setattr(EntryStore, "readable_at", counted)
    unit.give("me", write(4))
    unit.sync()
    assert looks == [4, 4, 8]
    assert [message.request for _, message in unit.take(ReadResponse)] == [1]
    assert [(message.request, len(message.entries)) for _, message in unit.take(Pulled)] == [(2, 1), (3, 0)]
    unit.give("me", write(7))
    unit.sync()
    assert not unit.take(ReadResponse), "the request was replaced"
    unit.give("me", write(6))
    unit.sync()
    assert [message.request for _, message in unit.take(ReadResponse)] == [4]
    unit.core.check_invariants()
    unit.give("o1", Seal(2))
    assert len([one for _, one in unit.take(Rejected) if one.why is Reason.SEALED]) == MAX_PARKED
    unit.core.check_invariants()


def test_a_copy_goes_on_with_an_answer_that_comes_late() -> None:
    """Every answer came after the next request, and was ignored: the unit never joined, and its requests kept the
    other one from everything else."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 9), start=9))
    _, pull = unit.one(Pull)
    for _ in range(60):
        unit.wait(SECOND)
    repeated = [message for _, message in unit.take(Pull)]
    assert set(repeated) == {pull}
    assert len(repeated) < 15, "the pauses grow"
    entries = tuple([Entry(position, 1, 7, position, 1) for position in range(1, 9)])
    records = [LogRecord(gsn_at(one.position), 1, 1, b"x") for one in entries]
    unit.give("s12", Pulled(pull.request, 8, entries, records=records))
    unit.sync()
    assert 9 in [one.copied for _, one in unit.take(Report)]


def test_a_copy_that_arrives_after_a_trim_is_not_written_again() -> None:
    """The unit had a position already. If a crash lost the trim, its journal had that twice, and it could not start."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 9), start=9))
    _, copy = unit.one(Pull)
    entries = tuple([Entry(position, 1, 7, position, 1) for position in range(1, 9)])
    records = [LogRecord(gsn_at(one.position), 1, 1, b"x") for one in entries]
    unit.give("me", fill(2))
    _, pull = unit.one(Pull)
    unit.give("s12", Pulled(pull.request, 8, entries[1:2], records=records[1:2]))
    unit.fire("storage.heartbeat")
    _, report = unit.take(Report)[-1]
    unit.give("o1", Update(13, report.nonce, unit.core.view._replace(version=3, oldest=gsn_at(4)), False))
    unit.give("s12", Pulled(copy.request, 8, entries, records=records))
    unit.sync(JOURNAL)
    unit.restart()
    assert list(unit.core.store.positions) == [2, 4, 5, 6, 7, 8]


def test_a_damaged_entry_is_copied_from_an_earlier_unit_of_the_chain() -> None:
    """The copy used to wait until an operator had emptied the disk of the last unit."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 9), start=9))
    asked = []

    def pull() -> Pull:
        to, message = unit.one(Pull)
        asked.append((to, message.first, message.max_bytes == 1))
        return message

    def reject(server: str) -> None:
        unit.give(server, Rejected(pull().request, Reason.UNREADABLE, 1, 0, "damaged"))

    def give(server: str, positions: range) -> None:
        entries = tuple([Entry(position, 1, 7, position, 1) for position in positions])
        records = [LogRecord(gsn_at(one.position), 1, 1, b"x") for one in entries]
        unit.give(server, Pulled(pull().request, 8, entries, records=records))
        unit.sync()

    for _ in range(5):
        reject("s12")
    give("s12", range(1, 3))
    for _ in range(2):
        reject("s12")
    give("s11", range(3, 4))
    give("s12", range(4, 9))
    assert asked[-4:] == [("s12", 3, False), ("s12", 3, True), ("s11", 3, True), ("s12", 4, False)]
    assert 9 in [one.copied for _, one in unit.take(Report)]


def test_a_copy_waits_if_an_entry_is_damaged_in_the_whole_chain() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 9), start=9))
    for _ in range(7):
        to, pull = unit.one(Pull)
        unit.give(to, Rejected(pull.request, Reason.UNREADABLE, 1, 0, "damaged"))
    assert (to, pull.max_bytes) == ("s11", 1)
    assert not unit.take(Pull)
    unit.wait(SECOND)
    assert {to for to, _ in unit.take(Pull)} == {"s12"}


def test_a_unit_reports_a_copy_when_it_is_durable() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 9), start=9))
    _, pull = unit.one(Pull)
    entries = tuple([Entry(position, 1, 7, position, 1) for position in range(1, 9)])
    unit.take(Report)
    records = [LogRecord(gsn_at(one.position), 1, 1, b"x") for one in entries]
    unit.give("s12", Pulled(pull.request, 8, entries, records=records))
    assert not [one for _, one in unit.take(Report) if one.copied]
    unit.sync()
    assert [one.copied for _, one in unit.take(Report)] == [9]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_unit_answers_for_no_other_one_that_had_its_address(is_last: bool) -> None:
    """That one has lost its disk, and no spare is left for its finalized shard. If it is the last unit there, clients
    ask it for the whole shard."""
    units = Unit(21, "s21", 0), Unit(22, "s13", 0)
    lost = ShardConfig(2, units if is_last else units[::-1], 2, is_live=False)
    unit = Scripted(view_of(shard_of(1, 0, 0, 0), lost, start=9))
    for question in (TimeRequest(5, 2, 99, 0), OpenRequest(6, 2, 1, 9)):
        unit.give("me", question)
        assert [one.why for _, one in unit.take(Rejected)] == [Reason.BUSY] * is_last


def test_a_forged_question_for_open_positions_hides_none_of_a_later_epoch() -> None:
    """All positions of the shard before 5 are written, until the next epoch gives it the position 4, too."""
    view = view_of(shard_of(1, 0, 0, 0), shard_of(2, 0), start=1)
    unit = Scripted(view)
    for position in (1, 3):
        unit.give("me", write(position))
    unit.sync()
    unit.give("me", OpenRequest(6, 2, 0, 5))
    unit.take(OpenPositions)
    unit.wait(unit.core.config.heartbeat_ns)
    unit.update(view._replace(version=3, epoch=3, start=5, ranges=(*view.ranges, Range(4, (1,)))))
    unit.give("me", OpenRequest(6, 3, 0, 5))
    assert unit.one(OpenPositions)[1].positions == (4,)
