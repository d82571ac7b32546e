"""A client of a database on a cluster, for tests of its servers: the core in an event loop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from logdb.clients.background_loop import in_shared_loop
from logdb.cluster.client.database_client import DatabaseClient, DatabaseConfig
from logdb.cluster.client.requests import Request
from logdb.cores.effects import SECOND, Answer
from logdb.log.engine import ENGINES, Engine, engine_of
from logdb.log.requests import ClientConfig
from logdb.node.clock import Clock
from logdb.node.host import Host
from logdb.transport.accepted_messages import accepted_by
from logdb.transport.peers import Peers
from logdb.wire.envelopes import CLIENT, VERSION, Hello

TIMEOUT_S = 60


class Application:
    """A context manager. Its methods may be called from any thread. `ordering`: the addresses of the founders."""

    def __init__(
        self, ordering: Sequence[str], mapping: Sequence[str], cluster: str = "test", engine: str = ENGINES[0]
    ) -> None:
        self._clock = Clock()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        in_shared_loop(self._start(cluster, tuple(ordering), tuple(mapping), engine_of(engine)))

    async def _start(self, cluster: str, ordering: tuple[str, ...], mapping: tuple[str, ...], engine: Engine) -> None:
        address = f"client-{secrets.token_hex(8)}"
        self._peers = Peers(Hello(VERSION, cluster, CLIENT, address))
        port = self._peers.attach(address, accepted_by(CLIENT, engine))
        config = DatabaseConfig(address, mapping, ClientConfig(address, ordering), engine.client)
        self._host = Host(
            address,
            lambda journals, rng: DatabaseClient(config, journals, rng),
            port,
            clock=self._clock,
            answered=self._answered,
        )
        port.receive = self._host.receive
        self._host.start()

    def _answered(self, answer: Answer) -> None:
        self._waiting.pop(answer.call).set_result(answer.result)

    async def _call(self, request: Any) -> Any:
        if hasattr(request, "deadline"):
            request = request._replace(deadline=self._clock() + TIMEOUT_S * SECOND)
        number = secrets.randbits(62)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._host.call(number, request)
        ended, _ = await asyncio.wait((waiting, self._host.ended), return_when=asyncio.FIRST_COMPLETED)
        if waiting not in ended:
            self._host.ended.result()
        return waiting.result()

    def call(self, request: Request) -> Any:
        """Return the result of a request. Raises the exception that is the result."""
        result = in_shared_loop(self._call(request))
        if isinstance(result, Exception):
            raise result
        return result

    def __enter__(self) -> Application:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        async def close() -> None:
            await self._host.close()
            await self._peers.close()

        in_shared_loop(close())
