"""A client's connection to a server, without its I/O: the requests until they are answered, and the messages that carry
them. Requests that are ready share a message, and are sent again over the next stream when one is lost.

`connection` is one for the coroutines of an event loop, `thread_connection` one for threads.

A call ends with an answer or at its deadline, also if streams are lost meanwhile. A request that was never sent raises
Unavailable; a transaction that was sent and not answered, OutcomeUnknown.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

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
from logdb.wire.database_codec import (
    BATCH_BYTES,
    BATCH_CALLS,
    MESSAGE_OPTIONS,
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
from logdb.wire.proto import database_pb2 as pb

CHANNEL_OPTIONS: Final = (
    *MESSAGE_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # else an attempt may return the failure of an earlier one
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)
FIRST_PAUSE_S: Final = 0.02
MAX_PAUSE_S: Final = 1.0
"""The first and the longest pause between two rounds of attempts to reach a server."""
MAX_HANDSHAKES: Final = 5
"""Maximum number of handshakes that a server may end before its reason is received."""


class StreamLost(Exception):
    """The stream was lost; the message is the reason, in one line."""


class EndedDuringHandshake(Exception):
    """The server has ended the stream while its first message was being sent."""


def unreachable(endpoint: str, reason: str) -> StreamLost:
    """A server cannot be reached."""
    return StreamLost(f"{endpoint} cannot be reached: {reason}")


class Answer(Protocol):
    """The answer of a call, once there is one: a future of asyncio, or one for threads."""

    def done(self) -> bool: ...
    def set_result(self, result: pb.Response, /) -> object: ...
    def set_exception(self, exception: BaseException, /) -> object: ...
    def cancel(self) -> object: ...
    def __await__(self) -> Generator[Any, None, pb.Response]: ...


A_co = TypeVar("A_co", bound=Answer, covariant=True)


class Call(Generic[A_co]):
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
        future: A_co,
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


class ServerConnection(ABC, Generic[A_co]):
    """A connection to one of `endpoints`, to the next one when that fails.

    `timeout_s`: of a call. `client`: the client number of its transactions. `seen`: the newest version that any answer
    has named. `database`, `incarnation`: of the database at the server. `on_restart`: called when the incarnation
    changes. `first_requests`: returns the requests with which a new stream begins.
    """

    def __init__(self, endpoints: Sequence[str], timeout_s: float, credentials: Credentials = NONE) -> None:
        self.endpoints, self.timeout_s, self.credentials = endpoints, timeout_s, credentials
        self.client = secrets.randbits(63) + 1
        self.closed = False
        self.forked_from = 0
        self.seen = 0
        self.database = b""
        self.incarnation = 0
        self.on_restart: Callable[[], object] = list
        self.first_requests: Callable[[], list[pb.Request]] = list
        self._reason = ""
        self._received_at = 0.0
        self._next_id = 0
        self._calls: dict[int, Call[A_co]] = {}
        self._outbox: list[pb.Request] = []
        self._large: deque[Call[A_co]] = deque()
        self._uploads: dict[int, Upload] = {}
        self._is_part_next = False

    # ---- of the host

    @abstractmethod
    def clock(self) -> float:
        """The time in seconds."""

    @abstractmethod
    async def open(self) -> None:
        """Connect to one of the servers. Raises Unavailable, AccessDenied, ProtocolMismatch, ValueError."""

    @abstractmethod
    async def close(self) -> None:
        """Wait for the answers to writes, then end. Other waiting calls raise DatabaseClosed."""

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether there is a stream."""

    @abstractmethod
    def _new_answer(self) -> A_co: ...

    @abstractmethod
    def _wake(self) -> None:
        """There may be something to send."""

    # ---- calling

    def call(
        self,
        request: pb.Request,
        txn_id: TxnId | None = None,
        *,
        large: Sequence[bytes] = (),
        timeout_s: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> A_co:
        """Send a request, which gets an id here. Returns its answer. `large`: values that are sent beside it.

        Raises DatabaseClosed, TransactionTooLarge.
        """
        if self.closed:
            raise self._closed_error()
        request.id = self._next_id = number = self._next_id + 1
        size = check_request(request, large)
        answer = self._new_answer()
        wait = self.timeout_s if timeout_s is None else timeout_s
        call = Call(request, size, large, answer, wait, self.clock() + wait, txn_id, progress)
        try:
            self._calls[number] = call
            if call.goes_in_parts:
                self._large.append(call)
            else:
                self._outbox.append(request)
            self._wake()
        except BaseException:  # Ctrl-C: no caller gets the answer, so it is not sent again
            answer.cancel()
            raise
        return answer

    def notify(self, request: pb.Request) -> None:
        """Send a request that has no answer, if there is a stream."""
        if self.is_connected and not self.closed:
            self._outbox.append(request)
            self._wake()

    def refuse_calls(self) -> None:
        """From now on, calls raise DatabaseClosed."""
        self.closed = True

    def _unanswered_writes(self) -> list[A_co]:
        return [call.future for call in self._calls.values() if call.txn_id and not call.future.done()]

    def _closed_error(self) -> DatabaseClosed:
        return DatabaseClosed(",".join(self.endpoints), self.forked_from)

    def _end_calls(self) -> None:
        for call in self._calls.values():
            if not call.future.done():
                call.future.set_exception(self._closed_error())
        self._calls.clear()

    # ---- streams

    def _hello(self) -> bytes:
        """The first message of a stream."""
        hello = pb.Hello(
            protocol=PROTOCOL,
            release=RELEASE,
            client=self.client,
            timeout_ms=int(self.timeout_s * 1000),
            database=self.database,
        )
        return pb.Requests(hello=hello).SerializeToString()

    def _welcomed(self, endpoint: str, raw: bytes) -> None:
        """The server's answer to `hello`. Raises StreamLost, AccessDenied, ProtocolMismatch, WireError."""
        welcome = responses_of(raw).welcome
        self._check(endpoint, welcome)
        self._received_at = self.clock()
        self.database = welcome.database
        if welcome.incarnation != self.incarnation:
            self.on_restart()
            self.incarnation = welcome.incarnation

    @staticmethod
    def _check(endpoint: str, welcome: pb.Welcome) -> None:
        """Raises StreamLost, AccessDenied, ProtocolMismatch."""
        if welcome.protocol != PROTOCOL:
            raise ProtocolMismatch(endpoint, welcome.protocol, welcome.release, PROTOCOL, RELEASE)
        if welcome.denied:
            raise AccessDenied(f"{endpoint} denies access: {welcome.denied}")
        if welcome.refusal:
            raise StreamLost(f"{endpoint} has another database than the one that was connected to")

    def _begin_stream(self) -> None:
        """Send all requests again, over a new stream."""
        calls = self._calls.values()
        self._outbox = [*self.first_requests(), *(call.request for call in calls if not call.goes_in_parts)]
        self._large, self._uploads = deque(call for call in calls if call.goes_in_parts), {}

    def _drop_parts(self) -> None:
        """The stream has ended: what came of its answers is not kept while another one is opened."""
        for call in self._calls.values():
            call.parts.clear()

    # ---- sending

    def _next_message(self) -> bytes | None:
        """The next message; None if nothing can be sent now. Whole requests and parts take turns."""
        batch: list[pb.Request] = []
        while self._outbox and not batch and not self._is_part_next:
            batch = self._next_batch()
        if batch:
            for request in batch:
                if (call := self._calls.get(request.id)) is not None:
                    call.sent += 1
        elif (part := self._next_part()) is not None:
            batch = [part]
        elif self._is_part_next:
            self._is_part_next = False
            return self._next_message()
        else:
            return None
        self._is_part_next = not self._is_part_next
        return pb.Requests(seen=self.seen, requests=batch).SerializeToString()

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
        """The next requests, as many as fit into one message, without those whose calls have ended."""
        outbox, calls = self._outbox, self._calls
        size = taken = 0
        for request in outbox:
            size += request.ByteSize()
            if taken and (size > BATCH_BYTES or taken == BATCH_CALLS):
                break
            taken += 1
        batch = outbox[:taken]
        del outbox[:taken]
        return [
            each
            for each in batch
            if not each.id or ((call := calls.get(each.id)) is not None and not call.future.done())
        ]

    # ---- receiving

    def _receive(self, raw: bytes, now: float) -> None:
        """Resolve the calls that a message answers. Raises WireError."""
        calls = self._calls
        batch = responses_of(raw)
        self.seen = max(self.seen, batch.newest)
        self._received_at = now
        for response in batch.responses:
            rest = response.WhichOneof("rest")
            if rest == "progress":
                self._on_progress(response, now)
                continue
            if rest == "part":
                whole = self._add_part(response, now)
                if whole is None:
                    continue
                response = whole
            if self._uploads.pop(response.id, None) is not None:
                self._wake()
            call = calls.get(response.id)
            if call is None:
                continue
            if not call.future.done():
                error = failure_from(response.failure) if response.HasField("failure") else None
                if error is None or _was_done_before(call, error):
                    call.future.set_result(response)
                else:
                    call.future.set_exception(_certain(call, error))
            calls.pop(response.id, None)  # last: a call that Ctrl-C leaves here is sent again, or late

    def _add_part(self, response: pb.Response, now: float) -> pb.Response | None:
        """The whole response, if this is its last part. Raises WireError."""
        call, part = self._calls.get(response.id), response.part
        if call is None:
            return None
        call.deadline = now + call.timeout_s
        if part.more:
            call.parts.append(part.data)
            return None
        return response_of(b"".join(call.parts))

    def _on_progress(self, response: pb.Response, now: float) -> None:
        call = self._calls.get(response.id)
        if call is None:
            return
        if call.goes_in_parts:
            for waiting in (call, *self._large):  # queued behind it
                waiting.deadline = now + waiting.timeout_s
            if (upload := self._uploads.get(response.id)) is not None:
                upload.taken = response.progress
                self._wake()
        else:
            call.deadline = now + call.timeout_s
            if call.progress is not None:
                try:
                    call.progress(response.progress)
                except Exception as error:
                    self._calls.pop(response.id)
                    if not call.future.done():
                        call.future.set_exception(error)

    # ---- deadlines

    def _expire_calls(self, now: float) -> bool:
        """Fail the calls whose deadline has passed. Returns whether the stream has received nothing for as long."""
        is_silent = False
        for number, call in list(self._calls.items()):
            if call.future.done():  # its caller was cancelled
                self._forget(number)
                if call.parts:
                    self.notify(pb.Request(cancel=pb.Cancel(request=number)))
            elif call.deadline < now:
                self._forget(number)
                call.future.set_exception(self._too_late(call))
                is_silent = is_silent or (self.is_connected and self._received_at < now - call.timeout_s)
        return is_silent

    def _forget(self, number: int) -> None:
        del self._calls[number]
        if number in self._uploads:
            self._wake()
            if not self._large or self._large[0].request.id != number:  # else a Cancel follows
                del self._uploads[number]

    def _too_late(self, call: Call[A_co]) -> LogDBError:
        where = ",".join(self.endpoints)
        reason = f"{where} has not answered within {call.timeout_s:g} s"
        if not self.is_connected and self._reason:
            reason = f"{self._reason} (for {call.timeout_s:g} s)"
        if call.txn_id and call.sent:
            return OutcomeUnknown(str(call.txn_id), reason)
        return Unavailable(reason)


def _was_done_before(call: Call[A_co], error: Exception) -> bool:
    """Whether a request that was sent before has no effect because the first one had it."""
    return call.sent > 1 and isinstance(error, KeyError) and call.request.HasField("unpin")


def _certain(call: Call[A_co], error: Exception) -> Exception:
    """The error for the caller: a server that rejects a write that was sent before does not know its first outcome."""
    if call.txn_id is not None and call.sent > 1 and isinstance(error, Unavailable | AccessDenied | ReadOnly):
        return OutcomeUnknown(str(call.txn_id), f"when it was sent again: {error}")
    return error
