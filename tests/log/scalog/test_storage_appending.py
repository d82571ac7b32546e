"""Appends at a primary: accepted once, in order, acknowledged when ordered; and statuses."""

from __future__ import annotations

import pytest

from logdb.cores.effects import SECOND
from logdb.log.requests import END, ShardState
from logdb.log.scalog.messages import (
    Append,
    Appended,
    AppendStatus,
    AppendStatusRequest,
    Member,
    Pull,
    Pulled,
    RegistrationReply,
    Rejected,
    RejectReason,
    Segment,
)
from logdb.log.scalog.records import unwrap
from tests.log.scalog.storage_host import ORDERING, Cluster, Host, append, sealed


def appended(cluster: Cluster, *messages: tuple[int, int], order: bool = True) -> None:
    """Append ((sequence, count), ...) to segment 21, and order it."""
    for sequence, count in messages:
        cluster.hosts[0].receive(append(sequence, count))
    cluster.run()
    if order:
        cluster.order((21, sum(count for _, count in messages)))
        cluster.send_update()


def payloads(cluster: Cluster, host: int = 0) -> list[bytes]:
    """All records of the log."""
    cluster.hosts[host].receive(Pull(99, 1, 1, None, 1 << 20))
    (pulled,) = cluster.hosts[host].messages(Pulled)
    return [unwrap(record.payload) for record in pulled.records]


def test_an_append_is_acknowledged_when_a_link_orders_it() -> None:
    """SCA-8"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3), order=False)
    cluster.wait(SECOND)
    assert primary.messages(Appended) == []
    cluster.order((21, 3), skip=7)
    cluster.send_update()
    assert primary.messages(Appended) == [Appended(7, 21, ((1, 3, 8),), False)]


def test_an_append_that_two_cuts_order_is_acknowledged_after_the_second() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 5), order=False)
    cluster.order((21, 2))
    cluster.send_update()
    assert cluster.hosts[0].messages(Appended) == []
    cluster.order((21, 3), skip=4)
    cluster.send_update()
    assert cluster.hosts[0].messages(Appended) == [Appended(7, 21, ((1, 2, 1), (3, 3, 7)), False)]


def test_appends_of_one_client_are_acknowledged_together() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 2), (3, 2))
    assert cluster.hosts[0].messages(Appended) == [Appended(7, 21, ((1, 2, 1), (3, 2, 3)), False)]


def test_a_repeated_append_is_accepted_once_and_acknowledged_again() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    appended(cluster, (1, 3))
    cluster.hosts[0].messages(Appended)
    cluster.hosts[0].receive(append(1, 3))
    assert cluster.hosts[0].messages(Appended) == [Appended(7, 21, ((1, 3, 1),), False)]
    cluster.run()
    assert payloads(cluster) == [b"7:1", b"7:2", b"7:3"]


def test_a_repeated_append_that_is_not_ordered_yet_waits_too() -> None:
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    primary.receive(append(1, 3))
    primary.receive(append(1, 3), "client-moved")
    primary.receive(append(1, 3), "client-moved")
    cluster.run()
    cluster.order((21, 3))
    cluster.send_update()
    assert len(primary.messages(Appended, "client")) == 1
    assert len(primary.messages(Appended, "client-moved")) == 1


def test_only_the_new_part_of_an_append_is_accepted() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    appended(cluster, (3, 2))
    primary = cluster.hosts[0]
    primary.messages(Appended)
    primary.receive(append(1, 6))
    assert primary.messages(Appended) == [Appended(7, 21, ((3, 2, 1),), False)]
    cluster.run()
    cluster.order((21, 4))
    cluster.send_update()
    assert payloads(cluster) == [b"7:3", b"7:4", b"7:1", b"7:2", b"7:5", b"7:6"]


def test_sessions_survive_a_restart() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3))
    appended(cluster, (4, 2), order=False)
    cluster.wait(SECOND)
    primary.restart()
    cluster.run()
    primary.messages(Appended)
    primary.receive(append(1, 5))
    assert primary.messages(Appended) == [Appended(7, 21, ((1, 3, 1),), False)]
    cluster.order((21, 2))
    cluster.send_update()
    assert primary.messages(Appended) == [Appended(7, 21, ((4, 2, 4),), False)]
    assert payloads(cluster) == [b"7:%d" % number for number in range(1, 6)]


def test_records_lost_in_a_crash_are_accepted_again_after_a_checkpoint() -> None:
    """SCA-13: a checkpoint must not contain records that were not durable when it was written."""
    cluster = Cluster(1, checkpoint_bytes=0)
    (primary,) = cluster.hosts
    primary.receive(append(1, 3))
    cluster.run()
    cluster.order((21, 3))
    primary.receive(append(4, 3))
    primary.receive(cluster.update(), ORDERING[0])
    primary.wait(SECOND)
    primary.sync("meta")
    primary.restart()
    primary.receive(append(7, 3, client=8))
    cluster.run()
    primary.restart()
    primary.receive(append(4, 3))
    cluster.run()
    cluster.order((21, 6))
    cluster.send_update()
    expected = [b"7:1", b"7:2", b"7:3", b"8:7", b"8:8", b"8:9", b"7:4", b"7:5", b"7:6"]
    assert payloads(cluster) == expected


def test_settled_numbers_are_dropped_and_not_appended() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3))
    primary.receive(append(4, 1, settled=4))
    primary.receive(append(1, 3))
    primary.receive(append(2, 3))
    cluster.run()
    cluster.order((21, 1))
    cluster.send_update()
    assert payloads(cluster) == [b"7:1", b"7:2", b"7:3", b"7:4"]
    assert cluster.hosts[0].core.shard.copies[21].sessions.mark(7) == 4
    assert cluster.hosts[1].core.shard.copies[21].sessions.mark(7) == 4, "the backups get it"


@pytest.mark.parametrize("message", [Append(8, 1, 0, 21, ()), Append(8, END, 0, 21, [(1, b"x"), (1, b"y")])])
def test_an_append_that_no_client_sends_leaves_nothing_behind(message: Append) -> None:
    """One without records left an empty session, which stopped the server after the next trim. Numbers beyond `END`
    cannot be sent to a new member, so it would never have all sessions."""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    host.receive(message)
    assert host.journals["segment-21"].end == 1
    appended(cluster, (1, 3))
    cluster.oldest = 4
    cluster.send_update()
    host.receive(append(2, 1, client=8, settled=2))
    cluster.run()
    cluster.order((21, 1))
    cluster.send_update()
    assert Appended(8, 21, ((2, 1, 4),), False) in host.messages(Appended)


def test_a_full_buffer_rejects_until_records_are_ordered() -> None:
    cluster = Cluster(2, buffer_bytes=1000)
    primary = cluster.hosts[0]
    appended(cluster, (1, 30), order=False)
    primary.receive(append(31, 1))
    assert primary.messages(Rejected) == [Rejected(7, 31, 21, RejectReason.BUSY)]
    cluster.order((21, 30))
    cluster.send_update()
    primary.receive(append(31, 1))
    assert primary.messages(Rejected) == []


def test_only_the_primary_accepts_appends() -> None:
    cluster = Cluster(2)
    cluster.hosts[1].receive(append(1, 1))
    cluster.hosts[1].receive(append(1, 1, segment=99))
    assert [one.why for one in cluster.hosts[1].messages(Rejected)] == [RejectReason.NOT_PRIMARY] * 2


def test_records_beyond_the_sealed_end_are_rejected_and_not_acknowledged() -> None:
    """SCA-8"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3), (4, 4), order=False)
    cluster.order((21, 5))
    cluster.send_update(config=sealed(cluster.config, s21=6), links=())
    assert primary.messages(Rejected) == [Rejected(7, 6, 21, RejectReason.SEALED)]
    cluster.send_update()
    assert primary.messages(Appended) == [Appended(7, 21, ((1, 3, 1), (4, 2, 4)), False)]
    primary.receive(append(1, 9))
    assert primary.messages(Appended) == [Appended(7, 21, ((1, 5, 1),), False)]
    assert {one.why for one in primary.messages(Rejected)} == {RejectReason.SEALED}
    cluster.wait(SECOND)
    assert primary.messages(Appended) == []


def test_a_finalizing_shard_acknowledges_with_leaving() -> None:
    cluster = Cluster(1)
    cluster.send_update(config=cluster.config._replace(epoch=2, state=ShardState.FINALIZING))
    appended(cluster, (1, 1))
    assert cluster.hosts[0].messages(Appended) == [Appended(7, 21, ((1, 1, 1),), True)]


# ---- statuses


def status(cluster: Cluster, host: int, *sequences: tuple[int, int]) -> AppendStatus:
    cluster.hosts[host].receive(AppendStatusRequest(7, 21, sequences))
    (answer,) = cluster.hosts[host].messages(AppendStatus)
    return answer


def test_every_member_returns_the_status_of_ordered_records() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 3))
    for host in (0, 1):
        assert status(cluster, host, (2, 2)) == AppendStatus(7, 21, ((2, 2, 2),), ())


def test_no_status_is_never_while_the_segment_is_open() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 3), order=False)
    assert status(cluster, 1, (1, 9)) == AppendStatus(7, 21, (), ())


def test_the_status_of_records_beyond_the_sealed_end_is_never() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    appended(cluster, (1, 5), order=False)
    cluster.order((21, 3))
    cluster.send_update(config=sealed(cluster.config, s21=4))
    for host in (0, 1):
        assert status(cluster, host, (1, 9)) == AppendStatus(7, 21, ((1, 3, 1),), ((4, 2), (6, 4)))


def test_an_incomplete_copy_does_not_report_never() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 5))
    primary.sync()
    cluster.order((21, 5))
    cluster.config = sealed(cluster.config, s21=6)
    backup.receive(cluster.update(config=cluster.config), ORDERING[0])
    assert status(cluster, 1, (1, 5)) == AppendStatus(7, 21, (), ())


def test_a_copy_behind_a_trim_reports_never_only_with_all_sessions() -> None:
    """SCA-13: its sessions lack the trimmed records until another member sends them (BUGS.md, 6: when every member had
    been replaced once behind a trim, no member could return a status to a client)."""
    cluster = Cluster(2)
    appended(cluster, (1, 3))
    newcomer = Host("host-2")
    cluster.hosts.append(newcomer)
    cluster.oldest = 4
    cluster.config = cluster.config._replace(
        epoch=2,
        members=(*cluster.config.members, Member(13, "host-2")),
        segments=(Segment(21, 11, 4, 4), cluster.config.segments[1]),
    )
    newcomer.sync()
    newcomer.receive(RegistrationReply(newcomer.token, 13, False, cluster.update(config=cluster.config)), ORDERING[0])
    assert status(cluster, 2, (1, 3)) == AppendStatus(7, 21, (), ())
    cluster.send_update(config=cluster.config)
    cluster.wait(SECOND)
    assert status(cluster, 2, (1, 4)) == AppendStatus(7, 21, ((1, 3, 1),), ((4, 1),))
    assert status(cluster, 0, (1, 4)) == AppendStatus(7, 21, ((1, 3, 1),), ((4, 1),)), "sessions survive the trim"
