"""One server of a cluster in the event loop of its node: its directory, its persistent state, its core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from logdb.cores.effects import Address, Core, Stop
from logdb.log.engine import ServerConfig
from logdb.log.segments import Disk
from logdb.node.directory import ServerDirectory
from logdb.node.disk_worker import DiskWorker
from logdb.node.host import Host
from logdb.node.roles import role_of
from logdb.node.storage import DamagedJournals, Storage, storage_of
from logdb.transport.peers import Port

JOIN_POLL_S: Final = 0.05
"""Interval between two checks whether a core is ready."""

logger = logging.getLogger("logdb.server")


class Server:
    """One server. `open`, then `start`, then `run` until it raises or `stop` is called; `close` in any case.

    A storage server that was replaced starts again without records, as a spare; so does a mapping server whose
    checkpoint is damaged. `wiped` counts these restarts. `disk_full`: why the disk accepts no more writes, "" if it
    does.
    """

    def __init__(self, config: ServerConfig, disk: Disk) -> None:
        self.config, self.role = config, role_of(config)
        self.disk_full = ""
        self.wiped = 0
        self.host: Host | None = None
        self.storage: Storage | None = None
        self.directory: ServerDirectory | None = None
        self._is_stopping = False
        self._disk = disk
        self._port: Port | None = None
        self._worker: DiskWorker | None = None

    # ---- starting

    async def open(self) -> None:
        """Lock the directory and open the state. Raises DamagedJournals, Unavailable, DatabaseInUse, NotADatabase,
        Corruption."""
        config = self.config
        self.directory = ServerDirectory(config.data, role=config.role, name=config.name, cluster=config.cluster)
        self.storage = storage_of(config, self.role, self.directory, self._disk, self._fail)
        await self.storage.open()

    def start(self, port: Port, worker: DiskWorker) -> None:
        """Start the core. Raises DamagedJournals, and what the core raises."""
        self._port, self._worker = port, worker
        self._start_core()

    def _start_core(self) -> None:
        storage, port = self.storage, self._port
        assert storage is not None
        assert port is not None
        journals = storage.journals
        self.host = Host(
            self.config.address,
            storage.build,
            port,
            journals=journals,
            disk=self._worker if journals is not None else None,
            archive=None if storage.cold is None else storage.cold.archive,
            recall=None if storage.cold is None else storage.cold.recall,
            full=self._on_disk_full,
        )
        port.receive = self._receive_from_founders if self.is_founder else self.host.receive
        if self.role.notices_lost:
            port.lost = self._on_lost
        self.host.start()
        if self.host.ended.done():
            self._end_of_core()  # raises the error that ended it
        else:
            storage.on_started()

    def _receive_from_founders(self, sender: Address, messages: Sequence[Any]) -> None:
        """Deliver messages of founders only: until this founder has joined its group, other servers may belong to
        another group."""
        assert self.host is not None
        if sender in self.config.ordering:
            self.host.receive(sender, messages)

    def _on_lost(self, peer: Address) -> None:
        """Report lost clients to servers of the log, since they return under another name, and lost servers to the log
        client in a mapping server. The protocols between servers detect losses by timeouts."""
        kind = "servers" if ":" in peer else "clients"
        if self.host is not None and kind == self.role.notices_lost:
            self.host.lost(peer)

    def _on_disk_full(self, reason: str) -> None:
        self.disk_full = reason
        if reason:
            logger.error("disk full; writes wait", extra={"why": reason})
        else:
            logger.info("the disk has space again")

    def _fail(self, error: BaseException) -> None:
        if self.host is not None:
            self.host.fail(error)

    # ---- joining

    async def join(self) -> int:
        """Wait until the core serves, and deliver all messages to it from then on. Returns the ordering layer that it
        is a member of, 0 for a server that is not a founder."""
        role, port = self.role, self._port
        assert port is not None
        if self._is_waiting():
            if self.is_founder and len(self.config.ordering) > 1:
                reason = "a new group needs all of its replicas once; one without its disk needs more than half of them"
                logger.info(f"no member of the {role.name} group yet; waiting for the others", extra={"why": reason})
            while self._is_waiting():
                await asyncio.sleep(JOIN_POLL_S)
            core = self._core
            if role.paxos_replica is not None and core is not None and role.paxos_replica(core).has_rejoined:
                logger.info(f"has joined the {role.name} group again, with the state of the others")
        assert self.host is not None
        port.receive = self.host.receive
        core = self._core
        return role.paxos_replica(core).cluster if role.paxos_replica is not None and core is not None else 0

    @property
    def _core(self) -> Core | None:
        """The core that runs now: one that has wiped its journals has a successor, with another host."""
        return self.host.core if self.host is not None else None

    def _is_waiting(self) -> bool:
        core = self._core
        return core is not None and not self.role.is_ready(core)

    @property
    def is_founder(self) -> bool:
        """Whether it belongs to the group that decides which servers belong to the cluster."""
        return self.role.paxos_replica is not None

    # ---- running

    async def run(self) -> None:
        """Run until `stop`. Raises what ends the core: ProtocolViolation, AssertionError, LogFailed,
        DamagedJournals."""
        while True:
            assert self.host is not None
            await asyncio.wait((self.host.ended,))
            stop = self._end_of_core()
            if stop is None or self._is_stopping:
                return
            if not stop.wipe:
                raise DamagedJournals(stop.reason)
            logger.warning("starting again without data", extra={"why": stop.reason})
            await self._start_again()

    def _end_of_core(self) -> Stop | None:
        assert self.host is not None
        assert self.storage is not None
        failure = self.host.ended.exception()
        return self.host.ended.result() if failure is None else self.storage.end_of(failure)

    async def _start_again(self) -> None:
        assert self.host is not None
        assert self.storage is not None
        assert self.directory is not None
        await self.host.close()
        await self.storage.wipe()
        self.directory.renew()
        self.wiped += 1
        await self.storage.open()
        if not self._is_stopping:
            self._start_core()

    # ---- stopping

    async def stop(self) -> None:
        """Stop cleanly, with everything flushed that was written. `run` returns."""
        self._is_stopping = True
        if self.host is not None:
            await self.host.close()

    async def close(self) -> None:
        """Release the files, in any state. Raises LogFailed."""
        await self.stop()
        try:
            if self.storage is not None:
                await self.storage.close()
        finally:
            if self.directory is not None:
                self.directory.close()
