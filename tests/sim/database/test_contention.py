"""Hot keys of several client processes: who gets through, and at what price. In virtual time."""

from __future__ import annotations

from statistics import mean
from typing import Any
from unittest import mock

import pytest

from logdb.cluster.mapping_server.contention_queue import WAIT_NS, ContentionQueue
from logdb.cluster.messages import TURN_NS
from logdb.cores.effects import SECOND
from tests.sim.database.contention import Increments, contend
from tests.sim.engines import ENGINES

LASTING_S = 1.0
engines = pytest.mark.parametrize("engine", ENGINES)


def is_fair(busy: Increments, single: Increments) -> bool:
    """Whether the single coroutine gets a third of what it would get alone, without much waiting, and few attempts of
    all are refused."""
    is_served = len(single.seconds) > 40 and max(single.seconds) < WAIT_NS / SECOND
    return is_served and mean(single.attempts) < 1.5 and mean(busy.attempts) < 1.5


def are_given_back(*clients: Increments) -> bool:
    """Whether turns end with their transactions: an increment takes less than half of a turn that only time ends."""
    return mean([seconds for client in clients for seconds in client.seconds]) < TURN_NS / SECOND / 2


@engines
def test_one_coroutine_beside_a_busy_process_gets_through(engine: str) -> None:
    busy, single = contend(engine, (32, 1), LASTING_S)
    assert is_fair(busy, single), single
    assert not busy.failed + single.failed


@engines
def test_busy_processes_share_hot_keys(engine: str) -> None:
    one, other = contend(engine, (8, 8), LASTING_S)
    assert mean(one.attempts + other.attempts) < 1.5
    assert 0.5 < len(one.seconds) / len(other.seconds) < 2
    assert are_given_back(one, other)


def test_turns_at_servers_that_differ_are_only_slower() -> None:
    """Each client asks another server for its turns, so both have one: every increment counts once nevertheless."""

    def server_of(queries: Any, key: bytes) -> str:
        return str(queries.server)

    with mock.patch("logdb.cluster.client.query_client.QueryClient.server_of", server_of):
        one, other = contend(ENGINES[0], (8, 8), LASTING_S, seed=2)
    assert one.seconds
    assert other.seconds


# ---- planted bugs


def test_turns_given_twice_are_harmless() -> None:
    """Every increment counts once (`contend` compares), with more attempts."""

    def enter(queue: ContentionQueue, parked: Any) -> None:
        queue.answers.answer(parked)

    with mock.patch.object(ContentionQueue, "enter", enter):
        one, other = contend(ENGINES[0], (8, 8), LASTING_S)
    assert one.seconds
    assert other.seconds


@engines
def test_a_turn_that_is_never_given_back_is_noticed(engine: str) -> None:
    with mock.patch.object(ContentionQueue, "_use"):
        one, other = contend(engine, (8, 8), LASTING_S)
    assert not are_given_back(one, other)


def test_without_warnings_it_is_unfair() -> None:
    with mock.patch.object(ContentionQueue, "on_decided", return_value=frozenset()):
        busy, single = contend(ENGINES[0], (32, 1), LASTING_S)
    assert not is_fair(busy, single)
