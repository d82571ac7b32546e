"""A cluster of processes: ordering replicas, aggregators, storage servers and clients, of a given shape.

Servers register themselves and wait as spares; an operator, who is a client like others, makes shards of them. A core
that stops by itself is started again after a while, as a supervisor would; one that wiped its disk is a new spare then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from logdb.cores.effects import MILLISECOND, Address, Answer
from logdb.log import paxos
from logdb.log import requests as calls
from logdb.log.paxos import records
from logdb.log.requests import ClientConfig
from logdb.log.scalog import messages
from logdb.log.scalog.aggregator.aggregator import Aggregator, AggregatorConfig
from logdb.log.scalog.client.log_client import LogClient
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.ordering.commands import FailurePolicy
from logdb.log.scalog.ordering.replica import OrderingConfig, OrderingReplica
from logdb.log.scalog.storage.server import StorageServer
from tests.sim.network import Network, Weather
from tests.sim.ordered import Decisions
from tests.sim.process import Process
from tests.sim.world import World


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of everything, and how failures are treated. `levels`: of aggregators (0: none).

    `heartbeat_ns` is the unit of all timeouts: who is silent for 4 of it is suspected.
    """

    replicas: int = 3
    aggregators: int = 0
    levels: int = 0
    policy: FailurePolicy = FailurePolicy.FINALIZE_AND_ADD
    f: int = 1
    shards: int = 2
    spares: int = 2
    clients: int = 2
    heartbeat_ns: int = 25 * MILLISECOND
    sync_ns: int = 200_000
    small_buffers: bool = False
    snapshot_bytes: int = 4 << 20
    weather: Weather = field(default_factory=Weather)

    @property
    def members(self) -> int:
        """Members of a shard."""
        return 2 * self.f + 1 if self.policy is FailurePolicy.MASK else self.f + 1

    @property
    def quorum(self) -> int:
        """So many members must hold a record."""
        return self.f + 1


class Cluster:
    """The processes of a cluster. `retired`: ordering replicas that have lost their disk and do not come back."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world, self.shape = world, shape
        self.network = Network(world, replace(shape.weather))
        self.ordering: list[Process] = []
        self.aggregators: list[Process] = []
        self.storage: list[Process] = []
        self.clients: list[Process] = []
        self.retired: set[Address] = set()
        self._everybody: list[Process] = []
        self._slots: list[Any] = []
        self._decisions = Decisions()
        self._replicas = tuple(f"ordering-{number}" for number in range(1, shape.replicas + 1))
        for address in self._replicas:
            self._add(self.ordering, address, "ordering", self._ordering_core(address)).watch = self._compare
        for _ in range(shape.aggregators):
            self.add_aggregator()
        for _ in range(shape.shards * shape.members + shape.spares):
            self.add_storage()
        for number in range(1, shape.clients + 1):
            self.add_client(f"client-{number}")
        self.operator = Operator(self.add_client("operator"))
        self.clients.pop()

    # ---- who there is

    def processes(self) -> list[Process]:
        """All, in the order in which they were made."""
        return list(self._everybody)

    def add_storage(self) -> Process:
        """One more storage server, not started."""
        address = f"storage-{len(self.storage) + 1}"
        shape = self.shape
        config = StorageConfig(
            address=address,
            ordering=self._replicas,
            heartbeat_ns=shape.heartbeat_ns,
            ask_ns=2 * shape.heartbeat_ns,
            suspect_after_ns=4 * shape.heartbeat_ns,
            straggle_after_ns=12 * shape.heartbeat_ns,
            resend_ns=shape.heartbeat_ns,
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
            ordering=self._replicas,
            retry_ns=unit // 2,
            heartbeat_ns=unit,
            suspect_after_ns=4 * unit,
            straggle_after_ns=12 * unit,
            suspect_aggregator_after_ns=5 * unit,
        )
        return self._add(
            self.aggregators, address, "aggregator", lambda journals, rng: Aggregator(config, journals, rng)
        )

    def client_config(self, address: Address) -> ClientConfig:
        """What a log client at this address is told."""
        unit = self.shape.heartbeat_ns
        config = ClientConfig(
            address=address,
            ordering=self._replicas,
            gathers=not self.shape.small_buffers,
            linger_ns=unit // 20,
            answer_timeout_ns=4 * unit,
            backoff_ns=unit // 8,
            max_backoff_ns=4 * unit,
            suspect_after_ns=8 * unit,
        )
        if self.shape.small_buffers:
            config = replace(config, batch_bytes=500, window_bytes=1_500, buffer_bytes=4_000, fetch_bytes=1_500)
        return config

    def add_client(self, address: Address) -> Process:
        """One more client, not started."""
        config = self.client_config(address)
        return self._add(self.clients, address, "client", lambda journals, rng: LogClient(config, journals, rng))

    def _ordering_core(self, address: Address) -> Any:
        shape, unit = self.shape, self.shape.heartbeat_ns
        config = OrderingConfig(
            address=address,
            replicas=self._replicas,
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

    def _add(self, kind: list[Process], address: Address, name: str, build: Any) -> Process:
        process = Process(self.world, self.network, address, name, build)
        process.on_stop = self._stopped
        process.disk.sync_ns = self.shape.sync_ns
        self._everybody.append(process)
        kind.append(process)
        return process

    @property
    def ordered(self) -> int:
        """The last slot of the ordering layer that any replica has applied, be it dead since."""
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
        """Whether an ordering replica is a member, by what its disk holds for certain."""
        journal = replica.disk.journals.get(paxos.JOURNAL)
        durable = journal.records[: journal.durable - journal.first] if journal is not None else []
        return any(records.read_member(payload).joined for tag, payload in durable if tag == records.MEMBER)

    def may_lose_replica(self, replica: Process) -> bool:
        """Whether more than half of the ordering replicas are members without this one."""
        others = [one for one in self.ordering if one is not replica and one.address not in self.retired]
        return sum(map(self.has_joined, others)) > len(self.ordering) // 2

    def _stopped(self, process: Process) -> None:
        self.world.after(2 * self.shape.heartbeat_ns, self.revive, process)

    def revive(self, process: Process) -> None:
        """Start it if it is down and may come back, on an empty disk if the old one is damaged."""
        if process.core is not None or process.address in self.retired:
            return
        if process.damaged:
            process.wipe()
        if not process.start():
            self._stopped(process)

    # ---- the beginning

    def start(self) -> None:
        """Start every process, and make the shards. No faults please until this returns."""
        world, shape = self.world, self.shape
        for process in self.processes():
            process.start()
        limit = world.now + 400 * shape.heartbeat_ns
        everybody = len(self.storage)
        while len(self.view(limit).spares) < everybody or len(self.view(limit).aggregators) < shape.aggregators:
            world.run(world.now + shape.heartbeat_ns)
        if shape.levels > 1:
            for process in self.aggregators[1:]:
                self.operator.do(messages.SetParent(process.address, self.aggregators[0].address), limit)
        for _ in range(shape.shards):
            self.operator.do(calls.AddShard(()), limit)

    def view(self, limit: int) -> messages.View:
        """The newest configuration, as the operator is told."""
        view = self.operator.ask(calls.View(), limit)
        assert isinstance(view, messages.View), view
        return view


class NotAnswered(Exception):
    """A call of the operator was not answered in time."""


class Operator:
    """Puts calls through a client process, and may wait for their answers while the world goes on.

    `asked`: how many changes of each kind.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self._last = 0
        self._then: dict[int, Callable[[Any], None]] = {}
        self.asked: Counter[type] = Counter()
        process.on_answer = self._answered

    def call(self, request: Any, then: Callable[[Any], None] | None = None) -> int:
        """Put a call, and give its result to `then`."""
        self._last += 1
        if isinstance(request, calls.Reconfigure):
            self.asked[type(request.change)] += 1
        if then is not None:
            self._then[self._last] = then
        self.process.call(self._last, request)
        return self._last

    def ask(self, request: Any, limit: int) -> Any:
        """Put a call and let time pass until it is answered. Raises NotAnswered at `limit`."""
        results: list[Any] = []
        self.call(request, results.append)
        world = self.process.world
        while not results:
            if world.now > limit or not world.step():
                raise NotAnswered(f"{request!r} was not answered by {self.process.address}")
        return results[0]

    def do(self, change: messages.Reconfiguration, limit: int) -> Any:
        """Have a change carried out."""
        return self.ask(calls.Reconfigure(change), limit)

    def _answered(self, answer: Answer) -> None:
        then = self._then.pop(answer.call, None)
        if then is not None:
            then(answer.result)
