"""The server's process side of the service: handshakes, health, and a stop that answers what was taken."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from typing import Any, Final, NamedTuple

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from logdb.embedded.async_backend import CoroutineBackend
from logdb.errors import AccessDenied, Unavailable
from logdb.security.authenticator import Authenticator, user_of
from logdb.server.contention_queue import ContentionQueue
from logdb.server.session import Session
from logdb.server.uploads import Uploads
from logdb.system.addresses import parsed
from logdb.system.grpc_fork import claim_grpc
from logdb.transport.connections import connection_options
from logdb.transport.unread_answers import DurabilityNotifier, UnreadAnswers
from logdb.wire.database_codec import MESSAGE_OPTIONS, METHOD, PROTOCOL, RELEASE, requests_of
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)

DRAIN_S: Final = 10.0
"""A stop waits so long for clients to take their answers."""
HANDSHAKE_S: Final = 10.0
SERVICE: Final = METHOD.split("/")[1]


def _try_to_bind(address: str) -> None:
    """Raises Unavailable with the system's reason; gRPC writes an essay on stderr instead."""
    host, port = parsed(address)
    try:
        family, kind, _, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(name)
            probe.listen(1)
    except OSError as error:
        raise Unavailable(f"cannot listen at {address}: {error.strerror or error}") from error


class Load(NamedTuple):
    """What the clients of a server occupy in it at one moment."""

    streams: int
    users: int
    answer_bytes: int
    """Answers that clients have not taken yet."""
    values: int
    """Large values that are being uploaded."""
    request_bytes: int
    """Large requests that are not whole yet."""


class Server:
    """Serves the database of `host` at an address to those whom `authenticator` lets in. `start` before anything else,
    `stop` at the end."""

    def __init__(self, host: CoroutineBackend, authenticator: Authenticator | None = None) -> None:
        self._host, self._authenticator = host, authenticator or Authenticator()
        self._advanced = DurabilityNotifier()
        self._turns = ContentionQueue()
        self._answers, self._uploads = UnreadAnswers(), Uploads()
        self._database = host.host.log_id or secrets.token_bytes(16)
        self._sessions: set[Session] = set()
        self._stopping = False
        pings = ("grpc.http2.min_ping_interval_without_data_ms", 5_000)
        options = (*MESSAGE_OPTIONS, *connection_options(), ("grpc.so_reuseport", 0), pings)
        claim_grpc()
        self._server = grpc.aio.server(options=options)
        self._health: Any = health.aio.HealthServicer()  # type: ignore[attr-defined]
        _, _, name = METHOD.rpartition("/")
        calls = grpc.stream_stream_rpc_method_handler(self._calls)  # messages as bytes: what cannot be parsed is seen
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {name: calls}),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    async def start(self, address: str) -> int:
        """Listen at `address` (HOST:PORT; port 0: any that is free). Returns the port. Raises Unavailable."""
        _try_to_bind(address)
        port = self._authenticator.add_port(self._server, address)
        await self._server.start()
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return port

    def load(self) -> Load:
        """What its clients occupy now. To be called in its event loop, or for a rough answer anywhere."""
        answers, uploads = self._answers, self._uploads
        taken = uploads.values.taken, uploads.requests.taken
        return Load(len(self._sessions), answers.users, answers.bytes, *taken)

    async def stop(self) -> None:
        """Take nothing more, answer what was taken, end all streams. The database stays open."""
        self._stopping = True
        await self._health.enter_graceful_shutdown()
        for session in self._sessions:
            session.draining.set()
        self._advanced.tell()
        await self._server.stop(DRAIN_S)

    async def _calls(self, _: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            session = await self._welcomed(context)
            if session is None:
                return
            self._sessions.add(session)
            try:
                await session.run()
            finally:
                self._sessions.discard(session)
        except WireError as error:
            log.warning("%s sent what means nothing: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if self._stopping:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")

    async def _welcomed(self, context: grpc.aio.ServicerContext[Any, Any]) -> Session | None:
        """The session with a client that speaks the same protocol. Raises WireError."""
        try:
            grant = self._authenticator.admit(context)
        except AccessDenied as error:
            await self._turn_away(context, error)
            return None
        raw = await asyncio.wait_for(context.read(), HANDSHAKE_S)
        if not isinstance(raw, bytes):
            return None
        hello = requests_of(raw).hello
        refusal = ""
        if hello.protocol != PROTOCOL:
            refusal = "protocol"
        elif hello.database and hello.database != self._database:
            refusal = "database"
        elif not hello.client:
            raise WireError("a Hello without a client")
        welcome = pb.Welcome(
            protocol=PROTOCOL,
            release=RELEASE,
            database=self._database,
            refusal=refusal,
            incarnation=self._host.host.incarnation,
        )
        await context.write(pb.Responses(welcome=welcome).SerializeToString())
        if refusal:
            log.warning("%s was refused: its %s is another (LogDB %s)", context.peer(), refusal, hello.release)
            return None
        log.info("%s is here (LogDB %s) %s", context.peer(), hello.release, grant.who)
        shared = self._host, self._advanced, self._turns, self._answers, self._uploads
        return Session(*shared, context, hello.client, hello.timeout_ms / 1000, grant, user_of(grant, context.peer()))

    async def _turn_away(self, context: grpc.aio.ServicerContext[Any, Any], why: AccessDenied) -> None:
        """Tell why, and nothing else. Nothing is read of a stranger; and
        he hangs up, since gRPC forgets what was told if the server does."""
        log.warning("%s was denied access: %s", context.peer(), why)
        welcome = pb.Welcome(protocol=PROTOCOL, release=RELEASE, refusal="access", denied=str(why))
        await context.write(pb.Responses(welcome=welcome).SerializeToString())
        await asyncio.sleep(HANDSHAKE_S)
