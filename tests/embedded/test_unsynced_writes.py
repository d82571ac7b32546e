"""A slow disk: writes wait while many of those before them are ordered, in memory, and not durable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.api.opening import IN_MEMORY
from logdb.embedded import commits
from logdb.log.local.local_log import LocalLog
from logdb.log.segments import Disk
from tests.harness.coroutines import until
from tests.harness.opening import host_of, on_coroutines, open_database
from tests.harness.served import Served

LIMIT = 1 << 20
VALUE = bytes(100_000)
KEYS = [b"%02d" % number for number in range(40)]


class SlowDisk(Disk):
    """A disk whose syncs wait while it is stopped."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.fails = False

    def sync(self, fd: int) -> None:
        self.goes_on.wait()
        if self.fails:
            raise OSError(5, "planted")
        super().sync(fd)


@asynccontextmanager
async def stopping(disk: SlowDisk) -> AsyncIterator[None]:
    """The disk goes on at the end, also of a test that fails."""
    try:
        yield
    finally:
        disk.goes_on.set()


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MAX_UNSYNCED_BYTES", LIMIT)


async def put(db: logdb.aio.Database, key: bytes) -> None:
    await db.put(key, VALUE)


async def commit(db: logdb.aio.Database, key: bytes) -> None:
    async with db.transaction() as txn:
        await txn.get(b"read")
        txn.put(key, VALUE)


@pytest.mark.parametrize("write", [put, commit])
def test_coroutines_wait_and_others_go_on(tmp_path: Path, write: Callable[..., Any]) -> None:
    async def main() -> None:
        disk = SlowDisk()
        opened = open_database(tmp_path, disk=disk, overlay_bytes=1 << 26)
        log = host_of(opened).log
        async with on_coroutines(opened) as db, stopping(disk):
            await db.put(b"read", b"v")
            disk.goes_on.clear()
            writing = [asyncio.ensure_future(write(db, key)) for key in KEYS]
            await until(lambda: log.unsynced_bytes > LIMIT)
            for _ in range(100):
                assert await db.get(b"read") == b"v"
                await asyncio.sleep(0)
            assert log.unsynced_bytes <= LIMIT + 2 * len(VALUE)
            for waiting in writing[-2:]:
                waiting.cancel()
            disk.goes_on.set()
            await asyncio.gather(*writing, return_exceptions=True)
            assert [key async for key, _ in db.scan(b"0", b"5")] == KEYS[:-2]
            assert log.unsynced_bytes == 0

    asyncio.run(main())


def test_a_server_stops_reading_writes_and_answers_reads(tmp_path: Path) -> None:
    disk = SlowDisk()
    served = Served(tmp_path, log_options={"disk": disk})
    log = served.host.embedded.log

    async def main() -> None:
        disk.goes_on.clear()
        writers = [await logdb.aio.connect(served.address) for _ in range(4)]
        async with await logdb.aio.connect(served.address) as reader:
            writing = [asyncio.ensure_future(put(writers[at % 4], key)) for at, key in enumerate(KEYS)]
            await until(lambda: log.unsynced_bytes > LIMIT)
            for _ in range(100):
                assert await reader.get(b"read") is None
            assert log.unsynced_bytes <= LIMIT + 2 * len(VALUE)
            disk.goes_on.set()
            await asyncio.gather(*writing)
            assert [key async for key, _ in reader.scan()] == KEYS
        for writer in writers:
            await writer.close()

    try:
        asyncio.run(main())
    finally:
        disk.goes_on.set()
        served.close()


def test_a_server_keeps_uploaded_requests_waiting(tmp_path: Path) -> None:
    """A request that is sent in parts is ordered when it is complete, not when it is read from the stream."""
    disk = SlowDisk()
    served = Served(tmp_path, log_options={"disk": disk})
    host = served.host.embedded
    batches = [{b"%02d/%d" % (number, at): VALUE for at in range(8)} for number in range(20)]

    async def main() -> None:
        disk.goes_on.clear()
        writers = [await logdb.aio.connect(served.address) for _ in range(4)]
        async with await logdb.aio.connect(served.address) as reader:
            writing = [asyncio.ensure_future(writers[at % 4].multi_put(batch)) for at, batch in enumerate(batches)]
            await until(lambda: not host.commits.has_room)
            for _ in range(100):
                assert await reader.get(b"read") is None
            assert host.log.unsynced_bytes <= LIMIT + 9 * len(VALUE)
            disk.goes_on.set()
            await asyncio.gather(*writing)
            assert [key async for key, _ in reader.scan()] == [key for batch in batches for key in batch]
        for writer in writers:
            await writer.close()

    try:
        asyncio.run(main())
    finally:
        disk.goes_on.set()
        served.close()


def test_threads_wait(tmp_path: Path) -> None:
    disk = SlowDisk()
    with open_database(tmp_path, disk=disk, overlay_bytes=1 << 26) as db:
        log = host_of(db).log
        assert isinstance(log, LocalLog)
        disk.goes_on.clear()
        threads = [threading.Thread(target=db.put, args=(key, VALUE)) for key in KEYS]
        for count, thread in enumerate(threads, 1):
            thread.start()
            while log.flushing < count:
                threading.Event().wait(0.0001)
        assert log.unsynced_bytes <= LIMIT + 2 * len(VALUE)
        disk.goes_on.set()
        for thread in threads:
            thread.join()
        assert [key for key, _ in db.scan()] == KEYS


def test_writes_that_wait_for_a_disk_that_fails_end(tmp_path: Path) -> None:
    async def main() -> None:
        disk = SlowDisk()
        opened = open_database(tmp_path, disk=disk, overlay_bytes=1 << 26)
        commits_of = host_of(opened).commits
        db = on_coroutines(opened)
        disk.goes_on.clear()
        writing = [asyncio.ensure_future(db.put(key, VALUE)) for key in KEYS]
        await until(lambda: not commits_of.has_room)
        disk.fails = True
        disk.goes_on.set()
        ended = await asyncio.gather(*writing, return_exceptions=True)
        assert {type(error) for error in ended} <= {logdb.OutcomeUnknown, logdb.Unavailable}
        await db.close()

    asyncio.run(main())


def test_a_database_in_memory_never_waits() -> None:
    with logdb.open(IN_MEMORY) as db:
        for key in KEYS:
            db.put(key, VALUE)
        assert len(list(db.scan())) == len(KEYS)
