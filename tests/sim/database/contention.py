"""Increments of hot keys by several client processes, in virtual time: how many attempts they take, and how long.

All code above the client cores is real, as in `programs.py`: `Database.run`, `Speculation`, `ClusterBackend`. Times are
virtual, so a run is a function of its seed, and a test may compare them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from logdb import aio
from logdb.clients.cluster_backend import ClusterBackend
from logdb.cluster.client import requests
from logdb.cores.effects import MILLISECOND, SECOND, Address, Answer
from logdb.errors import ConflictError
from logdb.log.requests import ClientConfig
from logdb.txn.speculation import Speculation
from tests.sim.cluster import Cluster
from tests.sim.database.cluster import DatabaseCluster, Top, cluster_on
from tests.sim.database.loop import Loop
from tests.sim.engines import simulation_of
from tests.sim.process import Process
from tests.sim.world import Failure, World

KEYS = [b"hot-%d" % number for number in range(10)]
HEARTBEAT_NS = 125 * MILLISECOND
LINGER_NS = 2 * MILLISECOND
"""So that a client waits for an answer, and for more records, as long as a real one."""


class RealClients(Cluster):
    """Part of a cluster: its clients have the timeouts of real ones."""

    def client_config(self, address: Address) -> ClientConfig:
        return replace(super().client_config(address), linger_ns=LINGER_NS)


@dataclass
class Increments:
    """The increments of one client process: the seconds and the attempts of each, and how many failed after the last
    attempt."""

    seconds: list[float] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    failed: int = 0


class Host(ClusterBackend):
    """The backend of a client whose core runs in a simulated process."""

    def __init__(self, process: Process) -> None:
        self.path, self.timeout_s, self._closed, self._forked_from = "simulated", 1e9, False, 0
        self.process, self._loop = process, Loop(process, SECOND)
        self._placement, self._newest = None, requests.LINEARIZABLE
        self.speculation = Speculation(self._loop.time, self.takes_turns)
        self._committing, self._feeds = set(), set()
        self._calls, self._waiting = count(1), {}
        self.increments = Increments()
        process.on_answer = self._answered

    @property
    def _core(self) -> Any:  # type: ignore[override]
        return self.process.core

    def put(self, request: Any, timeout_s: float | None) -> asyncio.Future[Any]:
        waiter = self._loop.create_future()
        number = next(self._calls)
        self._waiting[number] = waiter
        self.process.call(number, request)
        return waiter

    def _answered(self, answer: Answer) -> None:
        self._waiting.pop(answer.call).set_result(answer.result)

    def increment_always(self, coroutines: int, draw: random.Random, keys: Sequence[bytes], body: Any) -> None:
        """Increment keys in this number of coroutines."""
        database = aio.Database(self)
        for _ in range(coroutines):
            self._loop.create_task(self._increment(database, draw, keys, body))

    async def _increment(self, database: aio.Database, draw: random.Random, keys: Sequence[bytes], body: Any) -> None:
        into, loop = self.increments, self._loop
        while True:
            begun, tries = loop.time(), count(1)
            try:
                await database.run(body, draw.choice(keys), tries)
            except ConflictError:
                into.failed += 1
            else:
                into.seconds.append(loop.time() - begun)
                into.attempts.append(next(tries) - 1)


async def increment(txn: aio.Transaction, key: bytes, tries: Any) -> None:
    """Add 1 to a counter."""
    next(tries)
    value = await txn.get(key)
    txn.put(key, b"%d" % (int(value or b"0") + 1))


def contend(
    engine: str, clients: Sequence[int], lasting_s: float, *, seed: int = 1, servers: int = 3, body: Any = increment
) -> list[Increments]:
    """Run client processes with these numbers of coroutines for a time. Returns what each has done. Raises Failure if
    the counters do not hold every acknowledged increment once."""
    random.seed(seed)  # the pauses between attempts
    world = World(seed)
    simulated = simulation_of(engine)
    shape = replace(simulated.SHAPES[""], clients=0, heartbeat_ns=HEARTBEAT_NS, sync_ns=MILLISECOND)
    kind: Any = type("Contended", (RealClients, cluster_on(engine)), {})
    cluster: DatabaseCluster = kind(world, shape, Top(servers=servers, clients=len(clients)))
    cluster.start()
    world.run(world.now + SECOND)
    hosts = [Host(process) for process in cluster.clients]
    for host, coroutines in zip(hosts, clients, strict=True):
        host.increment_always(coroutines, world.draw(host.process.address), KEYS, body)
    world.run(world.now + int(lasting_s * SECOND))
    acknowledged = sum(len(host.increments.seconds) for host in hosts)
    replica = max(cluster.replicas(), key=lambda replica: replica.applied)
    entries = [replica.map.entry(key, replica.applied) for key in KEYS]
    counted = sum(int(entry[1]) for entry in entries if entry is not None and isinstance(entry[1], bytes))
    if not acknowledged <= counted <= acknowledged + sum(clients):
        raise Failure("every increment counts once", f"{acknowledged} were acknowledged, {counted} are counted")
    return [host.increments for host in hosts]
