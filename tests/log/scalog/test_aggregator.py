"""Aggregators: tallies to the parent, updates to the members, and kills at any time."""

from __future__ import annotations

from typing import Any

from logdb.cores.effects import SECOND, Received, Send, TimerFired
from logdb.log.requests import FinalizeShard, ShardState
from logdb.log.scalog.aggregator.aggregator import HEARTBEAT, Aggregator
from logdb.log.scalog.messages import (
    AssignShard,
    Report,
    ReportRequest,
    SealSegment,
    SetParent,
    Suspect,
    SuspectAggregator,
    Tally,
    TrimLog,
    Update,
    Updates,
    ViewRequest,
)
from tests.log.scalog.ordering_layer import Layer


def layer_of(aggregators: int, shards: int = 1, **config: Any) -> Layer:
    """Shard n has the members s-2n-1 and s-2n, and segments of the same numbers."""
    layer = Layer(aggregators=aggregators, **config)
    for number in range(1, shards + 1):
        layer.shard(f"s-{2 * number - 1}", f"s-{2 * number}")
    layer.run(200)
    return layer


def aggregator(layer: Layer, number: int = 1) -> Aggregator:
    core = layer.cores[f"aggregator-{number}"]
    assert isinstance(core, Aggregator)
    return core


def test_reports_go_up_and_links_come_down() -> None:
    layer = layer_of(1)
    assert layer.config(1).reports_to == "aggregator-1"
    layer.report(1, 4, 2)
    assert layer.state.next_gsn == 5
    for address in ("s-1", "s-2"):
        assert sum(range_.count for link in layer.links(1, address) for range_ in link.ranges) == 4


def test_shards_are_spread_over_the_leaves() -> None:
    layer = layer_of(2, shards=4)
    assert [layer.config(one).reports_to for one in (1, 2, 3, 4)] == ["aggregator-1", "aggregator-2"] * 2
    for one in (1, 2, 3, 4):
        layer.report(one, 3, 3)
    layer.run(200)
    assert layer.state.next_gsn == 17


def test_a_tree_of_three_levels() -> None:
    layer = layer_of(3, shards=3)
    layer.done(SetParent("aggregator-2", "aggregator-1"))
    layer.done(SetParent("aggregator-3", "aggregator-2"))
    layer.run(300)
    for one in (1, 2, 3):
        layer.report(one, 3, 3)
    layer.run(300)
    assert layer.state.next_gsn == 13
    for one in (1, 2, 3):
        assert sum(range_.count for link in layer.links(one) for range_ in link.ranges) == 4
    leader = layer.leader.leader
    assert leader is not None
    assert [child for child, _ in leader._children] == ["aggregator-1"]


def test_a_tally_contains_only_what_a_quorum_has() -> None:
    layer = layer_of(1)
    layer.report(1, 4, 2, members=[1])
    assert layer.state.next_gsn == 1
    assert dict(aggregator(layer).tallies[1].ends) == {1: 1, 2: 1}


def test_one_tally_is_outstanding_at_a_time() -> None:
    layer = layer_of(1)
    core = aggregator(layer)

    def tallies(end: int) -> list[Tally]:
        sent = []
        for server in (1, 2):
            report = Report(1, layer.config(1).epoch, server, 0, ((1, end), (2, 1)))
            effects = core.handle(Received(f"s-{server}", report), layer.now)
            sent += [one.message for one in effects if getattr(one, "to", "") == "ordering-1"]
        return sent

    assert [dict(tally.shards[0].ends)[1] for tally in tallies(3) + tallies(5) + tallies(7)] == [3]
    updates = Updates(layer.state.version, ())
    sent = [one.message for one in core.handle(Received("ordering-1", updates), layer.now) if isinstance(one, Send)]
    assert [tally.shards[0].ends for tally in sent] == [((1, 7), (2, 1))]


def test_a_lost_tally_is_resent() -> None:
    layer = layer_of(1)
    layer.cut_off = {"aggregator-1"}
    layer.report(1, 4, 2)
    layer.cut_off = set()
    assert layer.state.next_gsn == 1
    layer.run(25)
    assert layer.state.next_gsn == 5


def test_retries_of_an_unconfirmed_tally_end() -> None:
    layer = layer_of(1)
    layer.report(1, 4, 2)
    layer.run(1_000)
    core = aggregator(layer)
    assert not core.sent
    assert not core.advanced


def test_a_new_aggregator_has_all_tallies_after_one_round_of_reports() -> None:
    layer = layer_of(1)
    layer.report(1, 4, 2)
    layer.add_aggregator("aggregator-1")  # it restarts without state
    layer.report(1, 9, 2)
    layer.run(100)
    assert layer.state.next_gsn == 10
    layer.run(3_000)
    assert "aggregator-1" in layer.state.tree.parents


def test_reports_of_an_older_epoch_are_answered_with_the_configuration() -> None:  # SCA-7
    layer = layer_of(1)
    epoch = layer.config(1).epoch
    layer.report(1, 4, 4, members=[1])
    layer.done(SealSegment(2))
    layer.run(100)
    layer.outside.clear()
    layer.report(1, 4, 4, members=[2], epoch=epoch)
    layer.run(100)
    assert layer.state.next_gsn == 1
    configs = [one.config for updates in layer.sent(Updates, "s-2") for one in updates.updates if one.config]
    assert configs == [layer.config(1)]


def test_reports_of_a_newer_epoch_wait_for_the_view() -> None:
    layer = layer_of(1)
    layer.cut_off = {"aggregator-1"}
    layer.done(SealSegment(2))
    layer.report(1, 4)
    assert layer.state.next_gsn == 1
    layer.cut_off = set()
    layer.run(300)
    assert layer.state.next_gsn == 4


def test_a_late_report_of_a_shard_that_was_trimmed_away_is_dropped() -> None:
    """The aggregator kept it for a newer view, and requested one with each heartbeat from then on."""
    layer = layer_of(1, shards=2)
    report = Report(2, layer.config(2).epoch, 3, 0, ((3, 1), (4, 1)))
    layer.report(1, 4)
    layer.done(FinalizeShard(2, 0))
    layer.done(TrimLog(layer.state.next_gsn))
    layer.run(300)
    assert 2 not in layer.state.shards
    layer.send("aggregator-1", report, "s-3")
    layer.run(300)
    effects = aggregator(layer).handle(TimerFired(HEARTBEAT), layer.now + SECOND // 10)
    assert not [one for one in effects if isinstance(one, Send) and isinstance(one.message, ViewRequest)]


def test_a_leaf_suspects_its_silent_members() -> None:
    layer = layer_of(1, suspect_after_ns=SECOND)
    layer.register("s-3", "s-4")
    for _ in range(20):
        layer.report(1, members=[1])
        layer.register("s-3", "s-4")
        layer.run(100)
    assert layer.config(1).state is ShardState.FINALIZED
    assert [member.address for member in layer.config(2).members] == ["s-3", "s-4"]


def answer_leader(layer: Layer, shard: int, address: str) -> None:
    """Let this member answer the leader's `ReportRequest`, if there is one."""
    config = layer.config(shard)
    (server,) = [server for server, name in config.members if name == address]
    if layer.sent(ReportRequest, address):
        layer.send(layer.leader.config.address, Report(shard, config.epoch, server, 0, ()), address)


def test_an_aggregator_partitioned_from_healthy_members_is_dropped() -> None:
    layer = layer_of(1, suspect_after_ns=SECOND)
    before = layer.config(1)
    assert before.reports_to == "aggregator-1"
    for _ in range(40):  # the aggregator gets no reports, and both members answer the leader
        layer.run(100)
        for address in ("s-1", "s-2"):
            answer_leader(layer, 1, address)
        layer.outside.clear()
        layer.register("s-3", "s-4")
    after = layer.config(1)
    assert (after.state, after.members, after.segments) == (before.state, before.members, before.segments)
    assert after.reports_to == ""
    for _ in range(20):  # one member has failed
        layer.run(100)
        answer_leader(layer, 1, "s-1")
        layer.outside.clear()
        layer.register("s-3", "s-4")
    assert layer.config(1).state is ShardState.FINALIZED


def bypass(layer: Layer, shard: int, address: str) -> None:
    """Let this member report to the leader, since it receives nothing from its aggregator."""
    config = layer.config(shard)
    (server,) = [server for server, name in config.members if name == address]
    layer.send(layer.leader.config.address, Report(shard, config.epoch, server, 0, ((server, 3),)), address)


def test_a_member_that_failed_with_its_aggregator_is_suspected_by_the_leader() -> None:
    """As when one machine runs both. Nothing is ordered in the shard, so no news shows that the aggregator is gone."""
    layer = layer_of(1, suspect_after_ns=SECOND)
    layer.cut_off = {"aggregator-1", "s-2"}
    for _ in range(30):
        bypass(layer, 1, "s-1")
        layer.register("s-3", "s-4")
        layer.run(100)
    assert layer.config(1).state is ShardState.FINALIZED
    assert [member.address for member in layer.config(2).members] == ["s-3", "s-4"]


def test_a_member_whose_aggregator_is_silent_does_not_make_another_one_suspect() -> None:
    layer = layer_of(1, suspect_after_ns=SECOND)
    layer.cut_off = {"aggregator-1"}
    before = layer.config(1)
    for _ in range(60):
        bypass(layer, 1, "s-1")
        layer.register("s-3", "s-4")
        layer.run(100)
        answer_leader(layer, 1, "s-2")
        layer.outside.clear()
    assert (layer.config(1).state, layer.config(1).members) == (before.state, before.members)


def test_the_leader_watches_no_member_for_longer_than_its_aggregator_is_silent() -> None:
    """Members answer each request to every replica, and all of these forward the answer."""
    layer = layer_of(1, replicas=3, suspect_after_ns=SECOND)
    bypass(layer, 1, "s-1")
    requests = []
    for _ in range(60):
        layer.report(1, 1, 1)
        layer.run(100)
        config = layer.config(1)
        found = [(one, address) for _, address in config.members for one in layer.sent(ReportRequest, address)]
        layer.outside.clear()
        for request, address in found:
            for replica in layer.replicas:
                layer.send(replica, Report(1, config.epoch, request.server, 0, ()), address)
        requests.append(len(found))
    assert sum(requests) > 0
    assert sum(requests[30:]) == 0


def test_an_aggregators_suspicion_of_a_lagging_member_is_carried_out_at_once() -> None:
    layer = layer_of(1, suspect_after_ns=SECOND)
    for _ in range(2):
        layer.register("s-3", "s-4")
    layer.send("ordering-1", Suspect(1, layer.config(1).epoch, 2, False), "aggregator-1")
    assert layer.config(1).state is ShardState.FINALIZED


def test_a_silent_parent_is_suspected_and_bypassed() -> None:
    layer = layer_of(2, shards=1)
    layer.done(SetParent("aggregator-1", "aggregator-2"))
    layer.run(300)
    layer.report(1, 3, 3)
    assert layer.state.next_gsn == 5
    layer.cut_off = {"aggregator-2"}
    for end in range(4, 40):
        layer.report(1, end, end)
        layer.run(100)
    assert layer.state.tree.parents == {"aggregator-1": ""}
    assert layer.state.next_gsn == 1 + 2 * 38


def test_a_shard_that_was_assigned_elsewhere_is_no_evidence_against_the_parent() -> None:
    layer = layer_of(2)
    layer.done(SetParent("aggregator-1", "aggregator-2"))
    layer.run(300)
    layer.report(1, 3, 3)
    layer.cut_off = {"aggregator-2"}
    layer.report(1, 5, 5)  # the aggregator gets no update that confirms its tally
    layer.done(AssignShard(1, ""))
    layer.cut_off = set()
    for end in range(6, 36):
        layer.report(1, end, end)
        layer.run(100)
    assert layer.state.next_gsn == 1 + 2 * 34
    assert layer.state.tree.parents == {"aggregator-1": "aggregator-2", "aggregator-2": ""}


def test_a_shard_that_comes_back_is_no_evidence_against_the_parent() -> None:
    layer = layer_of(2)
    layer.done(SetParent("aggregator-1", "aggregator-2"))
    layer.run(300)
    layer.report(1, 3, 3)
    layer.done(AssignShard(1, ""))
    layer.run(300)
    layer.report(1, 9, 9)  # ordered by links that the aggregators do not forward
    layer.done(AssignShard(1, "aggregator-1"))
    for _ in range(30):
        layer.report(1, 9, 9)
        layer.run(100)
    assert layer.state.tree.parents == {"aggregator-1": "aggregator-2", "aggregator-2": ""}


def test_a_lost_link_is_no_evidence_against_the_parent_that_sends_the_next_update() -> None:
    layer = layer_of(2)
    layer.done(SetParent("aggregator-1", "aggregator-2"))
    layer.run(300)
    layer.report(1, 3, 3)
    core, config = aggregator(layer), layer.config(1)
    for server, address in config.members:
        core.handle(Received(address, Report(1, config.epoch, server, 0, ((1, 5), (2, 5)))), layer.now)
    head, last = layer.state.cut + 1, layer.state.last + 4
    suspicions: list[object] = []
    for step in range(30):
        now = layer.now + step * SECOND // 10
        update = Update(1, config.epoch, None, (), head, last, 1)
        effects = core.handle(Received("aggregator-2", Updates(layer.state.version, (update,))), now)
        effects += core.handle(TimerFired(HEARTBEAT), now)
        suspicions += [one.message for one in effects if isinstance(one, Send)]
    assert not any(isinstance(message, SuspectAggregator) for message in suspicions)


def test_a_dropped_aggregator_that_runs_registers_again() -> None:
    layer = layer_of(2)
    layer.send("ordering-1", SuspectAggregator("aggregator-1"), "s-1")
    assert layer.config(1).reports_to == "aggregator-2"
    layer.run(2_000)
    assert "aggregator-1" in layer.state.tree.parents
    layer.report(1, 4, 2)
    layer.run(100)
    assert layer.state.next_gsn == 5


def test_only_children_of_an_aggregator_can_suspect_it() -> None:
    layer = layer_of(2)
    layer.send("ordering-1", SuspectAggregator("aggregator-1"), "s-9")
    layer.send("ordering-1", SuspectAggregator("aggregator-2"), "s-1")
    assert len(layer.state.tree.parents) == 2


def test_the_old_and_the_new_aggregator_may_both_send_tallies() -> None:
    layer = layer_of(2)
    layer.report(1, 4, 2)
    shard = layer.config(1)
    tally = aggregator(layer, 1).tallies[1].tally(1)
    layer.send("ordering-1", Tally("aggregator-2", (tally,)), "aggregator-2")
    layer.send("ordering-1", Tally("aggregator-1", (tally._replace(ends=((1, 3),)),)), "aggregator-1")
    assert layer.state.next_gsn == 5
    assert shard == layer.config(1)


def test_an_aggregator_that_was_paused_suspects_no_member() -> None:
    layer = layer_of(1)
    layer.report(1, 2, 2)
    layer.outside.clear()
    core = aggregator(layer)
    layer.now += 60_000_000_000
    layer.run(300)
    assert layer.sent(Suspect) == []
    assert layer.config(1).state is ShardState.LIVE
    assert core.parent == ""


def test_an_aggregator_that_was_paused_suspects_no_parent() -> None:
    layer = layer_of(2, suspect_after_ns=SECOND)
    layer.done(SetParent("aggregator-1", "aggregator-2"))
    layer.run(300)
    core, now = aggregator(layer), layer.now + 60 * SECOND
    suspected = []
    for _ in range(12):
        effects = core.handle(TimerFired(HEARTBEAT), now)
        suspected.append(any(isinstance(one, Send) and isinstance(one.message, SuspectAggregator) for one in effects))
        now += SECOND // 10
    assert suspected == [False] * 10 + [True] * 2
