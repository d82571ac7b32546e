"""A client's stream to a server, for threads: see `server_connection`.

The threads that wait for answers do all the work; there is no other thread between them and gRPC. One of them at a time
drives the stream: it waits for events, and resolves the calls of the others. When its own call is answered, another one
takes over. A thread that is alone neither wakes a thread nor is woken. The price is that a lost stream is replaced with
the next call, not before.

`run` steps through the coroutines of a backend in the calling thread. The lock is held except while a thread waits, so
code between two awaits excludes that of other threads, as in an event loop.

A signal handler that raises (Ctrl-C) may interrupt the main thread after any call, also between the acquisition of the
lock and the next line. So the lock knows its owner, and an interrupted thread releases it if it has it, or acquires it
again. Its unfinished changes belong to a stream, which it gives up, or to its own call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

import grpc

from logdb.clients.background_loop import in_callback, in_shared_loop, shared_loop
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
from logdb.transport.failures import failure_of_status, reason_of_status
from logdb.transport.polled_stream import Ended, PolledStream
from logdb.wire.database_codec import METHOD
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)

T = TypeVar("T")


class ThreadAnswer:
    """The answer of a call, for which `ThreadConnection.run` waits. `sleepers`: locks on which threads wait."""

    __slots__ = ("_exception", "_is_done", "_result", "sleepers", "wake")

    def __init__(self, wake: Callable[[ThreadAnswer], None]) -> None:
        self.wake = wake
        self.sleepers: list[Any] = []
        self._is_done = False
        self._result: pb.Response | None = None
        self._exception: BaseException | None = None

    def done(self) -> bool:
        """Whether there is an answer."""
        return self._is_done

    def set_result(self, result: pb.Response, /) -> None:
        """The call was answered."""
        self._result, self._is_done = result, True
        self.wake(self)

    def set_exception(self, exception: BaseException, /) -> None:
        """The call has failed."""
        self._exception, self._is_done = exception, True
        self.wake(self)

    def cancel(self) -> None:
        """Nothing waits for the answer any more."""
        if not self._is_done:
            self.set_exception(asyncio.CancelledError())

    def __await__(self) -> Generator[ThreadAnswer, None, pb.Response]:
        if not self._is_done:
            yield self
        if self._exception is not None:
            raise self._exception
        assert self._result is not None
        return self._result


class ThreadConnection(ServerConnection[ThreadAnswer]):
    """A connection for any number of threads, which call `run`. Everything else is called by what `run` runs."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, credentials: Credentials = NONE) -> None:
        super().__init__(endpoints, timeout_s, credentials)
        self._lock = threading.RLock()
        self._owner = 0
        self._stream: PolledStream | None = None
        self._opening: PolledStream | None = None
        self._open_channels: dict[str, Any] = {}  # by endpoint, of streams that were interrupted
        self._endpoint = ""
        self._turn = 0
        self._backoff = Backoff(FIRST_PAUSE_S, min(MAX_PAUSE_S, timeout_s / 4))
        self._driver: ThreadAnswer | None = None
        self._is_polling = False
        self._nudged: ThreadAnswer | None = None
        self._sleepers: dict[Any, None] = {}
        self._promoted: Any = None
        self._later: deque[Callable[[], object]] = deque()
        self._is_over = False
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed. The parent's stream is never freed here."""
        keep_for_ever((self._stream, self._open_channels))
        self._lock, self._owner = threading.RLock(), 0
        self._stream, self._driver, self._sleepers = None, None, {}
        self.forked_from, self.closed, self._is_over = parent, True, True

    @property
    def is_connected(self) -> bool:
        """Whether there is a stream."""
        return self._stream is not None

    def clock(self) -> float:
        """The time in seconds."""
        return time.monotonic()

    # ---- threads

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this thread, which awaits nothing but answers of this connection. Returns its result.
        Raises LogDBError in a function that this connection calls."""
        me = threading.get_ident()
        if self._owner == me:
            work.close()
            raise in_callback()
        try:
            self._lock.acquire()
            self._owner = me
            answer: ThreadAnswer = work.send(None)
            while True:
                try:
                    self._wait(answer)
                except BaseException as interrupt:  # Ctrl-C
                    self._give_up(answer)
                    answer = work.throw(interrupt)
                else:
                    answer = work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            if self._owner == me:
                self._owner = 0
                self._lock.release()
            else:  # it was interrupted
                self._unlock()
            if self._later:
                self._run_later()

    def _give_up(self, answer: ThreadAnswer) -> None:
        """This thread was interrupted while it waited for an answer."""
        with contextlib.suppress(BaseException):  # one is raised for all
            self._acquire_again()
        if self._driver is answer:
            self._driver = None
            self._lose("the program was interrupted")
        answer.cancel()
        self._promoted = None
        for sleeper in list(self._sleepers):  # this one's own, and one that it may have been about to wake
            self._wake_sleeper(sleeper)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function that waits for nothing, now or when the lock is free. Also from a destructor."""
        self._later.append(lambda: function(*args))
        self._run_later()

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine that waits for nothing, now or when the lock is free. Also from a destructor."""
        self.call_soon(_finish, work)

    def _acquire(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def _acquire_again(self) -> None:
        """Acquire the lock after a wait, if this thread does not have it. An interrupt is raised when it has it."""
        interrupt: BaseException | None = None
        while self._owner != threading.get_ident():
            try:
                self._unlock()
                self._acquire()
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _release(self) -> None:
        """Release the lock, if this thread has it."""
        self._unlock()
        if self._later:
            self._run_later()

    def _unlock(self) -> None:
        if self._owner == threading.get_ident():
            self._owner = 0
        with contextlib.suppress(RuntimeError):  # this thread does not have it
            while True:  # once more for each interrupt before `_owner` was set
                self._lock.release()

    def _run_later(self) -> None:
        if self._owner == threading.get_ident():  # a destructor: `_release` follows
            return
        try:
            while self._later and self._lock.acquire(blocking=False):
                self._owner = threading.get_ident()
                try:
                    self._later.popleft()()
                finally:
                    self._unlock()
        finally:
            self._unlock()

    def _new_answer(self) -> ThreadAnswer:
        return ThreadAnswer(self._wake_sleepers)

    def _wake_sleepers(self, answer: ThreadAnswer) -> None:
        for sleeper in answer.sleepers:
            self._wake_sleeper(sleeper)
        if answer is self._driver and self._is_polling:
            self._nudge()

    def _wake_sleeper(self, sleeper: Any) -> None:
        if sleeper in self._sleepers:
            del self._sleepers[sleeper]
            sleeper.release()

    def _nudge(self) -> None:
        """Request something small, so that an event comes and the driver sees that its call has ended."""
        self._outbox.append(pb.Request(at=pb.At()))
        self._wake()

    def _wait(self, answer: ThreadAnswer) -> None:
        """Return when there is an answer: drive the stream, or sleep while another thread does."""
        try:
            while not answer.done():
                if self._driver is None:
                    self._drive(answer)
                else:
                    self._sleep(answer)
        finally:
            self._promote()

    def _promote(self) -> None:
        """Wake a thread that will drive the stream, if none does."""
        if self._driver is None and self._promoted is None and self._sleepers:
            sleeper = next(iter(self._sleepers))
            self._promoted = sleeper  # an interrupt does not come before `release` has returned
            del self._sleepers[sleeper]
            sleeper.release()

    def _sleep(self, answer: ThreadAnswer) -> None:
        sleeper = threading.Lock()
        sleeper.acquire()
        self._sleepers[sleeper] = None
        answer.sleepers.append(sleeper)
        try:
            self._release()
            sleeper.acquire()
        finally:
            self._acquire_again()
            self._sleepers.pop(sleeper, None)
            answer.sleepers.remove(sleeper)
            if self._promoted is sleeper:
                self._promoted = None

    # ---- driving

    def _drive(self, answer: ThreadAnswer) -> None:
        self._driver = answer
        try:
            while not answer.done():
                if self._stream is None:
                    self._connect_again()
                else:
                    self._take_event(self._stream)
        except BaseException:  # Ctrl-C: an event may be lost with it
            self._lose("the program was interrupted")
            raise
        finally:
            self._driver = None
            if self._is_over:
                self._end()

    def _take_event(self, stream: PolledStream) -> None:
        self._is_polling = True
        try:
            self._release()
            event = stream.wait()
        finally:
            self._acquire_again()
            self._is_polling = False
        message = stream.handle(event)
        try:
            if isinstance(message, bytes):
                self._receive(message, self.clock())
        except WireError as error:
            self._lose(f"{self._endpoint} is not a LogDB server: {error}")
            return
        if isinstance(message, Ended):
            reason = reason_of_status(message.code, message.details)
            self._lose(
                f"{self._endpoint} ended the stream"
                if message.code in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)
                else str(unreachable(self._endpoint, reason))
            )
        else:
            self._wake()

    def _wake(self) -> None:
        """Send what can be sent."""
        stream = self._stream
        if stream is None:
            return
        try:
            if self._driver is None and not stream.is_connected:
                self._lose(f"{self._endpoint} ended the stream")
            elif stream.can_send and (message := self._next_message()) is not None:
                stream.send(message)
        except BaseException:  # Ctrl-C: requests may be lost with it
            stream.cancel()
            raise

    def _lose(self, reason: str) -> None:
        stream, self._stream = self._stream, None
        self._drop_parts()
        self._reason = reason
        log.info("%s", reason)
        if stream is not None:
            self._close_stream(self._endpoint, stream)

    def _close_stream(self, endpoint: str, stream: PolledStream) -> None:
        stream.close()
        if stream.open_channel is not None:
            self._open_channels[endpoint] = stream.open_channel

    # ---- opening and closing

    async def open(self) -> None:
        """See `ServerConnection.open`."""
        reasons = []
        for turn, endpoint in enumerate(self.endpoints):
            try:
                self._reach(endpoint)
            except StreamLost as lost:
                reasons.append(str(lost))
            else:
                self._turn = turn
                _check_deadlines(weakref.ref(self))
                return
        raise Unavailable("; ".join(reasons))

    async def close(self) -> None:
        """See `ServerConnection.close`."""
        if not self._is_over:
            self.refuse_calls()
            while writes := self._unanswered_writes():
                self._wait(writes[0])
            self._is_over = True
            self._end_calls()
            if self._driver is None:
                self._end()

    def _end(self) -> None:
        self._lose("it was closed")
        for channel in self._open_channels.values():
            channel.close()
        self._open_channels.clear()

    def _connect_again(self) -> None:
        """Reach the next server, or pause."""
        self._turn += 1
        try:
            self._reach(self.endpoints[self._turn % len(self.endpoints)])
        except (StreamLost, AccessDenied, ProtocolMismatch) as error:
            self._reason = str(error)
            log.info("%s", self._reason)
        else:
            self._backoff.reset()
            return
        is_late = self._driver is not None and self._driver.done()
        if not is_late and (self._turn % len(self.endpoints) == 0 or len(self.endpoints) == 1):
            try:
                self._release()
                time.sleep(self._backoff.next_s())
            finally:
                self._acquire_again()

    def _reach(self, endpoint: str) -> None:
        """Begin a stream. Raises StreamLost, AccessDenied, ProtocolMismatch.

        gRPC loses the reason of a server that ends the stream while the first message is being sent: try again.
        """
        for _ in range(MAX_HANDSHAKES):
            try:
                self._open_stream(endpoint)
            except EndedDuringHandshake:
                continue
            else:
                return
        raise StreamLost(f"{endpoint} ends every stream at once: it is not a LogDB server, or is stopping")

    def _open_stream(self, endpoint: str) -> None:
        hello = self._hello()
        self._release()
        try:
            channel = self._open_channels.pop(endpoint, None)
            if channel is None:
                channel = self.credentials.blocking_channel(endpoint, CHANNEL_OPTIONS)
            self._opening = stream = PolledStream(channel, METHOD, self.credentials.metadata, hello)
            try:
                raw = _first_message(stream, self.timeout_s)
            except BaseException:
                self._close_stream(endpoint, stream)
                raise
            if self._opening is not stream:  # the call of this thread was late
                self._close_stream(endpoint, stream)
                raise StreamLost(f"{endpoint} does not answer")
            if isinstance(raw, Ended) and raw.code is not grpc.StatusCode.INTERNAL:
                failure = failure_of_status(endpoint, raw.code, raw.details, self.credentials)
                raise unreachable(endpoint, in_shared_loop(failure).reason)
        finally:
            self._opening = None
            self._acquire_again()
        if raw is None:
            raise StreamLost(f"{endpoint} does not answer within {self.timeout_s:g} s")
        if isinstance(raw, Ended):
            raise EndedDuringHandshake
        try:
            self._welcomed(endpoint, raw)
        except WireError as error:
            stream.close()
            raise StreamLost(f"{endpoint} is not a LogDB server: {error}") from None
        except BaseException:
            stream.close()
            raise
        if stream.is_over:
            raise StreamLost(f"{endpoint} ended the stream")
        self._endpoint, self._stream = endpoint, stream
        self._begin_stream()
        self._wake()

    # ---- deadlines

    def check_deadlines(self) -> bool:
        """Fail the calls that are late, and end a stream on which the answer of its driver is late, or which its driver
        is opening for a call that is. Returns whether to call this again."""
        self._acquire()
        try:
            is_silent, driver = self._expire_calls(self.clock()), self._driver
            opening = self._opening
            if opening is not None and driver is not None and driver.done():
                self._opening = None
                opening.cancel()
            if self._is_polling and self._stream is not None and driver is not None and driver.done():
                if is_silent or self._nudged is driver:
                    self._stream.cancel()
                self._nudged = driver
        finally:
            self._release()
        return not self._is_over


def _first_message(stream: PolledStream, timeout_s: float) -> bytes | Ended | None:
    """The first message or the end of a stream; None if neither comes within the timeout. The stream can send then."""
    timer = threading.Timer(timeout_s, stream.cancel)
    timer.daemon = True
    timer.start()
    deadline = time.monotonic() + timeout_s
    message: bytes | None = None
    try:
        while not stream.is_over and (message is None or not stream.can_send):
            event = stream.handle(stream.wait())
            if isinstance(event, bytes):
                message = event
            elif event is not None and message is None:
                return None if time.monotonic() >= deadline else event
    finally:
        timer.cancel()
        timer.join()
    return message


def _check_deadlines(reference: weakref.ref[ThreadConnection]) -> None:
    """Check the deadlines of a connection now and then, in the event loop of the process, until it is over."""
    loop = shared_loop()

    def check() -> None:
        connection = reference()
        if connection is not None and connection.check_deadlines():
            loop.call_later(min(connection.timeout_s / 20, 0.25), check)

    loop.call_soon_threadsafe(check)


def _finish(work: Coroutine[Any, Any, Any]) -> None:
    try:
        work.send(None)
    except (StopIteration, StopAsyncIteration):
        return
    work.close()
