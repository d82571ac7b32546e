"""The embedded host for the coroutines of one event loop: what waits for the disk leaves the loop, reads do not.

Coroutines share syncs: those that commit while one is under way are made durable together by the next, in a thread of
the host's own. Reads answer from memory and the map. Upkeep runs in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from logdb.embedded.feed import Change, Feed
from logdb.embedded.host import EmbeddedHost
from logdb.errors import OutcomeUnknown, Unavailable
from logdb.log.contract import LogFailed
from logdb.store.mapping import Rows
from logdb.store.records import Condition, TxnId
from logdb.txn.transaction import Workspace
from logdb.txn.validation import Verdict

P = ParamSpec("P")
T = TypeVar("T")


class Acknowledgements:
    """The commits of one event loop that wait to be durable, and the thread that syncs for all of them."""

    def __init__(self, host: EmbeddedHost) -> None:
        self._host = host
        self._waiting: list[tuple[int, asyncio.Future[Any], Any]] = []
        self._syncing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-sync")

    def wait(self, gsn: int, result: T) -> asyncio.Future[T]:
        """To be awaited: `result`, when `gsn` is durable. Raises OutcomeUnknown."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._host.log.durable >= gsn:
            future.set_result(result)
            return future
        self._waiting.append((gsn, future, result))
        if not self._syncing:
            # Not before the coroutines that are ready now have had their turn: their commits ride along.
            self._syncing = True
            loop.call_soon(self._sync, loop)
        return future

    async def close(self) -> None:
        """End the thread. What waits is answered first."""
        while self._waiting:
            await asyncio.wait([future for _, future, _ in self._waiting])
        self._thread.shutdown()

    def _sync(self, loop: asyncio.AbstractEventLoop) -> None:
        last = max(gsn for gsn, _, _ in self._waiting)
        done = self._thread.submit(self._sync_aside, last)
        done.add_done_callback(lambda future: loop.call_soon_threadsafe(self._answer, loop, future))

    def _sync_aside(self, last: int) -> None:
        self._host.log.wait_durable(last)
        self._host.relieve()

    def _answer(self, loop: asyncio.AbstractEventLoop, done: Future[None]) -> None:
        failure, durable = done.exception(), self._host.log.durable
        later = []
        for waiting in self._waiting:
            gsn, future, result = waiting
            if gsn <= durable:
                if not future.done():
                    future.set_result(result)
            elif failure is None:
                later.append(waiting)
            elif not future.done():
                told = self._host.outcome_unknown(gsn, failure) if isinstance(failure, LogFailed) else failure
                future.set_exception(told)
        self._waiting = later
        self._syncing = bool(later)
        if later:
            self._sync(loop)


class CoroutineFeed:
    """The change feed for one coroutine, which waits in a thread of the feed's own."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-watch")

    async def begun(self) -> None:
        """It has."""

    async def poll(self, timeout: float | None) -> Change | None:
        """See `Feed.poll`."""
        feed = self._feed
        return feed.poll(0) or await asyncio.get_running_loop().run_in_executor(self._thread, feed.poll, timeout)

    async def close(self) -> None:
        """End the feed and its thread."""
        self._feed.close()
        self._thread.shutdown()


Verb = Callable[Concatenate[EmbeddedHost, P], T]
CoroutineVerb = Callable[Concatenate["CoroutineHost", P], Coroutine[Any, Any, T]]


def _at_once(verb: Verb[P, T]) -> CoroutineVerb[P, T]:
    """The verb for what is answered from memory."""

    async def called(self: CoroutineHost, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self.host, *args, **kwargs)

    return called


def _aside(verb: Verb[P, T]) -> CoroutineVerb[P, T]:
    """The verb for what waits: in a thread."""

    async def called(self: CoroutineHost, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(verb, self.host, *args, **kwargs)

    return called


class CoroutineHost:
    """An AsyncHost over `host`."""

    def __init__(self, host: EmbeddedHost) -> None:
        self.host = host
        self.path, self.read_only = host.path, host.read_only
        self.acknowledgements = Acknowledgements(host)

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self.host.closed

    version = _at_once(EmbeddedHost.version)
    oldest = _at_once(EmbeddedHost.oldest)
    at = _at_once(EmbeddedHost.at)
    at_time = _at_once(EmbeddedHost.at_time)
    time_of = _at_once(EmbeddedHost.time_of)
    get = _at_once(EmbeddedHost.get)
    multi_get = _at_once(EmbeddedHost.multi_get)
    pins = _at_once(EmbeddedHost.pins)
    outcome = _aside(EmbeddedHost.outcome)
    pin = _aside(EmbeddedHost.pin)
    unpin = _aside(EmbeddedHost.unpin)
    compact = _aside(EmbeddedHost.compact)
    checkpoint = _aside(EmbeddedHost.checkpoint)

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """See `EmbeddedHost.scan`."""
        return _each(self.host.scan(start, end, at, reverse=reverse, limit=limit))

    def history(self, key: bytes, at: int | None = None) -> AsyncIterator[tuple[int, bytes | None]]:
        """See `EmbeddedHost.history`."""
        return _each(self.host.history(key, at))

    def new_txn_id(self) -> TxnId:
        """An id that no transaction has."""
        return self.host.new_txn_id()

    def write(
        self, writes: Mapping[bytes, bytes | None], label: str = "", conditions: Sequence[Condition] = ()
    ) -> asyncio.Future[tuple[int, Verdict]]:
        """Write all if all conditions hold; the answer comes when it is durable. Raises as `EmbeddedHost.write`."""
        written = self.host.submit(writes, label=label, conditions=conditions)
        return self.acknowledgements.wait(written[0], written)

    async def begin_work(self, work: Workspace) -> CoroutineHost:
        """Give a transaction its snapshot, and what reads it."""
        self.host.begin_work(work)
        return self

    def end(self, holder: object) -> None:
        """Let go of a snapshot."""
        self.host.end(holder)

    async def commit(self, work: Workspace) -> int:
        """Commit what a transaction has read and written. Raises as `EmbeddedHost.commit`."""
        gsn, verdict = self.host.submit_work(work)
        try:
            await self.acknowledgements.wait(gsn, None)
        except OutcomeUnknown as error:
            if verdict is None:  # it only read, and what it read is another's
                raise Unavailable(error.cause) from error
            raise
        if verdict is not None and not verdict.committed:
            raise self.host.conflict(verdict, work.snapshot)
        return gsn

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> CoroutineFeed:
        """See `EmbeddedHost.feed`."""
        return CoroutineFeed(self.host.feed(since, prefix, keys))

    async def close(self) -> None:
        """Make durable what was written and release the directory."""
        try:
            await asyncio.to_thread(self.host.close)
        finally:
            await self.acknowledgements.close()


async def _each(items: Iterator[T]) -> AsyncIterator[T]:
    for item in items:
        yield item
