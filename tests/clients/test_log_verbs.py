"""A client of the log of a cluster, over a log that answers when the test says so: subscriptions, and the close."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from logdb.clients.background_loop import in_shared_loop
from logdb.clients.log_client import AsyncRemoteLog, Connection, RemoteLog, connect, connect_async
from logdb.clients.log_verbs import AwaitedLog, BlockingLog, append
from logdb.errors import AccessDenied, LogDBError
from logdb.log import requests as calls
from logdb.log.contract import Batch
from logdb.log.engine import ENGINES, Right
from logdb.security.credentials import NONE
from logdb.wire.envelopes import VERSION, Hello


class ScriptedLog:
    """Each call of a subscription waits for a batch of one record, in the order of the calls."""

    def __init__(self) -> None:
        self.next = 1
        self.waiting: list[asyncio.Future[Any]] = []

    def batch(self) -> Batch:
        self.next += 1
        return Batch(self.next - 1, self.next, [])


class AwaitedScript(ScriptedLog, AwaitedLog):
    """`denies`: the next request for a batch, which comes all the same."""

    denies = False

    async def answer(self, request: Any, timeout: float | None = None) -> Any:
        if isinstance(request, calls.Subscribe):
            self.next = request.gsn
        if not isinstance(request, calls.Next):
            return 1
        if self.denies:
            self.denies = False
            self.batch()
            return AccessDenied("not now")
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
        with pytest.raises(ValueError, match="timeout must be"):
            await subscription.poll(-1)
        assert is_late or await subscription.poll(0) is None
        following = [asyncio.create_task(subscription.poll(None)) for _ in range(2)]
        while len(log.waiting) + is_late < 2:
            await asyncio.sleep(0)
        while log.waiting:
            log.deliver()
        assert [batch.first for batch in await asyncio.gather(*following) if batch] == [1, 2]

    asyncio.run(test())


def test_no_batch_is_lost_while_access_is_denied() -> None:
    """A client ends all waiting reads when a server denies access, and its core goes on."""

    async def test() -> None:
        log = AwaitedScript()
        subscription = await log.subscribe(1)
        for number in (1, 2):
            log.denies = True
            with pytest.raises(AccessDenied):
                await subscription.poll(None)
            poll = asyncio.create_task(subscription.poll(None))
            while not log.waiting:
                await asyncio.sleep(0)
            log.deliver()
            batch = await poll
            assert batch is not None
            assert batch.first == number

    asyncio.run(test())


class BlockingScript(ScriptedLog, BlockingLog):
    """`interrupts`: the error of the next wait for a batch, which comes all the same."""

    interrupts: BaseException | None = None

    def call(self, request: Any, timeout: float | None = None) -> Any:
        if isinstance(request, calls.Subscribe):
            self.next = request.gsn
        if not isinstance(request, calls.Next):
            return 1
        batch = self.batch()
        error, self.interrupts = self.interrupts, None
        if error is not None:
            raise error
        return batch


@pytest.mark.parametrize("error", [KeyboardInterrupt(), AccessDenied("not now")], ids=["Ctrl-C", "denied"])
def test_a_poll_that_is_interrupted_takes_no_batch(error: BaseException) -> None:
    log = BlockingScript()
    subscription = log.subscribe(1)
    assert next(subscription).first == 1
    for _ in range(2):
        log.interrupts = error
        with pytest.raises(type(error)):
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


def unreachable(engine: str) -> Connection:
    """A client of a log whose servers cannot be reached."""
    hello = Hello(VERSION, "none", "ordering", "127.0.0.1:1")
    return Connection(hello._replace(ordering=("127.0.0.1:1",), right=Right.ADMIN, engine=engine), NONE)


INVALID: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "records": lambda log: log.append(None),
    "payload": lambda log: log.append([(1, "text")]),
    "tag": lambda log: log.append([(b"1", b"")]),
    "large tag": lambda log: log.append([(256, b"")]),
    "after": lambda log: log.append([(1, b"")], after="1"),
    "shard to append": lambda log: log.append_to_shard([(1, b"")], "1"),
    "outcome": lambda log: log.outcome("00c0ffee00c0ffee-17+3"),
    "gsn": lambda log: log.read_record("1", 0),
    "fraction": lambda log: log.read_record(1.5, 0),
    "shard": lambda log: log.read_record(1, "0"),
    "timeout": lambda log: log.read_record(1, 0, "1"),
    "not a number": lambda log: log.read_record(1, 0, math.nan),
    "position": lambda log: log.subscribe("1"),
    "trim": lambda log: log.trim("1"),
    "time": lambda log: log.last_at_time("1"),
    "change": lambda log: log.finalize_shard("1"),
    "policy": lambda log: log.set_shard_policy(1),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("call", INVALID.values(), ids=INVALID)
def test_invalid_arguments_do_not_end_the_client(engine: str, call: Callable[[Any], Awaitable[Any]]) -> None:
    """All threads of a program share it."""

    async def test() -> None:
        connection = unreachable(engine)
        log = AsyncRemoteLog(connection, 0.01)
        with pytest.raises((TypeError, ValueError)):
            await call(log)
        with pytest.raises(TimeoutError):
            await log.tail()
        await log.close()

    asyncio.run(test())


def test_a_thread_gets_the_error_of_a_request_that_cannot_be_made() -> None:
    """The thread waited without an end."""

    async def opened() -> Connection:
        return unreachable(ENGINES[0])

    log = RemoteLog(in_shared_loop(opened()), None)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            log.call(calls.Tail(), math.nan)
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(5)
    log.close()
    assert "NaN" in str(errors)


def test_a_policy_cannot_wait_for_the_log_that_calls_it() -> None:
    """The event loop waited for itself."""
    errors: list[Exception] = []

    async def test() -> None:
        connection = unreachable(ENGINES[0])
        with pytest.raises(LogDBError, match="may not wait") as raised:
            RemoteLog(connection, 1).tail()
        errors.append(raised.value)
        await connection.close()

    thread = threading.Thread(target=asyncio.run, args=(test(),), daemon=True)
    thread.start()
    thread.join(5)
    assert errors


def test_records_from_an_iterator_are_appended() -> None:
    """A check consumed the records, and the append returned without them."""
    assert append(iter([(1, b"a"), (2, b"b")])).request.records == ((1, b"a"), (2, b"b"))  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [math.nan, -1, "5"])
def test_an_invalid_timeout_of_a_log(timeout: Any) -> None:
    """With a NaN, connecting to servers that do not answer had no end."""
    with pytest.raises((TypeError, ValueError), match="timeout must be"):
        connect("127.0.0.1:1", timeout=timeout)
    with pytest.raises((TypeError, ValueError), match="timeout must be"):
        asyncio.run(connect_async("127.0.0.1:1", timeout=timeout))
