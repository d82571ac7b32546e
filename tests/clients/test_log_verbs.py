"""A client of the log of a cluster, over a log that answers when the test says so: subscriptions, and the close."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logdb.clients.log_client import RemoteLog
from logdb.clients.log_verbs import AwaitedLog, BlockingLog
from logdb.log import requests as calls
from logdb.log.contract import Batch


class ScriptedLog:
    """Each call of a subscription waits for a batch of one record, in the order of the calls."""

    def __init__(self) -> None:
        self.next = 1
        self.waiting: list[asyncio.Future[Any]] = []

    def batch(self) -> Batch:
        self.next += 1
        return Batch(self.next - 1, self.next, [])


class AwaitedScript(ScriptedLog, AwaitedLog):
    async def answer(self, request: Any, timeout: float | None = None) -> Any:
        if not isinstance(request, calls.Next):
            return 1
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]

    def deliver(self) -> None:
        self.waiting.pop(0).set_result(self.batch())


@pytest.mark.parametrize("is_late", [False, True], ids=["waiting", "answered"])
def test_a_batch_that_a_cancelled_poll_has_requested_is_that_of_the_next_poll(is_late: bool) -> None:
    async def test() -> None:
        log = AwaitedScript()
        subscription = await log.subscribe(1)
        poll = asyncio.create_task(subscription.poll(None))
        while not log.waiting:
            await asyncio.sleep(0)
        if is_late:
            log.deliver()
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert is_late or await subscription.poll(0) is None
        following = [asyncio.create_task(subscription.poll(None)) for _ in range(2)]
        while len(log.waiting) + is_late < 2:
            await asyncio.sleep(0)
        while log.waiting:
            log.deliver()
        assert [batch.first for batch in await asyncio.gather(*following) if batch] == [1, 2]

    asyncio.run(test())


class BlockingScript(ScriptedLog, BlockingLog):
    """`interrupts`: the next wait for a batch, which comes all the same."""

    interrupts = False

    def call(self, request: Any, timeout: float | None = None) -> Any:
        if isinstance(request, calls.Subscribe):
            self.next = request.gsn
        if not isinstance(request, calls.Next):
            return 1
        batch = self.batch()
        if self.interrupts:
            self.interrupts = False
            raise KeyboardInterrupt
        return batch


def test_a_poll_that_is_interrupted_takes_no_batch() -> None:
    log = BlockingScript()
    subscription = log.subscribe(1)
    assert next(subscription).first == 1
    for _ in range(2):
        log.interrupts = True
        with pytest.raises(KeyboardInterrupt):
            subscription.poll(None)
    assert [next(subscription).first for _ in range(2)] == [2, 3]


def test_a_close_that_was_interrupted_is_completed_by_the_next() -> None:
    class Interrupted:
        closes = 0

        async def close(self) -> None:
            self.closes += 1
            if self.closes == 1:
                raise asyncio.CancelledError

    connection: Any = Interrupted()
    log = RemoteLog(connection, None)
    with pytest.raises(asyncio.CancelledError):
        log.close()
    for _ in range(2):
        log.close()
        assert connection.closes == 2
