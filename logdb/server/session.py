"""One client's stream at the server: requests in batches, answered from memory in one message, writes after one sync.

What must wait (a sync, a watch, upkeep) is answered later, in any order, while further batches are taken. All that is
ready goes into the next message. The leases on snapshots live as long as the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from itertools import islice
from time import thread_time
from typing import Any, Final, Protocol

from logdb.embedded.async_backend import CoroutineBackend
from logdb.embedded.feed import Feed
from logdb.embedded.large_values import IncomingValue, OutgoingValue
from logdb.errors import (
    AccessDenied,
    ConflictError,
    DatabaseClosed,
    FutureVersion,
    LogDBError,
    OutcomeUnknown,
    Unavailable,
)
from logdb.log.engine import Right
from logdb.security.authenticator import Grant, lacking
from logdb.server import log_export
from logdb.server.contention_queue import ContentionQueue
from logdb.server.permissions import NEEDS
from logdb.server.uploads import Upload, Uploads
from logdb.store.key_map import Rows
from logdb.store.limits import check_key, check_label, check_pin
from logdb.store.ranges import ScanRange, key_range
from logdb.store.records import TxnId
from logdb.system.disk import described
from logdb.transport.unread_answers import USER_STREAMS, DurabilityNotifier, UnreadAnswers
from logdb.txn.validation import Verdict
from logdb.wire.database_codec import (
    BATCH_BYTES,
    BATCH_CALLS,
    PAGE_BYTES,
    PAGE_KEYS,
    PAGE_RANGES,
    PART_BYTES,
    WHOLE_BYTES,
    WINDOW_BYTES,
    change_to,
    check_numbers,
    checked_writes,
    conditions_from,
    failure_to,
    parts_of,
    ranges_from,
    requests_of,
    values_to,
)
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb

log = logging.getLogger(__name__)

MAX_WAITING: Final = 1_000
"""So many requests of a stream may wait at once for what answers them: a sync, a commit to watch, a page. Of all
streams of a user `USER_STREAMS` times as many."""
MAX_LEASES: Final = 10_000
"""So many snapshots may be held by a stream, and by all of a user `USER_STREAMS` times as many."""
MAX_PARTED: Final = 64
"""With so many answers of a stream on their way in parts, its next request waits."""
LONGEST_WATCH_S: Final = 30.0
PAUSE_S: Final = 0.002
PAGE_S: Final = 0.002
"""A page of a scan ends after so much of the processor's time, if there are other streams."""
ROW_BYTES: Final = 32
"""What a row, a key or a version takes in a page beside its bytes."""


Verb = Callable[[pb.Request, Any], pb.Response | None]


class Stream(Protocol):
    """What carries messages."""

    async def read(self) -> Any: ...
    async def write(self, message: bytes) -> None: ...


class PendingWrite:
    """A commit record that waits for its sync."""

    __slots__ = ("gsn", "id", "snapshot", "txn_id", "verdict", "wanted")

    def __init__(
        self, request: int, txn_id: TxnId, gsn: int, verdict: Verdict, snapshot: int | None, wanted: bool = False
    ) -> None:
        self.id, self.txn_id, self.gsn, self.verdict, self.snapshot = request, txn_id, gsn, verdict, snapshot
        self.wanted = wanted


class PagedAnswer:
    """An answer that leaves in `parts`. `reads`: see `Ready`. `left`: bytes of it that are in memory."""

    __slots__ = ("id", "left", "parts", "reads")

    def __init__(self, request: int, parts: Iterator[bytes], reads: bool, left: int) -> None:
        self.id, self.parts, self.reads, self.left = request, parts, reads, left


Ready = tuple[pb.Response, int, bool]
"""An answer that can go, its size, and whether it may tell of the database: whoever gets it must have the right to read
then. The acknowledgement of a write tells nothing, and the write was done."""


class Session:
    """`client`: whose transactions come over the stream; `timeout_s`: how long it waits for an answer; `grant`: what it
    may do; `user`: whose limits hold for it."""

    def __init__(
        self,
        host: CoroutineBackend,
        advanced: DurabilityNotifier,
        turns: ContentionQueue,
        answers: UnreadAnswers,
        uploads: Uploads,
        stream: Stream,
        client: int,
        timeout_s: float,
        grant: Grant,
        user: str,
    ) -> None:
        self._coroutines, self._host, self._advanced, self._stream = host, host.embedded, advanced, stream
        self._turns = turns
        self._client, self._timeout_s = client, timeout_s
        self._leases: dict[int, object] = {}
        self._in_line: set[int] = set()
        self._ready: list[Ready] = []
        self._share = answers.share(self._end_stalled, user)
        self._user = self._share.user
        self._parted: deque[PagedAnswer] = deque()
        self._sent_part = DurabilityNotifier()
        self._uploads = uploads
        self._open_uploads: dict[int, Upload] = {}
        self._last_upload = 0
        self._uploading: set[asyncio.Task[None]] = set()
        self._arrived: dict[int, Sequence[IncomingValue]] = {}
        self._stalled = asyncio.Event()
        self._page = asyncio.Lock()
        self._unsynced: list[PendingWrite] = []
        self._syncs = 0
        self._writing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self.draining = asyncio.Event()
        self._grant = grant
        self._all_verbs: dict[str, Verb] = {
            "get": self._get,
            "write": self._write,
            "multi_get": self._multi_get,
            "multi_scan": self._multi_scan,
            "begin": self._begin,
            "commit": self._commit,
            "end": self._end,
            "scan": self._scan,
            "history": self._history,
            "at": self._at,
            "outcome": self._outcome,
            "watch": self._watch,
            "pin": self._pin,
            "unpin": self._unpin,
            "facts": self._facts,
            "compact": self._compact,
            "checkpoint": self._checkpoint,
            "layout": self._layout,
            "frames": self._frames,
            "aborted": self._aborted,
            "upload": self._take_part,
            "cancel": self._cancel,
        }
        self._allow(grant.right)

    # ---- rights

    def _allow(self, right: Right) -> None:
        self._right = right
        self._verbs = {name: verb if NEEDS[name] <= right else self._refuse for name, verb in self._all_verbs.items()}
        if right == Right.READ:
            self._verbs["commit"] = self._commit_of_reader

    def _look_at_right(self) -> None:
        right = self._grant.right
        if right is not self._right:
            self._allow(right)

    def _refuse(self, request: pb.Request, _: Any) -> pb.Response | None:
        raise self._denied(NEEDS[request.WhichOneof("verb") or "end"])

    def _denied(self, needed: Right) -> AccessDenied:
        log.warning("%s was denied: it has %s and needs %s", self._grant.who, self._right.label, needed.label)
        return AccessDenied(lacking(repr(self._grant.who), self._right, needed))

    def _commit_of_reader(self, request: pb.Request, commit: pb.Commit) -> pb.Response | None:
        if commit.sequence:
            self._release(commit.lease)
            raise self._denied(Right.WRITE)
        return self._commit(request, commit)

    # ---- the stream

    async def run(self) -> None:
        """Until the client ends the stream, or it breaks, or `draining` is set: then what was taken is answered."""
        sending = asyncio.create_task(self._send())
        reading = asyncio.create_task(self._read())
        draining: asyncio.Task[Any] = asyncio.create_task(self.draining.wait())
        stalled: asyncio.Task[Any] = asyncio.create_task(self._stalled.wait())
        try:
            await asyncio.wait((sending, reading, draining, stalled), return_when=asyncio.FIRST_COMPLETED)
            if self.draining.is_set():
                reading.cancel()
                await self._finish(sending)
            for task in (reading, sending):
                if task.done() and not task.cancelled():
                    task.result()
        finally:
            ending = (sending, reading, draining, stalled, *self._tasks, *self._uploading)
            for task in ending:
                task.cancel()
            try:
                await asyncio.gather(*ending, return_exceptions=True)
            finally:  # gRPC may cancel this wait, too
                self._share.give_up()
                for lease in list(self._leases):
                    self._release(lease)

    async def _finish(self, sending: asyncio.Task[None]) -> None:
        while (self._owes or self._writing or self._syncs or self._tasks or self._in_line) and not sending.done():
            if self._tasks:
                await asyncio.wait(self._tasks)
            await asyncio.sleep(PAUSE_S)

    @property
    def _owes(self) -> bool:
        """Whether there are answers that can go, or a request that came in parts and is whole."""
        return bool(self._ready or self._parted or any(each.is_whole for each in self._open_uploads.values()))

    def _end_stalled(self) -> None:
        log.warning("a stream was ended: its client takes no answers, and others wait for room")
        self._stalled.set()

    async def _read(self) -> None:
        while isinstance(raw := await self._stream.read(), bytes):
            await self._take(requests_of(raw))

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._ready or self._parted:
                if self._ready:
                    message, size = self._next_message()
                    self._writing = True
                    await self._stream.write(message.SerializeToString())
                    self._writing = False
                    self._share.remove(size)
                if self._parted:
                    await self._send_part(self._parted[0])

    async def _send_part(self, answer: PagedAnswer) -> None:
        """The next part of an answer; answers in parts take turns. What the client may see is asked here, too."""
        self._look_at_right()
        try:
            if answer.reads and self._right < Right.READ:
                raise self._denied(Right.READ)
            data = next(answer.parts, b"")
        except Exception as error:
            self._drop(answer)
            self._fail(answer.id, error)
            return
        if not answer.left:
            answer.left = len(data)
            self._share.add(answer.left)
        part = pb.Part(data=data, more=bool(data))
        newest = self._host.version() if self._right >= Right.READ else 0
        self._writing = True
        message = pb.Responses(newest=newest, responses=[pb.Response(id=answer.id, part=part)])
        await self._stream.write(message.SerializeToString())
        self._writing = False
        size = min(len(data), answer.left)  # 0 if it was cancelled meanwhile
        answer.left -= size
        self._share.remove(size)
        if not data:
            self._drop(answer)
        elif self._parted and self._parted[0] is answer:
            self._parted.rotate(-1)

    def _drop(self, answer: PagedAnswer) -> None:
        """Nothing more of it leaves."""
        with contextlib.suppress(ValueError):
            self._parted.remove(answer)
        self._share.remove(answer.left)
        answer.left = 0
        self._sent_part.tell()

    def _next_message(self) -> tuple[pb.Responses, int]:
        """The next answers and their size. The one place where answers leave: what the client may see is asked here."""
        ready, size, taken = self._ready, 0, 0
        for _, bytes_, _ in ready:
            size += bytes_
            taken += 1
            if size >= BATCH_BYTES or taken == BATCH_CALLS:
                break
        self._look_at_right()
        if self._right >= Right.READ:
            responses = pb.Responses(newest=self._host.version(), responses=[each[0] for each in ready[:taken]])
        else:
            responses = pb.Responses(responses=[self._withheld(*each) for each in ready[:taken]])
        del ready[:taken]
        return responses, size

    def _withheld(self, response: pb.Response, _: int, reads: bool) -> pb.Response:
        if not reads:
            return response
        return pb.Response(id=response.id, failure=failure_to(self._denied(Right.READ)))

    def _answer(self, response: pb.Response, *, reads: bool = True) -> None:
        size = response.ByteSize()
        if size > WHOLE_BYTES:
            self._parted.append(PagedAnswer(response.id, parts_of(response), reads, size))
        else:
            self._ready.append((response, size, reads))
        self._share.add(size)
        self._wake.set()

    def _answer_value(self, response: pb.Response, value: OutgoingValue) -> None:
        """The response with a large value, which is read as it leaves."""
        self._parted.append(PagedAnswer(response.id, parts_of(response, value), True, 0))
        self._wake.set()

    def _fail(self, request: int, error: Exception) -> None:
        if not isinstance(error, LogDBError | ValueError | TypeError | KeyError):
            log.error("a request failed: %r", error, exc_info=error)
        if isinstance(error, DatabaseClosed):
            error = Unavailable("the server is stopping")
        elif isinstance(error, OSError):  # what it was to read; a write that fails says so itself
            error = Unavailable(f"the server could not read: {described(error)}")
        self._answer(pb.Response(id=request, failure=failure_to(error)))

    async def _take(self, batch: pb.Requests) -> None:
        """Answer the requests of a message, as fast as the client takes the answers and in turns with other streams."""
        self._look_at_right()
        if batch.seen > self._host.version():
            await self._readable(batch.seen)
        behind = batch.seen > self._host.version()
        time, user = asyncio.get_running_loop().time, self._user
        since = time()
        turn_ends = since + user.left_s
        for request in batch.requests:
            if time() > turn_ends or len(self._parted) >= MAX_PARTED or not self._share.has_room():
                user.spend(time() - since)
                await self._let_others()
                since = time()
                turn_ends = since + user.left_s
            self._ask(request, batch.seen if behind else 0)
        user.spend(time() - since)
        if self._unsynced:
            self._sync()

    def _ask(self, request: pb.Request, missing: int = 0) -> None:
        """Answer a request, or begin to. `missing`: a version that must be readable first, and is not."""
        name = request.WhichOneof("verb")
        if name is None:
            raise WireError(f"request {request.id} asks for nothing that this server knows")
        try:
            if missing and name not in ("write", "commit", "end", "upload", "cancel"):
                newest = self._host.version()
                raise Unavailable(f"version {missing} is not readable here; the newest is {newest}")
            asked = getattr(request, name)
            check_numbers(name, asked)
            response = self._verbs[name](request, asked)
        except Exception as error:
            self._fail(request.id, error)
        else:
            if response is not None:
                response.id = request.id
                self._answer(response)

    async def _let_others(self) -> None:
        """Let other users have their turn, and wait until the client has taken enough of its answers."""
        if self._unsynced:
            self._sync()
        await self._user.let_others()
        while len(self._parted) >= MAX_PARTED:
            await self._sent_part.future()
        await self._share.until_room()
        self._look_at_right()

    async def _readable(self, version: int) -> None:
        """A version that the client has seen elsewhere is readable here soon: on one server it always is."""
        time = asyncio.get_running_loop().time
        deadline = time() + min(self._timeout_s, LONGEST_WATCH_S)
        while version > self._host.version() and (left := deadline - time()) > 0:
            await asyncio.wait((self._advanced.future(),), timeout=min(left, 0.05))

    def _later(self, request: pb.Request, answer: Coroutine[Any, Any, pb.Response], *, reads: bool = True) -> None:
        if len(self._tasks) >= MAX_WAITING or self._user.waiting >= USER_STREAMS * MAX_WAITING:
            answer.close()
            many = f"{len(self._tasks):,} requests of this client wait already, and {self._user.waiting:,} of its user"
            raise Unavailable(f"{many}; ask again when some are answered")

        async def answered() -> None:
            try:
                response = await answer
            except Exception as error:
                self._fail(request.id, error)
            else:
                response.id = request.id
                self._answer(response, reads=reads)

        task = asyncio.create_task(answered())
        task.add_done_callback(lambda _: answer.close())  # it never began if the stream has ended at once
        self._tasks.add(task)
        self._user.waiting += 1
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._user.waiting -= 1

    @contextlib.asynccontextmanager
    async def _producing(self) -> AsyncIterator[None]:
        """Pages are made one after another, and when the client has taken those before."""
        async with self._page:
            await self._share.until_room()
            yield

    # ---- requests in parts

    def _take_part(self, request: pb.Request, part: pb.Upload) -> None:
        upload = self._open_uploads.get(request.id)
        if upload is None:
            if request.id <= self._last_upload:
                return  # it has failed, and its client will hear of it
            for other in [each for each in self._open_uploads.values() if not each.is_whole]:
                self._give_up(other)  # its client has
            upload = self._begin_upload(request.id, part.verb)
        try:
            if sum(each.waiting for each in self._open_uploads.values()) > WINDOW_BYTES:
                raise WireError(f"uploads are ahead of what was taken by more than {WINDOW_BYTES:,} bytes")
            upload.add(part)
        except Exception:
            self._give_up(upload)
            raise

    def _begin_upload(self, request: int, verb: str) -> Upload:
        self._last_upload = request
        if verb not in NEEDS or verb in ("upload", "cancel"):
            raise WireError(f"request {request} asks for nothing that this server knows")
        needed = max(NEEDS[verb], Right.WRITE if verb == "commit" else Right.READ)
        if self._right < needed:
            raise self._denied(needed)

        def told(taken: int) -> None:
            self._answer(pb.Response(id=request, progress=taken), reads=False)

        upload = self._open_uploads[request] = Upload(self._uploads, self._host.commits.receive, request, verb, told)
        upload.task = task = asyncio.create_task(self._finish_upload(upload))
        self._uploading.add(task)
        task.add_done_callback(self._uploading.discard)
        task.add_done_callback(lambda _: upload.end())
        return upload

    async def _finish_upload(self, upload: Upload) -> None:
        try:
            request = await upload.arrived()
        except Exception as error:
            self._fail(upload.request, error)
        else:
            self._look_at_right()
            self._arrived[upload.request] = upload.values
            self._ask(request)
            del self._arrived[upload.request]
            if self._unsynced:
                self._sync()
        self._open_uploads.pop(upload.request, None)

    def _give_up(self, upload: Upload) -> None:
        """Nobody waits for what comes in parts."""
        self._open_uploads.pop(upload.request, None)
        assert upload.task is not None
        upload.task.cancel()

    def _values_of(self, request: pb.Request, writes: pb.Writes) -> Sequence[IncomingValue] | None:
        """The large values of a request; None if it is to wait for them, or is the rest of one that has failed."""
        values = self._arrived.get(request.id, ())
        if values or not writes.uploaded:
            return values
        upload = self._open_uploads.get(request.id)
        if upload is not None:
            try:
                upload.add_request(request)
            except WireError:
                self._give_up(upload)
                raise
        elif request.id > self._last_upload:
            raise WireError(f"the large values of request {request.id} have not come")
        return None

    def _cancel(self, _: pb.Request, cancel: pb.Cancel) -> None:
        upload = self._open_uploads.get(cancel.request)
        if upload is not None:
            self._give_up(upload)
        for answer in [each for each in self._parted if each.id == cancel.request]:
            self._drop(answer)

    # ---- reading

    def _get(self, request: pb.Request, get: pb.Get) -> pb.Response | None:
        if not get.key:
            check_key(get.key)
        at = self._at_version(get.at) if get.HasField("at") else None
        value = self._host.get_in_parts(get.key, at, PART_BYTES)
        if isinstance(value, OutgoingValue):
            self._answer_value(pb.Response(id=request.id), value)
            return None
        return pb.Response() if value is None else pb.Response(value=value)

    def _multi_get(self, _: pb.Request, asked: pb.MultiGet) -> pb.Response:
        host, keys = self._host, asked.keys[:PAGE_KEYS]
        for key in keys:
            check_key(key)
        if asked.HasField("at"):
            version = self._at_version(asked.at)
            holder = None
        else:
            holder = object()
            version = host.snapshots.begin(holder, read_only=True)
        try:
            found: dict[bytes, bytes] = {}
            size = done = 0
            for key in keys:
                done += 1
                value = host.get(key, version)
                if value is not None:
                    found[key] = value
                    size += len(value)
                    if size >= PAGE_BYTES:
                        break
            if done < len(asked.keys) and asked.lease and holder is not None:
                self._check_leases()
                self._lease(asked.lease, holder)
                holder = None
        finally:
            if holder is not None:
                host.end(holder)
        return pb.Response(version=version, values=values_to(keys[:done], found))

    def _at_version(self, at: int) -> int:
        """A version to read: what a transaction reads may be ahead of what is durable. Raises FutureVersion."""
        if at > self._host.machine.coordinator.applied:
            raise FutureVersion(at, self._host.version())
        return at

    def _check_leases(self) -> None:
        if not self._may_lease():
            many = f"this client holds {len(self._leases):,} snapshots already, and its user {self._user.leases:,}"
            raise Unavailable(f"{many}; end some of them")

    def _may_lease(self) -> bool:
        return len(self._leases) < MAX_LEASES and self._user.leases < USER_STREAMS * MAX_LEASES

    def _lease(self, lease: int, holder: object) -> None:
        self._release(lease)
        self._leases[lease] = holder
        self._user.leases += 1

    def _page_of(self, lease: int, at: int | None, floor: int | None = None) -> tuple[int, object | None]:
        """(the version for the first page of a long answer, who holds it or None if somebody does already)."""
        holder = object()
        if at is None:
            return self._host.snapshots.begin(holder, read_only=True), holder
        self._at_version(at)
        if lease and lease not in self._leases:
            self._check_leases()
            self._host.snapshots.lease(holder, at if floor is None else min(at, floor))
            return at, holder
        return at, None

    def _keep(self, lease: int, holder: object | None, more: bool) -> None:
        """After a page: the snapshot stays held if there are more."""
        if holder is not None and more and lease and self._may_lease():
            self._lease(lease, holder)
        elif holder is not None:
            self._host.end(holder)
        if not more and lease:
            self._release(lease)

    def _scan(self, _: pb.Request, scan: pb.Scan) -> pb.Response:
        wanted = _range_of(scan)
        version, holder = self._page_of(scan.lease, scan.at if scan.HasField("at") else None)
        rows = pb.Rows()
        try:
            max_s = PAGE_S if self._share.has_company else math.inf
            self._read_range(rows, wanted, version, scan.reverse, PAGE_BYTES, max_s)
        finally:
            self._keep(scan.lease, holder, rows.more)
        return pb.Response(version=version, rows=rows)

    def _multi_scan(self, _: pb.Request, asked: pb.MultiScan) -> pb.Response:
        wanted = [_range_of(each) for each in asked.ranges[:PAGE_RANGES]]
        version, holder = self._page_of(asked.lease, asked.at if asked.HasField("at") else None)
        found, left, more = pb.MultiRows(), PAGE_BYTES, True
        try:
            for each in wanted:
                if left <= 0:
                    break
                rows = found.ranges.add()
                left -= ROW_BYTES + self._read_range(rows, each, version, asked.reverse, left)
            more = len(found.ranges) < len(asked.ranges) or any(rows.more for rows in found.ranges)
        finally:
            self._keep(asked.lease, holder, more)
        return pb.Response(version=version, multi_rows=found)

    def _read_range(
        self, rows: pb.Rows, wanted: ScanRange, version: int, reverse: bool, max_bytes: int, max_s: float = math.inf
    ) -> int:
        """Put the rows of a range into a page; returns how many bytes they take there."""
        start, end, limit = wanted
        size = 0
        batches = self._host.scan(start, end, version, reverse=reverse, limit=limit)
        ends = thread_time() + max_s

        def in_time() -> Iterator[Rows]:
            for batch in batches:
                yield batch
                if thread_time() > ends:
                    rows.more = True
                    return

        for key, value in islice((row for batch in in_time() for row in batch), limit):
            if size >= max_bytes:
                rows.more = True
                break
            rows.keys.append(key)
            rows.values.append(value)
            size += len(key) + len(value) + ROW_BYTES
        batches.close()  # type: ignore[attr-defined]
        return size

    def _history(self, _: pb.Request, history: pb.History) -> pb.Response:
        check_key(history.key)
        version, holder = self._page_of(
            history.lease, history.at if history.HasField("at") else None, self._host.oldest()
        )
        entries = pb.Entries()
        try:
            size = 0
            found = self._host.history(history.key, version)
            for at, (written, value) in enumerate(found):
                if size >= PAGE_BYTES:
                    entries.more = True
                    break
                if value is None:
                    entries.deleted.append(at)
                entries.versions.append(written)
                entries.values.append(value or b"")
                size += ROW_BYTES + len(value or b"")
            found.close()  # type: ignore[attr-defined]
        finally:
            self._keep(history.lease, holder, entries.more)
        return pb.Response(version=version, entries=entries)

    def _at(self, _: pb.Request, at: pb.At) -> pb.Response:
        question = at.WhichOneof("question")
        if question == "version":
            return pb.Response(version=self._host.at(at.version))
        if question == "time":
            return pb.Response(version=self._host.at_time(at.time))
        if question == "time_of":
            time = self._host.time_of(at.time_of)
            return pb.Response() if time is None else pb.Response(version=time)
        return pb.Response(version=self._host.version())

    def _facts(self, _: pb.Request, __: pb.Facts) -> pb.Response:
        return pb.Response(facts=pb.Known(oldest=self._host.oldest(), pins=self._host.pins()))

    # ---- writing

    def _write(self, request: pb.Request, write: pb.Write) -> None:
        if not write.sequence:
            raise WireError("a write has no sequence number")
        values = self._values_of(request, write.writes)
        if values is None:
            return
        if write.label:
            check_label(write.label)
        txn_id = TxnId(self._client, write.sequence)
        gsn, verdict = self._host.commits.submit(
            checked_writes(write.writes, values),
            label=write.label,
            conditions=conditions_from(write.conditions) if write.conditions else (),
            txn_id=txn_id,
        )
        wanted = any(self._is_contended(condition.key) for condition in write.conditions)
        self._unsynced.append(PendingWrite(request.id, txn_id, gsn, verdict, None, wanted))

    def _is_contended(self, key: bytes) -> bool:
        """Whether another client has its turn at the key."""
        holder = self._turns.holder(key)
        return holder is not None and holder not in self._leases.values()

    def _begin(self, request: pb.Request, begin: pb.Begin) -> pb.Response | None:
        if not begin.lease or begin.lease in self._leases:
            raise WireError(f"{begin.lease} is no new lease")
        self._check_leases()
        holder = object()
        if begin.HasField("at"):
            at = self._host.at(begin.at) if begin.read_only else self._at_version(begin.at)
            self._host.snapshots.lease(holder, at)
            self._lease(begin.lease, holder)
            return pb.Response(version=begin.at)
        if begin.HasField("key"):
            check_key(begin.key)
        self._lease(begin.lease, holder)
        if begin.HasField("key") and not begin.read_only:
            in_turn = functools.partial(self._begin_in_turn, request.id, begin, holder)
            if not self._turns.enter(begin.key, holder, in_turn):
                self._in_line.add(begin.lease)
                return None
        return self._begun(request.id, begin, holder)

    def _begin_in_turn(self, request: int, begin: pb.Begin, holder: object) -> None:
        self._in_line.discard(begin.lease)
        try:
            response = self._begun(request, begin, holder)
        except Exception as error:
            self._fail(request, error)
        else:
            if response is not None:
                response.id = request
                self._answer(response)

    def _begun(self, request: int, begin: pb.Begin, holder: object) -> pb.Response | None:
        try:
            version = self._host.snapshots.begin(holder, read_only=begin.read_only)
            value = self._host.get_in_parts(begin.key, version, PART_BYTES) if begin.HasField("key") else None
        except Exception:
            self._release(begin.lease)
            raise
        if isinstance(value, OutgoingValue):
            self._answer_value(pb.Response(id=request, version=version), value)
            return None
        return pb.Response(version=version) if value is None else pb.Response(version=version, value=value)

    def _end(self, _: pb.Request, end: pb.End) -> None:
        self._release(end.lease)

    def _release(self, lease: int) -> None:
        holder = self._leases.pop(lease, None)
        if holder is not None:
            self._user.leases -= 1
            self._in_line.discard(lease)
            self._host.end(holder)
            self._turns.leave(holder)

    def _commit(self, request: pb.Request, commit: pb.Commit) -> pb.Response | None:
        values = self._values_of(request, commit.writes)
        if values is None:
            return None
        try:
            txn_id = TxnId(self._client, commit.sequence)
            if commit.incarnation not in (0, self._host.incarnation):
                self._check_committed(txn_id, commit.snapshot)
            if not commit.sequence:
                self._later(request, self._settled(commit.snapshot))
                return None
            for key in commit.reads:
                check_key(key)
            if commit.label:
                check_label(commit.label)
            gsn, verdict = self._host.commits.submit(
                checked_writes(commit.writes, values),
                snapshot=self._at_version(commit.snapshot),
                label=commit.label,
                reads=list(commit.reads),
                ranges=ranges_from(commit.ranges),
                txn_id=txn_id,
            )
        finally:
            self._release(commit.lease)
        self._unsynced.append(PendingWrite(request.id, txn_id, gsn, verdict, commit.snapshot))
        return None

    def _check_committed(self, txn_id: TxnId, snapshot: int) -> None:
        """A transaction with a snapshot that another incarnation had not made durable can only have committed there.
        Raises ConflictError."""
        if not txn_id.sequence or not self._host.commits.has_record_of(txn_id):
            raise ConflictError.restarted(snapshot)

    async def _settled(self, version: int) -> pb.Response:
        """What a transaction has read that wrote nothing is durable."""
        self._at_version(version)
        try:
            await self._coroutines.acknowledgements.wait(version, None)
        except OutcomeUnknown as error:
            raise Unavailable(error.cause) from error
        return pb.Response(version=version)

    def _sync(self) -> None:
        """Have what was submitted made durable, all of it together, and answer then."""
        unsynced, self._unsynced = self._unsynced, []
        self._syncs += 1
        self._coroutines.acknowledgements.notify(
            unsynced[-1].gsn, functools.partial(self._synced, unsynced), unsynced[0].gsn
        )

    def _synced(self, unsynced: list[PendingWrite], failure: BaseException | None) -> None:
        self._syncs -= 1
        durable = self._host.log.durable
        for written in unsynced:
            try:
                if failure is not None and written.gsn > durable:
                    raise OutcomeUnknown(str(written.txn_id), getattr(failure, "cause", repr(failure)))
                response = self._outcome_of(written)
                self._answer(response, reads=response.HasField("undone"))
            except Exception as error:
                self._fail(written.id, error)
        self._advanced.tell()

    def _outcome_of(self, written: PendingWrite) -> pb.Response:
        verdict = written.verdict
        gsn = written.gsn
        if not verdict.committed:
            gsn, verdict = self._host.commits.decided_first(written.txn_id, gsn, verdict)
            if not verdict.committed:
                if written.snapshot is not None:
                    self._turns.mark_contended(verdict.key)
                    raise self._host.commits.conflict(verdict, written.snapshot)
                return pb.Response(id=written.id, version=gsn, undone=pb.Undone(failed=verdict.failed))
        return pb.Response(id=written.id, version=gsn, wanted=written.wanted)

    # ---- what waits

    def _outcome(self, request: pb.Request, asked: pb.Outcome) -> None:
        if asked.settle and self._right < Right.WRITE:
            raise self._denied(Right.WRITE)
        if asked.sequence >> 63:
            raise WireError(f"{asked.sequence} is no sequence number")

        async def answer() -> pb.Response:
            outcome = await self._coroutines.outcome(TxnId(asked.client, asked.sequence), asked.settle)
            return pb.Response(version=outcome.version, ended=pb.Ended(status=outcome.status.name))

        self._later(request, answer())

    def _watch(self, request: pb.Request, watch: pb.Watch) -> None:
        host = self._host
        since = watch.since if watch.HasField("since") else None
        prefix = watch.prefix if watch.HasField("prefix") else None
        feed = host.feed(since, prefix, frozenset(watch.keys) if watch.has_keys else None)
        self._later(request, self._changes(feed, min(watch.wait_ms / 1000, LONGEST_WATCH_S)))

    async def _changes(self, feed: Feed, wait_s: float) -> pb.Response:
        time = asyncio.get_running_loop().time
        deadline = time() + wait_s
        found, size = pb.Changes(), 0
        try:
            while True:
                told = self._advanced.future()
                async with self._producing():
                    since = time()
                    while size < PAGE_BYTES and (feed.has_ready or feed.read(0)):
                        if feed.has_ready:
                            encoded = change_to(feed.take())
                            found.changes.append(encoded)
                            size += encoded.ByteSize()
                        if time() - since > self._user.left_s:
                            self._user.spend(time() - since)
                            await self._user.let_others()
                            since = time()
                    self._user.spend(time() - since)
                left = deadline - time()
                if found.changes or left <= 0 or self.draining.is_set():
                    return pb.Response(version=feed.since, changes=found)
                await asyncio.wait((told,), timeout=left)
        finally:
            feed.close()

    def _pin(self, request: pb.Request, pin: pb.Pin) -> None:
        async def answer() -> pb.Response:
            check_pin(pin.name)
            version = pin.version if pin.HasField("version") else None
            return pb.Response(version=await self._coroutines.pin(pin.name, version))

        self._later(request, answer(), reads=False)

    def _unpin(self, request: pb.Request, unpin: pb.Unpin) -> None:
        async def answer() -> pb.Response:
            await self._coroutines.unpin(unpin.name)
            return pb.Response()

        self._later(request, answer(), reads=False)

    def _progress(self, request: int) -> Callable[[int], None]:
        """To be called in any thread: tells the client how far its upkeep has come."""
        loop = asyncio.get_running_loop()

        def progress(done: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._answer, pb.Response(id=request, progress=done))

        return progress

    def _compact(self, request: pb.Request, compact: pb.Compact) -> None:
        async def answer() -> pb.Response:
            before = compact.before if compact.HasField("before") else None
            done = await self._coroutines.compact(before, self._progress(request.id))
            return pb.Response(compacted=pb.Compacted(**done._asdict()))

        self._later(request, answer(), reads=False)

    def _checkpoint(self, request: pb.Request, _: pb.Checkpoint) -> None:
        async def answer() -> pb.Response:
            return pb.Response(version=await self._coroutines.checkpoint(self._progress(request.id)))

        self._later(request, answer(), reads=False)

    def _layout(self, request: pb.Request, layout: pb.Layout) -> None:
        self._in_thread(request, log_export.layout, self._host, self._host.at(layout.version))

    def _frames(self, request: pb.Request, frames: pb.Frames) -> None:
        self._in_thread(request, log_export.frames, self._host, frames.first, frames.end)

    def _aborted(self, request: pb.Request, asked: pb.Aborted) -> None:
        self._in_thread(request, log_export.aborted, self._host, asked.first, asked.end)

    def _in_thread(self, request: pb.Request, make: Callable[..., pb.Response], *arguments: Any) -> None:
        async def answer() -> pb.Response:
            async with self._producing():
                return await asyncio.to_thread(make, *arguments)

        self._later(request, answer())


def _range_of(asked: pb.Scan | pb.ScanRange) -> ScanRange:
    """Raises ValueError, KeyTooLarge."""
    start = asked.start if asked.HasField("start") else None
    end = asked.end if asked.HasField("end") else None
    limit = asked.limit if asked.HasField("limit") else None
    key_range(start, end, None, limit)
    return ScanRange(start, end, limit)
