"""Reads of a client: from any member, from another one after a failure, and which errors are final."""

from __future__ import annotations

from logdb.cores.effects import SECOND
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard, Trimmed
from logdb.log.requests import END
from logdb.log.scalog.messages import (
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    TailRequest,
    TailResponse,
    TimeRequest,
    TimeResponse,
)
from logdb.log.scalog.records import wrap
from tests.log.scalog.client_stage import FINALIZED, Stage, shard, view


def found(read: ReadRequest, gsn: int = 0) -> ReadResponse:
    return ReadResponse(read.request, gsn or read.gsn, 77, wrap(1, 2, [(3, b"payload")]))


def stage_of(servers: int = 3) -> Stage:
    return Stage(view(1, shard(1, servers=servers), shard(2)))


def test_a_record_is_read_as_it_was_appended() -> None:
    stage = stage_of()
    call = stage.call(calls.Read(5, 1))
    to, read = stage.one(ReadRequest)
    assert (to[:2], read.shard, read.gsn) == ("s1", 1, 5)
    stage.give(to, found(read))
    assert stage.answers[call] == LogRecord(5, 77, 3, b"payload")


def test_a_read_is_repeated_at_another_member_if_one_lacks_the_record() -> None:
    stage = stage_of()
    call = stage.call(calls.Read(5, 1))
    asked = []
    for _ in range(3):
        to, read = stage.one(ReadRequest)
        asked.append(to)
        stage.give(to, ReadFailed(read.request, ReadError.HERE, 1))
        stage.wait(SECOND // 20)
    assert sorted(asked) == ["s11", "s12", "s13"]
    to, read = stage.one(ReadRequest)
    stage.give(to, found(read))
    assert stage.answers[call].gsn == 5


def test_a_read_without_an_answer_is_sent_to_another_member() -> None:
    """The log may not have reached the GSN, or the member may have failed. The first answer counts."""
    stage = stage_of()
    call = stage.call(calls.Read(5, 1))
    stage.wait(SECOND * 2)
    asked = stage.take(ReadRequest)
    assert {to for to, _ in asked} == {"s11", "s12", "s13"}
    assert len({read.request for _, read in asked}) == 1
    stage.give(asked[0][0], found(asked[0][1]))
    assert stage.answers[call].gsn == 5
    stage.give(asked[1][0], found(asked[1][1]))
    stage.wait(10 * SECOND)
    assert stage.take(ReadRequest) == []


def test_a_read_is_corruption_only_if_all_members_have_damaged_records() -> None:
    stage = stage_of()
    call = stage.call(calls.Read(5, 1))
    for number in range(3):
        assert call not in stage.answers
        to, read = stage.one(ReadRequest)
        stage.give(to, ReadFailed(read.request, ReadError.READABLE, 1, f"disk {number}"))
        stage.wait(SECOND // 20)
    error = stage.answers[call]
    assert isinstance(error, Corruption)
    assert "disk 0; disk 1; disk 2" in str(error)


def test_trimmed_and_of_another_shard_are_final() -> None:
    stage = stage_of()
    trimmed, other = stage.call(calls.Read(5, 1)), stage.call(calls.Read(6, 2))
    (to, first), (also, second) = stage.take(ReadRequest)
    stage.give(to, ReadFailed(first.request, ReadError.TRIMMED, 9))
    stage.give(also, ReadFailed(second.request, ReadError.SHARD, 9))
    error = stage.answers[trimmed]
    assert isinstance(error, Trimmed)
    assert (error.gsn, error.oldest) == (5, 9)
    assert isinstance(stage.answers[other], NotOfThisShard)
    assert isinstance(stage.ask(calls.Read(8, 1)), Trimmed), "the client remembers"
    assert isinstance(stage.ask(calls.Read(0, 1)), NotOfThisShard)
    assert isinstance(stage.ask(calls.Read(10, -1)), NotOfThisShard)


def test_a_response_with_another_gsn_is_ignored() -> None:
    stage = stage_of()
    call = stage.call(calls.Read(5, 1))
    to, read = stage.one(ReadRequest)
    stage.give(to, found(read, 6))
    assert call not in stage.answers
    to, read = stage.one(ReadRequest)
    stage.give(to, found(read))
    assert stage.answers[call].gsn == 5


def test_a_read_of_an_unknown_shard_waits_for_a_confirmed_view() -> None:
    stage = stage_of()
    there, nowhere = stage.call(calls.Read(5, 3)), stage.call(calls.Read(5, 4))
    for to, question in stage.take(TailRequest):
        stage.give(to, TailResponse(question.request, 9, 1, 2))
    assert there not in stage.answers
    stage.show(view(2, shard(1), shard(2), shard(3)))
    assert isinstance(stage.answers[nowhere], NotOfThisShard)
    to, read = stage.one(ReadRequest)
    assert to in ("s31", "s32")
    stage.give(to, found(read))
    assert stage.answers[there].gsn == 5


def test_a_shard_that_disappears_during_a_read_was_trimmed_away() -> None:
    stage = stage_of()
    call = stage.call(calls.Read(5, 1))
    stage.one(ReadRequest)
    stage.wait(2 * SECOND)
    stage.show_now(view(4, shard(2), next_shard=3, oldest=8))
    stage.wait(SECOND)
    to, question = stage.take(TailRequest)[0]
    stage.give(to, TailResponse(question.request, 9, 8, 4))
    assert isinstance(stage.answers[call], Trimmed)


def test_a_deadline_ends_a_read() -> None:
    stage = stage_of()
    call = stage.call(calls.Read(5, 1, deadline=stage.now + SECOND))
    to, read = stage.one(ReadRequest)
    stage.wait(SECOND)
    assert isinstance(stage.answers[call], TimeoutError)
    stage.give(to, found(read))
    at_once = stage.call(calls.Read(5, 1, deadline=stage.now))
    stage.wait(0)
    assert isinstance(stage.answers[at_once], TimeoutError)


# ---- the GSN at a time


def test_the_gsn_at_a_time_is_the_newest_of_all_shards() -> None:
    stage = Stage(view(1, shard(1), shard(2, FINALIZED)))
    call = stage.call(calls.AtTime(500))
    to, question = stage.one(TailRequest)
    stage.give(to, TailResponse(question.request, 30, 4, 1))
    (one, first), (two, second) = stage.take(TimeRequest)
    assert (first.time, {one[:2], two[:2]}) == (500, {"s1", "s2"})
    stage.give(two, TimeResponse(second.request, 12, END))
    stage.give(one, TimeResponse(first.request, 9, 29))
    assert call not in stage.answers, "the member does not cover the log up to the tail"
    stage.wait(SECOND // 10)
    one, first = stage.one(TimeRequest)
    stage.give(one, TimeResponse(first.request, 20, 30))
    assert stage.answers[call] == 20


def test_if_all_records_are_younger_the_result_is_the_gsn_before_the_oldest() -> None:
    stage = Stage(view(1, shard(1)))
    call = stage.call(calls.AtTime(5))
    to, question = stage.one(TailRequest)
    stage.give(to, TailResponse(question.request, 30, 4, 1))
    to, question_of_time = stage.one(TimeRequest)
    stage.give(to, TimeResponse(question_of_time.request, 0, 30))
    assert stage.answers[call] == 3


def test_a_read_of_a_large_record_is_not_repeated_before_the_transfer_time() -> None:
    stage = stage_of()
    stage.call(calls.Read(5, 1, size=64 << 20))
    stage.one(ReadRequest)
    stage.wait(5 * SECOND)
    assert stage.take(ReadRequest) == []
    stage.wait(10 * SECOND)
    assert len(stage.take(ReadRequest)) >= 1
