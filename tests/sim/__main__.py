"""`python -m tests.sim`: the shared log, simulated."""

from __future__ import annotations

from tests.sim.command import Suite, command
from tests.sim.faults import FAULTS, OPERATIONS
from tests.sim.planted import PLANTED, catch
from tests.sim.run import Simulation, simulate
from tests.sim.workload import WEIGHTS

OTHERS = (
    "message lost",
    "message doubled",
    "message overtaken",
    "message cut off",
    "unsynced records lost",
    "torn tail",
    "dropped journal came back",
    "write waited for space",
    "unreadable record met",
    "start refused: damaged",
    "core stopped by itself",
    "outcome of an ended client's append",
)
"""What must also have happened in enough seeds, though nobody decides when."""


if __name__ == "__main__":
    command(
        Suite(
            "tests.sim",
            "Run a whole cluster in one process, under one seed, with everything going wrong.",
            lambda seed: Simulation(seed).plan,
            simulate,
            PLANTED,
            catch,
            (*FAULTS, *OPERATIONS, *WEIGHTS, *OTHERS),
        )
    )()
