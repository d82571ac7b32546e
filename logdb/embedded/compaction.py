"""One compaction of the embedded host: what is live moves out of the log's prefix, and the prefix goes.

A segment cleaner after the log-structured file system (dissertation section 4.3 names it). The steps are ordered so
that a crash between any two loses nothing: copies first, then the record that raises the floor, then a checkpoint that
covers it, then the run that says where the copies stand and has nothing that only a read before the floor could see,
and only then the files go.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol

from logdb.api.results import Compacted
from logdb.log.contract import OrderedLog, Record
from logdb.store.checkpoint import Checkpoint
from logdb.store.records import (
    COMPACTION,
    RELOCATION,
    VALUE,
    Compaction,
    Place,
    Relocated,
    decode_relocation,
    encode_compaction,
    encode_relocation,
)
from logdb.store.relocating import Copied, Relocator
from logdb.txn.coordinator import Coordinator

SYNC_BYTES: Final = 1 << 20
"""After so many bytes the copies are synced: commits that come meanwhile wait for no more than that."""

Progress = Callable[[int], None]
"""Hears of versions copied, now and then also that it were none: whoever paces a compaction waits in it."""


class Compacting(Protocol):
    """What compaction needs of the host."""

    log: OrderedLog
    coordinator: Coordinator
    order_lock: threading.Lock

    def append(self, records: Sequence[Record]) -> int: ...
    def append_copies(self, records: Sequence[Record]) -> int: ...
    def append_locked(self, records: Sequence[Record]) -> int: ...
    def append_decisions(self, *, always: bool = False) -> None: ...
    def settle(self, gsn: int) -> None: ...
    def checkpoint(self, *, merge: bool = True) -> int: ...
    def maybe_checkpoint(self) -> None: ...


def begin_anew(host: Compacting) -> int:
    """Let the log go on in a new file, so that all before it can be removed. Returns the version at its beginning."""
    with host.order_lock:
        host.log.begin_file()
        host.append_decisions(always=True)
        version = host.coordinator.applied
    host.settle(version)
    return version


def compact(host: Compacting, floor: int, progress: Progress) -> Compacted:
    """Drop what only reads before `floor` could see. The host has seen to it that nobody reads there.

    What a compaction that was interrupted has copied already stays where it is.
    """
    log, coordinator = host.log, host.coordinator
    before = log.oldest_after_trim(log.oldest())
    host.checkpoint(merge=False)
    reach = _reach(log, min(floor, coordinator.relocated_from or floor))
    checkpoint = coordinator.map.checkpoint
    if checkpoint is None:
        done = Compacted(floor, _copy_overlay(host, floor, reach), before, before)
        _raise_floor(host, floor)
        with host.order_lock:
            coordinator.map.active.prune(floor)
    else:
        done = _rewrite(host, checkpoint, floor, reach, progress)
    was = log.size()
    log.trim(reach)
    freed = done.freed_bytes + max(was - log.size(), 0)
    return done._replace(oldest_before=before, oldest_after=log.oldest_after_trim(reach), freed_bytes=freed)


def _reach(log: OrderedLog, floor: int) -> int:
    """The oldest record to keep: what stands from there to `floor` stays readable and is not copied.

    Never between the large values of one transaction, whose commit record may come after the floor.
    """
    reach = log.oldest_after_trim(floor)
    oldest = log.oldest_after_trim(log.oldest())
    while reach > oldest and all(log.read_record(gsn, 0).tag == VALUE for gsn in (reach - 1, reach)):
        reach -= 1
    return log.oldest_after_trim(reach)


def _raise_floor(host: Compacting, floor: int) -> int:
    """Append the record from which on nothing before the floor can be read; returns where, when it is durable."""
    with host.order_lock:
        host.append_decisions(always=True)
        coordinator = host.coordinator
        ending = Compaction(floor, coordinator.ledger.used_before(floor), coordinator.pins)
        gsn = host.append_locked([(COMPACTION, encode_compaction(ending))])
    host.settle(gsn)
    return gsn


def _rewrite(host: Compacting, checkpoint: Checkpoint, floor: int, reach: int, progress: Progress) -> Compacted:
    """Copy to the log's end what is live at `floor` and stands before `reach`, raise the floor, and write the map anew.

    The log is synced by bytes, not for each record.
    """
    log, coordinator = host.log, host.coordinator
    copied = _copied(log, coordinator.relocated_from, log.durable + 1)
    relocator = Relocator(floor, reach, coordinator.compacted_at, copied, coordinator.map.values)
    told = synced = 0
    with contextlib.closing(checkpoint.relocate(relocator)) as steps:
        records = next(steps)
        while records is not None:
            first = host.append_copies(records)
            if relocator.written - synced >= SYNC_BYTES:
                host.settle(first + len(records) - 1)
                synced = relocator.written
            records = steps.send(first)
            host.maybe_checkpoint()
            progress(relocator.relocated - told)
            told = relocator.relocated
        raised_at = _raise_floor(host, floor)
        host.checkpoint(merge=False)
        before = checkpoint.size()
        with contextlib.suppress(StopIteration):
            steps.send(raised_at)
    freed = max(before - checkpoint.size(), 0)
    return Compacted(floor, relocator.relocated, 0, 0, relocator.read, relocator.written, freed)


def _copied(log: OrderedLog, first: int, end: int) -> Iterator[Copied]:
    """What compactions that were interrupted have copied to the records from `first` (0: there were none) to before
    `end`, by key and version. Each of them copied in the order of the keys."""
    begun: list[int] = []
    last = b""
    for gsn, entries in _copies(log, first, end):
        if not begun or entries[0].key <= last:
            begun.append(gsn)
        last = entries[-1].key

    def of_one(first: int, end: int) -> Iterator[Copied]:
        for gsn, entries in _copies(log, first, end):
            for key, version, value in entries:
                yield Copied(key, version, gsn, value)

    return heapq.merge(*[of_one(first, end) for first, end in pairwise([*begun, end])])


def _copies(log: OrderedLog, first: int, end: int) -> Iterator[tuple[int, list[Relocated]]]:
    for record in log.scan(first, end) if first else ():
        if record.tag == RELOCATION:
            yield record.gsn, decode_relocation(record.payload)


def _copy_overlay(host: Compacting, floor: int, reach: int) -> int:
    """As the copying of `_rewrite`, of a map in memory, which needs the places of large values alone. Returns the
    versions copied."""
    key_map = host.coordinator.map
    copies = []
    for key, version, value, place in key_map.active.live_at(floor):
        if isinstance(value, Place) and value.gsn < reach:
            content = key_map.values.load(value)
            assert content is not None
            copies.append(Relocated(key, version, value._replace(gsn=host.append([(VALUE, content)]))))
        elif place < reach:
            copies.append(Relocated(key, version, value))
    if copies:
        host.append([(RELOCATION, encode_relocation(copies))])
    return len(copies)
