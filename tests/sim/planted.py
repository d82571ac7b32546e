"""Bugs that are planted on purpose, one at a time, to check that the simulator finds them.

Each is a context manager that patches a core while it is open. An engine's bugs are in its folder, each with the seed
that caught it.
"""

from __future__ import annotations

from functools import partial

from tests.harness import planting
from tests.sim.engines import simulation_of
from tests.sim.run import Outcome, simulate


def catch(name: str, engine: str, *, nodes: bool = False) -> tuple[str, Outcome | None, int]:
    """As `planting.catch`, for a bug of this engine."""
    own = simulation_of(engine)
    return planting.catch(name, own.PLANTED, own.CAUGHT_BY.get(name, 1), partial(simulate, engine=engine, nodes=nodes))
