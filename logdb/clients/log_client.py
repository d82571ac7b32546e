"""The shared log of a cluster, for programs: `connect` for threads, `connect_async` for asyncio.

Both host the client core of the log's engine in an event loop: the program's own, or the shared one of
`background_loop.py`. Their verbs are those of `log_verbs.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from random import Random
from typing import Any, Final

from logdb.clients.background_loop import in_shared_loop
from logdb.clients.core_client import HostedClient, Waiter, resolve, unwrap
from logdb.clients.log_verbs import AwaitedLog, BlockingLog
from logdb.cores.effects import Address, Journal
from logdb.errors import AccessDenied, Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendUnknown, LogFailed
from logdb.log.engine import LogClientCore, engine_of
from logdb.log.requests import ClientConfig
from logdb.node.host import Build
from logdb.security.credentials import NONE, AnyPath, Credentials, credentials
from logdb.security.record_permissions import check_kinds
from logdb.store.arguments import checked_wait
from logdb.system.addresses import endpoints_of
from logdb.system.forking import own
from logdb.transport.dialling import Refused
from logdb.transport.discovery import client_hello, discover
from logdb.wire.envelopes import Hello

TIMEOUT_S: Final = 30.0


class Connection(HostedClient):
    """The core of a log client in the running loop."""

    def __init__(self, node: Hello, credentials: Credentials) -> None:
        engine = engine_of(node.engine)

        def build(address: Address) -> Build:
            config = ClientConfig(address=address, ordering=node.ordering)

            def built(journals: Mapping[str, Journal], rng: Random) -> LogClientCore:
                self._core = engine.client(config, journals, rng)
                return self._core

            return built

        self.is_of_database = bool(node.mapping)
        self._engine_of_log = engine
        super().__init__(node.cluster, engine, build, _closed_error, credentials, node.right)

    def _ended(self, ended: asyncio.Future[Any]) -> None:
        """Appends end with `AppendUnknown`, whose id another client can ask for the outcome of."""
        for call in list(self._waiting):
            if (append_id := self._core.append_id(call)) is not None:
                self._resolve(call, AppendUnknown(str(_closed_error(ended.exception())), append_id))
        super()._ended(ended)

    @classmethod
    async def open(cls, addresses: str | Sequence[str], timeout: float, credentials: Credentials = NONE) -> Connection:
        """Find the cluster. Raises Unavailable, AccessDenied, ValueError."""
        theirs = await discover(endpoints_of(addresses), client_hello(), timeout, credentials)
        if not theirs.ordering:
            raise Refused(f"the server at {theirs.address} belongs to no shared log")
        return cls(theirs, credentials)

    def put(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """Send a request, unless the engine has no streams, or the servers of a database would reject it."""
        needs_streams = isinstance(request, calls.ReadStream) or (
            isinstance(request, calls.Append) and len(request.streams) > 0
        )
        if needs_streams and not self._engine_of_log.has_streams:
            resolve(waiter, Unavailable(f"a log on {self._engine_of_log.name} has no streams"))
            return
        if self.is_of_database and isinstance(request, calls.Append):
            try:
                check_kinds(request.records)
            except AccessDenied as error:
                resolve(waiter, error)
                return
        super().put(request, timeout, waiter)


def _closed_error(failure: BaseException | None) -> LogFailed:
    return LogFailed("the log is closed" if failure is None else f"the client has failed: {failure}")


class AsyncRemoteLog(AwaitedLog):
    """The log of a cluster, for the coroutines of one event loop.

    `timeout` (seconds): of every verb that does not wait for something to happen. A verb that exceeds it raises
    TimeoutError or, if the request may have been carried out, LogFailed.
    """

    def __init__(self, connection: Connection, timeout: float | None) -> None:
        self._connection, self.timeout = connection, timeout

    async def answer(self, request: Any, timeout: float | None = None) -> Any:
        """The answer to a request of `logdb.log.requests`, which may be an exception."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._connection.put(request, timeout, waiter)
        return await waiter

    async def close(self) -> None:
        """Leave the cluster. Waiting calls end with LogFailed."""
        await self._connection.close()

    async def __aenter__(self) -> AsyncRemoteLog:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class RemoteLog(BlockingLog):
    """The log of a cluster, for any number of threads. `timeout`: as of `AsyncRemoteLog`."""

    def __init__(self, connection: Connection, timeout: float | None) -> None:
        self._connection, self.timeout = connection, timeout
        self._closing = threading.Lock()
        self._closed = False
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed. The connection is disowned on its own."""
        self._closing, self._closed = threading.Lock(), True

    @property
    def is_of_database(self) -> bool:
        """Whether the cluster has mapping servers: then programs append only transactions and their values."""
        return self._connection.is_of_database

    def require(self, kind: type) -> None:
        """Raises AccessDenied if this client has no right to requests of that kind."""
        self._connection.require(kind)

    def call(self, request: Any, timeout: float | None = None) -> Any:
        """The answer to a request of `logdb.log.requests`; raises it if it is an exception."""
        waiter: futures.Future[Any] = futures.Future()
        self._connection.put_from_thread(request, timeout, waiter)
        return unwrap(waiter.result())

    def close(self) -> None:
        """Leave the cluster. Waiting calls end with LogFailed."""
        with self._closing:
            if not self._closed:
                in_shared_loop(self._connection.close())
                self._closed = True  # not before: the close may be interrupted, and repeated

    def __enter__(self) -> RemoteLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


async def connect_async(
    addresses: str | Sequence[str],
    *,
    timeout: float | None = TIMEOUT_S,
    ca: AnyPath | None = None,
    certificate: AnyPath | None = None,
    certificate_key: AnyPath | None = None,
    token: str | None = None,
) -> AsyncRemoteLog:
    """As `logdb.log.connect`, for asyncio: the methods of the log are coroutines."""
    timeout = checked_wait(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    return AsyncRemoteLog(await Connection.open(addresses, TIMEOUT_S if timeout is None else timeout, shown), timeout)


def connect(
    addresses: str | Sequence[str],
    *,
    timeout: float | None = TIMEOUT_S,
    ca: AnyPath | None = None,
    certificate: AnyPath | None = None,
    certificate_key: AnyPath | None = None,
    token: str | None = None,
) -> RemoteLog:
    """Connect to the shared log of a cluster. Returns its log (`Log`, with the operations on shards and servers), for
    threads.

    `addresses`: "HOST:PORT" of any of its servers, several with commas between, or a list. `timeout`: seconds for each
    call that does not wait for a record; None: no bound. `ca`, `certificate`, `certificate_key`, `token`: as
    `logdb.connect`. Raises Unavailable, AccessDenied, TypeError, ValueError.
    """
    timeout = checked_wait(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    opening = Connection.open(addresses, TIMEOUT_S if timeout is None else timeout, shown)
    return RemoteLog(in_shared_loop(opening), timeout)
