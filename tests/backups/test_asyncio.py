"""Backups by coroutines, of a directory and through a server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import logdb
import logdb.aio
from tests.harness.served import Served


async def check(db: logdb.aio.Database, path: Path) -> None:
    await db.multi_put({b"%03d" % n: b"v" * n for n in range(300)})
    first = await logdb.aio.backup(db, path / "backup")
    await db.delete_range(b"1", b"2")
    last = await logdb.aio.backup(db, path / "backup")
    assert (first.is_full, last.is_full) == (True, False)
    expected = {key: value async for key, value in db.scan()}
    await logdb.aio.restore(path / "backup", path / "restored")
    async with await logdb.aio.open(path / "restored", create=False) as copy:
        assert {key: value async for key, value in copy.scan()} == expected
    async with await logdb.aio.open(":memory:") as into:
        assert (await logdb.aio.restore(path / "backup", into, version=first.version)).version == first.version
        assert len([key async for key, _ in into.scan()]) == 300
    await db.delete_range()
    await logdb.aio.restore(path / "backup", db)
    assert {key: value async for key, value in db.scan()} == expected


def test_of_a_directory(tmp_path: Path) -> None:
    async def body() -> None:
        async with await logdb.aio.open(tmp_path / "db") as db:
            await check(db, tmp_path)

    asyncio.run(body())


def test_through_a_server(served: Served, tmp_path: Path) -> None:
    async def body() -> None:
        async with await logdb.aio.connect(served.address) as db:
            await check(db, tmp_path)

    asyncio.run(body())


def test_cancellation_ends_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the cancelled call returns, no thread uses the database any more, and the next call continues."""
    monkeypatch.setattr("logdb.backups.taking.TICK_RECORDS", 1)

    async def body() -> None:
        async with await logdb.aio.open(tmp_path / "db") as db:
            for n in range(50):
                await db.put(b"k", b"%d" % n)
            begun, loop = asyncio.Event(), asyncio.get_running_loop()

            def report(done: int, total: int | None) -> None:
                loop.call_soon_threadsafe(begun.set)
                time.sleep(0.01)

            work = asyncio.create_task(logdb.aio.backup(db, tmp_path / "backup", progress=report))
            await begun.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            made = await logdb.aio.backup(db, tmp_path / "backup")
            assert (made.number, made.version) == (1, 50)

    asyncio.run(body())
