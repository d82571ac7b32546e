"""The database of a cluster, for the coroutines of one event loop: an AsyncBackend over the core `DatabaseClient`.

The core finds a server that answers, retries with another one, and reports the outcome of a commit only if it is
certain. This module sends the core requests, and makes the results of `Backend` of its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from logdb.api.backend import Progress
from logdb.api.results import Compacted
from logdb.clients.cluster_feed import ClusterFeed
from logdb.clients.cluster_tail import ClusterTail, started
from logdb.clients.core_client import HostedClient, resolve, unwrap
from logdb.clients.lazy_snapshot import LazySnapshotReader, RequestBackend
from logdb.clients.pages import PageRows, RangePage, history_pages, multi_scan_pages, scan_pages
from logdb.cluster import messages
from logdb.cluster.client import requests as calls
from logdb.cluster.client.database_client import DatabaseClient, DatabaseConfig
from logdb.cluster.messages import MAX_RANGES, Floor
from logdb.cluster.placement import Placement
from logdb.cores.effects import Address, Journal
from logdb.errors import (
    ConflictError,
    DatabaseClosed,
    FutureVersion,
    LogDBError,
    NotANumber,
    Unavailable,
    VersionTrimmed,
)
from logdb.log.contract import LogFailed
from logdb.log.engine import ENGINES, MAX_HEADER_BYTES, Right, engine_of
from logdb.log.requests import ClientConfig
from logdb.node.host import Build
from logdb.security.credentials import NONE, Credentials
from logdb.store.key_map import Rows
from logdb.store.limits import check_key, check_label
from logdb.store.ranges import ScanRange
from logdb.store.records import Condition, Fold, Range, TxnId
from logdb.system.forking import own
from logdb.transport.discovery import client_hello, mapping_servers
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.measures import decode_measures
from logdb.txn.speculation import ConditionalReply, SpeculatedWrites, Speculation
from logdb.txn.transaction import Workspace
from logdb.txn.validation import SETTLED, Reason, Verdict
from logdb.wire.limits import MAX_POSITION, MAX_RECORD_BYTES, WireError

FIRST_ROWS: Final = 256
MAX_ROWS: Final = 4_096
"""Number of rows of the first page, and of the largest one; each page has four times as many as the one before."""
BOUNDS_BYTES: Final = 1 << 20
"""Approximate maximum size of the bounds of the ranges in one request."""
SEARCH_INTERVAL_S: Final = 5.0
"""Minimum interval between two searches for the mapping servers."""
Ask = Callable[[Any, int | None], Awaitable[Any]]
"""Sends a read at a version; None: the newest."""


class ClusterAccess(NamedTuple):
    """The name and addresses of a cluster, the credentials of this client, and its right."""

    cluster: str
    ordering: tuple[Address, ...]
    mapping: tuple[Address, ...]
    credentials: Credentials = NONE
    right: Right = Right.ADMIN
    engine: str = ENGINES[0]


class ClusterBackend(RequestBackend):
    """The database of a cluster. `path`: the addresses given to `connect`.

    `session`: None: reads outside transactions see every commit that had been acknowledged to any client. A version:
    they see that version and what this client has seen since, which takes one request less to the log.
    """

    def __init__(
        self,
        path: str,
        nodes: ClusterAccess,
        timeout_s: float,
        placement: Placement | None = None,
        session: int | None = None,
    ) -> None:
        self.path, self.cluster, self.timeout_s, self._placement = path, nodes.cluster, timeout_s, placement
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._forked_from = 0
        self._newest = calls.LINEARIZABLE if session is None else calls.SESSION
        self.speculation = Speculation(asyncio.get_running_loop().time, self.takes_turns)
        self._committing: set[asyncio.Future[Any]] = set()
        self._feeds: WeakSet[ClusterFeed] = WeakSet()
        self._tail = ClusterTail(self)

        engine = engine_of(nodes.engine)

        def build(address: Address) -> Build:
            config = DatabaseConfig(
                address,
                nodes.mapping,
                ClientConfig(address, nodes.ordering),
                engine.client,
                placement,
                session=session or 0,
                transaction_bytes=MAX_RECORD_BYTES - MAX_HEADER_BYTES,
            )
            return partial(self._made, config)

        self._nodes = nodes
        self._searching: asyncio.Task[None] | None = None
        self._client = HostedClient(
            nodes.cluster, engine, build, self._closed_error, nodes.credentials, nodes.right, self._lost
        )
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed."""
        self._forked_from, self._closed = parent, True

    def _made(self, config: DatabaseConfig, journals: Mapping[str, Journal], rng: Random) -> DatabaseClient:
        self._core = DatabaseClient(config, journals, rng)
        return self._core

    def _closed_error(self, failure: BaseException | None) -> LogDBError:
        if failure is None:
            return DatabaseClosed(self.path, self.forked_from)
        return Unavailable(f"the client of {self.path} has failed: {failure}; connect again")

    # ---- changes of the mapping servers

    def _lost(self, server: Address) -> None:
        if server in self._nodes.mapping and self._searching is None and not self.closed:
            self._searching = asyncio.create_task(self._search())

    async def _search(self) -> None:
        """Ask the other nodes for the mapping servers: an unreachable one may have been replaced at another address."""
        nodes = self._nodes
        hello = client_hello(nodes.cluster)
        found = await mapping_servers((*nodes.ordering, *nodes.mapping), hello, nodes.credentials)
        if found and found != nodes.mapping and not self.closed:
            self._nodes = nodes._replace(mapping=found)
            self.put(calls.SetServers(found), None)
        await asyncio.sleep(SEARCH_INTERVAL_S)
        self._searching = None

    # ---- calling

    def put(self, request: Any, timeout_s: float | None) -> asyncio.Future[Any]:
        """Send a request. Its answer, also an exception, becomes the result of the future. Raises DatabaseClosed."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._client.put(request, timeout_s, waiter)
        return waiter

    async def call(self, request: Any) -> Any:
        """The answer to a request within the timeout. Raises LogDBError."""
        return self._unwrap(await self.put(request, self.timeout_s))

    def _unwrap(self, result: Any) -> Any:
        try:
            return unwrap(result)
        except (TimeoutError, LogFailed, Unavailable) as error:
            raise Unavailable(f"{self.path} ({self.timeout_s:g} s): {error}") from error

    async def read(self, request: Any, at: int | None) -> Any:
        """The answer to a read at a version; None: the newest. Raises VersionTrimmed, FutureVersion, Unavailable."""
        if at is None:
            return await self.call(request._replace(consistency=self._newest))
        return await self.call(request._replace(consistency=calls.SNAPSHOT, version=sendable(at, self.session)))

    @property
    def closed(self) -> bool:
        """See `Backend.closed`."""
        return self._closed

    @property
    def forked_from(self) -> int:
        """See `Backend.forked_from`."""
        return self._forked_from

    @property
    def session(self) -> int:
        """See `Backend.session`."""
        return self._core.session

    # ---- versions

    async def version(self) -> int:
        """See `Backend.version`."""
        version: int = await self.read(calls.Version(), None)
        return version

    async def oldest(self) -> int:
        """See `Backend.oldest`."""
        floor: Floor = await self.call(calls.Oldest(in_cold_tier=True))
        return floor.version

    async def at(self, version: int) -> int:
        """See `Backend.at`."""
        await self.read(calls.Version(), version)
        return version

    async def at_time(self, when: int) -> int:
        """See `Backend.at_time`."""
        try:
            version: int = await self.call(calls.AtTime(min(max(when, 0), MAX_POSITION)))
        except FutureVersion as error:
            raise FutureVersion.of_time(when, error.newest) from error
        return version

    async def time_of(self, version: int) -> int | None:
        """See `Backend.time_of`."""
        await self.at(version)
        record = await self.call(calls.RecordAt(version))
        if record is None and version:
            with contextlib.suppress(VersionTrimmed):
                page = await self.call(calls.ColdCommits(version - 1))
                return next((commit.time for commit in page.commits if commit.version == version), None)
        return None if record is None else record.time

    # ---- reading

    async def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key`. Raises KeyTooLarge: a server drops the request."""
        check_key(key)
        return await get(self.read, key, at)

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `Reader.multi_get`."""
        return await multi_get(self.read, keys, at)

    async def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """See `Backend.scan`: a page is requested when it is needed, and its version leased while there are more."""
        holder = object()

        async def read(request: calls.Scan, at: int | None) -> calls.Page:
            page: calls.Page = await self.read(request, at)
            if page.rest is not None:
                self.lease(holder, page.version)
            return page

        try:
            async for batch in scan(read, ScanRange(start, end, limit), at, reverse=reverse):
                yield batch
        finally:
            self.end(holder)

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `Backend.multi_scan`: the version is leased where one request is not enough."""
        holder = object()

        async def read(request: calls.MultiScan, at: int | None) -> calls.Pages:
            pages: calls.Pages = await self.read(request, at)
            if len(pages.pages) < len(ranges) or any(page.rest is not None for page in pages.pages):
                self.lease(holder, pages.version)
            return pages

        try:
            return await multi_scan(read, ranges, at, reverse=reverse)
        finally:
            self.end(holder)

    async def history(self, key: bytes, at: int | None = None) -> AsyncIterator[tuple[int, bytes | None]]:
        """See `Backend.history`."""
        holder, sizes = object(), _page_sizes()

        async def page(at: int | None) -> tuple[Sequence[tuple[int, bytes | None]], bool]:
            versions = await self.read(calls.History(key, next(sizes)), at)
            if versions.more:
                self.lease(holder, 1)
            return versions.entries, versions.more

        try:
            async for entry in history_pages(page, at):
                yield entry
        finally:
            self.end(holder)

    # ---- writing

    def new_txn_id(self) -> TxnId:
        """See `Backend.new_txn_id`."""
        txn_id: TxnId = unwrap(self.put(calls.NewId(), None).result())
        return txn_id

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
        request = calls.Commit(
            writes,
            label=label,
            conditions=tuple(conditions),
            deletes=tuple(deletes),
            appended=appended,
            folds=tuple(folds),
        )
        committed = await self._commit(request)
        verdict = committed.verdict
        if verdict.reason is Reason.CONFLICT:
            raise Unavailable("nothing was written, and the servers no longer have the reason; try again")
        if verdict.reason is Reason.NOT_A_NUMBER:
            raise NotANumber(verdict.key)
        if not verdict.committed and verdict.reason is not Reason.CONDITION:
            raise Unavailable(SETTLED)
        return committed.version, verdict

    def reader_of(self, work: Workspace) -> ClusterReader:
        """See `RequestBackend.reader_of`."""
        return ClusterReader(self, work)

    async def begin(self, work: Workspace, first_key: bytes | None) -> bytes | None:
        """See `RequestBackend.begin`. A transaction that begins with a contended key takes a turn."""
        if first_key is not None and work.speculated is None and self.speculation.needs_turn(first_key):
            return await self._begin_in_turn(work, first_key)
        found = await self.first_read(work, calls.Get(() if first_key is None else (first_key,)))
        return found.entries[0][1] if found.entries else None

    def takes_turns(self, key: bytes) -> bool:
        """Whether transactions of this client wait for turns at a key."""
        return self._core.turns.has_queue(key)

    async def _begin_in_turn(self, work: Workspace, key: bytes) -> bytes | None:
        is_contended = self.speculation.is_suppressed(key)
        turn = calls.TakeTurn(key, work, is_contended, work.may_speculate, self._newest)
        found: calls.Found | None = await self.call(turn)
        if found is None and work.may_speculate:
            work.speculated = self.speculation.last(key)
            if work.speculated is not None:
                return work.speculated.values[key]
        work.since = self.speculation.clock()
        if found is None:
            found = await self.read(calls.Get((key,)), None)
        self._take_snapshot(work, found.version)
        return found.entries[0][1]

    async def first_read(self, work: Workspace, request: Any) -> Any:
        """The answer to a transaction's first read, which takes its snapshot."""
        work.since = self.speculation.clock()
        answer = await self.read(request, None)
        self._take_snapshot(work, answer.version)
        return answer

    def _take_snapshot(self, work: Workspace, version: int) -> None:
        work.snapshot = version
        self.lease(work, version)

    def lease(self, holder: object, version: int) -> None:
        """Ask the servers to keep a version readable until `end(holder)`. They receive it with a delay, and may not."""
        self.put(calls.LeaseVersion(holder, version), None)

    def check_lease(self, holder: object) -> None:
        """See `RequestBackend.check_lease`: none is lost, since every server has what was read."""

    def end(self, holder: object) -> None:
        """See `Backend.end`."""
        if not self.closed:
            self.put(calls.LeaseVersion(holder, None), None)

    def ends_without_request(self, work: Workspace) -> bool:
        """See `RequestBackend.ends_without_request`: what was read is durable."""
        return work.writes_nothing and work.speculated is None

    async def commit(self, work: Workspace) -> int:
        """See `Backend.commit`."""
        try:
            return await self._commit_work(work)
        finally:
            self.end(work)

    async def _commit_work(self, work: Workspace) -> int:
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if work.speculated is not None:
            return await self._commit_speculated(work, work.speculated)
        if self.ends_without_request(work):
            return work.snapshot
        self.speculation.forget_ranges(work.deletes)
        self.speculation.forget(work.folds)
        request = calls.Commit(
            dict(work.all_writes),
            work.snapshot,
            work.label,
            work.guarded_keys,
            work.guarded_ranges,
            txn_id=work.known_id,
            deletes=tuple(work.deletes),
            appended=work.append_count,
            folds=tuple(work.all_folds),
            holder=work,
        )
        with self.speculation.committing(work.writes, work.read_set.keys, work.since):
            committed = await self._commit(request)
            verdict = committed.verdict
            if committed.is_contended:
                self.speculation.suppress_speculation(work.read_set.keys)
            if verdict.reason is Reason.CONFLICT:
                key, version = verdict.key, verdict.version
                self.speculation.suppress_speculation([key])
                raise ConflictError(key, version, committed.winner, work.snapshot, in_range=verdict.in_range)
            if verdict.reason is Reason.TOO_OLD:
                raise ConflictError.compacted(work.snapshot)
            if verdict.reason is Reason.NOT_A_NUMBER:
                raise NotANumber(verdict.key)
            if not verdict.committed:
                raise Unavailable(SETTLED)
        return committed.version

    async def _commit_speculated(self, work: Workspace, speculated: SpeculatedWrites) -> int:
        """Commit if the keys that were read have the speculated values. Raises Misspeculated."""

        async def send(conditions: list[Condition]) -> ConditionalReply:
            request = calls.Commit(
                dict(work.all_writes),
                label=work.label,
                conditions=tuple(conditions),
                txn_id=work.known_id,
                deletes=tuple(work.deletes),
                appended=work.append_count,
                folds=tuple(work.all_folds),
                holder=work,
            )
            committed = await self._commit(request)
            is_applied, reason = committed.verdict.committed, committed.verdict.reason
            if reason is Reason.NOT_A_NUMBER:
                raise NotANumber(committed.verdict.key)
            if not is_applied and reason not in (Reason.CONDITION, Reason.CONFLICT):  # CONFLICT: an old verdict
                raise Unavailable(SETTLED)
            return ConditionalReply(committed.version, is_applied, committed.is_contended)

        self.speculation.forget_ranges(work.deletes)
        self.speculation.forget(work.folds)
        return await self.speculation.commit(work.writes, work.read_set.keys, speculated, send)

    async def _commit(self, request: calls.Commit) -> calls.Committed:
        """Send a commit; it continues if the caller is cancelled, and `close` waits for it. Feeds from now on fix their
        version first. Raises DatabaseClosed."""
        if self.closed:  # in a child of fork(), where no feed of the parent goes on
            raise DatabaseClosed(self.path, self.forked_from)
        for feed in [feed for feed in self._feeds if not feed.is_placed]:
            await feed.placed()
        if self._placement is not None:
            # An error of the placement is raised here, not in the core.
            for key in (*request.writes, *(fold.key for fold in request.folds)):
                check_shard(self._placement(key))
        committing = self.put(request, self.timeout_s)
        self._committing.add(committing)
        committing.add_done_callback(self._committing.discard)
        committed: calls.Committed = self._unwrap(await asyncio.shield(committing))
        return committed

    async def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome:
        """See `Backend.outcome`."""
        outcome: Outcome = await self.call(calls.Outcome(txn_id))
        if settle and outcome.status is Status.NOT_FOUND:
            outcome = await self.call(calls.Settle(txn_id))
        return outcome

    # ---- following, upkeep

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> ClusterFeed:
        """See `Backend.feed`: from now on includes every later commit of this client."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        feed = ClusterFeed(self, self._tail, since, prefix, keys, self._feed_ended)
        self._feeds.add(feed)
        return feed

    def _feed_ended(self, feed: ClusterFeed) -> None:
        self._feeds.discard(feed)
        if not self._feeds:
            self._tail.stop()

    async def pins(self) -> dict[str, int]:
        """See `Backend.pins`."""
        pins: dict[str, int] = await self.call(calls.Pins())
        return pins

    async def measures(self) -> dict[str, Any]:
        """See `Backend.measures`: of the mapping server that it asks, and of this client. Raises WireError, too."""
        text: str = await self.call(calls.Measure())
        try:
            return {**decode_measures(text), "hedged_reads": self._core.queries.hedging.sent}
        except ValueError as error:
            raise WireError(f"the server's measures cannot be read: {error}") from error

    async def pin(self, name: str, version: int | None) -> int:
        """See `Backend.pin`."""
        version = await self.version() if version is None else sendable(version, self.session)
        if not version:
            raise ValueError("version 0 is the empty database: there is nothing to pin yet")
        found = await self.call(calls.Pin(name, version))
        if found != version:
            await self.at(version)
            raise Unavailable(
                f"another client has pinned {name!r} to version {found}, or unpinned it, at the same time"
            )
        return version

    async def unpin(self, name: str) -> None:
        """See `Backend.unpin`."""
        if name not in await self.pins():
            raise KeyError(name)
        await self.call(calls.Pin(name, 0))

    async def compact(self, before: int | None, progress: Progress = None) -> Compacted:
        """See `Backend.compact`. Raises Unavailable when nothing was copied within the timeout."""
        before = await self.version() if before is None else await self.at(before)

        def copied(count: int) -> None:
            if progress is not None:
                try:
                    progress(count)
                except Exception as error:
                    resolve(compacting, error)

        compacting = self.put(calls.Compact(before, progress=copied), self.timeout_s)
        return Compacted(*self._unwrap(await compacting))

    async def checkpoint(self, progress: Progress = None) -> int:
        """Return the newest version: mapping servers write checkpoints on their own, and clients replay nothing."""
        return await self.version()

    async def close(self) -> None:
        """See `Backend.close`: waits for the answers to commits that were sent."""
        if self._forked_from:
            return
        self._closed = True
        if self._closing is None:
            self._closing = started(self._end())
        await asyncio.shield(self._closing)  # it goes on if the caller is cancelled

    async def _end(self) -> None:
        if self._searching is not None:
            self._searching.cancel()
        if self._committing:
            await asyncio.wait(self._committing)
        for feed in list(self._feeds):
            await feed.close()
        await self._client.close()


class ClusterReader(LazySnapshotReader):
    """The reader of a transaction; its first read, of any kind, takes the snapshot."""

    def __init__(self, backend: ClusterBackend, work: Workspace) -> None:
        super().__init__(backend, work)
        self._cluster = backend

    async def _read(self, request: Any, _: int | None) -> Any:
        with self._checked():
            if not self._begun:
                async with self._one_begin:
                    if not self._begun:
                        answer = await self._cluster.first_read(self._work, request)
                        self._begun = True
                        return answer
            await self.begin(None)
            return await self._cluster.read(request, self._work.snapshot)

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `Reader.multi_get`."""
        return await multi_get(self._read, keys, at)

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """See `Reader.scan`."""
        return scan(self._read, ScanRange(start, end, limit), at, reverse=reverse)

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `Reader.multi_scan`."""
        return await multi_scan(self._read, ranges, at, reverse=reverse)


async def get(ask: Ask, key: bytes, at: int | None) -> bytes | None:
    """The value of `key`."""
    found: calls.Found = await ask(calls.Get((key,)), at)
    return found.entries[0][1]


async def multi_get(ask: Ask, keys: list[bytes], at: int | None) -> tuple[int, list[tuple[bytes, bytes]]]:
    """(the version read, those of `keys` that exist)."""
    found: calls.Found = await ask(calls.Get(tuple(keys)), at)
    entries = zip(keys, found.entries, strict=True)
    return found.version, [(key, value) for key, (_, value) in entries if value is not None]


def scan(read: Ask, requested: ScanRange, at: int | None, *, reverse: bool) -> AsyncIterator[Rows]:
    """Batches of rows, all of the version of the first page."""
    sizes = _page_sizes()

    async def page(rest: ScanRange, at: int | None) -> RangePage:
        start, end, limit = rest
        rows = next(sizes)
        found: calls.Page = await read(calls.Scan(start, end, reverse, rows if limit is None else min(rows, limit)), at)
        return RangePage(*found)

    return scan_pages(page, requested, at, reverse=reverse)


async def multi_scan(
    read: Ask, ranges: Sequence[ScanRange], at: int | None, *, reverse: bool
) -> list[list[tuple[bytes, bytes]]]:
    """The rows of each range, all of the version of the first page."""

    async def page(requested: list[ScanRange], at: int | None) -> tuple[int, Iterable[PageRows]]:
        scans, size = list[messages.Scan](), 0
        for start, end, limit in requested:
            scans.append(messages.Scan(start, end, reverse, MAX_ROWS if limit is None else min(limit, MAX_ROWS)))
            size += len(start or b"") + len(end or b"")
            if size >= BOUNDS_BYTES:
                break
        found: calls.Pages = await read(calls.MultiScan(tuple(scans)), at)
        return found.version, [(page.rows, page.rest) for page in found.pages]

    return await multi_scan_pages(page, ranges, at, reverse=reverse, max_ranges=MAX_RANGES)


def _page_sizes() -> Iterator[int]:
    """Numbers of rows to request: few at first, since many readers stop soon."""
    rows = FIRST_ROWS
    while True:
        yield rows
        rows = min(4 * rows, MAX_ROWS)


def check_shard(shard: object) -> None:
    """Raises TypeError."""
    if shard is not None and type(shard) is not int:
        raise TypeError(f"a placement gives the number of a shard or None, not {shard!r}")


def sendable(version: int, newest: int) -> int:
    """`version`, if a message can carry it. `newest`: the newest one that the client has seen. Raises FutureVersion."""
    if version > MAX_POSITION:
        raise FutureVersion(version, newest)
    return version
