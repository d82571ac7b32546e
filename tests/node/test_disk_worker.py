"""The disk of a process: flushes run in the loop while the disk is quick, else in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import pytest

from logdb.node import disk_worker
from logdb.node.disk_worker import DiskWorker
from logdb.node.journals import SHORT_BYTES, FlushBatch, Journals
from tests.harness.coroutines import run


class Disk:
    """Journals that note the thread of each flush, which takes `seconds` of a simulated clock."""

    def __init__(self) -> None:
        self.now = self.seconds = 0.0
        self.failure: Exception | None = None
        self.threads: list[str] = []

    def clock(self) -> float:
        return self.now

    def flush(self, taken: FlushBatch) -> None:
        self.threads.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        self.now += self.seconds
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(disk_worker.time, "perf_counter", disk.clock)
    return disk


def short() -> FlushBatch:
    return FlushBatch({}, [])


def long() -> FlushBatch:
    batch = short()
    frames = [bytes(SHORT_BYTES), b"x"]
    batch.stores.append((None, None, ([(None, 0, frames, False)], 1)))  # type: ignore[arg-type]
    return batch


def flushing(disk: Disk, test: Callable[[Callable[..., asyncio.Future[BaseException | None]]], object]) -> None:
    """Run a test with a function that flushes, and returns a future of what is reported."""

    async def in_loop() -> None:
        worker = DiskWorker()

        def flush(taken: FlushBatch, seconds: float) -> asyncio.Future[BaseException | None]:
            disk.seconds = seconds
            reported: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
            worker.flush(cast(Journals, disk), taken, reported.set_result)
            assert not reported.done(), "the core is not called within its own effects"
            return reported

        try:
            await test(flush)  # type: ignore[misc]
        finally:
            worker.close()

    run(in_loop())


QUICK, SLOW = disk_worker.HANDOVER_S / 2, disk_worker.HANDOVER_S * 2


def test_a_flush_runs_in_the_loop_after_a_quick_one(disk: Disk) -> None:
    async def test(flush: Callable[..., asyncio.Future[BaseException | None]]) -> None:
        for seconds in (SLOW, QUICK, QUICK, SLOW, SLOW, QUICK, QUICK):
            assert await flush(short(), seconds) is None

    flushing(disk, test)
    assert disk.threads == ["thread", "thread", "loop", "loop", "thread", "thread", "loop"]


def test_a_flush_that_takes_long_runs_in_a_thread(disk: Disk) -> None:
    async def test(flush: Callable[..., asyncio.Future[BaseException | None]]) -> None:
        await flush(short(), QUICK)
        for taken in (long(), FlushBatch({None: 1}, []), FlushBatch({}, [None])):  # type: ignore[dict-item, list-item]
            await flush(taken, QUICK)

    flushing(disk, test)
    assert disk.threads == ["thread"] * 4


def test_a_failure_in_the_loop_is_reported_as_in_a_thread(disk: Disk) -> None:
    disk.failure = OSError("Input/output error")

    async def test(flush: Callable[..., asyncio.Future[BaseException | None]]) -> None:
        for _ in range(2):
            assert await flush(short(), QUICK) is disk.failure

    flushing(disk, test)
    assert disk.threads == ["thread", "loop"]
