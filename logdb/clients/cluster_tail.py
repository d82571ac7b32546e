"""The end of a cluster's log, which is read and decoded once for all change feeds of a client."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Protocol, TypeVar

from logdb.clients.core_client import unwrap
from logdb.cluster.client import requests as calls
from logdb.errors import DatabaseClosed, VersionTrimmed
from logdb.log import requests as log
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.store.recent_commits import CommitBlock, OrderedCommit, RecentCommits, WatchedCommit
from logdb.store.records import COMMIT, decode_commit
from logdb.store.watched import Watched

T = TypeVar("T")
MAX_BYTES: Final = 16 << 20
"""Maximum size of the commits that are kept, and of their large values."""
MAX_VALUE_BYTES: Final = 1 << 20
"""Each feed reads larger values itself."""


class TailClient(Protocol):
    """The client of the feeds."""

    def put(self, request: Any, timeout_s: float | None) -> asyncio.Future[Any]: ...
    async def call(self, request: Any) -> Any: ...


async def applied_commits(client: TailClient, records: list[LogRecord]) -> list[OrderedCommit]:
    """The commits among these records that were applied, as a mapping server says. Raises VersionTrimmed if no server
    has their outcomes, Unavailable."""
    if not records:
        return []
    aborted = frozenset(await client.call(calls.Aborted(records[0].gsn - 1, records[-1].gsn)))
    return [
        OrderedCommit(gsn, time, len(payload), decode_commit(payload, gsn))
        for gsn, time, _, payload in records
        if gsn not in aborted
    ]


class ClusterTail:
    """The newest commits that a feed has asked for.

    Feeds at the end wait for the same batch. A feed that is behind gets nothing, and reads the log itself until it has
    reached the part that is kept; one that is ahead begins the tail anew.
    """

    def __init__(self, client: TailClient) -> None:
        self._client = client
        self._recent = RecentCommits(MAX_BYTES)
        self._reading: asyncio.Task[None] | None = None
        self._subscription = 0
        self._values = OrderedDict[Hashable, tuple[asyncio.Task[Any], int]]()
        self._values_bytes = 0

    async def part_of(self, first: int, watched: Watched) -> tuple[int, list[WatchedCommit]] | None:
        """(end, the commits from record `first` up to `end` - 1 that write or delete watched keys), once there are
        records; None if the feed has to read the log itself. Raises LogFailed, Unavailable."""
        recent = self._recent
        if self._reading is not None and first < recent.first:
            return None
        if self._reading is None or first > recent.end:
            self.stop()
            recent.restart(first)
        while first == recent.end:
            if self._reading is None or self._reading.done():
                self._reading = started(self._read())
            reading = self._reading
            await asyncio.wait((reading,))
            error = None if reading.cancelled() else reading.exception()
            if isinstance(error, (Trimmed, VersionTrimmed)):
                return None
            if error is not None:
                raise error
            if not recent.first <= first <= recent.end:  # another feed has begun it anew
                return None
        return recent.part_of(first, watched)

    async def _read(self) -> None:
        """Add the next batch. After an error the tail begins anew."""
        recent, client = self._recent, self._client
        try:
            if not self._subscription:
                subscribe = log.Subscribe(recent.end, frozenset((COMMIT,)))
                self._subscription = unwrap(await client.put(subscribe, None))
            batch: Batch = unwrap(await client.put(log.Next(self._subscription), None))
            commits = await applied_commits(client, batch.records)
        except Exception:
            self._reading = None
            self.stop()
            raise
        if batch.end > recent.end:
            recent.add(CommitBlock(recent.end, batch.end, commits))

    def stop(self) -> None:
        """Read no more, and drop what is kept."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        if self._subscription:
            with contextlib.suppress(DatabaseClosed):
                self._client.put(log.Close(self._subscription), None)
            self._subscription = 0
        self._recent.restart(0)
        self._values.clear()
        self._values_bytes = 0

    async def load(self, name: Hashable, size: int, load: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `load`, which reads what `name` stands for, of about `size` bytes; it is kept for other
        feeds."""
        if size > MAX_VALUE_BYTES:
            return await load()
        loading = self._values.get(name, (None, 0))[0]
        if loading is None or (loading.done() and (loading.cancelled() or loading.exception() is not None)):
            if loading is None:
                self._values_bytes += size
            loading = started(load())
            self._values[name] = loading, size
            while self._values_bytes > MAX_BYTES:
                self._values_bytes -= self._values.popitem(last=False)[1][1]
        found: T = await asyncio.shield(loading)
        return found


def started(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task whose exception need not be retrieved."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task
