"""The database of a cluster, for the coroutines of one event loop: an AsyncBackend over the core `DatabaseClient`.

The core finds a server that answers, asks another one when that is silent, and tells for certain, or not at all, how a
commit has ended; all that is left here is to put calls, and to say it in the words of `backend.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from logdb.api.backend import Progress
from logdb.api.results import Compacted
from logdb.clients.cluster_feed import ClusterFeed
from logdb.clients.core_client import HostedClient, given, settle
from logdb.clients.lazy_snapshot import LazySnapshotReader, RequestBackend
from logdb.clients.pages import RangePage, history_pages, multi_scan_pages, scan_pages
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
    Unavailable,
)
from logdb.log.contract import LogFailed
from logdb.log.engine import ENGINES, MAX_HEADER_BYTES, Right, engine_of
from logdb.log.requests import ClientConfig
from logdb.node.host import Build
from logdb.security.credentials import NONE, Credentials
from logdb.store.key_map import Rows
from logdb.store.limits import check_label
from logdb.store.ranges import ScanRange
from logdb.store.records import Condition, TxnId
from logdb.system.forking import own
from logdb.transport.discovery import client_hello, mapping_servers
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.speculation import ConditionalReply, SpeculatedWrites, Speculation
from logdb.txn.transaction import Workspace
from logdb.txn.validation import SETTLED, Reason, Verdict
from logdb.wire.limits import MAX_POSITION, MAX_RECORD_BYTES

FIRST_ROWS: Final = 256
MAX_ROWS: Final = 4_096
"""Of a page: each asks for four times as many as the one before."""
LOOK_S: Final = 5.0
"""Where the mapping servers are is asked no more often than that."""
Ask = Callable[[Any, int | None], Awaitable[Any]]
"""Puts a read as of a version, None: the newest."""


class ClusterAccess(NamedTuple):
    """What has to be known of a cluster, what is shown to it, and what it lets this client do."""

    cluster: str
    ordering: tuple[Address, ...]
    mapping: tuple[Address, ...]
    credentials: Credentials = NONE
    right: Right = Right.ADMIN
    engine: str = ENGINES[0]


class ClusterBackend(RequestBackend):
    """The database of a cluster. `path`: the addresses that it was found at.

    `session`: None has plain reads see every commit that had been acknowledged, to anybody; a version has them see that
    version and whatever this client has seen since, which is one question less to the log.
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
        self._forked_from = 0
        self._newest = calls.LINEARIZABLE if session is None else calls.SESSION
        self.speculation = Speculation(asyncio.get_running_loop().time)
        self._committing: set[asyncio.Future[Any]] = set()
        self._feeds: set[ClusterFeed] = set()

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
        self._looking: asyncio.Task[None] | None = None
        self._client = HostedClient(
            nodes.cluster, engine, build, self._over, nodes.credentials, nodes.right, self._lost
        )
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed."""
        self._forked_from, self._closed = parent, True

    def _made(self, config: DatabaseConfig, journals: Mapping[str, Journal], rng: Random) -> DatabaseClient:
        self._core = DatabaseClient(config, journals, rng)
        return self._core

    def _over(self, failure: BaseException | None) -> LogDBError:
        if failure is None:
            return DatabaseClosed(self.path, self.forked_from)
        return Unavailable(f"the client of {self.path} has failed: {failure}; connect again")

    # ---- servers that come and go

    def _lost(self, server: Address) -> None:
        if server in self._nodes.mapping and self._looking is None and not self.closed:
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """A mapping server that is gone may have been replaced by one elsewhere, of which other nodes know."""
        nodes = self._nodes
        hello = client_hello(nodes.cluster)
        found = await mapping_servers((*nodes.ordering, *nodes.mapping), hello, nodes.credentials)
        if found and found != nodes.mapping and not self.closed:
            self._nodes = nodes._replace(mapping=found)
            self.put(calls.SetServers(found), None)
        await asyncio.sleep(LOOK_S)
        self._looking = None

    # ---- calling

    def put(self, request: Any, timeout_s: float | None) -> asyncio.Future[Any]:
        """Put a call; what comes of it is the future's result, also if it is an exception. Raises DatabaseClosed."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._client.put(request, timeout_s, waiter)
        return waiter

    async def call(self, request: Any) -> Any:
        """What a call comes to within the time that a call may take. Raises LogDBError."""
        return self._told(await self.put(request, self.timeout_s))

    def _told(self, result: Any) -> Any:
        try:
            return given(result)
        except (TimeoutError, LogFailed, Unavailable) as error:
            raise Unavailable(f"{self.path} ({self.timeout_s:g} s): {error}") from error

    async def read(self, request: Any, at: int | None) -> Any:
        """A call that reads, as of a version; None: the newest. Raises VersionTrimmed, FutureVersion, Unavailable."""
        if at is None:
            return await self.call(request._replace(consistency=self._newest))
        return await self.call(request._replace(consistency=calls.SNAPSHOT, version=possible(at, self.session)))

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
        """The newest version that this client has seen."""
        return self._core.session

    # ---- versions

    async def version(self) -> int:
        """The newest version."""
        version: int = await self.read(calls.Version(), None)
        return version

    async def oldest(self) -> int:
        """The oldest version that can be read."""
        floor: Floor = await self.call(calls.Oldest())
        return floor.version

    async def at(self, version: int) -> int:
        """`version`, if it can be read. Raises VersionTrimmed, FutureVersion."""
        await self.read(calls.Version(), version)
        return version

    async def at_time(self, when: int) -> int:
        """The newest version not younger than `when`. Raises VersionTrimmed, FutureVersion."""
        try:
            version: int = await self.call(calls.AtTime(min(max(when, 0), MAX_POSITION)))
        except FutureVersion as error:
            what = f"of the time {when / 1e9:.3f} (seconds since the epoch)"
            raise FutureVersion(what, error.newest) from error
        return version

    async def time_of(self, version: int) -> int | None:
        """When `version` was written; None if its record was compacted away. Raises as `at`."""
        await self.at(version)
        record = await self.call(calls.RecordAt(version))
        return None if record is None else record.time

    # ---- reading

    async def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key`."""
        return await get(self.read, key, at)

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """(the version read, those of `keys` that exist)."""
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
            if page.more:
                self.hold(holder, page.version)
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
            if len(pages.pages) < len(request.scans) or any(page.more for page in pages.pages):
                self.hold(holder, pages.version)
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
                self.hold(holder, 1)
            return versions.entries, versions.more

        try:
            async for entry in history_pages(page, at):
                yield entry
        finally:
            self.end(holder)

    # ---- writing

    def new_txn_id(self) -> TxnId:
        """An id that no transaction has."""
        txn_id: TxnId = given(self.put(calls.NewId(), None).result())
        return txn_id

    async def write(
        self, writes: Mapping[bytes, bytes | None], label: str = "", conditions: Sequence[Condition] = ()
    ) -> tuple[int, Verdict]:
        """Write all if all conditions hold."""
        if label != "":
            check_label(label)
        self.speculation.forget(writes)  # who follows begins with a question
        committed = await self._commit(calls.Commit(writes, label=label, conditions=tuple(conditions)))
        verdict = committed.verdict
        if verdict.reason is Reason.CONFLICT:
            raise Unavailable("nothing was written, and the servers do not remember why; try again")
        if not verdict.committed and verdict.reason is not Reason.CONDITION:
            raise Unavailable(SETTLED)
        return committed.version, verdict

    def reader_of(self, work: Workspace) -> ClusterReader:
        """The reader of a transaction."""
        return ClusterReader(self, work)

    async def begin(self, work: Workspace, first_key: bytes | None) -> bytes | None:
        """Take a transaction's snapshot; the value of the key that it reads first."""
        found = await self.first_read(work, calls.Get(() if first_key is None else (first_key,)))
        return found.entries[0][1] if found.entries else None

    async def first_read(self, work: Workspace, request: Any) -> Any:
        """The answer to what a transaction reads first, in the snapshot that it takes with that."""
        work.since = self.speculation.clock()
        answer = await self.read(request, None)
        work.snapshot = answer.version
        self.hold(work, answer.version)
        return answer

    def hold(self, holder: object, version: int) -> None:
        """Ask the servers to keep a version readable until `end`. It is a courtesy, and they hear of it in a while."""
        self.put(calls.Hold(holder, version), None)

    def check_lease(self, holder: object) -> None:
        """No server takes a version along: what was read is ordered, and every server has it."""

    def end(self, holder: object) -> None:
        """Let go of a snapshot."""
        if not self.closed:
            self.put(calls.Hold(holder, None), None)

    async def commit(self, work: Workspace) -> int:
        """Commit what a transaction has read and written."""
        try:
            return await self._commit_work(work)
        finally:
            self.end(work)

    async def _commit_work(self, work: Workspace) -> int:
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if work.speculated is not None:
            return await self._commit_speculated(work, work.speculated)
        if not work.writes:
            return work.snapshot
        request = calls.Commit(
            dict(work.writes),
            work.snapshot,
            work.label,
            work.guarded_keys,
            work.read_set.ranges,
            txn_id=work.known_id,
        )
        with self.speculation.committing(work.writes, work.read_set.keys, work.since):
            committed = await self._commit(request)
            verdict = committed.verdict
            if verdict.reason is Reason.CONFLICT:
                key, version = verdict.key, verdict.version
                raise ConflictError(key, version, committed.winner, work.snapshot, in_range=verdict.in_range)
            if verdict.reason is Reason.TOO_OLD:
                raise ConflictError.compacted(work.snapshot)
            if not verdict.committed:
                raise Unavailable(SETTLED)
        return committed.version

    async def _commit_speculated(self, work: Workspace, speculated: SpeculatedWrites) -> int:
        """Commit if the keys that were read have the speculated values. Raises Misspeculated."""

        async def send(conditions: list[Condition]) -> ConditionalReply:
            request = calls.Commit(
                dict(work.writes), label=work.label, conditions=tuple(conditions), txn_id=work.known_id
            )
            committed = await self._commit(request)
            is_applied, reason = committed.verdict.committed, committed.verdict.reason
            if not is_applied and reason not in (Reason.CONDITION, Reason.CONFLICT):  # CONFLICT: an old verdict
                raise Unavailable(SETTLED)
            return ConditionalReply(committed.version, is_applied)

        return await self.speculation.commit(work.writes, work.read_set.keys, speculated, send)

    async def _commit(self, request: calls.Commit) -> calls.Committed:
        """To its end, even if who asked goes away: `close` waits for it. Feeds that have begun know where first."""
        for feed in [feed for feed in self._feeds if not feed.is_placed]:
            await feed.placed()
        if self._placement is not None:
            for key in request.writes:  # what is wrong with it is its caller's, and not to happen in the core
                check_shard(self._placement(key))
        committing = self.put(request, self.timeout_s)
        self._committing.add(committing)
        committing.add_done_callback(self._committing.discard)
        committed: calls.Committed = self._told(await asyncio.shield(committing))
        return committed

    async def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome:
        """How a transaction ended; NOT_FOUND may still change, unless it is settled."""
        outcome: Outcome = await self.call(calls.Outcome(txn_id))
        if settle and outcome.status is Status.NOT_FOUND:
            outcome = await self.call(calls.Settle(txn_id))
        return outcome

    # ---- following, upkeep

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> ClusterFeed:
        """The commits after `since`; None: from now on, whatever this client commits after this included."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        feed = ClusterFeed(self, since, prefix, keys, self._feeds.discard)
        self._feeds.add(feed)
        return feed

    async def pins(self) -> dict[str, int]:
        """The pinned versions by name."""
        pins: dict[str, int] = await self.call(calls.Pins())
        return pins

    async def pin(self, name: str, version: int | None) -> int:
        """Pin a version."""
        version = await self.version() if version is None else possible(version, self.session)
        if not version:
            raise ValueError("version 0 is the empty database: there is nothing to pin yet")
        held = await self.call(calls.Pin(name, version))
        if held != version:
            await self.at(version)
            raise Unavailable(f"somebody else has pinned {name!r} to version {held}, or unpinned it, at the same time")
        return version

    async def unpin(self, name: str) -> None:
        """Raises KeyError."""
        if name not in await self.pins():
            raise KeyError(name)
        await self.call(calls.Pin(name, 0))

    async def compact(self, before: int | None, progress: Progress = None) -> Compacted:
        """Drop what only reads before `before` could see, as far as pins and what clients hold let it. It ends with
        Unavailable when nothing more has been copied for as long as a call may take."""
        before = await self.version() if before is None else await self.at(before)

        def copied(count: int) -> None:
            if progress is not None:
                try:
                    progress(count)
                except Exception as error:
                    settle(compacting, error)

        compacting = self.put(calls.Compact(before, progress=copied), self.timeout_s)
        return Compacted(*self._told(await compacting))

    async def checkpoint(self, progress: Progress = None) -> int:
        """Mapping servers write checkpoints by themselves; nothing that connects to them replays anything."""
        return await self.version()

    async def close(self) -> None:
        """Answer what was sent to be written, then let go of the servers."""
        if not self._closed:
            self._closed = True
            if self._looking is not None:
                self._looking.cancel()
            if self._committing:
                await asyncio.wait(self._committing)
            for feed in list(self._feeds):
                await feed.close()
            await self._client.close()


class ClusterReader(LazySnapshotReader):
    """What a transaction reads with. Whatever it reads first takes its snapshot."""

    def __init__(self, host: ClusterBackend, work: Workspace) -> None:
        super().__init__(host, work)
        self._cluster = host

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
        """(the version read, those of `keys` that exist)."""
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
        """Batches of (key, value)."""
        return scan(self._read, ScanRange(start, end, limit), at, reverse=reverse)

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of each range."""
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
        return RangePage(*await read(calls.Scan(start, end, reverse, rows if limit is None else min(rows, limit)), at))

    return scan_pages(page, requested, at, reverse=reverse)


async def multi_scan(
    read: Ask, ranges: Sequence[ScanRange], at: int | None, *, reverse: bool
) -> list[list[tuple[bytes, bytes]]]:
    """The rows of each range, all of the version of the first page."""

    async def page(
        requested: list[ScanRange], at: int | None
    ) -> tuple[int, Iterable[tuple[Sequence[tuple[bytes, bytes]], bool]]]:
        scans = [
            messages.Scan(start, end, reverse, MAX_ROWS if limit is None else min(limit, MAX_ROWS))
            for start, end, limit in requested
        ]
        found: calls.Pages = await read(calls.MultiScan(tuple(scans)), at)
        return found.version, [(page.rows, page.more) for page in found.pages]

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


def possible(version: int, newest: int) -> int:
    """A version that a message can carry. `newest`: that the client has seen. Raises FutureVersion."""
    if version > MAX_POSITION:
        raise FutureVersion(version, newest)
    return version
