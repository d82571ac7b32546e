"""`python -m tests.sim`: the shared log, simulated."""

from __future__ import annotations

from functools import partial

from tests.sim.command import Suite, command
from tests.sim.engines import ENGINES, simulation_of
from tests.sim.planted import catch
from tests.sim.run import Simulation, simulate
from tests.sim.workload import WEIGHTS

OTHERS = (
    "message lost",
    "message doubled",
    "message overtaken",
    "message on a cut link",
    "unsynced records lost",
    "torn tail",
    "dropped journal came back",
    "write waited for space",
    "unreadable record read",
    "start refused: damaged",
    "outcome of an ended client's append",
)
"""Further events that must occur in some seeds, with any engine; they are consequences of faults, not drawn."""


def suite(engine: str, nodes: bool) -> Suite:
    """The log on this engine."""
    own = simulation_of(engine)
    return Suite(
        ("tests.sim", "--engine", engine, *(["--nodes"] if nodes else [])),
        lambda seed: Simulation(seed, engine, nodes=nodes).plan,
        partial(simulate, engine=engine, nodes=nodes),
        own.PLANTED,
        partial(catch, engine=engine, nodes=nodes),
        (*own.Faults.FAULTS, *own.Faults.OPERATIONS, *own.EVENTS, *WEIGHTS, *OTHERS),
    )


if __name__ == "__main__":
    command("Run a whole cluster in one process, under one seed, with faults.", ENGINES, suite)()
