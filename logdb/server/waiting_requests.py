"""Requests of one stream that wait: for commits to watch, for the disk, or for upkeep."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from logdb.api.results import Change
from logdb.embedded.async_backend import CoroutineBackend
from logdb.embedded.feed import Feed
from logdb.log.engine import Right
from logdb.server import log_export
from logdb.server.outbox import Outbox
from logdb.server.pending_answers import PendingAnswers
from logdb.server.permissions import StreamRight
from logdb.store.limits import check_pin
from logdb.store.records import TxnId
from logdb.store.watched import KEY_BYTES
from logdb.transport.unread_answers import DurabilityNotifier, UserQuota
from logdb.wire.database_codec import PAGE_BYTES, change_to
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

MAX_WATCH_S: Final = 30.0
MAX_WATCHED_KEYS: Final = 1 << 16


class WaitingRequests:
    """`advanced`: notified when there are new durable commits. `draining`: set when the server stops; then watches are
    answered at once."""

    def __init__(
        self,
        backend: CoroutineBackend,
        outbox: Outbox,
        pending: PendingAnswers,
        right: StreamRight,
        user: UserQuota,
        advanced: DurabilityNotifier,
        draining: asyncio.Event,
    ) -> None:
        self._backend, self._database = backend, backend.embedded
        self._outbox, self._pending, self._right, self._user = outbox, pending, right, user
        self._advanced, self._draining = advanced, draining

    # ---- outcomes and changes

    def outcome(self, request: pb.Request, arguments: pb.Outcome) -> None:
        """How a transaction ended."""
        if arguments.settle and self._right.right < Right.WRITE:
            raise self._right.denied(Right.WRITE)
        if arguments.sequence >> 63:
            raise WireError(f"{arguments.sequence} is not a sequence number")

        txn_id, settle = TxnId(arguments.client, arguments.sequence), arguments.settle

        async def answer() -> pb.Response:
            outcome = await self._backend.outcome(txn_id, settle)
            return pb.Response(version=outcome.version, ended=pb.Ended(status=outcome.status.name))

        self._pending.start(request.id, answer())

    def watch(self, request: pb.Request, watch: pb.Watch) -> None:
        """The next commits that write a watched key."""
        count = len(watch.keys)
        if count > MAX_WATCHED_KEYS:
            raise ValueError(f"a watch of {count:,} keys, the limit is {MAX_WATCHED_KEYS:,}: watch a prefix, or all")
        since = watch.since if watch.HasField("since") else None
        prefix = watch.prefix if watch.HasField("prefix") else None
        feed = self._database.feed(since, prefix, frozenset(watch.keys) if watch.has_keys else None)
        changes = self._changes(feed, min(watch.wait_ms / 1000, MAX_WATCH_S))
        self._pending.start(request.id, changes, watch.ByteSize() + count * KEY_BYTES)

    async def _changes(self, feed: Feed, wait_s: float) -> pb.Response:
        time = asyncio.get_running_loop().time
        deadline = time() + wait_s
        found, size = pb.Changes(), 0
        try:
            while True:
                advanced = self._advanced.future()
                async with self._pending.making_page():
                    since = time()
                    while size < PAGE_BYTES and (feed.has_ready or await self._read(feed)):
                        if feed.has_ready:
                            encoded = change_to(await self._take(feed))
                            found.changes.append(encoded)
                            size += encoded.ByteSize()
                        if time() - since > self._user.left_s:
                            self._user.spend(time() - since)
                            await self._user.let_others()
                            since = time()
                    self._user.spend(time() - since)
                left = deadline - time()
                if found.changes or left <= 0 or self._draining.is_set():
                    return pb.Response(version=feed.since, changes=found)
                await asyncio.wait((advanced,), timeout=left)
        finally:
            feed.close()

    async def _read(self, feed: Feed) -> bool:
        """As `feed.read(0)`; in a thread if it takes long."""
        return await asyncio.to_thread(feed.read, 0) if feed.is_cold else feed.read(0)

    async def _take(self, feed: Feed) -> Change:
        """As `feed.take()`; in a thread if it may read large values from the cold tier."""
        return await asyncio.to_thread(feed.take) if feed.is_cold else feed.take()

    # ---- upkeep

    def pin(self, request: pb.Request, pin: pb.Pin) -> None:
        """Pin a version."""

        check_pin(pin.name)
        name, version = pin.name, pin.version if pin.HasField("version") else None

        async def answer() -> pb.Response:
            return pb.Response(version=await self._backend.pin(name, version))

        self._pending.start(request.id, answer(), reads=False)

    def unpin(self, request: pb.Request, unpin: pb.Unpin) -> None:
        """Remove a pin."""

        name = unpin.name

        async def answer() -> pb.Response:
            await self._backend.unpin(name)
            return pb.Response()

        self._pending.start(request.id, answer(), unpin.ByteSize(), reads=False)

    def compact(self, request: pb.Request, compact: pb.Compact) -> None:
        """Compact the log."""

        before = compact.before if compact.HasField("before") else None
        progress = self._progress(request.id)

        async def answer() -> pb.Response:
            done = await self._backend.compact(before, progress)
            return pb.Response(compacted=pb.Compacted(**done._asdict()))

        self._pending.start(request.id, answer(), reads=False)

    def checkpoint(self, request: pb.Request, _: pb.Checkpoint) -> None:
        """Write a checkpoint."""

        progress = self._progress(request.id)

        async def answer() -> pb.Response:
            return pb.Response(version=await self._backend.checkpoint(progress))

        self._pending.start(request.id, answer(), reads=False)

    def _progress(self, request: int) -> Callable[[int], None]:
        """A function for any thread that sends the progress of a request to the client."""
        loop = asyncio.get_running_loop()

        def progress(done: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._outbox.answer, pb.Response(id=request, progress=done))

        return progress

    # ---- the log itself

    def layout(self, request: pb.Request, layout: pb.Layout) -> None:
        """The files of a snapshot."""
        version = self._database.at(layout.version)
        since = layout.since if layout.HasField("since") else None
        self._pending.start_in_thread(request.id, log_export.layout, self._database, version, since)

    def frames(self, request: pb.Request, frames: pb.Frames) -> None:
        """A page of records as they are stored."""
        self._pending.start_in_thread(request.id, log_export.frames, self._database, frames.first, frames.end)

    def aborted(self, request: pb.Request, arguments: pb.Aborted) -> None:
        """The aborted commits of a range of records."""
        self._pending.start_in_thread(request.id, log_export.aborted, self._database, arguments.first, arguments.end)
