"""Seeds that have found something."""

from __future__ import annotations

import pytest

from tests.sim.run import simulate

FOUND = (
    (901799, False),
    (102062708002, True),
    (420681134026, False),
    (922019, False),
    (146399538042, True),
    (508067995211, False),
)
"""With whether on nodes. The last three found mistakes of the simulator."""


@pytest.mark.parametrize(("seed", "on_nodes"), FOUND)
def test_a_seed_that_has_found_something(seed: int, on_nodes: bool) -> None:
    outcome = simulate(seed, "ziplog", nodes=on_nodes)
    assert not outcome.failure, f"{outcome.failure}: {outcome.detail}"
