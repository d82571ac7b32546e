"""Seeds that have found something."""

from __future__ import annotations

import pytest

from tests.sim.run import simulate

FOUND = (612, 2394, 6695)
"""The last two found mistakes of the simulator."""


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_has_found_something(seed: int) -> None:
    outcome = simulate(seed, "corfu")
    assert not outcome.failure, f"{outcome.failure}: {outcome.detail}"
