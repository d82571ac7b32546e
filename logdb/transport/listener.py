"""Listening: a gRPC server with one method, for streams of messages as bytes, and the health service."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from logdb.system.addresses import check_free
from logdb.system.grpc_fork import claim_grpc
from logdb.transport.connections import WATCH_SHARE, connection_options, max_connections
from logdb.transport.failures import aio

_HEALTH: Final[Any] = health.aio  # type: ignore[attr-defined]  # its type stubs lack it
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

Handler = Callable[[Any, Any], Awaitable[None]]
"""Serves one stream: (iterator of its messages, context of the call)."""


class AddPort(Protocol):
    """Opens a port of a gRPC server, with TLS if this server has a certificate."""

    def __call__(self, server: Any, address: str) -> int:
        """Returns the port. Raises Unavailable."""


class _Health(_HEALTH.HealthServicer):  # type: ignore[misc]  # see _HEALTH
    """The health service with a maximum number of watches: a watch keeps its connection open, and needs no right."""

    def __init__(self, max_watches: int) -> None:
        super().__init__()
        self._max_watches, self._watches = max_watches, 0

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - of gRPC
        """Send the state, and each change of it."""
        if self._watches >= self._max_watches:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches: call Check")
        self._watches += 1
        try:
            await super().Watch(request, context)
        finally:
            self._watches -= 1


class Listener:
    """A server that offers `method` ("/SERVICE/METHOD") at one address. Not healthy before `report_health` says so.
    `descriptors`: for each connection."""

    def __init__(self, method: str, handler: Handler, options: Iterable[tuple[str, int]], descriptors: int = 1) -> None:
        self._service, name = method[1:].split("/")
        claim_grpc()
        self._server = aio.server(options=[*options, *connection_options(descriptors), ("grpc.so_reuseport", 0)])
        rpc = grpc.stream_stream_rpc_method_handler(handler)  # messages as bytes: the handler sees malformed ones
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self._service, {name: rpc}),))
        self._health = _Health(max(1, max_connections(descriptors) // WATCH_SHARE))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    async def listen(self, address: str, add_port: AddPort) -> int:
        """Listen at an address (port 0: any free port). Returns the port. Raises Unavailable."""
        check_free(address)
        await self.report_health(is_serving=False)
        port = add_port(self._server, address)
        await self._server.start()
        return port

    async def report_health(self, *, is_serving: bool) -> None:
        """Set the answer of the health service, for the service and for the server as a whole ("")."""
        with contextlib.suppress(RuntimeError):  # the server is stopping
            for service in ("", self._service):
                await self._health.set(service, _SERVING if is_serving else _NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Accept no more streams, and end those that still run after `grace_s` seconds."""
        await self.report_health(is_serving=False)
        await self._server.stop(grace_s)
