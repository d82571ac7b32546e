"""A storage server across restarts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from logdb.cores.effects import SECOND
from logdb.log.contract import LogRecord
from logdb.log.ziplog.epochs import Epoch, Share
from logdb.log.ziplog.messages import (
    Freeze,
    FrontierRequest,
    FrontierResponse,
    Insert,
    Inserted,
    Member,
    Pull,
    Pulled,
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    Refused,
    Replicate,
    Report,
    Sessions,
    ShardConfig,
    Stored,
    Update,
    placed_runs,
)
from logdb.log.ziplog.records import gsn_of, wrap
from logdb.log.ziplog.storage import sessions
from logdb.log.ziplog.storage.checkpoints import META
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.log_store import GRAIN_BYTES
from logdb.log.ziplog.storage.server import StorageServer
from logdb.wire.envelopes import pack, unpack
from logdb.wire.limits import WireError
from logdb.wire.packing import pack_records
from logdb.wire.schema import Packet
from tests.harness.samples import arrivals, tight
from tests.harness.script import Script

EPOCH = Epoch(1, 1, 1 << 21, (Share(1, 1, 1),))
CONFIG = StorageConfig("s1", ("o1",))


def a_member(config: StorageConfig = CONFIG) -> tuple[Script, Update]:
    """The only member of shard 1, and the decision that made it one."""
    script = Script(lambda journals: StorageServer(config, journals, Random(1)))
    script.sync()
    (nonce,) = {report.nonce for _, report in script.take(Report)}
    shard = ShardConfig(1, 1, (Member(1, "s1", 0, False, True),), 0, 0, 1, False, False)
    update = Update(5, 1, nonce, shard, EPOCH, 1)
    script.give("o1", update)
    for _ in range(3):
        script.sync()
    return script, update


def test_a_late_decision_does_not_wipe_a_member_that_has_restarted() -> None:
    """Bug 28: a decision from before the server became a member, which arrives after a restart, has no shard for it."""
    script, update = a_member()
    script.restart()
    assert script.core.state.shard_number == 1
    script.give("o1", update._replace(change=4, config=None))
    assert script.core.state.shard_number == 1
    assert script.core.state.number == 0, "an earlier decision counts for nothing"
    script.give("o1", update)
    assert script.core.state.number == 1


def in_the_set(config: StorageConfig) -> tuple[Script, Update]:
    """The same, when its shard is in the set."""
    script, update = a_member(config)
    shard = ShardConfig(1, 1, (Member(1, "s1", 0, True, True),), 1, 1, 0, False, False)
    update = update._replace(change=6, config=shard)
    script.give("o1", update)
    script.sync()
    script.take(Report)
    return script, update


def test_a_shard_is_open_when_those_before_it_have_moved_on() -> None:
    script, update = in_the_set(CONFIG)
    for change, opened in ((7, 1), (8, 2)):
        joined = update.config._replace(since=2)  # type: ignore[union-attr]
        script.give("o1", update._replace(change=change, config=joined, opened=opened))
        script.give("c", FrontierRequest(1, 1, 1))
    assert [answer.is_open for _, answer in script.take(FrontierResponse)] == [False, True]


def insert(sequence: int) -> Insert:
    return Insert(7, 1, 1, sequence, 1, 0, 0, [(1, b"record")])


def test_an_insert_that_an_epoch_has_no_room_for_counts_as_records() -> None:
    """Else the next epoch, with the same rates, would have none either."""
    script, update = in_the_set(CONFIG)
    update = update._replace(change=7, epoch=Epoch(1, 1 << 21, (1 << 21) + 3, EPOCH.shares))
    script.give("o1", update)
    script.take(Report)
    script.give("c", insert(1)._replace(records=[(1, b"")] * 5))
    _, report = script.one(Report)
    assert (report.wanted, report.records) == (1 << 21, 5)
    assert script.take(Inserted) == []
    script.give("o1", update._replace(change=8, epoch=Epoch(1, 1 << 22, (1 << 22) + 4, EPOCH.shares)))
    script.sync()
    script.one(Inserted)


def test_inserts_behind_a_gsn_that_does_not_exist_take_no_room_from_others() -> None:
    """Such inserts waited for good. When they filled the buffer, none could wait for the next epoch, and none began."""
    script, update = in_the_set(replace(CONFIG, buffer_bytes=1_000))
    script.give("c", insert(1)._replace(client=8, floor=1 << 60, records=[(1, bytes(990))]))
    script.wait(SECOND)
    script.take(Report)
    script.give("c", insert(1))
    _, report = script.one(Report)
    assert report.wanted == update.epoch.base


def test_an_answer_from_the_disk_has_about_as_many_bytes_as_were_requested() -> None:
    """An answer had 128 records for a MiB, whatever their size, and a read the large record before its own. Of 60 MiB
    each, neither could be sent, and the server had no memory for the first."""
    script, _ = in_the_set(replace(CONFIG, cache_bytes=0))
    size = 10 * GRAIN_BYTES
    for sequence in range(1, 9):
        script.give("c", insert(sequence)._replace(records=[(1, bytes(size))]))
        script.sync()
    gsns = [answer.placed[0].gsns[0] for _, answer in script.take(Inserted)]
    for gsn in gsns[:-1]:
        script.give("c", ReadRequest(1, 1, gsn, False))
        assert [gsn_of(payload) for _, payload in script.one(ReadResponse)[1].records] == [gsn]
    first, found = gsns[0], []
    while len(found) < 7:
        script.give("c", Pull(1, 1, first, None, 3 * size, 0))
        _, pulled = script.one(Pulled)
        assert len(pulled.records) in (1, 2)
        found += [gsn_of(one.payload) for one in pulled.records if first <= gsn_of(one.payload) < pulled.end]
        first = pulled.end
    assert found[:7] == gsns[:7]


def test_no_restart_forgets_that_records_are_gone() -> None:
    """The records may go that were trimmed while the server saved a view, but not before it has saved that, too."""
    script, update = in_the_set(CONFIG)
    for sequence in (1, 2, 3):
        script.give("c", insert(sequence)._replace(records=[(1, bytes(GRAIN_BYTES))]))
        script.sync()
    placed = [answer.placed[0].gsns[0] for _, answer in script.take(Inserted)]
    script.give("o1", Freeze(1, 1))
    again = update.config._replace(view=2, members=(Member(1, "s1", placed[-1], False, True),))  # type: ignore[union-attr]
    script.give("o1", update._replace(change=7, config=again))
    script.give("o1", update._replace(change=8, config=again, oldest=placed[-1]))
    for _ in range(3):
        script.sync()
    for _ in range(2):
        script.give("c", Pull(1, 1, placed[0], None, 1 << 20, 0))
        assert [answer.why for _, answer in script.take(ReadFailed)] == [ReadError.TRIMMED]
        script.restart()


def test_no_restart_forgets_which_records_of_a_client_are_gone() -> None:
    """Another shard was ahead when the log was trimmed, so records that were placed later are gone at once."""
    script, update = in_the_set(CONFIG)
    script.give("o1", update._replace(change=7, oldest=10))
    for sequence in (1, 2, 3):
        script.give("c", insert(sequence)._replace(records=[(1, bytes(GRAIN_BYTES))]))
    script.sync(script.core.state.log.journal)
    script.sync()
    script.restart()
    placed = [script.core.state.log.sessions.find(7, sequence) for sequence in (1, 2, 3)]
    assert placed == [1, 2, 3]


def test_a_server_acknowledges_what_it_has_synced() -> None:
    script, _ = in_the_set(CONFIG)
    script.give("c", insert(1))
    assert script.take(Inserted) == []
    script.sync()
    script.one(Inserted)


RECEIVING = replace(CONFIG, acks_received=True)


def test_a_server_acknowledges_what_it_has_received() -> None:
    script, _ = in_the_set(RECEIVING)
    script.give("c", insert(1))
    ((_, first),) = script.take(Inserted)
    script.give("c", insert(1))
    ((_, again),) = script.take(Inserted)
    assert again == first
    assert script.core.state.log.stable < first.placed[0].gsns[0], "readers get it when it is durable"
    script.sync()
    assert script.core.state.log.stable >= first.placed[0].gsns[0]


def test_a_server_is_frozen_when_all_that_it_has_acknowledged_is_durable() -> None:
    """Else it could crash after the MMS has chosen it as the source of the next view (ZIP-12)."""
    script, _ = in_the_set(RECEIVING)
    script.give("c", insert(1))
    script.give("o1", Freeze(1, 1))
    assert not any(report.is_frozen for _, report in script.take(Report))
    script.give("c", insert(2))
    script.take(Inserted)
    script.sync()
    assert [(report.is_frozen, report.may_lack) for _, report in script.take(Report)] == [(True, False)]


@pytest.mark.parametrize("config", [CONFIG, RECEIVING])
def test_a_restarted_server_may_lack_what_it_had_received(config: StorageConfig) -> None:
    """Also if it acknowledges synced records from now on."""
    script, update = in_the_set(config)
    script.give("c", insert(1))
    script.build = lambda journals: StorageServer(CONFIG, journals, Random(1))
    script.restart()
    _, report = script.take(Report)[-1]
    assert (report.is_frozen, report.may_lack) == (True, config.acks_received)
    shard = ShardConfig(1, 2, (Member(1, "s1", 0, False, True),), 0, 0, 1, False, False)
    script.give("o1", update._replace(change=7, config=shard))
    for _ in range(3):
        script.sync()
    _, report = script.take(Report)[-1]
    assert (report.is_synced, report.may_lack) == (True, False)


def test_a_restart_before_a_view_joins_the_set_loses_nothing() -> None:
    """So a later view may begin with this server rather than with one that has lost records (ZIP-12)."""
    script, _ = a_member(RECEIVING)
    script.restart()
    _, report = script.take(Report)[-1]
    assert (report.view, report.is_frozen, report.may_lack) == (1, True, False)


def test_a_server_acknowledges_what_it_has_received_once_it_has_saved_that_it_may_lack_it() -> None:
    script, update = a_member(RECEIVING)
    shard = ShardConfig(1, 1, (Member(1, "s1", 0, True, True),), 1, 1, 0, False, False)
    script.give("o1", update._replace(change=6, config=shard))
    script.give("c", insert(1))
    assert script.take(Inserted) == []
    script.sync()
    assert len(script.take(Inserted)) == 1
    script.give("c", insert(2))
    assert len(script.take(Inserted)) == 1


def test_a_server_that_acknowledges_what_it_has_received_saves_no_session_before_its_records() -> None:
    """Else it would find the record of an insert after a crash that has lost it."""
    script, update = a_member(RECEIVING)
    shard = ShardConfig(1, 1, (Member(1, "s1", 0, True, True),), 1, 1, 0, False, False)
    script.give("c", insert(1))
    script.give("o1", update._replace(change=6, config=shard))
    script.sync(META)
    script.restart()
    shard = ShardConfig(1, 2, (Member(1, "s1", 0, False, True),), 0, 0, 10, False, False)
    script.give("o1", update._replace(change=7, config=shard))
    script.sync()
    script.give("o1", update._replace(change=8, config=shard._replace(members=(Member(1, "s1", 0, True, True),))))
    script.give("c", insert(1))
    script.one(Refused)


def test_a_new_server_reports_the_change_that_it_is_sent() -> None:
    """So that the MMS registers it, and not a disk that was lost before (ZIP-11)."""
    script = Script(lambda journals: StorageServer(CONFIG, journals, Random(1)))
    ((_, report), *_) = script.take(Report)
    assert (report.server, report.change) == (0, 0)
    script.give("o1", Update(6, 0, report.nonce + 1, None))
    assert script.take(Report) == []
    script.give("o1", Update(6, 0, report.nonce, None))
    ((_, report), *_) = script.take(Report)
    assert (report.server, report.change) == (0, 6)
    assert not script.core.is_ready


def a_backup(cache_bytes: int = CONFIG.cache_bytes) -> Script:
    """The second member of a shard in the set."""
    config = replace(CONFIG, address="s2", cache_bytes=cache_bytes)
    script = Script(lambda journals: StorageServer(config, journals, Random(1)))
    script.sync()
    (nonce,) = {report.nonce for _, report in script.take(Report)}
    members = (Member(1, "s1", 0, False, True), Member(2, "s2", 0, False, True))
    shard = ShardConfig(1, 1, members, 0, 0, 1, False, False)
    script.give("o1", Update(5, 2, nonce, shard, EPOCH, 1))
    script.give("s1", Sessions(1, 1, 0, 0, 0, sessions.Sessions().to_json()))
    for _ in range(3):
        script.sync()
    members = tuple([one._replace(is_synced=True) for one in members])
    shard = shard._replace(members=members, since=1, first=1, bound=0)
    script.give("o1", Update(6, 2, nonce, shard, EPOCH, 1))
    return script


def test_a_new_member_is_synced_with_the_last_part_of_the_sessions() -> None:
    script = Script(lambda journals: StorageServer(replace(CONFIG, address="s2"), journals, Random(1)))
    script.sync()
    (nonce,) = {report.nonce for _, report in script.take(Report)}
    members = (Member(1, "s1", 0, False, True), Member(2, "s2", 0, False, False))
    script.give("o1", Update(5, 2, nonce, ShardConfig(1, 1, members, 0, 0, 1, False, False), EPOCH, 1))
    parts = []
    for client in (7, 8, 9):
        part = sessions.Sessions()
        part.add(client, 1, 100 * client)
        parts.append(part.to_json())
    for first, following, at in ((0, 8, 0), (9, 0, 2), (8, 9, 1), (9, 0, 2)):  # one came too early
        assert not script.core.state.is_synced
        script.give("s1", Sessions(1, 1, 0, first, following, parts[at]))
        for _ in range(3):
            script.sync()
    assert script.core.state.is_synced
    assert [script.core.state.log.sessions.find(client, 1) for client in (7, 8, 9)] == [700, 800, 900]


def a_primary() -> Script:
    """The primary of a shard of two, whose backup has nothing yet."""
    script = Script(lambda journals: StorageServer(CONFIG, journals, Random(1)))
    script.sync()
    (nonce,) = {report.nonce for _, report in script.take(Report)}
    members = (Member(1, "s1", 0, True, True), Member(2, "s2", 0, True, True))
    shard = ShardConfig(1, 1, members, 1, 1, 0, False, False)
    script.give("o1", Update(5, 1, nonce, shard, EPOCH, 1))
    for _ in range(3):
        script.sync()
    script.give("s2", Stored(1, 1, 0, 0, 0))
    script.take(Replicate)
    return script


def test_no_more_is_under_way_to_a_backup_than_the_queue_to_it_can_hold() -> None:
    """The primary sent all that a backup lacked at once. If the queue could not hold it, the first records were lost,
    and again each time that all was sent again."""
    script = a_primary()
    for sequence in range(1, 25):
        script.give("c", insert(sequence)._replace(records=[(1, bytes(1 << 20))]))
    script.sync()
    placed = [answer.placed[0].gsns[0] for _, answer in script.take(Inserted)]
    received: list[int] = []
    while received != placed:
        script.wait(10 * SECOND)  # all that is under way is sent again, and all of it arrives
        sent = [gsn_of(one.payload) for _, message in script.take(Replicate) for one in message.records]
        assert len(set(sent)) <= 10
        received += sorted({*sent}.difference(received))
        script.give("s2", Stored(1, 1, received[-1], received[-1], 0))


def test_a_large_record_is_sent_again_when_its_backup_has_had_the_time_to_receive_it() -> None:
    """The primary sent it every 100 ms until it was confirmed, and did nothing else if that needs longer."""
    script = a_primary()
    script.give("c", insert(1)._replace(records=[(1, bytes(20 << 20))]))
    for seconds, count in ((2, 1), (1, 1), (1, 0), (2, 1)):
        script.wait(seconds * SECOND)
        assert len([one for _, one in script.take(Replicate) if one.records]) == count


def order(*records: tuple[int, int, int]) -> Replicate:
    """The order of the primary: (GSN, client, sequence number) of each record."""
    stored = [LogRecord(gsn, 0, 1, wrap(gsn, client, number, (1, b""))[1]) for gsn, client, number in records]
    return Replicate(1, 1, 0, records[-1][0], 0, 1, stored)


def test_a_backup_acknowledges_records_that_the_primary_has_placed_elsewhere_together() -> None:
    script = a_backup()
    for client in (7, 8):
        script.give(f"c{client}", Insert(client, 1, 1, 1, 1, 0, 0, [(1, b"")] * 3))
    script.sync()
    assert [found.placed for _, found in script.take(Inserted)] == [((1, (1, 2, 3)),), ((1, (4, 5, 6)),)]
    script.give("s1", order((11, 8, 1), (12, 8, 2), (13, 7, 1), (14, 8, 3), (15, 7, 2), (16, 7, 3)))
    assert script.take(Inserted) == []
    script.sync()
    assert [(to, found.placed) for to, found in script.take(Inserted)] == [
        ("c8", ((1, (11, 12, 14)),)),
        ("c7", ((1, (13, 15, 16)),)),
    ]


def test_a_request_that_comes_again_is_acknowledged_at_once() -> None:
    script = a_backup()
    request = Insert(7, 1, 1, 1, 1, 0, 0, [(1, b"")] * 4)
    script.give("c7", request)
    script.sync()
    script.give("s1", order((1, 7, 1), (2, 7, 2)))
    script.sync()
    script.take(Inserted)
    script.give("c7", request)
    assert [found.placed for _, found in script.take(Inserted)] == [((1, (1, 2)),), ((3, (3, 4)),)]


def test_a_source_begins_with_more_stable_records_than_it_has_reported() -> None:
    """The source was frozen while it saved that it has all of the last view. More of the order is stable in that view,
    and not in memory any more."""
    script = a_backup(cache_bytes=0)
    update = script.core.state.update
    script.give("s1", order((1, 7, 1), (2, 7, 2), (3, 7, 3)))
    script.sync()
    script.give("o1", Freeze(1, 1))
    members = (Member(1, "s1", 3, True, True), Member(2, "s2", 3, False, True))
    second = ShardConfig(1, 2, members, 0, 0, 1 << 21, False, False)
    script.give("o1", update._replace(change=7, config=second))
    script.give("s1", Replicate(1, 2, 3, 1 << 21, 3, 1))
    script.give("s1", Sessions(1, 2, 1 << 21, 0, 0, sessions.Sessions().to_json()))
    script.take(Report)
    script.give("o1", Freeze(1, 2))
    _, report = script.one(Report)
    assert (report.is_frozen, report.is_synced, report.stable) == (True, False, 0)
    script.sync()
    members = (Member(2, "s2", report.stable, False, True), Member(3, "s3", 0, False, False))
    script.give("o1", update._replace(change=8, config=second._replace(view=3, members=members)))
    for _ in range(3):
        script.sync()
    script.take(Replicate)
    script.give("s3", Stored(1, 3, 0, 0, 0))
    (_, message), *_ = script.take(Replicate)
    assert (message.after, len(message.records)) == (0, 3)


def test_runs_of_places() -> None:
    assert placed_runs([]) == ()
    assert placed_runs([(1, 5), (2, 7), (4, 8)]) == ((1, (5, 7)), (4, (8,)))


def test_the_acknowledgement_of_any_number_of_records_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of an append of 520,000 records was too large, so it never ended, and blocked its client's others."""
    inserted = Inserted(1 << 63, 1, 1, placed_runs((number, 1 << 50) for number in (*range(300), 400)), False)
    tight(monkeypatch, 1_000)
    arrived = arrivals(pack("one:1", "two:2", [inserted]))
    assert len(arrived) > 2
    assert [place for one in arrived for place in one.places] == inserted.places


def test_the_refusal_of_any_number_of_records_can_be_sent() -> None:
    script, update = in_the_set(CONFIG)
    script.give("c", insert(3))
    script.sync()
    script.give("o1", Freeze(1, 1))
    stable = script.core.state.log.stable
    member = Member(1, "s1", stable, False, True)
    script.give("o1", update._replace(change=7, config=update.config._replace(view=2, members=(member,))))  # type: ignore[union-attr]
    script.sync()
    member = member._replace(is_synced=True)
    script.give("o1", update._replace(change=8, config=update.config._replace(view=2, members=(member,))))  # type: ignore[union-attr]
    script.give("c", insert(1)._replace(records=[(1, b"record")] * 500))
    assert script.one(Refused)[1].numbers == ((1, 2), (4, 497))


def test_no_client_writes_marks_into_the_journal_of_a_backup() -> None:
    """A record of the client 0 made a backup forget acknowledged records of others after a restart."""
    fields = {"shard": 1, "view": 1}
    packet = Packet(messages=[{"ziplog_insert": fields}], batches=[pack_records([(1, b"")])])
    with pytest.raises(WireError, match="of the client 0"):
        unpack(packet.SerializeToString())
