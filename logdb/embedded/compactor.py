"""When the embedded host compacts, and how far: as far as pins, readers of this process and what other processes hold
let it; when it is asked, or by itself when the garbage in the log exceeds a share."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from logdb.api.results import Compacted
from logdb.embedded.compaction import Compacting, begin_anew, compact
from logdb.embedded.directory import Directory
from logdb.embedded.external_leases import held
from logdb.errors import DatabaseClosed
from logdb.store.garbage import MIN_LOG_BYTES, garbage_share, is_worth_compacting, pause_ns

logger = logging.getLogger("logdb")


class Compactable(Compacting, Protocol):
    """What compacting needs of the host."""

    path: str
    directory: Directory | None

    def version(self) -> int: ...
    def at(self, version: int) -> int: ...
    def leased(self) -> Iterable[int]: ...


class Compactor:
    """Compacts the log of a host, one compaction at a time.

    `above`: the share of garbage from which on it does so by itself. `floor`: how far the one under way goes, 0 while
    none is; whoever begins to read before that is refused.
    """

    def __init__(self, host: Compactable, above: float | None) -> None:
        self._host, self.above = host, above
        self.floor = 0
        # Up to here all that could be compacted away was.
        self._whole = 0
        self._log_bytes_left = 0
        self._one_at_a_time = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, before: int | None, progress: Callable[[int], None]) -> Compacted:
        """Compact to `before` (None: the newest version). Raises as `compact` of the host."""
        host = self._host
        newest = host.version()
        with self._one_at_a_time, contextlib.ExitStack() as undo:
            floor = host.at(newest if before is None else before)
            undo.callback(self._end)
            others = [] if host.directory is None else undo.enter_context(held(host.directory.path))
            is_whole = before is None and newest > self._whole and min(self._needed(newest, others)) >= newest
            if is_whole:
                floor = begin_anew(host)
            self.floor = cut = floor
            with host.order_lock:  # who pins a version now sees how far this may go
                self.floor = floor = min(self._needed(cut, others))
            if floor <= host.coordinator.floor or floor <= self._whole:
                left = host.log.oldest_after_trim(host.log.oldest())
                return Compacted(host.coordinator.floor, 0, left, left)
            done = compact(host, floor, progress)
            if is_whole and floor == cut:
                self._whole = host.coordinator.compacted_at
            return done

    def _end(self) -> None:
        self.floor, self._log_bytes_left = 0, self._host.log.size()

    def _needed(self, newest: int, others: Iterable[int]) -> list[int]:
        """The versions that pins, readers of this process and others need, none newer than `newest`."""
        return [self._host.coordinator.oldest_needed(newest), *list(self._host.leased()), *others]

    @property
    def garbage(self) -> float:
        """The share of the log that a compaction would free."""
        log, coordinator, left = self._host.log, self._host.coordinator, self._log_bytes_left
        size = log.size()
        grown = size - left if left else log.size(coordinator.compacted_at)
        return garbage_share(size, coordinator.map.live_bytes, grown)

    def look(self) -> None:
        """Compact if the share of garbage is above what the user has set, in a thread of its own."""
        thread = self._thread
        if self.above is None or self._stopping.is_set() or (thread is not None and thread.is_alive()):
            return
        if is_worth_compacting(self._host.log.size(), self.garbage, self.above, MIN_LOG_BYTES):
            self._thread = threading.Thread(target=self._run_in_background, name="logdb-compact", daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for the end of the compaction that it has begun by itself, if one is under way."""
        if self._thread is not None:
            self._thread.join()

    def begin_to_stop(self) -> None:
        """Begin none by itself any more; the one under way ends at its next step."""
        self._stopping.set()

    def disown(self) -> None:
        """In a child of fork()."""
        self._one_at_a_time = threading.Lock()

    def _run_in_background(self) -> None:
        last = time.monotonic_ns()

        def pause(_: int) -> None:
            nonlocal last
            if self._stopping.wait(pause_ns(time.monotonic_ns() - last) / 1e9):
                raise DatabaseClosed(self._host.path)
            last = time.monotonic_ns()

        try:
            done = self.run(None, pause)
        except Exception as error:
            if not self._stopping.is_set():
                logger.warning("compaction failed; it is tried again: %s", error)
        else:
            logger.info("compacted to version %d: %s bytes freed", done.floor, f"{done.freed_bytes:,}")
