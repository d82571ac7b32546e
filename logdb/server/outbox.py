"""The answers of one stream, queued until its client receives them, and sent together or in parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from logdb.embedded.large_values import OutgoingValue
from logdb.errors import DatabaseClosed, LogDBError, OutcomeUnknown, Unavailable
from logdb.log.engine import Right
from logdb.server.permissions import StreamRight
from logdb.system.disk import described
from logdb.transport.unread_answers import DurabilityNotifier, StreamAnswers
from logdb.wire.database_codec import BATCH_BYTES, BATCH_CALLS, WHOLE_BYTES, failure_to, parts_of
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)

MAX_PARTED: Final = 64
"""Maximum number of answers of a stream that are sent in parts; further requests of the stream wait."""


class Stream(Protocol):
    """A stream of messages with one client."""

    async def read(self) -> Any: ...
    async def write(self, message: bytes) -> None: ...


class PartedAnswer:
    """An answer that is sent in `parts`. `reads`: see `Ready`. `left`: its bytes that are in memory."""

    __slots__ = ("id", "left", "parts", "reads")

    def __init__(self, request: int, parts: Iterator[bytes], reads: bool, left: int) -> None:
        self.id, self.parts, self.reads, self.left = request, parts, reads, left


Ready = tuple[pb.Response, int, bool]
"""An answer that can leave, its size, and whether it reveals content of the database: then its client must still have
the right to read when it leaves. The acknowledgement of a write reveals none, and the write was done."""


class Outbox:
    """`version`: returns the newest version of the database, which every message carries. `share`: counts the bytes
    that the client has not taken. `is_sending`: whether a message is being written to the stream.
    """

    def __init__(self, stream: Stream, version: Callable[[], int], right: StreamRight, share: StreamAnswers) -> None:
        self._stream, self._version, self._right, self._share = stream, version, right, share
        self._ready: list[Ready] = []
        self._parted: deque[PartedAnswer] = deque()
        self._part_sent = DurabilityNotifier()
        self._wake = asyncio.Event()
        self.is_sending = False

    @property
    def is_empty(self) -> bool:
        """Whether the queue is empty."""
        return not self._ready and not self._parted

    @property
    def parted(self) -> int:
        """Number of answers that are sent in parts."""
        return len(self._parted)

    @property
    def is_full(self) -> bool:
        """Whether the stream has `MAX_PARTED` answers in parts."""
        return len(self._parted) >= MAX_PARTED

    async def until_not_full(self) -> None:
        """Wait while `is_full`."""
        while self.is_full:
            await asyncio.wait((self._part_sent.future(),))

    # ---- adding

    def answer(self, response: pb.Response, *, reads: bool = True) -> None:
        """Send a response. `reads`: see `Ready`."""
        size = response.ByteSize()
        if size > WHOLE_BYTES:
            self._parted.append(PartedAnswer(response.id, parts_of(response), reads, size))
        else:
            self._ready.append((response, size, reads))
        self._share.add(size)
        self._wake.set()

    def answer_value(self, response: pb.Response, value: OutgoingValue) -> None:
        """Send a response with a large value, which is read while it is sent."""
        self._parted.append(PartedAnswer(response.id, parts_of(response, value), True, 0))
        self._wake.set()

    def fail(self, request: int, error: Exception) -> None:
        """Answer a request with an error."""
        if not isinstance(error, LogDBError | ValueError | TypeError | KeyError):
            log.error("a request failed: %r", error, exc_info=error)
        if isinstance(error, DatabaseClosed):
            error = Unavailable("the server is stopping")
        elif isinstance(error, OSError):  # from reading; writes raise their own errors
            error = Unavailable(f"the server could not read: {described(error)}")
        reads = not isinstance(error, OutcomeUnknown)  # whose client must not take the write for one that was denied
        self.answer(pb.Response(id=request, failure=failure_to(error)), reads=reads)

    def cancel(self, request: int) -> None:
        """Send no further part of the answers to a request."""
        for answer in [each for each in self._parted if each.id == request]:
            self._drop(answer)

    # ---- sending

    async def send(self) -> None:
        """Send answers until the task is cancelled or the stream breaks."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not self.is_empty:
                if self._ready:
                    message, size = self._next_message()
                    await self._write(message)
                    self._share.remove(size)
                if self._parted:
                    await self._send_part(self._parted[0])

    async def _write(self, message: pb.Responses) -> None:
        self.is_sending = True
        await self._stream.write(message.SerializeToString())
        self.is_sending = False

    def _next_message(self) -> tuple[pb.Responses, int]:
        """The next answers and their size. Rights are checked here, when the answers are sent."""
        ready, size, taken = self._ready, 0, 0
        for _, bytes_, _ in ready:
            size += bytes_
            taken += 1
            if size >= BATCH_BYTES or taken == BATCH_CALLS:
                break
        if self._right.refresh() >= Right.READ:
            responses = pb.Responses(newest=self._version(), responses=[each[0] for each in ready[:taken]])
        else:
            responses = pb.Responses(responses=[self._permitted(*each) for each in ready[:taken]])
        del ready[:taken]
        return responses, size

    def _permitted(self, response: pb.Response, _: int, reads: bool) -> pb.Response:
        """The response for a client that has lost the right to read."""
        if not reads:
            return response
        return pb.Response(id=response.id, failure=failure_to(self._right.denied(Right.READ)))

    async def _send_part(self, answer: PartedAnswer) -> None:
        """The next part of an answer; answers in parts take turns. Rights are checked here, too."""
        right = self._right.refresh()
        try:
            if answer.reads and right < Right.READ:
                raise self._right.denied(Right.READ)
            data = next(answer.parts, b"")
        except Exception as error:
            self._drop(answer)
            self.fail(answer.id, error)
            return
        if not answer.left:
            answer.left = len(data)
            self._share.add(answer.left)
        part = pb.Part(data=data, more=bool(data))
        newest = self._version() if right >= Right.READ else 0
        await self._write(pb.Responses(newest=newest, responses=[pb.Response(id=answer.id, part=part)]))
        size = min(len(data), answer.left)  # 0 if it was cancelled meanwhile
        answer.left -= size
        self._share.remove(size)
        if not data:
            self._drop(answer)
        elif self._parted and self._parted[0] is answer:
            self._parted.rotate(-1)

    def _drop(self, answer: PartedAnswer) -> None:
        with contextlib.suppress(ValueError):
            self._parted.remove(answer)
        self._share.remove(answer.left)
        answer.left = 0
        self._part_sent.notify()
