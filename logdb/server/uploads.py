"""Requests and large values that are sent in parts (`database.proto`, Upload): how they are received, and their limits.

The parts of a large value are written to disk on arrival; a large request is kept in memory until it is complete. A
server receives one upload per stream, with the parts that its client may send ahead, and of all streams together a
maximum number of values and of bytes of requests. Further uploads wait for room, and their clients for
acknowledgements.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from logdb.embedded.large_values import IncomingValue
from logdb.errors import TransactionTooLarge, Unavailable, ValueTooLarge
from logdb.store.limits import MAX_VALUE_BYTES
from logdb.transport.unread_answers import STALLED_S, DurabilityNotifier
from logdb.wire.database_codec import LARGE_BYTES, PART_BYTES, limit_of
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

MAX_VALUES: Final = 64
"""Maximum number of uploads that have a file open."""
MAX_REQUESTS_BYTES: Final = 256 << 20
"""Maximum size of all requests that are not whole; a larger request is received alone."""


class UploadRoom:
    """A limit on the memory or disk space of all uploads of a server together."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._freed = DurabilityNotifier()
        self._holders: dict[Upload, int] = {}

    async def take(self, upload: Upload, size: int) -> None:
        """Wait until there is room, and reserve it. Meanwhile uploads whose clients send nothing are ended."""
        while self.taken and self.taken + size > self.limit:
            done, _ = await asyncio.wait((self._freed.future(),), timeout=STALLED_S)
            if not done:
                for holder in list(self._holders):
                    holder.check_stalled()
        self.taken += size
        self._holders[upload] = self._holders.get(upload, 0) + size

    def give_back(self, upload: Upload) -> None:
        """Release all room that the upload has reserved. A second call has no effect."""
        self.taken -= self._holders.pop(upload, 0)
        self._freed.notify()


class Uploads:
    """The limits for all streams of a server."""

    def __init__(self) -> None:
        self.values = UploadRoom(MAX_VALUES)
        self.requests = UploadRoom(MAX_REQUESTS_BYTES)


class Upload:
    """A request in parts: `add` and `add_request` queue the parts, `arrived` writes them and returns the request.

    `request`: its id. `verb`: its kind. `values`: its large values. `waiting`: bytes that were queued and not written.
    `on_taken`: called with the number of bytes written. `end` must be called at the end.
    """

    def __init__(
        self,
        uploads: Uploads,
        receive: Callable[[int], IncomingValue],
        request: int,
        verb: str,
        on_taken: Callable[[int], None],
    ) -> None:
        self.request, self.verb = request, verb
        self.values: list[IncomingValue] = []
        self.is_whole = False
        self.task: asyncio.Task[None] | None = None
        self._uploads, self._receive, self._on_taken = uploads, receive, on_taken
        self._time = asyncio.get_running_loop().time
        self._parts: deque[pb.Upload | pb.Request] = deque()
        self._more = asyncio.Event()
        self._number = self._offset = self._length = self._announced = 0
        self.waiting = self._taken = 0
        self._values_begun = 0
        self._moved_at = self._time()
        self._stalled = False

    # ---- queueing parts

    def add(self, part: pb.Upload) -> None:
        """Queue the next part. Raises WireError, ValueTooLarge, TransactionTooLarge."""
        size = len(part.data)
        if self._offset == self._length:
            self._begin(part)
        if (part.number, part.offset, part.length, part.verb) != (self._number, self._offset, self._length, self.verb):
            raise WireError(f"a part of an upload that is not the next one (offset {part.offset}, not {self._offset})")
        if not 0 < size <= self._length - self._offset:
            raise WireError(f"a part of {size:,} bytes of an upload, {self._length - self._offset:,} are missing")
        self._offset += size
        self.waiting += size
        self.is_whole = not part.number and self._offset == self._length
        self._put(part)

    def _begin(self, part: pb.Upload) -> None:
        """Begin with the first part of the next value, or of the request itself."""
        if self.is_whole or part.number not in (0, self._values_begun + 1):
            raise WireError(f"an upload continues with number {part.number} after {self._values_begun}")
        self._announced += part.length
        if self._announced > (limit := limit_of(self.verb)):
            raise TransactionTooLarge(self._announced, limit, ", as a message to the server,")
        if part.number:
            if part.length > MAX_VALUE_BYTES:
                raise ValueTooLarge(part.length, MAX_VALUE_BYTES)
            if part.length < LARGE_BYTES or self.verb not in ("write", "commit"):
                raise WireError(f"a value of {part.length:,} bytes is uploaded for a {self.verb}")
            self._values_begun += 1
        elif part.length <= PART_BYTES:
            raise WireError(f"a request of {part.length:,} bytes is uploaded")
        self._number, self._offset, self._length = part.number, 0, part.length

    def add_request(self, request: pb.Request) -> None:
        """Queue the request itself, after its large values. Raises WireError."""
        if self.is_whole or self._offset != self._length:
            raise WireError(f"request {request.id} has come before its large values")
        self.is_whole = True
        self._put(request)

    def _put(self, part: pb.Upload | pb.Request) -> None:
        self._moved_at = self._time()
        self._parts.append(part)
        self._more.set()

    def check_stalled(self) -> None:
        """End the upload if its client has sent nothing for too long."""
        if not self.waiting and not self.is_whole and self._moved_at <= self._time() - STALLED_S:
            self._stalled = True
            self._more.set()

    # ---- writing them

    async def arrived(self) -> pb.Request:
        """The request, when it is whole and its large values are durable.

        Raises Unavailable, WireError, OSError, ReadOnly, DatabaseClosed.
        """
        raw: list[bytes] = []
        while True:
            part = await self._next()
            if isinstance(part, pb.Request):
                return part
            if not part.offset:
                await self.take_room(part)
            if part.number:
                await asyncio.to_thread(self.values[-1].write, part.data)
            else:
                raw.append(part.data)
                if self.is_whole and not self._parts:
                    return self._parsed(b"".join(raw))
            self.waiting -= len(part.data)
            self._taken += len(part.data)
            self._moved_at = self._time()
            self._on_taken(self._taken)

    async def _next(self) -> pb.Upload | pb.Request:
        while not self._parts:
            if self._stalled:
                raise Unavailable(f"nothing of the upload came for {STALLED_S:g} s, and others wait")
            self._more.clear()
            await self._more.wait()
        return self._parts.popleft()

    async def take_room(self, part: pb.Upload) -> None:
        """Wait for room for the value or the request whose first part this is."""
        if not part.number:
            await self._uploads.requests.take(self, part.length)
        else:
            if not self.values:
                await self._uploads.values.take(self, 1)
            self.values.append(self._receive(part.length))  # not in a thread: a cancelled task would lose the file

    def _parsed(self, raw: bytes) -> pb.Request:
        try:
            request = pb.Request.FromString(raw)
        except DecodeError as error:
            raise WireError(f"{len(raw):,} bytes that were uploaded are not a request ({error})") from error
        if (request.id, request.WhichOneof("verb")) != (self.request, self.verb):
            raise WireError(f"the uploaded request is not {self.request} ({self.verb})")
        return request

    def end(self) -> None:
        """Release its room, and discard its values unless they were committed."""
        self._uploads.values.give_back(self)
        self._uploads.requests.give_back(self)
        loop = asyncio.get_running_loop()
        for value in self.values:
            loop.run_in_executor(None, value.discard)
