"""A cluster of Multi-Paxos: 1, 3 or 5 replicas."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from logdb.cores.effects import Address, Received
from logdb.log import paxos
from logdb.log import requests as calls
from logdb.log.multipaxos.config import ReplicaConfig
from logdb.log.multipaxos.messages import TailRequest, TailResponse
from logdb.log.multipaxos.replica import MultiPaxosReplica
from tests.sim import cluster
from tests.sim.network import weather_of
from tests.sim.process import Process
from tests.sim.world import Failure, World


@dataclass(frozen=True, slots=True)
class Shape(cluster.Shape):
    """`replicas`: how many there are."""

    replicas: int = 3
    snapshot_bytes: int = 4 << 20
    cache_bytes: int = 8 << 20


def shape_of(draw: random.Random) -> Shape:
    """The shape of a seed."""
    return Shape(
        replicas=draw.choice((1, 3, 3, 3, 5)),
        clients=draw.choice((1, 2, 3)),
        sync_ns=draw.choice((20_000, 200_000, 2_000_000)),
        small_buffers=draw.random() < 0.4,
        snapshot_bytes=draw.choice((500, 2_000, 4 << 20)),
        cache_bytes=draw.choice((0, 0, 2_000, 8 << 20)),
        weather=weather_of(draw),
    )


def on_nodes(shape: Shape, draw: random.Random) -> Shape:
    """The same on nodes, each with a replica."""
    nodes = draw.choice((3, 3, 5))
    return replace(shape, nodes=nodes, replicas=nodes)


SHAPES = {"-alone": Shape(clients=1, replicas=1), "": Shape(clients=1)}
"""For the conformance suites."""


class Watcher:
    """Asks every replica for the tail all the time: no answer may lack a record that was ordered before."""

    kind = "watcher"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._asked = cluster, [0]
        cluster.network.processes[self.kind] = self  # type: ignore[assignment]
        self._ask(None)

    def _ask(self, _: None) -> None:
        cluster = self._cluster
        for replica in cluster.group:
            cluster.network.send(self.kind, replica.address, TailRequest(len(self._asked)))
        self._asked.append(cluster.tail)
        cluster.world.after(cluster.shape.heartbeat_ns // 2, self._ask)

    def deliver(self, event: Received) -> None:
        """A replica has answered."""
        answer = event.message
        if isinstance(answer, TailResponse) and answer.last < self._asked[answer.request]:
            missing = (
                f"{event.sender} says {answer.last}, {self._asked[answer.request]} was ordered before it was asked"
            )
            raise Failure("MPX-1: a tail has what was ordered before", missing)


class Cluster(cluster.Cluster):
    """Its processes. `retired`: replicas that have lost their disk and do not come back."""

    engine: ClassVar[str] = "multipaxos"
    shape: Shape

    def __init__(self, world: World, shape: Shape) -> None:
        self.group: list[Process] = []
        self._slots: list[Any] = [(1, 1, 0, 0)]
        self._complete: dict[Address, tuple[int, bool]] = {}
        self._leaders = set[Address]()
        super().__init__(world, shape, tuple(f"replica-{number}" for number in range(1, shape.replicas + 1)))

    def add_servers(self) -> None:
        for address in self.founders:
            self._add(self.group, address, "replica", self._core(address)).watch = self._compare

    def _core(self, address: Address) -> Any:
        shape, unit = self.shape, self.shape.heartbeat_ns
        config = ReplicaConfig(
            address=address,
            replicas=self.founders,
            flush_ns=unit,
            copy_ns=2 * unit,
            snapshot_bytes=shape.snapshot_bytes,
            cache_bytes=shape.cache_bytes,
            paxos=paxos.Config(election_ns=4 * unit, heartbeat_ns=unit),
        )
        if shape.small_buffers:
            small = replace(config.paxos, batch_bytes=500, window=2, retain_bytes=500)
            config = replace(
                config,
                batch_bytes=500,
                fragment_bytes=200,
                window=2,
                buffer_bytes=1_500,
                flush_bytes=400,
                paxos=small,
            )
        return lambda journals, rng: MultiPaxosReplica(config, journals, rng)

    def _compare(self, process: Process) -> None:
        """All replicas have the same state after the same slot."""
        core: Any = process.core
        slot, state = core.slot, core.state
        self._count(process.address, core)
        self._complete[process.address] = process.wipes, core.is_complete
        has = (state.next_gsn, state.oldest, state.time, state.batches)
        slots = self._slots
        if slot >= len(slots):
            slots.extend([None] * (slot + 1 - len(slots)))
        if slots[slot] is None:
            slots[slot] = has
        assert slots[slot] == has, f"MPX-2: replicas differ after slot {slot}: {slots[slot]} and {has}"

    def _count(self, address: Address, core: Any) -> None:
        """Count leaders, and replicas that have copied all records that they lacked."""
        leads, (_, was_complete) = core.leader is not None, self._complete.get(address, (0, True))
        self.world.counts["leader elected"] += leads and address not in self._leaders
        self.world.counts["missing records copied"] += core.is_complete and not was_complete
        (self._leaders.add if leads else self._leaders.discard)(address)

    def is_whole(self, replica: Process) -> bool:
        """Whether a replica has all that it must have for another one to lose its disk."""
        wipes, is_complete = self._complete.get(replica.address, (-1, False))
        return is_complete and wipes == replica.wipes and not replica.disk.has_damage()

    def may_lose(self, replica: Process) -> bool:
        """Whether more than half of all replicas are whole without this one."""
        return sum([self.is_whole(one) for one in self.group if one is not replica]) > len(self.group) // 2

    @property
    def tail(self) -> int:
        return int(self._slots[-1][0]) - 1

    def make_shards(self) -> None:
        Watcher(self)
        self.operator.ask(calls.Tail(), self.world.now + 400 * self.shape.heartbeat_ns)
