"""The mapping server: its answers, the verdicts that it pushes, and its bootstrap. DBS-n: see PROTOCOL.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.cluster.client.leases import RENEWAL_NS
from logdb.cluster.mapping_server import query_executor, read_queue, replica, verdict_subscriptions
from logdb.cluster.mapping_server.log_recovery import PAUSE_NS
from logdb.cluster.mapping_server.replica import SLICE_BYTES, Replica, UnresolvedValues
from logdb.cluster.messages import (
    MAX_RANGES,
    Aborted,
    Answers,
    AtTime,
    AwaitedTransaction,
    AwaitVerdicts,
    Busy,
    Entries,
    Floor,
    FutureVersionReply,
    Get,
    History,
    Hold,
    MapRows,
    MultiRows,
    MultiScan,
    NotApplied,
    Oldest,
    Outcome,
    Part,
    Pin,
    Pinned,
    Pins,
    Read,
    Reads,
    Rows,
    Scan,
    Slice,
    SliceRequest,
    SliceUnavailable,
    Verdicts,
    Version,
    VersionReply,
    Versions,
    VersionTrimmedReply,
)
from logdb.cores.effects import SECOND, ProtocolViolation
from logdb.log import requests as log
from logdb.log.contract import Record, Trimmed
from logdb.log.engine import ENGINES, engine_of
from logdb.node.roles import roles_of
from logdb.store.checkpoint import Checkpoint
from logdb.store.conditions import exists
from logdb.store.key_map import KeyMap
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    DECISION,
    PIN,
    VALUE,
    Commit,
    Compaction,
    Decision,
    Place,
    TxnId,
    decode_decision,
    digest,
    encode_commit,
    encode_compaction,
    encode_decision,
    encode_pin,
)
from logdb.txn.coordinator import Status
from logdb.txn.validation import COMMITTED, Reason
from logdb.wire.codec import encode
from tests.cluster.test_compaction import Disk
from tests.harness.counted_entries import CountedEntry, counted
from tests.harness.mapping_histories import LARGE, compacted, some_history
from tests.harness.stage import LINEARIZABLE, SESSION, SNAPSHOT, Log, Server, batch, commit

# ---- reads


def test_many_pages_are_answered_in_turns_with_other_clients() -> None:
    """A page for each event; some of very many requests of one client are rejected."""
    server = Server(*[commit(number, {b"%d" % number: b"v" * 200}) for number in range(1, 11)], answer_bytes=1_000)
    scans = [Read(100 + number, SESSION, 0, Scan(None, None, False, 1_000)) for number in range(100)]
    server.give("greedy", Reads(tuple(scans)))
    assert len(server.read_answers()) == 1
    (busy,) = [message.numbers for _, message in server.take(Busy)][:1]
    assert min(busy) > 100
    number = server.read(Get((b"1",)), sender="other")
    answered: dict[int, Any] = {}
    for turn in range(3):
        server.wait(1)
        answered |= server.read_answers()
        assert len(answered) <= 2 * (turn + 1)
    assert answered[number] == (10, Entries(((1, b"v" * 200),)))
    while found := (server.wait(1), server.read_answers())[1]:
        answered |= found
    assert len(answered) == 1 + 64
    server.core.check_invariants()


def test_a_linearizable_read_waits_for_a_tail_requested_after_it() -> None:
    """DBS-3"""
    server = Server(commit(1, {b"k": b"1"}))
    number = server.read(Get((b"k",)), LINEARIZABLE)
    assert not server.read_answers()
    assert len(server.asks_log(log.Tail)) == 1
    server.log_answers(log.Tail, 2)
    assert not server.read_answers()
    server.show(commit(2, {b"k": b"2"}))
    assert server.read_answers() == {number: (2, Entries(((2, b"2"),)))}


def test_reads_share_a_question_for_the_tail_but_not_one_that_was_put_before_they_came() -> None:
    """DBS-3"""
    server = Server(commit(1, {b"k": b"1"}))
    first = server.read(Version(), LINEARIZABLE)
    later = [server.read(Version(), LINEARIZABLE) for _ in range(3)]
    assert len(server.asks_log(log.Tail)) == 1
    server.log_answers(log.Tail, 1)
    assert server.read_answers() == {first: (1, VersionReply())}
    assert len(server.asks_log(log.Tail)) == 1
    server.log_answers(log.Tail, 1)
    assert server.read_answers() == dict.fromkeys(later, (1, VersionReply()))
    assert not server.asks_log(log.Tail)


def test_a_session_read_waits_for_the_session_without_a_tail_request() -> None:
    """DBS-4"""
    server = Server(commit(1, {b"k": b"1"}))
    number = server.read(Get((b"k", b"none")), SESSION, 2)
    assert not server.read_answers()
    server.show(commit(2, {b"k": b"2"}), commit(3, {b"k": None}))
    assert server.read_answers() == {number: (3, Entries(((3, None), (0, None))))}
    assert not server.asks_log(log.Tail)


def test_a_snapshot_is_read_whole_and_is_future_only_beyond_the_tail() -> None:
    """DBS-5"""
    server = Server(commit(1, {b"k": b"1"}))
    assert server.ask(Get((b"k",)), SNAPSHOT, 1) == Entries(((1, b"1"),))
    assert server.ask(Get((b"k",)), SNAPSHOT, 0) == Entries(((0, None),))
    within, beyond = server.read(Get((b"k",)), SNAPSHOT, 3), server.read(Get((b"k",)), SNAPSHOT, 4)
    server.log_answers(log.Tail, 3)
    server.log_answers(log.Tail, 3)
    assert server.read_answers() == {beyond: (0, FutureVersionReply(3))}
    server.show(commit(2, {b"k": b"2"}))
    assert not server.read_answers()
    server.show(commit(3, {b"k": b"3"}), commit(4, {b"k": b"4"}))
    assert server.read_answers() == {within: (3, Entries(((3, b"3"),)))}


def test_a_snapshot_is_read_when_the_named_version_is_applied() -> None:
    """A client that has found a value trimmed requests the place that every server has by then."""
    server = Server(commit(1, {b"k": b"1"}), commit(2, {b"k": b"2"}))
    server.reads += 1
    server.give("client", Reads((Read(server.reads, SNAPSHOT, 1, Get((b"k",)), 3),)))
    assert not server.read_answers()
    server.show(commit(3, {b"k": b"3"}))
    assert server.read_answers() == {1: (1, Entries(((1, b"1"),)))}
    server.reads += 1
    server.give("client", Reads((Read(server.reads, SNAPSHOT, 4, Get((b"k",)), 5),)))
    server.log_answers(log.Tail, 5)
    server.show(commit(4, {b"k": b"4"}))
    assert not server.read_answers()
    server.show(commit(5, {b"k": b"5"}))
    assert server.read_answers() == {2: (4, Entries(((4, b"4"),)))}


def test_a_version_below_the_floor_is_trimmed() -> None:
    records = [commit(number, {b"k": b"%d" % number}) for number in range(1, 5)]
    ending = COMPACTION, encode_compaction(Compaction(3, {1: (1, 3)}, {"kept": 3}))
    server = Server(*records, ending, (PIN, encode_pin("late", 2)), (PIN, encode_pin("other", 4)))
    assert server.ask(Get((b"k",)), SNAPSHOT, 2) == VersionTrimmedReply(3)
    assert server.ask(Get((b"k",)), SNAPSHOT, 3) == Entries(((3, b"3"),))
    assert server.ask(History(b"k", 10)) == Versions(((4, b"4"), (3, b"3")), False)
    assert server.ask(Aborted(1)) == VersionTrimmedReply(3)
    assert server.ask(Oldest()) == Floor(3, 0, 0, 0)
    assert server.ask(Pins()) == Pinned((Pin("kept", 3), Pin("other", 4)))


def test_pages_of_ranges_and_histories_end_where_they_should() -> None:
    place = Place(3, 7, len(LARGE), digest(LARGE))
    records: list[Record] = [commit(number, {b"%d" % number: b"v"}) for number in (1, 2)]
    server = Server(*records, (VALUE, LARGE), commit(4, {b"2": place}), commit(5, {b"3": b"w"}), answer_bytes=2_000)
    assert server.ask(Scan(None, None, False, 2)) == Rows(((b"1", b"v"), (b"2", place)), b"2\0")
    assert server.ask(Scan(b"2", None, False, 9)) == Rows(((b"2", place),), b"2\0"), "the large value fills the page"
    assert server.ask(Scan(None, b"3", True, 1)) == Rows(((b"2", place),), b"2")
    assert server.ask(Scan(b"21", None, False, 9)) == Rows(((b"3", b"w"),), None)
    assert server.ask(History(b"2", 1)) == Versions(((4, place),), True)
    assert server.ask(History(b"2", 1), SNAPSHOT, 3) == Versions(((2, b"v"),), True)


def test_the_ranges_of_a_multi_scan_end_where_they_should() -> None:
    place = Place(3, 7, len(LARGE), digest(LARGE))
    records: list[Record] = [commit(number, {b"%d" % number: b"v"}) for number in (1, 2)]
    server = Server(*records, (VALUE, LARGE), commit(4, {b"2": place}), commit(5, {b"3": b"w"}), answer_bytes=2_000)
    several = MultiScan((Scan(None, b"2", False, 9), Scan(b"5", None, False, 9), Scan(None, b"4", True, 1)))
    ends = Rows(((b"1", b"v"),), None), Rows((), None)
    assert server.ask(several) == MultiRows((*ends, Rows(((b"3", b"w"),), b"3")))
    assert server.ask(several, SNAPSHOT, 2) == MultiRows((*ends, Rows(((b"2", b"v"),), b"2")))
    large, small = Scan(b"2", None, False, 9), Scan(b"1", b"2", False, 9)
    assert server.ask(MultiScan((large, small))) == MultiRows((Rows(((b"2", place),), b"2\0"), ends[0]))
    assert server.ask(MultiScan(())) == MultiRows(())
    assert len(server.ask(MultiScan((small,) * 600)).ranges) < 100, "an answer ends after its bytes"
    roomy = Server(*records, answer_bytes=1 << 20)
    assert len(roomy.ask(MultiScan((small,) * 600)).ranges) == MAX_RANGES


def server_with_nothing(why: str) -> Server:
    """Three keys at version 1, and 6,000 keys between them that do not exist at version 3, or not yet at version 1."""
    keys = [b"k%05d" % number for number in range(6_000)]
    there = {b"a": b"1", b"k03000+": b"2", b"z": b"3"}
    records = [commit(1, there), commit(2, dict.fromkeys(keys, b"v")), commit(3, dict.fromkeys(keys))]
    if why == "deleted as a range":
        records[2] = (COMMIT, encode_commit(Commit(1, 3, {b"k03000+": b"2"}, deletes=[(b"k", b"l")])))
    return Server(*records)


@pytest.mark.parametrize("why", ["deleted", "deleted as a range", "newer"])
def test_keys_that_do_not_exist_count_as_bytes_of_a_page(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page passed them all, while the server answered no other client."""
    monkeypatch.setattr(query_executor, "MAX_BATCHES", 3)
    at, server = 1 if why == "newer" else 3, server_with_nothing(why)
    expected = ((b"a", b"1"), (b"k03000+", b"2"), (b"z", b"3"))
    for reverse in (False, True):
        rows: tuple[Any, ...] = ()
        bounds: list[bytes] = []
        page = Rows((), b"")
        while page.rest is not None:
            bound = page.rest or None
            scan = Scan(None, bound, True, 9) if reverse else Scan(bound, None, False, 9)
            page = server.ask(scan, SNAPSHOT, at)
            rows += page.rows
            bounds += [] if page.rest is None else [page.rest]
        assert rows == (expected[::-1] if reverse else expected)
        assert len(bounds) > 2
        assert bounds == sorted(set(bounds), reverse=reverse)
    several = MultiScan((Scan(b"k", b"l", False, 9), Scan(None, b"b", False, 9)))
    (first,) = server.ask(several, SNAPSHOT, at).ranges
    assert (first.rows, first.rest is None) == ((), False)


def test_scans_that_find_nothing_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of them in one message took one event, and a read that was sent again was answered twice."""
    monkeypatch.setattr(query_executor, "MAX_BATCHES", 3)
    server = server_with_nothing("newer")
    reads = tuple([Read(number, SNAPSHOT, 1, Scan(b"k", None, False, 9)) for number in range(1, 11)])
    for _ in range(3):
        server.give("greedy", Reads(reads))
    server.give("other", Reads((Read(1, SNAPSHOT, 1, Get((b"a",))),)))
    answered = [(to, len(message.answers)) for to, message in server.take(Answers)]
    assert sum([count for to, count in answered if to == "greedy"]) <= 4, "one for each event"
    order = list[tuple[str, int]]()
    for _ in range(20):
        server.wait(1)
        order += [(to, one.number) for to, message in server.take(Answers) for one in message.answers]
    assert order.index(("other", 1)) <= 1
    later = [number for to, number in order if to == "greedy"]
    assert sorted(later) == sorted(set(later)), "each once"
    assert set(later) >= set(range(4, 11))


def test_a_time_is_answered_when_its_version_is_applied() -> None:
    server = Server(commit(1, {b"k": b"1"}))
    number = server.read(AtTime(25))
    server.log_answers(log.AtTime, 2)
    assert not server.read_answers()
    server.show(commit(2, {}), commit(3, {}))
    assert server.read_answers() == {number: (2, VersionReply())}
    assert server.ask(AtTime(server.now + 1)) == FutureVersionReply(3)


def test_a_time_that_no_shard_answers_is_looked_up_for_a_while_only() -> None:
    """Each of its client's attempts added a request to the log without an end."""
    server = Server(commit(1, {}), commit(2, {}), request_ttl_ns=10 * SECOND)
    server.read(AtTime(25))
    (request,) = server.asks_log(log.AtTime)
    assert request.deadline == server.now + 10 * SECOND
    server.log_answers(log.AtTime, TimeoutError("the shards did not answer"))
    assert not server.read_answers()
    assert not server.core.reads.by_time


def test_reads_at_a_time_count_among_the_parked_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_queue, "MAX_PARKED", 8)
    server = Server(commit(1, {}))
    for _ in range(8):
        server.read(AtTime(25))
    assert not server.take(Busy)
    rejected = server.read(AtTime(25))
    assert server.one(Busy) == ("client", Busy((rejected,)))
    for _ in range(8):
        server.log_answers(log.AtTime, 1)
    assert len(server.read_answers()) == 8
    server.read(AtTime(25))
    assert not server.take(Busy)


@pytest.mark.parametrize("question", [Get((bytes(1_000),)), MultiScan((Scan(bytes(500), bytes(500), False, 1),))])
def test_bytes_of_parked_reads(monkeypatch: pytest.MonkeyPatch, question: Get | MultiScan) -> None:
    size = read_queue.size_of(question)
    assert size > 1_000
    monkeypatch.setattr(read_queue, "MAX_PARKED_BYTES", 8 * size)
    server = Server(commit(1, {}))
    for _ in range(8):
        server.read(question, SESSION, 2, sender="greedy")
    assert not server.take(Busy), "less than the maximum waits"
    rejected = server.read(question, SESSION, 2, sender="greedy")
    assert server.one(Busy) == ("greedy", Busy((rejected,)))
    server.read(question, SESSION, 2, sender="other")
    assert not server.take(Busy), "another client has its part"
    server.show(commit(2, {}))
    assert len(server.read_answers()) == 9
    server.read(question, SESSION, 3, sender="greedy")
    assert not server.take(Busy)


def test_bytes_of_parked_reads_of_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Get((bytes(1_000),))
    monkeypatch.setattr(read_queue, "MAX_PARKED_BYTES", 8 * read_queue.size_of(question))
    server = Server(commit(1, {}))
    for number in range(40):
        server.read(question, SESSION, 2, sender=f"c{number}")
    assert len(server.take(Busy)) == 40 - 4 * 8


def test_a_read_parked_for_too_long_is_dropped() -> None:
    server = Server()
    server.read(Version(), SESSION, 1)
    asked, unasked = server.read(Version(), LINEARIZABLE), server.read(Version(), LINEARIZABLE)
    server.wait(25 * SECOND)
    server.show(commit(1, {}))
    server.log_answers(log.Tail, 1)
    assert server.read_answers() == {asked: (1, VersionReply())}, "the question for it was still open"
    assert not server.asks_log(log.Tail), f"read {unasked} was dropped"


# ---- following the log


def test_the_log_client_notices_that_a_server_of_the_log_is_gone() -> None:
    """Before, all clients whose verdicts this server gives waited for a timeout of its request to the log."""
    server = Server(commit(1, {b"k": b"1"}))
    server.lose("replica")
    assert server.line.lost == ["replica"]
    assert all(roles_of(engine_of(name))["mapping"].notices_lost == "servers" for name in ENGINES)


def test_records_of_other_kinds_advance_the_applied_version() -> None:
    """DBS-2"""
    server = Server()
    server.show((VALUE, LARGE), (VALUE, LARGE))
    assert server.applied == 2
    assert server.ask(Version()) == VersionReply()


def test_a_gap_in_the_log_stops_it() -> None:
    """DBS-2"""
    server = Server(commit(1, {}))
    with pytest.raises(ProtocolViolation, match="DBS-2"):
        server.log_answers(log.Next, batch(3, commit(2, {})))


@pytest.mark.parametrize("record", [(99, b""), (1, b"nonsense")])
def test_a_record_that_it_cannot_read_stops_it(record: Record) -> None:
    with pytest.raises(ProtocolViolation):
        Server(record)


def test_a_server_that_fell_behind_the_oldest_record_starts_again_empty() -> None:
    server = Server(commit(1, {}))
    server.log_answers(log.Next, Trimmed(2, 5))
    assert server.stopped is not None
    assert server.stopped.wipe


# ---- verdicts


def verdicts(server: Server) -> list[tuple[str, int, Reason]]:
    return [
        (to, decided.sequence, decided.verdict.reason)
        for to, message in server.take(Verdicts)
        for decided in message.verdicts
    ]


def test_a_verdict_is_pushed_to_all_subscribers_once_its_record_is_applied() -> None:
    server = Server()
    server.give("a", AwaitVerdicts((AwaitedTransaction(1, 1, 0), AwaitedTransaction(1, 2, 2))))
    server.give("b", AwaitVerdicts((AwaitedTransaction(1, 1, 1),)))
    assert not verdicts(server)
    server.show(commit(1, {b"k": b"1"}), commit(2, {b"k": b"2"}, reads=[b"k"]), commit(3, {}))
    told = server.take(Verdicts)
    assert len(told) == 2, "one message for each subscriber"
    server.sent = list(told)
    assert verdicts(server) == [("a", 1, Reason.COMMITTED), ("a", 2, Reason.CONFLICT), ("b", 1, Reason.COMMITTED)]


def test_a_late_subscriber_gets_the_same_verdict() -> None:
    server = Server(commit(1, {b"k": b"1"}, label="winner"), commit(2, {}, reads=[b"k"]))
    server.give("late", AwaitVerdicts((AwaitedTransaction(1, 2, 2),)))
    _, message = server.one(Verdicts)
    (decided,) = message.verdicts
    assert (decided.version, decided.winner) == (2, "winner")
    assert (decided.verdict.key, decided.verdict.version) == (b"k", 1)


def test_the_first_record_of_a_transaction_counts() -> None:
    """DBS-6"""
    server = Server(commit(1, {b"k": b"1"}), commit(1, {b"k": b"again"}))
    server.show(commit(2, {}, conditions=[logdb.absent(b"k")]), commit(2, {b"k": b"too late"}))
    assert server.ask(Get((b"k",))) == Entries(((1, b"1"),))
    server.give("c", AwaitVerdicts((AwaitedTransaction(1, 1, 2), AwaitedTransaction(1, 2, 4))))
    _, message = server.one(Verdicts)
    assert [(decided.version, decided.verdict) for decided in message.verdicts] == [
        (1, COMMITTED),
        (3, message.verdicts[1].verdict),
    ]
    assert message.verdicts[1].verdict.failed == (0,)


def test_a_subscription_that_contradicts_the_log_is_dropped() -> None:
    """DBS-6: an applied record has a verdict. A client that claims otherwise gets none, and the server continues."""
    server = Server(commit(1, {}))
    server.give("honest", AwaitVerdicts((AwaitedTransaction(1, 2, 0),)))
    server.give("liar", AwaitVerdicts((AwaitedTransaction(1, 2, 1),)))
    server.show(commit(2, {}))
    assert verdicts(server) == [("honest", 2, Reason.COMMITTED)]


def test_old_subscriptions_are_dropped() -> None:
    server = Server()
    server.give("c", AwaitVerdicts((AwaitedTransaction(1, 1, 0),)))
    server.wait(25 * SECOND)
    server.show(commit(1, {}))
    assert not verdicts(server)


def test_the_verdicts_that_one_client_waits_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_subscriptions, "MAX_AWAITED", 2)
    server = Server()
    server.give("greedy", AwaitVerdicts(tuple(AwaitedTransaction(1, number, 0) for number in (1, 2, 2, 3, 4))))
    server.give("other", AwaitVerdicts((AwaitedTransaction(1, 4, 0),)))
    server.core.check_invariants()
    server.show(*[commit(number, {}) for number in (1, 2, 3, 4)])
    assert sorted(verdicts(server)) == [
        ("greedy", 1, Reason.COMMITTED),
        ("greedy", 2, Reason.COMMITTED),
        ("other", 4, Reason.COMMITTED),
    ]
    server.give("greedy", AwaitVerdicts((AwaitedTransaction(1, 3, 0),)))
    assert verdicts(server) == [("greedy", 3, Reason.COMMITTED)]
    server.core.check_invariants()


def test_old_explanations_are_forgotten_but_not_the_verdicts() -> None:
    aborts = [commit(number, {}, conditions=[logdb.exists(b"k")]) for number in range(1, 6)]
    server = Server(*aborts, keep_decisions=2)
    server.give("c", AwaitVerdicts(tuple(AwaitedTransaction(1, number, 0) for number in (1, 5))))
    _, message = server.one(Verdicts)
    assert [decided.verdict.reason for decided in message.verdicts] == [Reason.CONFLICT, Reason.CONDITION]
    assert [decided.version for decided in message.verdicts] == [1, 5]


def test_the_recent_decisions_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one has the positions of all conditions that failed, and 10,000 are kept."""
    monkeypatch.setattr(replica, "MAX_RECENT_BYTES", 2_000)
    failing = [exists(b"%d" % at) for at in range(100)]
    records = [commit(number, {}, conditions=failing) for number in range(1, 31)]
    whole, taker, giver = Server(*records), Server(peers=("m2",)), Server(*records[:20])
    assert 0 < sum(len(verdict.failed) for _, verdict in whole.core.replica.recent.values() if verdict) < 500
    decided = whole.core.replica.decided(TxnId(1, 30))
    assert decided is not None
    assert decided.verdict.failed == tuple(range(100))
    serve(taker, giver)
    taker.subscribed()
    taker.show(*records[20:])
    assert taker.core.replica.image() == whole.core.replica.image()


def test_a_compacted_transaction_is_a_duplicate_without_version() -> None:
    ending = COMPACTION, encode_compaction(Compaction(2, {1: (1, 2)}, {}))
    server = Server(commit(1, {b"k": b"1"}), commit(2, {b"k": b"2"}), ending)
    server.give("c", AwaitVerdicts((AwaitedTransaction(1, 1, 0),)))
    assert verdicts(server) == [("c", 1, Reason.DUPLICATE)]


def test_an_outcome_is_as_of_the_tail() -> None:
    server = Server()
    number = server.read(Outcome(1, 1), SESSION)
    server.log_answers(log.Tail, 1)
    server.show(commit(1, {}))
    assert server.read_answers()[number][1].status is Status.COMMITTED
    number = server.read(Outcome(1, 2), SNAPSHOT, 1)
    server.log_answers(log.Tail, 1)
    assert server.read_answers()[number][1].status is Status.NOT_FOUND


# ---- decision records


def test_followers_of_the_log_get_the_aborted_records() -> None:
    """DBS-8"""
    server = Server(commit(1, {b"k": b"1"}), commit(2, {}, reads=[b"k"]), commit(3, {}))
    server.wait(21 * SECOND)
    (append,) = server.asks_log(log.Append)
    ((tag, payload),) = append.records
    assert tag == DECISION
    assert decode_decision(payload) == Decision(0, 3, [2])
    server.wait(60 * SECOND)
    assert len(server.asks_log(log.Append)) == 1, "one at a time"
    server.log_answers(log.Append, log.AppendResult([4], [1]))
    server.show((tag, payload))
    server.wait(60 * SECOND)
    assert not server.asks_log(log.Append), "nothing new"
    assert server.ask(Aborted(0), SNAPSHOT, 3) == NotApplied((2,))


def test_two_decision_records_at_once_do_no_harm() -> None:
    """DBS-8"""
    abort = [commit(number, {}, conditions=[logdb.exists(b"k")]) for number in (1, 2)]
    one, other = ((DECISION, encode_decision(Decision(0, end, range(1, end + 1)))) for end in (1, 2))
    for pair in ((one, other), (other, one)):
        server = Server(*abort, *pair)
        assert server.core.replica.coordinator.decided_through == 2


@pytest.mark.parametrize("decision", [Decision(0, 1, []), Decision(0, 2, [1, 2]), Decision(0, 3, [1])])
def test_a_decision_record_that_differs_stops_the_server(decision: Decision) -> None:
    """DBS-8"""
    server = Server(commit(1, {}, conditions=[logdb.exists(b"k")]), commit(2, {}))
    with pytest.raises(ProtocolViolation, match="DBS-8"):
        server.show((DECISION, encode_decision(decision)))


# ---- checkpoints


def serve(taker: Server, *givers: Server, most: int = 10_000) -> int:
    """Let the givers answer the taker's requests in turn until it sends no more; returns the number of requests."""
    for asked in range(most):
        questions = taker.take(SliceRequest)
        if not questions:
            return asked
        giver = givers[asked % len(givers)]
        for to, question in questions:
            giver.give(taker.core.config.address, question)
            for _, answer in [*giver.take(Slice), *giver.take(SliceUnavailable)]:
                taker.give(to, answer)
    return most


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("answer_bytes", [1, 300, 1 << 20])
def test_a_checkpoint_and_the_log_after_it_are_the_log_to_the_last_bit(seed: int, answer_bytes: int) -> None:
    """DBS-1, DBS-9"""
    history = some_history(seed, 120)
    whole = Server(*history)
    givers = [Server(*history[:80], answer_bytes=answer_bytes) for _ in range(2)]
    taker = Server(peers=("m2", "m3"))
    rounds = 0
    while taker.core.bootstrap.is_active:
        rounds += serve(taker, *givers, most=1)
        if rounds == 3 and givers[0].applied == 80:
            givers[0].show(*history[80:95])  # a giver goes on meanwhile
    assert taker.applied == 80
    taker.subscribed()
    taker.show(*history[80:])
    assert taker.core.replica.image() == whole.core.replica.image()
    replayed = Server()
    for record in history:
        replayed.show(record)
    assert replayed.core.replica.image() == whole.core.replica.image()
    for version in (0, 40, 119):
        for question in (Scan(None, None, False, 99), History(b"key 3", 99)):
            assert taker.ask(question, SNAPSHOT, version) == whole.ask(question, SNAPSHOT, version)


def test_a_source_that_forgets_decisions_during_a_transfer_gives_their_labels() -> None:
    """DBS-1: the label of the winner was no longer among the recent decisions when these were sent, so the new server
    kept another state, and gave clients no label of the winner."""
    source, other = Replica(None, 2), Replica(None, 2)
    later = [commit(number, {b"k": b"2"}, reads=[b"k"], client=2, label=f"label {number}") for number in (2, 3)]
    source.apply(batch(1, commit(1, {b"k": b"1"}, label="winner")))
    head, cursor = source.slice(1, None, 1 << 20)
    parts = [head]
    source.apply(batch(2, *later))
    while cursor is not None:
        part, cursor = source.slice(1, cursor, 1 << 20)
        parts.append(part)
    other.install(1, parts)
    other.apply(batch(2, *later))
    decided = other.decided(TxnId(2, 3))
    assert decided is not None
    assert decided.winner == "winner"
    assert other.image() == source.image()


def test_a_checkpoint_is_taken_no_faster_than_the_disk_takes_it(tmp_path: Path) -> None:
    """The rest of it, which may be larger than memory, came while the disk was behind."""
    disk = Disk(tmp_path)
    giver = Server(*[commit(number, {b"%d" % number: b"v"}) for number in range(100)], answer_bytes=300)
    taker = Server(peers=("m2",), key_map=disk.map)
    serve(taker, giver, most=3)
    frozen = disk.map.freeze()
    serve(taker, giver)
    assert taker.core.bootstrap.is_active
    assert 0 < disk.map.active.size <= 3 * frozen.size
    disk.write()
    taker.wait(PAUSE_NS)
    serve(taker, giver)
    assert taker.core.replica.image() == giver.core.replica.image()
    disk.checkpoint.close()


def test_a_checkpoint_with_very_many_range_deletes_can_be_sent() -> None:
    """The head of a checkpoint, with all of them, was one message; 5 MB in this test."""
    commits = [
        Commit(1, number, {b"k": b"1"}, deletes=[(b"%05d" % at, b"%05d" % at + b"x" * 8_000) for at in (number, 0, 7)])
        for number in range(200)
    ]
    giver, taker = Server(*[(COMMIT, encode_commit(one)) for one in commits]), Server(peers=("m2",))
    sizes: list[int] = []
    while questions := taker.take(SliceRequest):
        for to, question in questions:
            giver.give("m1", question)
            for _, answer in giver.take(Slice):
                sizes.append(len(encode(answer)))
                taker.give(to, answer)
                if len(sizes) == 3:
                    giver.show((COMMIT, encode_commit(Commit(2, 1, {}, deletes=[(b"a", b"b")]))))
    assert max(sizes) < 2 * SLICE_BYTES
    assert taker.applied == 200
    taker.subscribed()
    taker.show((COMMIT, encode_commit(Commit(2, 1, {}, deletes=[(b"a", b"b")]))))
    assert taker.core.replica.image() == giver.core.replica.image()


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_versions_of_a_hot_key_are_taken_in_without_walking_its_chain(tmp_path: Path, on_disk: bool) -> None:
    """In slices of one version each: newest first, so each one was put below all newer ones."""
    count = 300
    checkpoint = Checkpoint(tmp_path / "map", b"i" * 16, inline=True) if on_disk else None
    source, other = Replica(None, 10), Replica(KeyMap(UnresolvedValues(), checkpoint), 10)
    source.apply(batch(1, *[commit(number, {b"hot": b"%d" % number, b"k": b""}) for number in range(1, count + 1)]))
    (part, cursor), parts, reads = source.slice(count, None, 1), list[Part](), 0
    newest = other.map.active.newest
    while cursor is not None:
        parts.append(part)
        part, cursor = source.slice(count, cursor, 1)
        if isinstance(part, MapRows):
            newest.update({key: counted(entry) for key, entry in newest.items()})
            CountedEntry.reads = 0
            other.take_in(part)
            reads += CountedEntry.reads
            part = MapRows(())
    other.install(count, [*parts, part])
    assert reads <= 10 * count
    assert other.image() == source.image()
    if checkpoint is not None:
        checkpoint.close()


def test_no_read_is_answered_before_the_checkpoint_is_whole() -> None:
    """DBS-9"""
    giver = Server(*some_history(1, 40), answer_bytes=200)
    taker = Server(peers=("m2",))
    serve(taker, giver, most=2)
    number = taker.read(Version(), SESSION)
    assert taker.one(Busy) == ("client", Busy((number,)))
    taker.give("c", AwaitVerdicts((AwaitedTransaction(1, 1, 0),)))
    assert not taker.take(Verdicts)
    serve(taker, giver)
    assert len(taker.take(Verdicts)) == 1
    assert taker.ask(Version()) == VersionReply()


def test_a_transfer_starts_again_when_the_floor_has_moved() -> None:
    """DBS-9"""
    history = [commit(number, {b"%d" % (number % 3): b"%d" % number}) for number in range(1, 31)]
    giver, taker = Server(*history, answer_bytes=200), Server(peers=("m2",))
    serve(taker, giver, most=3)
    giver.show((COMPACTION, encode_compaction(Compaction(25, {1: (1, 25)}, {}))))
    serve(taker, giver)
    assert taker.applied == 31
    assert taker.core.replica.image() == giver.core.replica.image()


def test_a_compaction_waits_for_a_transfer() -> None:
    """A large map never arrived where each transfer took longer than the time between two compactions."""
    shared = Log(*[commit(number, {b"%d" % (number % 3): b"%d" % number}) for number in range(1, 31)])
    giver, taker = Server(on=shared, name="m2", answer_bytes=200), Server(peers=("m2",))
    serve(taker, giver, most=3)
    taker.wait(RENEWAL_NS)
    for _, hold in taker.take(Hold):
        giver.give("m1", hold)
    assert compacted(shared, giver, before=25).floor == 0
    serve(taker, giver)
    assert taker.applied == 30
    taker.wait(RENEWAL_NS)
    giver.give("m1", taker.one(Hold)[1])
    assert compacted(shared, giver, before=25, number=2).floor == 25


def test_without_a_checkpoint_an_empty_server_replays_the_log() -> None:
    taker = Server(peers=("m2", "m3"))
    empty = Server()
    serve(taker, empty, most=2)
    taker.wait(60 * SECOND)
    taker.take(SliceRequest)
    (subscribe,) = taker.asks_log(log.Subscribe)
    assert subscribe.gsn == 1
    taker.log_answers(log.Subscribe, Trimmed(1, 7))
    for _ in range(3):  # nor the records that a compaction would have written
        taker.wait(60 * SECOND)
        assert taker.take(SliceRequest), "it asks on"
        taker.log_answers(log.Tail, 7)
        taker.log_answers(log.Subscribe, 1)
        taker.log_answers(log.Next, batch(7, (VALUE, b"")))
        taker.log_answers(log.Close, None)
    giver = Server(*some_history(2, 20))
    taker.wait(SECOND)
    serve(taker, giver)
    assert taker.applied == 20


def test_a_server_with_a_checkpoint_that_falls_behind_starts_again_empty() -> None:
    """DBS-9; seed 95334474 of the simulator."""
    history = some_history(2, 20)
    taker, giver = Server(peers=("m2",)), Server(*history)
    taker.wait(60 * SECOND)
    taker.take(SliceRequest)
    taker.log_answers(log.Subscribe, Trimmed(1, 7))
    serve(taker, giver)
    assert taker.applied == 20
    taker.log_answers(log.Subscribe, Trimmed(21, 30))
    assert taker.stopped is not None
    assert taker.stopped.wipe


def test_a_read_that_came_before_a_checkpoint_is_answered_once_that_is_installed() -> None:
    """The server had begun to follow the log, which was trimmed meanwhile."""
    taker = Server(peers=("m2",))
    taker.wait(60 * SECOND)
    number = taker.read(Version(), SESSION, 15)
    assert not taker.read_answers()
    taker.log_answers(log.Subscribe, Trimmed(1, 7))
    taker.take(SliceRequest)
    taker.wait(SECOND)
    serve(taker, Server(*some_history(2, 20)))
    assert taker.read_answers() == {number: (20, VersionReply())}


def test_the_slices_of_an_incomplete_checkpoint_are_forgotten() -> None:
    """DBS-9: it replays the log instead, with the same resulting state."""
    history = some_history(1, 40)
    giver, taker = Server(*history, answer_bytes=200), Server(peers=("m2",))
    serve(taker, giver, most=3)
    taker.wait(60 * SECOND)
    taker.subscribed()
    taker.show(*history)
    taker.core.replica.map.check_invariants()
    assert taker.core.replica.image() == giver.core.replica.image()


def test_no_slice_of_a_version_that_is_not_applied() -> None:
    giver = Server(commit(1, {}))
    giver.give("m9", SliceRequest(5, 2, None))
    assert giver.one(SliceUnavailable) == ("m9", SliceUnavailable(5))


def test_a_server_reads_on_in_the_log_when_its_host_lets_it() -> None:
    """Its checkpoint is behind: it pauses in the log, to bound its memory, and answers meanwhile."""
    server = Server(commit(1, {b"k": b"1"}))
    server.core.follower.pause_ns = lambda: SECOND
    server.show(commit(2, {b"k": b"2"}))
    assert server.applied == 2
    assert not [request for request, _ in server.line.requests if isinstance(request, log.Next)]
    assert server.ask(Get((b"k",)))
    server.core.follower.pause_ns = lambda: 0
    server.wait(SECOND)
    server.show(commit(3, {b"k": b"3"}))
    assert server.applied == 3
