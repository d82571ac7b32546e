"""The change feed of a client of a cluster: it reads the log itself, and asks a mapping server for aborted commits.

Commit records come from the storage servers, in the order of the log and without gaps (SCA-11), large values from their
shards. A mapping server returns which commit records of a batch were not applied; that follows from the log alone, so
any server can answer. Commits that were trimmed it returns from the cold tier, if the cluster has one. No server has
state for a feed: any client can resume after any version. The feeds of a client share the end of the log
(`ClusterTail`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

from logdb.api.backend import AsyncChangeFeed
from logdb.api.results import Change
from logdb.clients.cluster_tail import ClusterTail, applied_commits, started
from logdb.clients.core_client import unwrap
from logdb.clients.folded_commits import folded_values
from logdb.cluster.client import requests as calls
from logdb.cluster.messages import COLD_SHARD, CommitPage
from logdb.errors import Corruption, DatabaseClosed, Unavailable, VersionTrimmed
from logdb.log import requests as log
from logdb.log.contract import Batch, LogFailed, NotOfThisShard, Trimmed
from logdb.store.recent_commits import OrderedCommit, WatchedCommit, watched_commits
from logdb.store.records import COMMIT, Place, Value, decode_commit
from logdb.store.watched import Watched

FOLDED_BYTES: Final = 100
"""About the size of the value of a fold."""


class FeedClient(Protocol):
    """The client of a feed."""

    path: str
    timeout_s: float

    @property
    def closed(self) -> bool: ...
    @property
    def forked_from(self) -> int: ...

    def put(self, request: Any, timeout_s: float | None) -> asyncio.Future[Any]: ...
    async def call(self, request: Any) -> Any: ...
    async def version(self) -> int: ...
    async def at(self, version: int) -> int: ...


class ClusterFeed(AsyncChangeFeed):
    """Commits after `since` (None: from now on) that write a watched key. `tail`: has the newest commits. `on_end`:
    called when it is closed.

    `_seen`: all changes up to this version have been returned; `_read`: have been read. `_is_cold`: the next ones are
    read from the cold tier, since the log was trimmed.
    """

    def __init__(
        self,
        client: FeedClient,
        tail: ClusterTail,
        since: int | None,
        prefix: bytes | None,
        keys: Collection[bytes] | None,
        on_end: Callable[[ClusterFeed], None],
    ) -> None:
        self._client, self._tail, self._watched = client, tail, Watched(prefix, keys)
        self._on_end = on_end
        self._seen = self._read = self._subscription = 0
        self._ready: deque[Change] = deque()
        self._batch: Batch | None = None
        self._closed = self._is_cold = False
        self._beginning = started(self._begin(since))
        self._stepping: asyncio.Task[None] | None = None

    async def _begin(self, since: int | None) -> None:
        client = self._client
        self._seen = self._read = await (client.version() if since is None else client.at(since))

    @property
    def is_placed(self) -> bool:
        """Whether the version after which it runs is known, or it has failed."""
        return self._beginning.done()

    async def placed(self) -> None:
        """Return when `is_placed`."""
        await asyncio.wait((self._beginning,))

    async def begun(self) -> None:
        """See `AsyncChangeFeed.begun`. Raises Unavailable, too."""
        self._check_process()
        if not self._beginning.done():
            await self.placed()
        self._check_result(self._beginning)

    def _check_result(self, task: asyncio.Task[None]) -> None:
        """Raises the error of a task that has ended; DatabaseClosed if `close` has cancelled it. So CancelledError is
        always that of the task that polls."""
        if task.cancelled():
            raise DatabaseClosed(self._client.path)
        task.result()

    def _check_process(self) -> None:
        """Raises DatabaseClosed in a child of fork(), where no task of the parent ends."""
        if self._client.forked_from:
            raise DatabaseClosed(self._client.path, self._client.forked_from)

    async def poll(self, timeout: float | None) -> Change | None:
        """See `ChangeFeed.poll`. Returns every commit before the timeout, also if it is 0."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        last: int | None = None
        self._check_process()
        try:
            await self.begun()
            while not self._ready:
                if self._closed:
                    return None
                if deadline is not None and loop.time() >= deadline:
                    if last is None:
                        last = await self._client.version()
                    elif self._read >= last:
                        return None
                    elif loop.time() >= deadline + self._client.timeout_s:
                        raise self._cannot_follow("no server has answered in time")
                await self._step(self._left(deadline, last))
        except DatabaseClosed:
            if self._closed or self._client.closed:
                return None
            raise
        change = self._ready.popleft()
        self._seen = change.version
        return change

    def _left(self, deadline: float | None, last: int | None) -> float | None:
        """Timeout of the next step, in seconds."""
        if deadline is None:
            return None
        if last is not None:
            return 0.0 if self._read >= last else self._client.timeout_s
        return max(0.0, deadline - asyncio.get_running_loop().time())

    async def _step(self, timeout: float | None) -> None:
        """Wait for the next batch of the log. A read that has begun continues after the timeout."""
        if self._stepping is None:
            self._stepping = started(self._take())
        done, _ = await asyncio.wait((self._stepping,), timeout=timeout)
        if done:
            stepping, self._stepping = self._stepping, None
            self._check_result(stepping)

    async def _take(self) -> None:
        """Read the next batch. A batch whose aborted commits could not be read is kept for the next attempt."""
        if not self._is_cold:
            try:
                end, commits = await self._from_log()
            except VersionTrimmed:
                self._unsubscribe()
                self._batch, self._is_cold = None, True
        if self._is_cold:
            end, commits = await self._from_cold_tier()
        self._ready.extend(await self._changes(commits))
        self._batch, self._read = None, end - 1
        if not self._ready:
            self._seen = self._read

    async def _from_log(self) -> tuple[int, list[WatchedCommit]]:
        shared = None if self._batch is not None else await self._shared()
        if shared is not None:
            self._unsubscribe()
            return shared
        batch = self._batch = self._batch or await self._next()
        return batch.end, await self._watched_of(batch)

    async def _from_cold_tier(self) -> tuple[int, list[WatchedCommit]]:
        """The next commits that the log does not have. Raises VersionTrimmed if the tier has none."""
        try:
            page: CommitPage = await self._client.call(calls.ColdCommits(self._read))
        except VersionTrimmed as error:
            raise VersionTrimmed(self._seen, error.oldest) from error
        self._is_cold = page.more
        found = [
            OrderedCommit(one.version, one.time, len(one.record), decode_commit(one.record, one.version))
            for one in page.commits
        ]
        return page.end, watched_commits(found, self._watched)

    async def _shared(self) -> tuple[int, list[WatchedCommit]] | None:
        try:
            return await self._tail.part_of(self._read + 1, self._watched)
        except (TimeoutError, LogFailed) as error:
            raise self._cannot_follow(error) from error

    async def _next(self) -> Batch:
        if not self._subscription:
            subscribe = log.Subscribe(self._read + 1, frozenset((COMMIT,)))
            self._subscription = await self._followed(subscribe, None)
        batch: Batch = await self._followed(log.Next(self._subscription), None)
        return batch

    async def _watched_of(self, batch: Batch) -> list[WatchedCommit]:
        try:
            return watched_commits(await applied_commits(self._client, batch.records), self._watched)
        except VersionTrimmed as error:  # no server has the outcomes of these commits
            raise VersionTrimmed(self._seen, error.oldest) from error

    def _unsubscribe(self) -> None:
        with contextlib.suppress(DatabaseClosed):
            if self._subscription:
                self._client.put(log.Close(self._subscription), None)
                self._subscription = 0

    async def _followed(self, request: Any, timeout_s: float | None) -> Any:
        try:
            return unwrap(await self._client.put(request, timeout_s))
        except Trimmed as error:
            raise VersionTrimmed(self._seen, error.oldest - 1) from error
        except (TimeoutError, LogFailed) as error:
            raise self._cannot_follow(error) from error

    def _cannot_follow(self, reason: object) -> Unavailable:
        return Unavailable(f"the log of {self._client.path} cannot be followed beyond version {self._read}: {reason}")

    async def _changes(self, commits: list[WatchedCommit]) -> list[Change]:
        changes = []
        folded = await asyncio.gather(*(self._folded(commit) for commit in commits if commit.folds))
        values_of = dict(zip([commit.version for commit in commits if commit.folds], folded, strict=True))
        for version, time, label, writes, deleted, _ in commits:
            values = await asyncio.gather(*(self._load(key, value, version) for key, value in writes.items()))
            folds = values_of.get(version, {})
            changes.append(
                Change(version, time, label, folds | dict(zip(writes, values, strict=True)) | folds, deleted)
            )
        return changes

    async def _folded(self, commit: WatchedCommit) -> dict[bytes, bytes | None]:
        keys, version = commit.folds, commit.version
        size = sum([len(key) + FOLDED_BYTES for key in keys])
        try:
            return await self._tail.load((version, keys), size, lambda: folded_values(keys, version, self._client.call))
        except VersionTrimmed as error:
            raise VersionTrimmed(self._seen, error.oldest) from error

    async def _load(self, key: bytes, value: Value, version: int) -> bytes | None:
        if not isinstance(value, Place):
            return value
        return await self._tail.load(value, value.length, lambda: self._loaded(key, value, version))

    async def _loaded(self, key: bytes, value: Place, version: int) -> bytes | None:
        if value.shard == COLD_SHARD:
            cold: bytes = await self._client.call(calls.ColdValue(value))
            return cold
        try:
            record = await self._followed(log.Read(value.gsn, value.shard, size=value.length), self._client.timeout_s)
        except (VersionTrimmed, NotOfThisShard):  # trimmed before its commit record: a compaction has copied it
            return await self._moved(key, version)
        if not value.has(record.tag, record.payload):
            raise Corruption(f"shard {value.shard}", None, f"record {value.gsn} is not the value that was written")
        payload: bytes = record.payload
        return payload

    async def _moved(self, key: bytes, version: int) -> bytes | None:
        """The value of a version whose record a compaction has moved."""
        try:
            found: calls.Found = await self._client.call(calls.Get((key,), calls.SNAPSHOT, version))
        except VersionTrimmed as error:
            raise VersionTrimmed(self._seen, error.oldest) from error
        return found.entries[0][1]

    async def close(self) -> None:
        """See `ChangeFeed.close`."""
        if self._closed:
            return
        self._closed = True
        self._on_end(self)
        for task in (self._beginning, self._stepping):
            if task is not None:
                task.cancel()
        self._unsubscribe()
