"""`python -m tests.sim.database`: the database on a shared log, simulated."""

from __future__ import annotations

from functools import partial

from tests.sim.command import Suite, command
from tests.sim.database.cluster import MAPPING_FAULTS
from tests.sim.database.planted import PLANTED, catch
from tests.sim.database.run import Simulation, simulate
from tests.sim.database.workload import WEIGHTS
from tests.sim.engines import ENGINES

OTHERS = (
    "verdict COMMITTED",
    "verdict CONDITION",
    "verdict CONFLICT",
    "verdict DANGLING",
    "returned OutcomeUnknown",
    "returned Unavailable",
    "large value",
    "decision record",
    "transaction twice in the log",
    "checkpoint taken",
    "history from one shard",
)
"""Events that must also occur if there are enough seeds."""


def suite(engine: str, nodes: bool) -> Suite:
    """The database on this engine."""
    return Suite(
        ("tests.sim.database", "--engine", engine, *(["--nodes"] if nodes else [])),
        lambda seed: Simulation(seed, engine, nodes=nodes).plan,
        partial(simulate, engine=engine, nodes=nodes),
        PLANTED,
        partial(catch, engine=engine, nodes=nodes),
        (*WEIGHTS, *MAPPING_FAULTS, *OTHERS),
    )


if __name__ == "__main__":
    about = "Run a whole cluster with a database on it in one process, under one seed, with faults."
    command(about, ENGINES, suite)()
