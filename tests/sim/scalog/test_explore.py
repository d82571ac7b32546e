"""The search completes, and finds planted bugs."""

from __future__ import annotations

import pytest

from tests.sim.explore.machine import Wrong, frozen, search
from tests.sim.scalog.planted_storage import PLANTED
from tests.sim.scalog.scenario import BUDGETS, Cluster


def explored(budget: dict[str, int], states: int, slow_disks: bool = False) -> int:
    cluster = Cluster()
    cluster.slow_disks = slow_disks
    found = search(cluster, cluster.prepared(budget), states)
    assert found.complete or found.states >= states
    return found.states


def test_every_order_of_an_append() -> None:
    cluster = Cluster()
    found = search(cluster, cluster.prepared(BUDGETS["an append"]), 100_000)
    assert found.complete
    assert found.states > 100


@pytest.mark.parametrize("name", [name for name in BUDGETS if name != "an append"])
def test_every_order_of_events(name: str) -> None:
    explored(BUDGETS[name], 6_000)


@pytest.mark.parametrize(
    ("bug", "budget"),
    [
        ("storage: report before the sync", {"append 1": 1, "ring": 1}),
        ("storage: answer appends before they are ordered", {"append 1": 1}),
    ],
)
def test_planted_bugs_are_found(bug: str, budget: dict[str, int]) -> None:
    with PLANTED[bug](), pytest.raises(Wrong, match="SCA-1: "):
        explored(budget, 20_000, slow_disks=True)


def test_equality_does_not_depend_on_insertion_order() -> None:
    class Thing:
        def __init__(self, **fields: object) -> None:
            self.__dict__.update(fields)

    assert frozen(Thing(a={1: {2, 3}, 4: [5]}, b=b"6")) == frozen(Thing(b=b"6", a={4: [5], 1: {3, 2}}))
    assert frozen(Thing(a=[1, 2])) != frozen(Thing(a=[2, 1]))
    assert frozen(Thing(a=(1,))) != frozen(Thing(a=[1]))
