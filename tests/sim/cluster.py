"""A cluster of processes: an engine's servers (`tests.sim.engines`) and clients, of a given shape.

On nodes (`logdb serve node`) one process runs a server of each role. The simulator has a `Process` for each server even
then: those of one node share their clock and their failures, and messages between them take no time.

The operator is a client like others. A core that stops itself restarts after a while, as under a supervisor; if it
wiped its disk it is a new server then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from logdb.cores.effects import MILLISECOND, Address, Answer
from logdb.log import requests as calls
from logdb.log.engine import BuildLogClient, engine_of
from logdb.log.requests import ClientConfig
from tests.sim.network import Network, Weather
from tests.sim.process import Process
from tests.sim.world import World


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of a shape that all engines share. Each engine has a subclass.

    `heartbeat_ns` is the unit of all timeouts: a server that is silent for 4 of it is suspected. `nodes`: the first
    servers of each role run on this many nodes, and others by themselves; 0: all by themselves.
    """

    clients: int = 2
    heartbeat_ns: int = 25 * MILLISECOND
    sync_ns: int = 200_000
    small_buffers: bool = False
    nodes: int = 0
    weather: Weather = field(default_factory=Weather)

    def under_database(self) -> Self:
        """The same with a database on it, whose servers are the clients of the log."""
        return replace(self, clients=0)


class Cluster:
    """The processes of a cluster: `founders`, whose addresses every process has, other servers, and clients. Each
    engine has a subclass. `retired`: processes that have lost their disk and do not come back. `nodes`: the servers of
    each node."""

    engine: ClassVar[str]

    def __init__(self, world: World, shape: Shape, founders: tuple[Address, ...]) -> None:
        self.world, self.shape, self.founders = world, shape, founders
        self.network = Network(world, replace(shape.weather))
        self.clients: list[Process] = []
        self.retired: set[Address] = set()
        self._processes: list[Process] = []
        self.nodes: list[list[Process]] = [[] for _ in range(shape.nodes)]
        self.add_servers()
        for number in range(1, shape.clients + 1):
            self.add_client(f"client-{number}")
        self.operator = Operator(self.add_client("operator"))
        self.clients.pop()

    # ---- the engine's part

    def add_servers(self) -> None:
        """Add the servers, not started."""
        raise NotImplementedError

    def make_shards(self) -> None:
        """Wait until the started servers have registered, then let the operator add the shards."""
        raise NotImplementedError

    @property
    def tail(self) -> int:
        """A lower bound of the last ordered record of the log."""
        raise NotImplementedError

    @property
    def losable(self) -> Collection[int]:
        """The GSNs of acknowledged records that the log may have lost in the faults so far, where it promises less than
        others."""
        return ()

    # ---- processes

    def processes(self) -> list[Process]:
        """All processes, in the order of their creation."""
        return list(self._processes)

    def client_config(self, address: Address) -> ClientConfig:
        """The configuration of a log client at this address. Every other one asks the same founder first."""
        unit, number = self.shape.heartbeat_ns, sum(address.encode())
        config = ClientConfig(
            address=address,
            ordering=self.founders,
            local=self.founders[number % len(self.founders)] if number % 2 else "",
            coalesce_calls=not self.shape.small_buffers,
            linger_ns=unit // 20,
            answer_timeout_ns=4 * unit,
            backoff_ns=unit // 8,
            max_backoff_ns=4 * unit,
            suspect_after_ns=8 * unit,
        )
        if self.shape.small_buffers:
            config = replace(config, batch_bytes=500, window_bytes=1_500, buffer_bytes=4_000, fetch_bytes=1_500)
        return config

    @property
    def build_client(self) -> BuildLogClient:
        """Builds the core of a log client."""
        return engine_of(self.engine).client

    def add_client(self, address: Address) -> Process:
        """Add a client, not started."""
        config, build = self.client_config(address), self.build_client
        return self._add(self.clients, address, "client", lambda journals, rng: build(config, journals, rng))

    def _add(self, kind: list[Process], address: Address, name: str, build: Any) -> Process:
        process = Process(self.world, self.network, address, name, build)
        process.on_stop = self._stopped
        process.disk.sync_ns = self.shape.sync_ns
        self._processes.append(process)
        kind.append(process)
        if name != "client" and len(kind) <= len(self.nodes):
            self.nodes[len(kind) - 1].append(process)
            self.network.join(self.nodes[len(kind) - 1][0].address, address)
        return process

    def node_of(self, process: Process) -> list[Process]:
        """The servers that share the fate of this one, which is the first: those of its node."""
        for node in self.nodes:
            if process in node:
                return [process, *(one for one in node if one is not process)]
        return [process]

    def kill(self, process: Process) -> None:
        """Kill a server, and its node."""
        for one in self.node_of(process):
            one.kill()

    def wipe(self, process: Process) -> None:
        """Lose the disk of a server that is down, and of its node."""
        for one in self.node_of(process):
            one.kill()
            one.wipe()

    def _stopped(self, process: Process) -> None:
        """A server that wipes itself starts again in the same process; any other end is that of its node."""
        if process.stopped is None or not process.stopped.wipe:
            self.kill(process)
        self.world.after(2 * self.shape.heartbeat_ns, self.revive, process)

    def revive(self, process: Process) -> None:
        """Start a server that is down and may come back, and its node; on an empty disk if the old one is damaged."""
        for one in self.node_of(process):
            if one.core is not None or one.address in self.retired:
                continue
            if one.damaged:
                one.wipe()
            if not one.start():
                self._stopped(one)
                return

    # ---- start

    def start(self) -> None:
        """Start every process, and add the shards. Faults must not begin before this returns."""
        for process in self.processes():
            process.start()
        self.make_shards()


class NotAnswered(Exception):
    """A call of the operator was not answered in time."""


class Operator:
    """Makes calls through a client process, and can wait for their answers while time passes.

    `requested`: the number of requested changes of each kind.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self._last = 0
        self._then: dict[int, Callable[[Any], None]] = {}
        self.requested: Counter[type] = Counter()
        process.on_answer = self._answered

    def call(self, request: Any, then: Callable[[Any], None] | None = None) -> int:
        """Make a call, and pass its result to `then`."""
        self._last += 1
        if isinstance(request, calls.Reconfigure):
            self.requested[type(request.change)] += 1
        if then is not None:
            self._then[self._last] = then
        self.process.call(self._last, request)
        return self._last

    def ask(self, request: Any, limit: int) -> Any:
        """Make a call and let time pass until it is answered. Raises NotAnswered at `limit`."""
        results: list[Any] = []
        self.call(request, results.append)
        world = self.process.world
        while not results:
            if world.now > limit or not world.step():
                raise NotAnswered(f"{request!r} was not answered by {self.process.address}")
        return results[0]

    def do(self, change: Any, limit: int) -> Any:
        """Make a change of the cluster."""
        return self.ask(calls.Reconfigure(change), limit)

    def _answered(self, answer: Answer) -> None:
        then = self._then.pop(answer.call, None)
        if then is not None:
            then(answer.result)
