"""Cuts of a leader: their contents, their times, and the updates after them."""

from __future__ import annotations

from logdb.cores.effects import MILLISECOND, SECOND, TimerFired
from logdb.log.record_clock import MAX_PAUSE_NS, UNSET_NS
from logdb.log.requests import FinalizeShard, ShardState
from logdb.log.scalog.messages import (
    CaughtUp,
    Range,
    Register,
    RegisterAggregator,
    RegistrationReply,
    Report,
    SealSegment,
    ShardTally,
    Suspect,
    Tally,
    TrimLog,
    UpdateRequest,
    Updates,
)
from tests.log.scalog.ordering_layer import Layer


def test_records_that_all_members_have_are_ordered_at_once() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 4, 1, members=[1])
    assert layer.state.next_gsn == 1
    layer.report(shard, 3, 2, members=[2])
    assert [link.ranges for link in layer.links(shard)] == [(Range(1, 1, 2, 1),)]


def test_a_leader_whose_clock_is_decades_ahead_stops_before_it_makes_a_cut() -> None:
    """All later cuts would get at least its time, since times of cuts never decrease."""
    layer = Layer()
    layer.now = UNSET_NS + SECOND
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 4, 1)
    assert (layer.state.next_gsn, layer.stopped) == (4, [])
    dated = layer.state.time
    layer.now += MAX_PAUSE_NS + SECOND
    layer.report(shard, 5, 1)
    assert (layer.state.next_gsn, layer.state.time) == (4, dated)
    assert "set it right" in layer.stopped[0].reason
    assert not layer.stopped[0].wipe


def test_every_member_gets_the_link_and_the_newest_gsn() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    layer.report(shard.shard, 4, 1)
    for member in shard.members:
        (update,) = layer.sent(Updates, member.address)[-1].updates
        assert (update.head, update.last, update.epoch, update.config) == (1, 3, shard.epoch, None)
        assert update.links == tuple(layer.links(shard.shard, member.address))


def test_a_shard_without_records_in_the_cut_gets_only_the_newest_gsn() -> None:
    layer = Layer()
    busy, idle = layer.shard("s-1", "s-2"), layer.shard("s-3", "s-4")
    layer.run(40)
    layer.report(busy.shard, 4, 1)
    (update,) = layer.sent(Updates, idle.members[0].address)[-1].updates
    assert (update.links, update.head, update.last) == ((), 0, 3)


def test_a_shard_without_new_records_does_not_get_an_update_for_each_cut() -> None:
    layer = Layer()
    busy, idle = layer.shard("s-1", "s-2"), layer.shard("s-3", "s-4")
    layer.run(40)
    layer.outside.clear()
    for end in range(2, 12):
        layer.report(busy.shard, end, 1)
        layer.run(5)
    assert len(layer.sent(Updates, busy.members[0].address)) >= 10
    newest = [message.updates[0].last for message in layer.sent(Updates, idle.members[0].address)]
    assert newest == [1, 6]
    layer.run(150)
    assert layer.sent(Updates, idle.members[0].address)[-1].updates[0].last == 10


def test_an_idle_log_makes_no_cuts() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 4, 1)
    slot = layer.leader.slot
    for _ in range(20):
        layer.run(50)
        layer.report(shard, 4, 1)
    assert layer.leader.slot == slot


def test_heartbeats_contain_the_newest_gsn() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    layer.report(shard.shard, 4, 1)
    layer.outside.clear()
    layer.run(250)
    updates = layer.sent(Updates, "s-1")
    assert len(updates) == 2
    assert [(one.updates[0].head, one.updates[0].last, one.updates[0].links) for one in updates] == [(1, 3, ())] * 2


def test_reports_of_another_epoch_are_ignored() -> None:  # SCA-7
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    layer.report(shard.shard, 4, 4, members=[1])
    layer.done(SealSegment(2))
    layer.report(shard.shard, 4, 4, members=[2], epoch=shard.epoch)
    assert layer.state.next_gsn == 1
    layer.report(shard.shard, 4, members=[2])
    assert layer.state.next_gsn == 1  # the report of server 1 was of the epoch before
    layer.report(shard.shard, 4, members=[1])
    assert layer.state.next_gsn == 4


def test_tallies_of_another_epoch_are_ignored() -> None:  # SCA-7
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    layer.done(SealSegment(2))
    replica = layer.leader.config.address
    layer.send(replica, Tally("a", (ShardTally(shard.shard, shard.epoch, 0, ((1, 9),)),)), replica)
    assert layer.state.next_gsn == 1
    layer.send(replica, Tally("a", (ShardTally(shard.shard, shard.epoch + 1, 0, ((1, 9),)),)), replica)
    assert layer.state.next_gsn == 9


def test_messages_of_unauthorized_senders_are_ignored() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    leader = layer.leader.config.address
    tally = ShardTally(shard.shard, shard.epoch, 0, ((1, 9), (2, 9)))
    layer.send(leader, Tally("a", (tally,)), "a")
    layer.send(leader, RegisterAggregator("a"), "b")
    layer.send(leader, Register(99, "s-9"), "b")
    layer.send(leader, UpdateRequest(99, "s-9", 0), "b")
    assert not layer.state.tree.parents
    assert 99 not in layer.state.servers.tokens
    layer.send(leader, RegisterAggregator("a"), "a")
    layer.send(leader, Tally("a", (tally,)), "a")
    for server, address in ((1, "s-2"), (2, "s-1"), (3, "s-1"), (1, "b")):
        layer.send(leader, Report(shard.shard, shard.epoch, server, 0, ((1, 9), (2, 9))), address)
        layer.send(leader, Suspect(shard.shard, shard.epoch, server), address)
        layer.send(leader, CaughtUp(shard.shard, server), address)
    assert layer.state.next_gsn == 1
    assert layer.config(shard.shard) == shard


def test_a_report_of_an_old_epoch_is_answered_with_the_new_configuration() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    layer.done(SealSegment(2))
    layer.outside.clear()
    layer.report(shard.shard, 4, 4, members=[2], epoch=shard.epoch)
    (update,) = layer.sent(Updates, "s-2")[-1].updates
    assert update.config == layer.config(shard.shard)


def test_reports_of_a_finalized_shard_add_nothing() -> None:  # SCA-6
    layer = Layer()
    shard = layer.shard("s-1", "s-2")
    layer.report(shard.shard, 4, 1)
    layer.done(FinalizeShard(shard.shard, 0))
    for epoch in (shard.epoch, shard.epoch + 1):
        for server in (1, 2):
            report = Report(shard.shard, epoch, server, 1, ((1, 9), (2, 9)))
            layer.send(layer.leader.config.address, report, f"s-{server}")
    layer.run(300)
    assert layer.state.next_gsn == 4


def test_no_second_cut_while_one_is_in_flight() -> None:
    layer = Layer(replicas=3)
    one, two = layer.shard("s-1", "s-2").shard, layer.shard("s-3", "s-4").shard
    others = {address for address in layer.replicas if address != layer.leader.config.address}
    leader = layer.leader
    layer.cut_off = others
    for end in (2, 3, 4):
        layer.report(one, end, end)
        layer.report(two, end, end)
    assert leader.leader is not None
    assert leader.leader.flight is not None
    assert leader.state.next_gsn == 1  # SCA-5
    assert leader.paxos.next_slot == leader.slot + 2
    layer.cut_off = set()
    layer.run(2_000)
    layer.report(one, 4, 4)
    layer.report(two, 4, 4)
    assert layer.state.next_gsn == 13


def test_cuts_keep_their_interval() -> None:
    layer = Layer(interval_ns=10 * MILLISECOND)
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    for end in range(3, 13):
        layer.report(shard, end, 1)
        layer.run(1)
    layer.run(10)
    assert [link.ranges[0].count for link in layer.links(shard)] == [1, 10]


def test_links_are_dropped_when_a_quorum_has_placed_them() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    layer.report(shard, 3, 1, placed=1, members=[1])
    layer.report(shard, 3, 1, placed=0, members=[2])
    assert [link.number for link in layer.state.shards[shard].links] == [1, 2]
    layer.report(shard, 4, 1, placed=2)
    assert [link.number for link in layer.state.shards[shard].links] == [3]


def test_links_of_an_idle_shard_are_dropped_at_a_heartbeat() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    layer.report(shard, 2, 1, placed=1)
    layer.run(150)
    assert not layer.state.shards[shard].links
    slot = layer.leader.slot
    layer.run(500)
    assert layer.leader.slot == slot


def test_while_cuts_go_on_links_are_dropped_with_them() -> None:
    layer = Layer()
    busy, idle = layer.shard("s-1", "s-2").shard, layer.shard("s-3", "s-4").shard
    layer.report(idle, 2, 1)
    layer.report(idle, 2, 1, placed=1)
    slot = layer.leader.slot
    for number in range(1, 9):
        layer.report(busy, 1 + number, 1)
        layer.run(50)
    assert layer.leader.slot == slot + 8
    assert not layer.state.shards[idle].links


def test_the_links_of_a_finalized_shard_are_dropped_as_well() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    layer.done(FinalizeShard(shard, 0))
    layer.report(shard, placed=1)
    layer.run(150)
    assert not layer.state.shards[shard].links


def test_a_grace_passes_without_appends() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    layer.done(FinalizeShard(shard, 5))
    assert layer.config(shard).state is ShardState.FINALIZING
    layer.run(2)
    assert layer.config(shard).state is ShardState.FINALIZING
    layer.run(5)
    assert layer.config(shard).state is ShardState.FINALIZED
    cut = layer.state.cut
    layer.run(500)
    assert layer.state.cut == cut


def test_appends_within_the_grace_are_ordered() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.done(FinalizeShard(shard, 5))
    layer.run(2)
    layer.report(shard, 9, 1)
    layer.run(10)
    assert layer.config(shard).segments[0].sealed == 9
    assert [link.ranges for link in layer.links(shard)] == [(Range(1, 1, 8, 1),)]


def test_a_finalized_shard_gets_no_updates_from_cuts() -> None:
    layer = Layer()
    one, two = layer.shard("s-1", "s-2").shard, layer.shard("s-3", "s-4").shard
    layer.done(FinalizeShard(one, 0))
    layer.outside.clear()
    layer.report(two, 5, 5)
    layer.run(300)
    assert layer.sent(Updates, "s-1") == []
    assert layer.sent(Updates, "s-3")


def test_a_new_configuration_is_pushed_with_its_links() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    layer.outside.clear()
    layer.done(FinalizeShard(shard, 0))
    for address, token in (("s-1", 101), ("s-2", 102)):
        (you,) = layer.sent(RegistrationReply, address)
        assert you.update is not None
        assert (you.token, you.gone, you.update.config) == (token, False, layer.config(shard))


def test_members_of_a_shard_that_was_trimmed_away_are_removed() -> None:
    layer = Layer()
    shard = layer.shard("s-1", "s-2").shard
    layer.report(shard, 2, 1)
    layer.done(FinalizeShard(shard, 0))
    layer.done(TrimLog(2))
    assert layer.sent(RegistrationReply, "s-1")[-1] == RegistrationReply(101, 1, True, None)
    leader = layer.leader.leader
    assert leader is not None
    assert shard not in leader.tallies
    assert shard not in leader.monitor.cuts


def test_the_state_is_saved_so_that_the_log_of_commands_stays_short() -> None:
    layer = Layer(snapshot_bytes=2_000)
    shard = layer.shard("s-1", "s-2").shard
    most = 0
    for end in range(2, 600):
        layer.report(shard, end, end, placed=max(0, end - 3))
        most = max(most, layer.leader.paxos.uncompacted_bytes)
    assert most < 20_000
    assert layer.leader.slot > 500


def test_timers_of_a_deposed_leader_have_no_effect() -> None:
    layer = Layer(replicas=3)
    follower = next(core for core in layer.ordering if core.leader is None)
    assert follower.handle(TimerFired("ordering.heartbeat"), layer.now) == []
    assert follower.handle(TimerFired("ordering.cut"), layer.now) == []
