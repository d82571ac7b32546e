"""Bugs that are planted on purpose, one at a time, to see the simulator find them: the proof of the proof.

Each is a context manager that patches a core while it is open; the owners of the cores wrote them beside their tests.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.sim.run import Outcome, simulate

TRIES = 200
"""A planted bug must be caught within so many seeds."""

FIRST_SEED = 1

Plant = Callable[[], AbstractContextManager[None]]


def gather() -> dict[str, Plant]:
    """All of them, by name."""
    found: dict[str, Plant] = {}
    for path in sorted(Path(__file__).parent.glob("planted_*.py")):
        module = importlib.import_module(f"tests.sim.{path.stem}")
        for name, plant in module.PLANTED.items():
            assert name not in found, f"two planted bugs are called {name}"
            found[name] = plant
    return found


PLANTED = gather()


def catch(name: str) -> tuple[str, Outcome | None, int]:
    """Run seeds with the bug planted until one fails: (name, what failed or None, seeds run)."""
    with PLANTED[name]():
        for tries in range(TRIES):
            outcome = simulate(FIRST_SEED + tries)
            if outcome.failure:
                return name, outcome, tries + 1
    return name, None, TRIES
