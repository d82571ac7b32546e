"""One client's stream at the server: requests in batches, answered from memory in one message, writes after one sync.

A request that must wait (for a sync, a commit to watch, upkeep) is answered later, in any order, while further batches
are taken. All answers that are ready leave in the next message. Leases on snapshots end with the stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from logdb.embedded.async_backend import CoroutineBackend
from logdb.errors import Unavailable
from logdb.log.engine import Right
from logdb.server.contention_queue import ContentionQueue
from logdb.server.leases import StreamLeases
from logdb.server.outbox import Outbox, Stream
from logdb.server.pending_answers import PendingAnswers
from logdb.server.permissions import VERB_RIGHTS, StreamRight
from logdb.server.read_requests import ReadRequests
from logdb.server.stream_uploads import StreamUploads
from logdb.server.uploads import Uploads
from logdb.server.waiting_requests import WaitingRequests
from logdb.server.write_requests import WriteRequests
from logdb.transport.unread_answers import DurabilityNotifier, UnreadAnswers
from logdb.wire.database_codec import check_numbers, requests_of
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)

MAX_READABLE_WAIT_S: Final = 30.0
PAUSE_S: Final = 0.002

Verb = Callable[[pb.Request, Any], pb.Response | None]


def _whole(verb: Verb, request: pb.Request, arguments: Any) -> pb.Response:
    """The answer of a verb that does not send it in parts."""
    response = verb(request, arguments)
    assert response is not None, "a value from the cold tier is whole"
    return response


class Session:
    """Receives the requests of a stream, and passes each to the part that has its verb. `client`: the client number of
    its transactions; `timeout_s`: its timeout for an answer; `right`: its right; `user`: the user whose limits apply.
    `draining`: set when the server stops."""

    def __init__(
        self,
        backend: CoroutineBackend,
        advanced: DurabilityNotifier,
        contention: ContentionQueue,
        answers: UnreadAnswers,
        uploads: Uploads,
        stream: Stream,
        client: int,
        timeout_s: float,
        right: StreamRight,
        user: str,
    ) -> None:
        self._database, self._advanced, self._stream = backend.embedded, advanced, stream
        self._timeout_s = timeout_s
        self._share = answers.share(self._end_stalled, user)
        self._user = self._share.user
        self._stalled = asyncio.Event()
        self.draining = asyncio.Event()
        self._is_taking = False
        self._right = right
        self._outbox = Outbox(stream, self._database.version, self._right, self._share)
        self._leases = StreamLeases(self._database, contention, self._user)
        self._pending = PendingAnswers(self._outbox, self._share)
        self._uploads = StreamUploads(uploads, self._database.commits, self._outbox, self._right, self._answer_uploaded)
        self._writes = writes = WriteRequests(
            backend, client, self._leases, self._outbox, self._pending, self._uploads, advanced
        )
        self._reads = reads = ReadRequests(self._database, self._leases, self._outbox, self._share)
        waiting = WaitingRequests(
            backend, self._outbox, self._pending, self._right, self._user, advanced, self.draining
        )
        self._all_verbs: dict[str, Verb] = {
            "get": reads.get,
            "write": writes.write,
            "multi_get": reads.multi_get,
            "multi_scan": reads.multi_scan,
            "begin": writes.begin,
            "commit": writes.commit,
            "end": writes.end,
            "scan": reads.scan,
            "history": reads.history,
            "at": reads.at,
            "outcome": waiting.outcome,
            "watch": waiting.watch,
            "pin": waiting.pin,
            "unpin": waiting.unpin,
            "facts": reads.facts,
            "compact": waiting.compact,
            "checkpoint": waiting.checkpoint,
            "layout": waiting.layout,
            "frames": waiting.frames,
            "aborted": waiting.aborted,
            "upload": self._uploads.add_part,
            "cancel": self._uploads.cancel,
        }
        self._right.on_change = self._allow
        self._allow(self._right.right)

    # ---- rights

    def _allow(self, right: Right) -> None:
        self._verbs = {
            name: verb if VERB_RIGHTS[name] <= right else self._deny for name, verb in self._all_verbs.items()
        }
        if right == Right.READ:
            self._verbs["commit"] = self._commit_of_reader

    def _deny(self, request: pb.Request, _: Any) -> pb.Response | None:
        raise self._right.denied(VERB_RIGHTS[request.WhichOneof("verb") or "end"])

    def _commit_of_reader(self, request: pb.Request, commit: pb.Commit) -> pb.Response | None:
        if commit.sequence:
            self._leases.release(commit.lease)
            raise self._right.denied(Right.WRITE)
        self._writes.commit(request, commit)
        return None

    # ---- the stream

    async def run(self) -> None:
        """Serve until the client ends the stream, or it breaks, or `draining` is set and all requests are answered."""
        sending = asyncio.create_task(self._outbox.send())
        reading = asyncio.create_task(self._read())
        draining: asyncio.Task[Any] = asyncio.create_task(self.draining.wait())
        stalled: asyncio.Task[Any] = asyncio.create_task(self._stalled.wait())
        try:
            await asyncio.wait((sending, reading, draining, stalled), return_when=asyncio.FIRST_COMPLETED)
            if self.draining.is_set():
                if not self._is_taking:
                    reading.cancel()
                await self._finish(sending)
            for task in (reading, sending):
                if task.done() and not task.cancelled():
                    task.result()
        finally:
            ending = (sending, reading, draining, stalled, *self._pending.tasks, *self._uploads.tasks)
            for task in ending:
                task.cancel()
            try:
                await asyncio.gather(*ending, return_exceptions=True)
            finally:  # gRPC may cancel this wait, too
                self._share.give_up()
                self._leases.release_all()

    async def _finish(self, sending: asyncio.Task[None]) -> None:
        while self._is_owing and not sending.done():
            if self._pending.tasks:
                await asyncio.wait(self._pending.tasks)
            await asyncio.sleep(PAUSE_S)

    @property
    def _is_owing(self) -> bool:
        """Whether a received request has not been answered, or an answer has not been sent."""
        outbox = self._outbox
        if self._is_taking or not outbox.is_empty or outbox.is_sending or self._uploads.has_whole:
            return True
        return bool(self._writes.syncs or self._pending.tasks or self._leases.has_waiting)

    def _end_stalled(self) -> None:
        log.warning("a stream was ended: its client takes no answers, and others wait for room")
        self._stalled.set()

    @property
    def parted(self) -> int:
        """Number of answers that are sent in parts."""
        return self._outbox.parted

    @property
    def waiting(self) -> int:
        """Number of requests that are answered later."""
        return len(self._pending.tasks)

    # ---- requests

    async def _read(self) -> None:
        while not self.draining.is_set() and isinstance(raw := await self._stream.read(), bytes):
            self._is_taking = True
            try:
                await self._take(requests_of(raw))
            finally:
                self._is_taking = False

    async def _take(self, batch: pb.Requests) -> None:
        """Answer the requests of a message, at the pace of the client and in turns with other streams."""
        self._right.refresh()
        if batch.seen > self._database.version():
            await self._until_readable(batch.seen)
        behind = batch.seen > self._database.version()
        time, user = asyncio.get_running_loop().time, self._user
        since = time()
        turn_ends = since + user.left_s
        for request in batch.requests:
            if time() > turn_ends or self._outbox.is_full or not self._share.has_room():
                user.spend(time() - since)
                await self._let_others()
                since = time()
                turn_ends = since + user.left_s
            if not self._writes.has_room and request.WhichOneof("verb") in ("write", "commit"):
                user.spend(time() - since)
                await self._writes.until_room()
                since = time()
            self._answer(request, batch.seen if behind else 0)
        user.spend(time() - since)
        self._writes.sync()

    def _answer(self, request: pb.Request, missing: int = 0) -> None:
        """Answer a request, or start to. `missing`: a version that the client has seen and this server cannot read."""
        name = request.WhichOneof("verb")
        if name is None:
            raise WireError(f"request {request.id} asks for nothing that this server knows")
        try:
            if missing and name not in ("write", "commit", "end", "upload", "cancel"):
                newest = self._database.version()
                raise Unavailable(f"version {missing} is not readable here; the newest is {newest}")
            arguments = getattr(request, name)
            check_numbers(name, arguments)
            if self._reads.is_slow(name, arguments):
                kept = pb.Request()
                kept.CopyFrom(request)
                question, size = (kept, getattr(kept, name)), kept.ByteSize()
                self._pending.start_in_thread(request.id, _whole, self._verbs[name], *question, kept=size)
                return
            response = self._verbs[name](request, arguments)
        except Exception as error:
            self._outbox.fail(request.id, error)
        else:
            if response is not None:
                response.id = request.id
                self._outbox.answer(response)

    async def _answer_uploaded(self, request: pb.Request) -> None:
        """Answer a request that was received in parts."""
        if not self._writes.has_room and request.WhichOneof("verb") in ("write", "commit"):
            await self._writes.until_room()
        self._right.refresh()
        self._answer(request)
        self._writes.sync()

    async def _let_others(self) -> None:
        """Let other users have their turn, and wait until the client has received enough of its answers."""
        self._writes.sync()
        await self._user.let_others()
        await self._outbox.until_not_full()
        await self._share.until_room()
        self._right.refresh()

    async def _until_readable(self, version: int) -> None:
        """Wait for a version that the client has seen elsewhere."""
        time = asyncio.get_running_loop().time
        deadline = time() + min(self._timeout_s, MAX_READABLE_WAIT_S)
        while version > self._database.version() and (left := deadline - time()) > 0:
            await asyncio.wait((self._advanced.future(),), timeout=min(left, 0.05))
