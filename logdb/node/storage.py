"""The state of one server on disk, and the core built from it: journals, or the checkpoint of a mapping server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final, Protocol

from logdb.cluster.mapping_server.server import MappingServer
from logdb.cores.effects import Core, Journal, Stop
from logdb.errors import Corruption, LogDBError, Unavailable
from logdb.log.engine import Metric, Role, ServerConfig
from logdb.log.segments import Disk
from logdb.log.segments.store import SEGMENT_BYTES
from logdb.node.checkpoints import DAMAGE, Checkpoints, check, wipe
from logdb.node.cold_store import ColdStore
from logdb.node.directory import ServerDirectory
from logdb.node.journals import Journals
from logdb.node.roles import MappingServerConfig, build_mapping_server
from logdb.wire.envelopes import MAPPING

Fail = Callable[[BaseException], None]
"""Ends the core with an error."""


class DamagedJournals(LogDBError):
    """A server must not start, or continue, with its journals. The message says what to do about it."""


class CountingDisk(Disk):
    """A disk that counts the bytes that all threads write to it."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self._counting = threading.Lock()

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        super().write(fd, data, offset)
        with self._counting:
            self.written_bytes += len(data)


class Storage(Protocol):
    """The persistent state of a server. `journals`: None if it has none. `cold`: the cold tier of the cluster, if it
    has access."""

    cold: ColdStore | None

    @property
    def journals(self) -> Journals | None: ...

    async def open(self) -> None:
        """Open the state in the directory, or create it. Raises DamagedJournals, Unavailable."""

    def build(self, journals: Mapping[str, Journal], rng: Random) -> Core:
        """The core over this state."""

    def on_started(self) -> None:
        """The core that `build` has returned has started."""

    def end_of(self, failure: BaseException) -> Stop:
        """Returns the Stop to which an error leads that has ended the core; raises any other error."""

    async def wipe(self) -> None:
        """Remove the state. The server then has the state of a new one."""

    async def close(self) -> None:
        """Release the files. Raises LogFailed."""

    def metrics(self) -> Iterable[Metric]:
        """The numbers that the state exports."""


class JournalStorage:
    """The journals of a server of the log; none for a role without journals."""

    cold: ColdStore | None = None

    def __init__(
        self,
        config: ServerConfig,
        role: Role,
        directory: ServerDirectory,
        disk: Disk,
        fail: Fail,
    ) -> None:
        del fail  # journals fail in the host, which writes them
        self.journals: Journals | None = None
        self._config, self._role, self._directory, self._disk = config, role, directory, disk

    async def open(self) -> None:
        role, directory = self._role, self._directory
        if not role.has_journals:
            return
        segment_bytes = SEGMENT_BYTES if role.segment_bytes is None else role.segment_bytes(self._config)
        try:
            self.journals = Journals(directory.journals, directory.id, segment_bytes=segment_bytes, disk=self._disk)
        except Corruption as damage:
            raise self._damaged(str(damage)) from damage
        if not role.can_start_empty and not directory.fresh and not self.journals.found():
            raise self._damaged(f"the journals in {directory.path} are missing")

    def build(self, journals: Mapping[str, Journal], rng: Random) -> Core:
        return self._role.build(self._config, journals, rng)

    def on_started(self) -> None:
        return None

    def end_of(self, failure: BaseException) -> Stop:
        if isinstance(failure, Corruption):
            raise self._damaged(str(failure)) from failure
        raise failure

    async def wipe(self) -> None:
        if self.journals is not None:
            self.journals.wipe()
            self.journals.close()
            self.journals = None

    async def close(self) -> None:
        if self.journals is not None:
            self.journals.close()

    def metrics(self) -> Iterable[Metric]:
        return ()

    def _damaged(self, reason: str) -> DamagedJournals:
        return DamagedJournals(f"{reason}. {self._role.damage_advice(self._config)}")


class CheckpointStorage:
    """The checkpoint of a mapping server. `fail` ends the core when a checkpoint has failed."""

    journals = None

    def __init__(
        self,
        config: MappingServerConfig,
        role: Role,
        directory: ServerDirectory,
        disk: Disk,
        fail: Fail,
    ) -> None:
        del role, disk  # only journals need them
        self.checkpoints: Checkpoints | None = None
        self.cold: ColdStore | None = None
        self._core: MappingServer | None = None
        self._config, self._directory, self._fail = config, directory, fail

    async def open(self) -> None:
        config, directory = self._config, self._directory
        if config.cold:
            try:
                self.cold = ColdStore(config.cold, config.cluster, directory.cold)
            except ModuleNotFoundError as error:
                raise Unavailable(str(error)) from error
        await check(directory.map)
        self.checkpoints = Checkpoints(
            directory.map, directory.id, config.checkpoint_mib << 20, config.checkpoint_s, self._fail
        )

    def build(self, journals: Mapping[str, Journal], rng: Random) -> Core:
        assert self.checkpoints is not None
        self._core = build_mapping_server(self._config, journals, rng, self.checkpoints.map)
        return self._core

    def on_started(self) -> None:
        assert self.checkpoints is not None
        assert self._core is not None
        self.checkpoints.begin(self._core)

    def end_of(self, failure: BaseException) -> Stop:
        if isinstance(failure, DAMAGE):
            return Stop(f"the checkpoint is damaged: {failure}", wipe=True)
        raise failure

    async def wipe(self) -> None:
        await self.close()
        wipe(self._directory.map)

    async def close(self) -> None:
        if self.checkpoints is not None:
            await self.checkpoints.close()
            self.checkpoints = None
        if self.cold is not None:
            await asyncio.to_thread(self.cold.close)
            self.cold = None

    def metrics(self) -> Iterable[Metric]:
        if self.checkpoints is not None:
            yield Metric("logdb_checkpoint_gsn", "The newest record of the checkpoint.", self.checkpoints.covers)


_OTHER_THAN_JOURNALS: Final[Mapping[str, Callable[..., Storage]]] = {MAPPING: CheckpointStorage}


def storage_of(config: ServerConfig, role: Role, directory: ServerDirectory, disk: Disk, fail: Fail) -> Storage:
    """The persistent state of a server, not opened yet. `fail` is called with an error that must end the core."""
    return _OTHER_THAN_JOURNALS.get(role.name, JournalStorage)(config, role, directory, disk, fail)
