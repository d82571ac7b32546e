"""The core of a client in an event loop: calls are put to it, and their answers taken to whoever waits for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any

from logdb.log.cores import SECOND, Address, Answer
from logdb.net.clock import Clock
from logdb.net.discovery import client_hello
from logdb.net.host import Build, Host
from logdb.net.parcels import Role
from logdb.net.peers import Peers
from logdb.net.takes import TAKES

Waiter = asyncio.Future[Any] | futures.Future[Any]


class HostedClient:
    """A client core in the loop that runs. Its methods are the loop's alone, but for `put_from_thread`.

    `build` makes the core, given the client's address; `over` the error of calls that come or wait when the core has
    ended, given what has ended it, None for `close`.
    """

    def __init__(
        self, cluster: str, build: Callable[[Address], Build], over: Callable[[BaseException | None], Exception]
    ) -> None:
        hello = client_hello(cluster)
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._waiting: dict[int, Waiter] = {}
        self._last = 0
        self._asked: deque[tuple[Any, float | None, Waiter]] = deque()
        self._peers = Peers(hello, TAKES[Role.CLIENT])
        self.host = Host(hello.address, build(hello.address), self._peers, clock=self._clock, answered=self._answered)
        self.host.ended.add_done_callback(self._ended)
        self._peers.receive = self.host.receive
        self.host.start()

    def put(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """Put a call, whose answer (a value or an exception) will be the waiter's result."""
        if self.host.ended.done():
            settle(waiter, self._over(self.host.ended.exception()))
            return
        if timeout is not None:
            request = request._replace(deadline=self._clock() + int(timeout * SECOND))
        self._last += 1
        self._waiting[self._last] = waiter
        self.host.call(self._last, request)

    def put_from_thread(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """The same from any thread."""
        self._asked.append((request, timeout, waiter))
        self._loop.call_soon_threadsafe(self._put_asked)

    def _put_asked(self) -> None:
        while self._asked:
            self.put(*self._asked.popleft())

    def _answered(self, answer: Answer) -> None:
        settle(self._waiting.pop(answer.call), answer.result)

    def _ended(self, ended: asyncio.Future[Any]) -> None:
        for waiter in self._waiting.values():
            settle(waiter, self._over(ended.exception()))
        self._waiting.clear()

    async def close(self) -> None:
        """End: whoever waits gets the error of `over`."""
        await self.host.close()
        await self._peers.close()


def settle(waiter: Waiter, result: Any) -> None:
    """Not as an exception, which may be a StopIteration: that has no place in a future."""
    if not waiter.done():
        waiter.set_result(result)


def given(result: Any) -> Any:
    """The result; raises it if it is an exception."""
    if isinstance(result, Exception):
        raise result
    return result
