"""Requests of a client to the ordering layer: finding the leader, retries, and freshness of answers."""

from __future__ import annotations

from logdb.cores.effects import SECOND
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import LogFailed
from logdb.log.requests import AddShard
from logdb.log.scalog.messages import (
    Append,
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    TailRequest,
    TailResponse,
    TrimLog,
    ViewRequest,
    ViewResponse,
)
from tests.log.scalog.client_stage import CONFIG, FINALIZED, Stage, records, shard, view

SHOWN = view(1, shard(1))


def test_a_client_requests_the_view_until_a_replica_answers() -> None:
    stage = Stage()
    stage.wait(3 * SECOND)
    assert {to for to, _ in stage.take(ViewRequest)} == {"o1", "o2", "o3"}


def test_a_broken_stream_ends_the_wait_for_a_replica() -> None:
    stage = Stage(SHOWN)
    stage.call(calls.Tail())
    first, question = stage.one(TailRequest)
    stage.lose(first)
    second, again = stage.one(TailRequest)
    assert again == question
    assert second != first
    stage.lose(first)
    assert not stage.take(TailRequest), "it gets no more requests"


def test_a_tail_request_finds_the_leader() -> None:
    stage = Stage(SHOWN)
    call = stage.call(calls.Tail())
    to, question = stage.one(TailRequest)
    leader = next(replica for replica in CONFIG.ordering if replica != to)
    stage.give(to, NotLeader(question.request, leader))
    to, question = stage.one(TailRequest)
    assert to == leader
    stage.give(to, TailResponse(question.request, 17, 3, 1))
    assert stage.answers[call] == 17
    call = stage.call(calls.Oldest())
    to, question = stage.one(TailRequest)
    assert to == leader, "it is remembered"
    stage.give(to, TailResponse(question.request, 17, 3, 1))
    assert stage.answers[call] == 3


def test_a_silent_leader_is_bypassed() -> None:
    """The two others still name it as leader, so the client sends requests to each of them meanwhile."""
    stage = Stage(SHOWN)
    stage.call(calls.Tail())
    dead, _ = stage.one(TailRequest)
    asked = []
    for _ in range(40):
        stage.wait(SECOND // 10)
        for to, question in stage.take(TailRequest):
            asked.append(to)
            if to != dead:
                stage.give(to, NotLeader(question.request, dead))
    assert set(asked) == set(CONFIG.ordering)
    assert 4 < len(asked) < 400


def test_a_client_does_not_loop_between_replicas_that_name_each_other_as_leader() -> None:
    stage = Stage(SHOWN)
    stage.call(calls.Tail())
    hops = 0
    for _ in range(50):
        asked = stage.take(TailRequest)
        if not asked:
            break
        hops += 1
        for to, question in asked:
            stage.give(to, NotLeader(question.request, ""))
    assert hops <= 2


def test_a_change_is_carried_out_once_however_often_it_is_sent() -> None:
    stage = Stage(SHOWN)
    call = stage.call(calls.Reconfigure(AddShard(())))
    stage.wait(3 * SECOND)
    sent = stage.take(ChangeRequest)
    assert len(sent) >= 5
    assert len({change.id for _, change in sent}) == 1
    assert {change.change for _, change in sent} == {AddShard(())}
    stage.give(sent[-1][0], ChangeResponse(sent[-1][1].id, 2, ""))
    assert stage.answers[call] == 2
    stage.one(ViewRequest)
    stage.give(sent[-1][0], ChangeResponse(sent[-1][1].id, 2, ""))
    stage.wait(3 * SECOND)
    assert stage.take(ChangeRequest) == []


def test_every_change_has_its_own_number() -> None:
    stage = Stage(SHOWN)
    for _ in range(10):
        stage.call(calls.Reconfigure(AddShard(())))
    assert len({change.id for _, change in stage.take(ChangeRequest)}) == 10


def test_a_rejected_change_is_unavailable_and_one_without_an_answer_unknown() -> None:
    stage = Stage(SHOWN)
    refused = stage.call(calls.Reconfigure(AddShard(())))
    to, change = stage.one(ChangeRequest)
    stage.give(to, ChangeResponse(change.id, 0, "there is no spare server"))
    assert isinstance(stage.answers[refused], Unavailable)
    late = stage.call(calls.Reconfigure(AddShard(()), stage.now + SECOND))
    stage.wait(SECOND)
    assert isinstance(stage.answers[late], LogFailed)
    stage.take(ChangeRequest)
    stage.wait(5 * SECOND)
    assert stage.take(ChangeRequest) == []


def test_reads_after_a_trim_are_rejected_at_once() -> None:
    stage = Stage(SHOWN)
    call = stage.call(calls.Trim(9))
    to, change = stage.one(ChangeRequest)
    assert change.change == TrimLog(9)
    stage.give(to, ChangeResponse(change.id, 9, ""))
    assert stage.answers[call] == 9
    assert stage.ask(calls.Read(8, 1)).oldest == 9
    past = stage.call(calls.Trim(99))
    to, change = stage.one(ChangeRequest)
    stage.give(to, ChangeResponse(change.id, 0, "the log ends at 20"))
    assert isinstance(stage.answers[past], ValueError)


def test_a_view_contains_everything_decided_before_the_request() -> None:
    stage = Stage(SHOWN)
    call = stage.call(calls.View())
    to, question = stage.one(TailRequest)
    stage.give(to, TailResponse(question.request, 17, 3, 5))
    to, ask = stage.one(ViewRequest)
    stage.give(to, ViewResponse(ask.request, view(4, shard(1))))
    assert call not in stage.answers
    stage.wait(SECOND // 10)
    to, ask = stage.one(ViewRequest)
    newest = view(6, shard(1, FINALIZED), shard(2))
    stage.give(to, ViewResponse(ask.request, newest))
    assert stage.answers[call] == newest


def test_an_older_view_is_not_adopted() -> None:
    """A replica of the ordering layer that lags behind answers a request of the client."""
    newest = view(5, shard(1, FINALIZED), shard(2))
    stage = Stage(newest)
    stage.call(calls.Append(records(1)))
    stage.wait(6 * SECOND)
    stage.call(calls.Append(records(1)))
    stage.show(view(3, shard(1)))
    call = stage.call(calls.View())
    to, question = stage.one(TailRequest)
    stage.give(to, TailResponse(question.request, 17, 3, 5))
    assert stage.answers.get(call) == newest


def test_an_idle_client_sends_nothing() -> None:
    stage = Stage(SHOWN)
    stage.sent.clear()
    stage.wait(3600 * SECOND)
    assert stage.sent == []


def test_replies_to_closed_requests_are_ignored() -> None:
    stage = Stage(SHOWN)
    call = stage.call(calls.Tail(stage.now + SECOND))
    to, question = stage.one(TailRequest)
    stage.wait(SECOND)
    assert isinstance(stage.answers[call], TimeoutError)
    stage.give(to, TailResponse(question.request, 17, 3, 1))


def test_every_tail_call_sends_a_request_to_the_leader() -> None:
    """The tail may have moved, or another replica may lead by now."""
    stage = Stage(SHOWN)
    for tail in (17, 18):
        call = stage.call(calls.Tail())
        to, question = stage.one(TailRequest)
        stage.give(to, TailResponse(question.request, tail, 3, 1))
        assert stage.answers[call] == tail


def test_a_restarted_client_has_another_number() -> None:
    """Its records and requests must differ from those before the restart."""
    first, second = Stage(SHOWN, seed=1), Stage(SHOWN, seed=2)
    for stage in (first, second):
        stage.call(calls.Append(records(1)))
        stage.call(calls.Tail())
    assert first.one(Append)[1].client != second.one(Append)[1].client
    assert first.one(TailRequest)[1].request != second.one(TailRequest)[1].request
