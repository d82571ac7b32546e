"""Seeds of the database that are run every time, and the planted bugs, each with the seed that has caught it."""

from __future__ import annotations

import pytest

from tests.sim.database.planted import PLANTED, catch
from tests.sim.database.run import simulate
from tests.sim.engines import ENGINES

FOUND = (11, 14, 51754, 217133, 27513, 29539, 33542, 95334474, 2294)
"""Seeds that have found something on the first engine (README.md)."""

FIRST, LAST = 1_000, 1_011
SAMPLED = 4
"""Every fourth planted bug is tried here; `python -m tests.sim.database --planted all` tries all."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [*FOUND, *range(FIRST, LAST + 1)])
def test_a_seed(seed: int, engine: str) -> None:
    outcome = simulate(seed, engine)
    assert not outcome.failure, f"{outcome.story}\n{outcome.failure}: {outcome.detail}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_seed_on_nodes(seed: int, engine: str) -> None:
    outcome = simulate(seed, engine, nodes=True)
    assert not outcome.failure, f"{outcome.story}\n{outcome.failure}: {outcome.detail}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_is_one_run(seed: int, engine: str) -> None:
    assert simulate(seed, engine, exact=True).digest == simulate(seed, engine, exact=True).digest


@pytest.mark.parametrize("name", sorted(PLANTED)[::SAMPLED])
def test_a_planted_bug_is_caught(name: str) -> None:
    """On the first engine: the bugs are in the database."""
    _, outcome, _ = catch(name)
    assert outcome is not None
