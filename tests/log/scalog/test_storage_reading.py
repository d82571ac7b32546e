"""Reads at a member: its own, parked, of a record that it lacks, of another shard, trimmed, damaged; and pulls."""

from __future__ import annotations

import tracemalloc

import pytest

from logdb.cores.effects import Disconnected, Received, SendRanges, SendStored, Unreadable
from logdb.log.contract import LogRecord
from logdb.log.requests import END, ShardState
from logdb.log.scalog.messages import (
    Pull,
    Pulled,
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    TimeRequest,
    TimeResponse,
)
from logdb.log.scalog.records import unwrap, unwrap_all
from logdb.log.scalog.storage.read_server import MAX_PARKED
from tests.log.scalog.storage_host import ORDERING, SHARD, Cluster, append, sealed


@pytest.fixture
def cluster() -> Cluster:
    """GSNs 3 to 5 and 8 to 9 are records 1 to 5 of segment 21, 10 and 11 of segment 22; the log is at 11."""
    cluster = Cluster(2)
    cluster.hosts[0].receive(append(1, 5))
    cluster.hosts[1].receive(append(1, 2, segment=22, client=8))
    cluster.run()
    cluster.order((21, 3), skip=2)
    cluster.send_update()
    cluster.order((21, 2), (22, 2), skip=2)
    cluster.send_update()
    return cluster


def read(cluster: Cluster, gsn: int, host: int = 1, request: int = 1) -> ReadResponse | ReadFailed | None:
    """The immediate answer of a member."""
    cluster.hosts[host].receive(ReadRequest(request, SHARD, gsn))
    return next(iter(answers(cluster, host)), None)


def answers(cluster: Cluster, host: int = 1) -> list[ReadResponse | ReadFailed]:
    return [*cluster.hosts[host].messages(ReadResponse), *cluster.hosts[host].messages(ReadFailed)]


def pull(cluster: Cluster, gsn: int, tags: frozenset[int] | None = None, limit: int = 1 << 20) -> Pulled | None:
    cluster.hosts[1].receive(Pull(1, SHARD, gsn, tags, limit))
    return next(iter(cluster.hosts[1].messages(Pulled)), None)


def test_any_member_has_the_record(cluster: Cluster) -> None:
    for host in (0, 1):
        found = read(cluster, 8, host)
        assert isinstance(found, ReadResponse)
        assert (found.gsn, found.time, unwrap(found.records[0][1])) == (8, 2000, b"7:4")


def test_a_read_of_another_shards_gsn_fails_with_shard(cluster: Cluster) -> None:
    for gsn in (1, 2, 6, 7):
        answer = read(cluster, gsn)
        assert isinstance(answer, ReadFailed)
        assert answer.why is ReadError.SHARD


def test_parked_reads_of_a_disconnected_client_are_dropped(cluster: Cluster) -> None:
    host = cluster.hosts[1]
    for gsn in (12, 1 << 60):
        host.receive(ReadRequest(gsn, SHARD, gsn))
        host.receive(Pull(gsn + 1, SHARD, gsn, None, 1))
    assert host.core.waiting_reads == 4
    host.handle(Disconnected("client"))
    assert host.core.waiting_reads == 0
    cluster.last = 12
    cluster.send_update(links=())
    assert answers(cluster) == []


def test_the_number_of_parked_reads_is_bounded(cluster: Cluster) -> None:
    for request in (1, *range(1, MAX_PARKED + 2)):
        cluster.hosts[1].receive(ReadRequest(request, SHARD, 12))
    cluster.hosts[1].receive(ReadRequest(4, SHARD, 12), "another")
    (answer,) = answers(cluster)
    assert isinstance(answer, ReadFailed)
    assert (answer.request, answer.why) == (MAX_PARKED + 1, ReadError.HERE)


def test_a_pull_that_is_sent_again_takes_no_more_memory(cluster: Cluster) -> None:
    """With another GSN each time; the queue had an entry for each, and no limit counted them."""
    cluster.hosts[1].receive(Pull(1, SHARD, 1_000, None, 1))
    tracemalloc.start()
    try:
        for gsn in range(2_000, 6_000):
            cluster.hosts[1].receive(Pull(1, SHARD, gsn, None, 1))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert cluster.hosts[1].core.waiting_reads == 1


def test_a_read_ahead_of_the_log_is_parked_until_the_log_reaches_it(cluster: Cluster) -> None:
    """SCA-10"""
    assert read(cluster, 12) is None
    assert read(cluster, 13, request=2) is None
    cluster.last = 12
    cluster.send_update(links=())
    (answer,) = answers(cluster)
    assert (answer.request, answer.why) == (1, ReadError.SHARD)  # type: ignore[union-attr]
    cluster.hosts[0].receive(append(6, 1))
    cluster.run()
    cluster.order((21, 1))
    cluster.send_update()
    (answer,) = answers(cluster)
    assert (answer.request, answer.gsn) == (2, 13)  # type: ignore[union-attr]


def test_a_read_at_the_end_of_an_empty_log_waits() -> None:
    """SCA-10"""
    cluster = Cluster(1)
    cluster.hosts[0].receive(ReadRequest(1, SHARD, 1))
    assert answers(cluster, 0) == []
    cluster.hosts[0].receive(append(1, 1))
    cluster.run()
    cluster.order((21, 1))
    cluster.send_update()
    assert len(answers(cluster, 0)) == 1


def test_reads_wait_while_the_chain_has_a_gap(cluster: Cluster) -> None:
    """SCA-3"""
    member = cluster.hosts[1]
    cluster.hosts[0].receive(append(6, 2))
    cluster.run()
    cluster.order((21, 1))
    cluster.order((21, 1), skip=5)
    member.receive(cluster.update(), ORDERING[0])
    assert read(cluster, 12) is None
    member.receive(cluster.update(links=cluster.links), ORDERING[0])
    assert isinstance(answers(cluster)[0], ReadResponse)


def test_a_repeated_read_is_answered_once(cluster: Cluster) -> None:
    for _ in range(3):
        assert read(cluster, 12) is None
    assert cluster.hosts[1].core.waiting_reads == 1
    cluster.last = 12
    cluster.send_update(links=())
    assert len(answers(cluster)) == 1


def test_a_read_of_a_record_that_the_copy_lacks_fails_with_here(cluster: Cluster) -> None:
    cluster.hosts[0].receive(append(6, 1))
    cluster.hosts[0].sync()
    cluster.hosts[0].sent.clear()
    cluster.order((21, 1))
    cluster.hosts[1].receive(cluster.update(), ORDERING[0])
    answer = read(cluster, 12)
    assert isinstance(answer, ReadFailed)
    assert answer.why is ReadError.HERE
    pulled = pull(cluster, 10)
    assert pulled is not None
    assert (pulled.end, pulled.owned) == (12, ((10, 2),))


def test_trimmed_reads_fail_also_when_they_are_parked(cluster: Cluster) -> None:
    assert read(cluster, 13) is None
    cluster.oldest = 14
    cluster.last = 20
    update = cluster.update()._replace(head=9)
    cluster.hosts[1].receive(update, ORDERING[0])
    (answer,) = answers(cluster)
    assert isinstance(answer, ReadFailed)
    assert (answer.why, answer.oldest) == (ReadError.TRIMMED, 14)
    assert isinstance(read(cluster, 5), ReadFailed)


def test_a_finalized_shard_answers_reads_beyond_its_end(cluster: Cluster) -> None:
    """SCA-10"""
    assert read(cluster, 99) is None
    cluster.send_update(config=sealed(cluster.config, s21=6, s22=3)._replace(state=ShardState.FINALIZED))
    (answer,) = answers(cluster)
    assert isinstance(answer, ReadFailed)
    assert answer.why is ReadError.SHARD
    pulled = pull(cluster, 11)
    assert pulled is not None
    assert (pulled.end, pulled.final, len(pulled.records)) == (12, True, 1)
    beyond = pull(cluster, 50)
    assert beyond is not None
    assert (beyond.first, beyond.end, beyond.owned, beyond.final) == (50, 50, (), True)


def test_a_finalized_shard_with_missing_links_parks_reads(cluster: Cluster) -> None:
    """SCA-10"""
    cluster.hosts[0].receive(append(6, 1))
    cluster.run()
    config = sealed(cluster.config, s21=7, s22=3)._replace(state=ShardState.FINALIZED)
    cluster.send_update(config=config)
    assert read(cluster, 12) is None
    cluster.order((21, 1))
    cluster.send_update()
    assert isinstance(answers(cluster)[0], ReadResponse)


def test_a_request_for_another_shard_fails_with_here(cluster: Cluster) -> None:
    cluster.hosts[1].receive(ReadRequest(1, SHARD + 1, 3))
    answer = answers(cluster)[0]
    assert isinstance(answer, ReadFailed)
    assert answer.why is ReadError.HERE


def test_a_read_of_a_damaged_record_fails_with_readable(cluster: Cluster) -> None:
    member = cluster.hosts[1]
    (effect,) = member.core.handle(Received("client", ReadRequest(1, SHARD, 8)), member.now)
    assert isinstance(effect, SendStored)
    member.handle(Unreadable(effect, "bad checksum"))
    (answer,) = answers(cluster)
    assert (answer.why, answer.explanation) == (ReadError.READABLE, "bad checksum")  # type: ignore[union-attr]
    (effect,) = member.core.handle(Received("client", Pull(2, SHARD, 8, None, 1)), member.now)
    assert isinstance(effect, SendRanges)
    member.handle(Unreadable(effect, "bad checksum"))
    assert answers(cluster)[0].request == 2


def test_a_pull_lists_every_gsn_that_the_shard_owns(cluster: Cluster) -> None:
    """SCA-11"""
    pulled = pull(cluster, 1)
    assert pulled is not None
    assert (pulled.first, pulled.end, pulled.owned) == (1, 12, ((3, 3), (8, 4)))
    texts = [(record.gsn, record.time, record.payload) for record in unwrap_all(pulled.records)]
    assert texts == [
        (3, 1000, b"7:1"),
        (4, 1000, b"7:2"),
        (5, 1000, b"7:3"),
        (8, 2000, b"7:4"),
        (9, 2000, b"7:5"),
        (10, 2000, b"8:1"),
        (11, 2000, b"8:2"),
    ]


def test_a_pull_from_the_middle_of_a_range(cluster: Cluster) -> None:
    pulled = pull(cluster, 4)
    assert pulled is not None
    assert (pulled.first, pulled.owned) == (4, ((4, 2), (8, 4)))


def test_a_pull_by_tags_still_lists_every_gsn(cluster: Cluster) -> None:
    """SCA-11"""
    pulled = pull(cluster, 1, frozenset({3}))
    assert pulled is not None
    assert pulled.owned == ((3, 3), (8, 4))
    assert [record.gsn for record in pulled.records] == [4, 9, 11]


def test_pulls_of_few_bytes_follow_each_other_without_a_gap(cluster: Cluster) -> None:
    """SCA-11"""
    gsn, found = 1, list[LogRecord]()
    owned: list[tuple[int, int]] = []
    steps = 0
    while gsn < 12:
        pulled = pull(cluster, gsn, limit=1)
        assert pulled is not None
        assert gsn == pulled.first < pulled.end
        gsn = pulled.end
        found += pulled.records
        owned += pulled.owned
        steps += 1
    assert [record.gsn for record in found] == [3, 4, 5, 8, 9, 10, 11]
    assert sum(count for _, count in owned) == 7
    assert steps > 2


def test_a_pull_at_the_end_waits(cluster: Cluster) -> None:
    assert pull(cluster, 12) is None
    cluster.last = 13
    cluster.send_update(links=())
    (pulled,) = cluster.hosts[1].messages(Pulled)
    assert (pulled.first, pulled.end, pulled.owned) == (12, 14, ())


def test_a_time_request_returns_the_newest_gsn_at_the_time(cluster: Cluster) -> None:
    expected = {999: 0, 1000: 5, 1500: 5, 2000: 11, 9999: 11}
    for time, gsn in expected.items():
        cluster.hosts[1].receive(TimeRequest(1, SHARD, time))
        assert cluster.hosts[1].messages(TimeResponse) == [TimeResponse(1, gsn, 11)]
    cluster.send_update(config=sealed(cluster.config, s21=6, s22=3)._replace(state=ShardState.FINALIZED))
    cluster.hosts[1].receive(TimeRequest(1, SHARD, 9999))
    assert cluster.hosts[1].messages(TimeResponse) == [TimeResponse(1, 11, END)]
