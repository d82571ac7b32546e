"""One server of a cluster in an event loop: its directory, its journals, its streams and, between them, its core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from logdb.cluster.mapping_server.server import MappingServer
from logdb.cores.effects import Address, Core, Journal, Stop
from logdb.errors import Corruption, LogDBError, NotADatabase
from logdb.log.engine import Role, ServerConfig, engine_of
from logdb.log.segments import Disk
from logdb.log.segments.store import SEGMENT_BYTES
from logdb.node.checkpoints import DAMAGE, Checkpoints, check, wipe
from logdb.node.config import MappingServerConfig
from logdb.node.disk_worker import DiskWorker
from logdb.node.host import Host
from logdb.node.journals import Journals
from logdb.security.record_permissions import check_messages
from logdb.system.directories import Kind, identify, lock, make_identity, prepare
from logdb.transport.accepted_messages import taken_by
from logdb.transport.node_authenticator import guard
from logdb.transport.peers import Peers
from logdb.wire.envelopes import VERSION, Hello

SERVER: Final = Kind("the directory of a LogDB server", "SERVER", 1)
FOUNDING: Final = Kind("what a LogDB server knows of its cluster", "FOUNDING", 1)
JOIN_POLL_S: Final = 0.05
"""So often it is looked whether a core is ready."""

logger = logging.getLogger("logdb.server")


class DamagedJournals(LogDBError):
    """A server must not start, or go on, with the journals that it has. The message says what to do about it."""


class CountingDisk(Disk):
    """Counts what is written to it."""

    def __init__(self) -> None:
        self.written_bytes = 0

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        super().write(fd, data, offset)
        self.written_bytes += len(data)


class ServerDirectory:
    """The directory of one server, locked. `fresh`: it was made just now.

    SERVER      the identity: format version, an id, the server's role and name and its cluster
    FOUNDING    the ordering layer that it has met (`Hello.founding`), once it has
    LOCK        held by the process that runs the server
    journals/   what the core keeps (`logdb/node/journals.py`)
    map/        of a mapping server instead: its checkpoint (`checkpoints.py`)
    """

    def __init__(self, path: Path, *, role: str, name: str, cluster: str) -> None:
        """Open it, or make one where there is nothing. Raises NotADatabase, Corruption, UnsupportedFormat,
        DatabaseInUse, Unavailable."""
        self.path, self.journals, self.map = path, path / "journals", path / "map"
        self._who = {"cluster": cluster, "role": role, "name": name}
        prepare(path, SERVER, create=True)
        self._lock = lock(path)
        try:
            self.fresh = not (path / SERVER.identity).exists()
            if self.fresh:
                make_identity(path, SERVER, self._who)
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        self.id, fields = identify(self.path, SERVER)
        for what, mine in self._who.items():
            if fields.get(what) != mine:
                raise NotADatabase(f"{self.path} belongs to {_shown(fields)}, not to {_shown(self._who)}")

    @property
    def founding(self) -> int:
        """The ordering layer that the server goes by; 0: it has met none. Raises Corruption, UnsupportedFormat."""
        if not (self.path / FOUNDING.identity).exists():
            return 0
        _, fields = identify(self.path, FOUNDING)
        return int(fields["founding"], 16)

    def keep_founding(self, founding: int) -> None:
        """Durable when it returns. Raises Unavailable."""
        make_identity(self.path, FOUNDING, {"founding": f"{founding:x}"})

    def renew(self) -> None:
        """Become the directory of a server that has nothing: what is left of the old journals means nothing now."""
        make_identity(self.path, SERVER, self._who)
        self._check()

    def close(self) -> None:
        """Give up the lock."""
        self._lock.release()


def _shown(who: Mapping[str, Any]) -> str:
    return f"{who.get('role')} {who.get('name')} of cluster {who.get('cluster')}"


class Server:
    """One server. `start`, then `run` until it raises or `stop` is called; `close` whatever happened.

    `address`: where it listens, once started. `role`: of its engine; None: a mapping server. A core that has nothing
    more to do and lets its journals be wiped, a storage server that was replaced, starts again with nothing, as a
    spare; and so does a mapping server that cannot go on with what it has.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.engine = engine_of(config.engine)
        self.role: Role | None = self.engine.roles.get(config.role)
        self.address: Address = config.address
        self.disk = CountingDisk()
        self.disk_full = ""
        self.wiped = 0
        self.host: Host | None = None
        self.peers: Peers | None = None
        self.worker: DiskWorker | None = None
        self._directory: ServerDirectory | None = None
        self._journals: Journals | None = None
        self.checkpoints: Checkpoints | None = None
        self._joining: asyncio.Task[None] | None = None

    # ---- the beginning

    async def start(self) -> None:
        """Open the directory, start the core, listen. Raises Damaged, Unavailable, DatabaseInUse, NotADatabase, ...;
        Insecure."""
        config = self.config
        self._directory = ServerDirectory(config.data, role=config.role, name=config.name, cluster=config.cluster)
        self.worker = DiskWorker()
        await check(self._directory.map)
        self._open_journals()
        hello = Hello(
            VERSION,
            config.cluster,
            config.role,
            config.address,
            config.ordering,
            config.mapping,
            founding=self._directory.founding,
            engine=config.engine,
        )
        authenticator, credentials = guard(config.security, config.listen, config.names)
        inspect = check_messages if config.mapping else None
        takes = taken_by(config.role, self.engine)
        self.peers = Peers(hello, takes, credentials=credentials, authenticator=authenticator, inspect=inspect)
        self.peers.founded = self._directory.keep_founding
        await self.peers.listen(config.listen)
        self._start_core()
        assert self.host is not None
        core = self.host.core
        assert core is not None
        if self.role is None or self.role.is_ready(core):
            await self._is_ready(core, self.peers)
        else:
            self._joining = asyncio.create_task(self._join(self.role, core, self.peers))

    async def _join(self, role: Role, core: Core, peers: Peers) -> None:
        """Wait until the core is ready: not before that does it serve."""
        if role.paxos_replica is not None and len(self.config.ordering) > 1:
            why = "a new group needs all of its replicas once; who has lost its disk needs more than half of them"
            logger.info(f"no member of the {role.name} group yet: waits for the others", extra={"why": why})
        while not role.is_ready(core):
            await asyncio.sleep(JOIN_POLL_S)
        if role.paxos_replica is not None and role.paxos_replica(core).has_rejoined:
            logger.info(f"has joined the {role.name} group again, with what the others know")
        await self._is_ready(core, peers)

    def _receive_from_founders(self, sender: Address, messages: Sequence[Any]) -> None:
        """What others say means something only to a core that is ready: they may go by another group of founders."""
        assert self.host is not None
        if sender in self.config.ordering:
            self.host.receive(sender, messages)

    async def _is_ready(self, core: Core, peers: Peers) -> None:
        assert self.host is not None
        if self.role is not None and self.role.paxos_replica is not None:
            peers.found(self.role.paxos_replica(core).cluster)
        peers.receive = self.host.receive
        await peers.report_health(is_serving=True)

    def _open_journals(self) -> None:
        directory, config = self._directory, self.config
        assert directory is not None
        if isinstance(config, MappingServerConfig):
            self.checkpoints = Checkpoints(
                directory.map, directory.id, config.checkpoint_mib << 20, config.checkpoint_s, self._fail
            )
            return
        role = self.role
        assert role is not None
        if not role.has_journals:
            return
        segment_bytes = SEGMENT_BYTES if role.segment_bytes is None else role.segment_bytes(config)
        try:
            self._journals = Journals(directory.journals, directory.id, segment_bytes=segment_bytes, disk=self.disk)
        except Corruption as damage:
            raise self._damaged(str(damage)) from damage
        if not role.can_start_empty and not directory.fresh and not self._journals.found():
            raise self._damaged(f"the journals in {directory.path} are gone")

    def _damaged(self, what: str) -> DamagedJournals:
        assert self.role is not None
        return DamagedJournals(f"{what}. {self.role.damage_advice(self.config)}")

    def _start_core(self) -> None:
        assert self.peers is not None
        self.host = Host(
            self.config.address,
            self._build,
            self.peers,
            journals=self._journals,
            disk=self.worker if self._journals is not None else None,
            full=self._disk_is_full,
        )
        is_founder = self.role is not None and self.role.paxos_replica is not None
        self.peers.receive = self._receive_from_founders if is_founder else self.host.receive
        if self.role is not None and self.role.receives_disconnects:
            self.peers.lost = self._lost
        self.host.start()
        if self.host.ended.done():
            self._how_it_ended()
        elif self.checkpoints is not None:
            assert isinstance(self.host.core, MappingServer)
            self.checkpoints.begin(self.host.core)

    def _lost(self, peer: Address) -> None:
        """Clients come back under another name; servers are told by their protocols' own time-outs."""
        if self.host is not None and ":" not in peer:
            self.host.lost(peer)

    def _fail(self, why: BaseException) -> None:
        if self.host is not None:
            self.host.fail(why)

    def _build(self, journals: Mapping[str, Journal], rng: Random) -> Core:
        if self.role is not None:
            return self.role.build(self.config, journals, rng)
        assert isinstance(self.config, MappingServerConfig)
        assert self.checkpoints is not None
        return MappingServer(self.config.core(), journals, rng, self.checkpoints.map)

    def _how_it_ended(self) -> Stop | None:
        assert self.host is not None
        try:
            if self.checkpoints is not None and isinstance(self.host.ended.exception(), DAMAGE):
                return Stop(f"the checkpoint is damaged: {self.host.ended.exception()}", wipe=True)
            return self.host.ended.result()
        except Corruption as damage:
            raise self._damaged(str(damage)) from damage

    # ---- while it runs

    def _disk_is_full(self, why: str) -> None:
        self.disk_full = why
        if why:
            logger.error("disk full; what cannot be written waits", extra={"why": why})
        else:
            logger.info("disk has room again")

    async def run(self) -> None:
        """Returns after `stop`. Raises what ended the core: ProtocolViolation, AssertionError, LogFailed, Damaged."""
        while True:
            assert self.host is not None
            await asyncio.wait((self.host.ended,))
            stopped = self._how_it_ended()
            if stopped is None:
                return
            await self._begin_anew(stopped)

    async def _begin_anew(self, stopped: Stop) -> None:
        if not stopped.wipe:
            raise DamagedJournals(stopped.reason)
        logger.warning("starting again with nothing", extra={"why": stopped.reason})
        assert self.host is not None
        assert self._directory is not None
        await self.host.close()
        if self._journals is not None:
            self._journals.wipe()
            self._journals.close()
        if self.checkpoints is not None:
            await self.checkpoints.close()
            wipe(self._directory.map)
        self._directory.renew()
        self.wiped += 1
        self._open_journals()
        self._start_core()

    # ---- the end

    async def stop(self) -> None:
        """End cleanly: what has been written is flushed. `run` returns."""
        if self._joining is not None:
            self._joining.cancel()
        if self.peers is not None:
            await self.peers.report_health(is_serving=False)
        if self.host is not None:
            await self.host.close()

    async def close(self) -> None:
        """Release everything, in whatever state it is. Raises LogFailed."""
        if self._joining is not None:
            self._joining.cancel()
        if self.host is not None:
            await self.host.close()
        if self.peers is not None:
            await self.peers.close()
        if self.worker is not None:
            self.worker.close()
        if self.checkpoints is not None:
            await self.checkpoints.close()
        try:
            if self._journals is not None:
                self._journals.close()
        finally:
            if self._directory is not None:
                self._directory.close()
