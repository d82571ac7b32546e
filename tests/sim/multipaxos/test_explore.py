"""The search through appends, leader changes and crashes, and that it finds planted bugs."""

from __future__ import annotations

import pytest

from logdb.log.paxos.replica import ELECTION
from tests.log.paxos import bugs
from tests.sim.explore.machine import Search, Wrong, search
from tests.sim.multipaxos.planted import PLANTED
from tests.sim.multipaxos.scenario import BUDGETS, CANDIDATE, LEADER, Cluster

STATES = 3_000


def explored(budget: dict[str, int], states: int, slow_disks: bool = False) -> Search:
    cluster = Cluster()
    cluster.slow_disks = slow_disks
    found = search(cluster, cluster.prepared(budget), states)
    assert found.complete or found.states >= states
    return found


@pytest.mark.parametrize("name", BUDGETS)
def test_every_order_of_events(name: str) -> None:
    found = explored(BUDGETS[name], STATES)
    assert found.complete == (name in ("an append", "a leader change", "an append and a crash"))


def test_an_append_is_acknowledged_and_a_leader_replaced() -> None:
    """One of the ways that the search follows."""
    cluster = Cluster()
    state = cluster.prepared({})
    state = state._replace(messages=state.messages | frozenset(cluster.moves["append 1"]))
    state = cluster.run_until(state, condition=cluster.quiet)
    assert {(sequence, gsn) for _, sequence, gsn in state.acks} == {(1, 1)}
    assert cluster.node(state, LEADER).core.leader is not None
    state = cluster.rung(state, CANDIDATE, ELECTION, cluster.node(state, CANDIDATE).timers[ELECTION])
    state = cluster.run_until(state, condition=cluster.quiet)
    assert cluster.node(state, LEADER).core.leader is None
    assert cluster.node(state, CANDIDATE).core.leader is not None
    cluster.check(state)


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("acknowledge what is proposed", {"append 1": 1, "append 2": 1}),
        ("append again what comes again", {"append 1": 1, "ring": 1}),
    ],
)
def test_planted_bugs_are_found(name: str, budget: dict[str, int]) -> None:
    with PLANTED[name](), pytest.raises(Wrong, match="MPX-"):
        explored(budget, 100_000)


@pytest.mark.parametrize(
    ("bug", "broken"),
    [
        (bugs.forget_values_in_a_promise, "PAX-4"),
        (bugs.accept_a_lower_ballot, "PAX-3"),
        (bugs.need_too_few_promises, "PAX-"),
    ],
)
def test_planted_bugs_of_a_leader_change_are_found(
    bug: bugs.Plant, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(Wrong, match=broken):
        explored({"append 1": 1, "ring": 1}, 100_000)


def test_a_vote_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bugs.accept_before_persisting(monkeypatch)
    with pytest.raises(Wrong, match="PAX-6"):
        explored({"append 1": 1}, STATES, slow_disks=True)
