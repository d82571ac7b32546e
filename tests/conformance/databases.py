"""The worlds of the Database contract: those of one process or server, and clusters of every engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from zlib import crc32

from logdb.log.engine import ENGINES, engine_of
from tests.harness import worlds
from tests.sim.engines import simulation_of

CLUSTERS = {
    "alone": {"cluster": worlds.OnCluster, "cluster by TLS": worlds.OnSecureCluster},
    "many": {"cluster of many": worlds.OnClusterOfMany, "cluster of many by TLS": worlds.OnSecureClusterOfMany},
    "masking": {"cluster that masks": worlds.OnMaskingCluster},
}
"""Worlds by the shape of their cluster (`Simulated.CLUSTERS`)."""
NODES = 3

WORLDS, SECURE_WORLDS = dict(worlds.WORLDS), dict(worlds.SECURE_WORLDS)
for _engine in ENGINES:
    for _which, _shape in simulation_of(_engine).CLUSTERS.items():
        for _name, _world in CLUSTERS[_which].items():
            _worlds = SECURE_WORLDS if "TLS" in _name else WORLDS
            _worlds[_name if _engine == ENGINES[0] else f"{_engine} {_name}"] = partial(_world, shape=_shape)
for _engine in ENGINES:
    _shape = engine_of(_engine).operations.default_shape.on_nodes(NODES)
    _prefix = "" if _engine == ENGINES[0] else f"{_engine} "
    WORLDS[f"{_prefix}cluster of nodes"] = partial(worlds.OnNodes, shape=_shape)
    SECURE_WORLDS[f"{_prefix}cluster of nodes by TLS"] = partial(worlds.OnSecureNodes, shape=_shape)
IN_SESSIONS = {
    f"{_engine} in a session": partial(
        worlds.OnClusterOfMany, shape=simulation_of(_engine).CLUSTERS["many"], consistency="session"
    )
    for _engine in ENGINES
}
"""Clients that keep causality only, on several mapping servers: one client cannot tell them from others."""
KINDS = ("cluster", "cluster of many", "cluster that masks", "cluster of nodes")
"""The kinds of clusters, of which every engine has one."""
FEW = ("memory", "directory", "served", *(name for name in WORLDS if name.endswith("cluster")))
"""The worlds of tests that do not depend on what happened to a database before."""


def in_turn(test: str) -> dict[str, Callable[[Path], worlds.World]]:
    """The worlds without a cluster, and a cluster of every engine, each of another kind, in turn from test to test."""
    kept = {name: world for name, world in WORLDS.items() if not name.endswith(KINDS)}
    first = crc32(test.encode())
    for at, engine in enumerate(ENGINES):
        name = f"{'' if engine == ENGINES[0] else f'{engine} '}{KINDS[(first + at) % len(KINDS)]}"
        kept[name] = WORLDS[name]
    return kept
