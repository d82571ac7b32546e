"""Faults that only asyncio can have: cancelled coroutines, a close while others wait, a blocked event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.api import opening
from logdb.embedded import EmbeddedBackend
from logdb.log.local import subscriptions
from logdb.log.segments import Disk
from tests.harness.opening import on_coroutines, open_database
from tests.harness.served import Served


class GatedDisk(Disk):
    """A disk whose syncs wait at a gate while it is shut, and fail when `broken`."""

    def __init__(self) -> None:
        self.authenticator, self.waiting = threading.Event(), threading.Event()
        self.authenticator.set()
        self.broken = False
        self.syncs = 0

    def shut(self) -> None:
        self.waiting.clear()
        self.authenticator.clear()

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self.waiting.set()
        self.authenticator.wait()
        if self.broken:
            raise OSError(5, "planted")
        super().sync(fd)


def opened(path: Path, disk: Disk) -> logdb.aio.Database:
    return on_coroutines(open_database(path, disk=disk))


OTHERS: set[threading.Thread] = set()
"""Threads of earlier tests, whose databases are not closed yet."""


@pytest.fixture(autouse=True)
def _others() -> None:
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def sync_threads() -> list[threading.Thread]:
    """The threads that the test has started."""
    return [one for one in threading.enumerate() if one.name.startswith("logdb-sync") and one not in OTHERS]


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 10)


def test_coroutines_share_syncs(tmp_path: Path) -> None:
    async def main() -> None:
        disk = GatedDisk()
        async with opened(tmp_path, disk) as db:
            before = disk.syncs
            versions = await asyncio.gather(*(db.put(b"%d" % number, b"v") for number in range(100)))
            assert sorted(versions) == list(range(1, 101))
            assert disk.syncs - before == 1

    asyncio.run(main())


def test_a_slow_disk_does_not_block_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        disk = GatedDisk()
        async with opened(tmp_path, disk) as db:
            await db.put(b"before", b"1")
            disk.shut()
            put = asyncio.create_task(db.put(b"k", b"1"))
            await reached(disk.waiting)
            assert await db.get(b"before") == b"1"
            assert await db.get(b"k") is None
            assert not put.done()
            disk.authenticator.set()
            await put
            assert await db.get(b"k") == b"1"

    asyncio.run(main())


def test_writes_go_on_although_no_thread_can_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: no write of the loop returned any more."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "logdb-sync":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main() -> None:
        async with opened(tmp_path, GatedDisk()) as db:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuse)
                async with asyncio.timeout(10):
                    assert await db.put(b"first", b"1") == 1
            assert await db.put(b"second", b"2") == 2
            assert sync_threads()

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["compact", "checkpoint"])
def test_upkeep_that_waits_holds_up_no_other_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Regression: each waiting call held a thread of those that pins, outcomes and reads of the cold tier need."""
    begun, released = threading.Event(), threading.Event()
    work = getattr(EmbeddedBackend, verb)

    def waiting(backend: EmbeddedBackend, *args: Any) -> Any:
        begun.set()
        released.wait()
        return work(backend, *args)

    monkeypatch.setattr(EmbeddedBackend, verb, waiting)

    async def main() -> None:
        async with opened(tmp_path, Disk()) as db:
            await db.put(b"k", b"v")
            calls = [asyncio.create_task(getattr(db, verb)()) for _ in range(40)]
            await asyncio.sleep(0)
            try:
                while not begun.is_set():
                    await asyncio.sleep(0.001)
                pin = asyncio.create_task(db.pin("name"))
                done, _ = await asyncio.wait((pin,), timeout=10)
            finally:
                released.set()
            assert done
            await asyncio.gather(*calls)
        with pytest.raises(logdb.DatabaseClosed):
            await getattr(db, verb)()

    asyncio.run(main())


def test_a_cancelled_caller_does_not_cancel_others(tmp_path: Path) -> None:
    async def main() -> None:
        disk = GatedDisk()
        async with opened(tmp_path, disk) as db:
            disk.shut()
            puts = [asyncio.create_task(db.put(b"%d" % number, b"v")) for number in range(6)]
            await reached(disk.waiting)
            late = [asyncio.create_task(db.put(b"late %d" % number, b"v")) for number in range(2)]
            await asyncio.sleep(0)
            for task in (puts[0], puts[3], late[0]):
                task.cancel()
            disk.authenticator.set()
            answers = await asyncio.gather(*puts, *late, return_exceptions=True)
            assert [type(answer) is int for answer in answers] == [False, True, True, False, True, True, False, True]
            # A commit is in the log when its caller is cancelled: it counts.
            assert len([key async for key, _ in db.scan()]) == 8

    asyncio.run(main())


def test_a_close_answers_waiting_callers(tmp_path: Path) -> None:
    async def main() -> None:
        disk = GatedDisk()
        db = opened(tmp_path, disk)
        disk.shut()
        first = asyncio.create_task(db.put(b"first", b"v"))
        await reached(disk.waiting)
        second = asyncio.create_task(db.put(b"second", b"v"))
        await asyncio.sleep(0)
        closing = [asyncio.create_task(db.close()) for _ in range(3)]
        await asyncio.sleep(0)
        closing[0].cancel()
        disk.authenticator.set()
        assert await first < await second
        await asyncio.gather(*closing, return_exceptions=True)
        with pytest.raises(logdb.DatabaseClosed):
            await db.put(b"third", b"v")

    asyncio.run(main())
    assert not sync_threads()
    with logdb.open(tmp_path) as again:
        assert dict(again.scan()) == {b"first": b"v", b"second": b"v"}


def test_a_write_needs_no_loop_that_has_ended_during_a_sync(tmp_path: Path) -> None:
    async def abandoned() -> None:
        disk.shut()
        writing = asyncio.create_task(db.put(b"k", b"1"))
        await reached(disk.waiting)
        assert not writing.done()

    async def written() -> int:
        disk.authenticator.set()
        async with asyncio.timeout(10):
            version = await db.put(b"k", b"2")
        await db.close()
        return version

    disk = GatedDisk()
    db = opened(tmp_path, disk)
    asyncio.run(abandoned())
    assert asyncio.run(written()) == 2


def test_each_error_names_its_own_transaction_when_the_disk_fails(tmp_path: Path) -> None:
    async def main() -> dict[str, bytes]:
        disk = GatedDisk()
        db = opened(tmp_path, disk)
        disk.shut()
        puts = {b"%d" % number: asyncio.create_task(db.put(b"%d" % number, b"v")) for number in range(4)}
        await reached(disk.waiting)
        disk.broken = True
        disk.authenticator.set()
        told = {}
        for key, put in puts.items():
            with pytest.raises(logdb.OutcomeUnknown) as caught:
                await put
            told[caught.value.txn_id] = key
        with pytest.raises(logdb.LogDBError):
            await db.put(b"after", b"v")
        await db.close()
        return told

    told = asyncio.run(main())
    assert len(told) == 4
    assert not sync_threads()
    with logdb.open(tmp_path) as again:
        for txn_id, key in told.items():
            outcome = again.outcome(txn_id)
            assert outcome.committed is (key in again)
            assert not outcome.committed or next(again.history(key)).version == outcome.version


def test_a_scan_lets_others_have_their_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with await logdb.aio.open(tmp_path) as db:
            await db.multi_put({b"%05d" % number: b"v" for number in range(5_000)})
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            assert len([row async for row in db.scan()]) == 5_000
            assert turns >= 4
            counting.cancel()

    asyncio.run(main())


def test_an_opening_that_is_cancelled_leaves_the_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, authenticator, closed = threading.Event(), threading.Event(), threading.Event()
    open_at_once: Callable[..., EmbeddedBackend] = opening.open_backend

    def open_slowly(*args: object, **options: object) -> EmbeddedBackend:
        db = open_at_once(*args, **options)
        close = db.close

        def noted() -> None:
            close()
            closed.set()

        db.close = noted  # type: ignore[method-assign]
        held.set()
        authenticator.wait()
        return db

    async def main() -> None:
        monkeypatch.setattr(opening, "open_backend", open_slowly)
        task = asyncio.create_task(logdb.aio.open(tmp_path))
        await reached(held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        authenticator.set()
        await reached(closed)
        monkeypatch.undo()
        async with await logdb.aio.open(tmp_path) as db:
            await db.put(b"k", b"v")

    asyncio.run(main())


def test_a_watch_that_is_cancelled_leaves_no_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with await logdb.aio.open(tmp_path) as db:
            seen = asyncio.Event()

            async def follow() -> None:
                async for _ in db.watch(since=0):
                    seen.set()

            following = asyncio.create_task(follow())
            await db.put(b"k", b"v")
            await seen.wait()
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
            await db.put(b"k", b"w")

    asyncio.run(main())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("logdb-watch")]


def test_a_transaction_that_only_read_has_no_unknown_outcome(tmp_path: Path) -> None:
    async def main() -> None:
        disk = GatedDisk()
        db = opened(tmp_path, disk)
        disk.shut()
        put = asyncio.create_task(db.put(b"k", b"v"))
        await reached(disk.waiting)

        async def read() -> None:
            async with db.transaction() as txn:
                assert await txn.get(b"k") == b"v"

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        disk.broken = True
        disk.authenticator.set()
        with pytest.raises(logdb.OutcomeUnknown):
            await put
        with pytest.raises(logdb.Unavailable):
            await reading
        await db.close()

    asyncio.run(main())


@pytest.mark.parametrize("where", ["embedded", "served"])
def test_a_cancelled_watch_stays_cancelled_when_its_database_is_closed(tmp_path: Path, where: str) -> None:
    """Else the task continues after the watch, and a task that waits for its end may wait without end."""

    async def main() -> None:
        db = await (logdb.aio.open(tmp_path) if served is None else logdb.aio.connect(served.address))
        seen = asyncio.Event()

        async def follow() -> None:
            async for _ in db.watch(since=0):
                seen.set()

        following = asyncio.create_task(follow())
        await db.put(b"k", b"v")
        await seen.wait()
        following.cancel()
        await db.close()
        await asyncio.wait((following,))
        assert following.cancelled()

    served = Served(None) if where == "served" else None
    try:
        asyncio.run(main())
    finally:
        if served is not None:
            served.close()


def test_a_watch_tells_of_a_failed_disk_and_ends_with_the_database(tmp_path: Path) -> None:
    async def main() -> None:
        disk = GatedDisk()
        db = opened(tmp_path, disk)
        seen: asyncio.Queue[int] = asyncio.Queue()

        async def follow() -> None:
            async for change in db.watch(since=0):
                seen.put_nowait(change.version)

        following = asyncio.create_task(follow())
        await db.put(b"k", b"v")
        assert await seen.get() == 1
        disk.broken = True
        with pytest.raises(logdb.OutcomeUnknown):
            await db.put(b"k", b"w")
        with pytest.raises(logdb.Unavailable, match="watch from 1"):
            await following
        await db.close()
        async with opened(tmp_path, Disk()) as again:
            following = asyncio.create_task(follow_to_the_end(again))
            await asyncio.sleep(0)
        await following

    async def follow_to_the_end(db: logdb.aio.Database) -> None:
        async for _ in db.watch():
            pass

    asyncio.run(main())


async def turns_of_others(reads: Callable[[logdb.aio.Database], Awaitable[object]], db: logdb.aio.Database) -> int:
    """How often another task had its turn while these reads were awaited."""
    turns, done = 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await reads(db)
    done = True
    await task
    return turns


async def gets(db: logdb.aio.Database) -> None:
    for _ in range(20_000):
        await db.get(b"k1")


async def large_gets(db: logdb.aio.Database) -> None:
    for _ in range(40):
        await db.get(b"large")


async def multi_gets(db: logdb.aio.Database) -> None:
    for _ in range(2_000):
        await db.multi_get([b"k%d" % number for number in range(10)])


async def transactions(db: logdb.aio.Database) -> None:
    for _ in range(10_000):
        async with db.transaction(read_only=True) as txn:
            await txn.get(b"k1")


async def snapshots(db: logdb.aio.Database) -> None:
    for _ in range(10_000):
        await (await db.at()).get(b"k1")


async def scans(db: logdb.aio.Database) -> None:
    for _ in range(200):
        assert [key async for key, _ in db.scan(prefix=b"k1")]


async def scans_of_nothing(db: logdb.aio.Database) -> None:
    old = await db.at(1)
    assert [row async for row in old.scan(b"gone")] == []
    assert [row async for row in old.scan(b"gone", limit=1)] == []
    assert await old.multi_scan([(b"gone", None)]) == [[]]


async def large_multi_gets(db: logdb.aio.Database) -> None:
    assert not await db.multi_get([b"no%d" % number for number in range(20_000)])


async def multi_scans(db: logdb.aio.Database) -> None:
    for _ in range(50):
        assert len(await db.multi_scan([(b"k1", b"k2"), (b"k3", b"k4"), (b"k5", None), (b"x", None)])) == 4


async def histories(db: logdb.aio.Database) -> None:
    for _ in range(20_000):
        assert [entry.version async for entry in db.history(b"k1")] == [3]


async def changes(db: logdb.aio.Database) -> None:
    async for change in db.watch(since=2):
        if change.version == db.session:
            break


READS = [
    gets,
    large_gets,
    multi_gets,
    transactions,
    snapshots,
    scans,
    scans_of_nothing,
    multi_scans,
    large_multi_gets,
    histories,
    changes,
]


@pytest.mark.parametrize("reads", READS, ids=[reads.__name__ for reads in READS])
def test_reads_let_others_have_their_turn(
    tmp_path: Path, reads: Callable[[logdb.aio.Database], Awaitable[object]]
) -> None:
    """Awaiting a result from memory never yields to other tasks of the loop."""

    async def main() -> None:
        async with await logdb.aio.open(tmp_path / "data") as db:
            await db.put(b"large", bytes(1 << 20))
            await db.multi_put({b"k%d" % number: b"v" for number in range(100)})
            await asyncio.gather(*[db.put(b"c", b"%d" % number) for number in range(2_000)])
            if reads is scans_of_nothing:
                await db.multi_put({b"gone%d" % number: b"v" for number in range(5_000)})
            turns = await turns_of_others(reads, db)
            assert 10 <= turns <= 200

    asyncio.run(main())


def test_a_watch_lets_others_have_their_turn_where_it_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch passed all commits that it does not follow before others had a turn."""
    monkeypatch.setattr(subscriptions, "BATCH_RECORDS", 10)

    async def next_change(db: logdb.aio.Database) -> None:
        async for change in db.watch(prefix=b"k", since=0):
            assert change.changes == {b"k": b"v"}
            break

    async def main() -> None:
        async with await logdb.aio.open(tmp_path / "data") as db:
            await asyncio.gather(*[db.put(b"c", b"%d" % number) for number in range(500)])
            await db.put(b"k", b"v")
            assert await turns_of_others(next_change, db) >= 40

    asyncio.run(main())


def test_a_limited_scan_leaves_nothing_for_the_loop_to_close(tmp_path: Path) -> None:
    """Each left a generator in its middle, which took the loop a task and a wake-up."""

    async def main() -> None:
        async with await logdb.aio.open(tmp_path / "data") as db:
            await db.multi_put({b"k%d" % number: b"v" for number in range(100)})
            loop, closing = asyncio.get_running_loop(), 0
            call = loop.call_soon_threadsafe

            def counting(*given: Any, **context: Any) -> asyncio.Handle:
                nonlocal closing
                closing += 1
                return call(*given, **context)

            loop.call_soon_threadsafe = counting  # type: ignore[method-assign]
            for limit in (0, 1, 10, 100, 300):
                assert len([row async for row in db.scan(limit=limit)]) == min(limit, 100)
                async with db.transaction(read_only=True) as txn:
                    assert len([row async for row in txn.scan(limit=limit)]) == min(limit, 100)
            assert closing == 0

    asyncio.run(main())


def test_run_inside_run_is_refused(tmp_path: Path) -> None:
    """But not what other tasks run meanwhile."""

    async def count(txn: logdb.aio.Transaction) -> None:
        txn[b"n"] = b"%d" % (int(await txn.get(b"n") or b"0") + 1)

    async def main() -> None:
        async with await logdb.aio.open(tmp_path / "db") as db:

            async def calls(txn: logdb.aio.Transaction, run: Awaitable[None]) -> None:
                txn[b"outer"] = b"1"
                await run

            with pytest.raises(logdb.LogDBError, match="pass the outer transaction on"):
                await db.run(calls, db.run(count))
            assert [row async for row in db.scan()] == []
            await db.run(calls, asyncio.create_task(db.run(count)))
            await db.run(count)
            assert await db.get(b"n") == b"2"

    asyncio.run(main())


def test_run_shows_its_attempts_and_ends_in_time() -> None:
    async def main() -> None:
        seen: list[Any] = []
        async with await logdb.aio.open(":memory:") as db:

            async def place(txn: logdb.aio.Transaction, losses: int) -> None:
                seen.append((txn.attempt, [conflict.winner for conflict in txn.conflicts], txn.label))
                await txn.get(b"k")
                if txn.attempt <= losses:
                    await db.put(b"k", b"%d" % txn.attempt, label="spoiler")
                txn.put(b"k", b"mine")

            await db.run(place, 1)
            assert seen == [(1, [], "place"), (2, ["spoiler"], "place")]
            with pytest.raises(logdb.ConflictError) as caught:
                await db.run(lambda txn: place(txn, 9), attempts=4, label="hopeless")
            assert caught.value.attempts == 4
            with pytest.raises(logdb.ConflictError) as caught:
                await db.run(lambda txn: place(txn, 9), timeout=0)
            assert caught.value.attempts == 1
            with pytest.raises(logdb.ReadOnly):
                await db.run(lambda txn: place(txn, 0), read_only=True)

    asyncio.run(main())


@logdb.transactional(label="audit")
def leave_note(txn: Any, text: bytes) -> bytes:
    """A body for both faces: it awaits nothing."""
    txn.append(b"note/", text)
    txn.delete_prefix(b"draft/")
    return text


@pytest.mark.parametrize("where", ["memory", "server"])
def test_a_plain_body_that_awaits_nothing_runs_on_both_faces(tmp_path: Path, where: str) -> None:
    def put(txn: Any, value: bytes) -> None:
        txn.put(b"k", value)

    async def both(db: logdb.aio.Database) -> None:
        await db.put(b"draft/1", b"x")
        assert await leave_note(db, b"one") == b"one"
        await db.run(put, b"1")
        assert await db.run(lambda txn: txn.get(b"k"), read_only=True) == b"1"
        async with db.transaction() as txn:
            assert leave_note(txn, b"two") == b"two"
        rows = [row async for row in db.scan()]
        assert [value for _, value in rows] == [b"1", b"one", b"two"]
        changes = [change async for change in db.watch(since=0, timeout=0)]
        assert [change.label for change in changes[1:3]] == ["audit", "put"]

    async def in_memory() -> None:
        async with await logdb.aio.open(":memory:") as db:
            await both(db)

    async def on_server(address: str) -> None:
        async with await logdb.aio.connect(address) as db:
            await both(db)

    if where == "memory":
        asyncio.run(in_memory())
        with logdb.open(":memory:") as db:
            leave_note(db, b"one")
            db.run(put, b"1")
            assert [value for _, value in db.scan()] == [b"1", b"one"]
    else:
        served = Served(tmp_path / "db")
        try:
            asyncio.run(on_server(served.address))
        finally:
            served.close()
