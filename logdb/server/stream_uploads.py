"""Requests of one stream that are sent in parts, with their large values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from logdb.embedded.commits import Commits
from logdb.embedded.large_values import IncomingValue
from logdb.log.engine import Right
from logdb.server.outbox import Outbox
from logdb.server.permissions import VERB_RIGHTS, StreamRight
from logdb.server.uploads import Upload, Uploads
from logdb.wire.database_codec import WINDOW_BYTES
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb


class StreamUploads:
    """`uploads`: those of all streams. `on_request`: called with each request that has come whole.

    `tasks`: those that receive requests now.
    """

    def __init__(
        self,
        uploads: Uploads,
        commits: Commits,
        outbox: Outbox,
        right: StreamRight,
        on_request: Callable[[pb.Request], Awaitable[None]],
    ) -> None:
        self._uploads, self._commits, self._outbox, self._right = uploads, commits, outbox, right
        self._on_request = on_request
        self._open: dict[int, Upload] = {}
        self._last = 0
        self._received: dict[int, Sequence[IncomingValue]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def has_whole(self) -> bool:
        """Whether a request was received completely and not answered yet."""
        return any(upload.is_whole for upload in self._open.values())

    def add_part(self, request: pb.Request, part: pb.Upload) -> None:
        """Take a part of a request. Raises WireError, ValueTooLarge, TransactionTooLarge, AccessDenied."""
        upload = self._open.get(request.id)
        if upload is None:
            if request.id <= self._last:
                return  # it has failed, and its answer is on its way
            for other in [each for each in self._open.values() if not each.is_whole]:
                self._discard(other)  # a client sends one upload at a time, so it has cancelled this one
            upload = self._begin(request.id, part.verb)
        try:
            if sum(each.waiting for each in self._open.values()) > WINDOW_BYTES:
                raise WireError(f"uploads are ahead of what was taken by more than {WINDOW_BYTES:,} bytes")
            upload.add(part)
        except Exception:
            self._discard(upload)
            raise

    def _begin(self, request: int, verb: str) -> Upload:
        self._last = request
        if verb not in VERB_RIGHTS or verb in ("upload", "cancel"):
            raise WireError(f"request {request} asks for nothing that this server knows")
        needed = max(VERB_RIGHTS[verb], Right.WRITE if verb == "commit" else Right.READ)
        if self._right.right < needed:
            raise self._right.denied(needed)

        def on_taken(taken: int) -> None:
            self._outbox.answer(pb.Response(id=request, progress=taken), reads=False)

        upload = self._open[request] = Upload(self._uploads, self._commits.receive, request, verb, on_taken)
        upload.task = task = asyncio.create_task(self._finish(upload))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda _: upload.end())
        return upload

    async def _finish(self, upload: Upload) -> None:
        try:
            request = await upload.arrived()
        except Exception as error:
            self._outbox.fail(upload.request, error)
        else:
            self._received[upload.request] = upload.values
            try:
                await self._on_request(request)
            finally:  # it may be cancelled while it waits for room
                del self._received[upload.request]
        self._open.pop(upload.request, None)

    def _discard(self, upload: Upload) -> None:
        self._open.pop(upload.request, None)
        assert upload.task is not None
        upload.task.cancel()

    def values_of(self, request: pb.Request, writes: pb.Writes) -> Sequence[IncomingValue] | None:
        """The large values of a request; None if the request waits for them, or belongs to an upload that has failed.
        Raises WireError."""
        values = self._received.get(request.id, ())
        if values or not writes.uploaded:
            return values
        upload = self._open.get(request.id)
        if upload is not None:
            try:
                upload.add_request(request)
            except WireError:
                self._discard(upload)
                raise
        elif request.id > self._last:
            raise WireError(f"the large values of request {request.id} have not come")
        return None

    def cancel(self, _: pb.Request, cancel: pb.Cancel) -> None:
        """Receive and send no further parts of a request and its answers."""
        upload = self._open.get(cancel.request)
        if upload is not None:
            self._discard(upload)
        self._outbox.cancel(cancel.request)
