"""A node: one process at one address, with the servers of one role or of several.

The servers of a node share its event loop, its streams, its disk worker and its health. A message between two of them
is a call. A node fails as a whole: an error that ends one of its servers ends the process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from logdb.cores.effects import Address
from logdb.log.engine import ServerConfig
from logdb.node.disk_worker import DiskWorker
from logdb.node.server import Server
from logdb.node.storage import CountingDisk, DamagedJournals
from logdb.security.record_permissions import check_messages
from logdb.system.addresses import location_of, role_in
from logdb.transport.node_authenticator import guard
from logdb.transport.peers import Peers
from logdb.wire.envelopes import NODE, VERSION, Hello


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The servers of one process, at least one. They agree on everything but their role, address and directory."""

    servers: tuple[ServerConfig, ...]

    @property
    def first(self) -> ServerConfig:
        """The configuration of one server, for the settings that all share."""
        return self.servers[0]

    @property
    def name(self) -> str:
        """The name of its table in `cluster.toml`."""
        return self.first.name

    @property
    def role(self) -> str:
        """The kind of its table: "node", or the role of a server with an address of its own."""
        return NODE if role_in(self.first.address) else self.first.role

    @property
    def address(self) -> Address:
        """The address at which other nodes reach it."""
        return location_of(self.first.address)

    @property
    def title(self) -> str:
        """The name of the node in messages to people."""
        return f"{self.role} {self.name}"


class Node:
    """`start`, then `run` until it raises or `stop` is called; `close` in any case."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.disk = CountingDisk()
        self.servers: Final = tuple(Server(server, self.disk) for server in config.servers)
        self.peers: Peers | None = None
        self.worker: DiskWorker | None = None
        self._joining: asyncio.Task[None] | None = None

    # ---- starting

    async def start(self) -> None:
        """Open the directories, start the cores, listen. Raises DamagedJournals, Unavailable, DatabaseInUse,
        NotADatabase, Insecure, ..."""
        first = self.config.first
        self.worker = DiskWorker(max(1, sum([server.role.has_journals for server in self.servers])))
        for server in self.servers:
            await server.open()
        authenticator, credentials = guard(first.security, first.listen, first.names)
        self.peers = Peers(
            self._hello(),
            credentials=credentials,
            authenticator=authenticator,
            inspect=check_messages if first.mapping else None,
        )
        self.peers.on_founded = self._keep_founding
        await self.peers.listen(first.listen)
        for server in self.servers:
            server.start(self.peers.attach(server.config.address, server.role.accepts), self.worker)
        self._joining = asyncio.create_task(self._join(self.peers))

    def _hello(self) -> Hello:
        """Raises DamagedJournals."""
        config, first = self.config, self.config.first
        foundings = {server.directory.founding for server in self.servers if server.directory is not None} - {0}
        if len(foundings) > 1:
            raise DamagedJournals(
                f"the servers of {config.title} belong to different ordering layers: restore their directories ("
                f"{', '.join(str(server.config.data) for server in self.servers)}), or begin again with empty "
                "directories of all servers"
            )
        return Hello(
            VERSION,
            first.cluster,
            config.role,
            config.address,
            first.ordering,
            first.mapping,
            founding=foundings.pop() if foundings else 0,
            engine=first.engine,
            roles=tuple(server.role.name for server in self.servers) if config.role == NODE else (),
        )

    def _keep_founding(self, founding: int) -> None:
        for server in self.servers:
            if server.directory is not None and server.directory.founding != founding:
                server.directory.keep_founding(founding)

    async def _join(self, peers: Peers) -> None:
        """Report the node as healthy once all of its servers serve. Raises DamagedJournals."""
        for server in self.servers:
            founding = await server.join()
            if founding:
                self._meet(peers, founding)
        await peers.report_health(is_serving=True)

    def _meet(self, peers: Peers, founding: int) -> None:
        """The founder of this node is a member of this ordering layer; so are the other servers of the node from now
        on, unless they have met another one."""
        for server in self.servers:
            if server.is_founder or server.directory is None:
                continue
            known = server.directory.founding
            if known not in (0, founding):
                raise DamagedJournals(
                    f"{server.config.data} belongs to ordering layer {known:x}, and the founder of this node to another"
                    f" one ({founding:x}), which was founded after all replicas had lost their data: restore their "
                    "directories, or begin again with empty directories of all servers"
                )
            if not known:
                server.directory.keep_founding(founding)
        peers.found(founding)

    # ---- running

    async def run(self) -> None:
        """Run until `stop`. Raises what ends a server: ProtocolViolation, AssertionError, LogFailed,
        DamagedJournals."""
        running = [asyncio.create_task(server.run()) for server in self.servers]
        waiting: set[asyncio.Task[None]] = {*running, *([self._joining] if self._joining is not None else [])}
        try:
            while any(not task.done() for task in running):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not task.cancelled():
                        task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    # ---- stopping

    async def stop(self) -> None:
        """Stop cleanly, with everything flushed that was written. `run` returns."""
        if self._joining is not None:
            self._joining.cancel()
        if self.peers is not None:
            await self.peers.report_health(is_serving=False)
        for server in self.servers:
            await server.stop()

    async def close(self) -> None:
        """Release everything, in any state. Raises LogFailed."""
        if self._joining is not None:
            self._joining.cancel()
        for server in self.servers:
            await server.stop()
        if self.peers is not None:
            await self.peers.close()
        if self.worker is not None:
            self.worker.close()
        for server in self.servers:
            await server.close()
