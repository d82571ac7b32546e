"""A client's stream to a server, for coroutines: see `server_connection`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc

from logdb.clients.server_connection import (
    CHANNEL_OPTIONS,
    FIRST_PAUSE_S,
    MAX_HANDSHAKES,
    MAX_PAUSE_S,
    EndedDuringHandshake,
    ServerConnection,
    StreamLost,
    unreachable,
)
from logdb.errors import AccessDenied, ProtocolMismatch, Unavailable
from logdb.security.credentials import NONE, Credentials
from logdb.system.forking import keep_for_ever, own
from logdb.transport.backoff import Backoff
from logdb.transport.failures import failure_of, reason_of, reason_of_status
from logdb.wire.database_codec import METHOD
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)


class Connection(ServerConnection[asyncio.Future[pb.Response]]):
    """A connection for one event loop."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, credentials: Credentials = NONE) -> None:
        super().__init__(endpoints, timeout_s, credentials)
        self._can_send = asyncio.Event()
        self._silent = asyncio.Event()
        self._stream: Any = None
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed. The parent's stream is never freed here: freeing waits for a thread of
        gRPC that the child does not have."""
        keep_for_ever((self._tasks, self._stream))
        self.forked_from, self.closed, self._tasks = parent, True, []

    @property
    def is_connected(self) -> bool:
        """Whether there is a stream."""
        return self._stream is not None

    def clock(self) -> float:
        """The time of the loop, in seconds."""
        return self._loop.time()

    def _new_answer(self) -> asyncio.Future[pb.Response]:
        return self._loop.create_future()

    def _wake(self) -> None:
        self._can_send.set()

    # ---- opening and closing

    async def open(self) -> None:
        """Connect to one of the servers. Raises Unavailable, AccessDenied, ProtocolMismatch, ValueError."""
        reasons = []
        for endpoint in self.endpoints:
            try:
                stream = await self._reach(endpoint)
            except StreamLost as lost:
                reasons.append(str(lost))
            else:
                self._tasks = [asyncio.create_task(self._run(*stream)), asyncio.create_task(self._expire())]
                return
        raise Unavailable("; ".join(reasons))

    async def close(self) -> None:
        """Wait for the answers to writes, then end. Other waiting calls raise DatabaseClosed."""
        if not self.forked_from:
            self.refuse_calls()
            if writes := self._unanswered_writes():
                await asyncio.wait(writes)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._end_calls()

    # ---- streams

    async def _reach(self, endpoint: str) -> tuple[str, Any, Any]:
        """(endpoint, channel, stream) after the handshake. Raises StreamLost, AccessDenied, ProtocolMismatch.

        gRPC loses the reason of a server that ends the stream while the first message is being sent: try again.
        """
        for _ in range(MAX_HANDSHAKES):
            try:
                return await self._open(endpoint)
            except EndedDuringHandshake:
                continue
        raise StreamLost(f"{endpoint} ends every stream at once: it is not a LogDB server, or is stopping")

    async def _open(self, endpoint: str) -> tuple[str, Any, Any]:
        channel: Any = self.credentials.channel(endpoint, CHANNEL_OPTIONS)
        try:
            stream = channel.stream_stream(METHOD)(metadata=self.credentials.metadata)  # messages as bytes
            async with asyncio.timeout(self.timeout_s):
                await stream.write(self._hello())
                raw = await stream.read()
            if not isinstance(raw, bytes):
                raise unreachable(endpoint, reason_of_status(await stream.code(), await stream.details()))
            self._welcomed(endpoint, raw)
        except TimeoutError:
            await channel.close()
            raise StreamLost(f"{endpoint} does not answer within {self.timeout_s:g} s") from None
        except grpc.aio.AioRpcError as error:
            await channel.close()
            if error.code() is grpc.StatusCode.INTERNAL:
                raise EndedDuringHandshake from None
            raise unreachable(endpoint, (await failure_of(endpoint, error, self.credentials)).reason) from None
        except (WireError, asyncio.InvalidStateError) as error:
            await channel.close()
            raise StreamLost(f"{endpoint} is not a LogDB server: {error}") from None
        except BaseException:
            await channel.close()
            raise
        return endpoint, channel, stream

    async def _run(self, endpoint: str, channel: Any, stream: Any) -> None:
        """Use the given stream, and a new one whenever it is lost, until the task is cancelled."""
        backoff = Backoff(FIRST_PAUSE_S, min(MAX_PAUSE_S, self.timeout_s / 4))
        turn = self.endpoints.index(endpoint)
        while True:
            try:
                await self._pump(endpoint, stream)
            except StreamLost as lost:
                self._reason = str(lost)
            finally:
                self._stream = None
                self._drop_parts()
                stream.cancel()
                await channel.close()
            while True:
                log.info("%s", self._reason)
                turn += 1
                try:
                    endpoint, channel, stream = await self._reach(self.endpoints[turn % len(self.endpoints)])
                except (StreamLost, AccessDenied, ProtocolMismatch) as error:
                    self._reason = str(error)
                else:
                    backoff.reset()
                    break
                if turn % len(self.endpoints) == 0 or len(self.endpoints) == 1:
                    await asyncio.sleep(backoff.next_s())

    async def _pump(self, endpoint: str, stream: Any) -> None:
        """Send and receive until the stream is lost. Raises StreamLost."""
        self._begin_stream()
        self._stream = stream
        self._can_send.set()
        self._silent.clear()
        coroutines = self._read(stream), self._write(stream), self._silent.wait()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(coroutine) for coroutine in coroutines]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._silent.is_set():
                raise StreamLost(f"{endpoint} does not answer")
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
        except grpc.aio.AioRpcError as error:
            raise unreachable(endpoint, reason_of(error)) from None
        except asyncio.InvalidStateError:
            pass
        except WireError as error:
            raise StreamLost(f"{endpoint} is not a LogDB server: {error}") from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise StreamLost(f"{endpoint} ended the stream")

    async def _write(self, stream: Any) -> None:
        while True:
            await self._can_send.wait()
            self._can_send.clear()
            while (message := self._next_message()) is not None:
                await stream.write(message)

    async def _read(self, stream: Any) -> None:
        while isinstance(raw := await stream.read(), bytes):
            self._receive(raw, self._loop.time())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(min(self.timeout_s / 20, 0.25))
            if self._expire_calls(self._loop.time()):
                self._silent.set()
