"""Turns at contended keys: whom a mapping server warns, to whom it gives turns, and how a client shares them."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.cluster.client import requests as calls
from logdb.cluster.mapping_server import contention_queue
from logdb.cluster.mapping_server.contention_queue import CONTENDED_NS, WAIT_NS
from logdb.cluster.messages import (
    TURN_NS,
    AwaitedTransaction,
    AwaitVerdicts,
    EndTurn,
    Entries,
    Read,
    Turn,
    Verdicts,
)
from logdb.errors import Unavailable
from logdb.log import requests as log
from logdb.store.conditions import equals
from logdb.store.records import Place, TxnId, decode_commit
from logdb.txn.validation import COMMITTED
from tests.harness.stage import LINEARIZABLE, SESSION, Client, Server, commit

KEY = b"hot"


def warned(server: Server) -> dict[int, bool]:
    """By client, whether its last verdict said that others contend."""
    return {
        decided.client: decided.is_contended for _, message in server.take(Verdicts) for decided in message.verdicts
    }


def commits(server: Server, client: int, sequence: int, **content: Any) -> bool:
    """Have a client commit the key. Returns whether it is warned."""
    server.give(f"c{client}", AwaitVerdicts((AwaitedTransaction(client, sequence, 0),)))
    server.show(commit(sequence, {KEY: b"%d" % sequence}, client=client, **content))
    return warned(server)[client]


# ---- the server: warnings


def test_clients_are_warned_of_a_key_once_one_was_refused() -> None:
    server = Server(commit(1, {KEY: b"1"}))
    assert not commits(server, 1, 2), "no client has contended"
    assert not commits(server, 2, 1), "no client was refused"
    assert not commits(server, 3, 1, reads=[KEY], snapshot=1), "a refused client knows it"
    assert commits(server, 1, 3), "client 3 was refused since"
    assert not commits(server, 1, 4), "it is the last writer"
    assert commits(server, 3, 2, reads=[KEY], snapshot=6)
    server.wait(CONTENDED_NS + 1)
    assert not commits(server, 1, 5), "that was long ago"


def test_a_refused_condition_and_a_written_key_count_and_a_range_does_not() -> None:
    server = Server(commit(1, {KEY: b"1"}), commit(1, {b"other": b""}, client=2, ranges=[(b"", None)], snapshot=0))
    assert not commits(server, 1, 2), "a conflict in a range names no key to wait for"
    server.show(commit(2, {b"other": b""}, client=2, conditions=[equals(KEY, b"wrong")]))
    assert commits(server, 1, 3)


def test_the_contended_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention_queue, "MAX_CONTENDED", 1)
    server = Server(commit(1, {KEY: b"1"}), commit(1, {b"k": b""}, client=2, conditions=[equals(KEY, b"wrong")]))
    server.show(commit(2, {b"k": b""}, client=2, conditions=[equals(b"k", b"wrong")]))
    assert not commits(server, 1, 2)


# ---- the server: turns


def take(server: Server, client: int, transactions: int = 1, *, may_go_on: bool = True) -> int:
    return server.read(Turn(KEY, client, transactions, may_go_on), SESSION, sender=f"c{client}")


def test_a_turn_ends_with_the_last_commit_record_of_its_client() -> None:
    server = Server(commit(1, {KEY: b"1"}))
    first = take(server, 1, 2)
    assert server.read_answers() == {first: (1, Entries(((1, b"1"),)))}
    second, third = take(server, 2), take(server, 3)
    server.show(commit(2, {KEY: b"2"}, client=1))
    server.show(commit(1, {KEY: b"blind"}, client=9))
    assert not server.read_answers(), "client 1 has another transaction in its turn, and client 9 has no turn"
    server.show(commit(3, {b"other": b""}, client=1, reads=[KEY], snapshot=3))
    assert server.read_answers() == {second: (4, Entries(((3, b"blind"),)))}
    server.show(commit(2, {KEY: b"5"}, client=2, reads=[KEY], snapshot=1))
    assert server.read_answers() == {third: (5, Entries(((3, b"blind"),)))}, "a refused record ends a turn, too"


def test_a_repeated_record_ends_no_turn() -> None:
    server = Server(commit(1, {KEY: b"1"}))
    take(server, 1)
    take(server, 2)
    server.read_answers()
    server.show(commit(1, {KEY: b"1"}))
    assert not server.read_answers()


def test_a_turn_is_linearizable() -> None:
    """DBS-3"""
    server = Server(commit(1, {KEY: b"1"}))
    number = server.read(Turn(KEY, 1, 1), LINEARIZABLE)
    server.log_answers(log.Tail, 2)
    assert not server.read_answers()
    server.show(commit(2, {KEY: b"2"}))
    assert server.read_answers() == {number: (2, Entries(((2, b"2"),)))}


def test_a_client_that_dies_loses_its_turn_after_a_while() -> None:
    server = Server(commit(1, {KEY: b"1"}))
    numbers = [take(server, client) for client in (1, 2, 3)]
    for number in numbers:
        assert list(server.read_answers()) == [number]
        server.wait(TURN_NS)
    assert not server.read_answers()
    assert list(server.read_answers()) == []
    assert take(server, 4) in server.read_answers(), "no client has a turn any more"


def test_a_turn_ends_where_its_transactions_end_without_a_record() -> None:
    server = Server(commit(1, {KEY: b"1"}))
    take(server, 1, 3)
    second = take(server, 2)
    server.read_answers()
    server.give("c3", EndTurn(KEY, 3, 3))
    server.give("c1", EndTurn(b"none", 1, 3))
    server.give("c1", EndTurn(KEY, 1, 2))
    assert not server.read_answers()
    server.give("c1", EndTurn(KEY, 1, 1))
    assert list(server.read_answers()) == [second]


def test_a_turn_goes_on_while_no_other_client_waits() -> None:
    server = Server(commit(1, {KEY: b"1"}))
    take(server, 1)
    server.read_answers()
    number = take(server, 1, 2)
    assert server.read_answers() == {number: (0, Entries(()))}
    other, reader = take(server, 2), take(server, 1)
    assert not server.read_answers()
    server.show(*[commit(sequence, {KEY: b"%d" % sequence}) for sequence in (2, 3, 4)])
    assert list(server.read_answers()) == [other], "after the first turn and the two that were added"
    server.give("c2", EndTurn(KEY, 2, 1))
    assert server.read_answers() == {reader: (4, Entries(((4, b"4"),)))}


def test_a_turn_does_not_go_on_for_a_transaction_that_needs_the_value() -> None:
    server = Server(commit(1, {KEY: b"1"}))
    take(server, 1)
    server.read_answers()
    number = take(server, 1, may_go_on=False)
    assert not server.read_answers()
    server.show(commit(2, {KEY: b"2"}))
    assert server.read_answers() == {number: (2, Entries(((2, b"2"),)))}


def test_reads_that_have_waited_for_long_are_answered_without_a_turn() -> None:
    """Before their clients ask another server."""
    server = Server(commit(1, {KEY: b"1"}))
    clients = range(2 * WAIT_NS // TURN_NS)
    numbers = [take(server, client) for client in clients]
    for _ in range(WAIT_NS // TURN_NS):
        server.wait(TURN_NS)
    assert set(server.read_answers()) == set(numbers)
    assert server.core.contention.given == WAIT_NS // TURN_NS


def test_the_reads_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention_queue, "MAX_WAITING", 1)
    server = Server(commit(1, {KEY: b"1"}))
    first, waiting, third = [take(server, client) for client in (1, 2, 3)]
    assert set(server.read_answers()) == {first, third}
    server.give("c1", EndTurn(KEY, 1, 1))
    assert list(server.read_answers()) == [waiting]


# ---- the client


def requested(client: Client) -> tuple[str, int, Turn]:
    """(server, number, question) of its one request."""
    ((server, read),) = client.reads()
    assert isinstance(read, Read)
    assert isinstance(read.question, Turn)
    return server, read.number, read.question


def found(version: int, value: bytes) -> calls.Found:
    return calls.Found(version, ((version, value),))


def sends(client: Client, holder: object) -> TxnId:
    """Commit the transaction of a holder."""
    client.call(calls.Commit({KEY: b""}, holder=holder))
    append = client.asks_log(log.Append)[-1]
    record = decode_commit(append.records[0][1], 0)
    return TxnId(record.client, record.sequence)


def joins(client: Client, holder: object, **request: Any) -> int:
    return client.call(calls.TakeTurn(KEY, holder, may_follow=True, **request))


def test_the_transactions_of_a_client_share_a_turn() -> None:
    client = Client()
    a, b, c = [joins(client, holder) for holder in "abc"]
    server, number, question = requested(client)
    assert question.transactions == 3
    assert server == client.core.queries.server_of(KEY)
    client.answer(number, 7, Entries(((7, b"v"),)), server)
    assert client.answers == {a: found(7, b"v")}
    assert client.core.session == 7
    d = joins(client, "d")
    assert not client.reads(), "the turn is under way"
    assert question.client == sends(client, "a").client
    assert (client.answers[b], client.answers[c]) == (None, None), "they follow"
    assert d not in client.answers
    assert requested(client)[2].transactions == 1


def test_a_turn_that_goes_on_has_no_reader() -> None:
    client = Client()
    joins(client, "a")
    joins(client, "b")
    server, number, _ = requested(client)
    client.answer(number, 0, Entries(()), server)
    assert list(client.answers.values()) == [None, None]
    assert not client.core.turns.has_queue(KEY)


def test_a_transaction_that_cannot_speculate_has_a_turn_of_its_own() -> None:
    client = Client()
    a, b = [client.call(calls.TakeTurn(KEY, holder)) for holder in "ab"]
    server, number, question = requested(client)
    assert (question.transactions, question.may_go_on) == (1, False)
    client.answer(number, 7, Entries(((7, b"v"),)), server)
    sends(client, "a")
    server, number, question = requested(client)
    client.answer(number, 8, Entries(((8, b"w"),)), server)
    assert client.answers == {a: found(7, b"v"), b: found(8, b"w")}


def test_a_reader_that_does_not_commit_leaves_the_value_to_the_next_one() -> None:
    client = Client()
    a, b = [joins(client, holder) for holder in "ab"]
    server, number, question = requested(client)
    client.answer(number, 7, Entries(((7, b"v"),)), server)
    client.call(calls.LeaseVersion("a", None))
    assert client.one(EndTurn) == (server, EndTurn(KEY, question.client, 1))
    assert (client.answers[a], client.answers[b]) == (found(7, b"v"), found(7, b"v"))
    sends(client, "b")
    assert not client.core.turns.has_queue(KEY)
    client.call(calls.LeaseVersion("b", None))
    assert not client.take(EndTurn), "its commit record ends the turn"


@pytest.mark.parametrize("may_follow", [True, False])
def test_a_reader_that_takes_longer_than_a_turn_holds_up_no_others(may_follow: bool) -> None:
    client = Client()
    a, b = [client.call(calls.TakeTurn(KEY, holder, may_follow=may_follow)) for holder in "ab"]
    server, number, _ = requested(client)
    client.answer(number, 7, Entries(((7, b"v"),)), server)
    later = client.call(calls.TakeTurn(KEY, "c", may_follow=may_follow))
    client.wait(TURN_NS - 1)
    assert client.answers == {a: found(7, b"v")}
    client.wait(1)
    assert client.answers == {a: found(7, b"v")} | ({b: None} if may_follow else {})
    server, number, _ = requested(client)
    client.answer(number, 8, Entries(((8, b"w"),)), server)
    assert client.answers[later if may_follow else b] == found(8, b"w")
    sends(client, "a")
    client.call(calls.LeaseVersion("a", None))
    assert not client.take(EndTurn), "its commit record ends the turn"


def test_transactions_that_leave_before_their_turn_give_it_back() -> None:
    client = Client()
    joins(client, "a")
    joins(client, "b")
    server, number, question = requested(client)
    client.call(calls.LeaseVersion("a", None))
    client.call(calls.LeaseVersion("b", None))
    assert not client.take(EndTurn), "the turn has not come"
    client.answer(number, 7, Entries(((7, b"v"),)), server)
    assert client.one(EndTurn) == (server, EndTurn(KEY, question.client, 2))
    assert not client.core.turns.has_queue(KEY)


def test_a_transaction_that_follows_and_does_not_commit_gives_its_part_back() -> None:
    client = Client()
    joins(client, "a")
    joins(client, "b")
    server, number, question = requested(client)
    client.answer(number, 7, Entries(((7, b"v"),)), server)
    sends(client, "a")
    client.call(calls.LeaseVersion("b", None))
    assert client.one(EndTurn) == (server, EndTurn(KEY, question.client, 1))


def test_no_transaction_waits_where_none_says_that_the_key_is_contended() -> None:
    """The others came while one had its turn, and must not overtake it."""
    client = Client()
    joins(client, "a")
    server, number, _ = requested(client)
    later = joins(client, "b", is_contended=False)
    client.answer(number, 7, Entries(((7, b"v"),)), server)
    assert later not in client.answers
    sends(client, "a")
    assert client.answers[later] is None
    assert not client.core.turns.has_queue(KEY)


def test_a_large_value_is_not_read_with_the_turn() -> None:
    client = Client()
    call = joins(client, "a")
    server, number, _ = requested(client)
    client.answer(number, 7, Entries(((7, Place(6, 1, 5_000, bytes(16))),)), server)
    assert client.answers == {call: None}


def test_a_lost_server_of_turns_is_replaced_by_the_one_that_the_client_asks() -> None:
    client = Client()
    joins(client, "a")
    server, number, _ = requested(client)
    other = "m1" if server == "m2" else "m2"
    client.core.queries.server = other
    client.lose(server)
    ((to, read),) = client.reads()
    assert (to, read.number) == (other, number)


def test_a_wait_for_a_turn_ends_at_its_deadline() -> None:
    client = Client()
    call = joins(client, "a", deadline=client.now + 10)
    client.wait(10)
    assert isinstance(client.answers[call], Unavailable)


def test_a_warning_reaches_the_application() -> None:
    client = Client()
    call = client.call(calls.Commit({KEY: b""}))
    (append,) = client.asks_log(log.Append)
    record = decode_commit(append.records[0][1], 0)
    client.decide(TxnId(record.client, record.sequence), 7, COMMITTED, is_contended=True)
    assert client.answers[call].is_contended
