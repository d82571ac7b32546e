"""Replaying a log into a map of its own, aside from the database's: for whoever trusts only the log."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from logdb.log.contract import LogRecord, OrderedLog
from logdb.store.checkpoint import Checkpoint
from logdb.store.mapping import KeyMap
from logdb.store.records import DECISION, Commit, decode_decision
from logdb.store.values import Values
from logdb.txn.coordinator import Coordinator
from logdb.txn.validation import Verdict

OVERLAY_BYTES = 64 << 20
STRETCH = 20_000


@contextmanager
def replayed_aside(
    log: OrderedLog,
    log_id: bytes,
    through: int,
    *,
    on_verdict: Callable[[LogRecord, Commit, Verdict], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Coordinator]:
    """A coordinator that was given the records up to `through`, its map wholly in a temporary checkpoint.

    Where the log has been trimmed, decisions that only the lost prefix could explain are taken from its decision
    records.
    """
    # Not TemporaryDirectory, which a child of fork() that ends would remove as well.
    directory, owner = tempfile.mkdtemp(prefix="logdb-"), os.getpid()
    try:
        checkpoint = Checkpoint(Path(directory), log_id)
        try:
            coordinator = Coordinator(KeyMap(Values(log.read_record), checkpoint))
            begin_at_oldest(coordinator, log, through)
            first = coordinator.applied
            while coordinator.applied < through:
                stop = min(through, coordinator.applied + STRETCH)
                coordinator.replay(log.scan(coordinator.applied + 1, stop + 1), on_verdict)
                if coordinator.map.active.size > OVERLAY_BYTES:
                    _checkpoint(coordinator, checkpoint)
                if progress is not None:
                    progress(stop - first, through - first)
            _checkpoint(coordinator, checkpoint)
            yield coordinator
        finally:
            checkpoint.close()
    finally:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)


def begin_at_oldest(coordinator: Coordinator, log: OrderedLog, through: int) -> None:
    """Prepare a coordinator, empty or interrupted on its way, for a log whose prefix is gone."""
    oldest = log.left_by_trim(log.oldest())
    if oldest > 1:
        records = log.scan(oldest, through + 1)
        coordinator.foresee(decode_decision(record.payload) for record in records if record.tag == DECISION)
        coordinator.applied = max(coordinator.applied, oldest - 1)


def _checkpoint(coordinator: Coordinator, checkpoint: Checkpoint) -> None:
    frozen, state = coordinator.map.freeze(), coordinator.unsaved()
    checkpoint.begin(coordinator.applied)
    for _ in checkpoint.write(frozen):
        pass
    checkpoint.finish(coordinator.applied, state)
    coordinator.map.thaw()
