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
SYNC_BYTES = 1 << 20
"""After so many bytes the copies are synced: commits that come meanwhile wait for no more than that."""


class Compacted(NamedTuple):
    """What a compaction did.

    `floor`: the oldest version left. `relocated`: how many versions were copied. `oldest_before`, `oldest_after`: the
    oldest record in the log before and after. `read_bytes`: of the log that was read. `written_bytes`: of copies, and
    of the map that was written anew. `freed_bytes`: of the files that were removed.
    """

    floor: int
    relocated: int
    oldest_before: int
    oldest_after: int
    read_bytes: int = 0
    written_bytes: int = 0
    freed_bytes: int = 0


class Compacting(Protocol):
    """What compaction needs of the host."""

    log: OrderedLog
    coordinator: Coordinator
    order_lock: threading.Lock

    def append(self, records: Sequence[Record]) -> int: ...
    def append_locked(self, records: Sequence[Record]) -> int: ...
    def declare(self, *, always: bool = False) -> None: ...
    def settle(self, gsn: int) -> None: ...
    def checkpoint(self, *, merge: bool = True) -> int: ...
    def maybe_checkpoint(self) -> None: ...


def begin_anew(host: Compacting) -> int:
    """Let the log go on in a new file, so that all before it can be removed. Returns the version at its beginning."""
    with host.order_lock:
        host.log.begin_file()
        host.declare(always=True)
        version = host.coordinator.applied
    host.settle(version)
    return version


def compact(host: Compacting, floor: int, progress: Callable[[int], None] | None) -> Compacted:
    """Drop what only reads before `floor` could see. The host has seen to it that nobody reads there.

    What a compaction that was interrupted has copied already stays where it is.
    """
    log, coordinator, key_map = host.log, host.coordinator, host.coordinator.map
    before = log.left_by_trim(log.oldest())
    host.checkpoint(merge=False)
    reach = _reach(log, min(floor, coordinator.relocated_from or floor))
    relocated, read, written = _relocate(host, floor, reach, progress)
    with host.order_lock:
        host.declare(always=True)
        ending = Compaction(floor, coordinator.ledger.used_before(floor), coordinator.pins)
        gsn = host.append_locked([(COMPACTION, encode_compaction(ending))])
    host.settle(gsn)
    host.checkpoint(merge=False)
    checkpoint, freed = key_map.checkpoint, 0
    if checkpoint is None:
        with host.order_lock:
            key_map.active.prune(floor)
    else:
        was = checkpoint.size()
        for count in checkpoint.prune(floor):
            if progress is not None:
                progress(count)
        freed = max(was - checkpoint.size(), 0)
    was = log.size()
    log.trim(reach)
    return Compacted(floor, relocated, before, log.left_by_trim(reach), read, written, freed + max(was - log.size(), 0))


def _reach(log: OrderedLog, floor: int) -> int:
    """The oldest record to keep: what stands from there to `floor` stays readable and is not copied.

    Never between the large values of one transaction, whose commit record may come after the floor.
    """
    reach = log.left_by_trim(floor)
    oldest = log.left_by_trim(log.oldest())
    while reach > oldest and all(log.read_record(gsn, 0).tag == VALUE for gsn in (reach - 1, reach)):
        reach -= 1
    return log.left_by_trim(reach)


def _relocate(host: Compacting, floor: int, reach: int, progress: Callable[[int], None] | None) -> tuple[int, int, int]:
    """Copy to the log's end what is live at `floor` and stands before `reach`.

    Returns (versions copied, bytes read, bytes written).
    """
    copier = _Copier(host, progress)
    values = host.coordinator.map.values
    for key, version, value, place in host.coordinator.map.survivors(floor, host.coordinator.compacted_at, reach):
        if isinstance(value, Place):
            copier.read += len(key)
            if value.gsn < reach:
                content = values.load(value)
                assert content is not None
                copier.read += len(content)
                value = value._replace(gsn=copier.append(VALUE, content))
            elif place >= reach:
                continue
        else:
            copier.read += len(key) + (len(value) if value is not None else 0)
            if place >= reach:
                continue
        copier.copy(Relocated(key, version, value))
    copier.flush()
    return copier.relocated, copier.read, copier.written


class _Copier:
    """Appends copies, many at once, and syncs them now and then."""

    def __init__(self, host: Compacting, progress: Callable[[int], None] | None) -> None:
        self._host, self._progress = host, progress
        self.relocated = self.read = self.written = 0
        self._batch: list[Relocated] = []
        self._size = self._unsynced = 0

    def copy(self, entry: Relocated) -> None:
        self._batch.append(entry)
        self._size += len(entry.key) + (len(entry.value) if isinstance(entry.value, bytes) else 64)
        if self._size >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        batch = self._batch
        if batch:
            self.append(RELOCATION, encode_relocation(batch))
            self._host.maybe_checkpoint()
            self.relocated += len(batch)
            if self._progress is not None:
                self._progress(len(batch))
            self._batch, self._size = [], 0

    def append(self, tag: int, payload: bytes) -> int:
        gsn = self._host.append([(tag, payload)])
        self.written += len(payload)
        self._unsynced += len(payload)
        if self._unsynced >= SYNC_BYTES:
            self._host.settle(gsn)
            self._unsynced = 0
        return gsn
