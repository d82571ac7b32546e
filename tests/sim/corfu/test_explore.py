"""The search through appends, fills and seals of Corfu, and that it finds planted bugs."""

from __future__ import annotations

import pytest

from logdb.log.corfu.projection import position_of
from tests.sim.corfu.planted import PLANTED
from tests.sim.corfu.scenario import BUDGETS, RETURNED, Cluster
from tests.sim.explore.machine import Search, State, Wrong, search

STATES = 1_000


def explored(budget: dict[str, int], states: int) -> Search:
    cluster = Cluster()
    found = search(cluster, cluster.prepared(budget), states)
    assert found.complete or found.states >= states
    return found


@pytest.mark.parametrize("name", BUDGETS)
def test_every_order_of_events(name: str) -> None:
    found = explored(BUDGETS[name], STATES)
    assert found.complete or name != "an append"


def test_records_are_appended_before_and_after_a_seal() -> None:
    """One of the ways that the search follows."""
    cluster = Cluster()
    state = cluster.prepared({})
    for name, appended in (("append 1", 1), ("change", 1), ("append 2", 2)):
        state = state._replace(messages=state.messages | frozenset(cluster.moves[name]))
        state = cluster.run_until(state, condition=lambda state, appended=appended: is_over(cluster, state, appended))
    cluster.check(state)
    first, second = sorted(gsn for kind, _, gsn in state.acks if kind == RETURNED)
    view = cluster.view(state)
    assert len(view.shards) == 2
    assert position_of(first) < view.start <= position_of(second)


def is_over(cluster: Cluster, state: State, appended: int) -> bool:
    """Whether nothing is under way, and so many appends have returned."""
    return cluster.is_settled(state) and sum(kind == RETURNED for kind, _, _ in state.acks) == appended


@pytest.mark.parametrize(
    ("bug", "budget", "broken"),
    [
        ("write only the head", "an append", "COR-1"),
        ("acknowledge before it is durable", "an append", "COR-1"),
        ("fill with junk what the head has", "two tokens and a filler", "COR-1"),
        ("believe that every entry is its own", "two tokens and a filler", "COR-1"),
        ("lose the last entry of a batch", "two tokens and a filler", "has passed"),
        ("accept messages of a sealed epoch", "two tokens and a seal", "COR-1"),
    ],
)
def test_planted_bugs_are_found(bug: str, budget: str, broken: str) -> None:
    with PLANTED[bug](), pytest.raises(Wrong, match=broken):
        explored(BUDGETS[budget], 100_000)
