"""Bugs that are planted on purpose, one at a time, to see the simulator find them: the proof of the proof.

Each is a context manager that patches a core while it is open. An engine's own are in its folder, each with the seed
that caught it.
"""

from __future__ import annotations

from tests.sim.engines import simulation_of
from tests.sim.run import Outcome, simulate

TRIES = 200
"""A planted bug must be caught within so many seeds."""

FIRST_SEED = 1


def catch(name: str, engine: str) -> tuple[str, Outcome | None, int]:
    """Run seeds with the bug planted until one fails: (name, what failed or None, seeds run).

    The remembered one comes first.
    """
    own = simulation_of(engine)
    remembered = own.CAUGHT_BY.get(name, FIRST_SEED)
    with own.PLANTED[name]():
        for tries, seed in enumerate([remembered, *range(FIRST_SEED, FIRST_SEED + TRIES - 1)], 1):
            outcome = simulate(seed, engine)
            if outcome.failure:
                return name, outcome, tries
    return name, None, TRIES
