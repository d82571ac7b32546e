"""A power failure after each operation on the disk: no acknowledged record is lost, and no other record appears."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from logdb.errors import Unavailable
from tests.harness.faulty_disk import Crash, Fault, FaultyDisk, contents, materialize
from tests.log.small_logs import append, assert_continues, assert_prefix, opened, payload_of

Fresh = Callable[[], Path]


class Mark(NamedTuple):
    """The expected state after `position` disk operations."""

    position: int
    acknowledged: int
    trimmed: int


class Worked(NamedTuple):
    """A recorded workload. `ordered`: the last record that was ordered."""

    disk: FaultyDisk
    marks: list[Mark]
    ordered: int

    def at(self, position: int) -> Mark:
        """The last acknowledged record and the last trim after `position` disk operations."""
        done = [mark for mark in self.marks if mark.position <= position]
        return Mark(position, max((m.acknowledged for m in done), default=0), max((m.trimmed for m in done), default=0))


def batches_and_rotations(path: Path) -> Worked:
    """Batches of all sizes, some unsynced during a rotation; a trim, a clean close, and all of it once more."""
    disk, marks = FaultyDisk(), []
    for batches in ([1, 2, 5, 1, 30, 1], [3, 1, 9, 20, 1]):
        log = opened(path, disk=disk)
        for size in batches:
            gsn = append(log, size)[-1]
            marks.append(Mark(disk.position(), gsn, 0))
        for _ in range(12):
            first = log.end()
            log.order([(7, payload_of(gsn)) for gsn in range(first, first + 3)])
        log.wait_durable(log.end() - 1)
        marks.append(Mark(disk.position(), log.durable, 0))
        marks.append(Mark(disk.position(), log.durable, log.durable - 20))
        log.trim(log.durable - 20)
        last = log.durable
        log.close()
        marks.append(Mark(disk.position(), last, 0))
    return Worked(disk, marks, last)


def records_in_parts(path: Path) -> Worked:
    """Records received in parts, between others and as the first record; and one that is never completed."""
    disk, marks = FaultyDisk(), []
    for _ in range(2):
        log = opened(path, disk=disk)
        for number in range(5):
            log.receive(10).discard()
            if not payload_of(log.end()):
                append(log, 1)
            payload = payload_of(log.end())
            incoming = log.receive(len(payload))
            for byte in payload:
                incoming.write(bytes([byte]))
            gsn = log.order_incoming(7, incoming)
            log.order([(7, payload_of(gsn + 1)), (7, payload_of(gsn + 2))])
            if number % 2:
                log.wait_durable(gsn)
                marks.append(Mark(disk.position(), log.durable, 0))
        log.receive(100).write(b"a part")
        last = append(log, 4)[-1]
        marks.append(Mark(disk.position(), last, last - 5))
        log.trim(last - 5)
        log.close()
        marks.append(Mark(disk.position(), last, 0))
    return Worked(disk, marks, last)


WORKLOADS = pytest.mark.parametrize("workload", [batches_and_rotations, records_in_parts])


def check_reopening(worked: Worked, position: int, image: dict[str, bytes], path: Path) -> None:
    """The image opens for reading and for writing with all acknowledged records, and accepts appends."""
    mark = worked.at(position)
    materialize(image, path)
    if any(name.endswith(".log") for name in image):
        check_reading(path, mark, worked.ordered)
    assert_continues(path, FaultyDisk(), mark.acknowledged, worked.ordered)


def check_reading(path: Path, mark: Mark, ordered: int) -> None:
    """A reader finds the same records and changes no file. (A log whose creation was cut short cannot be opened.)"""
    if mark.acknowledged == 0:
        return
    before = contents(path)
    log = opened(path, writable=False, disk=FaultyDisk())
    assert_prefix(log, mark.acknowledged, ordered)
    assert log.oldest() <= max(1, mark.trimmed)
    log.close()
    assert contents(path) == before


@WORKLOADS
def test_after_every_operation_and_many_losses(fresh: Fresh, workload: Callable[[Path], Worked]) -> None:
    worked = workload(fresh())
    positions = worked.disk.position()
    assert worked.disk.count("rename") > 4, "the workload must rotate"
    assert worked.disk.count("unlink") > 1, "the workload must trim"
    for position in range(positions + 1):
        rng = random.Random(position)
        crash = Crash(worked.disk.operations[:position])
        for image in crash.images(rng, samples=2):
            check_reopening(worked, position, image, fresh())


@WORKLOADS
def test_a_crash_in_the_recovery_from_a_crash(fresh: Fresh, workload: Callable[[Path], Worked]) -> None:
    worked = workload(fresh())
    for position in range(3, worked.disk.position(), 7):
        rng = random.Random(position)
        for image in Crash(worked.disk.operations[:position]).images(rng, samples=1):
            again = FaultyDisk()
            path = materialize(image, fresh())
            log = opened(path, disk=again)
            recovered = log.durable
            log.close()
            operations = range(again.position() + 1)
            for second in rng.sample(operations, min(3, len(operations))):
                (*_, drawn) = Crash(again.operations[:second], image).images(rng, samples=1)
                reopened = fresh()
                materialize(drawn, reopened)
                assert_continues(reopened, FaultyDisk(), worked.at(position).acknowledged, recovered + 5)


@WORKLOADS
def test_a_kill_loses_no_completed_write(fresh: Fresh, workload: Callable[[Path], Worked]) -> None:
    worked = workload(fresh())
    for position in range(0, worked.disk.position() + 1, 3):
        image = Crash(worked.disk.operations[:position]).killed()
        check_reopening(worked, position, image, fresh())


def test_recovered_records_are_durable(fresh: Fresh) -> None:
    """Unsynced records survive a kill. After the reopening they count as durable, so a power failure must not lose
    them."""
    worked = batches_and_rotations(fresh())
    for position in range(0, worked.disk.position() + 1, 2):
        image = Crash(worked.disk.operations[:position]).killed()
        # The records before the kill are only in the page cache: they are all pending when the log is reopened.
        first_life = Crash(worked.disk.operations[:position])
        disk = FaultyDisk()
        log = opened(materialize(image, fresh()), disk=disk)
        durable = append(log, 4)[-1]
        for lost in first_life.then(disk.operations[: disk.position()]).images(random.Random(position), samples=2):
            path = materialize(lost, fresh())
            reopened = opened(path, disk=FaultyDisk())
            assert_prefix(reopened, durable, durable)
            reopened.close()
        log.close()


@pytest.mark.parametrize("kind", ["create", "allocate", "write", "sync", "sync_directory"])
def test_a_crash_after_a_rotation_that_failed(fresh: Fresh, kind: str) -> None:
    """The file that could not be created stays removed, also if the log continues in the old one."""
    disk = FaultyDisk()
    log = opened(fresh(), disk=disk)
    last = append(log, 5)[-1]
    disk.fault = Fault(frozenset({kind}), 0, OSError(28, "No space left on device"))
    with pytest.raises(Unavailable):
        log.order([(7, b"x" * 500)])
    disk.fault = None
    for _ in range(8):
        last = append(log, 3)[-1]
    assert disk.count("rename") >= 1
    for image in Crash(disk.operations[: disk.position()]).images(random.Random(1), samples=20):
        assert_continues(materialize(image, fresh()), FaultyDisk(), last, last)
    log.close()


def test_a_rotation_while_a_flush_is_under_way(fresh: Fresh) -> None:
    """The segment is closed by the flush that writes its last frame, not by an earlier one."""
    disk = FaultyDisk()
    log = opened(fresh(), disk=disk)
    last = append(log, 1)[-1]
    log.order([(7, payload_of(last + 1))])
    taken = log.store.take_batch()
    log.order([(7, payload_of(last + 2))])
    while len(log.store.segments) == 1:
        log.order([(7, payload_of(log.end()))])
    log.store.flush(taken)
    for image in Crash(disk.operations[: disk.position()]).images(random.Random(1), samples=5):
        assert_continues(materialize(image, fresh()), FaultyDisk(), last + 1, log.end() - 1)
    log.close()
