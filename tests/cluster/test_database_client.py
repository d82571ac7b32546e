"""The client of the database: its records, its requests, and its results when an outcome is unknown."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb.cluster import messages
from logdb.cluster.client import commit_client
from logdb.cluster.client import requests as calls
from logdb.cluster.client.commit_client import PendingCommit
from logdb.cluster.messages import (
    AwaitedTransaction,
    AwaitVerdicts,
    Busy,
    Consistency,
    Entries,
    FutureVersionReply,
    Get,
    Hold,
    MultiRows,
    MultiScan,
    Pin,
    Pinned,
    Reads,
    Rows,
    VersionTrimmedReply,
)
from logdb.cluster.placement import (
    MAX_BYTES,
    TOGETHER_BYTES,
    ByHash,
    ByObject,
    ByPrefix,
    PlacedRecord,
    StickySegmentPolicy,
    decode_placement,
    encode_placement,
    joined,
    placed,
)
from logdb.cores.effects import SECOND, ProtocolViolation
from logdb.errors import (
    Corruption,
    FutureVersion,
    LimitExceeded,
    OutcomeUnknown,
    TransactionTooLarge,
    Unavailable,
    VersionTrimmed,
)
from logdb.log import requests as log
from logdb.log.contract import LogFailed, LogRecord, Trimmed
from logdb.store.records import (
    COMMIT,
    PIN,
    PLACEMENT,
    VALUE,
    MalformedRecord,
    Place,
    TxnId,
    decode_commit,
    decode_pin,
    digest,
)
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import COMMITTED, Reason, Verdict
from tests.harness.stage import Client, Server, batch

LARGE = b"x" * 5_000
LOST = LogFailed("nobody knows")


def committing(client: Client, **request: Any) -> tuple[int, TxnId]:
    """Have it commit something; (call, transaction id)."""
    request.setdefault("writes", {b"k": b"v"})
    call = client.call(calls.Commit(**request))
    (append,) = client.asks_log(log.Append)
    commit = decode_commit(append.records[0][1], 0)
    return call, TxnId(commit.client, commit.sequence)


# ---- commits


def test_a_commit_is_one_append_and_its_verdict_is_pushed() -> None:
    client = Client()
    call, txn = committing(client, label="me", reads=[b"r"], snapshot=3)
    client.wait()
    assert client.one(AwaitVerdicts) == ("m1", AwaitVerdicts((AwaitedTransaction(*txn, 0),)))
    client.decide(txn, 7, COMMITTED)
    assert client.answers[call] == calls.Committed(txn, 7, COMMITTED, "")
    client.log_answers(log.Append, log.AppendResult([7], [1]))
    client.wait(60 * SECOND)
    assert not client.take(AwaitVerdicts), "nothing more to ask"
    assert client.core.session == 7


def test_an_ended_commit_leaves_no_reference_cycles() -> None:
    client = Client()
    gc.collect()
    gc.freeze()  # what other tests have left
    gc.disable()
    try:
        _, txn = committing(client)
        client.decide(txn, 7, COMMITTED)
        client.log_answers(log.Append, log.AppendResult([7], [1]))
        client.wait(60 * SECOND)
        assert not [each for each in gc.get_objects() if isinstance(each, PendingCommit)]
    finally:
        gc.enable()
        gc.unfreeze()


def test_commits_put_together_are_waited_for_with_one_message() -> None:
    client = Client()
    for _ in range(3):
        client.call(calls.Commit({b"k": b"v"}))
    client.wait()
    assert len(client.one(AwaitVerdicts)[1].waits) == 3


def test_large_values_come_first_and_each_stands_on_the_shard_of_its_key() -> None:
    client = Client(placement=ByPrefix({b"a/": 1, b"b/": 2}))
    call = client.call(calls.Commit({b"b/k": LARGE, b"a/k": LARGE + b"2", b"c": b"small"}))
    client.log_answers(log.Append, log.AppendResult([1], [1]))
    (append,) = client.asks_log(log.Append)
    assert [(record[0], record.shard) for record in append.records] == [(VALUE, 2), (VALUE, 1)]
    client.log_answers(log.Append, LOST)
    client.wait(SECOND)
    client.log_answers(log.Append, log.AppendResult([5, 4], [2, 3]))
    (append,) = client.asks_log(log.Append)
    (record,) = append.records
    assert record.shard == 2
    assert decode_commit(record[1], 0).writes == {
        b"b/k": Place(5, 2, len(LARGE), digest(LARGE)),
        b"a/k": Place(4, 3, len(LARGE) + 1, digest(LARGE + b"2")),
        b"c": b"small",
    }
    assert call not in client.answers


def test_the_placement_is_stated_before_the_first_record_that_follows_it_and_again_until_it_is_in_the_log() -> None:
    placement = ByPrefix({b"a/": 1, b"b/": 2})
    client = Client(placement=placement)
    assert not client.asks_log(log.Append), "a transaction without writes sends nothing"
    stated = (PLACEMENT, encode_placement(placement))
    for result in (LOST, Unavailable("the deadline passed"), log.AppendResult([1], [1])):
        client.call(calls.Commit({b"a/k": b"v"}))
        first, *_ = client.asks_log(log.Append)
        assert first.records == (stated,)
        client.log_answers(log.Append, result)
        client.log_answers(log.Append, log.AppendResult([2], [1]))
    client.call(calls.Commit({b"a/k": b"v"}))
    (append,) = client.asks_log(log.Append)
    assert append.records[0][0] == COMMIT


@given(st.dictionaries(st.binary(max_size=9), st.integers(1, 99), max_size=5), st.lists(st.integers(1, 99), min_size=1))
def test_a_placement_is_decoded_as_it_was_stated(prefixes: dict[bytes, int], shards: list[int]) -> None:
    for placement in (ByPrefix(prefixes), ByHash(tuple(shards))):
        payload = encode_placement(placement)
        assert payload is not None
        assert decode_placement(payload) == placement
        assert joined(b"", payload) == joined(payload, payload) == payload
        for end in range(len(payload)):
            with pytest.raises(MalformedRecord):
                decode_placement(payload[:end])
    assert encode_placement(lambda _: 1) is encode_placement(None) is None


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_noise_is_no_placement(payload: bytes) -> None:
    with contextlib.suppress(MalformedRecord):
        decode_placement(payload)


def test_prefixes_are_added_to_those_of_other_clients() -> None:
    one, other, hashed = ByPrefix({b"a": 1, b"b": 2}), ByPrefix({b"b": 3, b"c": 4}), ByHash((1, 2))
    first, second, third = (encode_placement(placement) or b"" for placement in (one, other, hashed))
    assert decode_placement(joined(first, second)) == ByPrefix({b"a": 1, b"b": 3, b"c": 4})
    assert decode_placement(joined(first, third)) == hashed
    assert decode_placement(joined(third, first)) == one
    long = ByPrefix({b"%08d" % number: 1 for number in range(4_000)})
    assert len(joined(encode_placement(long) or b"", first)) < MAX_BYTES
    another = ByPrefix({b"again %08d" % number: 1 for number in range(3_000)})
    payload = encode_placement(another) or b""
    assert joined(encode_placement(long) or b"", payload) == payload, "there is no room for both"
    assert encode_placement(ByPrefix({**long.shards, **another.shards})) is None


def test_a_copy_is_appended_when_the_first_is_not_ordered_in_time() -> None:
    client = Client(hedge_ns=SECOND, max_copies=2)
    committing(client)
    client.wait(SECOND - 1)
    assert len(client.asks_log(log.Append)) == 1
    client.wait(20 * SECOND)
    first, second = client.asks_log(log.Append)
    assert first.records == second.records


def test_a_placed_record_is_not_sent_elsewhere() -> None:
    client = Client(placement=lambda _: 3)
    committing(client)
    client.wait(20 * SECOND)
    assert len(client.asks_log(log.Append)) == 1


def test_a_record_that_may_be_lost_is_appended_again_with_the_same_id() -> None:
    """DBS-6"""
    client = Client()
    call, txn = committing(client)
    client.log_answers(log.Append, LOST)
    client.wait(SECOND)
    (append,) = client.asks_log(log.Append)
    assert decode_commit(append.records[0][1], 0)[:2] == txn
    client.decide(txn, 4, COMMITTED)
    assert client.answers[call].version == 4


def test_without_a_verdict_the_client_asks_the_next_server() -> None:
    client = Client()
    call, txn = committing(client)
    client.wait()
    client.take(AwaitVerdicts)
    client.log_answers(log.Append, log.AppendResult([9], [1]))
    client.wait(SECOND)
    assert client.take(AwaitVerdicts)[0] == ("m2", AwaitVerdicts((AwaitedTransaction(*txn, 9),)))
    client.decide(txn, 9, Verdict(Reason.CONFLICT, b"r", 8), "winner", sender="m2")
    assert client.answers[call] == calls.Committed(txn, 9, Verdict(Reason.CONFLICT, b"r", 8), "winner")


def test_a_commit_is_unavailable_only_if_no_copy_can_be_in_the_log() -> None:
    """DBS-7"""
    client = Client()
    call, _ = committing(client, deadline=client.now + SECOND)
    client.log_answers(log.Append, Unavailable("no server took it"))
    assert isinstance(client.answers[call], Unavailable)
    assert not isinstance(client.answers[call], OutcomeUnknown)


@pytest.mark.parametrize("copies", [["lost"], ["lost", "refused"], ["refused", "lost"], ["done"], ["done", "refused"]])
def test_a_record_that_may_be_in_the_log_at_the_deadline_is_unknown(copies: list[str]) -> None:
    """DBS-7"""
    results = {"lost": LOST, "refused": Unavailable("no"), "done": log.AppendResult([4], [1])}
    client = Client(hedge_ns=SECOND // 10, max_copies=len(copies))
    call, txn = committing(client, deadline=client.now + SECOND // 2)
    client.wait(SECOND // 5)
    client.now += SECOND
    client.wait()
    for copy in copies:
        assert call not in client.answers
        client.log_answers(log.Append, results[copy])
    error = client.answers[call]
    assert isinstance(error, OutcomeUnknown)
    assert error.txn_id == str(txn)


def test_a_commit_with_a_used_id_is_never_unavailable() -> None:
    """DBS-7"""
    client = Client()
    txn = client.answers[client.call(calls.NewId())]
    for is_fresh in (True, False):
        call = client.call(calls.Commit({b"k": b"v"}, txn_id=txn, deadline=client.now + SECOND))
        client.wait(2 * SECOND)
        assert call not in client.answers
        client.log_answers(log.Append, Unavailable("no"))
        assert type(client.answers[call]) is (Unavailable if is_fresh else OutcomeUnknown)


def test_the_ids_of_transactions_that_never_commit_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """DBS-7: one that is not remembered may have been used."""
    monkeypatch.setattr(commit_client, "MAX_UNUSED_IDS", 2)
    client = Client()
    ids = [client.answers[client.call(calls.NewId())] for _ in range(3)]
    errors = []
    for txn in ids:
        call = client.call(calls.Commit({b"k": b"v"}, txn_id=txn, deadline=client.now + SECOND))
        client.wait(2 * SECOND)
        client.log_answers(log.Append, Unavailable("no"))
        errors.append(type(client.answers[call]))
    assert errors == [OutcomeUnknown, Unavailable, Unavailable]


def test_large_values_that_cannot_be_written_refuse_the_commit() -> None:
    """DBS-7"""
    client = Client()
    call = client.call(calls.Commit({b"k": LARGE}, deadline=client.now + SECOND))
    client.wait(2 * SECOND)
    client.log_answers(log.Append, LOST)
    assert isinstance(client.answers[call], Unavailable)


def test_a_transaction_that_was_compacted_away_is_unknown() -> None:
    client = Client()
    call, txn = committing(client)
    client.decide(txn, 0, Verdict(Reason.DUPLICATE))
    assert isinstance(client.answers[call], OutcomeUnknown)


def test_a_transaction_that_is_too_large_is_not_sent() -> None:
    client = Client(transaction_bytes=100)
    call = client.call(calls.Commit({b"k": b"v" * 100}))
    assert isinstance(client.answers[call], TransactionTooLarge)
    assert isinstance(client.answers[call], LimitExceeded)
    assert not client.asks_log(log.Append)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_settled_transaction_has_one_outcome_in_either_order(is_first: bool) -> None:
    """DBS-6"""
    client, server = Client(), Server()
    call, txn = committing(client)
    (append,) = client.asks_log(log.Append)
    settling = client.call(calls.Settle(txn))
    (real,), (fence,) = append.records, client.asks_log(log.Append)[1].records
    server.show(*((fence, real) if is_first else (real, fence)))
    server.give("client", AwaitVerdicts((AwaitedTransaction(*txn, 1),)))
    _, verdicts = server.one(messages.Verdicts)
    client.give("m1", verdicts)
    status = Status.ABORTED if is_first else Status.COMMITTED
    assert client.answers[settling] == Outcome(status, 1)
    assert client.answers[call].verdict.reason is (Reason.DANGLING if is_first else Reason.COMMITTED)
    assert server.ask(Get((b"k",))) == Entries(((0, None) if is_first else (1, b"v"),))


# ---- reads


def test_reads_of_one_event_leave_in_one_message_with_the_session() -> None:
    """DBS-4"""
    client = Client()
    client.call(calls.Get([b"a"]))
    client.call(calls.Version(Consistency.SESSION))
    client.wait()
    to, message = client.one(Reads)
    assert (to, [read.version for read in message.reads]) == ("m1", [0, 0])
    for read, result in zip(message.reads, (Entries(((3, b"v"),)), messages.VersionReply()), strict=True):
        client.answer(read.number, 5, result)
    assert client.answers == {1: calls.Found(5, ((3, b"v"),)), 2: 5}
    client.call(calls.Get([b"a"]))
    client.call(calls.Get([b"a"], Consistency.SESSION, 9))
    client.call(calls.Get([b"a"], Consistency.SNAPSHOT, 2))
    assert [read.version for _, read in client.reads()] == [5, 9, 2]


def test_a_client_continues_a_given_session() -> None:
    """DBS-4"""
    client = Client(session=7)
    client.call(calls.Get([b"a"]))
    client.call(calls.Get([b"a"], Consistency.SESSION))
    assert [read.version for _, read in client.reads()] == [7, 7]
    assert client.core.session == 7


def test_the_oldest_version_is_linearizable() -> None:
    client = Client()
    call = client.call(calls.Oldest())
    ((_, read),) = client.reads()
    assert (read.question, read.consistency) == (messages.Oldest(), Consistency.LINEARIZABLE)
    client.answer(read.number, 9, floor := messages.Floor(3, 2, 4, 7))
    assert client.answers[call] == floor


def test_a_time_may_be_before_the_session() -> None:
    """DBS-4"""
    client = Client(session=7)
    call = client.call(calls.AtTime(client.now - SECOND))
    ((_, read),) = client.reads()
    client.answer(read.number, 3)
    assert client.answers[call] == 3
    assert client.core.session == 7


@pytest.mark.parametrize("is_there", [True, False])
def test_a_record_is_found_wherever_it_stands(is_there: bool) -> None:
    client = Client()
    call = client.call(calls.RecordAt(4))
    assert client.asks_log(log.Subscribe) == [log.Subscribe(4)]
    client.log_answers(log.Subscribe, 17 if is_there else Trimmed(4, 5))
    if is_there:
        client.log_answers(log.Next, batch(4, (PIN, b"x"), (PIN, b"y")))
        assert client.asks_log(log.Close) == [log.Close(17)]
    assert client.answers[call] == (LogRecord(4, 40, PIN, b"x") if is_there else None)


def test_a_follower_of_the_log_uses_the_client_of_the_log() -> None:
    client = Client()
    calls_of_log = [log.Subscribe(3), log.Next(1), log.Read(5, 1), log.Close(1)]
    numbers = [client.call(request) for request in calls_of_log]
    for request in calls_of_log:
        client.log_answers(type(request), f"to {type(request).__name__}")
    assert [client.answers[number] for number in numbers] == ["to Subscribe", "to Next", "to Read", "to Close"]


def test_requests_to_a_busy_server_do_not_multiply() -> None:
    """Two of its answers may be in flight when it gets another request."""
    client = Client(servers=("m1",))
    client.call(calls.Get([b"a"]))
    client.wait()
    asked = []
    for _ in range(400):
        reads = [read.number for _, message in client.take(Reads) for read in message.reads]
        asked.append(len(reads))
        for number in reads:
            client.give("m1", Busy((number,)))
            client.give("m1", Busy((number,)))
        client.wait(SECOND // 100)
    assert max(asked) == 1
    assert sum(asked) > 100


def test_an_answer_before_the_session_is_a_violation() -> None:
    """DBS-4"""
    client = Client()
    client.call(calls.Get([b"a"], Consistency.SESSION, 9))
    ((_, read),) = client.reads()
    with pytest.raises(ProtocolViolation, match="DBS-4"):
        client.answer(read.number, 8, Entries(((3, b"v"),)))


def test_an_answer_of_another_snapshot_is_a_violation() -> None:
    """DBS-5"""
    client = Client()
    client.call(calls.Get([b"a"], Consistency.SNAPSHOT, 9))
    ((_, read),) = client.reads()
    with pytest.raises(ProtocolViolation, match="DBS-5"):
        client.answer(read.number, 10, Entries(((3, b"v"),)))


def test_queries_of_a_lost_server_go_to_the_next_one_at_once() -> None:
    client = Client()
    call = client.call(calls.Get([b"a"]))
    ((to, read),) = client.reads()
    client.lose("m2")
    assert (to, client.reads()) == ("m1", []), "it was not asked"
    client.lose("m1")
    assert client.reads() == [("m2", read)]
    client.answer(read.number, 4, Entries(((0, None),)), sender="m2")
    client.lose("m2")
    assert not client.reads(), "nothing is open"
    assert client.answers[call] == calls.Found(4, ((0, None),))


def test_the_verdicts_of_a_lost_server_come_from_another_one() -> None:
    client = Client()
    _, txn = committing(client)
    client.wait()
    client.take(AwaitVerdicts)
    client.lose("m1")
    client.wait()
    assert client.one(AwaitVerdicts) == ("m2", AwaitVerdicts((AwaitedTransaction(*txn, 0),)))
    client.log_answers(log.Append, log.AppendResult([9], [1]))
    client.lose("m2")
    client.wait()
    assert client.one(AwaitVerdicts) == ("m1", AwaitVerdicts((AwaitedTransaction(*txn, 9),)))


def test_servers_may_be_others_from_now_on() -> None:
    client = Client()
    client.call(calls.Get([b"a"]))
    _, txn = committing(client)
    client.call(calls.LeaseVersion("me", 1))
    ((_, read),) = client.reads()
    client.take(AwaitVerdicts)
    client.call(calls.SetServers(("m2", "m3", "m1")))
    assert (client.reads(), client.take(AwaitVerdicts)) == ([], []), "the server of the request is still one of them"
    client.call(calls.SetServers(("m3",)))
    assert client.reads() == [("m3", read)]
    assert client.one(AwaitVerdicts) == ("m3", AwaitVerdicts((AwaitedTransaction(*txn, 0),)))
    client.wait(SECOND // 5)
    assert {to for to, _ in client.take(Hold)} == {"m3"}


def test_queries_of_a_silent_or_busy_server_go_to_the_next_one() -> None:
    client = Client()
    call = client.call(calls.Get([b"a"]))
    ((to, read),) = client.reads()
    assert to == "m1"
    client.wait(SECOND)
    (to, again), *_ = client.reads()
    assert (to, again) == ("m2", read)
    client.give("m2", Busy((read.number,)))
    client.wait(SECOND // 10)
    assert [to for to, _ in client.reads()] == ["m1"]
    client.answer(read.number, 4, Entries(((0, None),)))
    client.answer(read.number, 5, Entries(((5, b"late"),)), sender="m2")
    assert client.answers[call] == calls.Found(4, ((0, None),))


def test_a_read_without_an_answer_in_time_is_unavailable() -> None:
    client = Client()
    call = client.call(calls.Get([b"a"], deadline=client.now + SECOND))
    client.wait(SECOND)
    assert isinstance(client.answers[call], Unavailable)
    client.take(Reads)
    client.wait(10 * SECOND)
    assert not client.take(Reads)


def test_versions_that_cannot_be_read_raise() -> None:
    client = Client()
    below, beyond = (client.call(calls.Get([b"a"], Consistency.SNAPSHOT, version)) for version in (3, 99))
    for (_, read), result in zip(client.reads(), (VersionTrimmedReply(5), FutureVersionReply(9)), strict=True):
        client.answer(read.number, 0, result)
    assert isinstance(client.answers[below], VersionTrimmed)
    assert client.answers[below].oldest == 5
    assert isinstance(client.answers[beyond], FutureVersion)
    assert client.answers[beyond].newest == 9


def test_many_keys_are_read_in_parts_of_one_snapshot() -> None:
    client = Client(keys_per_read=2)
    call = client.call(calls.Get([b"a", b"b", b"c"]))
    ((_, read),) = client.reads()
    assert read.question == Get((b"a", b"b"))
    client.answer(read.number, 6, Entries(((1, b"1"), (2, b"2"))))
    ((_, read),) = client.reads()
    assert (read.question, read.consistency, read.version) == (Get((b"c",)), Consistency.SNAPSHOT, 6)
    client.answer(read.number, 6, Entries(((3, b"3"),)))
    assert client.answers[call] == calls.Found(6, ((1, b"1"), (2, b"2"), (3, b"3")))


PLACE = Place(4, 2, len(LARGE), digest(LARGE))


def test_large_values_are_read_from_their_shards() -> None:
    """DBS-10"""
    client = Client()
    call = client.call(calls.Scan())
    ((_, read),) = client.reads()
    client.answer(read.number, 6, Rows(((b"a", b"1"), (b"b", PLACE)), b"b\0"))
    assert client.asks_log(log.Read) == [log.Read(4, 2, size=5_000)]
    client.log_answers(log.Read, LogRecord(4, 40, VALUE, LARGE))
    assert client.answers[call] == calls.Page(6, ((b"a", b"1"), (b"b", LARGE)), b"b\0")


def test_large_values_of_several_ranges_are_put_where_they_belong() -> None:
    client = Client()
    scans = (messages.Scan(b"a", b"b", False, 9), messages.Scan(b"b", None, False, 9))
    call = client.call(calls.MultiScan(scans))
    ((_, read),) = client.reads()
    assert read.question == MultiScan(scans)
    second = Rows(((b"b", PLACE), (b"c", b"2")), b"c\0")
    client.answer(read.number, 6, MultiRows((Rows(((b"a", b"1"),), None), second)))
    client.log_answers(log.Read, Trimmed(4, 7))
    client.log_answers(log.Tail, 9)
    ((_, read),) = client.reads()
    assert (read.consistency, read.version, read.applied) == (Consistency.SNAPSHOT, 6, 9)
    moved = second._replace(rows=((b"b", PLACE._replace(gsn=8)), (b"c", b"2")))
    client.answer(read.number, 6, MultiRows((Rows(((b"a", b"1"),), None), moved)))
    client.log_answers(log.Read, LogRecord(8, 40, VALUE, LARGE))
    pages = calls.Page(6, ((b"a", b"1"),), None), calls.Page(6, ((b"b", LARGE), (b"c", b"2")), b"c\0")
    assert client.answers[call] == calls.Pages(6, pages)


def test_a_value_that_does_not_match_its_place_is_damage() -> None:
    """DBS-10"""
    client = Client()
    call = client.call(calls.Get([b"a"]))
    ((_, read),) = client.reads()
    client.answer(read.number, 6, Entries(((4, PLACE),)))
    client.log_answers(log.Read, LogRecord(4, 40, VALUE, LARGE[:-1] + b"y"))
    assert isinstance(client.answers[call], Corruption)


def test_a_value_that_was_moved_is_looked_up_again_at_the_same_version() -> None:
    client = Client()
    call = client.call(calls.History(b"a"))
    ((_, read),) = client.reads()
    client.answer(read.number, 6, messages.Versions(((5, PLACE),), False))
    for attempt in range(9):  # as often as another compaction is faster
        gsn, tail = 4 + 10 * attempt, 9 + 10 * attempt
        client.log_answers(log.Read, Trimmed(gsn, gsn + 1))
        assert not client.reads(), "the next server must have applied the compaction"
        client.log_answers(log.Tail, tail)
        ((_, read),) = client.reads()
        assert (read.consistency, read.version, read.applied) == (Consistency.SNAPSHOT, 6, tail)
        client.answer(read.number, 6, messages.Versions(((5, PLACE._replace(gsn=gsn + 10)),), False))
    client.log_answers(log.Read, LogRecord(94, 40, VALUE, LARGE))
    assert client.answers[call] == calls.Versions(6, ((5, LARGE),), False)


@pytest.mark.parametrize("is_large", [True, False], ids=["a large value", "many keys"])
def test_a_read_of_the_newest_version_begins_again_after_a_compaction(is_large: bool) -> None:
    """The call ended with VersionTrimmed for a version that the application had not named."""
    client = Client(keys_per_read=1)
    keys = [b"a"] if is_large else [b"a", b"b"]
    call = client.call(calls.Get(keys))
    ((_, read),) = client.reads()
    client.answer(read.number, 6, Entries(((5, PLACE if is_large else b"1"),)))
    if is_large:
        client.log_answers(log.Read, Trimmed(4, 7))
        client.log_answers(log.Tail, 9)
    ((_, read),) = client.reads()
    assert (read.consistency, read.version) == (Consistency.SNAPSHOT, 6)
    client.answer(read.number, 0, VersionTrimmedReply(7))
    for key in keys:
        ((_, read),) = client.reads()
        assert read.question == Get((key,))
        client.answer(read.number, 9, Entries(((5, b"v"),)))
    assert client.answers[call] == calls.Found(9, ((5, b"v"),) * len(keys))


def test_a_value_that_was_trimmed_and_not_moved_is_damage() -> None:
    """DBS-13: a server that has applied the compaction has the place of the copy."""
    client = Client()
    call = client.call(calls.Get([b"a", b"b"]))
    ((_, read),) = client.reads()
    client.answer(read.number, 6, Entries(((5, PLACE), (5, PLACE._replace(gsn=3)))))
    client.log_answers(log.Read, Trimmed(4, 7))
    client.log_answers(log.Read, Trimmed(3, 7))
    client.log_answers(log.Tail, 9)
    ((_, read),) = client.reads()
    client.answer(read.number, 6, Entries(((5, PLACE._replace(gsn=8)), (5, PLACE))))
    assert call not in client.answers
    client.log_answers(log.Read, LogRecord(8, 40, VALUE, LARGE))
    client.log_answers(log.Read, Trimmed(4, 7))
    assert "DBS-13" in str(client.answers[call])
    assert isinstance(client.answers[call], Corruption)


def test_a_pin_is_written_to_the_log_and_looked_at_afterwards() -> None:
    client = Client()
    call = client.call(calls.Pin("name", 3))
    ((_, read),) = client.reads()
    assert (read.consistency, read.version) == (Consistency.SNAPSHOT, 3)
    client.answer(read.number, 3)
    (append,) = client.asks_log(log.Append)
    ((tag, payload),) = append.records
    assert (tag, decode_pin(payload)) == (PIN, ("name", 3))
    client.log_answers(log.Append, log.AppendResult([9], [1]))
    ((_, read),) = client.reads()
    assert (read.consistency, read.version) == (Consistency.SESSION, 9)
    client.answer(read.number, 9, Pinned((Pin("name", 3),)))
    assert client.answers[call] == 3


# ---- placement


def test_placed_records_go_to_their_shards_and_others_where_they_like() -> None:
    policy = ByObject()
    records = [placed(COMMIT, b"1", 2), placed(COMMIT, b"2", None), placed(COMMIT, b"3", 2)]
    assert dict(policy.split(records)) == {2: [0, 2], None: [1]}
    assert list(policy.split(records[1:2])) == [(None, range(1))]
    assert isinstance(records[0], PlacedRecord)
    assert ByPrefix({b"a": 1, b"ab": 2})(b"abc") == 2
    assert ByPrefix({b"a": 1})(b"b") is None
    assert {ByHash((1, 2, 3))(b"%d" % number) for number in range(50)} == {1, 2, 3}


def picks(order: StickySegmentPolicy, count: int, *, size: int = 100, at_once: int = 2) -> list[int]:
    """Where appends go of which `at_once` are under way."""
    found = []
    for _ in range(at_once - 1):
        order.appending()
    for _ in range(count):
        order.appending()
        order.split([(COMMIT, bytes(size))])
        found.append(order.pick([3, 7, 12, 13], lambda _: 0, Random(1)))
        order.appended()
    for _ in range(at_once - 1):
        order.appended()
    return found


def test_appends_under_way_go_to_one_segment_in_order() -> None:
    order = StickySegmentPolicy(Random(1))
    assert len(set(picks(order, 100))) == 1
    alone = Counter(picks(order, 400, at_once=1))
    assert set(alone) == {3, 7, 12, 13}
    assert min(alone.values()) > 60
    assert set(picks(order, 100, size=TOGETHER_BYTES // 2)) == {3, 7, 12, 13}
    assert {picks(StickySegmentPolicy(Random(seed)), 1)[0] for seed in range(50)} == {3, 7, 12, 13}


def test_appends_under_way_are_counted_to_their_end() -> None:
    """Also if the verdict comes first, the append fails, or the call has ended."""
    client = Client(hedge_ns=SECOND, max_copies=2)
    order = client.core.commits.order
    _, txn = committing(client)
    assert order.under_way == 1
    client.decide(txn, 7, COMMITTED)
    assert order.under_way == 1
    client.log_answers(log.Append, log.AppendResult([7], [1]))
    assert order.under_way == 0
    committing(client, deadline=client.now + 2 * SECOND)
    client.wait(SECOND)
    assert order.under_way == 2
    client.log_answers(log.Append, LOST)
    client.wait(2 * SECOND)
    while client.asks_log(log.Append):
        client.log_answers(log.Append, Unavailable("no server took it"))
    assert order.under_way == 0
