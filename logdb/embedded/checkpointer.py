"""When the map's overlay of an embedded database is moved into the checkpoint, and when the checkpoint's runs are
merged."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from logdb.embedded.state_machine import StateMachine
from logdb.store.checkpoint import Checkpoint
from logdb.store.overlay import Overlay
from logdb.store.paced_checkpoints import merge_steps, write_paced
from logdb.store.pacing import Pacer
from logdb.txn.ledger import StateRow

SUFFIX_RECORDS: Final = 150_000
SUFFIX_BYTES: Final = 512 << 20
"""A checkpoint is due when the log has grown by more than this since the last one: an opening replays it."""
RETRY_S: Final = 1.0
"""Pause after a checkpoint that failed."""


logger = logging.getLogger("logdb")


class Checkpointer:
    """Writes checkpoints, one at a time; in a thread of its own when the overlay has grown past `overlay_bytes`, or the
    log by what takes long to replay.

    A checkpoint that failed (a full disk) leaves the overlay in place and readable; the next one finishes it first.
    The same thread merges runs step by step: it works half the time while merging is not behind, a checkpoint that is
    due comes first, and closing ends a merge. A merge that failed or was ended starts again after a checkpoint.
    `pacer`: how long commits wait for it. `on_rest`: called when nothing is due any more.
    """

    def __init__(self, machine: StateMachine, checkpoint: Checkpoint) -> None:
        self._machine, self._checkpoint = machine, checkpoint
        self.on_rest: Callable[[], object] = list
        self.pacer = Pacer(machine.overlay_bytes)
        self._one_at_a_time, self._starting = threading.Lock(), threading.Lock()
        self._unfinished: tuple[int, Overlay, list[StateRow]] | None = None
        self._thread: threading.Thread | None = None
        self._begun = checkpoint.covers
        self._is_failing, self._failed_at = False, -RETRY_S
        self._stopping = threading.Event()

    def run(self, progress: Callable[[int], None] | None = None) -> int:
        """Write a checkpoint of all that is applied, and merge; returns the GSN that it covers.

        `progress`: called with the number of keys written since its last call. Raises Unavailable (a full disk),
        LogFailed.
        """
        target = self.write(progress)
        for _ in self._checkpoint.merge():
            pass
        return target

    def write(self, progress: Callable[[int], None] | None = None) -> int:
        """As `run`, without merging."""
        machine, checkpoint = self._machine, self._checkpoint
        with self._one_at_a_time:
            if self._unfinished is not None:
                self._finish(progress)
            with machine.order_lock:
                machine.check_writable()
                machine.append_decisions()
                if machine.coordinator.applied == checkpoint.covers:
                    return checkpoint.covers
                target = machine.coordinator.applied
                try:
                    self._unfinished = target, machine.coordinator.map.freeze(), machine.coordinator.unsaved()
                    self._begun = target
                except BaseException as error:
                    machine.stop(f"it was interrupted at the beginning of a checkpoint ({error!r})")
                    raise
            self._finish(progress)
            return target

    def is_due(self) -> bool:
        """Whether the overlay, or the part of the log that an opening would replay, has grown large."""
        machine, begun = self._machine, self._begun
        return (
            machine.coordinator.map.active.size > machine.overlay_bytes
            or machine.coordinator.applied - begun > SUFFIX_RECORDS
            or machine.log.size(begun + 1) > SUFFIX_BYTES
        )

    def maybe_checkpoint(self) -> None:
        """Start the thread that writes a checkpoint if one is due. Called after a commit."""
        if self.is_due():
            self._start()

    def write_if_due(self) -> None:
        """Write a checkpoint in this thread if one is due. Raises as `write`."""
        if self.is_due():
            self.write()

    def join(self) -> None:
        """Wait for the end of the checkpoint under way, if there is one, and of the merges after it."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def stop(self) -> None:
        """End the checkpoint under way, and merging. Afterwards only `run` and `write` begin checkpoints."""
        self._stopping.set()
        self.join()

    def _start(self) -> None:
        with self._starting:
            thread = self._thread
            if self._stopping.is_set() or (thread is not None and thread.is_alive()):
                return
            if time.monotonic() >= self._failed_at + RETRY_S:
                thread = threading.Thread(target=self._run_in_background, name="logdb-checkpoint", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no thread can be started now; the commit before it is ordered
                    self._failed(error)
                else:
                    self._thread = thread

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
            self._failed(error)
        else:
            self._is_failing = False
            self.on_rest()
        finally:
            merge.close()
            self.pacer.merged(0.0)

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            logger.warning("checkpoint failed; it is tried again: %s", error)
        self._is_failing, self._failed_at = True, time.monotonic()

    def _finish(self, progress: Callable[[int], None] | None) -> None:
        assert self._unfinished is not None
        target, frozen, state = self._unfinished
        self._machine.log.wait_durable(target)
        write_paced(self._checkpoint, self.pacer, frozen, target, state, progress or (lambda _: None))
        self._machine.coordinator.map.thaw()
        self._unfinished = None
        frozen.clear_gradually()
