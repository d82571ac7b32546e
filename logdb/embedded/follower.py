"""How a read-only host keeps up with the process that writes: it applies the same log, and adopts its checkpoints."""

from __future__ import annotations

import threading
from typing import Protocol

from logdb.errors import Corruption
from logdb.log.contract import OrderedLog, Trimmed
from logdb.store.key_map import KeyMap
from logdb.txn.coordinator import Coordinator


class Follower(Protocol):
    """What following needs of the host. `overlay_bytes`: from there on it looks for a newer checkpoint."""

    path: str
    log: OrderedLog
    coordinator: Coordinator
    order_lock: threading.Lock
    overlay_bytes: int


def follow(host: Follower) -> int:
    """Apply what has become durable meanwhile; returns the version reached. Raises Corruption."""
    if host.log.refresh() > host.coordinator.applied:
        with host.order_lock:
            _apply_new(host)
            if host.coordinator.map.active.size > host.overlay_bytes:
                _adopt(host)
    return host.coordinator.applied


def _apply_new(host: Follower) -> None:
    while (durable := host.log.refresh()) > host.coordinator.applied:
        try:
            host.coordinator.replay(host.log.scan(host.coordinator.applied + 1, durable + 1))
        except Trimmed as error:
            _begin_again(host, error.oldest)


def _begin_again(host: Follower, oldest: int) -> None:
    """The writer has compacted what was not read yet: go on from its checkpoint, which covers all that is gone."""
    checkpoint = host.coordinator.map.checkpoint
    assert checkpoint is not None
    host.coordinator.floor = oldest  # who reads at the versions known so far is told that they are gone
    checkpoint.switch(checkpoint.newest())
    if checkpoint.covers < oldest - 1:
        raise Corruption(
            host.path, None, f"the checkpoint covers record {checkpoint.covers}, the log begins at {oldest}"
        )
    fresh = Coordinator(KeyMap(host.coordinator.map.values, checkpoint))
    fresh.restore(checkpoint.covers, checkpoint.state)
    host.coordinator = fresh


def _adopt(host: Follower) -> None:
    checkpoint = host.coordinator.map.checkpoint
    assert checkpoint is not None
    snapshot = checkpoint.newest()
    # What the snapshot lacks because of a compaction, the log says: hear that first.
    _apply_new(host)
    if checkpoint.covered_by(snapshot) > checkpoint.covers:
        host.coordinator.map.adopt(snapshot)
