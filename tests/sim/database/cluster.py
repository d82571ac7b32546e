"""A cluster with a database on it: mapping servers and transaction clients on an engine's cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from logdb.cluster.client import requests as calls
from logdb.cluster.client.database_client import DatabaseClient, DatabaseConfig
from logdb.cluster.compaction.compactor import Phase
from logdb.cluster.compaction.records import decode_beginning, decode_part
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cluster.messages import Hold, MapRows
from logdb.cluster.placement import ByHash, ByPrefix, Placement
from logdb.cores.effects import Address, Call, Effect, Event, Received
from logdb.log import requests as log
from logdb.log.contract import Batch, LogRecord
from logdb.log.requests import ClientConfig
from logdb.store.limits import INLINE_VALUE_BYTES
from logdb.store.records import BEGINNING, COMMIT, ENDING, PART, Place, decode_commit, digest
from tests.sim.cluster import Cluster, Shape
from tests.sim.database.cold import SimulatedColdTier
from tests.sim.database.floors import Floors
from tests.sim.database.tables import Drive
from tests.sim.engines import simulation_of
from tests.sim.faults import Faults, Trouble
from tests.sim.process import Process
from tests.sim.world import Failure, World

KEEP_DECISIONS = 10_000
PLACEMENTS: tuple[Placement | None, ...] = (None, None, ByHash((1, 2)), ByPrefix({b"list": 1, b"cell": 2}))


@dataclass(frozen=True, slots=True)
class Top:
    """The database of a cluster. `peers`: whether mapping servers take checkpoints from each other. `disk`: whether
    they have one, with a checkpoint every `every_s` seconds (of 20 ms) or `overlay_bytes`. `cold`: how many of the
    servers, from the last one on, know that the cluster has a cold tier.
    """

    servers: int = 2
    clients: int = 2
    peers: bool = True
    small_messages: bool = False
    placement: int = 0
    hedge: float = 2.0
    decide: float = 4.0
    disk: bool = False
    overlay_bytes: int = 4_000
    every_s: float = 2.0
    takeover: float = 6.0
    sweep: float = 0.0
    cold: int = 0


class DatabaseCluster(Cluster):
    """`mapping` and `clients` are the processes of the database. `hedge`, `decide`, `takeover`, `sweep` are
    heartbeats.

    `checkpoints`: the number of checkpoints that a mapping server took from another one. `drives`: the disks of mapping
    servers. `floors`: the versions that compactions have allowed so far. `received_leases`: by mapping server and
    client, the last lease that the server received, and the time by its clock. `is_calm`: no fault delays leases for
    long. `at_ending` is called with the next server that is about to end a compaction.
    """

    def __init__(self, world: World, shape: Shape, top: Top) -> None:
        self._servers = tuple(f"mapping-{number}" for number in range(1, top.servers + 1))
        super().__init__(world, shape)  # type: ignore[call-arg]  # the engine's class: `cluster_on`
        self.top = top
        self.mapping: list[Process] = []
        self.checkpoints = 0
        self._joining: set[Address] = set()
        self.drives: dict[Address, Drive] = {}
        self.floors = Floors()
        self.received_leases: dict[Address, dict[Address, tuple[int, int]]] = {}
        self.is_calm = False
        self._leases: dict[tuple[Address, Any], tuple[int, int]] = {}
        self.at_ending: Callable[[Process], None] | None = None
        self.cold_tier = SimulatedColdTier(world, world.draw("cold tier"))
        self.archive: dict[int, LogRecord] = {}
        self.values: dict[bytes, bytes] = {}
        for address in self._servers:
            self._add_mapping(address)
        for number in range(1, top.clients + 1):
            self.add_application(f"application-{number}")

    def client_config(self, address: Address) -> ClientConfig:
        """A mapping server on a node has the servers of that node beside it."""
        config = super().client_config(address)
        at = self._servers.index(address) if address in self._servers else len(self.nodes)
        if at >= len(self.nodes):
            return config
        neighbours = frozenset([server.address for server in self.nodes[at]])
        return replace(config, local=self.founders[at], neighbours=neighbours)

    def wipe(self, process: Process) -> None:
        super().wipe(process)
        for one in self.node_of(process):
            if one.address in self.drives:
                self.drives[one.address].wipe()

    def _restart_empty(self, process: Process, *_: Any) -> None:
        """Restart a server with an empty map, after it stopped because the records that it needs were trimmed."""
        self.world.counts["server restarts empty"] += 1
        self.world.after(self.shape.heartbeat_ns, self.revive, process)

    def keep(self, batch: Batch) -> None:
        """Keep records before a compaction trims them: every server that trims has applied them."""
        for record in batch.records:
            assert self.archive.setdefault(record.gsn, record) == record, "DBS-1"
        self.floors.fold(batch)

    def _look(self, process: Process) -> None:
        """Count the checkpoints that were taken from another server."""
        core: Any = process.core
        if core.bootstrap.is_active:
            self._joining.add(process.address)
        elif process.address in self._joining:
            self._joining.discard(process.address)
            self.checkpoints += core.replica.applied > 0

    def _mapping_core(self, address: Address) -> Any:
        unit, top = self.shape.heartbeat_ns, self.top
        config = MappingConfig(
            address=address,
            log=self.client_config(address),
            build_log=self.build_client,
            peers=tuple(other for other in self._servers if other != address) if top.peers else (),
            answer_bytes=200 if top.small_messages else 1 << 20,
            request_ttl_ns=20 * unit,
            keep_decisions=KEEP_DECISIONS,
            decide_ns=int(top.decide * unit),
            gather_ns=unit,
            lease_ns=20 * unit,
            takeover_ns=int(top.takeover * unit),
            has_cold_tier=address in self._servers[max(top.servers - top.cold, 0) :],
            sweep_ns=int(top.sweep * unit),
        )

        def build(journals: Any, rng: Any) -> MappingServer:
            drive = self.drives.get(address)
            key_map = None
            if drive is not None:
                key_map = drive.mount().map
                self.world.after(0, drive.begin)
            server = MappingServer(config, journals, rng, key_map)
            replica = server.replica
            if replica.applied:
                self._check_restored(address, replica)

            def apply(batch: Batch) -> Any:
                self.keep(batch)
                decided = type(replica).apply(replica, batch)
                allowed, has = self.floors.at(replica.applied), (replica.coordinator.floor, replica.cleaned)
                assert has == allowed, f"DBS-11: floor and cleaned at {replica.applied} are {has}, not {allowed}"
                if batch.records and batch.records[-1].tag == ENDING:
                    self._check_restated(replica)
                return decided

            replica.apply = apply  # type: ignore[method-assign]
            self._listen(server, config, self.network.processes[address])
            return server

        return build

    def _check_restored(self, address: Address, replica: Replica) -> None:
        """The map on disk equals a replay of the log up to there (MAP-4). An interrupted checkpoint may have newer
        places of large values."""
        self.world.counts["started from a checkpoint on disk"] += 1
        records = [record for gsn, record in sorted(self.archive.items()) if gsn <= replica.applied]
        replayed = Replica(None, KEEP_DECISIONS)
        replayed.apply(Batch(1, replica.applied + 1, records))
        if _without_places(replayed.image()) != _without_places(replica.image()):
            raise Failure("a checkpoint on disk equals the state at its version", f"{address} at {replica.applied}")

    def _check_restated(self, replica: Replica) -> None:
        """DBS-13: records from which a rebuild reads large values may not be trimmed."""
        floor, began = replica.cleaned, replica.ended
        restated = {}
        for gsn, (_, _, tag, payload) in self.archive.items():
            if tag == PART and began < gsn <= replica.applied:
                of, part = decode_part(payload)
                if of == began and isinstance(part, MapRows):
                    restated.update({(key, version): value for key, version, value, _ in part.rows})
        for gsn, (_, _, tag, payload) in self.archive.items():
            if tag == COMMIT and floor <= gsn < began:
                for key, value in decode_commit(payload, gsn).writes.items():
                    value = restated.get((key, gsn), value)
                    lost = isinstance(value, Place) and value.gsn < floor
                    if lost and replica.map.newer(key, 0, gsn) == gsn:
                        what = f"version {gsn} of {key!r} is stored at {value}, before the floor {floor}"
                        raise Failure("DBS-13: a compaction restates values before its floor", what)

    def _listen(self, server: MappingServer, config: MappingConfig, process: Process) -> None:
        """Check a server's compactions by the leases that it has received."""
        line, handle, judged = server.log.call, server.handle, [()]
        received_leases = self.received_leases[config.address] = {}

        def record(event: Event, now: int) -> list[Effect]:
            if isinstance(event, Received) and isinstance(event.message, Hold):
                received_leases[event.sender] = event.message.version, process.now
            return handle(event, now)

        def call(request: Any, then: Any) -> int:
            if type(request) is log.Trim:
                _, cleaned = self.floors.at(server.replica.applied)
                if request.gsn > cleaned:
                    at = server.replica.applied
                    what = f"{config.address} trims to {request.gsn} at {at}, where {cleaned} is allowed"
                    raise Failure("DBS-12: the log is trimmed after the ENDING", what)
                if self.floors.copied is not None and request.gsn > max(self.floors.attached, self.cold_tier.through):
                    what = f"{config.address} trims to {request.gsn}, {self.cold_tier.through} is in the cold tier"
                    raise Failure("DBS-20: the log is trimmed after the copy", what)
            elif type(request) is log.Append and request.records[0][0] == BEGINNING and judged[0] is not request:
                judged[0] = request
                before = decode_beginning(request.records[0][1]).before
                since = process.now - config.lease_ns
                tiered = server.replica.coordinator.floor if config.has_cold_tier else 0
                for client, (version, received) in received_leases.items():
                    if version and received >= since and tiered <= version < before:
                        what = f"{config.address} compacts to {before}, {client} has a lease on {version}"
                        raise Failure("leased versions are not compacted", what)
                late = self.world.now - self.shape.heartbeat_ns
                for (client, holder), (version, since) in self._leases.items():
                    if self.is_calm and tiered <= version < before and since < late:
                        what = f"{config.address} compacts to {before}, {client} has a lease on {version} for {holder}"
                        raise Failure("leases reach the servers in time", what)
            elif type(request) is log.Append and request.records[0][0] == ENDING and self.at_ending is not None:
                trap, self.at_ending = self.at_ending, None
                trap(process)
            return line(request, then)

        server.handle = record  # type: ignore[method-assign]
        server.log.call = call  # type: ignore[method-assign]

    def add_server_alone(self, address: Address) -> Process:
        """Add a mapping server without peers, not started."""
        self.top = replace(self.top, peers=False)
        return self._add_mapping(address)

    def _add_mapping(self, address: Address) -> Process:
        server = self._add(self.mapping, address, "mapping", self._mapping_core(address))
        server.watch, server.on_stop = self._look, self._restart_empty
        server.on_archive, server.on_recall = self.cold_tier.archive, self.cold_tier.recall
        if self.top.disk:
            drive = self.drives[address] = Drive(server, self.top.overlay_bytes, self.top.every_s)
            server.on_end = drive.crash
        return server

    def add_application(self, address: Address) -> Process:
        """Add a client of the database, not started."""
        config = DatabaseConfig(
            address=address,
            servers=self._servers,
            log=self.client_config(address),
            build_log=self.build_client,
            placement=PLACEMENTS[self.top.placement],
            hedge_ns=int(self.top.hedge * self.shape.heartbeat_ns),
            keys_per_read=2 if self.top.small_messages else 500,
            renewal_ns=self.shape.heartbeat_ns // 3,
        )

        def build(journals: Any, rng: Any) -> DatabaseClient:
            client = DatabaseClient(config, journals, rng)
            handle = client.handle

            def record(event: Event, now: int) -> list[Effect]:
                if isinstance(event, Call) and isinstance(event.request, calls.Commit):
                    for value in event.request.writes.values():
                        if value is not None and len(value) > INLINE_VALUE_BYTES:
                            self.values[digest(value)] = value
                if isinstance(event, Call) and isinstance(event.request, calls.LeaseVersion):
                    holder = address, event.request.holder
                    self._leases.pop(holder, None)
                    if event.request.version:
                        self._leases[holder] = event.request.version, self.world.now
                return handle(event, now)

            client.handle = record  # type: ignore[method-assign]
            return client

        return self._add(self.clients, address, "client", build)

    def present(self) -> list[Process]:
        """The mapping servers without those that do not come back."""
        return [process for process in self.mapping if process.address not in self.retired]

    def replicas(self) -> list[Replica]:
        """The replicas of the running mapping servers."""
        cores: list[Any] = [process.core for process in self.mapping if process.core is not None]
        return [core.replica for core in cores]


@cache
def cluster_on(engine: str) -> Callable[[World, Shape, Top], DatabaseCluster]:
    """Builds a cluster of this engine with a database on it."""
    return type("DatabaseCluster", (DatabaseCluster, simulation_of(engine).Cluster), {})  # type: ignore[arg-type]


@cache
def faults_on(engine: str) -> Callable[[DatabaseCluster, Any, Trouble], DatabaseFaults]:
    """Injects faults there."""
    return type("DatabaseFaults", (DatabaseFaults, simulation_of(engine).Faults), {})  # type: ignore[arg-type]


def _without_places(image: list[Any]) -> list[Any]:
    """The state of a server, without the places of large values."""
    return [
        [row._replace(value=row.value[2:]) if isinstance(row.value, Place) else row for row in part.rows]
        if isinstance(part, MapRows)
        else part
        for part in image
    ]


class DatabaseFaults(Faults):
    """The faults of the engine, and those of mapping servers."""

    def _fault(self, _: None) -> None:
        if self.healed:
            return
        name = self.draw.choice(self.trouble.faults)
        if MAPPING_FAULTS[name](self) if name in MAPPING_FAULTS else self.FAULTS[name](self):
            self._count(name)
        self.world.after(self._wait(self.trouble.every_ns), self._fault)

    def heal(self) -> None:
        assert isinstance(self.cluster, DatabaseCluster)
        for drive in self.cluster.drives.values():
            drive.is_full, drive.trap = False, None
        self.cluster.at_ending = None
        self.cluster.cold_tier.heal()
        super().heal()

    def _mapping(self) -> Process | None:
        return self._someone("mapping")

    def kill_mapping(self) -> bool:
        return self._kill_one("mapping")

    def kill_all_mapping(self) -> bool:
        """Kill all mapping servers, so that none with a checkpoint remains."""
        assert isinstance(self.cluster, DatabaseCluster)
        for process in self.cluster.mapping:
            if process.core is not None:
                self._kill(process, self._span())
        return True

    def pause_mapping(self) -> bool:
        process = self._mapping()
        if process is not None:
            self._pause(process, self._span())
        return process is not None

    def isolate_mapping(self) -> bool:
        """Cut a mapping server off from all others, or from the log alone, so that clients can still reach it."""
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
            self._jump(process, int(self.draw.random() ** 3 * 20 * self.cluster.shape.heartbeat_ns))
        return process is not None

    def _drive(self) -> tuple[Process, Drive] | None:
        """A running mapping server, and its disk."""
        process = self._mapping()
        assert isinstance(self.cluster, DatabaseCluster)
        drive = self.cluster.drives.get(process.address) if process is not None else None
        return None if process is None or drive is None else (process, drive)

    def lose_mapping_disk(self) -> bool:
        """Kill it, and lose its disk."""
        found = self._drive()
        if found is not None:
            self._kill(found[0], self._span())
            found[1].wipe()
        return found is not None

    def kill_mapping_in_mid_checkpoint(self) -> bool:
        """Kill it during its next checkpoint, between two transactions of the disk. After the restart the log may be
        unreachable for a while, so that it has only its disk."""
        found = self._drive()
        if found is None:
            return False
        process, drive = found
        life, down = process.lives, self._span()
        is_apart = self.draw.random() < 0.5
        others = [other.address for other in self.cluster.processes() if other.kind not in ("client", "mapping")]

        def kill(_: Any) -> None:
            if process.core is not None and process.lives == life and not self.healed:
                self._kill(process, down)
                if is_apart:
                    self._partition([process.address], others, False, down + self._span())

        def strike(took: int) -> None:
            self.world.after(int(self.draw.random() * took), kill)

        drive.trap = strike
        return True

    def full_mapping_disk(self) -> bool:
        found = self._drive()
        if found is not None:
            found[1].is_full = True
            self.world.after(self._span(), self._free_mapping_disk, found[1])
        return found is not None

    def _free_mapping_disk(self, drive: Drive) -> None:
        drive.is_full = False

    def _compacting(self) -> Process | None:
        """A mapping server during a compaction."""
        assert isinstance(self.cluster, DatabaseCluster)
        up: list[Any] = [one for one in self.cluster.mapping if one.core is not None]
        found: Process | None = self._pick([one for one in up if one.core.compactor.phase is not Phase.IDLE])
        return found

    def kill_compacting(self) -> bool:
        """Kill it, with and without time for another one to take over."""
        process = self._compacting()
        if process is not None:
            self._kill(process, self.draw.randint(0, 10) * self.cluster.shape.heartbeat_ns + 1)
        return process is not None

    def pause_ending(self) -> bool:
        """Pause the next server that ends a compaction, so that another one may begin one meanwhile."""
        assert isinstance(self.cluster, DatabaseCluster)

        def strike(process: Process) -> None:
            self.world.after(0, pause, process)

        def pause(process: Process) -> None:
            if process.core is not None and not self.healed:
                self._pause(process, self.draw.randint(6, 20) * self.cluster.shape.heartbeat_ns)

        self.cluster.at_ending = strike
        return True

    def pause_compacting(self) -> bool:
        """Pause it, so that it resumes after another one has taken over."""
        process = self._compacting()
        if process is not None:
            self._pause(process, self.draw.randint(1, 12) * self.cluster.shape.heartbeat_ns)
        return process is not None


MAPPING_FAULTS: dict[str, Any] = {
    "kill mapping": DatabaseFaults.kill_mapping,
    "kill all mapping": DatabaseFaults.kill_all_mapping,
    "pause mapping": DatabaseFaults.pause_mapping,
    "isolate mapping": DatabaseFaults.isolate_mapping,
    "jump mapping": DatabaseFaults.jump_mapping,
    "lose mapping disk": DatabaseFaults.lose_mapping_disk,
    "kill mapping in mid checkpoint": DatabaseFaults.kill_mapping_in_mid_checkpoint,
    "full mapping disk": DatabaseFaults.full_mapping_disk,
    "kill who compacts": DatabaseFaults.kill_compacting,
    "pause who compacts": DatabaseFaults.pause_compacting,
    "pause who ends a compaction": DatabaseFaults.pause_ending,
}
