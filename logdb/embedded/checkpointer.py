"""When and how the embedded host moves the map's overlay into the checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from logdb.log.contract import OrderedLog
from logdb.store.checkpoint import Checkpoint
from logdb.store.overlay import Overlay
from logdb.txn.coordinator import Coordinator
from logdb.txn.ledger import StateRow


class Ordering(Protocol):
    """What the checkpointer needs of the host: the lock under which records are ordered and applied."""

    log: OrderedLog
    coordinator: Coordinator
    order_lock: threading.Lock

    def declare(self) -> None: ...
    def check_running(self) -> None: ...
    def stop(self, why: str) -> None: ...


class Checkpointer:
    """Writes checkpoints, one at a time; in a thread of its own when the overlay has grown past `overlay_bytes`.

    A checkpoint that failed (a full disk) leaves the overlay where it was, readable, and is finished first next time.
    """

    def __init__(self, host: Ordering, checkpoint: Checkpoint, overlay_bytes: int) -> None:
        self._host, self._checkpoint, self.overlay_bytes = host, checkpoint, overlay_bytes
        self._one_at_a_time = threading.Lock()
        self._unfinished: tuple[int, Overlay, list[StateRow]] | None = None
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def run(self, progress: Callable[[int], None] | None = None) -> int:
        """Write a checkpoint of all that is applied; returns the GSN that it covers. `progress` hears of keys written.

        Raises Unavailable (a full disk), LogFailed.
        """
        host, checkpoint = self._host, self._checkpoint
        with self._one_at_a_time:
            if self._unfinished is not None:
                self._finish(progress)
            with host.order_lock:
                host.check_running()
                host.declare()
                if host.coordinator.applied == checkpoint.covers:
                    return checkpoint.covers
                target = host.coordinator.applied
                try:
                    self._unfinished = target, host.coordinator.map.freeze(), host.coordinator.unsaved()
                except BaseException as error:
                    host.stop(f"it was interrupted at the beginning of a checkpoint ({error!r})")
                    raise
            self._finish(progress)
            return target

    def relieve(self) -> None:
        """Called after a commit: when the overlay is too large, have a checkpoint written."""
        if self._host.coordinator.map.active.size < self.overlay_bytes:
            return
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._thread = thread = threading.Thread(target=self._run_aside, name="logdb-checkpoint", daemon=True)
            thread.start()

    @property
    def is_behind(self) -> bool:
        """Whether the overlay has grown far past its size while checkpoints can be written."""
        return self._host.coordinator.map.active.size > 2 * self.overlay_bytes and self.failure is None

    def join(self) -> None:
        """Wait for the checkpoint under way, if there is one."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run_aside(self) -> None:
        try:
            self.run()
            self.failure = None
        except Exception as error:
            self.failure = error

    def _finish(self, progress: Callable[[int], None] | None) -> None:
        assert self._unfinished is not None
        target, frozen, state = self._unfinished
        self._host.log.wait_durable(target)
        self._checkpoint.begin(target)
        for count in self._checkpoint.write(frozen):
            if progress is not None:
                progress(count)
        self._checkpoint.finish(target, state)
        self._host.coordinator.map.thaw()
        self._unfinished = None
