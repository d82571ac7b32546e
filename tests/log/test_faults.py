"""Failing disks: acknowledged records stay, other records are never acknowledged later, and no caller hangs."""

from __future__ import annotations

import errno
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from logdb.errors import Unavailable
from logdb.log import LocalLog
from logdb.log.contract import LogFailed
from logdb.system.disk import Disk, described
from tests.harness.faulty_disk import Crash, Fault, FaultyDisk, contents, materialize
from tests.log.small_logs import TAG, append, assert_continues, assert_prefix, opened, payload_of, segment_files

Fresh = Callable[[], Path]
EIO = OSError(errno.EIO, "Input/output error")
ENOSPC = OSError(errno.ENOSPC, "No space left on device")
EMFILE = OSError(errno.EMFILE, "Too many open files")
CHANGES = ("create", "write", "allocate", "truncate", "sync", "sync_directory", "rename", "unlink")
BATCHES = [1, 2, 5, 1, 30, 1, 12, 20, 3]


def work(path: Path, disk: FaultyDisk, acknowledged: list[int]) -> None:
    """Append, rotate, trim and close; note what was acknowledged."""
    log = opened(path, disk=disk)
    try:
        acknowledged.extend(append(log, size)[-1] for size in BATCHES)
        log.trim(30)
    except LogFailed:
        assert_failed(log, acknowledged[-1] if acknowledged else 0)
    finally:
        log.close()


def assert_failed(log: LocalLog, acknowledged: int) -> None:
    """SEG-4: the log acknowledges nothing, however often it is called, and even if the disk works again."""
    durable = log.durable
    assert durable >= acknowledged
    for _ in range(2):
        with pytest.raises(LogFailed):
            log.append([(TAG, b"after the failure")])
        if log.end() - 1 > durable:
            with pytest.raises(LogFailed):
                log.wait_durable(log.end() - 1)
    with pytest.raises(LogFailed):
        log.wait_past(durable, 60)
    assert log.durable == durable
    assert_prefix(log, durable, durable)  # what was durable can still be read


CALLS: dict[str, Callable[[Disk, int], object]] = {
    "write": lambda disk, fd: disk.write(fd, b"x", 0),
    "allocate": lambda disk, fd: disk.allocate(fd, 0, 1),
    "truncate": lambda disk, fd: disk.truncate(fd, 1),
    "sync": lambda disk, fd: disk.sync(fd),
    "map": lambda disk, fd: disk.map(fd, 1),
}


@pytest.mark.parametrize("call", sorted(CALLS))
def test_the_file_in_which_a_call_failed_is_named(call: str) -> None:
    """On a real device that accepts no data."""
    fd = os.open("/dev/full", os.O_RDONLY)
    try:
        with pytest.raises(OSError) as failed:
            CALLS[call](Disk(), fd)
    finally:
        os.close(fd)
    assert described(failed.value) == f"/dev/full: {failed.value.strerror}"


def test_the_error_of_a_failed_log_names_the_file(fresh: Fresh) -> None:
    class Full(FaultyDisk):
        def write(self, fd: int, data: bytes, offset: int) -> None:
            with open("/dev/full", "wb", buffering=0) as full:
                Disk.write(self, full.fileno() if offset > 64 else fd, data, offset)

    log = opened(fresh(), disk=Full())
    try:
        append(log, 1)
        for _ in range(2):
            with pytest.raises(LogFailed, match=r"^/dev/full: No space left on device; free some space and try again$"):
                append(log, 1)
    finally:
        log.close()


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
def test_a_failure_of_every_call(fresh: Fresh, kind: str, forever: bool) -> None:
    nth, failed = 0, True
    while failed:
        path, acknowledged = fresh(), list[int]()
        disk = FaultyDisk(Fault(frozenset({kind}), nth, EIO, forever=forever))
        try:
            work(path, disk, acknowledged)
        except (OSError, LogFailed) as error:
            assert "Input/output error" in str(error)
        failed = disk.hits > 0
        if failed or not forever:
            assert_continues(path, FaultyDisk(), acknowledged[-1] if acknowledged else 0, sum(BATCHES))
        nth += 1
    assert acknowledged[-1] == sum(BATCHES)
    assert nth > 1, "the workload must make the call"


def test_an_opening_writes_again_what_a_failed_sync_has_left_in_memory(fresh: Fresh) -> None:
    """The next opening reads these records, counts them as durable, and appends behind them."""
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk)
    append(log, 2)
    disk.fault = Fault(frozenset({"sync"}), 0, EIO)
    with pytest.raises(LogFailed):
        append(log, 3)
    log.close()
    log = opened(path, disk=disk)
    assert log.durable == 5
    last = append(log, 2)[-1]
    for image in Crash(disk.operations).images(random.Random(0), samples=4):
        assert_continues(materialize(image, fresh()), FaultyDisk(), last, last)
    log.close()


@pytest.mark.parametrize("kind", ["create", "allocate"])
def test_a_full_disk_rejects_the_whole_append(fresh: Fresh, kind: str) -> None:
    """At every reservation of space: rejected, nothing numbered, and the same append succeeds when there is space."""
    nth, refusals, hit = 0, 0, True
    while hit:
        path = fresh()
        disk = FaultyDisk()
        log = opened(path, disk=disk)
        disk.fault = Fault(frozenset({kind}), nth, ENOSPC, forever=True)
        for size in BATCHES:
            end, files = log.end(), segment_files(path)
            try:
                append(log, size)
            except Unavailable as error:
                assert "is full" in str(error)
                assert "free some space" in str(error)
                assert (log.end(), log.durable, segment_files(path)) == (end, end - 1, files)
                refusals += 1
                disk.fault = None
                append(log, size)
        hit, disk.fault = disk.hits > 0, None
        assert_prefix(log, sum(BATCHES), sum(BATCHES))
        log.close()
        assert_continues(path, FaultyDisk(), sum(BATCHES), sum(BATCHES))
        nth += 1
    assert refusals > 1


def test_an_append_needs_only_its_own_space(fresh: Fresh) -> None:
    """The disk has less space than a segment would reserve, for its growth or for a new one."""
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk)
    for size in BATCHES:
        disk.fault = Fault(frozenset({"allocate"}), 0, ENOSPC)
        append(log, size)
    disk.fault = None
    assert_prefix(log, sum(BATCHES), sum(BATCHES))
    log.close()
    assert_continues(path, FaultyDisk(), sum(BATCHES), sum(BATCHES))


def test_smaller_appends_succeed_while_the_disk_is_full(fresh: Fresh) -> None:
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk, segment_bytes=1 << 16)
    last = append(log, 1)[-1]
    disk.fault = Fault(frozenset({"allocate", "create"}), 0, ENOSPC, forever=True)
    with pytest.raises(Unavailable, match="is full"):
        log.append([(TAG, b"x" * 5000)])
    while disk.hits == 1:
        try:
            last = append(log, 1)[-1]
        except Unavailable:
            break
    assert last > 2
    assert log.durable == last
    assert_prefix(log, last, last)
    log.close()  # without room for an index
    assert not list(path.glob("*.idx"))
    assert not list(path.glob("*.tmp"))
    disk.fault = None
    assert_continues(path, disk, last, last)


@pytest.mark.parametrize("error", [ENOSPC, EMFILE], ids=["ENOSPC", "EMFILE"])
def test_a_rotation_without_room_for_the_index(fresh: Fresh, error: OSError) -> None:
    """The index is optional: the log continues, and writes it at the next opening."""
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk)
    append(log, 30)
    # The second creation of a rotation is the index of the full segment.
    disk.fault = Fault(frozenset({"create"}), 1, error)
    last = append(log, 12)[-1]
    assert disk.hits == 1
    assert_prefix(log, last, last)
    log.close()
    assert len(list(path.glob("*.idx"))) < len(segment_files(path))
    assert_continues(path, FaultyDisk(), last, last)
    assert len(list(path.glob("*.idx"))) == len(segment_files(path))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", CHANGES)
def test_an_interrupt_in_every_call(fresh: Fresh, kind: str, after: bool) -> None:
    """Ctrl-C is not a failure: no ordered record is lost, and the log continues."""
    nth, interrupted = 0, True
    while interrupted:
        path, disk = fresh(), FaultyDisk()
        log = opened(path, disk=disk)
        disk.fault = Fault(frozenset({kind}), nth, KeyboardInterrupt(), after=after)
        interrupted = False
        for size in [*BATCHES, 0]:
            end = log.end()
            try:
                append(log, size) if size else log.trim(30)
            except KeyboardInterrupt:
                interrupted = True
                assert log.end() in (end, end + size)
                append(log, size) if log.end() == end and size else log.wait_durable(log.end() - 1)
        log.trim(30)
        disk.fault = None
        assert_prefix(log, sum(BATCHES), sum(BATCHES))
        log.close()
        assert_continues(path, FaultyDisk(), sum(BATCHES), sum(BATCHES))
        nth += 1


def test_an_interrupt_of_closing(fresh: Fresh) -> None:
    """Records that were not synced when `close` was interrupted are synced by the next `close`."""
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk)
    append(log, 3)
    log.order([(TAG, payload_of(4))])
    disk.fault = Fault(frozenset({"sync"}), 0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        log.close()
    with pytest.raises(LogFailed, match="the log is closed"):
        append(log, 1)
    disk.fault = None
    log.close()
    assert_continues(path, FaultyDisk(), 4, 4)


@pytest.mark.parametrize("bad", [(256, b""), (-1, b""), ("x", b""), (1, None), (1, "text")])
def test_an_invalid_record_rejects_the_whole_append(fresh: Fresh, bad: tuple[int, bytes]) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    append(log, 2)
    with pytest.raises((TypeError, struct.error)):
        log.append([(TAG, b"good"), bad, (TAG, b"good")])
    assert append(log, 2) == range(3, 5)
    assert_prefix(log, 4, 4)
    log.close()
    assert_continues(path, FaultyDisk(), 4, 4)


def test_a_write_to_a_read_only_log(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    append(log, 60)
    log.close()
    log = opened(path, writable=False)
    files = sorted(path.iterdir())
    with pytest.raises(LogFailed, match="open for reading only"):
        append(log, 1)
    with pytest.raises(LogFailed, match="open for reading only"):
        log.trim(60)
    log.close()
    assert sorted(path.iterdir()) == files


def test_after_close(fresh: Fresh) -> None:
    log = opened(fresh(), disk=FaultyDisk())
    append(log, 3)
    log.close()
    log.close()
    for use in (lambda: append(log, 1), lambda: log.read_record(1, 0), lambda: log.wait_past(3, None)):
        with pytest.raises(LogFailed, match="the log is closed"):
            use()
    log.wait_durable(3)
    with pytest.raises(ValueError, match="record 4 was never ordered"):
        log.wait_durable(4)


@pytest.mark.parametrize("kind", ["create", "allocate", "write", "sync", "sync_directory"])
@pytest.mark.parametrize("close", [True, False], ids=["closed", "killed"])
def test_a_rotation_that_was_interrupted_and_not_repeated(fresh: Fresh, kind: str, close: bool) -> None:
    """The log continues in the old file, past the number in the name of the new one, which contains no record."""

    class FailingUnlink(FaultyDisk):
        """The removal of what the creation had made is cut short too."""

        def unlink(self, path: Path) -> None:
            if self.fault is not None:
                raise KeyboardInterrupt
            super().unlink(path)

    path, disk = fresh(), FailingUnlink()
    log = opened(path, disk=disk)
    append(log, 2)
    disk.fault = Fault(frozenset({kind}), 0, KeyboardInterrupt(), after=True)
    with pytest.raises(KeyboardInterrupt):
        log.order([(TAG, b"x" * 500)])
    disk.fault = None
    assert len(segment_files(path)) == 2
    for _ in range(3):
        append(log, 2)
    assert log.durable == 8
    image = contents(path)
    for lost in (image, image | {"durable": bytes(16)}):
        assert_continues(materialize(lost, fresh()), FaultyDisk(), 8, 8)
        reader = opened(materialize(lost, fresh()), writable=False, disk=FaultyDisk())
        assert_prefix(reader, 8, 8)
        reader.close()
    for _ in range(6):  # and over the next rotation
        append(log, 10)
    image = contents(path)
    if close:
        log.close()
        image = contents(path)
    for lost in (image, image | {"durable": bytes(16)}):
        assert_continues(materialize(lost, fresh()), FaultyDisk(), 68, 68)
    if not close:
        log.close()
