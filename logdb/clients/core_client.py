"""A client core in an event loop: it is sent requests, and its answers resolve the futures of their callers."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any

from logdb.clients.background_loop import in_callback, is_running_here
from logdb.cores.effects import SECOND, Address, Answer
from logdb.errors import AccessDenied, Unavailable
from logdb.log.engine import Engine, Right
from logdb.node.clock import Clock
from logdb.node.host import Build, Host
from logdb.security.authenticator import right_missing
from logdb.security.credentials import NONE, Credentials
from logdb.security.permissions import CALL_RIGHTS
from logdb.system.forking import forked_text, own
from logdb.transport.accepted_messages import accepted_by
from logdb.transport.discovery import client_hello
from logdb.transport.peers import REFUSED_PAUSE_S, Peers
from logdb.wire.envelopes import CLIENT
from logdb.wire.limits import MAX_POSITION

Waiter = asyncio.Future[Any] | futures.Future[Any]


class HostedClient:
    """A client core in the running loop. Only `put_from_thread` may be called from other threads.

    `engine`: of the cluster's log. `build`: makes the core, called with the client's address. `closed_error`: makes the
    error of requests that come or wait when the core has ended, called with the failure that has ended it, None for
    `close`. `right`: of this client at the servers. `lost`: called with each server that cannot be reached, after the
    core.
    """

    def __init__(
        self,
        cluster: str,
        engine: Engine,
        build: Callable[[Address], Build],
        closed_error: Callable[[BaseException | None], Exception],
        credentials: Credentials = NONE,
        right: Right = Right.ADMIN,
        lost: Callable[[Address], None] = lambda peer: None,
    ) -> None:
        hello = client_hello(cluster)
        self._closed_error = closed_error
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._waiting: dict[int, Waiter] = {}
        self._reading: set[int] = set()
        self._denied: tuple[float, AccessDenied] | None = None
        self._last = 0
        self._queued: deque[tuple[Any, float | None, Waiter]] = deque()
        self._right = right
        self._peers = Peers(hello, credentials=credentials)
        port = self._peers.attach(hello.address, accepted_by(CLIENT, engine))
        self._peers.denied = self._access_denied
        self.host = Host(hello.address, build(hello.address), port, clock=self._clock, answered=self._answered)
        self.host.ended.add_done_callback(self._ended)
        port.receive = self.host.receive
        self._lost = lost
        self._forked: Exception | None = None
        port.lost = self._has_lost
        self.host.start()
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(), which has neither the loop nor the streams: requests fail at once."""
        self._forked = self._closed_error(Unavailable(f"it was {forked_text(parent)}"))

    def put(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """Send a request. Its answer, also an exception, becomes the result of `waiter`. `timeout`: in seconds."""
        if self._forked is not None:
            resolve(waiter, self._forked)
            return
        if self.host.ended.done():
            resolve(waiter, self._closed_error(self.host.ended.exception()))
            return
        needed = CALL_RIGHTS.get(type(request), Right.READ)
        error = self._denial(needed) or _unsendable(request)
        if error is not None:
            resolve(waiter, error)
            return
        if timeout is not None:
            request = request._replace(deadline=self._clock() + int(timeout * SECOND))
        self._last += 1
        self._waiting[self._last] = waiter
        if needed <= Right.READ:
            self._reading.add(self._last)
        self.host.call(self._last, request)

    def require(self, kind: type) -> None:
        """Raises AccessDenied if this client has no right to requests of that kind."""
        denied = self._denial(CALL_RIGHTS.get(kind, Right.READ))
        if denied is not None:
            raise denied

    def put_from_thread(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """As `put`, from any thread that waits for the answer. Raises LogDBError in that of the loop."""
        if is_running_here(self._loop):
            raise in_callback()
        if self._forked is not None:
            resolve(waiter, self._forked)
            return
        self._queued.append((request, timeout, waiter))
        self._loop.call_soon_threadsafe(self._put_queued)

    def _put_queued(self) -> None:
        while self._queued:
            request, timeout, waiter = self._queued.popleft()
            try:
                self.put(request, timeout, waiter)
            except Exception as error:  # of the arguments: the thread waits for it
                resolve(waiter, error)

    def _answered(self, answer: Answer) -> None:
        self._resolve(answer.call, answer.result)

    def _resolve(self, call: int, result: Any) -> None:
        self._reading.discard(call)
        waiter = self._waiting.pop(call, None)
        if waiter is not None:
            resolve(waiter, result)

    def _ended(self, ended: asyncio.Future[Any]) -> None:
        for call in list(self._waiting):
            self._resolve(call, self._closed_error(ended.exception()))

    def _has_lost(self, peer: Address) -> None:
        self.host.lost(peer)
        self._lost(peer)

    # ---- rights

    def _denial(self, needed: Right) -> AccessDenied | None:
        """The error for a request that needs a right, if the servers would deny it."""
        if self._right < needed:
            return AccessDenied(right_missing("this client", self._right, needed))
        if self._denied is not None and self._loop.time() < self._denied[0]:
            return self._denied[1]
        return None

    def _access_denied(self, error: AccessDenied) -> None:
        """End reads, since a server denies access. Other requests wait until their deadlines: their outcome is open."""
        self._denied = self._loop.time() + REFUSED_PAUSE_S, error
        for call in list(self._reading):
            self._resolve(call, error)

    async def close(self) -> None:
        """End the core; waiting requests fail with `closed_error`."""
        if self._forked is None:
            await self.host.close()
            await self._peers.close()


def _unsendable(request: Any) -> TypeError | ValueError | None:
    """The error for a request that would end the core, or that no message can carry: numbers are below 2^63, except
    clients' random ones."""
    optional = _numbers_of(request.__class__)
    for name, value in zip(request._fields, request, strict=True):
        if value.__class__ is int:
            if value > MAX_POSITION and name != "client":
                return ValueError(f"{name} must be at most 2^63 - 1, not {value}")
        elif name in optional:
            if not isinstance(value, int) and not (value is None and optional[name]):
                return TypeError(f"{name} must be an int, not {type(value).__name__}")
        elif isinstance(value, tuple) and hasattr(value, "_fields") and (error := _unsendable(value)):
            return error
    return None


@functools.cache
def _numbers_of(kind: type) -> dict[str, bool]:
    """The fields of a request that are numbers, and whether they may be None."""
    hints = {name: getattr(hint, "__forward_arg__", hint) for name, hint in kind.__annotations__.items()}
    return {name: hint != "int" for name, hint in hints.items() if hint in ("int", "int | None")}


def resolve(waiter: Waiter, result: Any) -> None:
    """Set the result of a future, also if it is an exception: a future cannot raise a StopIteration."""
    if not waiter.done():
        waiter.set_result(result)


def unwrap(result: Any) -> Any:
    """The result; raises it if it is an exception."""
    if isinstance(result, Exception):
        raise result
    return result
