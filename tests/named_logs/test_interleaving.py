"""Consumers and groups, in random interleavings: each entry takes effect once, through the owner of its partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logdb.errors import LogDBError
from logdb.named_logs import async_consumer
from tests.named_logs.interleaving import Clock, Simulation
from tests.named_logs.planted import PLANTED

Run = Callable[[int], None]
SEEDS = 45
TRIES = 300


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a seed, in virtual time."""
    clocks = list[Clock]()
    monkeypatch.setattr(async_consumer.asyncio, "get_running_loop", lambda: clocks[-1])

    def simulate(seed: int) -> None:
        simulation = Simulation(seed)
        clocks.append(simulation.clock)
        simulation.run()

    return simulate


@pytest.mark.parametrize("first", range(0, SEEDS, 15))
def test_each_entry_takes_effect_once(first: int, run: Run) -> None:
    for seed in range(first, first + 15):
        run(seed)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    for seed in range(TRIES):
        try:
            run(seed)
        except (AssertionError, LogDBError):
            return
    pytest.fail(f"{TRIES} seeds did not fail")
