"""One compaction of an embedded database: live versions are copied out of the log's prefix, and the prefix is trimmed.

A segment cleaner as in the log-structured file system (named in dissertation section 4.3). The steps are ordered so
that a crash between any two loses nothing: the copies, then the record that raises the floor, then a checkpoint that
covers it, then the run with the places of the copies and without the versions that only a read before the floor could
see, and then the removal of files.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from logdb.api.results import Compacted
from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.state_machine import StateMachine
from logdb.log.contract import OrderedLog
from logdb.store.checkpoint import Checkpoint
from logdb.store.records import (
    COMPACTION,
    RELOCATION,
    VALUE,
    Compaction,
    DeletedRange,
    Place,
    Relocated,
    decode_relocation,
    encode_compaction,
    encode_relocation,
)
from logdb.store.relocating import Copied, Relocator
from logdb.txn.coordinator import Coordinator

SYNC_BYTES: Final = 1 << 20
"""The copies are synced after this number of bytes, so that a commit waits for the sync of this many at most."""

Progress = Callable[[int], None]
"""Called with the number of versions copied since its last call, which may be 0; may block to slow the compaction."""


def always_true(_: int) -> bool:
    """Return True."""
    return True


def begin_new_file(machine: StateMachine) -> int:
    """Let the log continue in a new file, so that all files before it can be removed. Returns the version at its
    beginning."""
    with machine.order_lock:
        machine.log.begin_file()
        machine.append_decisions(always=True)
        version = machine.coordinator.applied
    machine.wait_durable(version)
    return version


def compact(
    machine: StateMachine,
    checkpointer: Checkpointer | None,
    floor: int,
    progress: Progress,
    release: Callable[[int], bool] = always_true,
) -> Compacted:
    """Drop the versions that only reads before `floor` could see. The caller has made sure that no lease is older.

    Copies of an earlier compaction that was interrupted are used where they are. `release`: called with the first
    record to keep; returns whether those before it may be removed.
    """
    log, coordinator = machine.log, machine.coordinator
    before = log.oldest_after_trim(log.oldest())
    if checkpointer is not None:
        checkpointer.write()
    reach = _reach(log, min(floor, coordinator.relocated_from or floor))
    restated = _restated(coordinator, before, reach)
    checkpoint = coordinator.map.checkpoint
    if checkpoint is None or checkpointer is None:
        done = Compacted(floor, _copy_overlay(machine, floor, reach), before, before)
        _raise_floor(machine, floor, restated)
        with machine.order_lock:
            coordinator.map.prune(floor)
    else:
        done = _rewrite(machine, checkpointer, checkpoint, floor, reach, restated, progress)
    size_before = log.size()
    if release(reach):
        log.trim(reach)
    with machine.order_lock:
        coordinator.drop_deletions(reach, restated)
    freed = done.freed_bytes + max(size_before - log.size(), 0)
    return done._replace(oldest_before=before, oldest_after=log.oldest_after_trim(log.oldest()), freed_bytes=freed)


def _reach(log: OrderedLog, floor: int) -> int:
    """The oldest record to keep: records from there to `floor` stay readable and are not copied.

    It is never between the large values of one transaction, whose commit record may come after the floor.
    """
    reach = log.oldest_after_trim(floor)
    oldest = log.oldest_after_trim(log.oldest())
    while reach > oldest and all(log.read_record(gsn, 0).tag == VALUE for gsn in (reach - 1, reach)):
        reach -= 1
    return log.oldest_after_trim(reach)


def _restated(coordinator: Coordinator, oldest: int, reach: int) -> list[DeletedRange]:
    """The range deletes before record `reach` whose keys may have older copies behind it, written by the last
    compaction or by one that was interrupted: a replay would revive these.

    `oldest`: the oldest record in the log. The copies behind it are those of compactions to later floors than the one
    that was set before it, and have nothing that was deleted up to that floor.
    """
    end = reach if coordinator.relocated_from else min(reach, coordinator.compacted_at)
    deletions = coordinator.map.deletions
    return [] if deletions is None else deletions.between(coordinator.floor_before(oldest), end - 1)


def _raise_floor(machine: StateMachine, floor: int, restated: Sequence[DeletedRange]) -> int:
    """Append the record after which no version before the floor can be read; returns its GSN when it is durable."""
    with machine.order_lock:
        machine.append_decisions(always=True)
        coordinator = machine.coordinator
        ending = Compaction(floor, coordinator.ledger.used_before(floor), coordinator.pins, restated)
        gsn = machine.append_locked([(COMPACTION, encode_compaction(ending))])
    machine.wait_durable(gsn)
    return gsn


def _rewrite(
    machine: StateMachine,
    checkpointer: Checkpointer,
    checkpoint: Checkpoint,
    floor: int,
    reach: int,
    restated: Sequence[DeletedRange],
    progress: Progress,
) -> Compacted:
    """Copy to the log's end what is live at `floor` and stored before `reach`, raise the floor, and rewrite the map.

    The log is synced after `SYNC_BYTES`, not for each record.
    """
    log, coordinator = machine.log, machine.coordinator
    copied = _copied(log, coordinator.relocated_from, log.durable + 1)
    key_map = coordinator.map
    deleted = key_map.deleted_to(floor)
    relocator = Relocator(floor, reach, coordinator.compacted_at, copied, key_map.values, deleted)
    reported = synced = 0
    with contextlib.closing(checkpoint.relocate(relocator)) as steps:
        records = next(steps)
        while records is not None:
            first = machine.append_copies(records)
            if relocator.written - synced >= SYNC_BYTES:
                machine.wait_durable(first + len(records) - 1)
                synced = relocator.written
            records = steps.send(first)
            checkpointer.write_if_due()
            progress(relocator.relocated - reported)
            reported = relocator.relocated
        raised_at = _raise_floor(machine, floor, restated)
        checkpointer.write()
        before = checkpoint.size()
        with contextlib.suppress(StopIteration):
            steps.send(raised_at)
    freed = max(before - checkpoint.size(), 0)
    return Compacted(floor, relocator.relocated, 0, 0, relocator.read, relocator.written, freed)


def _copied(log: OrderedLog, first: int, end: int) -> Iterator[Copied]:
    """The copies that interrupted compactions have written from record `first` (0: there are none) to before `end`, by
    key and version. Each compaction copied in the order of the keys."""
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


def _copy_overlay(machine: StateMachine, floor: int, reach: int) -> int:
    """As the copying of `_rewrite`, for a map in memory, which needs only the places of large values. Returns the
    number of versions copied."""
    key_map = machine.coordinator.map
    copies = []
    for key, version, value, place in key_map.active.live_at(floor, key_map.deleted_to(floor)):
        if isinstance(value, Place) and value.gsn < reach:
            content = key_map.values.load(value)
            assert content is not None
            copies.append(Relocated(key, version, value._replace(gsn=machine.append([(VALUE, content)]))))
        elif place < reach:
            copies.append(Relocated(key, version, value))
    if copies:
        machine.append([(RELOCATION, encode_relocation(copies))])
    return len(copies)
