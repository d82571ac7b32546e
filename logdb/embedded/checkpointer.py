"""When and how the embedded host moves the map's overlay into the checkpoint, and merges the checkpoint's runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from logdb.log.contract import OrderedLog
from logdb.store.checkpoint import Checkpoint
from logdb.store.overlay import Overlay
from logdb.store.paced_checkpoints import merge_steps, write_paced
from logdb.store.pacing import Pacer
from logdb.txn.coordinator import Coordinator
from logdb.txn.ledger import StateRow

SUFFIX_RECORDS: Final = 150_000
SUFFIX_BYTES: Final = 512 << 20
"""A checkpoint is due when the log has grown by more than this since the last one: an opening replays it."""
RETRY_S: Final = 1.0
"""A checkpoint that failed is tried again after so long."""


logger = logging.getLogger("logdb")


class Ordering(Protocol):
    """What the checkpointer needs of the host: the lock under which records are ordered and applied."""

    log: OrderedLog
    coordinator: Coordinator
    order_lock: threading.Lock

    def append_decisions(self) -> None: ...
    def check_running(self) -> None: ...
    def stop(self, why: str) -> None: ...


class Checkpointer:
    """Writes checkpoints, one at a time; in a thread of its own when the overlay has grown past `overlay_bytes`, or the
    log by what takes long to replay.

    A checkpoint that failed (a full disk) leaves the overlay where it was, readable, and is finished first next time.
    Runs are merged by the same thread step by step: it takes half the time while merging is not behind, a checkpoint
    that is due comes first, and closing gives a merge up. What failed or was given up begins anew after a checkpoint.
    `pacer`: how long commits wait for it. `on_rest` is called when nothing is due any more.
    """

    def __init__(self, host: Ordering, checkpoint: Checkpoint, overlay_bytes: int, on_rest: Callable[[], None]) -> None:
        self._host, self._checkpoint, self.overlay_bytes, self._on_rest = host, checkpoint, overlay_bytes, on_rest
        self.pacer = Pacer(overlay_bytes)
        self._one_at_a_time, self._starting = threading.Lock(), threading.Lock()
        self._unfinished: tuple[int, Overlay, list[StateRow]] | None = None
        self._thread: threading.Thread | None = None
        self._begun = checkpoint.covers
        self._is_failing, self._failed_at = False, -RETRY_S
        self._stopping = threading.Event()

    def run(self, progress: Callable[[int], None] | None = None) -> int:
        """Write a checkpoint of all that is applied, and merge; returns the GSN that it covers. `progress` hears of
        keys written.

        Raises Unavailable (a full disk), LogFailed.
        """
        target = self.write(progress)
        for _ in self._checkpoint.merge():
            pass
        return target

    def write(self, progress: Callable[[int], None] | None = None) -> int:
        """As `run`, without merging."""
        host, checkpoint = self._host, self._checkpoint
        with self._one_at_a_time:
            if self._unfinished is not None:
                self._finish(progress)
            with host.order_lock:
                host.check_running()
                host.append_decisions()
                if host.coordinator.applied == checkpoint.covers:
                    return checkpoint.covers
                target = host.coordinator.applied
                try:
                    self._unfinished = target, host.coordinator.map.freeze(), host.coordinator.unsaved()
                    self._begun = target
                except BaseException as error:
                    host.stop(f"it was interrupted at the beginning of a checkpoint ({error!r})")
                    raise
            self._finish(progress)
            return target

    def is_due(self) -> bool:
        """Whether the overlay, or what an opening would have to replay, has grown large."""
        coordinator, begun = self._host.coordinator, self._begun
        return (
            coordinator.map.active.size > self.overlay_bytes
            or coordinator.applied - begun > SUFFIX_RECORDS
            or self._host.log.size(begun + 1) > SUFFIX_BYTES
        )

    def maybe_checkpoint(self) -> None:
        """Called after a commit: have a checkpoint written if one is due."""
        if self.is_due():
            self._start()

    def join(self) -> None:
        """Wait for the checkpoint under way, if there is one, and the merges after it."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def stop(self) -> None:
        """End the checkpoint under way, and give up merging. None is begun any more but by `run`."""
        self._stopping.set()
        self.join()

    def _start(self) -> None:
        with self._starting:
            thread = self._thread
            if self._stopping.is_set() or (thread is not None and thread.is_alive()):
                return
            if time.monotonic() >= self._failed_at + RETRY_S:
                self._thread = threading.Thread(target=self._run_in_background, name="logdb-checkpoint", daemon=True)
                self._thread.start()

    def _run_in_background(self) -> None:
        merge = merge_steps(self._checkpoint)
        try:
            while not self._stopping.is_set():
                if self.is_due():  # first, since writers wait for it
                    self.write()
                    continue
                begun = time.monotonic()
                if next(merge, None) is None:
                    if not self.is_due():
                        break
                    merge = merge_steps(self._checkpoint)
                backlog = self._checkpoint.backlog
                self.pacer.merged(backlog)
                self._stopping.wait((time.monotonic() - begun) * max(1 - backlog, 0))
        except Exception as error:
            if not self._is_failing:
                logger.warning("checkpoint failed; it is tried again: %s", error)
            self._is_failing, self._failed_at = True, time.monotonic()
        else:
            self._is_failing = False
            self._on_rest()
        finally:
            merge.close()
            self.pacer.merged(0.0)

    def _finish(self, progress: Callable[[int], None] | None) -> None:
        assert self._unfinished is not None
        target, frozen, state = self._unfinished
        self._host.log.wait_durable(target)
        write_paced(self._checkpoint, self.pacer, frozen, target, state, progress or (lambda _: None))
        self._host.coordinator.map.thaw()
        self._unfinished = None
        frozen.clear_gradually()
