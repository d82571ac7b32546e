"""Changes of the leader: no chosen command is lost, no record is ordered twice, and soft state is rebuilt."""

from __future__ import annotations

import random

from logdb.log.requests import AddShard, FinalizeShard
from logdb.log.scalog.messages import (
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    Report,
    TailRequest,
    TailResponse,
    Tally,
    TrimLog,
    Updates,
    ViewRequest,
    ViewResponse,
)
from logdb.log.scalog.ordering.replica import OrderingConfig, OrderingReplica
from tests.log.scalog.ordering_layer import CLIENT, Layer


def depose(layer: Layer) -> OrderingReplica:
    """Partition the leader and wait for another one. Returns the old one, which still considers itself leader."""
    old = layer.leader
    layer.cut_off = {old.config.address}
    layer.run(5_000)
    assert layer.leader is not old
    return old


def test_a_new_leader_begins_with_empty_tallies() -> None:
    layer = Layer(replicas=3)
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 5, 1, members=[1])
    depose(layer)
    layer.report(shard, 5, 1, members=[2])
    assert layer.state.next_gsn == 1
    layer.report(shard, 5, 1, members=[1])
    assert layer.state.next_gsn == 5


def test_a_cut_that_an_old_leader_proposed_is_not_ordered_twice() -> None:
    layer = Layer(replicas=3)
    shard = layer.shard("s-1", "s-2").shard
    old = layer.leader
    layer.cut_off = set(layer.replicas) - {old.config.address}
    layer.report(shard, 5, 3)  # proposed, and in flight
    assert old.state.next_gsn == 1  # SCA-5
    layer.cut_off = set()
    layer.run(50)
    depose(layer)
    layer.report(shard, 6, 3)
    layer.cut_off = set()
    layer.run(5_000)
    assert [core.state.next_gsn for core in layer.ordering] == [8, 8, 8]
    assert len({core.state.to_bytes() for core in layer.ordering}) == 1


def test_replicas_have_the_same_state_byte_for_byte() -> None:
    layer = Layer(replicas=5, aggregators=2, snapshot_bytes=1_500)
    shards = [layer.shard(f"s-{number}", f"s-{number + 1}").shard for number in (1, 3)]
    layer.run(200)
    for end in range(2, 40):
        for shard in shards:
            layer.report(shard, end, end, placed=0)
        layer.run(25)
    layer.done(FinalizeShard(shards[0], 2))
    layer.run(3_000)
    assert len({(core.slot, core.state.to_bytes()) for core in layer.ordering}) == 1
    assert layer.state.next_gsn == 1 + 4 * 38


def test_a_new_leader_sends_the_newest_gsn_to_all() -> None:
    layer = Layer(replicas=3)
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 5, 1)
    layer.outside.clear()
    depose(layer)
    assert {one.updates[0].last for one in layer.sent(Updates, "s-2")} == {4}


def test_a_replica_that_was_away_gets_the_snapshot() -> None:
    layer = Layer(replicas=3, snapshot_bytes=1_000)
    shard = layer.shard("s-1", "s-2").shard
    away = next(core for core in layer.ordering if core.leader is None)
    layer.cut_off = {away.config.address}
    for end in range(2, 200):
        layer.report(shard, end, 1, placed=max(0, end - 3))
    behind = away.slot
    layer.cut_off = set()
    layer.run(5_000)
    assert away.slot == layer.leader.slot > behind + 100
    assert away.state.to_bytes() == layer.state.to_bytes()


# ---- requests that only the leader answers


def test_the_tail_comes_from_a_leader_that_has_confirmed_that_it_leads() -> None:
    layer = Layer(replicas=3)
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 5, 1)
    state = layer.state
    assert layer.send(layer.leader.config.address, TailRequest(9)) == [
        (CLIENT, TailResponse(9, 4, 1, state.version, state.cut))
    ]


def test_a_deposed_leader_does_not_answer_tail_requests() -> None:
    layer = Layer(replicas=3)
    shard = layer.shard("s-1", "s-2").shard
    old = layer.leader
    layer.cut_off = {old.config.address}
    assert layer.send(old.config.address, TailRequest(9)) == []
    layer.run(5_000)
    layer.report(shard, 5, 1)
    layer.cut_off = set()
    layer.run(1_000)
    assert layer.sent(TailResponse) == []
    assert [refused.request for refused in layer.sent(NotLeader)] == [9]


def test_one_confirmation_answers_all_open_tail_requests() -> None:
    layer = Layer(replicas=3)
    leader = layer.leader
    layer.cut_off = set(layer.replicas) - {leader.config.address}
    for request in range(5):
        layer.send(leader.config.address, TailRequest(request))
    layer.cut_off = set()
    layer.run(300)
    assert sorted(tail.request for tail in layer.sent(TailResponse)) == [0, 1, 2, 3, 4]


def test_followers_name_the_leader() -> None:
    layer = Layer(replicas=3)
    leader = layer.leader.config.address
    for follower in set(layer.replicas) - {leader}:
        assert layer.send(follower, TailRequest(3)) == [(CLIENT, NotLeader(3, leader))]
        assert layer.send(follower, ChangeRequest(4, TrimLog(1))) == [(CLIENT, NotLeader(4, leader))]


def test_followers_forward_reports_and_tallies_once() -> None:
    layer = Layer(replicas=3)
    shard = layer.shard("s-1", "s-2")
    layer.run(500)
    follower = next(core.config.address for core in layer.ordering if core.leader is None)
    for server, address in shard.members:
        layer.send(follower, Report(shard.shard, shard.epoch, server, 0, ((1, 5), (2, 1))), address)
    assert layer.state.next_gsn == 5
    stranger = next(one for one in layer.replicas if one not in (follower, layer.leader.config.address))
    assert layer.send(follower, Tally("a", ()), stranger) == []


def test_followers_answer_views_and_update_requests() -> None:
    layer = Layer(replicas=3)
    layer.shard("s-1", "s-2")
    layer.run(500)
    for address in layer.replicas:
        assert layer.send(address, ViewRequest(7)) == [(CLIENT, ViewResponse(7, layer.state.view()))]


# ---- changes


def test_a_change_is_answered_once_it_is_applied() -> None:
    layer = Layer(replicas=3)
    layer.register("s-1", "s-2")
    leader = layer.leader
    layer.cut_off = set(layer.replicas) - {leader.config.address}
    assert layer.send(leader.config.address, ChangeRequest(5, AddShard(()))) == []
    assert layer.send(leader.config.address, ChangeRequest(5, AddShard(())), "another") == []
    layer.cut_off = set()
    layer.run(500)
    answers = [(to, message) for to, message in layer.outside if isinstance(message, ChangeResponse)]
    assert answers == [(CLIENT, ChangeResponse(5, 1, "")), ("another", ChangeResponse(5, 1, ""))]
    assert list(layer.state.shards) == [1]


def test_a_change_that_is_sent_again_gets_the_first_answer_from_any_replica() -> None:
    layer = Layer(replicas=3)
    layer.register("s-1", "s-2", "s-3", "s-4")
    first = layer.change(AddShard(()), id=5)
    layer.run(500)
    depose(layer)
    assert layer.change(AddShard(()), id=5) == first
    for address in set(layer.replicas) - layer.cut_off:
        assert layer.send(address, ChangeRequest(5, AddShard(()))) == [(CLIENT, first)]
    assert list(layer.state.shards) == [1]


def test_a_waiting_change_gets_not_leader_when_its_leader_is_deposed() -> None:
    layer = Layer(replicas=3)
    old = layer.leader
    layer.cut_off = {old.config.address}
    layer.send(old.config.address, ChangeRequest(5, TrimLog(1)))
    layer.run(5_000)
    layer.cut_off = set()
    layer.run(2_000)
    assert [refused.request for refused in layer.sent(NotLeader)] == [5]
    assert layer.change(TrimLog(1), id=5).error == ""


def test_the_log_has_the_policy_of_its_leader() -> None:
    layer = Layer(f=2)
    assert (layer.state.policy, layer.state.f) == (layer.leader.config.policy, 2)
    layer.register("s-1", "s-2")
    assert "a shard has 3 servers" in layer.change(AddShard(())).error


def test_a_replica_restarts_where_it_was() -> None:
    from logdb.cores.effects import Journal, Persist, Persisted, TimerFired
    from logdb.log.contract import LogRecord

    config = OrderingConfig("o", ("o",), snapshot_bytes=1_000)
    core, records, now = OrderingReplica(config, {}, random.Random(1)), [], 10**9

    def perform(effects: list) -> None:  # type: ignore[type-arg]
        for effect in effects:
            if isinstance(effect, Persist):
                for number, record in enumerate(effect.records, effect.first):
                    records.append((number, record))
                perform(core.handle(Persisted(effect.journal, effect.first + len(effect.records)), now))

    perform(core.start(now))
    now *= 5
    perform(core.handle(TimerFired("paxos.election"), now))
    before = core.state.to_bytes()
    found = [LogRecord(number, 0, *record) for number, record in records]
    core = OrderingReplica(config, {"paxos": Journal(1, len(found) + 1, found)}, random.Random(2))
    perform(core.start(now))
    assert core.state.to_bytes() == before
