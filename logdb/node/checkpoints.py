"""The key map of a mapping server on disk, up to the record that the last checkpoint covers: a restart replays only the
rest of the log, and the map may be larger than memory.

Applied records stay in memory until a checkpoint writes them, in slices, in a thread of its own; the event loop does
not wait for it. The map is a function of the log, so damaged or lost tables are rebuilt, and the server continues.
LMDB may end a process that reads damaged tables, so `check` reads them without LMDB first.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from logdb.cluster.mapping_server.replica import Replica, UnresolvedValues
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cores.effects import SECOND
from logdb.errors import Corruption, Unavailable
from logdb.store.checkpoint import Checkpoint, check_tables
from logdb.store.key_map import KeyMap
from logdb.store.overlay import Overlay
from logdb.store.paced_checkpoints import merge_steps, write_paced
from logdb.store.pacing import Pacer
from logdb.store.range_deletions import RangeIndex
from logdb.store.row_checksums import ADVICE
from logdb.store.values import MisplacedValue
from logdb.txn.ledger import StateRow

Damaged = Callable[[BaseException], None]

T = TypeVar("T")

MERGE_STEPS: Final = 4
"""Number of merge steps between two checks for a due checkpoint, which has priority."""
LOOK_S: Final = 0.5
"""Interval between two checks for a due checkpoint."""
SYNC_S: Final = 0.002
"""The duration of a sync for the pacer: a server pauses in the log for at most ten times this while memory allows, as
commits of the embedded database do."""
REPORT_S: Final = 5.0
"""Interval between two log lines about the progress of a server without state."""
RETRY_S: Final = 2.0
"""Pause before the next attempt to write to a full disk."""

DAMAGE: Final = (Corruption, MisplacedValue)
"""The exceptions that damaged tables cause."""

logger = logging.getLogger("logdb.server")


class Checkpoints:
    """The tables in a directory. `map`: for the core. `begin` is called when the core has started, `close` at its end.

    A checkpoint is due when the changes in memory exceed `overlay_bytes`, `every_s` seconds after the last one if there
    are changes, and after a compaction. `covers`: the newest record of the last checkpoint. `damaged` is called with
    the exception if the tables are damaged.

    Rows that only reads before the floor could return are removed once a checkpoint covers the compaction that has
    moved the floor (MAP-4). Before that, a restart begins with an older floor and needs these rows for its decisions.
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
        """Write checkpoints of this server's map from now on."""
        loop = asyncio.get_running_loop()
        self._cleaned, self._last = core.replica.cleaned, loop.time()
        self._pacer = Pacer(self._overlay_bytes, loop.time)
        core.follower.pause_ns = self._pause_ns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-checkpoint")
        self._task = loop.create_task(self._look_after(core))
        self._task.add_done_callback(self._on_ended)

    def _pause_ns(self) -> int:
        """How long the server has to pause in the log: its verdicts are delayed, so that clients do not write faster
        than checkpoints can."""
        pacer, size = self._pacer, self.map.active.size
        brought, self._size = max(size - self._size, 0), size
        if pacer is None or not pacer.is_pressed:
            return 0
        pacer.charge(0, brought, size, SYNC_S)
        wait_s = pacer.owed(0, 0)
        pacer.paid(0)
        return int(wait_s * SECOND)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._damaged(failure)

    async def _look_after(self, core: MappingServer) -> None:
        replica, loop = core.replica, asyncio.get_running_loop()
        reported_at = loop.time()
        while True:
            if core.bootstrap.is_active and loop.time() > reported_at + REPORT_S:
                reported_at = loop.time()
                source = "another server" if core.bootstrap.recovery is None else "the log"
                logger.info("no state yet", extra={"source": source, "versions": core.bootstrap.rows})
            await asyncio.sleep(LOOK_S)
            try:
                await self.look(replica)
            except Unavailable as error:
                logger.error("checkpoint failed; retrying", extra={"why": str(error)})
                await asyncio.sleep(RETRY_S)

    async def look(self, replica: Replica) -> None:
        """Write a checkpoint if one is due, and remove rows that it no longer needs. Raises Unavailable."""
        if self._under_way is not None or self._is_due(replica):
            await self._write(replica)
        if self._cleaned > self._checkpoint.pruned:
            cleaned = self._cleaned
            await self._background(partial(self._prune, cleaned, self.map.deleted_to(cleaned)))
            replica.coordinator.drop_deletions(cleaned + 1)
        while not self._is_due(replica) and await self._background(self._merge_on):
            pass

    def _is_due(self, replica: Replica) -> bool:
        if self.map.active.size > self._overlay_bytes or replica.cleaned > self._cleaned:
            return True
        since = asyncio.get_running_loop().time() - self._last
        return replica.applied != self.covers and since >= self._every_s

    async def _write(self, replica: Replica) -> None:
        """Write a checkpoint. While a state is still being taken from another server it has only rows, and covers 0."""
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
        """Run some steps of the due merges. Returns whether there may be more."""
        assert self._pacer is not None
        for _ in range(MERGE_STEPS):
            self._check_stopping()
            if next(self._merge, None) is None:
                self._merge = merge_steps(self._checkpoint)
                self._pacer.merged(0.0)
                return False
        self._pacer.merged(self._checkpoint.backlog)
        return True

    def _prune(self, floor: int, deleted: RangeIndex) -> None:
        for _ in self._checkpoint.prune(floor, deleted):
            self._check_stopping()

    async def _background(self, work: Callable[[], T]) -> T:
        assert self._thread is not None
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _check_stopping(self) -> None:
        if self._stopping.is_set():
            raise Unavailable("the server is stopping")

    async def close(self) -> None:
        """Stop after the current slice. Changes in memory are not lost: the log has them."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._thread is not None:
            self._thread.shutdown()
        self._checkpoint.close()


def _opened(path: Path, identity: bytes) -> Checkpoint:
    """The tables; empty ones if there is no complete checkpoint."""
    if path.exists():
        try:
            checkpoint = Checkpoint(path, identity, inline=True)
            if checkpoint.covers:
                return checkpoint
            checkpoint.close()  # some rows of another server: a compaction may have removed some of them since
        except DAMAGE as error:
            logger.warning("the checkpoint is damaged and will be rebuilt", extra={"why": str(error)})
        wipe(path)
    return Checkpoint(path, identity, inline=True)


async def check(path: Path) -> None:
    """Remove the tables if they are damaged. Raises Unavailable if they cannot be read."""
    try:
        await asyncio.to_thread(check_tables, path)
    except Corruption as damage:
        why = damage.what.removesuffix(f"; {ADVICE}")
        logger.warning("the checkpoint is damaged and will be rebuilt", extra={"why": why})
        wipe(path)


def wipe(path: Path) -> None:
    """Remove the tables."""
    shutil.rmtree(path, ignore_errors=True)
