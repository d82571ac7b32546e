"""The database of a server, for the coroutines of one event loop: an AsyncBackend over a connection."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final
from weakref import WeakSet

from logdb.api.backend import AsyncChangeFeed, Progress
from logdb.api.results import Change, Compacted
from logdb.clients.lazy_snapshot import RequestBackend
from logdb.clients.pages import (
    PageRows,
    RangePage,
    end_of,
    history_pages,
    multi_scan_pages,
    rest_of,
    scan_pages,
)
from logdb.clients.server_connection import Answer, ServerConnection
from logdb.errors import ConflictError, DatabaseClosed, FutureVersion, Unavailable, VersionTrimmed
from logdb.store.key_map import Rows
from logdb.store.limits import check_label
from logdb.store.ranges import ScanRange
from logdb.store.records import Condition, Fold, Range, TxnId
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.measures import decode_measures
from logdb.txn.speculation import ConditionalReply, SpeculatedWrites, Speculation
from logdb.txn.transaction import Workspace
from logdb.txn.validation import COMMITTED, Reason, Verdict
from logdb.wire.database_codec import (
    PAGE_KEYS,
    PAGE_RANGES,
    PART_BYTES,
    change_from,
    conditions_to,
    entries_from,
    fill_request,
    folds_to,
    keys_to,
    ranges_to,
    values_from,
)
from logdb.wire.limits import MAX_POSITION, WireError
from logdb.wire.proto import database_pb2 as pb

UPKEEP_S: Final = 60.0
"""Timeout between two progress messages of upkeep, which may take long."""
WATCH_S: Final = 5.0
"""Longest wait of one watch request; the feed then sends the next one."""


class LeasedSnapshot:
    """A snapshot that servers keep, under the number of a lease. `answer`: to the request for it.

    `version`: None until the holder has seen the answer. `incarnation`: of the database that granted it. `is_lost`:
    that incarnation has ended without reporting the version as durable, or no stream may have the lease.
    """

    __slots__ = ("answer", "incarnation", "is_lost", "lease", "version")

    def __init__(self, lease: int) -> None:
        self.lease, self.incarnation, self.is_lost = lease, 0, False
        self.version: int | None = None
        self.answer: Answer | None = None


class RemoteBackend(RequestBackend):
    """A database behind servers. `connect` makes one."""

    def __init__(self, connection: ServerConnection[Answer], session: int | None = None) -> None:
        self.path = ",".join(connection.endpoints)
        self._client = connection.client
        self._sequence = 0
        self._lease = 0
        self._leases: dict[object, LeasedSnapshot] = {}
        self.speculation = Speculation(connection.clock)
        self._feeds: WeakSet[RemoteFeed] = WeakSet()
        self.connection = connection
        connection.seen = session or 0
        connection.on_restart, connection.first_requests = self._restarted, self._restored

    @classmethod
    async def connect(cls, connection: ServerConnection[Answer], session: int | None = None) -> RemoteBackend:
        """Connect to one of the servers. Reads see version `session` and later ones. Raises Unavailable, AccessDenied,
        ProtocolMismatch."""
        backend = cls(connection, session)
        await connection.open()
        return backend

    @property
    def database(self) -> bytes:
        """The identity of its log."""
        return self.connection.database

    @property
    def closed(self) -> bool:
        """See `Backend.closed`."""
        return self.connection.closed

    @property
    def forked_from(self) -> int:
        """See `Backend.forked_from`."""
        return self.connection.forked_from

    # ---- versions

    @property
    def session(self) -> int:
        """The newest version that any answer has named."""
        return self.connection.seen

    async def version(self) -> int:
        """See `Backend.version`."""
        return (await self.connection.call(pb.Request(at=pb.At()))).version

    async def oldest(self) -> int:
        """See `Backend.oldest`."""
        return (await self.connection.call(pb.Request(facts=pb.Facts()))).facts.oldest

    async def at(self, version: int) -> int:
        """See `Backend.at`."""
        return (await self.connection.call(pb.Request(at=pb.At(version=_sendable(version, self.session))))).version

    async def at_time(self, when: int) -> int:
        """See `Backend.at_time`."""
        try:
            response = await self.connection.call(pb.Request(at=pb.At(time=min(max(when, 0), MAX_POSITION))))
        except FutureVersion as error:
            raise FutureVersion.of_time(when, error.newest) from error
        return response.version

    async def time_of(self, version: int) -> int | None:
        """See `Backend.time_of`."""
        response = await self.connection.call(pb.Request(at=pb.At(time_of=_sendable(version, self.session))))
        return response.version if response.HasField("version") else None

    # ---- reading

    async def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """See `Backend.get`."""
        request = pb.Request()
        request.get.key = key
        if at is not None:
            request.get.at = at
        response = await self.connection.call(request)
        return response.value if response.HasField("value") else None

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `Backend.multi_get`."""
        found: list[tuple[bytes, bytes]] = []
        lease = self.new_lease()
        left, version = keys, at
        page = _page_of(keys)
        try:
            if at is None and len(page) < len(keys):
                begin = pb.Begin(lease=lease, read_only=True)
                version = (await self.connection.call(pb.Request(begin=begin))).version
            while True:
                request = pb.MultiGet(keys=page, lease=lease if at is None else 0)
                if version is not None:
                    request.at = version
                response = await self.connection.call(pb.Request(multi_get=request))
                version, values = response.version, response.values
                found += values_from(page, values)
                if len(values.values) >= len(left):
                    return version, found
                if not values.values:
                    raise WireError("a page of values is empty, and not the last")
                left = left[len(values.values) :]
                page = _page_of(left)
        finally:
            if at is None and (version is None or left is not keys or len(page) < len(keys)):
                self._end_lease(lease)

    async def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """See `Backend.scan`: a page is requested when it is needed."""
        lease = PageLease(self)

        async def page(requested: ScanRange, at: int | None) -> RangePage:
            start, end, limit = requested
            lease.is_open = True
            request = pb.Scan(
                start=start, end=end, at=at, reverse=reverse, limit=limit, lease=lease.number, resumes=True
            )
            response = await self.connection.call(pb.Request(scan=request))
            rows = response.rows
            lease.is_open = rows.more
            return RangePage(response.version, *_page_rows(rows, reverse))

        try:
            async for batch in scan_pages(page, ScanRange(start, end, limit), at, reverse=reverse):
                yield batch
        finally:
            lease.end()

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `Backend.multi_scan`."""
        lease = PageLease(self)

        async def page(requested: list[ScanRange], at: int | None) -> tuple[int, list[PageRows]]:
            lease.is_open = True  # the server does not know whether there are more ranges than in the request
            request = pb.MultiScan(
                ranges=ranges_to(requested), at=at, reverse=reverse, lease=lease.number, resumes=True
            )
            response = await self.connection.call(pb.Request(multi_scan=request))
            pages = _pages_of(response, reverse)
            is_last = len(pages) == len(requested) and all(rest is None for _, rest in pages)
            lease.is_open = not is_last or len(ranges) > PAGE_RANGES
            return response.version, pages

        try:
            return await multi_scan_pages(page, ranges, at, reverse=reverse, max_ranges=PAGE_RANGES)
        finally:
            lease.end()

    async def history(self, key: bytes, at: int | None = None) -> AsyncIterator[tuple[int, bytes | None]]:
        """See `Backend.history`."""
        lease = PageLease(self)

        async def page(at: int | None) -> tuple[list[tuple[int, bytes | None]], bool]:
            lease.is_open = True
            request = pb.History(key=key, at=at, lease=lease.number)
            entries = (await self.connection.call(pb.Request(history=request))).entries
            lease.is_open = entries.more
            return entries_from(entries), entries.more

        try:
            async for entry in history_pages(page, at):
                yield entry
        finally:
            lease.end()

    # ---- writing

    def new_txn_id(self) -> TxnId:
        """See `Backend.new_txn_id`."""
        self._sequence += 1
        return TxnId(self._client, self._sequence)

    async def write(
        self,
        writes: Mapping[bytes, bytes | None],
        label: str = "",
        conditions: Sequence[Condition] = (),
        deletes: Sequence[Range] = (),
        appended: int = 0,
        folds: Sequence[Fold] = (),
    ) -> tuple[int, Verdict]:
        """See `Backend.write`."""
        if label != "":
            check_label(label)
        self.speculation.forget(writes)  # the next transaction reads them from a server
        self.speculation.forget(fold.key for fold in folds)
        self.speculation.forget_ranges(deletes)
        txn_id = self.new_txn_id()
        request, large = _write_request(txn_id, writes, label, conditions, deletes, appended, folds)
        response = await self.connection.call(request, txn_id, large=large)
        if response.HasField("undone"):
            failed = tuple(response.undone.failed)
            if any(at >= len(conditions) for at in failed):
                raise WireError(f"conditions {failed} of {len(conditions)} have failed")
            return response.version, Verdict(Reason.CONDITION, failed=failed)
        return response.version, COMMITTED

    async def begin(self, work: Workspace, first_key: bytes | None) -> bytes | None:
        """See `RequestBackend.begin`."""
        work.since = self.speculation.clock()
        leased = self._begun(work, pb.Begin(lease=self.new_lease(), read_only=work.read_only, key=first_key))
        try:
            response = await self._granted(leased)
        except BaseException:
            self.end(work)
            raise
        work.snapshot = response.version
        return response.value if response.HasField("value") else None

    async def first_multi_get(self, work: Workspace, keys: list[bytes]) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `RequestBackend.first_multi_get`: one journey."""
        page = _page_of(keys)
        values = (await self._begin_and_read(work, pb.Request(multi_get=pb.MultiGet(keys=page)))).values
        found = list(values_from(page, values))
        if left := keys[len(values.values) :]:
            found += (await self.multi_get(left, work.snapshot))[1]
        return work.snapshot, found

    async def first_multi_scan(
        self, work: Workspace, ranges: Sequence[ScanRange], *, reverse: bool
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `RequestBackend.first_multi_scan`: one journey for the first page."""

        async def page(requested: list[ScanRange], at: int | None) -> tuple[int, list[PageRows]]:
            scan = pb.MultiScan(ranges=ranges_to(requested), at=at, reverse=reverse, resumes=True)
            request = pb.Request(multi_scan=scan)
            response = await (self._begin_and_read(work, request) if at is None else self.connection.call(request))
            return response.version, _pages_of(response, reverse)

        return await multi_scan_pages(page, ranges, None, reverse=reverse, max_ranges=PAGE_RANGES)

    async def first_page(
        self, work: Workspace, requested: ScanRange, *, reverse: bool
    ) -> tuple[list[tuple[bytes, bytes]], ScanRange | None]:
        """See `RequestBackend.first_page`: one journey."""
        request = pb.Request(multi_scan=pb.MultiScan(ranges=ranges_to([requested]), reverse=reverse, resumes=True))
        ((rows, bound),) = _pages_of(await self._begin_and_read(work, request), reverse)
        rest = None if bound is None else rest_of(requested, rows, bound, reverse)
        return list(rows), None if rest is None or rest.limit == 0 else rest

    async def _begin_and_read(self, work: Workspace, request: pb.Request) -> pb.Response:
        """Take a transaction's snapshot and send a read at it, without waiting in between: the answer to the read."""
        work.since = self.speculation.clock()
        begin = pb.Begin(lease=self.new_lease(), read_only=work.read_only)
        (request.multi_get if request.HasField("multi_get") else request.multi_scan).snapshot_of = begin.lease
        leased = self._begun(work, begin)
        reading = self.connection.call(request)
        try:
            work.snapshot = (await self._granted(leased)).version
            return await reading
        except BaseException:
            reading.cancel()
            self.end(work)
            raise

    def end(self, holder: object) -> None:
        """See `Backend.end`."""
        leased = self._leases.get(holder)
        if leased is not None:
            self._end_lease(leased.lease)
            self._leases.pop(holder, None)  # last: Ctrl-C may come before it, and `end` again

    async def commit(self, work: Workspace) -> int:
        """See `Backend.commit`."""
        try:
            version = await self._commit(work, self._leases.get(work))
        except BaseException:
            self.end(work)  # the server ends the lease only with a commit that it receives
            raise
        self._leases.pop(work, None)
        return version

    async def _commit(self, work: Workspace, leased: LeasedSnapshot | None) -> int:
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if work.speculated is not None:
            return await self._commit_speculated(work, work.speculated)
        request = pb.Request()
        commit = request.commit
        commit.snapshot = work.snapshot
        if leased is not None:
            if leased.is_lost:
                raise ConflictError.restarted(work.snapshot)
            commit.lease = leased.lease
            if work.snapshot > self.connection.seen:
                commit.incarnation = leased.incarnation
        if work.writes_nothing:
            if commit.incarnation:  # what was read is not durable yet
                return (await self.connection.call(request)).version
            if leased is not None:
                self._end_lease(leased.lease)
            return work.snapshot
        txn_id = work.known_id or self.new_txn_id()
        commit.sequence, commit.label = txn_id.sequence, work.label
        commit.reads.extend(work.guarded_keys)
        large = fill_request(commit.writes, work.all_writes)
        commit.appended = work.append_count
        if ranges := work.guarded_ranges:
            commit.ranges.extend(keys_to(ranges))
        if work.deletes:
            commit.deletes.extend(keys_to(work.deletes))
            self.speculation.forget_ranges(work.deletes)
        if work.folds:
            commit.folds.extend(folds_to(work.all_folds))
            self.speculation.forget(work.folds)
        with self.speculation.committing(work.writes, work.read_set.keys, work.since):
            try:
                return (await self.connection.call(request, txn_id, large=large)).version
            except VersionTrimmed:  # the server raises it only if the commit was not applied
                raise ConflictError.compacted(work.snapshot) from None

    async def _commit_speculated(self, work: Workspace, speculated: SpeculatedWrites) -> int:
        """Commit if the keys that were read have the speculated values. Raises Misspeculated."""
        txn_id = work.known_id or self.new_txn_id()

        async def send(conditions: list[Condition]) -> ConditionalReply:
            request, large = _write_request(
                txn_id, work.all_writes, work.label, conditions, work.deletes, work.append_count, work.all_folds
            )
            response = await self.connection.call(request, txn_id, large=large)
            return ConditionalReply(response.version, not response.HasField("undone"), response.wanted)

        self.speculation.forget_ranges(work.deletes)
        self.speculation.forget(work.folds)
        return await self.speculation.commit(work.writes, work.read_set.keys, speculated, send)

    async def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome:
        """See `Backend.outcome`."""
        request = pb.Outcome(client=txn_id.client, sequence=txn_id.sequence, settle=settle)
        response = await self.connection.call(pb.Request(outcome=request))
        if response.ended.status not in Status.__members__:
            raise WireError(f"a transaction ended as {response.ended.status!r}")
        return Outcome(Status[response.ended.status], response.version)

    # ---- following, upkeep

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> RemoteFeed:
        """See `Backend.feed`."""
        feed = RemoteFeed(self.connection, None if since is None else _sendable(since, self.session), prefix, keys)
        self._feeds.add(feed)
        feed.on_end = self._feeds.discard
        return feed

    async def pins(self) -> dict[str, int]:
        """See `Backend.pins`."""
        return dict((await self.connection.call(pb.Request(facts=pb.Facts()))).facts.pins)

    async def measures(self) -> dict[str, Any]:
        """See `Backend.measures`. Raises WireError, too."""
        known = (await self.connection.call(pb.Request(facts=pb.Facts(measures=True)))).facts
        try:
            return decode_measures(known.measures)
        except ValueError as error:
            raise WireError(f"the server's measures cannot be read: {error}") from error

    async def pin(self, name: str, version: int | None) -> int:
        """See `Backend.pin`."""
        request = pb.Pin(name=name, version=None if version is None else _sendable(version, self.session))
        return (await self.connection.call(pb.Request(pin=request))).version

    async def unpin(self, name: str) -> None:
        """See `Backend.unpin`."""
        await self.connection.call(pb.Request(unpin=pb.Unpin(name=name)))

    async def compact(self, before: int | None, progress: Progress = None) -> Compacted:
        """See `Backend.compact`."""
        request = pb.Compact(before=None if before is None else _sendable(before, self.session))
        done = (await self._upkeep(pb.Request(compact=request), progress)).compacted
        return Compacted(*[getattr(done, name) for name in Compacted._fields])

    async def checkpoint(self, progress: Progress = None) -> int:
        """See `Backend.checkpoint`."""
        return (await self._upkeep(pb.Request(checkpoint=pb.Checkpoint()), progress)).version

    def _upkeep(self, request: pb.Request, progress: Progress) -> Answer:
        timeout_s = max(UPKEEP_S, self.connection.timeout_s)
        return self.connection.call(request, timeout_s=timeout_s, progress=progress)

    async def close(self) -> None:
        """See `Backend.close`: waits for the answers to writes that were sent."""
        self.connection.refuse_calls()
        for feed in list(self._feeds):
            await feed.close()
        await self.connection.close()

    # ---- the log itself

    async def layout(self, version: int, since: int | None = None) -> pb.Laid:
        """The files and records of the snapshot at a version, and of the changes after `since`. Raises Unavailable."""
        return (await self.connection.call(pb.Request(layout=pb.Layout(version=version, since=since)))).laid

    async def frames(self, first: int, end: int) -> tuple[bytes, int]:
        """(frames of the records from `first` on, the next record after them). Raises VersionTrimmed."""
        response = await self.connection.call(pb.Request(frames=pb.Frames(first=first, end=end)))
        page = response.page
        if not first < page.next <= end:
            raise WireError(f"a page of records from {first} to before {end} ends at {page.next}")
        return page.frames, page.next

    async def aborted(self, first: int, end: int) -> list[int]:
        """The commit records from `first` to before `end` that were not applied. Raises VersionTrimmed."""
        request = pb.Request(aborted=pb.Aborted(first=first, end=end))
        return list((await self.connection.call(request)).not_applied.gsns)

    # ---- leases

    async def lease(self, holder: object, version: int) -> None:
        """Keep a version readable until `end(holder)`, or until the stream is lost and the next server does not grant
        the lease again. Raises VersionTrimmed."""
        leased = LeasedSnapshot(self.new_lease())
        leased.answer = self.connection.call(pb.Request(begin=pb.Begin(lease=leased.lease, read_only=True, at=version)))
        try:
            await self._granted(leased)
        except BaseException:
            self._end_lease(leased.lease)
            raise
        self.end(holder)
        self._leases[holder] = leased

    def _begun(self, work: Workspace, begin: pb.Begin) -> LeasedSnapshot:
        """Request a snapshot. From here on it is the transaction's, so `end` ends it whenever an interrupt (Ctrl-C)
        comes."""
        self.end(work)
        leased = self._leases[work] = LeasedSnapshot(begin.lease)
        leased.answer = self.connection.call(pb.Request(begin=begin))
        return leased

    async def _granted(self, leased: LeasedSnapshot) -> pb.Response:
        """The answer to the request for a snapshot."""
        assert leased.answer is not None
        response = await leased.answer
        leased.version, leased.incarnation = response.version, self.connection.incarnation
        return response

    def _end_lease(self, lease: int) -> None:
        self.connection.notify(pb.Request(end=pb.End(lease=lease)))

    def new_lease(self) -> int:
        """A number that no lease of this client has had."""
        self._lease += 1
        return self._lease

    def _restored(self) -> list[pb.Request]:
        """The requests that lease the snapshots of running transactions again, for a new stream, which also sends the
        requests of feeds again."""
        requests = []
        for feed in list(self._feeds):
            feed.sent_again()
        for leased in self._leases.values():
            if leased.version is None:  # its request is sent again, unless it was answered: then the answer is void
                leased.is_lost = leased.is_lost or (leased.answer is not None and leased.answer.done())
            elif not leased.is_lost:
                requests.append(pb.Request(begin=pb.Begin(lease=leased.lease, at=leased.version)))
        return requests

    def _restarted(self) -> None:
        """Mark the leases that the new incarnation may not have: versions that were not reported as durable."""
        for leased in self._leases.values():
            leased.is_lost = leased.is_lost or (leased.version is not None and leased.version > self.connection.seen)

    def check_lease(self, holder: object) -> None:
        """See `RequestBackend.check_lease`."""
        leased = self._leases.get(holder)
        if leased is not None and leased.is_lost:
            raise ConflictError.restarted(leased.version or 0)


class PageLease:
    """The lease on the version of a long answer, which servers keep from page to page under `number`.

    `is_open`: whether a server may keep it.
    """

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend = backend
        self.number = backend.new_lease()
        self.is_open = False

    def end(self) -> None:
        """End the lease, if a server may keep it."""
        if self.is_open:
            self._backend.connection.notify(pb.Request(end=pb.End(lease=self.number)))


class RemoteFeed(AsyncChangeFeed):
    """Commits from a version on, in pages. The first page is requested at once: it fixes the version of a feed from now
    on."""

    def __init__(
        self,
        connection: ServerConnection[Answer],
        since: int | None,
        prefix: bytes | None,
        keys: Collection[bytes] | None,
    ) -> None:
        self._connection, self._since, self._prefix, self._keys = connection, since, prefix, keys
        self._ready: list[Change] = []
        self._closed = False
        self.on_end: Callable[[RemoteFeed], None] | None = None
        self._seen = connection.seen
        self._request = pb.Request()
        self._page: Answer | None = self._ask(0)

    def _ask(self, wait_s: float) -> Answer:
        watch = pb.Watch(
            since=self._since,
            prefix=self._prefix,
            has_keys=self._keys is not None,
            keys=self._keys or (),
            wait_ms=math.ceil(wait_s * 1000),
        )
        self._request = pb.Request(watch=watch)
        return self._connection.call(self._request, timeout_s=self._connection.timeout_s + wait_s)

    def sent_again(self) -> None:
        """The request is sent again over a new stream. The version of a feed from now on is not fixed then, and commits
        may have been acknowledged on the stream before: all after the version that the client had seen belong to it."""
        if self._since is None and self._seen:
            self._request.watch.since = self._seen

    async def begun(self) -> None:
        """See `AsyncChangeFeed.begun`."""
        self._check_process()
        if self._page is not None:
            await self._take(self._page)

    async def poll(self, timeout: float | None) -> Change | None:
        """See `ChangeFeed.poll`."""
        clock = self._connection.clock
        deadline = None if timeout is None else clock() + timeout
        while not self._ready:
            self._check_process()
            if self._closed or self._connection.closed:
                return None
            left = WATCH_S if deadline is None else min(WATCH_S, max(0.0, deadline - clock()))
            if self._page is None:
                if self._since is None:  # another request would begin at a newer version
                    raise Unavailable("the version after which this feed runs was not received: watch again")
                self._page = self._ask(left)
            await self._take(self._page)
            if deadline is not None and not self._ready and clock() >= deadline:
                return None
        return self._ready.pop()

    def _check_process(self) -> None:
        """Raises DatabaseClosed in a child of fork(), where no answer comes."""
        if self._connection.forked_from:
            raise DatabaseClosed(",".join(self._connection.endpoints), self._connection.forked_from)

    async def _take(self, page: Answer) -> None:
        try:
            response = await page
        except DatabaseClosed:
            if self._closed:
                return
            raise
        finally:
            self._page = None
        if self._closed:
            return
        self._since = response.version
        self._ready = [change_from(change) for change in reversed(response.changes.changes)]

    async def close(self) -> None:
        """See `ChangeFeed.close`."""
        self.end()

    def end(self) -> None:
        """As `close`."""
        self._closed = True
        if self._page is not None and not self._page.done():
            self._page.set_result(pb.Response())  # a cancellation would look like that of the task that polls
        if self.on_end is not None:
            self.on_end(self)


def _write_request(
    txn_id: TxnId,
    writes: Mapping[bytes, bytes | None],
    label: str,
    conditions: Sequence[Condition],
    deletes: Sequence[Range],
    appended: int,
    folds: Sequence[Fold],
) -> tuple[pb.Request, list[bytes]]:
    """The request, and the large values that are sent beside it."""
    request = pb.Request()
    write = request.write
    write.sequence = txn_id.sequence
    large = fill_request(write.writes, writes)
    if label:
        write.label = label
    if conditions:
        write.conditions.extend(conditions_to(conditions))
    if deletes:
        write.deletes.extend(keys_to(deletes))
    if appended:
        write.appended = appended
    if folds:
        write.folds.extend(folds_to(folds))
    return request, large


def _pages_of(response: pb.Response, reverse: bool) -> list[PageRows]:
    return [_page_rows(rows, reverse) for rows in response.multi_rows.ranges]


def _page_rows(page: pb.Rows, reverse: bool) -> PageRows:
    rows = list(zip(page.keys, page.values, strict=True))
    if not page.more:
        return rows, None
    return rows, page.rest if page.HasField("rest") else end_of(rows, reverse)


def _page_of(keys: list[bytes]) -> list[bytes]:
    """The first of the keys, as many as fit into one message."""
    page = keys[:PAGE_KEYS]
    if sum(map(len, page)) > PART_BYTES // 2:
        sizes = accumulate(map(len, page))
        page = page[: 1 + sum(1 for size in sizes if size <= PART_BYTES // 2)]
    return page


def _sendable(version: int, newest: int) -> int:
    """`version`, if a message can carry it. Raises FutureVersion."""
    if version > MAX_POSITION:
        raise FutureVersion(version, newest)
    return version
