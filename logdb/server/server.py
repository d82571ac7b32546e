"""The server of a database: handshakes, one session per stream, and a stop that answers all received requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import grpc

from logdb.embedded.async_backend import CoroutineBackend
from logdb.errors import AccessDenied
from logdb.security.authenticator import Authenticator, user_of
from logdb.server.contention_queue import ContentionQueue
from logdb.server.permissions import StreamRight
from logdb.server.session import Session
from logdb.server.uploads import Uploads
from logdb.transport.listener import Listener
from logdb.transport.refusals import Refusals
from logdb.transport.unread_answers import DurabilityNotifier, UnreadAnswers
from logdb.wire.database_codec import MESSAGE_OPTIONS, METHOD, PROTOCOL, RELEASE, requests_of
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)

DRAIN_S: Final = 10.0
"""Maximum time for which a stop waits for clients to receive their answers."""
HANDSHAKE_S: Final = 10.0
STOPPING_HANDSHAKE_S: Final = 1.0
"""The same of a server that is stopping."""


class Load(NamedTuple):
    """The resources that the clients of a server use at one moment."""

    streams: int
    users: int
    answer_bytes: int
    """Answers that clients have not received yet."""
    values: int
    """Large values that are being uploaded."""
    request_bytes: int
    """Large requests that are not whole yet."""
    waiting: int
    """Requests that are answered later."""
    parted: int
    """Largest number of answers of one stream that are sent in parts."""


class Server:
    """Serves the database of `backend` at an address to clients that `authenticator` admits. Call `start` first, `stop`
    at the end. `contention`: the keys over which its transactions conflict. `refusals`: of streams and requests."""

    def __init__(self, backend: CoroutineBackend, authenticator: Authenticator | None = None) -> None:
        self._backend, self._authenticator = backend, authenticator or Authenticator()
        self._advanced = DurabilityNotifier()
        self.contention = ContentionQueue()
        self._answers, self._uploads = UnreadAnswers(), Uploads()
        self._database = backend.embedded.log_id or secrets.token_bytes(16)
        self._sessions: set[Session] = set()
        self._handshakes: set[asyncio.Timeout] = set()
        self._stopping = False
        self.refusals = Refusals(log)
        pings = ("grpc.http2.min_ping_interval_without_data_ms", 5_000)
        self._listener = Listener(METHOD, self._calls, (*MESSAGE_OPTIONS, pings))

    async def start(self, address: str) -> int:
        """Listen at `address` (HOST:PORT; port 0: any that is free). Returns the port. Raises Unavailable."""
        port = await self._listener.listen(address, self._authenticator.add_port)
        await self._listener.report_health(is_serving=True)
        return port

    def load(self) -> Load:
        """The resources that clients use now; exact in the event loop, approximate in another thread."""
        answers, uploads = self._answers, self._uploads
        taken = uploads.values.taken, uploads.requests.taken
        sessions = list(self._sessions)  # which changes meanwhile
        waiting = sum(session.waiting for session in sessions)
        parted = max((session.parted for session in sessions), default=0)
        return Load(len(sessions), answers.users, answers.bytes, *taken, waiting, parted)

    async def stop(self) -> None:
        """Accept no more requests, answer the received ones, end all streams. The database stays open."""
        self._stopping = True
        await self._listener.report_health(is_serving=False)
        for session in self._sessions:
            session.draining.set()
        latest = asyncio.get_running_loop().time() + STOPPING_HANDSHAKE_S
        for timeout in [one for one in self._handshakes if not one.expired()]:
            timeout.reschedule(min(timeout.when() or latest, latest))
        self._advanced.notify()
        await self._listener.stop(DRAIN_S)

    async def _calls(self, _: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            session = await self._welcomed(context)
            if session is None:
                return
            self._sessions.add(session)
            if self._stopping:  # it has begun meanwhile
                session.draining.set()
            try:
                await session.run()
            finally:
                self._sessions.discard(session)
        except WireError as error:
            self.refusals.add("stream ended", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if self._stopping:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")

    async def _welcomed(self, context: grpc.aio.ServicerContext[Any, Any]) -> Session | None:
        """The session with a client that speaks the same protocol. Raises WireError."""
        try:
            grant = self._authenticator.admit(context)
        except AccessDenied as error:
            await self._deny(context, error)
            return None
        try:
            async with self._handshake():
                raw = await context.read()
        except TimeoutError as error:
            if self._stopping:
                return None
            raise WireError("no Hello came") from error
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
            incarnation=self._backend.embedded.incarnation,
        )
        await context.write(pb.Responses(welcome=welcome).SerializeToString())
        if refusal:
            self.refusals.add("client refused", context.peer(), f"its {refusal} differs (LogDB {hello.release})")
            return None
        log.info("client connected", extra={"peer": context.peer(), "release": hello.release, "user": grant.name})
        shared = self._backend, self._advanced, self.contention, self._answers, self._uploads
        right = StreamRight(grant, functools.partial(self.refusals.add, "access denied", context.peer()))
        return Session(*shared, context, hello.client, hello.timeout_ms / 1000, right, user_of(grant, context.peer()))

    @contextlib.asynccontextmanager
    async def _handshake(self) -> AsyncIterator[None]:
        """Raise TimeoutError if the block takes longer than a handshake may."""
        async with asyncio.timeout(STOPPING_HANDSHAKE_S if self._stopping else HANDSHAKE_S) as timeout:
            self._handshakes.add(timeout)
            try:
                yield
            finally:
                self._handshakes.discard(timeout)

    async def _deny(self, context: grpc.aio.ServicerContext[Any, Any], error: AccessDenied) -> None:
        """Send the error, and read nothing. The client ends the stream: gRPC drops the message if the server does."""
        self.refusals.add("access denied", context.peer(), error)
        welcome = pb.Welcome(protocol=PROTOCOL, release=RELEASE, refusal="access", denied=str(error))
        await context.write(pb.Responses(welcome=welcome).SerializeToString())
        with contextlib.suppress(TimeoutError):
            async with self._handshake():
                await asyncio.Event().wait()
