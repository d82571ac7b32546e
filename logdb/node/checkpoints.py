"""The map of a mapping server on disk: what the log says, up to where the last checkpoint reaches, so that a restart
replays only the rest and the map may be larger than memory.

What the core applies stays in memory until a checkpoint writes it, in slices, by a thread of its own; the loop goes on
meanwhile. All of it is a function of the log, so whatever is damaged or lost is made again: nothing here is
ever waited for, and nothing here is ever a reason to stop. LMDB itself may end a process that reads damaged tables,
which is why they are read without it first (`check`).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from logdb.cluster.mapping_server.replica import Replica, UnresolvedValues
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cores.effects import SECOND
from logdb.errors import Corruption, Unavailable
from logdb.store.checkpoint import Checkpoint, check_tables
from logdb.store.key_map import KeyMap
from logdb.store.overlay import Overlay
from logdb.store.paced_checkpoints import merge_steps, write_paced
from logdb.store.pacing import Pacer
from logdb.store.row_checksums import ADVICE
from logdb.store.values import MisplacedValue
from logdb.txn.ledger import StateRow

Damaged = Callable[[BaseException], None]

T = TypeVar("T")

MERGE_STEPS: Final = 4
"""After so many it is seen whether a checkpoint is due, which comes first."""
LOOK_S: Final = 0.5
"""So often it is seen whether a checkpoint is due."""
SYNC_S: Final = 0.002
"""A server pauses in the log for ten times this at most, as long as memory allows: as long as commits of the embedded
database wait for a checkpoint where a sync takes so long."""
TELL_S: Final = 5.0
"""While a server has no state, it says so often how much of it has come."""
RETRY_S: Final = 2.0
"""A disk that was full is tried again after so long."""

DAMAGE: Final = (Corruption, MisplacedValue, lmdb.Error)
"""What is raised where the tables are damaged."""

logger = logging.getLogger("logdb.server")


class Checkpoints:
    """The tables in a directory. `map` is for the core; `begin` when there is one, `close` when there is none any more.

    A checkpoint is due when what is in memory has grown past `overlay_bytes`, and `every_s` seconds after the last one
    if there is anything new, and when a compaction has ended. `covers`: up to where the last one reaches. `damaged`
    hears when the tables are.

    Rows that only a read before a floor could see are removed once a checkpoint covers the compaction that has moved
    the floor (MAP-4). Before that a restart begins with an older floor, reads those rows, and decides by them.
    """

    def __init__(self, path: Path, identity: bytes, overlay_bytes: int, every_s: float, damaged: Damaged) -> None:
        self._overlay_bytes, self._every_s, self._damaged = overlay_bytes, every_s, damaged
        self._checkpoint = _opened(path, identity)
        self.map = KeyMap(UnresolvedValues(), self._checkpoint)
        self._under_way: tuple[int, int, Overlay, list[StateRow]] | None = None
        self._cleaned = 0
        self._last = 0.0
        self._thread: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._pacer: Pacer | None = None
        self._merge = merge_steps(self._checkpoint)
        self._size = 0

    @property
    def covers(self) -> int:
        """The newest record that need not be replayed."""
        return self._checkpoint.covers

    def begin(self, core: MappingServer) -> None:
        """Look after the map of this server."""
        loop = asyncio.get_running_loop()
        self._cleaned, self._last = core.replica.cleaned, loop.time()
        self._pacer = Pacer(self._overlay_bytes, loop.time)
        core.follower.pause_ns = self._pause_ns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-checkpoint")
        self._task = loop.create_task(self._look_after(core))
        self._task.add_done_callback(self._over)

    def _pause_ns(self) -> int:
        """How long the server has to wait before it reads on in the log: the verdicts that its clients wait for come
        later then, so they write no faster than checkpoints take it in."""
        pacer, size = self._pacer, self.map.active.size
        brought, self._size = max(size - self._size, 0), size
        if pacer is None or not pacer.is_pressed:
            return 0
        pacer.charge(0, brought, size, SYNC_S)
        wait_s = pacer.owed(0, 0)
        pacer.paid(0)
        return int(wait_s * SECOND)

    def _over(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._damaged(failure)

    async def _look_after(self, core: MappingServer) -> None:
        replica, loop = core.replica, asyncio.get_running_loop()
        told = loop.time()
        while True:
            if core.bootstrap.is_active and loop.time() > told + TELL_S:
                told = loop.time()
                source = "another server" if core.bootstrap.recovery is None else "the log"
                logger.info("it has no state yet", extra={"source": source, "versions": core.bootstrap.rows})
            await asyncio.sleep(LOOK_S)
            try:
                await self.look(replica)
            except Unavailable as error:
                logger.error("checkpoint failed; it is tried again", extra={"why": str(error)})
                await asyncio.sleep(RETRY_S)

    async def look(self, replica: Replica) -> None:
        """Write a checkpoint if one is due, and remove what it needs no more. Raises Unavailable."""
        if self._under_way is not None or self._is_due(replica):
            await self._write(replica)
        if self._cleaned > self._checkpoint.pruned:
            await self._background(self._prune)
        while not self._is_due(replica) and await self._background(self._merge_on):
            pass

    def _is_due(self, replica: Replica) -> bool:
        if self.map.active.size > self._overlay_bytes or replica.cleaned > self._cleaned:
            return True
        since = asyncio.get_running_loop().time() - self._last
        return replica.applied != self.covers and since >= self._every_s

    async def _write(self, replica: Replica) -> None:
        """Of a checkpoint that is still being taken from another server only rows: `covers` stays 0."""
        if self._under_way is None:
            applied, state = replica.applied, replica.unsaved() if replica.applied else []
            self._under_way = applied, replica.cleaned, self.map.freeze(), state
        await self._background(self._move)
        self.map.thaw()
        self._cleaned, frozen = self._under_way[1], self._under_way[2]
        self._under_way = None
        await self._background(frozen.clear_gradually)
        self._last = asyncio.get_running_loop().time()

    def _move(self) -> None:
        assert self._under_way is not None
        assert self._pacer is not None
        target, _, frozen, state = self._under_way
        write_paced(self._checkpoint, self._pacer, frozen, target, state, lambda _: self._check_stopping())

    def _merge_on(self) -> bool:
        """Some steps of the merges that are due; whether there may be more."""
        assert self._pacer is not None
        for _ in range(MERGE_STEPS):
            self._check_stopping()
            if next(self._merge, None) is None:
                self._merge = merge_steps(self._checkpoint)
                self._pacer.merged(0.0)
                return False
        self._pacer.merged(self._checkpoint.backlog)
        return True

    def _prune(self) -> None:
        for _ in self._checkpoint.prune(self._cleaned):
            self._check_stopping()

    async def _background(self, work: Callable[[], T]) -> T:
        assert self._thread is not None
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _check_stopping(self) -> None:
        if self._stopping.is_set():
            raise Unavailable("the server stops")

    async def close(self) -> None:
        """End, after the slice under way. What is in memory is in the log as well."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._thread is not None:
            self._thread.shutdown()
        self._checkpoint.close()


def _opened(path: Path, identity: bytes) -> Checkpoint:
    """The tables, empty ones unless a whole checkpoint is there."""
    if path.exists():
        try:
            checkpoint = Checkpoint(path, identity, inline=True)
            if checkpoint.covers:
                return checkpoint
            checkpoint.close()  # rows from another server, not all: a compaction may have dropped some of them since
        except DAMAGE as error:
            logger.warning("the checkpoint is damaged, and made again", extra={"why": str(error)})
        wipe(path)
    return Checkpoint(path, identity, inline=True)


async def check(path: Path) -> None:
    """Remove the tables if they are not as they were written. Raises Unavailable when they cannot be read."""
    try:
        await asyncio.to_thread(check_tables, path)
    except Corruption as damage:
        why = damage.what.removesuffix(f"; {ADVICE}")
        logger.warning("the checkpoint is damaged, and made again", extra={"why": why})
        wipe(path)


def wipe(path: Path) -> None:
    """Remove the tables."""
    shutil.rmtree(path, ignore_errors=True)
