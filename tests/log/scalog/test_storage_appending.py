"""What a primary does with appends: once, in order, answered when ordered, and what became of the others."""

from __future__ import annotations

from logdb.cores.effects import SECOND
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import (
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
        cluster.tell()


def payloads(cluster: Cluster, host: int = 0) -> list[bytes]:
    """Everything in the log."""
    cluster.hosts[host].receive(Pull(99, 1, 1, None, 1 << 20))
    (pulled,) = cluster.hosts[host].take(Pulled)
    return [unwrap(record.payload) for record in pulled.records]


def test_an_append_is_answered_when_a_link_orders_it_and_not_before() -> None:
    """SCA-8"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3), order=False)
    cluster.wait(SECOND)
    assert primary.take(Appended) == []
    cluster.order((21, 3), skip=7)
    cluster.tell()
    assert primary.take(Appended) == [Appended(7, 21, ((1, 3, 8),), False)]


def test_an_append_that_two_cuts_order_is_answered_after_the_second() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 5), order=False)
    cluster.order((21, 2))
    cluster.tell()
    assert cluster.hosts[0].take(Appended) == []
    cluster.order((21, 3), skip=4)
    cluster.tell()
    assert cluster.hosts[0].take(Appended) == [Appended(7, 21, ((1, 2, 1), (3, 3, 7)), False)]


def test_appends_of_one_client_are_answered_together() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 2), (3, 2))
    assert cluster.hosts[0].take(Appended) == [Appended(7, 21, ((1, 2, 1), (3, 2, 3)), False)]


def test_an_append_that_is_sent_again_is_taken_once_and_answered_again() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    appended(cluster, (1, 3))
    cluster.hosts[0].take(Appended)
    cluster.hosts[0].receive(append(1, 3))
    assert cluster.hosts[0].take(Appended) == [Appended(7, 21, ((1, 3, 1),), False)]
    cluster.run()
    assert payloads(cluster) == [b"7:1", b"7:2", b"7:3"]


def test_what_is_sent_again_before_it_is_ordered_waits_too() -> None:
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    primary.receive(append(1, 3))
    primary.receive(append(1, 3), "client-moved")
    primary.receive(append(1, 3), "client-moved")
    cluster.run()
    cluster.order((21, 3))
    cluster.tell()
    assert len(primary.take(Appended, "client")) == 1
    assert len(primary.take(Appended, "client-moved")) == 1


def test_only_the_new_part_of_an_append_is_taken() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    appended(cluster, (3, 2))
    primary = cluster.hosts[0]
    primary.take(Appended)
    primary.receive(append(1, 6))
    assert primary.take(Appended) == [Appended(7, 21, ((3, 2, 1),), False)]
    cluster.run()
    cluster.order((21, 4))
    cluster.tell()
    assert payloads(cluster) == [b"7:3", b"7:4", b"7:1", b"7:2", b"7:5", b"7:6"]


def test_a_restart_forgets_no_number() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3))
    appended(cluster, (4, 2), order=False)
    cluster.wait(SECOND)
    primary.restart()
    cluster.run()
    primary.take(Appended)
    primary.receive(append(1, 5))
    assert primary.take(Appended) == [Appended(7, 21, ((1, 3, 1),), False)]
    cluster.order((21, 2))
    cluster.tell()
    assert primary.take(Appended) == [Appended(7, 21, ((4, 2, 4),), False)]
    assert payloads(cluster) == [b"7:%d" % number for number in range(1, 6)]


def test_what_a_crash_has_lost_is_taken_anew_though_a_checkpoint_was_written() -> None:
    """SCA-13: a checkpoint must not know records that were not durable when it was written."""
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
    cluster.tell()
    expected = [b"7:1", b"7:2", b"7:3", b"8:7", b"8:8", b"8:9", b"7:4", b"7:5", b"7:6"]
    assert payloads(cluster) == expected


def test_settled_numbers_are_forgotten_and_refused() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3))
    primary.receive(append(4, 1, settled=4))
    primary.receive(append(1, 3))
    primary.receive(append(2, 3))
    cluster.run()
    cluster.order((21, 1))
    cluster.tell()
    assert payloads(cluster) == [b"7:1", b"7:2", b"7:3", b"7:4"]
    assert cluster.hosts[0].core.shard.copies[21].sessions.mark(7) == 4
    assert cluster.hosts[1].core.shard.copies[21].sessions.mark(7) == 4, "the backups hear of it"


def test_a_full_buffer_refuses_until_something_is_ordered() -> None:
    cluster = Cluster(2, buffer_bytes=1000)
    primary = cluster.hosts[0]
    appended(cluster, (1, 30), order=False)
    primary.receive(append(31, 1))
    assert primary.take(Rejected) == [Rejected(7, 31, 21, RejectReason.BUSY)]
    cluster.order((21, 30))
    cluster.tell()
    primary.receive(append(31, 1))
    assert primary.take(Rejected) == []


def test_only_the_primary_takes_appends() -> None:
    cluster = Cluster(2)
    cluster.hosts[1].receive(append(1, 1))
    cluster.hosts[1].receive(append(1, 1, segment=99))
    assert [one.why for one in cluster.hosts[1].take(Rejected)] == [RejectReason.NOT_PRIMARY] * 2


def test_what_lies_beyond_a_seal_is_refused_and_never_answered() -> None:
    """SCA-8"""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    appended(cluster, (1, 3), (4, 4), order=False)
    cluster.order((21, 5))
    cluster.tell(config=sealed(cluster.config, s21=6), links=())
    assert primary.take(Rejected) == [Rejected(7, 6, 21, RejectReason.SEALED)]
    cluster.tell()
    assert primary.take(Appended) == [Appended(7, 21, ((1, 3, 1), (4, 2, 4)), False)]
    primary.receive(append(1, 9))
    assert primary.take(Appended) == [Appended(7, 21, ((1, 5, 1),), False)]
    assert {one.why for one in primary.take(Rejected)} == {RejectReason.SEALED}
    cluster.wait(SECOND)
    assert primary.take(Appended) == []


def test_a_finalizing_shard_tells_its_clients_to_leave() -> None:
    cluster = Cluster(1)
    cluster.tell(config=cluster.config._replace(epoch=2, state=ShardState.FINALIZING))
    appended(cluster, (1, 1))
    assert cluster.hosts[0].take(Appended) == [Appended(7, 21, ((1, 1, 1),), True)]


# ---- fates


def fate(cluster: Cluster, host: int, *sequences: tuple[int, int]) -> AppendStatus:
    cluster.hosts[host].receive(AppendStatusRequest(7, 21, sequences))
    (answer,) = cluster.hosts[host].take(AppendStatus)
    return answer


def test_every_member_knows_the_fate_of_what_is_ordered() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 3))
    for host in (0, 1):
        assert fate(cluster, host, (2, 2)) == AppendStatus(7, 21, ((2, 2, 2),), ())


def test_nothing_is_never_while_the_segment_is_open() -> None:
    cluster = Cluster(2)
    appended(cluster, (1, 3), order=False)
    assert fate(cluster, 1, (1, 9)) == AppendStatus(7, 21, (), ())


def test_what_is_not_below_the_sealed_end_is_never() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    appended(cluster, (1, 5), order=False)
    cluster.order((21, 3))
    cluster.tell(config=sealed(cluster.config, s21=4))
    for host in (0, 1):
        assert fate(cluster, host, (1, 9)) == AppendStatus(7, 21, ((1, 3, 1),), ((4, 2), (6, 4)))


def test_a_copy_that_does_not_reach_the_sealed_end_does_not_say_never() -> None:
    """SCA-13"""
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 5))
    primary.sync()
    cluster.order((21, 5))
    cluster.config = sealed(cluster.config, s21=6)
    backup.receive(cluster.update(config=cluster.config), ORDERING[0])
    assert fate(cluster, 1, (1, 5)) == AppendStatus(7, 21, (), ())


def test_a_copy_that_began_behind_a_trim_says_never_only_when_it_knows_who_wrote_that() -> None:
    """SCA-13: it has never seen who wrote what was trimmed, until another member tells. (BUGS.md, 6: when every member
    had been replaced once behind a trim, nobody could tell a client its fate any more.)"""
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
    assert fate(cluster, 2, (1, 3)) == AppendStatus(7, 21, (), ())
    cluster.tell(config=cluster.config)
    cluster.wait(SECOND)
    assert fate(cluster, 2, (1, 4)) == AppendStatus(7, 21, ((1, 3, 1),), ((4, 1),))
    assert fate(cluster, 0, (1, 4)) == AppendStatus(7, 21, ((1, 3, 1),), ((4, 1),)), "sessions outlive the trim"
