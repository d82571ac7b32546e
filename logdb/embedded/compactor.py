"""Compaction of the embedded host: what is live moves out of the log's prefix, and the prefix goes.

A segment cleaner after the log-structured file system (dissertation section 4.3 names it). The steps are ordered so
that a crash between any two loses nothing: copies first, then the record that raises the floor, then a checkpoint
that needs nothing of the prefix, and only then the files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from logdb.log.contract import OrderedLog, Record
from logdb.store.records import (
    COMPACTION,
    RELOCATION,
    VALUE,
    Compaction,
    Place,
    Relocated,
    encode_compaction,
    encode_relocation,
)
from logdb.txn.coordinator import Coordinator

BATCH_BYTES = 64 << 10
"""Of a relocation record. Who looks one version up in it decodes it whole, so it must not be large."""


class Compacted(NamedTuple):
    """What a compaction did:

    the oldest version left, the versions copied, the oldest record in the log before and after.
    """

    floor: int
    relocated: int
    oldest_before: int
    oldest_after: int


class Compacting(Protocol):
    """What compaction needs of the host."""

    log: OrderedLog
    coordinator: Coordinator
    order_lock: threading.Lock

    def append(self, records: Sequence[Record]) -> int: ...
    def append_locked(self, records: Sequence[Record]) -> int: ...
    def declare(self, *, always: bool = False) -> None: ...
    def settle(self, gsn: int) -> None: ...
    def checkpoint(self) -> int: ...
    def relieve(self) -> None: ...


def compact(host: Compacting, floor: int, progress: Callable[[int], None] | None) -> Compacted:
    """Drop what only reads before `floor` could see. The host has seen to it that nobody reads there."""
    log, key_map = host.log, host.coordinator.map
    before = log.left_by_trim(log.oldest())
    host.checkpoint()
    reach = _reach(log, floor)
    relocated = _relocate(host, floor, reach, progress)
    with host.order_lock:
        host.declare(always=True)
        ending = Compaction(floor, host.coordinator.ledger.used_before(floor), host.coordinator.pins)
        gsn = host.append_locked([(COMPACTION, encode_compaction(ending))])
    host.settle(gsn)
    host.checkpoint()
    if key_map.checkpoint is None:
        with host.order_lock:
            key_map.active.prune(floor)
    else:
        for count in key_map.checkpoint.prune(floor):
            if progress is not None:
                progress(count)
    log.trim(reach)
    return Compacted(floor, relocated, before, log.left_by_trim(reach))


def _reach(log: OrderedLog, floor: int) -> int:
    """The oldest record to keep: what stands from there to `floor` stays readable and is not copied.

    Never between the large values of one transaction, whose commit record may come after the floor.
    """
    reach = log.left_by_trim(floor)
    oldest = log.left_by_trim(log.oldest())
    while reach > oldest and all(log.read_record(gsn, 0).tag == VALUE for gsn in (reach - 1, reach)):
        reach -= 1
    return log.left_by_trim(reach)


def _relocate(host: Compacting, floor: int, reach: int, progress: Callable[[int], None] | None) -> int:
    """Copy to the log's end what is live at `floor` and stands before `reach`. Returns the number of versions."""
    batch: list[Relocated] = []
    relocated = size = 0

    def flush() -> None:
        nonlocal size
        if batch:
            host.append([(RELOCATION, encode_relocation(batch))])
            host.relieve()
            if progress is not None:
                progress(len(batch))
            batch.clear()
            size = 0

    for key, version, value, place in host.coordinator.map.survivors(floor, host.coordinator.compacted_at, reach):
        if isinstance(value, Place) and value.gsn < reach:
            content = host.coordinator.map.values.load(value)
            assert content is not None
            value = value._replace(gsn=host.append([(VALUE, content)]))
        elif place >= reach:
            continue
        batch.append(Relocated(key, version, value))
        relocated += 1
        size += len(key) + (len(value) if isinstance(value, bytes) else 64)
        if size >= BATCH_BYTES:
            flush()
    flush()
    return relocated
