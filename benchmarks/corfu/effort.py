"""How much is measured, and the names of the engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from benchmarks.clusters import Shape

Progress = Callable[[str], object]

CORFU: Final = "corfu"
SCALOG: Final = "scalog"
TIMEOUT_S: Final = 120.0
"""Of all that a part waits for: the machine may be busy."""
RECORD_BYTES: Final = 4096
"""Both papers measure records of this size."""


class Effort(NamedTuple):
    """How much is measured. `shards`: numbers of shards, of two servers each; `clients`: coroutines that append or read
    one after another; `batches`: positions in a token request, of which `pipelined` are under way. `rate`: appends per
    second of `loads` processes while the log is reconfigured, with a change each `step_s`. `holes`: tokens of clients
    that die. `keys`: of a transaction, on `nodes` nodes. `replicas`: of a machine, each with `commands` per second.
    `seconds`: of each point; `ordering`: replicas that order."""

    shards: tuple[int, ...]
    clients: int
    batches: tuple[int, ...]
    pipelined: int
    rate: float
    loads: int
    step_s: float
    holes: int
    keys: tuple[int, ...]
    nodes: int
    replicas: tuple[int, ...]
    commands: float
    seconds: float
    ordering: int


FULL: Final = Effort(
    shards=(1, 2, 4),
    clients=32,
    batches=(1, 16, 256),
    pipelined=16,
    rate=400.0,
    loads=2,
    step_s=3.0,
    holes=20,
    keys=(1, 4, 16, 64, 256),
    nodes=3,
    replicas=(1, 2, 4, 8),
    commands=200.0,
    seconds=2.5,
    ordering=3,
)
QUICK: Final = Effort(
    shards=(2,),
    clients=2,
    batches=(1,),
    pipelined=2,
    rate=50.0,
    loads=1,
    step_s=0.2,
    holes=1,
    keys=(1, 4),
    nodes=1,
    replicas=(1,),
    commands=50.0,
    seconds=0.1,
    ordering=3,
)


def shards_of_two(engine: str, effort: Effort) -> Shape:
    """A log with the fewest shards of two servers, spares for the others and for one more, and one to replace a
    server."""
    storage = 2 * (max(effort.shards) + 1) + 1
    shape = Shape(ordering=effort.ordering, storage=storage, failures=1, shards=min(effort.shards), engine=engine)
    return shape._replace(sequencer=2 if engine == CORFU else 0)
