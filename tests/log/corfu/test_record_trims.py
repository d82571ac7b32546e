"""Records that are trimmed one by one: at a unit, in its journals, and by a client."""

from __future__ import annotations

import json

import pytest

from logdb.cores.effects import SECOND, JournalRange, Persisted
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.corfu.messages import (
    CommitRequest,
    Committed,
    Deleted,
    DeleteRequest,
    Entry,
    FillRequest,
    HighestRequest,
    HighestResponse,
    Pull,
    Pulled,
    ReadRequest,
    ReadResponse,
    Reason,
    Rejected,
    Seal,
    Update,
    WriteRequest,
    Written,
)
from logdb.log.corfu.projection import Range, gsn_at
from logdb.log.corfu.storage.deleted_records import DELETED
from logdb.log.corfu.storage.entry_store import JOURNAL
from logdb.log.corfu.storage.unit import META
from tests.log.corfu.client_stage import Client, shard_of, view_of
from tests.log.corfu.test_unit import Scripted

MARGIN = 100


def unit_with(*counts: int) -> Scripted:
    """The last unit of a shard, with entries of so many records at the positions from 1 on."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 0)))
    for position, count in enumerate(counts, 1):
        records = [(1, b"%d" % index) for index in range(count)]
        unit.give("me", WriteRequest(5, 2, position, 9, 7, 10 * position, (), records))
    unit.sync()
    unit.sent.clear()
    return unit


def delete(unit: Scripted, position: int, *indexes: int) -> None:
    """Delete records, durably."""
    unit.give("me", DeleteRequest(6, 2, tuple([gsn_at(position, index) for index in indexes])))
    assert not unit.take(Deleted), "acknowledged before it is durable"
    unit.sync()
    assert unit.one(Deleted)[1] == Deleted(6)


def pulled(unit: Scripted) -> tuple[Pulled, list[bytes]]:
    """The response to a reader from the first position on, and the payloads in it."""
    unit.sent.clear()
    unit.give("me", Pull(8, 2, 1, 1, 0, 0, None, 1 << 20))
    (answer,) = [one.message for one in unit.sent]
    return answer, [record.payload for record in answer.records]


def test_a_deleted_record_is_trimmed_for_readers_and_the_others_are_not() -> None:
    unit = unit_with(1, 3, 1)
    delete(unit, 2, 1)
    for gsn, expected in ((gsn_at(2, 1), Reason.TRIMMED), (gsn_at(2, 3), Reason.ABSENT)):
        unit.give("me", ReadRequest(7, 2, gsn))
        assert unit.one(Rejected)[1].why is expected
    unit.give("me", ReadRequest(7, 2, gsn_at(2, 2)))
    assert unit.one(ReadResponse)[1].records == ((1, b"2"),)
    answer, payloads = pulled(unit)
    assert (payloads, answer.deleted) == ([b"0", b"0", b"2", b"0"], (gsn_at(2, 1),))
    assert [entry.count for entry in answer.entries] == [1, 3, 1]


def test_trimmed_records_count_for_the_limit_of_a_response() -> None:
    """A unit named up to 4,096 of them for each 64 bytes that a reader had requested, which took gigabytes."""
    unit = unit_with(*[100] * 9)
    for position in range(1, 10):
        delete(unit, position, *range(100))
    unit.give("me", Pull(8, 2, 1, 1, 0, 0, None, 3_000))
    assert len(unit.one(Pulled)[1].deleted) == 200


def test_deletions_survive_a_restart_and_are_read_from_the_medium() -> None:
    unit = unit_with(1, 3, 1)
    delete(unit, 2, 0, 2)
    unit.restart()
    unit.sync()
    unit.update(view_of(shard_of(1, 0, 0, 0), epoch=3))
    unit.sent.clear()
    ranges = unit.core.store.ranges_of(Entry(2, 9, 7, 20, 3))
    assert ranges == [JournalRange(JOURNAL, 4, 5, gsn_at(2, 1), 9)]
    assert unit.core.store.deleted_gsns([Entry(2, 9, 7, 20, 3)]) == (gsn_at(2, 0), gsn_at(2, 2))
    unit.give("me", ReadRequest(7, 2, gsn_at(2, 2)))
    assert unit.one(Rejected)[1].why is Reason.TRIMMED


def test_the_journal_loses_entries_without_records_and_their_positions_stay_decided() -> None:
    unit = unit_with(2, 1, 1)
    delete(unit, 1, 0, 1)
    delete(unit, 3, 0)
    unit.fire("storage.heartbeat")
    assert unit.journals[JOURNAL].first == 4  # behind the first entry and its description
    unit.restart()
    unit.sync()
    assert list(unit.core.store.positions) == [1, 2, 3]
    unit.give("me", FillRequest(5, 2, 1))
    assert unit.one(Written)[1] == Written(5, 1, 7, 10, 2)
    delete(unit, 2, 0)
    unit.fire("storage.heartbeat")
    assert unit.journals[JOURNAL].first == unit.journals[JOURNAL].end


def test_the_journal_of_deletions_ends_with_its_prefix() -> None:
    unit = unit_with(2, 1, 1)
    delete(unit, 1, 0)
    delete(unit, 3, 0)
    for oldest, first in ((2, 2), (4, 3)):
        unit.fire("storage.heartbeat")
        view = view_of(shard_of(1, 0, 0, 0), epoch=oldest, oldest=gsn_at(oldest))
        unit.update(view._replace(version=MARGIN + oldest))
        assert unit.journals[DELETED].first == first
    unit.restart()
    assert not unit.core.store.deleted.of(3)


@pytest.mark.parametrize("deletes", [True, False], ids=["a record was trimmed by itself", "another trim follows"])
def test_the_journal_loses_nothing_before_a_restart_would_know_that_it_was_trimmed(deletes: bool) -> None:
    """Positions would be undecided again, and the unit could seal an epoch with a lower one than it has reported."""
    unit = unit_with(1, 1, 1)
    if deletes:
        unit.give("me", DeleteRequest(6, 2, (gsn_at(1),)))
        unit.sync()
    view, nonce = unit.core.view, json.loads(unit.journals[META].records[-1].payload)["nonce"]
    ends = []
    for oldest in (4,) if deletes else (2, 4):
        unit.give("o1", Update(13, nonce, view._replace(version=9 + oldest, oldest=gsn_at(oldest)), False))
        ends.append(unit.journals[META].end)
    if deletes:
        unit.fire("storage.heartbeat")
    else:
        unit.journals[META].durable = ends[0]
        unit.handle(Persisted(META, ends[0]))
    unit.restart()
    assert unit.core.store.highest == 3
    assert 3 in unit.core.store.positions


@pytest.mark.parametrize(
    ("gsns", "why"),
    [
        ((gsn_at(4),), Reason.BUSY),
        ((gsn_at(1), gsn_at(2)), Reason.INVALID),
        ((), Reason.TRIMMED),
        ((5,), Reason.TRIMMED),
    ],
)
def test_a_unit_rejects_deletions_of_what_it_does_not_have(gsns: tuple[int, ...], why: Reason) -> None:
    unit = unit_with(1, 1)
    unit.give("me", DeleteRequest(6, 2, gsns))
    assert unit.one(Rejected)[1].why is why


def test_a_unit_that_still_copies_an_entry_deletes_nothing_of_it() -> None:
    """An answer would end the trim, and the unit would copy the record after it (COR-14)."""
    unit = unit_with(1)
    unit.give("me", DeleteRequest(6, 2, (gsn_at(2),)))
    unit.sync()
    assert unit.one(Rejected)[1].why is Reason.BUSY


def test_a_sealed_unit_deletes_nothing() -> None:
    unit = unit_with(1)
    unit.give("o1", Seal(2))
    unit.sync()
    unit.give("me", DeleteRequest(6, 2, (gsn_at(1),)))
    assert unit.one(Rejected)[1].why is Reason.SEALED
    assert not unit.core.store.deleted.of(1)


def test_a_unit_that_copies_an_entry_copies_its_deletions() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 3), start=3))
    _, pull = unit.one(Pull)
    entries = (Entry(1, 1, 7, 1, 2), Entry(2, 1, 7, 3, 1))
    left = [LogRecord(gsn_at(1, 1), 1, 1, b"x")]
    unit.give("s12", Pulled(pull.request, 2, entries, (gsn_at(1, 0), gsn_at(2, 0)), records=left))
    unit.sync()
    assert unit.core.store.deleted_gsns(entries) == (gsn_at(1, 0), gsn_at(2, 0))
    unit.give("me", ReadRequest(7, 2, gsn_at(1, 1)))
    assert unit.one(ReadResponse)[1].records == ((1, b"x"),)


def test_a_copy_of_deleted_records_survives_a_crash_before_their_deletions_are_durable() -> None:
    """Two journals are not durable at the same moment. The copy has nothing in the place of a deleted record."""
    unit = Scripted(view_of(shard_of(1, 0, 0, 3), start=3))
    _, pull = unit.one(Pull)
    entries = (Entry(1, 1, 7, 1, 2), Entry(2, 1, 7, 3, 1))
    gone = (gsn_at(1, 0), gsn_at(2, 0))
    unit.give("s12", Pulled(pull.request, 2, entries, gone, records=[LogRecord(gsn_at(1, 1), 1, 1, b"x")]))
    unit.sync(JOURNAL)
    unit.restart()
    unit.sync()
    assert list(unit.core.store.positions) == [1, 2]
    assert unit.core.store.deleted_gsns(entries) == gone
    delete(unit, 1, 1)
    unit.restart()
    unit.sync()
    assert unit.core.store.deleted_gsns(entries) == (gsn_at(1, 0), gsn_at(1, 1), gsn_at(2, 0))


# ---- the client


def ready() -> tuple[Client, int]:
    """A client that knows the tail, and its call to trim two records of position 3."""
    client = Client()
    call = client.call(calls.Reconfigure(calls.TrimRecords((gsn_at(3), gsn_at(3, 1)))))
    client.configure(view_of(shard_of(1, 0, 0, 9), start=5))
    for to, question in client.take(HighestRequest):
        client.give(to, HighestResponse(question.request, gsn_at(4)))
    return client, call


def fill(client: Client) -> None:
    """The units before the joining one have the entry."""
    for unit in ("s11", "s12"):
        to, request = client.one(FillRequest)
        assert to == unit
        client.give(to, Written(request.request, 3, 7, 1, 2))


def test_a_trim_deletes_at_all_units_and_at_those_that_still_copy() -> None:
    client, trim = ready()
    fill(client)
    requests = client.take(DeleteRequest)
    assert [to for to, _ in requests] == ["s11", "s12", "s13"]
    assert {one.gsns for _, one in requests} == {(gsn_at(3), gsn_at(3, 1))}
    for to, one in requests[:2]:
        client.give(to, Deleted(one.request))
    to, last = requests[2]
    client.give(to, Rejected(last.request, Reason.BUSY, 1, 1))
    assert trim not in client.answers
    client.wait(SECOND)
    client.give(to, Deleted(last.request))
    assert client.answers[trim] == 2


def test_a_trim_begins_again_in_another_epoch() -> None:
    client, trim = ready()
    fill(client)
    requests = client.take(DeleteRequest)
    client.give("s11", Deleted(requests[0][1].request))
    client.give("s12", Rejected(requests[1][1].request, Reason.SEALED, 2, 1))
    client.configure(view_of(shard_of(1, 0, 0, 9), start=5, epoch=3))
    fill(client)
    again = client.take(DeleteRequest)
    assert [(to, one.epoch) for to, one in again] == [("s11", 3), ("s12", 3), ("s13", 3)]
    client.give("s13", Deleted(requests[2][1].request))
    for to, one in again:
        assert trim not in client.answers
        client.give(to, Deleted(one.request))
    assert client.answers[trim] == 2


def test_a_trim_deletes_at_stream_replicas_too() -> None:
    client, trim = ready()
    held = shard_of(2, 0, 9)._replace(holds_streams=True)
    view = view_of(shard_of(1, 0, 0), held, start=9, epoch=3)
    view = view._replace(streams=(Range(1, (2,)),), ranges=(Range(1, (1,)),))
    client.wait(SECOND)
    client.configure(view)
    client.take(FillRequest)
    client.wait(SECOND)
    written = Written(0, 3, 7, 1, 2, ((5, 0),))
    for unit in ("s11", "s12", "s21"):
        to, request = client.take(FillRequest)[-1]
        assert to == unit
        client.give(to, written._replace(request=request.request))
    for unit in ("s11", "s12"):
        to, commit = client.one(CommitRequest)
        assert to == unit
        client.give(to, Committed(commit.request))
    requests = client.take(DeleteRequest)
    assert [to for to, _ in requests] == ["s11", "s12", "s21", "s22"]
    for to, one in requests:
        client.give(to, Deleted(one.request))
    assert client.answers[trim] == 2


def test_a_forged_entry_of_a_stream_without_a_shard_is_completed_on_the_log_replicas() -> None:
    """A fill that waited for replicas of the stream would never end, and hold back the readers of the log."""
    client, trim = ready()
    for unit in ("s11", "s12"):
        to, request = client.one(FillRequest)
        assert to == unit
        client.give(to, Written(request.request, 3, 7, 1, 2, ((5, 0),)))
    for unit in ("s11", "s12"):
        to, commit = client.one(CommitRequest)
        assert to == unit
        client.give(to, Committed(commit.request))
    for to, one in client.take(DeleteRequest):
        client.give(to, Deleted(one.request))
    assert client.answers[trim] == 2


def test_a_record_behind_the_tail_is_not_trimmed() -> None:
    client = Client()
    call = client.call(calls.Reconfigure(calls.TrimRecords((gsn_at(5),))))
    client.configure(view_of(shard_of(1, 0)))
    to, question = client.one(HighestRequest)
    client.give(to, HighestResponse(question.request, gsn_at(4)))
    assert isinstance(client.answers[call], ValueError)
    assert not client.take(FillRequest)


def test_junk_has_no_records_to_trim() -> None:
    client, trim = ready()
    for unit in ("s11", "s12"):
        _, request = client.one(FillRequest)
        client.give(unit, Written(request.request, 3, 0, 0, 0))
    assert client.answers[trim] == 2
    assert not client.take(DeleteRequest)


def test_a_subscriber_gets_the_gsns_of_trimmed_records() -> None:
    client = Client()
    subscription = client.answers[client.call(calls.Subscribe(gsn_at(1, 1), frozenset({2})))]
    call = client.call(calls.Next(subscription))
    client.configure(view_of(shard_of(1, 0)))
    _, pull = client.one(Pull)
    left = [LogRecord(gsn_at(1, 1), 1, 2, b"x")]
    gone = (gsn_at(1, 0), gsn_at(1, 2))
    client.give("s11", Pulled(pull.request, 1, (Entry(1, 1, 7, 1, 3),), gone, records=left))
    assert client.answers[call] == Batch(gsn_at(1, 1), gsn_at(1, 3), left, (gsn_at(1, 2),))


def test_a_read_of_a_trimmed_record_raises_trimmed() -> None:
    client = Client()
    call = client.call(calls.Read(gsn_at(1), 1))
    client.configure(view_of(shard_of(1, 0), start=5))
    to, request = client.one(ReadRequest)
    client.give(to, Rejected(request.request, Reason.TRIMMED, 1, 1))
    assert isinstance(client.answers[call], Trimmed)


def test_trimmed_records_count_for_the_limits_of_a_subscription() -> None:
    """The GSNs took gigabytes of a client whose application was slow, and one batch had all of them."""
    client = Client(batch_bytes=10_000)
    subscription = client.answers[client.call(calls.Subscribe(1, fetch_bytes=20_000))]
    client.call(calls.View())
    client.configure(view_of(shard_of(1, 0)))
    call = client.call(calls.Next(subscription))
    positions = range(1, 10)
    gsns = tuple([gsn_at(position, index) for position in positions for index in range(100)])
    _, pull = client.one(Pull)
    client.give("s11", Pulled(pull.request, 9, tuple([Entry(one, 9, 7, one, 100) for one in positions]), gsns))
    assert client.answers[call] == Batch(1, gsn_at(2, 100), [], gsns[:200])
    assert not client.take(Pull)


def test_any_number_of_records_that_the_log_has_trimmed_can_be_trimmed_again() -> None:
    """Each ended at once and began the next one in a deeper call, until the client met a RecursionError."""
    client = Client()
    gsns = tuple([gsn_at(position) for position in range(1, 2_000)])
    trim = client.call(calls.Reconfigure(calls.TrimRecords(gsns)))
    client.configure(view_of(shard_of(1, 0), start=5_000, oldest=gsn_at(4_000)))
    to, question = client.one(HighestRequest)
    client.give(to, HighestResponse(question.request, gsn_at(4_999)))
    assert client.answers[trim] == len(gsns)
