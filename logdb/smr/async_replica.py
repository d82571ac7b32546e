"""The face of a replica for coroutines. The threads of the replica do the work, so that no machine blocks an event
loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from logdb.smr.core.outbox import Pending
from logdb.smr.errors import CommandId
from logdb.smr.machine import Machine
from logdb.smr.replica import Reading, Replica
from logdb.store.arguments import checked_wait

M = TypeVar("M", bound=Machine)
T = TypeVar("T")


class AsyncReplica(Generic[M]):
    """A replica of a machine, for coroutines. `logdb.smr.open_async`, `connect_async` and `replicate_async` make it."""

    def __init__(self, replica: Replica[M]) -> None:
        self._replica = replica

    @property
    def applied(self) -> int:
        """The position up to which this replica has applied the log."""
        return self._replica.applied

    @property
    def failure(self) -> BaseException | None:
        """As `Replica.failure`."""
        return self._replica.failure

    async def execute(
        self, command: bytes, *, command_id: CommandId | None = None, timeout: float | None = None
    ) -> bytes:
        """Apply `command` on all replicas. `command_id`, `timeout`: as `Replica.execute`, which also names the errors.
        A cancelled command may have been applied."""
        timeout = checked_wait(timeout)
        result: bytes = await self._waited(self._replica.begin(command, command_id), timeout)
        return result

    async def reserve(self, *, timeout: float | None = None) -> CommandId:
        """Return the id of a command that is executed later. `timeout`: as `Replica.reserve`."""
        timeout = checked_wait(timeout)
        reserved: CommandId = await self._waited(self._replica.begin(None), timeout)
        return reserved

    async def query(self, read: Callable[[M], T], *, timeout: float | None = None) -> T:
        """Return `read(machine)`, linearizable. A thread of the replica calls `read`. `timeout`: as `Replica.query`."""
        timeout = checked_wait(timeout)
        return await _answer(self._replica.ask(read), timeout)

    async def stale_query(self, read: Callable[[M], T], *, after: int = 0, timeout: float | None = None) -> Reading[T]:
        """Return `read(machine)` without asking the log. `after`, `timeout`: as `Replica.stale_query`."""
        timeout = checked_wait(timeout)
        return await _answer(self._replica.ask_stale(read, after), timeout)

    async def snapshot(self) -> int:
        """Write a snapshot into the log: as `Replica.snapshot`."""
        return await asyncio.to_thread(self._replica.snapshot)

    async def verify(self) -> int:
        """Let all replicas compare their states: as `Replica.verify`."""
        return await asyncio.to_thread(self._replica.verify)

    async def close(self) -> None:
        """Stop this replica: as `Replica.close`."""
        await asyncio.to_thread(self._replica.close)

    async def __aenter__(self) -> AsyncReplica[M]:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _waited(self, pending: Pending, timeout: float | None) -> Any:
        waiter = asyncio.wrap_future(pending.waiter)
        try:
            done, _ = await asyncio.wait([waiter], timeout=timeout)
        except asyncio.CancelledError:
            self._replica.give_up(pending, "cancelled")
            waiter.cancel()
            raise
        if not done:
            waiter.cancel()
            raise self._replica.give_up(pending, f"it has no result after {timeout} seconds")
        return await waiter


async def _answer(waiter: Future[T], timeout: float | None) -> T:
    answer = asyncio.wrap_future(waiter)
    done, _ = await asyncio.wait([answer], timeout=timeout)
    if not done:
        answer.cancel()
        raise TimeoutError(f"the query has no answer after {timeout} seconds")
    return await answer
