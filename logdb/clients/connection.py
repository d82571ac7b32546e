"""A client's stream to a server: requests that are ready share a message, and are sent again over the next stream when
one is lost.

A call ends with an answer or at its deadline, also if streams are lost meanwhile. A request that was never sent raises
Unavailable; a transaction that was sent and not answered, OutcomeUnknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import grpc

from logdb.errors import (
    AccessDenied,
    DatabaseClosed,
    LogDBError,
    OutcomeUnknown,
    ProtocolMismatch,
    ReadOnly,
    Unavailable,
)
from logdb.security.credentials import NONE, Credentials
from logdb.store.records import TxnId
from logdb.system.forking import keep_for_ever, own
from logdb.transport.backoff import Backoff
from logdb.transport.failures import failure_of, reason_of, reason_of_status
from logdb.wire.database_codec import (
    BATCH_BYTES,
    BATCH_CALLS,
    MESSAGE_OPTIONS,
    METHOD,
    PART_BYTES,
    PROTOCOL,
    RELEASE,
    WINDOW_BYTES,
    check_request,
    failure_from,
    response_of,
    responses_of,
    uploads_of,
)
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.02
MAX_PAUSE_S: Final = 1.0
"""The first and the longest pause between two rounds of attempts to reach a server."""
MAX_HANDSHAKES: Final = 5
"""Maximum number of handshakes that a server may end before its reason is received."""
SMALL_BYTES: Final = 64 << 10
CHANNEL_OPTIONS: Final = (
    *MESSAGE_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # else an attempt may return the failure of an earlier one
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class Call:
    """A request on its way. `txn_id`: of the transaction that it commits, if it does.

    `size`: of the request without its `large` values. `sent`: the number of streams over which it was sent whole.
    `progress`: called with the progress of an answer that comes later. `parts`: the received parts of an answer.
    """

    __slots__ = ("deadline", "future", "large", "parts", "progress", "request", "sent", "size", "timeout_s", "txn_id")

    def __init__(
        self,
        request: pb.Request,
        size: int,
        large: Sequence[bytes],
        future: asyncio.Future[pb.Response],
        timeout_s: float,
        deadline: float,
        txn_id: TxnId | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.request, self.future, self.txn_id, self.progress = request, future, txn_id, progress
        self.timeout_s, self.deadline = timeout_s, deadline
        self.size, self.large = size, large
        self.parts: list[bytes] = []
        self.sent = 0

    @property
    def goes_in_parts(self) -> bool:
        """Whether it is too large for one message."""
        return self.size > PART_BYTES or bool(self.large)


class Upload:
    """A request that is being sent in parts. `taken`: the bytes that the server has acknowledged."""

    def __init__(self, requests: Iterator[pb.Request]) -> None:
        self._requests = requests
        self._next = next(requests)
        self._sent = self.taken = 0

    @property
    def ahead(self) -> int:
        """Bytes that were sent and not acknowledged."""
        return self._sent - self.taken

    def next(self) -> tuple[pb.Request, bool]:
        """(the next part, whether it is the last)."""
        request, following = self._next, next(self._requests, None)
        self._sent += len(request.upload.data)
        if following is None:
            return request, True
        self._next = following
        return request, False


class StreamLost(Exception):
    """The stream was lost; the message is the reason, in one line."""


class EndedDuringHandshake(Exception):
    """The server has ended the stream while its first message was being sent."""


def _unreachable(endpoint: str, reason: str) -> StreamLost:
    return StreamLost(f"{endpoint} cannot be reached: {reason}")


class Connection:
    """A connection to one of `endpoints`, to the next one when that fails. For one event loop.

    `seen`: the newest version that any answer has named. `incarnation`: of the database at the server; `on_restart` is
    called when it changes. `first_requests`: returns the requests with which a new stream begins.
    """

    def __init__(
        self, endpoints: Sequence[str], timeout_s: float, client: int, credentials: Credentials = NONE
    ) -> None:
        self.endpoints, self.timeout_s, self._client = endpoints, timeout_s, client
        self._credentials = credentials
        self.seen = 0
        self.closed = False
        self.on_restart: Callable[[], object] = list
        self.forked_from = 0
        self.first_requests: Callable[[], list[pb.Request]] = list
        self.database = b""
        self.incarnation = 0
        self._next_id = 0
        self._calls: dict[int, Call] = {}
        self._outbox: list[pb.Request] = []
        self._large: deque[Call] = deque()
        self._uploads: dict[int, Upload] = {}
        self._wake = asyncio.Event()
        self._silent = asyncio.Event()
        self._reason = ""
        self._received_at = 0.0
        self._stream: Any = None
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed. The parent's stream is never freed here: freeing waits for a thread of
        gRPC that the child does not have."""
        keep_for_ever((self._tasks, self._stream))
        self.forked_from, self.closed, self._tasks = parent, True, []

    # ---- calling

    def call(
        self,
        request: pb.Request,
        txn_id: TxnId | None = None,
        *,
        large: Sequence[bytes] = (),
        timeout_s: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> asyncio.Future[pb.Response]:
        """Send a request, which gets an id here. Returns its answer. `large`: values that are sent beside it.

        Raises DatabaseClosed, TransactionTooLarge.
        """
        if self.closed:
            raise DatabaseClosed(",".join(self.endpoints), self.forked_from)
        request.id = self._next_id = number = self._next_id + 1
        size = check_request(request, large)
        future: asyncio.Future[pb.Response] = self._loop.create_future()
        wait = self.timeout_s if timeout_s is None else timeout_s
        call = Call(request, size, large, future, wait, self._loop.time() + wait, txn_id, progress)
        self._calls[number] = call
        if call.goes_in_parts:
            self._large.append(call)
        else:
            self._outbox.append(request)
        self._wake.set()
        return future

    def notify(self, request: pb.Request) -> None:
        """Send a request that has no answer, if there is a stream."""
        if self._stream is not None and not self.closed:
            self._outbox.append(request)
            self._wake.set()

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
        if not self.closed:
            self.closed = True
            writes = [call.future for call in self._calls.values() if call.txn_id]
            if writes:
                await asyncio.wait(writes)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for call in self._calls.values():
                if not call.future.done():
                    call.future.set_exception(DatabaseClosed(",".join(self.endpoints), self.forked_from))
            self._calls.clear()

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
        channel: Any = self._credentials.channel(endpoint, CHANNEL_OPTIONS)
        try:
            stream = channel.stream_stream(METHOD)(metadata=self._credentials.metadata)  # messages as bytes
            hello = pb.Hello(
                protocol=PROTOCOL,
                release=RELEASE,
                client=self._client,
                timeout_ms=int(self.timeout_s * 1000),
                database=self.database,
            )
            async with asyncio.timeout(self.timeout_s):
                await stream.write(pb.Requests(hello=hello).SerializeToString())
                raw = await stream.read()
            if not isinstance(raw, bytes):
                raise _unreachable(endpoint, reason_of_status(await stream.code(), await stream.details()))
            welcome = responses_of(raw).welcome
            self._check(endpoint, welcome)
            self.database = welcome.database
            if welcome.incarnation != self.incarnation:
                self.on_restart()
                self.incarnation = welcome.incarnation
        except TimeoutError:
            await channel.close()
            raise StreamLost(f"{endpoint} does not answer within {self.timeout_s:g} s") from None
        except grpc.aio.AioRpcError as error:
            await channel.close()
            if error.code() is grpc.StatusCode.INTERNAL:
                raise EndedDuringHandshake from None
            raise _unreachable(endpoint, (await failure_of(endpoint, error, self._credentials)).reason) from None
        except (WireError, asyncio.InvalidStateError) as error:
            await channel.close()
            raise StreamLost(f"{endpoint} is not a LogDB server: {error}") from None
        except BaseException:
            await channel.close()
            raise
        return endpoint, channel, stream

    def _check(self, endpoint: str, welcome: pb.Welcome) -> None:
        if welcome.protocol != PROTOCOL:
            raise ProtocolMismatch(endpoint, welcome.protocol, welcome.release, PROTOCOL, RELEASE)
        if welcome.denied:
            raise AccessDenied(f"{endpoint} denies access: {welcome.denied}")
        if welcome.refusal:
            raise StreamLost(f"{endpoint} has another database than the one that was connected to")

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
        calls = self._calls.values()
        self._outbox = [*self.first_requests(), *(call.request for call in calls if not call.goes_in_parts)]
        self._large, self._uploads = deque(call for call in calls if call.goes_in_parts), {}
        for call in calls:
            call.parts.clear()
        self._stream = stream
        self._wake.set()
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
            raise _unreachable(endpoint, reason_of(error)) from None
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
            await self._wake.wait()
            self._wake.clear()
            while True:
                if batch := self._next_batch():
                    for request in batch:
                        call = self._calls.get(request.id)
                        if call is not None:
                            call.sent += 1
                    await stream.write(pb.Requests(seen=self.seen, requests=batch).SerializeToString())
                if (part := self._next_part()) is not None:
                    await stream.write(pb.Requests(seen=self.seen, requests=[part]).SerializeToString())
                elif not self._outbox:
                    break

    def _next_part(self) -> pb.Request | None:
        """The next part of the requests that go in parts, one request after another; None if none can be sent now."""
        while self._large:
            call, number = self._large[0], self._large[0].request.id
            upload = self._uploads.get(number)
            if call.future.done():  # it has failed, or its caller was cancelled
                self._large.popleft()
                if upload is not None:
                    del self._uploads[number]
                    return pb.Request(cancel=pb.Cancel(request=number))
                continue
            if sum(each.ahead for each in self._uploads.values()) >= WINDOW_BYTES:
                return None
            if upload is None:
                upload = self._uploads[number] = Upload(uploads_of(call.request, call.size, call.large))
            part, is_last = upload.next()
            if is_last:
                call.sent += 1
                self._large.popleft()
            return part
        return None

    def _next_batch(self) -> list[pb.Request]:
        """The next requests, as many as fit into one message, without those whose callers were cancelled."""
        outbox, calls = self._outbox, self._calls
        size = taken = 0
        for request in outbox:
            size += request.ByteSize()
            if taken and (size > BATCH_BYTES or taken == BATCH_CALLS):
                break
            taken += 1
        batch = outbox[:taken]
        del outbox[:taken]
        return [each for each in batch if (call := calls.get(each.id)) is None or not call.future.done()]

    async def _read(self, stream: Any) -> None:
        calls = self._calls
        while True:
            raw = await stream.read()
            if not isinstance(raw, bytes):
                return
            batch = responses_of(raw)
            self.seen = max(self.seen, batch.newest)
            self._received_at = self._loop.time()
            for response in batch.responses:
                rest = response.WhichOneof("rest")
                if rest == "progress":
                    self._on_progress(response)
                    continue
                if rest == "part":
                    whole = self._add_part(response)
                    if whole is None:
                        continue
                    response = whole
                if self._uploads.pop(response.id, None) is not None:
                    self._wake.set()
                call = calls.pop(response.id, None)
                if call is None or call.future.done():
                    continue
                if response.HasField("failure"):
                    call.future.set_exception(_certain(call, failure_from(response.failure)))
                else:
                    call.future.set_result(response)

    def _add_part(self, response: pb.Response) -> pb.Response | None:
        """The whole response, if this is its last part. Raises WireError."""
        call, part = self._calls.get(response.id), response.part
        if call is None:
            return None
        call.deadline = self._loop.time() + call.timeout_s
        if part.more:
            call.parts.append(part.data)
            return None
        return response_of(b"".join(call.parts))

    def _on_progress(self, response: pb.Response) -> None:
        call = self._calls.get(response.id)
        if call is None:
            return
        if call.goes_in_parts:
            for waiting in (call, *self._large):  # queued behind it
                waiting.deadline = self._loop.time() + waiting.timeout_s
            if (upload := self._uploads.get(response.id)) is not None:
                upload.taken = response.progress
                self._wake.set()
        else:
            call.deadline = self._loop.time() + call.timeout_s
            if call.progress is not None:
                try:
                    call.progress(response.progress)
                except Exception as error:
                    self._calls.pop(response.id)
                    if not call.future.done():
                        call.future.set_exception(error)

    # ---- deadlines

    async def _expire(self) -> None:
        """Fail the calls whose deadline has passed, and end a stream that has received nothing for as long."""
        while True:
            await asyncio.sleep(min(self.timeout_s / 20, 0.25))
            now = self._loop.time()
            for number, call in list(self._calls.items()):
                if call.future.done():  # its caller was cancelled
                    self._forget(number)
                    if call.parts:
                        self.notify(pb.Request(cancel=pb.Cancel(request=number)))
                elif call.deadline < now:
                    self._forget(number)
                    call.future.set_exception(self._too_late(call))
                    if self._stream is not None and self._received_at < now - call.timeout_s:
                        self._silent.set()

    def _forget(self, number: int) -> None:
        del self._calls[number]
        if number in self._uploads:
            self._wake.set()
            if not self._large or self._large[0].request.id != number:  # else a Cancel follows
                del self._uploads[number]

    def _too_late(self, call: Call) -> LogDBError:
        where = ",".join(self.endpoints)
        reason = f"{where} has not answered within {call.timeout_s:g} s"
        if self._stream is None and self._reason:
            reason = f"{self._reason} (for {call.timeout_s:g} s)"
        if call.txn_id and call.sent:
            return OutcomeUnknown(str(call.txn_id), reason)
        return Unavailable(reason)


def _certain(call: Call, error: Exception) -> Exception:
    """The error for the caller: a server that rejects a write that was sent before does not know its first outcome."""
    if call.txn_id is not None and call.sent > 1 and isinstance(error, Unavailable | AccessDenied | ReadOnly):
        return OutcomeUnknown(str(call.txn_id), f"when it was sent again: {error}")
    return error
