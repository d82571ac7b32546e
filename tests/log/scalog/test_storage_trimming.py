"""Trims at a member: the records to drop and to keep, and the size of the journal `meta`."""

from __future__ import annotations

from logdb.cores.effects import SECOND
from logdb.log.scalog.messages import (
    Append,
    Appended,
    PlacementsRequest,
    PlacementsResponse,
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    RegistrationReply,
    Report,
    Segment,
    TimeRequest,
    TimeResponse,
)
from tests.log.scalog.storage_host import ORDERING, SHARD, Cluster, append


def grown(size: int = 2, **settings: object) -> Cluster:
    """Ten appends of ten records by two clients, each ordered by a link of its own."""
    cluster = Cluster(size, **settings)
    for batch in range(10):
        cluster.hosts[0].receive(append(1 + 10 * batch, 10, client=7 + batch % 2))
        cluster.run()
        cluster.order((21, 10))
        cluster.send_update()
        cluster.hosts[0].messages(Appended)
    return cluster


def trimmed(cluster: Cluster, oldest: int, base: int) -> None:
    """Trim the log before GSN `oldest`, segment 21 before LSN `base`."""
    cluster.oldest = oldest
    config = cluster.config
    segments = (config.segments[0]._replace(base=base), *config.segments[1:])
    cluster.send_update(config=config._replace(epoch=config.epoch + 1, segments=segments))


def test_records_before_the_base_are_trimmed() -> None:
    cluster = grown()
    trimmed(cluster, 51, 51)
    for host in cluster.hosts:
        assert host.journals["segment-21"].first == 51
        host.receive(ReadRequest(1, SHARD, 50))
        host.receive(ReadRequest(2, SHARD, 51))
        assert [one.why for one in host.messages(ReadFailed)] == [ReadError.TRIMMED]
        assert len(host.messages(ReadResponse)) == 1


def test_records_are_trimmed_only_when_their_sessions_are_durable() -> None:
    """SCA-13"""
    cluster = grown(1)
    (host,) = cluster.hosts
    cluster.oldest = 51
    segments = (cluster.config.segments[0]._replace(base=51),)
    config = cluster.config = cluster.config._replace(epoch=2, segments=segments)
    host.receive(cluster.update(config=config), ORDERING[0])
    assert host.journals["segment-21"].first == 1
    host.sync()
    assert host.journals["segment-21"].first == 51


def test_sessions_survive_a_trim_and_a_restart() -> None:
    """SCA-13"""
    cluster = grown()
    trimmed(cluster, 51, 51)
    primary = cluster.hosts[0]
    for restart in (False, True):
        if restart:
            primary.restart()
            primary.sent.clear()
        primary.receive(append(1, 10))
        primary.receive(append(11, 10, client=8))
        primary.receive(append(81, 10))
        answers = [Appended(7, 21, ((1, 10, 1),), False), Appended(8, 21, ((11, 10, 11),), False)]
        assert primary.messages(Appended) == [*answers, Appended(7, 21, ((81, 10, 81),), False)]
        assert primary.journals["segment-21"].end == 101


def test_a_trim_in_the_middle_of_a_link_keeps_it() -> None:
    cluster = grown()
    trimmed(cluster, 56, 51)
    host = cluster.hosts[1]
    host.receive(ReadRequest(1, SHARD, 55))
    host.receive(ReadRequest(2, SHARD, 56))
    assert [one.gsn for one in host.messages(ReadResponse)] == [56]
    host.receive(TimeRequest(1, SHARD, 6000))
    host.receive(TimeRequest(2, SHARD, 5999))
    assert [one.gsn for one in host.messages(TimeResponse)] == [60, 55]


def test_the_log_continues_after_everything_was_trimmed() -> None:
    cluster = grown()
    trimmed(cluster, 101, 101)
    for host in cluster.hosts:
        assert host.journals["segment-21"].first == 101
        host.restart()
    cluster.run()
    cluster.hosts[0].receive(append(101, 5))
    cluster.run()
    cluster.order((21, 5))
    cluster.send_update()
    assert cluster.hosts[0].messages(Appended) == [Appended(7, 21, ((101, 5, 101),), False)]


def test_a_copy_whose_next_records_were_trimmed_begins_at_the_base() -> None:
    cluster = Cluster(3)
    primary, backup, behind = cluster.hosts
    for batch in range(10):
        primary.receive(append(1 + 10 * batch, 10))
        primary.sync()
        primary.sent.clear()
        cluster.order((21, 10))
    primary.receive(cluster.update(links=cluster.links), ORDERING[0])
    assert behind.journals["segment-21"].end == 1
    trimmed(cluster, 51, 51)
    assert behind.journals["segment-21"].first == 51
    cluster.wait(2 * SECOND)
    assert behind.journals["segment-21"].end == 101
    assert dict(behind.messages(Report)[-1].ends)[21] == 101
    behind.restart()
    assert behind.journals["segment-21"].end == 101
    assert backup.journals["segment-21"].end == 101


def test_a_chain_continues_behind_links_that_other_members_have_trimmed() -> None:
    """SCA-3"""
    cluster = grown()
    behind, other = cluster.hosts
    fresh = Cluster(2)
    late = fresh.hosts[0]
    trimmed(cluster, 51, 51)
    other.receive(PlacementsRequest(SHARD, 11, 0), "host-0")
    (placements,) = other.messages(PlacementsResponse)
    assert (placements.trimmed, placements.ends[0]) == (5, (21, 51))
    assert len(placements.entries) == 5
    late.receive(placements, "host-1")
    late.wait(SECOND)
    late.sync()
    late.restart()
    late.sync()
    assert late.messages(Report)[-1].placed == 10
    late.receive(RegistrationReply(late.token, 11, False, cluster.update(config=cluster.config)), ORDERING[0])
    late.receive(ReadRequest(1, SHARD, 60))
    assert [one.why for one in late.messages(ReadFailed)] == [ReadError.HERE]
    assert behind.stopped is None


def test_links_behind_a_trim_are_not_durable_before_the_checkpoint_that_names_it() -> None:
    """SCA-3: a member that has them, and not the trim before them, would not start any more (BUGS.md, 61)."""
    cluster = Cluster(2)
    cluster.hosts[0].receive(append(1, 300))
    cluster.run()
    for _ in range(300):
        cluster.order((21, 1))
    cluster.send_update(links=cluster.links)
    trimmed(cluster, 11, 11)
    cluster.hosts[1].receive(PlacementsRequest(SHARD, 11, 0), "host-0")
    (placements,) = cluster.hosts[1].messages(PlacementsResponse)
    assert (placements.trimmed, len(placements.entries)) == (10, 290)
    for written in range(1, 4):
        late = Cluster(2).hosts[0]
        meta = late.journals["meta"]
        late.receive(placements, "host-1")
        meta.durable = min(meta.durable + written, meta.end)
        late.restart()
        assert late.core.shard.chain.head in (0, 10, 266)
        assert late.core.shard.oldest == (11 if late.core.shard.chain.head else 1)


def test_journals_of_removed_segments_are_dropped() -> None:
    cluster = grown()
    cluster.oldest = 101
    config = cluster.config._replace(epoch=2, segments=(cluster.config.segments[1], Segment(23, 11, 1, None)))
    cluster.send_update(config=config)
    cluster.wait(SECOND)
    for host in cluster.hosts:
        assert set(host.journals) == {"meta", "segment-22", "segment-23"}
        host.restart()
        assert set(host.journals) == {"meta", "segment-22", "segment-23"}
    cluster.run()
    cluster.hosts[0].receive(append(1, 3, segment=23))
    cluster.run()
    cluster.order((23, 3))
    cluster.send_update()
    assert cluster.hosts[0].messages(Appended) == [Appended(7, 23, ((1, 3, 101),), False)]


def test_meta_stays_small_and_a_restart_reads_it() -> None:
    cluster = Cluster(2, checkpoint_bytes=2000)
    for number in range(300):
        cluster.hosts[0].receive(append(1 + number, settled=number))
        cluster.run()
        cluster.order((21, 1))
        cluster.send_update()
        cluster.wait(SECOND // 20)
    for host in cluster.hosts:
        assert sum(len(record.payload) for record in host.journals["meta"].records) < 100_000
        assert len(host.journals["meta"].records) < 150
        head = host.core.shard.chain.head
        host.restart()
        assert host.core.shard.chain.head == head == 300
        assert host.core.shard.copies[21].end == 301
        assert host.core.shard.copies[21].sizes.total > 300 * 50
        host.receive(ReadRequest(1, SHARD, 150))
        assert len(host.messages(ReadResponse)) == 1


def test_a_checkpoint_does_not_grow_with_what_was_trimmed() -> None:
    """A segment may take records for months, while the log keeps those of a day."""
    cluster = Cluster(1)
    (host,) = cluster.hosts
    sizes = []
    for number in range(1, 201):
        host.receive(Append(7, number, number, 21, [(1, bytes(20_000))]))
        cluster.run()
        cluster.order((21, 1))
        cluster.send_update()
        if number % 50 == 0:
            trimmed(cluster, number + 1, number + 1)
            cluster.run()
            host.restart()
            cluster.run()
            sizes.append(max(len(record.payload) for record in host.journals["meta"].records))
    assert sizes[-1] < sizes[0] + 100
