"""Membership of a storage server: registration, reports, configurations and links."""

from __future__ import annotations

from unittest import mock

import pytest

from logdb.cores.effects import SECOND, ProtocolViolation
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import (
    Append,
    AppendStatus,
    AppendStatusRequest,
    CaughtUp,
    Member,
    PlacementsRequest,
    PlacementsResponse,
    Pulled,
    Range,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    Register,
    RegistrationReply,
    Rejected,
    RejectReason,
    Report,
    Segment,
    SessionsRequest,
    SessionsResponse,
    ShardCut,
    SuspectAggregator,
    Update,
    UpdateRequest,
    Updates,
)
from logdb.log.scalog.storage.membership import TICK
from tests.log.scalog.storage_host import ORDERING, Cluster, Host, append, member_config, sealed


def test_a_server_registers_only_when_its_token_is_durable() -> None:
    host = Host("host-0")
    assert host.messages(Register) == []
    host.sync()
    assert {one.token for one in host.messages(Register)} == {host.token}
    token = host.token
    host.restart()
    assert host.token == token


def test_replies_for_another_token_are_ignored() -> None:
    """A server that has lost its disk must not adopt the identity of its predecessor at the same address."""
    host = Host("host-0")
    host.sync()
    cluster_config = member_config([host])
    update = Cluster(1).update(config=cluster_config, links=())
    host.receive(RegistrationReply(host.token + 1, 11, False, update), ORDERING[0])
    host.receive(RegistrationReply(host.token + 1, 11, True, None), ORDERING[0])
    assert host.stopped is None
    assert host.messages(Report) == []


def test_a_report_contains_only_durable_records() -> None:
    """SCA-1"""
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.messages(Report)
    primary.receive(append(1, 5))
    primary.wait(SECOND)
    assert {dict(report.ends)[21] for report in primary.messages(Report)} == {1}
    primary.sync()
    assert dict(primary.messages(Report)[-1].ends)[21] == 6
    cluster.run(sync=False)
    backup.wait(SECOND)
    assert {dict(report.ends)[21] for report in backup.messages(Report)} == {1}
    backup.sync()
    assert dict(backup.messages(Report)[-1].ends)[21] == 6


def test_a_report_contains_only_copied_records_even_if_more_are_ordered() -> None:
    """SCA-9"""
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 5))
    primary.sync()
    cluster.order((21, 5))
    backup.receive(cluster.update(), ORDERING[0])
    backup.wait(SECOND)
    assert {dict(report.ends)[21] for report in backup.messages(Report)} == {1}


def test_a_member_that_has_just_reported_sends_no_heartbeat() -> None:
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    for sequence in range(1, 21):
        primary.receive(append(sequence))
        cluster.run()
        for host in cluster.hosts:
            host.wait(SECOND // 50)
    reports = primary.messages(Report)
    assert 20 <= len(reports) <= 22
    primary.wait(SECOND)
    assert len(primary.messages(Report)) >= 9
    assert backup.stopped is None


def test_a_link_is_reported_as_placed_when_it_is_durable() -> None:
    """SCA-1"""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    host.receive(append(1, 5))
    cluster.run()
    cluster.order((21, 5))
    host.receive(cluster.update(), ORDERING[0])
    host.wait(SECOND)
    assert {report.placed for report in host.messages(Report)} == {0}
    host.sync()
    host.wait(SECOND // 10)
    assert host.messages(Report)[-1].placed == 1


def test_a_sealed_segment_is_not_reported() -> None:
    cluster = Cluster(2)
    segments = tuple(segment._replace(sealed=1) for segment in cluster.config.segments if segment.id == 22)
    cluster.send_update(config=cluster.config._replace(epoch=2, segments=(cluster.config.segments[0], *segments)))
    report = cluster.hosts[0].messages(Report)[-1]
    assert report.epoch == 2
    assert dict(report.ends) == {21: 1}


def test_a_missing_link_is_requested() -> None:
    """SCA-3"""
    cluster = Cluster(2)
    host = cluster.hosts[0]
    host.receive(append(1, 9))
    cluster.run()
    cluster.order((21, 4))
    cluster.order((21, 5))
    host.wait(SECOND // 2)
    host.messages(UpdateRequest)
    host.receive(cluster.update(), ORDERING[0])
    assert [ask.after for ask in host.messages(UpdateRequest)] == [0]
    host.receive(
        RegistrationReply(host.token, 11, False, cluster.update(config=cluster.config, links=cluster.links)),
        ORDERING[0],
    )
    host.wait(SECOND)
    assert {ask.after for ask in host.messages(UpdateRequest)} <= {2}


def test_a_member_with_a_gap_does_not_adopt_the_newest_gsn() -> None:
    """SCA-3: a GSN that it would attribute to another shard may be its own."""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    host.receive(append(1, 9))
    cluster.run()
    cluster.order((21, 4))
    cluster.order((21, 5), skip=2)
    host.receive(cluster.update(), ORDERING[0])
    host.receive(ReadRequest(1, 1, 3))
    assert not host.messages(ReadFailed)


def test_a_contradicting_link_stops_the_server() -> None:
    """SCA-3"""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    host.receive(append(1, 9))
    cluster.run()
    cluster.order((21, 4))
    cluster.send_update()
    forked = ShardCut(3, 0, 3000, (Range(21, 5, 2, 5),))
    with pytest.raises(ProtocolViolation, match="SCA-3"):
        host.receive(cluster.update(links=[forked]), ORDERING[0])


def test_links_that_the_ordering_layer_has_dropped_come_from_other_members() -> None:
    cluster = Cluster(2)
    behind, other = cluster.hosts
    behind.receive(append(1, 9))
    cluster.run()
    for _ in range(3):
        cluster.order((21, 3))
        other.receive(cluster.update(), ORDERING[0])
    newest = cluster.update(config=cluster.config)
    behind.receive(RegistrationReply(behind.token, 11, False, newest), ORDERING[0])
    assert len(behind.messages(PlacementsRequest)) == 1
    behind.wait(SECOND)
    assert behind.messages(PlacementsRequest), "repeated, because the answer may be lost"
    other.receive(PlacementsRequest(1, 11, 0), "host-0")
    behind.receive(other.messages(PlacementsResponse)[-1], "host-1")
    behind.wait(SECOND)
    behind.sync()
    behind.wait(SECOND // 10)
    assert behind.messages(Report)[-1].placed == 3


def test_links_of_a_removed_segment_are_still_accepted() -> None:
    """SCA-3: a lagging member places trimmed records too; after that the segment's end is dropped."""
    cluster = Cluster(3)
    behind, other, _ = cluster.hosts
    other.receive(append(1, 9, segment=22))
    cluster.run()
    cluster.order((22, 3))
    cluster.send_update()
    cluster.last, cluster.oldest = 4, 5
    cluster.send_update()
    for _ in range(2):
        cluster.order((22, 3))
        other.receive(cluster.update(), ORDERING[0])
    kept = tuple(segment for segment in cluster.config.segments if segment.id != 22)
    cluster.config = cluster.config._replace(epoch=2, segments=kept)
    cluster.oldest = 11
    newest = cluster.update(config=cluster.config, links=())
    behind.receive(RegistrationReply(behind.token, 11, False, newest), ORDERING[0])
    other.receive(PlacementsRequest(1, 11, 1), "host-0")
    placements = other.messages(PlacementsResponse)[-1]
    assert [link.number for link in placements.entries] == [2, 3]
    behind.receive(placements, "host-1")
    behind.wait(SECOND)
    behind.sync()
    behind.wait(SECOND // 10)
    assert behind.messages(Report)[-1].placed == 3
    assert 22 in behind.core.shard.chain.ends
    cluster.last, cluster.oldest = 11, 12
    behind.receive(cluster.update(), ORDERING[0])
    assert 22 not in behind.core.shard.chain.ends


def test_placements_come_in_several_messages() -> None:
    cluster = Cluster(2, links_per_message=2)
    behind, other = cluster.hosts
    behind.receive(append(1, 9))
    cluster.run()
    for _ in range(5):
        cluster.order((21, 1))
        other.receive(cluster.update(), ORDERING[0])
    behind.receive(
        RegistrationReply(behind.token, 11, False, cluster.update(config=cluster.config, links=())), ORDERING[0]
    )
    cluster.run()
    cluster.wait(SECOND)
    assert behind.messages(Report)[-1].placed == 5


def test_a_removed_server_rejects_waiting_requests_and_stops() -> None:
    """SCA-10"""
    cluster = Cluster(2)
    host = cluster.hosts[0]
    host.receive(append(1, 5))
    host.receive(ReadRequest(1, 1, 3))
    host.receive(RegistrationReply(host.token, 11, True, None), ORDERING[0])
    assert host.stopped is not None
    assert host.stopped.wipe
    assert len(host.messages(ReadFailed)) == len(host.messages(Rejected)) == 1


def test_a_replaced_server_serves_until_it_is_removed() -> None:  # SCA-14
    cluster = Cluster(2)
    one, other = cluster.hosts
    one.receive(append(1, 3))
    cluster.run()
    cluster.order((21, 3))
    cluster.send_update()
    cluster.wait(SECOND)
    spare = Host("host-2")
    cluster.hosts.append(spare)
    other.receive(append(1, 1, segment=22, client=8))  # it will not be ordered
    members = (cluster.config.members[0], Member(13, "host-2"))
    segments = (cluster.config.segments[0], Segment(22, 12, 1, 1), Segment(23, 13, 1, None))
    config = cluster.config._replace(
        epoch=2, members=members, segments=segments, joining=(13,), replaced=cluster.config.members[1:]
    )
    cluster.send_update(config=config)
    assert other.stopped is None
    assert other.messages(Rejected)
    one.core._membership.left = True  # the other server sends nothing more
    cluster.hosts.remove(one)
    other.messages(Report)
    other.restart()  # and the replaced one restarts
    spare.sync()
    spare.receive(RegistrationReply(spare.token, 13, False, cluster.update(config=config, links=())), ORDERING[0])
    cluster.wait(5 * SECOND)
    assert other.messages(Report) == []
    assert CaughtUp(1, 13) in spare.messages(CaughtUp)
    other.receive(ReadRequest(5, 1, 2))
    assert other.messages(ReadResponse)
    other.receive(Append(9, 1, 0, 22, [(1, b"late")]))
    assert other.messages(Rejected)[0].why is RejectReason.SEALED
    cluster.send_update(config=config._replace(epoch=3, joining=(), replaced=()))
    assert other.stopped is not None
    assert other.stopped.wipe


def test_a_successor_at_the_address_of_its_predecessor_sends_itself_nothing() -> None:
    """A server that has lost its disk copies from the other servers."""
    cluster = Cluster(2)
    cluster.hosts[0].receive(append(1, 3))
    cluster.run()
    cluster.order((21, 3))
    successor = Host("host-1")
    members = (cluster.config.members[0], Member(13, "host-1"))
    segments = (cluster.config.segments[0], Segment(22, 12, 1, 1), Segment(23, 13, 1, None))
    config = cluster.config._replace(
        epoch=2, members=members, segments=segments, joining=(13,), replaced=cluster.config.members[1:]
    )
    successor.sync()
    update = cluster.update(config=config, links=())
    for _ in range(50):
        successor.receive(RegistrationReply(successor.token, 13, False, update), ORDERING[0])
        successor.wait(SECOND // 5)
        successor.sync()
    assert any(send.to == "host-0" for send in successor.sent)
    assert not any(send.to == "host-1" for send in successor.sent)


def test_a_joining_member_requests_its_goal_again() -> None:
    """The reply to its request after a restart was lost. It lacks no other message, and gets heartbeats."""
    cluster = Cluster(2)
    cluster.send_update(config=cluster.config._replace(epoch=2, joining=(12,)))
    joining = cluster.hosts[1]
    cluster.wait(SECOND)
    joining.restart()
    joining.messages(UpdateRequest)
    cluster.send_update()
    joining.wait(SECOND // 2)
    cluster.send_update()
    assert joining.messages(CaughtUp) == []
    assert joining.messages(UpdateRequest)
    joining.receive(
        RegistrationReply(joining.token, 12, False, cluster.update(config=cluster.config, links=())), ORDERING[0]
    )
    joining.wait(SECOND // 2)
    assert joining.messages(CaughtUp)


def test_a_server_with_a_stuck_disk_stops_reporting() -> None:
    """Otherwise a primary with a full disk would accept records without end and still look healthy."""
    (host,) = Cluster(1, suspect_after_ns=SECOND, straggle_after_ns=5 * SECOND).hosts
    host.wait(20 * SECOND)
    host.messages(Report)
    host.receive(append(1, 1))
    host.wait(4 * SECOND)
    assert host.messages(Report)
    host.wait(2 * SECOND)
    host.messages(Report)
    host.wait(20 * SECOND)
    assert host.messages(Report) == []
    host.sync()
    host.wait(SECOND)
    assert host.messages(Report)[-1].ends == ((21, 2),)


def test_a_server_that_is_not_in_the_newest_configuration_stops() -> None:
    cluster = Cluster(2)
    config = cluster.config._replace(epoch=2, members=(cluster.config.members[0], Member(13, "host-9")))
    cluster.send_update(config=config)
    assert cluster.hosts[0].stopped is None
    assert cluster.hosts[1].stopped is not None


def test_an_older_configuration_changes_nothing() -> None:
    cluster = Cluster(2)
    old = cluster.config
    cluster.send_update(config=old._replace(epoch=3))
    cluster.hosts[0].receive(cluster.update(config=old._replace(epoch=2, members=old.members[1:])), ORDERING[0])
    assert cluster.hosts[0].stopped is None


def test_a_member_requests_a_newer_configuration() -> None:
    cluster = Cluster(1)
    (host,) = cluster.hosts
    host.wait(SECOND // 2)
    host.messages(UpdateRequest)
    host.receive(cluster.update()._replace(epoch=2), ORDERING[0])
    assert host.messages(UpdateRequest)


def test_an_aggregator_that_does_not_forward_is_bypassed_and_reported() -> None:
    cluster = Cluster(1)
    (host,) = cluster.hosts
    cluster.send_update(config=cluster.config._replace(epoch=2, reports_to="leaf"))
    host.receive(append(1, 5))
    cluster.run()
    host.receive(Updates(2, (cluster.update(),)), "leaf")
    host.sent.clear()
    host.wait(SECOND // 2)
    assert host.messages(Report, "leaf")
    assert not host.messages(Report), "while the aggregator is healthy, only it gets reports"
    host.wait(SECOND)
    assert host.messages(Report, "leaf")
    assert host.messages(Report, ORDERING[0])
    assert host.messages(UpdateRequest)
    assert not host.messages(SuspectAggregator), "an idle log has nothing to forward"
    cluster.order((21, 5))
    host.receive(RegistrationReply(host.token, 11, False, cluster.update()), ORDERING[0])
    assert {one.address for one in host.messages(SuspectAggregator)} == {"leaf"}


def test_a_member_that_was_paused_reports_no_aggregator() -> None:
    """Or whose clock has jumped: it has processed no messages, which proves nothing."""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    cluster.send_update(config=cluster.config._replace(epoch=2, reports_to="leaf"))
    host.wait(SECOND // 2)
    host.now += 10 * SECOND
    host.fire(TICK)
    cluster.last = 100
    host.receive(RegistrationReply(host.token, 11, False, cluster.update()), ORDERING[0])
    assert host.messages(SuspectAggregator) == []
    host.wait(2 * SECOND)
    cluster.last = 200
    host.receive(RegistrationReply(host.token, 11, False, cluster.update()), ORDERING[0])
    assert host.messages(SuspectAggregator)


def test_a_member_of_a_finalized_shard_reports_no_aggregator() -> None:
    """Aggregators forward nothing to finalized shards, while the log goes on."""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    config = sealed(cluster.config, s21=1)._replace(state=ShardState.FINALIZED, reports_to="leaf")
    cluster.send_update(config=config)
    host.wait(2 * SECOND)
    cluster.last = 100
    host.receive(RegistrationReply(host.token, 11, False, cluster.update()), ORDERING[0])
    assert host.messages(SuspectAggregator) == []


def test_a_joining_member_reports_that_it_has_caught_up() -> None:
    """SCA-9"""
    cluster = Cluster(2)
    cluster.hosts[0].receive(append(1, 9))
    cluster.run()
    cluster.order((21, 9))
    cluster.send_update()
    newcomer = Host("host-2")
    cluster.hosts.append(newcomer)
    members = (*cluster.config.members, Member(13, "host-2"))
    cluster.config = cluster.config._replace(epoch=2, members=members, joining=(13,))
    newcomer.sync()
    newcomer.receive(
        RegistrationReply(newcomer.token, 13, False, cluster.update(config=cluster.config, links=())), ORDERING[0]
    )
    newcomer.wait(SECOND // 2)
    assert not newcomer.messages(CaughtUp)
    cluster.send_update(config=cluster.config, links=())
    cluster.wait(2 * SECOND)
    assert newcomer.messages(CaughtUp)
    assert dict(newcomer.messages(Report)[-1].ends)[21] == 10


def test_an_update_of_a_new_aggregator_does_not_set_the_goal_of_a_joining_member() -> None:
    """SCA-9: it sends the configuration without a head (BUGS.md, 11)."""
    cluster = Cluster(2)
    cluster.hosts[0].receive(append(1, 9))
    cluster.run()
    cluster.order((21, 9))
    cluster.send_update()
    newcomer = Host("host-2")
    members = (*cluster.config.members, Member(13, "host-2"))
    config = cluster.config = cluster.config._replace(epoch=2, members=members, joining=(13,))
    newcomer.sync()
    newcomer.receive(RegistrationReply(newcomer.token, 13, False, cluster.update(config=config, links=())), ORDERING[0])
    newcomer.receive(Update(config.shard, 2, config, (), 0, 0, 1), "aggregator")
    newcomer.wait(2 * SECOND)
    assert not newcomer.messages(CaughtUp)


def test_a_joining_member_makes_received_sessions_durable() -> None:
    """SCA-14: the sender may be replaced at once, and this server crash before its next sync (BUGS.md, 12)."""
    cluster = Cluster(1)
    cluster.hosts[0].receive(append(1, 3))
    cluster.run()
    cluster.order((21, 3))
    cluster.send_update()
    newcomer = Host("host-1")
    cluster.hosts.append(newcomer)
    cluster.oldest = 4
    cluster.config = cluster.config._replace(
        epoch=2,
        members=(*cluster.config.members, Member(12, "host-1")),
        segments=(Segment(21, 11, 4, 4),),
        joining=(12,),
    )
    with mock.patch.dict(cluster.hosts[0].core._handlers, {SessionsRequest: lambda message, sender: None}):
        newcomer.sync()
        newcomer.receive(
            RegistrationReply(newcomer.token, 12, False, cluster.update(config=cluster.config)), ORDERING[0]
        )
        cluster.send_update(config=cluster.config)
        cluster.wait(SECOND)
    assert not newcomer.messages(CaughtUp)
    newcomer.sync()
    for first, following, run in ((0, 7, 5), (9, 0, 9), (7, 0, 7)):  # one of them was lost, and another one has come
        newcomer.wait(SECOND)
        newcomer.sync()
        assert not newcomer.messages(CaughtUp), "not all sessions were received"
        newcomer.receive(SessionsResponse(1, 21, 4, first, following, ((run, 1),), ((run, 1, 3, 1, 1),)), "host-0")
    newcomer.wait(SECOND)
    assert not newcomer.messages(CaughtUp), "the received sessions are not durable"
    newcomer.sync()
    newcomer.wait(SECOND)
    assert newcomer.messages(CaughtUp)
    newcomer.restart()
    newcomer.receive(AppendStatusRequest(7, 21, ((1, 4),)))
    assert newcomer.messages(AppendStatus) == [AppendStatus(7, 21, ((1, 3, 1),), ((4, 1),))]
    newcomer.receive(AppendStatusRequest(9, 21, ((1, 3),)))
    assert newcomer.messages(AppendStatus) == [AppendStatus(9, 21, (), ((1, 3),))]


def test_a_server_sends_only_sessions_whose_records_it_has() -> None:
    """SCA-13: a lagging server without the newest configuration does not know that its copy ends before the trim point.
    With its sessions, another copy would report `never` for records that were ordered (BUGS.md, 49)."""
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    cluster.order((21, 3))
    backup.receive(cluster.update(), ORDERING[0])
    request = SessionsRequest(1, 21, 4)
    backup.receive(request, "host-0")
    assert backup.messages(SessionsResponse) == []
    cluster.run()
    backup.receive(request, "host-0")
    assert backup.messages(SessionsResponse) == [SessionsResponse(1, 21, 4, 0, 0, (), ((7, 1, 3, 1, 1),))]


def test_a_finalized_shard_still_reports_placed_links() -> None:
    cluster = Cluster(1)
    (host,) = cluster.hosts
    host.receive(append(1, 5))
    cluster.run()
    cluster.order((21, 5))
    segments = (cluster.config.segments[0]._replace(sealed=6),)
    cluster.send_update(config=cluster.config._replace(epoch=2, state=ShardState.FINALIZED, segments=segments))
    host.wait(SECOND)
    host.sync()
    host.wait(SECOND // 10)
    report = host.messages(Report)[-1]
    assert (report.placed, report.ends) == (1, ())
    assert not host.messages(Pulled)


def test_a_member_of_a_finalized_shard_sends_few_reports() -> None:
    """Its silence raises no suspicion, and a log may have many such shards."""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    cluster.send_update(config=sealed(cluster.config, s21=1)._replace(state=ShardState.FINALIZED))
    host.messages(Report)
    host.wait(10 * SECOND)
    assert 5 <= len(host.messages(Report, ORDERING[0])) <= 11
