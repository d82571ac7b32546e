"""Bugs that the simulator has found, each in its smallest form (by their numbers in tests/sim/BUGS.md)."""

from __future__ import annotations

import random

from logdb.cores.effects import SECOND, Received, Send
from logdb.log import requests as calls
from logdb.log.contract import LogFailed
from logdb.log.requests import END
from logdb.log.scalog.aggregator.aggregator import Aggregator, AggregatorConfig
from logdb.log.scalog.messages import (
    Append,
    AppendStatus,
    AppendStatusRequest,
    ReadError,
    ReadFailed,
    Rejected,
    RejectReason,
    Report,
    TailRequest,
    TailResponse,
    TimeRequest,
    TimeResponse,
    Updates,
    ViewRequest,
    ViewResponse,
)
from tests.log.scalog.client_stage import FINALIZED, Stage, records, shard, view
from tests.log.scalog.ordering_layer import Layer


def test_1_a_time_request_reaches_a_server_that_left_the_shard() -> None:
    stage = Stage(view(3, shard(1, FINALIZED)))
    call = stage.call(calls.AtTime(7))
    leader, question = stage.one(TailRequest)
    stage.give(leader, TailResponse(question.request, 50, 1, 3))
    server, asked = stage.one(TimeRequest)
    stage.give(server, ReadFailed(asked.request, ReadError.HERE, 1))
    assert call not in stage.answers
    stage.wait(SECOND)
    server, asked = stage.take(TimeRequest)[0]
    stage.give(server, TimeResponse(asked.request, 42, END))
    assert stage.answers[call] == 42


def test_2_a_forwarded_report_of_an_old_epoch_is_answered_only_to_its_server() -> None:
    layer = Layer(replicas=3)
    config = layer.shard("storage-1", "storage-2")
    old, leader = config.epoch - 1, layer.leader.config.address
    follower = next(address for address in layer.replicas if address != leader)
    for server, receivers in ((config.members[0].server, [config.members[0].address]), (999, [])):
        out = layer.send(leader, Report(config.shard, old, server, 0, ()), sender=follower)
        assert [to for to, message in out if isinstance(message, Updates) and message.updates[0].config] == receivers


def test_3_an_aggregator_answers_a_stored_report_of_an_old_epoch_only_to_its_server() -> None:
    """Regression: the report was stored until the view arrived, and then answered to the sender of the view."""
    aggregator = Aggregator(AggregatorConfig("a", ("o1",)), {}, random.Random(1))
    aggregator.start(0)
    config = shard(1)._replace(epoch=5, reports_to="a")
    for server in (config.members[0].server, 999):
        aggregator.handle(Received("s", Report(1, 4, server, 0, ())), SECOND)
    effects = aggregator.handle(Received("o1", ViewResponse(0, view(3, config))), SECOND)
    sent = [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Updates)]
    assert sent == [config.members[0].address]


def test_4_a_client_without_a_live_shard_requests_views_until_there_is_one() -> None:
    """After one view without a live shard it did not request another one."""
    stage = Stage(view(3, shard(1, FINALIZED)))
    call = stage.call(calls.Append(records(1)))
    for _ in range(5):
        stage.wait(SECOND)
        asked = stage.take(ViewRequest)
        assert asked
        stage.give(asked[0][0], ViewResponse(asked[0][1].request, view(3, shard(1, FINALIZED))))
    stage.wait(SECOND)
    stage.show(view(4, shard(1, FINALIZED), shard(2)))
    stage.wait(SECOND // 10)
    to, append = stage.take(Append)[0]
    stage.acknowledge(to, append, 7)
    assert stage.answers[call] == calls.AppendResult([7], [2])


def test_5_the_first_view_has_version_0() -> None:
    stage = Stage()
    call = stage.call(calls.View())
    stage.take(ViewRequest)
    leader, question = stage.one(TailRequest)
    stage.give(leader, TailResponse(question.request, 0, 1, 0))
    assert call not in stage.answers
    stage.wait(SECOND)
    stage.show(view(0))
    assert stage.answers[call] == view(0)


def test_7_rerouted_records_keep_their_order_within_the_append() -> None:
    """The status of the second record arrived before that of the first, and it was rerouted at once."""
    stage = Stage(view(3, shard(1, servers=1)))
    call = stage.call(calls.Append(records(2)))
    stage.wait(SECOND // 10)
    to, append = stage.one(Append)
    stage.give(to, Rejected(append.client, append.sequence, append.segment, RejectReason.SEALED))
    stage.show_now(view(4, shard(1, FINALIZED, servers=1), shard(2), shard(3)))
    stage.wait(SECOND // 10)
    assert stage.take(AppendStatusRequest)
    stage.give(to, AppendStatus(append.client, append.segment, (), ((append.sequence + 1, 1),)))
    stage.wait(SECOND // 10)
    assert stage.take(Append) == [], "the first record comes first"
    stage.give(to, AppendStatus(append.client, append.segment, (), ((append.sequence, 1),)))
    gsns = iter((7, 8))
    for expected in (append.sequence, append.sequence + 1):
        stage.wait(SECOND // 10)
        to, again = stage.take(Append)[0]
        assert (again.sequence, len(again.records)) == (expected, 1)
        stage.acknowledge(to, again, next(gsns))
    assert stage.answers[call].gsns == [7, 8]


def test_8_an_aggregator_whose_leader_is_silent_requests_the_view_from_other_replicas() -> None:
    """An aggregator that is not below the root does not learn of a new leader; it requested views from a dead one."""
    aggregator = Aggregator(AggregatorConfig("a", ("o1", "o2", "o3")), {}, random.Random(1))
    aggregator.start(0)
    aggregator.handle(Received("o1", Updates(1, ())), 1)
    asked = set()
    for number in range(1, 40):
        effects = aggregator.handle(Received("b", Updates(number, ())), number * SECOND // 10)
        asked |= {
            effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, ViewRequest)
        }
    assert asked == {"o1", "o2", "o3"}


def test_9_an_append_whose_segment_was_trimmed_away_before_its_status_came_ends() -> None:
    """The client repeated requests to the members instead of requesting a newer view, which lacks the segment."""
    stage = Stage(view(3, shard(1, servers=1), shard(2)))
    call = stage.call(calls.Append(records(1), 1))
    stage.wait(SECOND // 10)
    to, append = stage.one(Append)
    stage.give(to, Rejected(append.client, append.sequence, append.segment, RejectReason.SEALED))
    stage.show(view(4, shard(1, FINALIZED, servers=1), shard(2)))
    for _ in range(100):
        stage.wait(SECOND // 10)
        for member, _ in stage.take(AppendStatusRequest):
            stage.give(member, AppendStatus(append.client, append.segment, (), ()))
        stage.show(view(5, shard(2), next_shard=3))
    assert isinstance(stage.answers[call], LogFailed)
