"""Replication: copies are prefixes of what is durable at the primary, and complete in the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest

from logdb.cores.effects import SECOND, ProtocolViolation, Send, SendStored, Unreadable
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import (
    Member,
    RegistrationReply,
    Replicate,
    ReplicateAck,
    Report,
    Segment,
    Suspect,
)
from logdb.log.scalog.records import wrap
from logdb.log.scalog.storage.segment_replica import RecordSizes
from tests.log.scalog.storage_host import ORDERING, SHARD, Cluster, Host, append, sealed


def end_of(host: Host, segment: int = 21) -> int:
    """The end of a segment's journal."""
    return host.journals[f"segment-{segment}"].end


def test_backups_get_only_durable_records() -> None:
    """SCA-2"""
    cluster = Cluster(3)
    primary = cluster.hosts[0]
    primary.receive(append(1, 3))
    assert primary.messages(Replicate) == []
    primary.sync()
    sent = primary.messages(Replicate)
    assert [(one.first, len(one.records)) for one in sent] == [(1, 3), (1, 3)]
    assert sent[0] is sent[1], "all backups get the same message"


def test_appends_of_one_sync_are_replicated_in_one_message() -> None:
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    for sequence in (1, 3, 5):
        primary.receive(append(sequence, 2))
    primary.sync()
    assert [(one.first, len(one.records)) for one in primary.messages(Replicate)] == [(1, 6)]


def test_a_backup_accepts_records_only_at_the_end_of_its_copy() -> None:
    """SCA-2"""
    cluster = Cluster(2)
    backup = cluster.hosts[1]
    backup.wait(SECOND)
    backup.receive(Replicate(SHARD, 21, 4, (), wrap(7, 4, append(4, 2).records)), "host-0")
    assert end_of(backup) == 1
    assert backup.messages(ReplicateAck, "host-0") == [ReplicateAck(SHARD, 12, 21, 1, True)]


def test_repeated_records_are_accepted_once_and_acknowledged_again() -> None:
    """SCA-2"""
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    (message,) = primary.messages(Replicate)
    backup.receive(message, "host-0")
    backup.receive(message, "host-0")
    backup.sync()
    backup.receive(message, "host-0")
    assert end_of(backup) == 4
    assert [held.end for held in backup.messages(ReplicateAck)] == [1, 4], "at once, as the first answer may be lost"


def test_only_the_new_part_of_overlapping_records_is_accepted() -> None:
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    cluster.run()
    primary.receive(append(4, 3))
    primary.sync()
    (news,) = primary.messages(Replicate)
    old = [(record.tag, record.payload) for record in primary.journals["segment-21"].records[:3]]
    backup.receive(Replicate(SHARD, 21, 1, (), [*old, *news.records]), "host-0")
    assert backup.journals["segment-21"].records[3:] != []
    assert [r.payload for r in backup.journals["segment-21"].records] == [
        r.payload for r in primary.journals["segment-21"].records
    ]


def test_a_backup_acknowledges_only_durable_records() -> None:
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    backup.receive(primary.messages(Replicate)[0], "host-0")
    assert backup.messages(ReplicateAck) == []
    backup.wait(SECOND // 10)
    assert backup.messages(ReplicateAck) == []
    backup.sync()
    assert backup.messages(ReplicateAck) == [], "no request waits for it"
    backup.wait(SECOND // 10)
    assert backup.messages(ReplicateAck) == [ReplicateAck(SHARD, 12, 21, 4, False)]
    backup.wait(SECOND)
    assert backup.messages(ReplicateAck) == []


def test_a_backup_acknowledges_a_quarter_of_the_window_at_once() -> None:
    cluster = Cluster(2, window_bytes=400)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    backup.receive(primary.messages(Replicate)[0], "host-0")
    backup.sync()
    assert backup.messages(ReplicateAck) == [ReplicateAck(SHARD, 12, 21, 4, False)]


def test_unacknowledged_records_are_sent_again() -> None:
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    primary.messages(Replicate)
    primary.receive(append(4, 3))
    primary.sync()
    primary.messages(Replicate)
    cluster.wait(SECOND)
    assert end_of(backup) == 7


def test_retries_to_a_silent_backup_back_off_and_use_no_memory() -> None:
    cluster = Cluster(2, fresh_bytes=500)
    primary = cluster.hosts[0]
    for sequence in range(1, 100):
        primary.receive(append(sequence))
        primary.sync()
    primary.messages(Replicate)
    primary.wait(10 * SECOND)
    assert 5 < len(primary.messages(Replicate)) < 20
    assert len(primary.core._replication._recent) < 20


def test_the_window_bounds_unacknowledged_records() -> None:
    cluster = Cluster(2, window_bytes=500, batch_bytes=200)
    primary, backup = cluster.hosts
    for sequence in range(1, 50):
        primary.receive(append(sequence))
    primary.sync()
    sent = primary.messages(Replicate)
    assert 2 <= len(sent) < 8
    for message in sent:
        backup.receive(message, "host-0")
    cluster.run()
    assert end_of(backup) == 50


def test_a_slow_backup_is_served_from_the_journal() -> None:
    cluster = Cluster(2, fresh_bytes=300, batch_bytes=300)
    primary, backup = cluster.hosts
    for sequence in range(1, 50):
        primary.receive(append(sequence))
        primary.sync()
    primary.messages(Replicate)
    cluster.wait(SECOND)
    assert end_of(backup) == 50


def test_a_backup_that_lost_its_last_records_gets_them_again() -> None:
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    cluster.run(sync=False)
    primary.sync()
    cluster.run(sync=False)
    assert end_of(backup) == 4
    backup.restart()
    assert end_of(backup) == 1
    cluster.wait(SECOND)
    assert end_of(backup) == 4


def test_a_restarted_primary_requests_the_ends_of_its_backups() -> None:
    cluster = Cluster(2)
    primary, backup = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    primary.restart()
    cluster.run()
    assert end_of(backup) == 4


def test_a_backup_with_more_than_its_primary_stops_it() -> None:
    """SCA-2"""
    cluster = Cluster(2)
    with pytest.raises(ProtocolViolation, match="SCA-2"):
        cluster.hosts[0].receive(ReplicateAck(SHARD, 12, 21, 9, False), "host-1")


def test_records_that_the_primary_does_not_deliver_come_from_another_member() -> None:
    cluster = Cluster(3)
    primary, backup, behind = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    backup.receive(primary.messages(Replicate)[0], "host-0")
    backup.sync()
    primary.stopped = primary.core  # type: ignore[assignment]  # the primary sends no more messages
    cluster.order((21, 3))
    cluster.send_update()
    cluster.wait(4 * SECOND)
    assert end_of(behind) == 4
    assert dict(behind.messages(Report)[-1].ends)[21] == 4


def test_a_replica_of_a_finalized_shard_copies_everything_in_batches() -> None:
    """SCA-9"""
    cluster = Cluster(2, batch_bytes=300)
    for sequence in range(1, 40):
        cluster.hosts[0].receive(append(sequence))
        cluster.hosts[1].receive(append(sequence, segment=22, client=8))
    cluster.run()
    cluster.order((21, 39), (22, 39))
    cluster.send_update()
    newcomer = Host("host-2", batch_bytes=300)
    cluster.hosts.append(newcomer)
    config = cluster.config._replace(
        epoch=2,
        state=ShardState.FINALIZED,
        members=(*cluster.config.members, Member(13, "host-2")),
        segments=tuple(segment._replace(sealed=40) for segment in cluster.config.segments),
    )
    cluster.config = config
    newcomer.sync()
    newcomer.receive(RegistrationReply(newcomer.token, 13, False, cluster.update(config=config, links=())), ORDERING[0])
    cluster.send_update(config=config, links=())
    cluster.wait(3 * SECOND)
    for segment in (21, 22):
        assert end_of(newcomer, segment) == 40
    assert newcomer.core.shard.complete


def test_a_replacement_of_a_trimmed_shard_begins_at_the_base() -> None:
    """SCA-9"""
    cluster = Cluster(2)
    for sequence in range(1, 10):
        cluster.hosts[0].receive(append(sequence))
        cluster.run()
        cluster.order((21, 1))
        cluster.send_update()
    newcomer = Host("host-2")
    cluster.hosts.append(newcomer)
    cluster.oldest = 6
    config = cluster.config._replace(
        epoch=2,
        members=(cluster.config.members[0], Member(13, "host-2")),
        segments=(Segment(21, 11, 6, None), Segment(22, 12, 1, 1), Segment(23, 13, 1, None)),
        joining=(13,),
    )
    cluster.send_update(config=config)
    newcomer.sync()
    newcomer.receive(RegistrationReply(newcomer.token, 13, False, cluster.update(config=config)), ORDERING[0])
    cluster.wait(SECOND)
    assert newcomer.journals["segment-21"].first == 6
    assert dict(newcomer.messages(Report)[-1].ends) == {21: 10, 23: 1}
    newcomer.receive(append(1, 2, segment=23))
    cluster.run()
    assert end_of(cluster.hosts[0], 23) == 3


def damaged(host: Host, lsn: int) -> Any:
    """While this is entered, record `lsn` of segment 21 of a host cannot be read."""
    perform = host.perform

    def without(effects: Iterable[Any]) -> list[Send]:
        known = list(effects)
        lost = [one for one in known if isinstance(one, SendStored) and one.first <= lsn < one.end]
        sent = perform([one for one in known if one not in lost])
        return sent + [send for one in lost for send in host.handle(Unreadable(one, "bad"))]

    return mock.patch.object(host, "perform", without)


def test_damaged_records_come_from_other_members() -> None:
    """And those behind them from the primary again, which must not go on to send what it cannot read."""
    cluster = Cluster(3)
    primary, backup, behind = cluster.hosts
    primary.receive(append(1, 3))
    primary.sync()
    backup.receive(primary.messages(Replicate)[0], "host-0")
    backup.sync()
    primary.restart()
    with damaged(primary, 2):
        cluster.order((21, 3))
        cluster.send_update()
        cluster.wait(4 * SECOND)
        assert end_of(behind) == 4
        primary.receive(append(4, 2))
        cluster.wait(2 * SECOND)
        assert end_of(behind) == 6
        assert primary.messages(Report)


def test_a_primary_that_cannot_read_what_the_others_lack_reports_itself() -> None:
    """Otherwise its backups would be suspected, which lag behind it, and their successors after them."""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    primary.receive(append(1, 3))
    primary.sync()
    primary.restart()
    with damaged(primary, 2):
        cluster.wait(SECOND)
        assert Suspect(SHARD, 1, 11, False) in primary.messages(Suspect)
        cluster.send_update(config=sealed(cluster.config, s21=1))
        primary.messages(Suspect)
        cluster.wait(SECOND)
        assert primary.messages(Suspect) == []
        assert primary.messages(Report)


def test_a_large_record_is_not_sent_again_before_it_can_have_arrived() -> None:
    """Neither after a timeout nor when the backup requests it: the backup does not know that it is in flight."""
    cluster = Cluster(2)
    primary = cluster.hosts[0]
    primary.receive(append(1))
    cluster.run()
    primary.receive(append(2)._replace(records=((7, bytes(64 << 20)),)))
    primary.sync()
    assert [one.first for one in primary.messages(Replicate)] == [2]
    primary.wait(3 * SECOND)
    primary.receive(ReplicateAck(SHARD, 12, 21, 2, True), "host-1")
    primary.wait(2 * SECOND)
    assert primary.messages(Replicate) == []
    primary.wait(10 * SECOND)
    assert primary.messages(Replicate) != []


def test_the_size_of_a_large_record_is_not_spread_over_its_neighbours() -> None:
    sizes = RecordSizes(1)
    sizes.add(4, 300)
    sizes.add(5, 1 << 20)
    sizes.add(8, 300)
    assert [sizes.at(lsn) for lsn in (1, 4, 5, 8)] == [0, 300, 300 + (1 << 20), 600 + (1 << 20)]
    assert RecordSizes.restored(sizes.state(8)).at(4) == 300


def test_the_sizes_of_records_stay_the_same_when_others_are_trimmed() -> None:
    sizes = RecordSizes(1)
    for lsn in range(1, 11):
        sizes.add(lsn + 1, 20_000)
    sizes.trim(6)
    assert [sizes.at(lsn) - sizes.at(6) for lsn in (6, 7, 11)] == [0, 20_000, 100_000]
    assert sizes.reach(6, 11, 40_000) == 8
    for end in (11, 4):
        restored = RecordSizes.restored(sizes.state(end))
        restored.add(end + 1, 20_000)
        assert restored.total - restored.at(end) == 20_000
