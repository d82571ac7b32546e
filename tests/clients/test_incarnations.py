"""A killed server loses writes that were ordered but not durable; transactions that read them do not commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.clients.cluster_backend import ClusterBackend
from logdb.clients.remote_backend import RemoteBackend
from logdb.clients.thread_connection import ThreadConnection
from logdb.txn.transaction import Workspace
from logdb.wire.proto import database_pb2 as pb
from tests.harness.clusters import Cluster
from tests.harness.served import Served, connection_of
from tests.harness.server_process import ServerProcess

Database = logdb.aio.Database
Transaction = logdb.aio.Transaction
Restart = Callable[[], Awaitable[None]]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "db")
    yield process
    process.close()


async def wait_for_value(db: Database, key: bytes) -> None:
    """Return when transactions see another value of the key than b"base"."""
    while True:
        context = db.transaction()
        value = await (await context.__aenter__()).get(key)
        await context.__aexit__(KeyError)
        if value not in (None, b"base"):
            return


@asynccontextmanager
async def unwritten_value(db: Database, process: ServerProcess) -> AsyncIterator[Restart]:
    """While the context lasts, transactions read b"ghost" under b"k": another client's write that is ordered but not
    durable. The yielded function kills that client and the server, and restarts the server: b"k" is b"base" again."""
    process.delay_writes(0.001)  # after a slow flush, the next one does not block the server's loop
    await db.put(b"k", b"base")
    process.delay_writes(float("inf"))
    async with await logdb.aio.connect(process.address) as other:
        writing = asyncio.create_task(other.put(b"k", b"ghost"))

        async def restart() -> None:
            writing.cancel()  # before it can be sent again
            await asyncio.gather(writing, return_exceptions=True)
            process.kill()
            process.delay_writes(0)
            await asyncio.to_thread(process.start)

        await wait_for_value(db, b"k")
        yield restart


async def only_commit(txn: Transaction) -> None:
    """Make no further calls before the commit."""


async def write(txn: Transaction) -> None:
    txn[b"copy"] = b"of a ghost"


async def get(txn: Transaction) -> None:
    await txn.get(b"other")


async def multi_get(txn: Transaction) -> None:
    await txn.multi_get([b"other", b"another"])


async def scan(txn: Transaction) -> None:
    [row async for row in txn.scan()]


async def multi_scan(txn: Transaction) -> None:
    await txn.multi_scan([(b"a", b"k"), (b"other", None)])


@pytest.mark.parametrize("others", [0, 5], ids=["without other writes", "with other writes"])
@pytest.mark.parametrize("action", [only_commit, write, get, multi_get, scan, multi_scan])
def test_a_read_of_a_lost_write_is_a_conflict(
    process: ServerProcess, action: Callable[[Transaction], Awaitable[None]], others: int
) -> None:
    async def main() -> None:
        async with await logdb.aio.connect(process.address) as db, unwritten_value(db, process) as restart:
            context = db.transaction()
            txn = await context.__aenter__()
            assert await txn.get(b"k") == b"ghost"
            await restart()
            for number in range(others):
                await db.put(b"new %d" % number, b"v")
            with pytest.raises(logdb.ConflictError, match="its server was restarted") as caught:
                await action(txn)
                await context.__aexit__(None)
            assert (caught.value.key, caught.value.snapshot) == (b"", txn.snapshot)
            assert [row async for row in db.scan(prefix=b"k")] == [(b"k", b"base")]
            assert await db.get(b"copy") is None

    asyncio.run(main())


def test_a_commit_under_way_during_a_kill_is_a_conflict(process: ServerProcess) -> None:
    async def main() -> None:
        async with await logdb.aio.connect(process.address) as db, unwritten_value(db, process) as restart:
            context = db.transaction()
            txn = await context.__aenter__()
            txn[b"copy"] = (await txn.get(b"k")) or b""
            txn_id = txn.id
            committing = asyncio.create_task(context.__aexit__(None))
            await wait_for_value(db, b"copy")
            await restart()
            with pytest.raises(logdb.ConflictError, match="its server was restarted"):
                await committing
            assert await db.get(b"copy") is None
            assert (await db.outcome(txn_id)).status is logdb.Status.NOT_FOUND

    asyncio.run(main())


def test_run_retries_after_a_restart(process: ServerProcess) -> None:
    async def main() -> None:
        async with await logdb.aio.connect(process.address) as db, unwritten_value(db, process) as restart:
            seen = []

            async def copy(txn: Transaction) -> None:
                seen.append(value := await txn.get(b"k"))
                if value == b"ghost":
                    await restart()
                txn[b"copy"] = value or b""

            await db.run(copy)
            assert seen == [b"ghost", b"base"]
            assert await db.get(b"copy") == b"base"

    asyncio.run(main())


def test_a_durable_snapshot_survives_a_restart(process: ServerProcess) -> None:
    """Although newer versions were lost."""

    async def main() -> None:
        async with await logdb.aio.connect(process.address) as db:
            await db.put(b"other", b"base")
            async with db.transaction() as txn:
                assert await txn.get(b"other") == b"base"
                async with unwritten_value(db, process) as restart:
                    await restart()
                assert await txn.multi_get([b"other", b"copy"]) == {b"other": b"base"}
                txn[b"copy"] = b"base"
            assert await db.get(b"copy") == b"base"

    asyncio.run(main())


def test_a_commit_resent_to_another_incarnation(served: Served) -> None:
    """A commit in the log gets its original result; one that is not in the log conflicts, and is not appended."""
    with logdb.connect(served.address) as db:
        connection = connection_of(db)
        old = connection.incarnation

        def sent(**options: Any) -> int:
            commit = pb.Commit(snapshot=1, incarnation=old, **options)

            async def called() -> pb.Response:
                return await connection.call(pb.Request(commit=commit))

            return connection.run(called()).version

        copy = pb.Writes(keys=[b"copy"], values=[b"1"])
        assert db.put(b"k", b"1") == 1
        assert sent(sequence=1_000, reads=[b"k"], writes=copy) == 2
        assert db.put(b"k", b"2") == 3
        with pytest.raises(logdb.ConflictError) as first:
            sent(sequence=1_001, reads=[b"k"], writes=copy)
        served.stop()
        served.start()
        assert db[b"k"] == b"2"
        assert connection.incarnation != old
        assert sent(sequence=1_000, reads=[b"k"], writes=copy) == 2
        with pytest.raises(logdb.ConflictError) as again:
            sent(sequence=1_001, reads=[b"k"], writes=copy)
        assert str(again.value) == str(first.value)
        newest = db.version
        for sequence in (0, 1_002):
            with pytest.raises(logdb.ConflictError, match="its server was restarted"):
                sent(sequence=sequence, writes=copy)
        assert db.version == newest


async def write_a_copy(txn: Transaction) -> None:
    txn[b"copy"] = b"of an old value"


def restart_and_compact(process: ServerProcess) -> None:
    """Restart the server and compact its database. Connected clients reach it only after the compaction."""
    process.kill()
    known, process.address = process.address, "127.0.0.1:0"
    process.start()
    with logdb.connect(process.address) as db:
        for value in (b"new", b"newest"):
            db.multi_put({b"k": value, b"other": value})
        db.compact(before=db.version)
    process.kill()
    process.address = known
    process.start()


@pytest.mark.parametrize("action", [write_a_copy, get, multi_get, scan])
def test_a_snapshot_compacted_while_the_client_was_disconnected_is_a_conflict(
    process: ServerProcess, action: Callable[[Transaction], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with await logdb.aio.connect(process.address) as db:
            await db.multi_put({b"k": b"old", b"other": b"old"})
            context = db.transaction()
            txn = await context.__aenter__()
            assert await txn.get(b"k") == b"old"
            await asyncio.to_thread(restart_and_compact, process)
            with pytest.raises(logdb.ConflictError, match="was compacted away") as caught:
                await action(txn)
                await context.__aexit__(None)
            assert (caught.value.key, caught.value.snapshot) == (b"", txn.snapshot)
            assert await db.get(b"copy") is None

    asyncio.run(main())


def test_run_retries_a_snapshot_compacted_while_the_client_was_disconnected(process: ServerProcess) -> None:
    with logdb.connect(process.address) as db:
        db.multi_put({b"k": b"old", b"other": b"old"})
        seen = []

        def copy(txn: logdb.Transaction) -> None:
            seen.append(value := txn[b"k"])
            if len(seen) == 1:
                restart_and_compact(process)
            txn[b"copy"] = value + txn[b"other"]

        db.run(copy)
        assert seen == [b"old", b"newest"]
        assert db[b"copy"] == b"newest" * 2


def test_a_resent_commit_with_a_compacted_snapshot_is_not_applied_again(process: ServerProcess) -> None:
    """Its answer was lost with the server. The retry ends with OutcomeUnknown, and is not applied again."""
    with logdb.connect(process.address) as db:
        db.put(b"k", b"old")
        connection = connection_of(db)
        commit = pb.Commit(
            snapshot=1, incarnation=0, sequence=1_000, reads=[b"k"], writes=pb.Writes(keys=[b"k"], values=[b"mine"])
        )

        async def sent() -> pb.Response:
            return await connection.call(pb.Request(commit=commit))

        assert connection.run(sent()).version == 2
        restart_and_compact(process)
        with pytest.raises(logdb.OutcomeUnknown, match="compacted away"):
            connection.run(sent())
        assert db[b"k"] == b"newest"


def test_run_retries_a_snapshot_compacted_by_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers do not receive the client's leases."""
    monkeypatch.setattr(ClusterBackend, "lease", lambda backend, holder, version: None)
    cluster = Cluster(tmp_path, mapping=1)
    cluster.start(1)
    try:
        with logdb.connect(cluster.ordering[0]) as db, logdb.connect(cluster.ordering[0]) as other:
            db.multi_put({b"k": b"old", b"other": b"old"})
            seen: list[bytes] = []
            for reads in (False, True):

                def copy(txn: logdb.Transaction, reads: bool) -> None:
                    seen.append(value := txn[b"k"])
                    if value == b"old":
                        other.multi_put({b"k": b"new", b"other": b"new"})
                        other.compact(before=other.put(b"newest", b"1"))
                    txn[b"copy"] = value + (txn[b"other"] if reads else b"")

                db.multi_put({b"k": b"old", b"other": b"old"})
                db.run(copy, reads)
                assert db[b"copy"] == b"new" * (1 + reads)
            assert seen == [b"old", b"new"] * 2
    finally:
        cluster.check()
        cluster.close()


def test_a_snapshot_whose_answer_another_thread_received_before_the_restart_is_lost() -> None:
    """The thread that took it runs again when the stream is one of the next incarnation."""
    connection = ThreadConnection(["127.0.0.1:1"], 5)
    backend = RemoteBackend(connection)
    reading = backend.reader_of(Workspace(backend, read_only=False, label="", guard_writes=False)).get(b"k")
    answer = reading.send(None)
    answer.set_result(pb.Response(version=10, value=b"never durable"))
    connection.seen, connection.incarnation = 9, 2
    connection.on_restart()
    assert connection.first_requests() == []
    with pytest.raises(logdb.ConflictError, match="its server was restarted"):
        reading.send(None)
