"""When an embedded database is compacted, and how far: up to the oldest version that pins, readers of this process and
other processes need; on request, or when the share of garbage in the log exceeds a threshold."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable

from logdb.api.results import Compacted
from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.compaction import always_true, begin_new_file, compact
from logdb.embedded.directory import Directory
from logdb.embedded.external_leases import leased_versions
from logdb.embedded.snapshots import Snapshots
from logdb.embedded.state_machine import StateMachine
from logdb.errors import DatabaseClosed
from logdb.store.garbage import MIN_LOG_BYTES, garbage_share, is_worth_compacting, pause_ns

logger = logging.getLogger("logdb")


class Compactor:
    """Compacts the log of a database, one compaction at a time.

    `directory`: None for a database in memory, which no other process reads. `above`: the share of garbage (0 to 1)
    above which a compaction starts in the background; None: never. `release`: see `compact`.
    """

    def __init__(
        self,
        machine: StateMachine,
        snapshots: Snapshots,
        checkpointer: Checkpointer | None,
        directory: Directory | None,
        above: float | None,
    ) -> None:
        self._machine, self._snapshots, self._checkpointer = machine, snapshots, checkpointer
        self._directory, self.above = directory, above
        self.release: Callable[[int], bool] = always_true
        self._compacted_to = 0  # a compaction to any version up to here has nothing to remove
        self._log_bytes_left = 0
        self._one_at_a_time = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, before: int | None, progress: Callable[[int], None]) -> Compacted:
        """Compact to `before` (None: the newest version), or as far as leases and pins allow. `progress`: as of
        `compact`. Raises VersionTrimmed, FutureVersion, ReadOnly, Unavailable."""
        machine, snapshots = self._machine, self._snapshots
        newest = machine.version()
        with self._one_at_a_time, contextlib.ExitStack() as undo:
            floor = snapshots.at(newest if before is None else before)
            undo.callback(self._end)
            others: list[int] = []
            if self._directory is not None:
                self._directory.check()  # the leases at its path would be those of another database
                others = undo.enter_context(leased_versions(self._directory.path))
            is_whole = before is None and newest > self._compacted_to and min(self._needed(newest, others)) >= newest
            if is_whole:
                floor = begin_new_file(machine)
            snapshots.compacting_to = cut = floor
            with machine.order_lock:  # a pin that is added from now on sees how far this compaction may go
                snapshots.compacting_to = floor = min(self._needed(cut, others))
            if floor <= machine.coordinator.floor or floor <= self._compacted_to:
                left = machine.log.oldest_after_trim(machine.log.oldest())
                return Compacted(machine.coordinator.floor, 0, left, left)
            if before is not None:
                begin_new_file(machine)  # for the compactions to come: this one ends inside of a file
            done = compact(machine, self._checkpointer, floor, progress, self.release)
            if is_whole and floor == cut:
                self._compacted_to = machine.coordinator.compacted_at
            return done

    def _end(self) -> None:
        self._snapshots.compacting_to, self._log_bytes_left = 0, self._machine.log.size()

    def _needed(self, newest: int, others: Iterable[int]) -> list[int]:
        """The versions that pins, readers of this process and others need, none newer than `newest`."""
        return [self._machine.coordinator.oldest_needed(newest), *self._snapshots.leased(), *others]

    @property
    def garbage(self) -> float:
        """The share of the log that a compaction would free."""
        log, coordinator, left = self._machine.log, self._machine.coordinator, self._log_bytes_left
        size = log.size()
        grown = size - left if left else log.size(coordinator.compacted_at)
        return garbage_share(size, coordinator.map.live_bytes, grown)

    def look(self) -> None:
        """Start a compaction in a thread of its own if the share of garbage is above the threshold."""
        thread = self._thread
        if self.above is None or self._stopping.is_set() or (thread is not None and thread.is_alive()):
            return
        if is_worth_compacting(self._machine.log.size(), self.garbage, self.above, MIN_LOG_BYTES):
            thread = threading.Thread(target=self._run_in_background, name="logdb-compact", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no thread can be started now
                logger.warning("compaction failed; it is tried again: %s", error)
            else:
                self._thread = thread

    def join(self) -> None:
        """Wait for the end of the background compaction, if one is under way."""
        if self._thread is not None:
            self._thread.join()

    def begin_to_stop(self) -> None:
        """Start no more background compactions; the one under way ends at its next step."""
        self._stopping.set()

    def disown(self) -> None:
        """In a child of fork(): replace the lock, which another thread may have held."""
        self._one_at_a_time = threading.Lock()

    def _run_in_background(self) -> None:
        last = time.monotonic_ns()

        def pause(_: int) -> None:
            nonlocal last
            if self._stopping.wait(pause_ns(time.monotonic_ns() - last) / 1e9):
                raise DatabaseClosed(self._machine.path)
            last = time.monotonic_ns()

        try:
            done = self.run(None, pause)
        except Exception as error:
            if not self._stopping.is_set():
                logger.warning("compaction failed; it is tried again: %s", error)
        else:
            logger.info("compacted to version %d: %s bytes freed", done.floor, f"{done.freed_bytes:,}")
