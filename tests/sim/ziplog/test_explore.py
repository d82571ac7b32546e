"""The search through inserts, changes of epoch and crashes, and that it finds planted bugs."""

from __future__ import annotations

import pytest

from logdb.log.ziplog.mms.replica import EPOCH
from tests.sim.explore.machine import Search, Wrong, search
from tests.sim.ziplog.planted import PLANTED
from tests.sim.ziplog.scenario import BUDGETS, MMS, Cluster

STATES = 3_000


def explored(budget: dict[str, int], states: int) -> Search:
    cluster = Cluster()
    found = search(cluster, cluster.prepared(budget), states)
    assert found.complete or found.states >= states
    return found


@pytest.mark.parametrize("name", BUDGETS)
def test_every_order_of_events(name: str) -> None:
    found = explored(BUDGETS[name], STATES)
    assert found.complete or name not in ("an insert", "inserts on two shards", "an insert and a change of epoch")


def test_records_are_inserted_before_and_after_an_epoch() -> None:
    """One of the ways that the search follows."""
    cluster = Cluster()
    state = cluster.prepared({})
    for name in ("insert 1", "insert 3", "insert 2"):
        state = state._replace(messages=state.messages | frozenset(cluster.moves[name]))
        state = cluster.run_until(state, condition=cluster.quiet)
        if name == "insert 3":
            base = cluster.node(state, MMS).core.state.epoch.base
            state = cluster.rung(state, MMS, EPOCH, cluster.node(state, MMS).timers[EPOCH])
            state = cluster.run_until(state, condition=cluster.quiet)
            after = cluster.node(state, MMS).core.state.epoch
            assert after.base > base
    cluster.check(state)
    gsns = {client: {gsn for _, other, gsn in state.acks if other == client} for client in (1, 2, 3)}
    assert all(len(found) == 1 for found in gsns.values())
    assert max(gsns[1] | gsns[3]) < after.base <= min(gsns[2])


@pytest.mark.parametrize(
    ("bug", "budget", "broken"),
    [
        ("acknowledge before it is durable", "an insert", "ZIP-2"),
        ("call durable what was written", "two inserts on a shard", "ZIP-2"),
        ("call stable what the primary has", "two inserts on a shard", "ZIP-4"),
        ("keep what the order has passed", "two inserts on a shard", "ZIP-3"),
        ("place again what comes again", "an insert that is sent again", "ZIP-"),
        ("give ties to all shards", "inserts on two shards and a change of epoch", "ZIP-1"),
        ("begin an epoch inside the last one", "inserts on two shards and a change of epoch", "ZIP-1"),
        ("serve a view after a restart", "an insert and a crash", "ZIP-10"),
    ],
)
def test_planted_bugs_are_found(bug: str, budget: str, broken: str) -> None:
    with PLANTED[bug](), pytest.raises(Wrong, match=broken):
        explored(BUDGETS[budget], 20_000)
