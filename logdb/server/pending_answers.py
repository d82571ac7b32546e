"""Deferred answers of one stream: a task computes each of them, while further requests are answered."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from logdb.errors import Unavailable
from logdb.server.outbox import Outbox
from logdb.transport.unread_answers import USER_STREAMS, StreamAnswers
from logdb.wire.proto import database_pb2 as pb

MAX_WAITING: Final = 1_000
"""Maximum number of requests of a stream that wait for a sync, a commit to watch or a page, and per `USER_STREAMS` of
all streams of a user."""
MAX_WAITING_BYTES: Final = 16 << 20
"""Maximum size of what these requests keep; a stream without them may have one that keeps more. Per `USER_STREAMS` of
all streams of a user."""


class PendingAnswers:
    """The deferred answers of one stream. `tasks`: the running tasks.

    They keep no request: a request keeps the whole message that it was part of.
    """

    def __init__(self, outbox: Outbox, share: StreamAnswers) -> None:
        self._outbox, self._share, self._user = outbox, share, share.user
        self.tasks: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self._page = asyncio.Lock()

    def start(
        self, request: int, answer: Coroutine[Any, Any, pb.Response], kept: int = 0, *, reads: bool = True
    ) -> None:
        """Answer a request, given by its number, when the coroutine has ended. `kept`: the bytes that the coroutine
        keeps until then. `reads`: see `outbox.Ready`. Raises Unavailable."""
        user = self._user
        if len(self.tasks) >= MAX_WAITING or user.waiting >= USER_STREAMS * MAX_WAITING or not self._has_room(kept):
            answer.close()
            mine = f"{len(self.tasks):,} requests of this client wait already ({self._bytes:,} bytes)"
            of_user = f"{user.waiting:,} of its user ({user.waiting_bytes:,} bytes)"
            raise Unavailable(f"{mine}, and {of_user}; ask again when some are answered")
        if not self._share.may_wait(kept):
            answer.close()
            raise Unavailable("too many requests of all clients wait already; ask again when some are answered")

        async def answered() -> None:
            try:
                response = await answer
            except Exception as error:
                self._outbox.fail(request, error)
            else:
                response.id = request
                self._outbox.answer(response, reads=reads)

        task = asyncio.create_task(answered())
        task.add_done_callback(lambda _: answer.close())  # a task that is cancelled at once never starts it
        self.tasks.add(task)
        self._count(1, kept)
        task.add_done_callback(functools.partial(self._ended, kept))

    def _has_room(self, kept: int) -> bool:
        """Whether a request that keeps this number of bytes may wait."""
        if self._user.waiting_bytes + kept > USER_STREAMS * MAX_WAITING_BYTES:
            return False
        return not self._bytes or self._bytes + kept <= MAX_WAITING_BYTES

    def _count(self, requests: int, kept: int) -> None:
        self._bytes += kept
        self._share.count_waiting(self._user, requests, kept)

    def _ended(self, kept: int, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._count(-1, -kept)

    def start_in_thread(self, request: int, make: Callable[..., pb.Response], *arguments: Any, kept: int = 0) -> None:
        """Answer a request with the page that `make` returns for `arguments`, which are `kept` bytes. `make` is called
        in a thread. Raises Unavailable."""

        async def answer() -> pb.Response:
            async with self.making_page():
                return await asyncio.to_thread(make, *arguments)

        self.start(request, answer(), kept)

    @contextlib.asynccontextmanager
    async def making_page(self) -> AsyncIterator[None]:
        """Compute pages one at a time, after the client has received earlier answers."""
        async with self._page:
            await self._share.until_room()
            yield
