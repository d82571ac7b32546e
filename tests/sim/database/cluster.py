"""A cluster with a database on it: mapping servers and transaction clients beside all that `tests.sim.cluster` has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from logdb.cluster import calls
from logdb.cluster.database_client import DatabaseClient, DatabaseConfig
from logdb.cluster.mapping_server import MappingConfig, MappingServer
from logdb.cluster.placement import ByHash, ByPrefix, Placement
from logdb.cluster.replica import Replica
from logdb.log.contract import Batch, LogRecord
from logdb.log.cores import Address, Call, Effect, Event
from logdb.store.limits import INLINE_VALUE_BYTES
from logdb.store.records import digest
from tests.sim.cluster import Cluster, Shape
from tests.sim.faults import FAULTS, Faults
from tests.sim.process import Process
from tests.sim.world import World

PLACEMENTS: tuple[Placement | None, ...] = (None, None, ByHash((1, 2)), ByPrefix({b"list": 1, b"cell": 2}))


@dataclass(frozen=True, slots=True)
class Top:
    """What stands on the log. `peers`: whether mapping servers take checkpoints from each other."""

    servers: int = 2
    clients: int = 2
    peers: bool = True
    small_messages: bool = False
    placement: int = 0
    hedge: float = 2.0
    decide: float = 4.0


class DatabaseCluster(Cluster):
    """`mapping` and `clients` are the processes of the database. `hedge` and `decide` of `top` are heartbeats.

    `checkpoints`: so many were taken by one mapping server from another.
    """

    def __init__(self, world: World, shape: Shape, top: Top) -> None:
        super().__init__(world, shape)
        self.top = top
        self.mapping: list[Process] = []
        self.checkpoints = 0
        self._joining: set[Address] = set()
        self.archive: dict[int, LogRecord] = {}
        self.values: dict[bytes, bytes] = {}
        self._servers = tuple(f"mapping-{number}" for number in range(1, top.servers + 1))
        for address in self._servers:
            server = self._add(self.mapping, address, "mapping", self._mapping_core(address))
            server.watch, server.on_stop = self._look, self._begin_anew
        for number in range(1, top.clients + 1):
            self.add_application(f"application-{number}")

    def _begin_anew(self, process: Process, *_: Any) -> None:
        """A server that lacks what was trimmed has stopped: it is started again, with nothing."""
        self.world.counts["server begins anew"] += 1
        self.world.after(self.shape.heartbeat_ns, lambda _: None if process.core is not None else process.start(), None)

    def keep(self, batch: Batch) -> None:
        """What is in the log before a compaction trims it: whoever does that has applied it."""
        for record in batch.records:
            assert self.archive.setdefault(record.lsn, record) == record, "DBS-1"

    def _look(self, process: Process) -> None:
        """Count the checkpoints that were taken from another server."""
        core: Any = process.core
        if core._joined is not None:
            self._joining.add(process.address)
        elif process.address in self._joining:
            self._joining.discard(process.address)
            self.checkpoints += core.replica.applied > 0

    def _mapping_core(self, address: Address) -> Any:
        unit, top = self.shape.heartbeat_ns, self.top
        config = MappingConfig(
            address=address,
            log=self.client_config(address),
            peers=tuple(other for other in self._servers if other != address) if top.peers else (),
            answer_bytes=200 if top.small_messages else 1 << 20,
            patience_ns=20 * unit,
            decide_ns=int(top.decide * unit),
            gather_ns=unit,
            lease_ns=20 * unit,
            takeover_ns=6 * unit,
        )

        def build(journals: Any, rng: Any) -> MappingServer:
            server = MappingServer(config, journals, rng)
            replica = server.replica

            def apply(batch: Batch) -> Any:
                self.keep(batch)
                return type(replica).apply(replica, batch)

            replica.apply = apply  # type: ignore[method-assign]
            return server

        return build

    def add_server_alone(self, address: Address) -> Process:
        """One more mapping server, not started, that knows no other one."""
        self.top = replace(self.top, peers=False)
        return self._add(self.mapping, address, "mapping", self._mapping_core(address))

    def add_application(self, address: Address) -> Process:
        """One more client of the database, not started."""
        config = DatabaseConfig(
            address=address,
            servers=self._servers,
            log=self.client_config(address),
            placement=PLACEMENTS[self.top.placement],
            hedge_ns=int(self.top.hedge * self.shape.heartbeat_ns),
            keys_per_read=2 if self.top.small_messages else 500,
            hold_ns=self.shape.heartbeat_ns // 3,
        )

        def build(journals: Any, rng: Any) -> DatabaseClient:
            client = DatabaseClient(config, journals, rng)
            handle = client.handle

            def seen(event: Event, now: int) -> list[Effect]:
                if isinstance(event, Call) and isinstance(event.request, calls.Commit):
                    for value in event.request.writes.values():
                        if value is not None and len(value) > INLINE_VALUE_BYTES:
                            self.values[digest(value)] = value
                return handle(event, now)

            client.handle = seen  # type: ignore[method-assign]
            return client

        return self._add(self.clients, address, "client", build)

    def replicas(self) -> list[Replica]:
        """What the mapping servers hold."""
        cores: list[Any] = [process.core for process in self.mapping if process.core is not None]
        return [core.replica for core in cores]


class DatabaseFaults(Faults):
    """The same trouble, and mapping servers have their share of it."""

    def _fault(self, _: None) -> None:
        if self.healed:
            return
        name = self.draw.choice(self.trouble.faults)
        if MAPPING_FAULTS[name](self) if name in MAPPING_FAULTS else FAULTS[name](self):
            self._count(name)
        self.world.after(self._wait(self.trouble.every_ns), self._fault)

    def _mapping(self) -> Process | None:
        return self._someone("mapping")

    def kill_mapping(self) -> bool:
        return self._kill_one("mapping")

    def kill_all_mapping(self) -> bool:
        """None is left that has a checkpoint."""
        assert isinstance(self.cluster, DatabaseCluster)
        for process in self.cluster.mapping:
            if process.core is not None:
                self._kill(process, self._span())
        return True

    def pause_mapping(self) -> bool:
        process = self._mapping()
        if process is not None:
            process.pause()
            self.world.after(self._span(), self._resume, process)
        return process is not None

    def isolate_mapping(self) -> bool:
        """From everybody, or from the log alone: clients still ask it."""
        process = self._mapping()
        if process is None:
            return False
        clients = {client.address for client in self.cluster.clients} if self.draw.random() < 0.6 else set()
        others = [other.address for other in self.cluster.processes() if other is not process]
        apart = [address for address in others if address not in clients]
        return self._partition([process.address], apart, self.draw.random() < 0.3)

    def jump_mapping(self) -> bool:
        process = self._mapping()
        if process is not None:
            process.jump(int(self.draw.random() ** 3 * 20 * self.cluster.shape.heartbeat_ns))
        return process is not None


MAPPING_FAULTS: dict[str, Any] = {
    "kill mapping": DatabaseFaults.kill_mapping,
    "kill all mapping": DatabaseFaults.kill_all_mapping,
    "pause mapping": DatabaseFaults.pause_mapping,
    "isolate mapping": DatabaseFaults.isolate_mapping,
    "jump mapping": DatabaseFaults.jump_mapping,
}
