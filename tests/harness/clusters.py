"""Whole clusters for tests: real servers on real disks and sockets, in the event loop of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Self

from logdb.clients.background_loop import in_shared_loop
from logdb.clients.log_client import Connection, RemoteLog, connect
from logdb.log.engine import ENGINES, ServerConfig, Shape, engine_of
from logdb.node.node import Node, NodeConfig
from logdb.node.roles import MappingServerConfig
from logdb.system.addresses import location_of, role_in
from logdb.wire.envelopes import MAPPING
from tests.harness.ports import free_addresses

HEARTBEAT_MS = 25
SUSPECT_AFTER_MS = 20_000
"""Long, since most of these clusters lose no server, and the machine may be busy."""
DECIDE_MS = 3_600_000
"""Long, so that the log gets only the records that the test writes."""


class Cluster:
    """Servers by name: the letter of the role and a number; m1, m2, ... are the mapping servers. On nodes they run in
    the processes n1, n2, ... The methods that are not coroutines may be called from any thread.

    `replicas`: number of founders; `storage`: of servers that form shards, where these are not the founders;
    `aggregators`: where the engine has them; of other roles there is one, or one for each node. `policy`: as in
    `cluster.toml`, "" for the engine's first. `cold`: likewise.
    """

    def __init__(
        self,
        path: Path,
        *,
        engine: str = ENGINES[0],
        replicas: int = 1,
        storage: int = 1,
        aggregators: int = 1,
        mapping: int = 0,
        failures: int = 0,
        policy: str = "",
        suspect_after_ms: int = SUSPECT_AFTER_MS,
        decide_ms: int = DECIDE_MS,
        nodes: int = 0,
        cold: str = "",
    ) -> None:
        self.path, self._engine = path, engine_of(engine)
        self._names: dict[str, str] = {}
        addresses = self._addresses_on_nodes(nodes) if nodes else free_addresses()
        self.ordering = tuple(next(addresses) for _ in range(replicas))
        self.mapping = tuple(next(addresses) for _ in range(mapping))
        settings: dict[str, Any] = {
            "failures": failures,
            "heartbeat_ms": HEARTBEAT_MS,
            "suspect_after_ms": suspect_after_ms,
            "straggle_after_ms": 2 * suspect_after_ms,
            "election_ms": 10 * HEARTBEAT_MS,
        }
        if policy:
            settings["policy"] = self._engine.settings["policy"].check(policy)
        founders, operations = self._engine.founder_role, self._engine.operations
        numbers = {"ordering": replicas, "aggregators": aggregators}
        counts = dict.fromkeys(self._engine.roles, nodes or 1) | {operations.storage_role: storage}
        counts |= {role: numbers[field] for field, role in operations.shape_fields.items()}
        self.configs: dict[str, ServerConfig] = {}
        for role in self._engine.roles.values():
            fields = role.config.__dataclass_fields__
            own = {name: value for name, value in settings.items() if name in fields}
            own_addresses = self.ordering if role.name == founders else addresses
            for number, address in zip(range(1, counts[role.name] + 1), own_addresses, strict=False):
                name = f"{role.letter}{number}"
                self.configs[name] = role.config(**self._common(name, address), **own)
        self.members = operations.shard_size(self.configs[self.founders[0]])
        for number, address in enumerate(self.mapping, 1):
            common = self._common(f"m{number}", address)
            self.configs[f"m{number}"] = MappingServerConfig(**common, decide_ms=decide_ms, cold=cold)
        self.servers: dict[str, Node] = {}
        self.running: dict[str, asyncio.Task[None]] = {}

    @classmethod
    def of_shape(cls, path: Path, shape: Shape, **settings: Any) -> Self:
        """The servers of this shape; `settings` as above."""
        operations = engine_of(shape.engine).operations
        settings |= {key: value for key, value in operations.settings(shape).items() if key in ("failures", "policy")}
        return cls(
            path,
            engine=shape.engine,
            replicas=shape.ordering,
            storage=operations.server_counts(shape)[operations.storage_role],
            aggregators=shape.aggregators,
            mapping=shape.mapping,
            nodes=shape.nodes,
            **settings,
        )

    @property
    def processes(self) -> dict[str, NodeConfig]:
        """Every process, by name: a server of that name, or a node (n1, n2, ...)."""
        found: dict[str, tuple[ServerConfig, ...]] = {}
        for config in self.configs.values():
            found[config.name] = (*found.get(config.name, ()), config)
        return {name: NodeConfig(servers) for name, servers in found.items()}

    @property
    def founders(self) -> list[str]:
        """The names of the founders."""
        return self._servers_of(self._engine.founder_role)

    @property
    def storage(self) -> list[str]:
        """The names of the servers that form shards."""
        return self._servers_of(self._engine.operations.storage_role)

    def _servers_of(self, role: str) -> list[str]:
        return [name for name, config in self.configs.items() if config.role == role]

    def _addresses_on_nodes(self, nodes: int) -> Iterator[str]:
        """Addresses of the founders, then of the mapping servers, then of the other roles, on this number of nodes."""
        locations = list(islice(free_addresses(), nodes))
        self._names = {location: f"n{number}" for number, location in enumerate(locations, 1)}
        founders = self._engine.founder_role
        others = [role for role in self._engine.roles if role != founders]
        for role in (founders, MAPPING, *others):
            yield from (f"{location}/{role}" for location in locations)

    def _common(self, name: str, address: str) -> dict:
        location = location_of(address)
        name = self._names.get(location, name)
        return {
            "name": name,
            "cluster": "test",
            "listen": location,
            "address": address,
            "data": self.path / name / role_in(address),
            "engine": self._engine.name,
            "ordering": self.ordering,
            "mapping": self.mapping,
        }

    # ---- coroutines

    async def begin(self, name: str) -> None:
        server = self.servers[name] = Node(self.processes[name])
        await server.start()
        self.running[name] = asyncio.create_task(server.run())

    async def end(self, name: str) -> None:
        server = self.servers.pop(name)
        try:
            if name in self.running:
                await server.stop()
                await self.running.pop(name)
        finally:
            await server.close()

    async def begin_all(self) -> None:
        """Start all servers, mapping servers last."""
        await self._begin_log()
        await self._begin_mapping()

    async def _begin_log(self) -> None:
        """Start the servers of the log, the others once the founders serve: they would repeat what these do not answer
        yet."""
        founders = {self.configs[name].name for name in self.founders}
        await asyncio.gather(*[self.begin(name) for name in founders])
        for peers in [self.servers[name].peers for name in founders]:
            while peers is not None and not peers.hello.founding:
                await asyncio.sleep(0.005)
        others = [name for name, process in self.processes.items() if process.role != MAPPING]
        await asyncio.gather(*[self.begin(name) for name in others if name not in founders])

    async def _begin_mapping(self) -> None:
        names = [name for name, process in self.processes.items() if process.role == MAPPING]
        await asyncio.gather(*[self.begin(name) for name in names])

    async def end_all(self) -> None:
        await asyncio.gather(*[self.end(name) for name in list(self.servers)])

    # ---- from threads

    def check(self) -> None:
        """Raise the error that has ended a server, if any."""
        for running in self.running.values():
            assert not running.done(), running.exception()

    def name_of(self, address: str) -> str:
        return next(name for name, config in self.configs.items() if config.address == address)

    def start(self, shards: int) -> None:
        """Start all servers, and add shards until there are `shards`, which mapping servers then find at once."""
        in_shared_loop(self._begin_log())
        spares = len(set(self.storage) - set(self.founders))
        with self.connect() as log:
            while len(log.configuration().spares) < spares:
                pass
            while log.configuration().next_shard <= shards:
                log.add_shard()
        in_shared_loop(self._begin_mapping())

    def connect(self) -> RemoteLog:
        return connect(location_of(self.ordering[0]))

    def close(self) -> None:
        in_shared_loop(self.end_all())


class ClusterLog(RemoteLog):
    """The log of a cluster of its own. Closing it ends the cluster."""

    def __init__(self, cluster: Cluster, shards: int) -> None:
        cluster.start(shards)
        super().__init__(in_shared_loop(Connection.open(cluster.ordering, 10.0)), 30.0)
        self._cluster = cluster

    def close(self) -> None:
        super().close()
        self._cluster.close()
