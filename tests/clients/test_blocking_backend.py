"""Transactions of a thread that begin and end without the event loop of its client."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

import logdb
from logdb.api.database import Database
from logdb.clients.background_loop import LoopRunner, in_shared_loop
from logdb.clients.blocking_backend import BlockingBackend
from logdb.clients.cluster_backend import ClusterAccess, ClusterBackend

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
