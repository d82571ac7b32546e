"""A cluster of Scalog: ordering replicas, aggregators and storage servers, of a given shape.

Servers register themselves and wait as spares; an operator, who is a client like others, makes shards of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from logdb.cores.effects import Address
from logdb.log import paxos
from logdb.log import requests as calls
from logdb.log.paxos import records
from logdb.log.scalog import messages
from logdb.log.scalog.aggregator.aggregator import Aggregator, AggregatorConfig
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.ordering.commands import FailurePolicy
from logdb.log.scalog.ordering.replica import OrderingConfig, OrderingReplica
from logdb.log.scalog.storage.server import StorageServer
from tests.sim import cluster
from tests.sim.network import weather_of
from tests.sim.process import Process
from tests.sim.scalog.ordered import Decisions
from tests.sim.world import World


@dataclass(frozen=True, slots=True)
class Shape(cluster.Shape):
    """The number of servers of each role, and the failure policy. `levels`: of aggregators (0: none)."""

    replicas: int = 3
    aggregators: int = 0
    levels: int = 0
    policy: FailurePolicy = FailurePolicy.FINALIZE_AND_ADD
    f: int = 1
    shards: int = 2
    spares: int = 2
    snapshot_bytes: int = 4 << 20

    @property
    def members(self) -> int:
        """Members of a shard."""
        return 2 * self.f + 1 if self.policy is FailurePolicy.MASK else self.f + 1

    @property
    def quorum(self) -> int:
        """Minimum number of members that have a record when it is ordered."""
        return self.f + 1


def shape_of(draw: random.Random) -> Shape:
    """The shape of a seed."""
    policy = draw.choice(list(FailurePolicy))
    aggregators = draw.choice((0, 0, 2, 3))
    return Shape(
        replicas=draw.choice((1, 3, 3, 5)),
        aggregators=aggregators,
        levels=draw.choice((1, 2)) if aggregators else 0,
        policy=policy,
        f=1 if policy is FailurePolicy.MASK else draw.choice((1, 1, 2)),
        shards=draw.choice((1, 2, 2, 3)),
        spares=draw.choice((0, 1, 3, 6)),
        clients=draw.choice((1, 2, 3)),
        sync_ns=draw.choice((20_000, 200_000, 2_000_000)),
        small_buffers=draw.random() < 0.4,
        snapshot_bytes=draw.choice((2_000, 4 << 20)),
        weather=weather_of(draw),
    )


def on_nodes(shape: Shape, draw: random.Random) -> Shape:
    """The same on nodes, each with an ordering replica and a storage server."""
    nodes = draw.choice((3, 3, 5))
    shape = replace(shape, nodes=nodes, replicas=nodes, f=1 if nodes == 3 else shape.f)
    shards = draw.randint(1, nodes // shape.members)
    return replace(shape, shards=shards, spares=nodes - shards * shape.members)


def _shape(replicas: int, shards: int, f: int, policy: FailurePolicy) -> Shape:
    """A shape with spare servers for two more shards."""
    shape = Shape(clients=1, replicas=replicas, shards=shards, f=f, policy=policy)
    return replace(shape, spares=2 * shape.members)


SHAPES = {
    "-alone": _shape(1, 1, 0, FailurePolicy.FINALIZE_AND_ADD),
    "": _shape(3, 2, 1, FailurePolicy.FINALIZE_AND_ADD),
    "-replace": _shape(3, 1, 1, FailurePolicy.REMOVE_AND_REPLACE),
    "-mask": _shape(3, 2, 1, FailurePolicy.MASK),
}
"""For the conformance suites."""


class Cluster(cluster.Cluster):
    """Its processes. `retired`: ordering replicas that have lost their disk and do not come back."""

    engine: ClassVar[str] = "scalog"
    shape: Shape

    def __init__(self, world: World, shape: Shape) -> None:
        self.ordering: list[Process] = []
        self.aggregators: list[Process] = []
        self.storage: list[Process] = []
        self._slots: list[Any] = []
        self._decisions = Decisions()
        super().__init__(world, shape, tuple(f"ordering-{number}" for number in range(1, shape.replicas + 1)))

    def add_servers(self) -> None:
        shape = self.shape
        for address in self.founders:
            self._add(self.ordering, address, "ordering", self._ordering_core(address)).watch = self._compare
        for _ in range(shape.aggregators):
            self.add_aggregator()
        for _ in range(shape.shards * shape.members + shape.spares):
            self.add_storage()

    def add_storage(self) -> Process:
        """One more storage server, not started."""
        address = f"storage-{len(self.storage) + 1}"
        shape = self.shape
        config = StorageConfig(
            address=address,
            ordering=self.founders,
            heartbeat_ns=shape.heartbeat_ns,
            ask_ns=2 * shape.heartbeat_ns,
            suspect_after_ns=4 * shape.heartbeat_ns,
            straggle_after_ns=12 * shape.heartbeat_ns,
            resend_ns=2 * shape.heartbeat_ns,
            meta_ns=shape.heartbeat_ns // 4,
        )
        if shape.small_buffers:
            config = replace(
                config,
                buffer_bytes=1_200,
                batch_bytes=500,
                window_bytes=1_500,
                fresh_bytes=1_000,
                checkpoint_bytes=2_000,
                links_per_message=3,
            )
        return self._add(self.storage, address, "storage", lambda journals, rng: StorageServer(config, journals, rng))

    def add_aggregator(self) -> Process:
        """One more aggregator, not started."""
        address = f"aggregator-{len(self.aggregators) + 1}"
        unit = self.shape.heartbeat_ns
        config = AggregatorConfig(
            address=address,
            ordering=self.founders,
            retry_ns=unit // 2,
            heartbeat_ns=unit,
            suspect_after_ns=4 * unit,
            straggle_after_ns=12 * unit,
            suspect_aggregator_after_ns=5 * unit,
        )
        return self._add(
            self.aggregators, address, "aggregator", lambda journals, rng: Aggregator(config, journals, rng)
        )

    def _ordering_core(self, address: Address) -> Any:
        shape, unit = self.shape, self.shape.heartbeat_ns
        config = OrderingConfig(
            address=address,
            replicas=self.founders,
            policy=shape.policy,
            f=shape.f,
            heartbeat_ns=unit,
            quiet_ns=unit // 4,
            suspect_after_ns=4 * unit,
            straggle_after_ns=12 * unit,
            snapshot_bytes=shape.snapshot_bytes,
            paxos=paxos.Config(election_ns=4 * unit, heartbeat_ns=unit),
        )
        if shape.small_buffers:
            config = replace(config, paxos=replace(config.paxos, batch_bytes=500, window=2, retain_bytes=500))
        return lambda journals, rng: OrderingReplica(config, journals, rng)

    @property
    def ordered(self) -> int:
        """The last slot of the ordering layer that any replica has applied, including replicas that have died since."""
        return len(self._slots) - 1

    def _compare(self, process: Process) -> None:
        """All replicas of the ordering layer have the same state after the same slot."""
        core: Any = process.core
        slot, state = core.slot, core.state
        has = (state.next_gsn, state.base, state.cut, state.time, state.oldest, state.version, state.next_segment)
        has += (len(state.changes), state.owed, len(state.servers))
        slots = self._slots
        if slot >= len(slots):
            slots.extend([None] * (slot + 1 - len(slots)))
        if slots[slot] is None:
            slots[slot] = has
        assert slots[slot] == has, f"ordering replicas differ after slot {slot}: {slots[slot]} and {has}"
        self._decisions.look(state, self.storage)

    def has_joined(self, replica: Process) -> bool:
        """Whether an ordering replica is a member, by the durable records on its disk."""
        journal = replica.disk.journals.get(paxos.JOURNAL)
        durable = journal.records[: journal.durable - journal.first] if journal is not None else []
        return any(records.read_member(payload).joined for tag, payload in durable if tag == records.MEMBER)

    def may_lose_replica(self, replica: Process) -> bool:
        """Whether more than half of the ordering replicas are members without this one."""
        others = [one for one in self.ordering if one is not replica and one.address not in self.retired]
        return sum(map(self.has_joined, others)) > len(self.ordering) // 2

    @property
    def tail(self) -> int:
        """A lower bound of the last ordered record of the log."""
        return int(self._slots[-1][0]) - 1 if self._slots else 0

    def make_shards(self) -> None:
        world, shape = self.world, self.shape
        limit = world.now + 400 * shape.heartbeat_ns
        expected_spares = len(self.storage)
        while len(self.view(limit).spares) < expected_spares or len(self.view(limit).aggregators) < shape.aggregators:
            world.run(world.now + shape.heartbeat_ns)
        if shape.levels > 1:
            for process in self.aggregators[1:]:
                self.operator.do(messages.SetParent(process.address, self.aggregators[0].address), limit)
        for _ in range(shape.shards):
            self.operator.do(calls.AddShard(()), limit)

    def view(self, limit: int) -> messages.View:
        """The newest configuration, as returned to the operator."""
        view = self.operator.ask(calls.View(), limit)
        assert isinstance(view, messages.View), view
        return view
