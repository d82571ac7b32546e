"""`python -m tests.sim.database`: the database on a shared log, simulated."""

from __future__ import annotations

from tests.sim.command import Suite, command
from tests.sim.database.cluster import MAPPING_FAULTS
from tests.sim.database.planted import PLANTED, catch
from tests.sim.database.run import Simulation, simulate
from tests.sim.database.workload import WEIGHTS

OTHERS = (
    "verdict COMMITTED",
    "verdict CONDITION",
    "verdict CONFLICT",
    "verdict DANGLING",
    "told OutcomeUnknown",
    "told Unavailable",
    "large value",
    "decision record",
    "transaction twice in the log",
    "checkpoint taken",
    "told by a shard alone",
)
"""What must also have happened in enough seeds."""


if __name__ == "__main__":
    command(
        Suite(
            "tests.sim.database",
            "Run a whole cluster with a database on it in one process, under one seed, with everything going wrong.",
            lambda seed: Simulation(seed).plan,
            simulate,
            PLANTED,
            catch,
            (*WEIGHTS, *MAPPING_FAULTS, *OTHERS),
        )
    )()
