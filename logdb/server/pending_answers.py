"""Deferred answers of one stream: a task computes each of them, while further requests are answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from logdb.errors import Unavailable
from logdb.server.outbox import Outbox
from logdb.transport.unread_answers import USER_STREAMS, StreamAnswers
from logdb.wire.proto import database_pb2 as pb

MAX_WAITING: Final = 1_000
"""Maximum number of requests of a stream that wait for a sync, a commit to watch or a page, and per `USER_STREAMS` of
all streams of a user."""


class PendingAnswers:
    """The deferred answers of one stream. `tasks`: the running tasks."""

    def __init__(self, outbox: Outbox, share: StreamAnswers) -> None:
        self._outbox, self._share, self._user = outbox, share, share.user
        self.tasks: set[asyncio.Task[None]] = set()
        self._page = asyncio.Lock()

    def start(self, request: pb.Request, answer: Coroutine[Any, Any, pb.Response], *, reads: bool = True) -> None:
        """Answer a request when the coroutine has ended. `reads`: see `outbox.Ready`. Raises Unavailable."""
        if len(self.tasks) >= MAX_WAITING or self._user.waiting >= USER_STREAMS * MAX_WAITING:
            answer.close()
            many = f"{len(self.tasks):,} requests of this client wait already, and {self._user.waiting:,} of its user"
            raise Unavailable(f"{many}; ask again when some are answered")

        async def answered() -> None:
            try:
                response = await answer
            except Exception as error:
                self._outbox.fail(request.id, error)
            else:
                response.id = request.id
                self._outbox.answer(response, reads=reads)

        task = asyncio.create_task(answered())
        task.add_done_callback(lambda _: answer.close())  # a task that is cancelled at once never starts it
        self.tasks.add(task)
        self._user.waiting += 1
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._user.waiting -= 1

    def start_in_thread(self, request: pb.Request, make: Callable[..., pb.Response], *arguments: Any) -> None:
        """Answer a request with the page that `make` returns. `make` is called in a thread. Raises Unavailable."""

        async def answer() -> pb.Response:
            async with self.making_page():
                return await asyncio.to_thread(make, *arguments)

        self.start(request, answer())

    @contextlib.asynccontextmanager
    async def making_page(self) -> AsyncIterator[None]:
        """Compute pages one at a time, after the client has received earlier answers."""
        async with self._page:
            await self._share.until_room()
            yield
