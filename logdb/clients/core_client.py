"""The core of a client in an event loop: calls are put to it, and their answers taken to whoever waits for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any

from logdb.cores.effects import SECOND, Address, Answer
from logdb.errors import AccessDenied, Unavailable
from logdb.log.engine import Engine, Right
from logdb.node.clock import Clock
from logdb.node.host import Build, Host
from logdb.security.authenticator import lacking
from logdb.security.credentials import NONE, Credentials
from logdb.security.permissions import CALLS_NEED
from logdb.system.forking import forked_text, own
from logdb.transport.accepted_messages import accepted_by
from logdb.transport.discovery import client_hello
from logdb.transport.peers import REFUSED_PAUSE_S, Peers
from logdb.wire.envelopes import CLIENT
from logdb.wire.limits import MAX_POSITION

Waiter = asyncio.Future[Any] | futures.Future[Any]


class HostedClient:
    """A client core in the loop that runs. Its methods are the loop's alone, but for `put_from_thread`.

    `engine`: of the cluster's log. `build` makes the core, given the client's address; `over` the error of calls that
    come or wait when the core has ended, given what has ended it, None for `close`. `right`: what the servers
    let this client do. `lost` hears of servers that cannot be reached, when the core has.
    """

    def __init__(
        self,
        cluster: str,
        engine: Engine,
        build: Callable[[Address], Build],
        over: Callable[[BaseException | None], Exception],
        credentials: Credentials = NONE,
        right: Right = Right.ADMIN,
        lost: Callable[[Address], None] = lambda peer: None,
    ) -> None:
        hello = client_hello(cluster)
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._waiting: dict[int, Waiter] = {}
        self._reading: set[int] = set()
        self._denied: tuple[float, AccessDenied] | None = None
        self._last = 0
        self._asked: deque[tuple[Any, float | None, Waiter]] = deque()
        self._right = right
        self._peers = Peers(hello, credentials=credentials)
        port = self._peers.attach(hello.address, accepted_by(CLIENT, engine))
        self._peers.denied = self._not_let_in
        self.host = Host(hello.address, build(hello.address), port, clock=self._clock, answered=self._answered)
        self.host.ended.add_done_callback(self._ended)
        port.receive = self.host.receive
        self._lost = lost
        self._forked: Exception | None = None
        port.lost = self._has_lost
        self.host.start()
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(), which has neither the loop nor the streams: calls end at once."""
        self._forked = self._over(Unavailable(f"it was {forked_text(parent)}"))

    def put(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """Put a call, whose answer (a value or an exception) will be the waiter's result."""
        if self._forked is not None:
            settle(waiter, self._forked)
            return
        if self.host.ended.done():
            settle(waiter, self._over(self.host.ended.exception()))
            return
        needed = CALLS_NEED.get(type(request), Right.READ)
        impossible = self._why_not(needed) or _why_no_message(request)
        if impossible is not None:
            settle(waiter, impossible)
            return
        if timeout is not None:
            request = request._replace(deadline=self._clock() + int(timeout * SECOND))
        self._last += 1
        self._waiting[self._last] = waiter
        if needed <= Right.READ:
            self._reading.add(self._last)
        self.host.call(self._last, request)

    def require(self, kind: type) -> None:
        """Raises AccessDenied if the servers do not let this client make calls of that kind."""
        denied = self._why_not(CALLS_NEED.get(kind, Right.READ))
        if denied is not None:
            raise denied

    def put_from_thread(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """The same from any thread."""
        if self._forked is not None:
            settle(waiter, self._forked)
            return
        self._asked.append((request, timeout, waiter))
        self._loop.call_soon_threadsafe(self._put_asked)

    def _put_asked(self) -> None:
        while self._asked:
            self.put(*self._asked.popleft())

    def _answered(self, answer: Answer) -> None:
        self._settle(answer.call, answer.result)

    def _settle(self, call: int, result: Any) -> None:
        self._reading.discard(call)
        waiter = self._waiting.pop(call, None)
        if waiter is not None:
            settle(waiter, result)

    def _ended(self, ended: asyncio.Future[Any]) -> None:
        for call in list(self._waiting):
            self._settle(call, self._over(ended.exception()))

    def _has_lost(self, peer: Address) -> None:
        self.host.lost(peer)
        self._lost(peer)

    # ---- rights

    def _why_not(self, needed: Right) -> AccessDenied | None:
        """Why nothing is sent of a call, if it is so."""
        if self._right < needed:
            return AccessDenied(lacking("this client", self._right, needed))
        if self._denied is not None and self._loop.time() < self._denied[0]:
            return self._denied[1]
        return None

    def _not_let_in(self, error: AccessDenied) -> None:
        """A server has shut out this client. What only reads ends; of the rest nobody knows before its deadline."""
        self._denied = self._loop.time() + REFUSED_PAUSE_S, error
        for call in list(self._reading):
            self._settle(call, error)

    async def close(self) -> None:
        """End: whoever waits gets the error of `over`."""
        if self._forked is None:
            await self.host.close()
            await self._peers.close()


def _why_no_message(request: Any) -> ValueError | None:
    """Why no message can carry what is asked, if it is so. Clients have random numbers of 64 bits; everything else that
    is counted ends below 2^63."""
    for name, value in zip(request._fields, request, strict=True):
        if value.__class__ is int:
            if value > MAX_POSITION and name != "client":
                return ValueError(f"{name} must be at most 2^63 - 1, not {value}")
        elif isinstance(value, tuple) and hasattr(value, "_fields") and (why := _why_no_message(value)):
            return why
    return None


def settle(waiter: Waiter, result: Any) -> None:
    """Not as an exception, which may be a StopIteration: that has no place in a future."""
    if not waiter.done():
        waiter.set_result(result)


def given(result: Any) -> Any:
    """The result; raises it if it is an exception."""
    if isinstance(result, Exception):
        raise result
    return result
