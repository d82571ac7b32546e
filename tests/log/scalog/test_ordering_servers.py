"""Storage servers and the ordering layer: identities, missed links, and the reaction to failures."""

from __future__ import annotations

import pytest

from logdb.cores.effects import SECOND
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, ShardState
from logdb.log.scalog.messages import (
    CaughtUp,
    Member,
    OpenSegment,
    Recovered,
    Register,
    RegistrationReply,
    Report,
    Suspect,
    TailRequest,
    Unreachable,
    UpdateRequest,
)
from logdb.log.scalog.ordering.commands import FailurePolicy
from tests.log.scalog.ordering_layer import Layer


def keep_reporting(
    layer: Layer, shard: int, members: list[int], milliseconds: int, spares: tuple[str, ...] = ()
) -> None:
    """Let time pass while these members report, and these spares register, all the time."""
    for _ in range(milliseconds // 100):
        if layer.config(shard).state is not ShardState.FINALIZED:
            layer.report(shard, members=[one.server for one in layer.config(shard).members if one.server in members])
        layer.register(*spares)
        layer.run(100)


# ---- identities


def test_a_spare_that_registers_is_known_by_its_token() -> None:
    layer = Layer()
    layer.register("s-1", "s-1", "s-2")
    assert [(spare.id, spare.token, spare.address) for spare in layer.state.servers.spares.values()] == [
        (1, 101, "s-1"),
        (2, 102, "s-2"),
    ]


def test_a_server_that_requests_updates_gets_its_id() -> None:
    layer = Layer()
    leader = layer.leader.config.address
    assert layer.send(leader, UpdateRequest(101, "s-1", 0), "s-1") == [("s-1", RegistrationReply(101, 0, False, None))]
    assert layer.send(leader, UpdateRequest(101, "s-1", 0), "s-1") == [("s-1", RegistrationReply(101, 1, False, None))]
    layer.register("s-2")
    shard = layer.done(AddShard((1, 2)))
    ((_, you),) = layer.send(leader, UpdateRequest(101, "s-1", 0), "s-1")
    assert (you.server, you.update.config) == (1, layer.config(shard))


def test_new_members_get_their_configuration() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    for address, token, server in (("s-1", 101, 1), ("s-2", 102, 2)):
        (you,) = layer.sent(RegistrationReply, address)
        assert you.update is not None
        assert (you.token, you.server, you.gone, you.update.config) == (token, server, False, shard)


def test_a_server_that_missed_links_gets_those_that_are_kept() -> None:
    layer = Layer(replicas=3)
    shard = layer.shard("s-1", "s-2").shard
    for end in (2, 3, 4):
        layer.report(shard, end, 1)
    layer.report(shard, 4, 1, placed=1)
    layer.run(500)
    for address in layer.replicas:
        ((_, you),) = layer.send(address, UpdateRequest(101, "s-1", 2), "s-1")
        assert [link.number for link in you.update.links] == [3]
        assert (you.update.head, you.update.last) == (3, 3)
        ((_, you),) = layer.send(address, UpdateRequest(101, "s-1", 0), "s-1")
        assert [link.number for link in you.update.links] == [2, 3]  # the first is with the other members


def test_members_of_a_finalized_shard_get_updates_on_request() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    layer.done(FinalizeShard(shard, 0))
    ((_, you),) = layer.send(layer.leader.config.address, UpdateRequest(101, "s-1", 0), "s-1")
    assert (you.update.config, len(you.update.links)) == (layer.config(shard), 1)


def test_a_replaced_server_is_removed_by_its_token() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.send(layer.leader.config.address, Register(109, "s-2"), "s-2")  # it has lost its disk
    assert layer.done(ReplaceServer(2, 3)) == 3
    (came,) = [you for you in layer.sent(RegistrationReply, "s-2") if you.token == 109]
    assert (came.server, came.update and came.update.config) == (3, layer.config(shard))
    layer.send(layer.leader.config.address, CaughtUp(shard, 3), "s-2")
    assert [you for you in layer.sent(RegistrationReply, "s-2") if you.gone] == [RegistrationReply(102, 2, True, None)]
    assert layer.send(layer.leader.config.address, UpdateRequest(102, "s-2", 0), "s-2") == [
        ("s-2", RegistrationReply(102, 0, True, None))
    ]


# ---- failures


def test_a_silent_member_makes_its_shard_be_finalized_and_another_one_added() -> None:
    layer = Layer(suspect_after_ns=SECOND)
    shard = layer.shard("s-1", "s-2").shard
    keep_reporting(layer, shard, [1, 2], 2_000, ("s-3", "s-4"))
    assert layer.config(shard).state is ShardState.LIVE
    keep_reporting(layer, shard, [1], 2_000, ("s-3", "s-4"))
    assert layer.config(shard).state is ShardState.FINALIZED
    assert [member.address for member in layer.config(2).members] == ["s-3", "s-4"]


def test_a_member_that_reports_of_an_earlier_epoch_is_not_silent() -> None:
    """The leader begins an epoch before the members. Their last reports of the one before show that they live."""
    layer = Layer(suspect_after_ns=SECOND)
    config = layer.shard("s-1", "s-2")
    for _ in range(20):
        layer.register("s-3", "s-4")
        layer.report(config.shard, members=[1])
        layer.send(layer.leader.config.address, Report(config.shard, config.epoch - 1, 2, 0, ()), "s-2")
        layer.run(100)
    assert layer.config(config.shard).state is ShardState.LIVE


def test_silent_spares_are_not_used() -> None:
    layer = Layer(suspect_after_ns=SECOND)
    shard = layer.shard("s-1", "s-2").shard
    layer.register("s-3", "s-4")
    keep_reporting(layer, shard, [1], 2_000, ("s-5",))
    assert layer.config(shard).state is ShardState.LIVE
    keep_reporting(layer, shard, [1], 500, ("s-4", "s-5"))
    assert [member.address for member in layer.config(2).members] == ["s-4", "s-5"]


def test_remove_and_replace_takes_one_at_a_time() -> None:  # SCA-14
    layer = Layer(suspect_after_ns=SECOND, policy=FailurePolicy.REMOVE_AND_REPLACE)
    shard = layer.shard("s-1", "s-2").shard
    keep_reporting(layer, shard, [1], 2_000, ("s-3",))
    assert [member.address for member in layer.config(shard).members] == ["s-1", "s-3"]
    keep_reporting(layer, shard, [3], 2_000, ("s-4",))
    assert [member.address for member in layer.config(shard).members] == ["s-1", "s-3"]
    layer.send(layer.leader.config.address, CaughtUp(shard, 3), "s-3")
    assert layer.config(shard).joining == ()
    keep_reporting(layer, shard, [3], 2_000, ("s-4",))
    assert [member.address for member in layer.config(shard).members] == ["s-4", "s-3"]


def test_mask_continues_without_a_failed_member_and_takes_it_back() -> None:
    layer = Layer(suspect_after_ns=SECOND, policy=FailurePolicy.MASK)
    shard = layer.shard("s-1", "s-2", "s-3").shard
    keep_reporting(layer, shard, [1, 3], 2_000)
    assert [(one.primary, one.sealed) for one in layer.config(shard).segments] == [(1, None), (2, 1), (3, None)]
    layer.report(shard, 4, 4, members=[1, 3])
    assert layer.state.next_gsn == 7
    keep_reporting(layer, shard, [1, 2, 3], 2_000)
    assert [one.primary for one in layer.config(shard).segments if one.sealed is None] == [1, 2, 3]


def test_a_replaced_server_stays_until_its_successor_has_caught_up() -> None:  # SCA-14
    layer = Layer(suspect_after_ns=SECOND, policy=FailurePolicy.REMOVE_AND_REPLACE)
    shard = layer.shard("s-1", "s-2").shard
    keep_reporting(layer, shard, [1], 2_000, ("s-3", "s-4"))
    assert layer.config(shard).replaced == (Member(2, "s-2"),)
    assert not any(you.gone for you in layer.sent(RegistrationReply))
    ((_, you),) = layer.send(layer.leader.config.address, UpdateRequest(102, "s-2", 0), "s-2")
    assert (you.gone, you.update.config) == (False, layer.config(shard))
    for change in (ReplaceServer(2, 0), OpenSegment(2)):
        assert "server 2 was replaced" in layer.change(change).error
    keep_reporting(layer, shard, [1], 2_000, ("s-4",))  # so is its successor, as it is silent
    assert [it.server for it in layer.config(shard).replaced] == [2, 3]
    layer.send(layer.leader.config.address, CaughtUp(shard, 4), "s-4")
    assert layer.config(shard).replaced == ()
    assert {you.token for you in layer.sent(RegistrationReply) if you.gone} == {102, 103}


@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_clients_report_of_an_unreachable_server_changes_nothing(policy: FailurePolicy) -> None:
    layer = Layer(replicas=3, suspect_after_ns=SECOND, policy=policy)
    config = layer.shard("s-1", "s-2", "s-3")
    for _ in range(50):
        for address in layer.replicas:
            layer.send(address, Unreachable(1), "a-client")
            layer.send(address, Unreachable(99), "a-client")
        keep_reporting(layer, config.shard, [1, 2, 3], 100, ("s-4", "s-5", "s-6"))
    assert layer.config(config.shard) == config
    ((_, tail),) = layer.send(layer.leader.config.address, TailRequest(9))
    assert tail.unreachable == (1,)
    keep_reporting(layer, config.shard, [1, 2, 3], 11_000)
    ((_, tail),) = layer.send(layer.leader.config.address, TailRequest(9))
    assert tail.unreachable == ()


def test_suspicions_of_leaves_are_carried_out_once() -> None:
    layer = Layer(replicas=3, aggregators=1)
    shard = layer.shard("s-1", "s-2")
    layer.register("s-3", "s-4", "s-5", "s-6")
    layer.register("s-3", "s-4", "s-5", "s-6")
    layer.run(100)
    for address in layer.replicas:
        for _ in range(3):
            layer.send(address, Suspect(shard.shard, shard.epoch, 1, False), shard.reports_to)
    assert len(layer.state.shards) == 2


def test_a_member_may_report_itself_but_no_other() -> None:
    layer = Layer(aggregators=1, policy=FailurePolicy.MASK)
    shard = layer.shard("s-1", "s-2", "s-3")
    suspicion = Suspect(shard.shard, shard.epoch, 1, False)
    for sender, ends in (("s-2", [None, None, None]), ("s-1", [1, None, None])):
        layer.send(layer.leader.config.address, suspicion, sender)
        assert [segment.sealed for segment in layer.config(shard.shard).segments] == ends


def test_a_recovered_member_gets_a_segment_only_where_failures_are_masked() -> None:
    for policy, segments in ((FailurePolicy.MASK, 4), (FailurePolicy.REMOVE_AND_REPLACE, 3)):
        layer = Layer(aggregators=1, suspect_after_ns=SECOND, policy=policy)
        names = ("s-1", "s-2", "s-3")
        shard = layer.shard(*names)
        segment = layer.state.shards[shard.shard].segments[1]
        layer.state.base += layer.state.shards[shard.shard].seal(segment, 1)
        layer.state.shards[shard.shard].changed()
        layer.send(layer.leader.config.address, Recovered(shard.shard, shard.epoch + 1, 2), shard.reports_to)
        assert len(layer.config(shard.shard).segments) == segments


def test_members_of_a_finalized_shard_are_not_suspected() -> None:
    layer = Layer(suspect_after_ns=SECOND)
    shard = layer.shard("s-1", "s-2").shard
    layer.done(FinalizeShard(shard, 0))
    slot = layer.leader.slot
    layer.run(5_000)
    assert layer.leader.slot == slot


def test_a_replica_of_a_finalized_shard_joins() -> None:
    layer = Layer(suspect_after_ns=SECOND)
    shard = layer.shard("s-1", "s-2").shard
    layer.done(FinalizeShard(shard, 0))
    layer.register("s-3")
    assert layer.done(AddReplica(shard, 0)) == 3
    assert layer.config(shard).joining == (3,)
    layer.send(layer.leader.config.address, CaughtUp(shard, 3), "s-3")
    layer.send(layer.leader.config.address, CaughtUp(shard, 3), "s-3")
    assert layer.config(shard).joining == ()


def test_a_leader_that_was_paused_suspects_no_member() -> None:
    layer = Layer(suspect_after_ns=SECOND)
    shard = layer.shard("s-1", "s-2").shard
    keep_reporting(layer, shard, [1, 2], 1_000)
    layer.now += 60_000_000_000
    keep_reporting(layer, shard, [1], 300, ("s-3", "s-4"))
    assert layer.config(shard).state is ShardState.LIVE
    keep_reporting(layer, shard, [1], 2_000, ("s-3", "s-4"))
    assert layer.config(shard).state is ShardState.FINALIZED
