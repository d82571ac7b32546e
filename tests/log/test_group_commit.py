"""Callers share one sync, a single caller does not wait for others, and a leader can fail or be interrupted."""

from __future__ import annotations

import dis
import errno
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import pytest

from logdb.log import LocalLog
from logdb.log.contract import LogFailed
from logdb.log.local import local_log
from logdb.log.segments import segment, store, watermark
from tests.harness import faulty_disk
from tests.harness.faulty_disk import Fault, FaultyDisk, contents, materialize
from tests.log.small_logs import LOG_ID, TAG, append, assert_prefix, opened, records

Fresh = Callable[[], Path]
JOIN_S = 60
EIO = OSError(errno.EIO, "Input/output error")


class GatedDisk(FaultyDisk):
    """While `closed`, the next sync of a segment sets `arrived` and waits for `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.arrived, self.released = threading.Event(), threading.Event()

    def sync(self, fd: int) -> None:
        if self.closed:
            self.closed = False
            self.arrived.set()
            assert self.released.wait(JOIN_S)
        super().sync(fd)


class RealDisk(FaultyDisk):
    """Syncs to the real disk, during which other threads can run."""

    def sync(self, fd: int) -> None:
        super().sync(fd)
        os.fdatasync(fd)


def started(calls: Sequence[Callable[[], object]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(JOIN_S)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


def spin_until(condition: Callable[[], bool]) -> None:
    """Let other threads run until the condition is true."""
    for _ in range(10_000_000):
        if condition():
            return
        threading.Event().wait(0.0005)
    pytest.fail("the condition never became true")


@pytest.mark.parametrize("threads", [8, 64])
def test_appends_are_durable_on_return_with_fewer_syncs(fresh: Fresh, threads: int) -> None:
    """Appends that arrive during a sync of a real disk share the next one."""
    disk = RealDisk()
    log = opened(fresh(), disk=disk, segment_bytes=1 << 20)
    each = 800 // threads
    got: dict[int, list[range]] = {number: [] for number in range(threads)}
    errors: list[BaseException] = []
    before = disk.count("sync")

    def work(number: int) -> None:
        try:
            for turn in range(each):
                gsns = log.append([(TAG, b"%d/%d/%d" % (number, turn, part)) for part in range(turn % 3 + 1)])
                assert log.durable >= gsns[-1]
                got[number].append(gsns)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        joined(started([lambda number=number: work(number) for number in range(threads)]))  # type: ignore[misc]
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    stored = {record.gsn: record.payload for record in records(log)}
    for number, ranges in got.items():
        assert all(a[-1] < b[0] for a, b in itertools.pairwise(ranges)), "a thread's appends are in its order"
        for turn, gsns in enumerate(ranges):
            assert [stored.pop(gsn) for gsn in gsns] == [b"%d/%d/%d" % (number, turn, i) for i in range(len(gsns))]
    assert not stored
    assert disk.count("sync") - before < threads * each
    log.close()


def test_callers_during_a_sync_share_the_next_one(fresh: Fresh) -> None:
    disk = GatedDisk()
    log = opened(fresh(), disk=disk, segment_bytes=1 << 20)
    disk.closed = True
    leader = started([lambda: append(log, 1)])
    assert disk.arrived.wait(JOIN_S)
    others = started([lambda: log.append([(TAG, b"x")]) for _ in range(30)])
    spin_until(lambda: log.flushing == 31)
    assert log.durable == 0
    before = disk.count("sync")
    disk.released.set()
    joined(leader + others)
    assert log.durable == 31
    assert disk.count("sync") - before == 2, "the leader's, and one for the thirty"
    log.close()


def test_a_lone_caller_syncs_at_once(fresh: Fresh) -> None:
    disk = FaultyDisk()
    log = opened(fresh(), disk=disk, segment_bytes=1 << 20)
    before = disk.count("sync"), disk.count("write")
    for _ in range(5):
        append(log, 2)
    assert (disk.count("sync"), disk.count("write")) == (before[0] + 5, before[1] + 5)
    log.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EIO], ids=["interrupted", "failed"])
@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_leader_that_fails_or_is_interrupted(fresh: Fresh, error: BaseException, kind: str, after: bool) -> None:
    """After an interrupt, a waiting caller becomes the leader, and no record is lost. After a failure, all waiting
    callers raise."""
    path, disk = fresh(), GatedDisk()
    log = opened(path, disk=disk, segment_bytes=1 << 20)
    outcomes: list[BaseException | int] = []

    def work() -> None:
        try:
            outcomes.append(log.append([(TAG, b"waiting")])[0])
        except BaseException as caught:
            outcomes.append(caught)

    disk.closed = True
    first = started([work])
    assert disk.arrived.wait(JOIN_S)
    waiters = started([work] * 10)
    spin_until(lambda: log.flushing == 11)
    # The error hits the first sync, which is the gated one, or the write of the next leader.
    disk.fault = Fault(frozenset({kind}), 0, error, after=after)
    disk.released.set()
    joined(first + waiters)
    durable = sum(isinstance(outcome, int) for outcome in outcomes)
    errors = [outcome for outcome in outcomes if not isinstance(outcome, int)]
    assert disk.hits == 1
    if isinstance(error, KeyboardInterrupt):
        assert durable == 10
        assert errors == [error]
        assert log.flushing == 0
        assert len(log.append([(TAG, b"next")])) == 1
        assert [record.gsn for record in records(log)] == list(range(1, 13))
        log.close()
        log = opened(path, disk=FaultyDisk())
        assert log.durable == 12
    else:
        assert durable == (0 if kind == "sync" else 1)
        assert all(isinstance(outcome, LogFailed) for outcome in errors)
        with pytest.raises(LogFailed):
            log.append([(TAG, b"next")])
    log.close()


def test_an_interrupted_waiter_leaves_the_queue(fresh: Fresh) -> None:
    """A signal reaches the main thread while it waits; it must not become the leader afterwards."""
    disk = GatedDisk()
    log = opened(fresh(), disk=disk, segment_bytes=1 << 20)
    disk.closed = True
    leader = started([lambda: append(log, 1)])
    assert disk.arrived.wait(JOIN_S)
    main = threading.main_thread().ident
    assert main is not None

    came = threading.Event()

    def once(number: int, frame: FrameType | None) -> None:
        if not came.is_set():
            came.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        spin_until(lambda: log.flushing == 2)
        while not came.is_set():  # a signal that arrives just before the wait is handled only after it
            signal.pthread_kill(main, signal.SIGINT)
            came.wait(0.001)

    before = signal.signal(signal.SIGINT, once)
    try:
        interrupter = started([interrupt])
        with pytest.raises(KeyboardInterrupt):
            log.append([(TAG, b"main")])
        assert log.flushing == 1
        disk.released.set()
        joined(leader + interrupter)
    finally:
        signal.signal(signal.SIGINT, before)
    assert log.flushing == 0
    assert log.append([(TAG, b"next")]) == range(3, 4)
    log.close()


class Interrupted(BaseException):
    """Raised by the tracer instead of a KeyboardInterrupt."""


CHECKED = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"})
"""The instructions after which the interpreter runs signal handlers."""
WATCHED = frozenset(str(module.__file__) for module in (local_log, store, segment, watermark, faulty_disk))
"""The files whose code an append runs."""


def interrupted_at(point: int, call: Callable[[], object]) -> bool:
    """Make the call, with an exception at the `point`-th place where a signal handler could raise one in it.

    False when it has no more than `point` such places.
    """
    count = itertools.count()
    before: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, _: object) -> object:
        if event == "call" and frame.f_back is not None:
            before[frame.f_back] = "a call of a Python function, whose return runs no handler"
        if frame.f_code.co_filename not in WATCHED:
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            before[frame] = "RESUME"
        elif event == "opcode":
            checked = before.get(frame) in CHECKED
            before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if checked and next(count) == point:
                raise Interrupted
        elif event == "return":
            before.pop(frame, None)
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


def test_an_interrupt_anywhere_in_an_append(fresh: Fresh) -> None:
    """Other callers continue, the state in memory is consistent, and the stored records are the ordered ones."""
    base = fresh()
    log = opened(base, disk=FaultyDisk())
    append(log, 20)
    image = contents(base)
    log.close()
    point, interrupted = 0, True
    while interrupted:
        path = materialize(image, fresh())
        log = opened(path, disk=FaultyDisk())
        end = log.end()
        interrupted = interrupted_at(point, lambda log=log: append(log, 9))  # type: ignore[misc]
        assert log.end() in (end, end + 9), f"point {point}"
        joined(started([lambda log=log: log.append([(TAG, b"other")]) for _ in range(2)]))  # type: ignore[misc]
        assert log.flushing == 0, f"point {point}"
        log.close()
        log = opened(path, disk=FaultyDisk())
        assert log.durable in (22, 31), f"point {point}"
        assert [record.payload for record in records(log)][-2:] == [b"other"] * 2, f"point {point}"
        log.store.check_invariants()
        log.close()
        point += 1
    assert point > 100


def test_closing_waits_for_ordered_records(fresh: Fresh) -> None:
    """Records that other threads have ordered are durable or rejected when `close` returns."""
    for turn in range(20):
        path = fresh()
        log = LocalLog(path, LOG_ID, segment_bytes=1 << 16, disk=FaultyDisk())
        acknowledged: list[int] = []

        def work(log: LocalLog = log, acknowledged: list[int] = acknowledged) -> None:
            while True:
                try:
                    acknowledged.extend(log.append([(TAG, b"x")]))
                except LogFailed as closed:
                    assert str(closed) == "the log is closed"
                    return

        threads = started([work] * 4)
        spin_until(lambda acknowledged=acknowledged, turn=turn: len(acknowledged) >= turn * 3)  # type: ignore[misc]
        log.close()
        joined(threads)
        log = LocalLog(path, LOG_ID, disk=FaultyDisk())
        assert sorted(acknowledged) == list(range(1, log.durable + 1))
        log.close()


def test_a_record_that_was_not_acknowledged_may_be_durable(fresh: Fresh) -> None:
    """After an order without a close, the record is durable or not, and the log is consistent."""
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk)
    append(log, 3)
    log.order([(TAG, b"not waited for")])
    again = opened(materialize(contents(path), fresh()), disk=FaultyDisk())
    assert_prefix(again, 3, 3)
    again.close()
    log.close()
