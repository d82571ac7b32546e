"""Queries that are sent to a second server: when, how many, and what follows from its answers."""

from __future__ import annotations

from logdb.cluster.client import requests as calls
from logdb.cluster.client.hedging import MAX_SAVED, MIN_BOUND_NS, MIN_SAMPLES, SHARE, SLOW_AFTER, Hedging
from logdb.cluster.messages import Busy, Entries
from logdb.cores.effects import MILLISECOND, SECOND, Event, Send, TimerFired
from tests.harness.stage import Client

FOUND = Entries(((0, None),))


def practised(queries: int = MIN_SAMPLES * 4, client: Client | None = None) -> Client:
    """A client whose queries took m1 about 2 ms."""
    client = client or Client()
    for _ in range(queries):
        number = ask(client)
        client.wait(2 * MILLISECOND)
        client.answer(number, 4, FOUND)
    assert not client.reads(), "no query is late"
    assert client.core.queries.hedging.sent == 0
    return client


def ask(client: Client) -> int:
    """The number of a query at the server that the client prefers."""
    client.call(calls.Get([b"a"]))
    ((to, read),) = client.reads()
    assert to == client.core.queries.server
    return read.number


def test_a_late_query_is_sent_to_the_next_server_once() -> None:
    client = practised()
    number = ask(client)
    client.wait(MIN_BOUND_NS * 2 // 3)
    assert not client.reads()
    client.wait(MIN_BOUND_NS)
    assert [(to, read.number) for to, read in client.reads()] == [("m2", number)]
    client.wait(5 * MIN_BOUND_NS)
    assert not client.reads(), "it is sent twice at most"
    client.answer(number, 4, FOUND, sender="m2")
    client.answer(number, 4, FOUND)
    hedging = client.core.queries.hedging
    assert (hedging.sent, hedging.won) == (1, 1)
    assert client.core.queries.server == "m1"


def test_answers_in_time_send_nothing_twice() -> None:
    client = practised(1_000)
    client.wait(SECOND)
    assert not client.reads()
    assert client.core.queries.hedging.sent == 0


def test_a_server_that_stays_slow_is_left() -> None:
    client = practised()
    for _ in range(SLOW_AFTER):
        number = ask(client)
        client.wait(2 * MIN_BOUND_NS)
        client.reads()
        client.answer(number, 4, FOUND, sender="m2")
    assert client.core.queries.server == "m2"


def test_a_second_server_that_is_busy_changes_nothing() -> None:
    client = practised()
    number = ask(client)
    client.wait(2 * MIN_BOUND_NS)
    client.reads()
    client.give("m2", Busy((number,)))
    client.wait(MIN_BOUND_NS)
    assert not client.reads()
    client.answer(number, 4, FOUND)
    assert client.core.queries.server == "m1"


def test_turns_are_not_sent_twice() -> None:
    client = practised()
    client.call(calls.TakeTurn(b"k", "me"))
    client.reads()
    client.wait(4 * MIN_BOUND_NS)
    assert not client.reads()


def test_slow_servers_get_few_queries_twice() -> None:
    client = practised()
    numbers = []
    for _ in range(200):
        numbers.append(ask(client))
    client.wait(2 * MIN_BOUND_NS)
    assert len(client.reads()) == MAX_SAVED
    for number in numbers:
        client.answer(number, 4, FOUND)
    bound_ns = client.core.queries.hedging.bound_ns
    assert bound_ns is not None
    assert bound_ns >= 4 * MIN_BOUND_NS, "servers that are slow for all queries are waited for"


def test_the_bound_follows_the_times() -> None:
    hedging = Hedging()
    for number in range(MIN_SAMPLES):
        assert hedging.bound_ns is None
        hedging.answered(50 * MILLISECOND if number == 7 else MILLISECOND)
    assert hedging.bound_ns == 100 * MILLISECOND
    for _ in range(300):
        hedging.answered(MILLISECOND)
    assert hedging.bound_ns == MIN_BOUND_NS
    assert sum([hedging.may_send() for _ in range(100)]) == MAX_SAVED
    for _ in range(round(3 / SHARE) + 1):
        hedging.answered(MILLISECOND)
    assert [hedging.may_send() for _ in range(4)] == [True, True, True, False]


def test_answered_queries_do_not_wake_the_client() -> None:
    fired = []

    class Counted(Client):
        def handle(self, event: Event) -> list[Send]:
            if isinstance(event, TimerFired):
                fired.append(self.now)
            return super().handle(event)

    practised(1_000, Counted())
    assert len(fired) < 1_150, "one timer for each query, with which it is sent, and few others"
