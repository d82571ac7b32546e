"""How a database opened for reading follows the process that writes it: it applies the same log, and adopts its
checkpoints."""

from __future__ import annotations

import threading
from typing import Protocol

from logdb.errors import Corruption
from logdb.log.contract import OrderedLog, Trimmed
from logdb.store.key_map import KeyMap
from logdb.txn.coordinator import Coordinator


class Follower(Protocol):
    """The state machine that follows. `overlay_bytes`: size of the overlay above which it adopts a newer checkpoint."""

    path: str
    log: OrderedLog
    coordinator: Coordinator
    order_lock: threading.Lock
    overlay_bytes: int


def follow(machine: Follower) -> int:
    """Apply the records that have become durable. Returns the newest version applied. Raises Corruption."""
    if machine.log.refresh() > machine.coordinator.applied:
        with machine.order_lock:
            _apply_new(machine)
            if machine.coordinator.map.active.size > machine.overlay_bytes:
                _adopt(machine)
    return machine.coordinator.applied


def _apply_new(machine: Follower) -> None:
    while (durable := machine.log.refresh()) > machine.coordinator.applied:
        try:
            machine.coordinator.replay(machine.log.scan(machine.coordinator.applied + 1, durable + 1))
        except Trimmed as error:
            _restart_from_checkpoint(machine, error.oldest)


def _restart_from_checkpoint(machine: Follower, oldest: int) -> None:
    """Continue from the writer's checkpoint, which covers the records that were trimmed before they were read here."""
    checkpoint = machine.coordinator.map.checkpoint
    assert checkpoint is not None
    machine.coordinator.floor = oldest  # reads at versions before it raise VersionTrimmed
    checkpoint.switch(checkpoint.newest())
    if checkpoint.covers < oldest - 1:
        raise Corruption(
            machine.path, None, f"the checkpoint covers record {checkpoint.covers}, the log begins at {oldest}"
        )
    fresh = Coordinator(KeyMap(machine.coordinator.map.values, checkpoint))
    fresh.restore(checkpoint.covers, checkpoint.state)
    machine.coordinator = fresh


def _adopt(machine: Follower) -> None:
    checkpoint = machine.coordinator.map.checkpoint
    assert checkpoint is not None
    snapshot = checkpoint.newest()
    # The floor of a compaction that has dropped versions from the snapshot is in the log: apply that first.
    _apply_new(machine)
    if checkpoint.covered_by(snapshot) > checkpoint.covers:
        machine.coordinator.map.adopt(snapshot)
