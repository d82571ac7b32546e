"""Clients of threads: transactions that begin and end without the event loop of their client, and its close."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

import logdb
from logdb.api.database import Database
from logdb.clients.background_loop import LoopRunner, in_shared_loop
from logdb.clients.blocking_backend import BlockingBackend
from logdb.clients.cluster_backend import ClusterAccess, ClusterBackend
from logdb.clients.thread_connection import ThreadConnection
from tests.harness.served import Served, connection_of

T = TypeVar("T")


class Counted(LoopRunner):
    """Counts how often a thread waits for the loop."""

    waits = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See `LoopRunner.run`."""
        self.waits += 1
        return super().run(work)


async def opened() -> ClusterBackend:
    return ClusterBackend("127.0.0.1:1", ClusterAccess("none", ("127.0.0.1:1",), ("127.0.0.1:2",)), 5.0)


@pytest.fixture
def backend() -> Iterator[ClusterBackend]:
    """A client of a cluster that cannot be reached."""
    backend = in_shared_loop(opened())
    yield backend
    in_shared_loop(backend.close())


def test_a_transaction_begins_and_ends_without_waiting_unless_it_writes(backend: ClusterBackend) -> None:
    runner = Counted()
    db = Database(BlockingBackend(backend, runner))

    async def read(txn: logdb.Transaction) -> None:
        backend._take_snapshot(txn, 5)

    async def leased() -> list[int]:
        return list(backend._core.leases.versions.values())

    with db.transaction() as txn:
        in_shared_loop(read(txn))
        assert in_shared_loop(leased()) == [5]
    assert txn.version == 5
    assert in_shared_loop(leased()) == []
    assert not runner.waits


def test_a_transaction_of_a_closed_client_neither_begins_nor_commits(backend: ClusterBackend) -> None:
    db = Database(BlockingBackend(backend))
    txn = db.transaction()
    txn.__enter__()
    db.close()
    with pytest.raises(logdb.DatabaseClosed):
        txn.__exit__(None, None, None)
    with pytest.raises(logdb.DatabaseClosed), db.transaction():
        pytest.fail("it is closed")


def test_a_close_that_was_interrupted_is_completed_by_the_next(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one returned at once, and the stream stayed open."""

    async def interrupted(connection: ThreadConnection) -> None:
        connection.refuse_calls()
        raise KeyboardInterrupt

    db = logdb.connect(served.address)
    with monkeypatch.context() as patched:
        patched.setattr(ThreadConnection, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            db.close()
    assert connection_of(db).is_connected
    db.close()
    assert not connection_of(db).is_connected
    db.close()


def test_a_close_that_was_cancelled_goes_on_and_the_next_one_waits_for_it() -> None:
    """The next one returned at once, and the client of a cluster was never closed."""

    async def test() -> None:
        backend = ClusterBackend("127.0.0.1:1", ClusterAccess("none", ("127.0.0.1:1",), ("127.0.0.1:2",)), 0.3)
        commit = asyncio.create_task(backend.write({b"k": b"v"}))
        await asyncio.sleep(0)
        close = asyncio.create_task(backend.close())
        await asyncio.sleep(0)
        assert backend.closed
        close.cancel()
        with pytest.raises(asyncio.CancelledError):
            await close
        assert not commit.done()
        await backend.close()
        assert commit.done()
        with pytest.raises((logdb.OutcomeUnknown, logdb.Unavailable)):
            await commit
        await backend.close()

    asyncio.run(test())
