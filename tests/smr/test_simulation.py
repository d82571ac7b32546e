"""Seeds of the simulation: none fails, and each planted bug is caught."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.harness.planting import catch
from tests.smr.planted import PLANTED, SEEDS
from tests.smr.simulation import simulate


def test_seeds_end_without_a_violation() -> None:
    events: Counter[str] = Counter()
    for seed in range(1, 31):
        found = simulate(seed)
        assert not found.failure, found
        events.update(found.events)
    assert all(events[event] for event in ("catch-up", "late append", "repeat", "forgotten", "crash", "trim", "jump"))


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str) -> None:
    _, found, _ = catch(bug, PLANTED, SEEDS.get(bug, 1), simulate)
    assert found is not None


def test_a_seed_is_the_same_run_twice() -> None:
    assert simulate(7) == simulate(7)
