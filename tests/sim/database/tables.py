"""The disk of a mapping server: the files of its checkpoint, and their state after a kill.

`Checkpoints`, which schedules writing, and `Checkpoint`, which writes, are the real ones, on real files in memory, in a
loop of virtual time. The disk records each operation on a file; each takes its time and is not durable before the sync
that the code must request. A kill is a power failure: operations that the writer has not reached by then never
happened, and of those that were not synced any may be lost or torn.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from logdb.cores.effects import MILLISECOND
from logdb.errors import Corruption
from logdb.node import checkpoints
from logdb.node.checkpoints import Checkpoints
from logdb.store import checkpoint, merging
from logdb.store.checkpoint import Checkpoint
from tests.harness.faulty_disk import Crash, Fault, Operation, materialize
from tests.harness.map_disk import MapDisk
from tests.sim.database.loop import Loop
from tests.sim.process import Process
from tests.sim.world import Failure

SECOND_NS = 20 * MILLISECOND
"""The length of a second of the real code, which checks twice in it whether a checkpoint is due."""
OPERATION_NS = MILLISECOND // 2
"""The duration of an operation on a file."""
LEVEL_BYTES = 20_000
"""The size of small runs, so that there are several levels: some merges are of all runs and others are not."""
MEMORY = Path("/dev/shm")
FULL = Fault(frozenset({"create", "write", "sync"}), 0, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), forever=True)


class Drive:
    """The disk of a mapping server. `trap`: called at the next write, with its duration (ns)."""

    def __init__(self, process: Process, overlay_bytes: int, every_s: float) -> None:
        self._process, self._overlay_bytes, self._every_s = process, overlay_bytes, every_s
        self._draw = process.world.draw(f"drive {process.address}")
        self._ratio = self._draw.choice((2, 3, 4))
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._disk = MapDisk(Path())
        self._medium = Crash(())
        self._waiting: list[tuple[int, Operation]] = []
        self._image: dict[str, bytes] = {}
        self.checkpoints: Checkpoints | None = None
        self.trap: Callable[[int], None] | None = None
        self.is_full = False

    @property
    def is_full(self) -> bool:
        """Whether the disk is full."""
        return self._disk.fault is not None

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        self._disk.fault = FULL if is_full else None

    def mount(self) -> Checkpoints:
        """The checkpoint with which a life of the server begins."""
        path = self._path()
        shutil.rmtree(path, ignore_errors=True)
        if self._image:
            materialize(self._image, path)
        fault, self._disk = self._disk.fault, MapDisk(path)
        self._disk.fault = fault
        self._medium, self._waiting = Crash((), self._image), []
        with self._below():
            self.checkpoints = Checkpoints(path, b"log", self._overlay_bytes, self._every_s, self._damaged)
        self._medium.then(self._done())
        return self.checkpoints

    def _path(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        return Path(self._folder.name, "map")

    @contextmanager
    def _below(self) -> Iterator[None]:
        with (
            mock.patch.object(checkpoints, "Checkpoint", self._opened),
            mock.patch.object(checkpoints, "wipe", self._wipe),
        ):
            yield

    def _opened(self, *arguments: Any, **options: Any) -> Checkpoint:
        try:
            return Checkpoint(*arguments, disk=self._disk, **options)
        except Corruption as error:
            self._damaged(error)
            raise

    def _wipe(self, path: Path) -> None:
        shutil.rmtree(path)
        self._disk.operations.clear()
        self._medium = Crash(())

    def _done(self) -> list[Operation]:
        """The recorded operations that are not accounted for yet."""
        self._disk.position()
        operations, self._disk.operations = self._disk.operations, []
        return operations

    def begin(self, _: Any = None) -> None:
        """Begin checkpoints, after the server has started."""
        core: Any = self._process.core
        assert self.checkpoints is not None
        if core is None or core.replica.map is not self.checkpoints.map:
            return
        loop = Writing(self)
        with loop.running():
            self.checkpoints.begin(core)

    def account(self) -> None:
        """Account for time that has passed."""
        now = self._process.world.now
        while self._waiting and self._waiting[0][0] <= now:
            self._medium.then([self._waiting.pop(0)[1]])

    def crash(self, wipe: bool) -> None:
        """The server has ended: unsynced operations are lost in part, or with `wipe` all files."""
        self.trap = None
        if wipe:
            self.wipe()
        else:
            self.account()
            self._image = self._draw.choice(list(self._medium.images(self._draw, 1)))

    def wipe(self) -> None:
        """Lose all files."""
        self._image = {}
        self.is_full = False

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()

    def _damaged(self, error: BaseException) -> None:
        raise Failure("a checkpoint can be written and read", f"{self._process.address}: {error!r}")

    def write(self, work: Callable[[], None]) -> int:
        """Run the next step of the checkpoint thread; returns its duration."""
        now = self._process.world.now
        assert self.checkpoints is not None
        kept = self.checkpoints.map.checkpoint
        assert kept is not None
        self.account()
        assert not self._waiting, "one thread writes"
        ratio = self._ratio
        try:
            with (
                mock.patch.multiple(merging, LEVEL_BYTES=LEVEL_BYTES, RATIO=ratio, DISJOINT_RATIO=2 * ratio),
                mock.patch.multiple(checkpoint, FENCE_BYTES=LEVEL_BYTES, MIN_RUN_BYTES=1),
            ):
                work()
            kept.check_invariants()
        finally:
            self._waiting = [(now + number * OPERATION_NS, one) for number, one in enumerate(self._done(), 1)]
        took = len(self._waiting) * OPERATION_NS
        if self.trap is not None and took:
            trap, self.trap = self.trap, None
            trap(took)
        return took


class Writing(Loop):
    """The loop of a server, with the thread that writes."""

    def __init__(self, drive: Drive) -> None:
        super().__init__(drive._process, SECOND_NS)
        self._drive = drive

    def run_in_executor(self, executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            took = self._drive.write(partial(work, *args))
        except Exception as error:
            done.set_exception(error)
            return done
        self._world.after(took, self._run, asyncio.Handle(lambda: done.set_result(None), (), self, None))
        return done
