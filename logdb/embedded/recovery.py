"""Bringing a state machine up to date with its log when a directory is opened: checkpoint, then replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.state_machine import StateMachine
from logdb.errors import Corruption
from logdb.log.contract import OrderedLog
from logdb.store.records import DECISION, decode_decision
from logdb.txn.coordinator import Coordinator

REPLAY_OVERLAYS: Final = 3
"""A replay writes a checkpoint when the overlay exceeds this multiple of `overlay_bytes`: it has the process to itself,
and the suffix that a kill leaves stays below."""
REPLAY_STRETCH: Final = 50_000
"""Number of records replayed between two checks of the overlay."""


def recover(
    machine: StateMachine, checkpointer: Checkpointer | None, progress: Callable[[int, int], None] | None
) -> None:
    """Restore the checkpoint's state and replay the records after it. `checkpointer`: None for a reader.

    `progress`: called with the number of records replayed, and of those to replay. Raises Corruption, Unavailable.
    """
    log, coordinator = machine.log, machine.coordinator
    checkpoint = coordinator.map.checkpoint
    assert checkpoint is not None
    log.refresh()
    if checkpoint.covers > log.durable:
        raise Corruption(
            machine.path, None, f"the checkpoint covers record {checkpoint.covers}, the log ends at {log.durable}"
        )
    coordinator.restore(checkpoint.covers, checkpoint.state)
    oldest = log.oldest_after_trim(log.oldest())
    if 0 < checkpoint.covers < oldest - 1:
        raise checkpoint.damaged(f"it covers record {checkpoint.covers}, the log begins at {oldest}")
    if coordinator.floor < oldest:  # without a checkpoint, or with that of an interrupted rebuild
        _begin_at_oldest(coordinator, log, log.durable)
    first, end = coordinator.applied + 1, log.durable + 1
    while coordinator.applied + 1 < end:
        stop = min(end, coordinator.applied + REPLAY_STRETCH + 1)
        with machine.order_lock:
            coordinator.replay(log.scan(coordinator.applied + 1, stop))
        if checkpointer is not None and coordinator.map.active.size > REPLAY_OVERLAYS * machine.overlay_bytes:
            checkpointer.run()
        if progress is not None:
            progress(stop - first, end - first)


def _begin_at_oldest(coordinator: Coordinator, log: OrderedLog, through: int) -> None:
    """Prepare an empty or partly replayed coordinator for a log whose prefix was trimmed: decisions that follow from
    the prefix are taken from the decision records."""
    oldest = log.oldest_after_trim(log.oldest())
    if oldest > 1:
        records = log.scan(oldest, through + 1)
        coordinator.preload_decisions(decode_decision(record.payload) for record in records if record.tag == DECISION)
        coordinator.applied = max(coordinator.applied, oldest - 1)
