"""The database of other processes, for threads: a Host over the coroutines of `RemoteHost`, in one loop and thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from logdb.embedded.feed import Change
from logdb.errors import DatabaseClosed
from logdb.net.service.client import RemoteFeed, RemoteHost, RemoteReader
from logdb.store.mapping import Rows
from logdb.store.records import TxnId
from logdb.txn.transaction import Workspace

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, which does not keep the process alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="logdb-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns. An interrupt of the caller cancels it. Raises DatabaseClosed after `stop`."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise DatabaseClosed("the connection") from None
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Have it called in the loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    def stop(self) -> None:
        """End the loop and the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


Verb = Callable[Concatenate[RemoteHost, P], Coroutine[Any, Any, T]]
BlockingVerb = Callable[Concatenate["BlockingHost", P], T]


def _blocking(verb: Verb[P, T]) -> BlockingVerb[P, T]:
    def called(self: BlockingHost, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(verb(self._remote, *args, **kwargs))

    return called


class BlockingHost:
    """A database that servers answer for. `connect` makes one."""

    read_only = False

    def __init__(self, remote: RemoteHost, thread: LoopThread) -> None:
        self._remote, self._thread = remote, thread
        self.path = remote.path
        self._one_close = threading.Lock()

    @classmethod
    def connect(cls, endpoints: Sequence[str], timeout_s: float) -> BlockingHost:
        """Reach one of the servers. Raises Unavailable, ProtocolMismatch."""
        thread = LoopThread()
        try:
            return cls(thread.run(RemoteHost.connect(endpoints, timeout_s)), thread)
        except BaseException:
            thread.stop()
            raise

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._remote.closed

    version = _blocking(RemoteHost.version)
    oldest = _blocking(RemoteHost.oldest)
    at = _blocking(RemoteHost.at)
    at_time = _blocking(RemoteHost.at_time)
    time_of = _blocking(RemoteHost.time_of)
    get = _blocking(RemoteHost.get)
    multi_get = _blocking(RemoteHost.multi_get)
    write = _blocking(RemoteHost.write)
    commit = _blocking(RemoteHost.commit)
    outcome = _blocking(RemoteHost.outcome)
    pins = _blocking(RemoteHost.pins)
    pin = _blocking(RemoteHost.pin)
    unpin = _blocking(RemoteHost.unpin)
    compact = _blocking(RemoteHost.compact)
    checkpoint = _blocking(RemoteHost.checkpoint)

    def begin_work(self, work: Workspace) -> BlockingReader:
        """A transaction, which takes its snapshot with its first read."""
        return BlockingReader(self._thread.run(self._remote.begin_work(work)), self._thread, self)

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Rows]:
        """Batches of (key, value)."""
        return self.begun(self._remote.scan(start, end, at, reverse=reverse, limit=limit))

    def history(self, key: bytes, at: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        """(version, value), newest first."""
        return self.begun(self._remote.history(key, at))

    def begun(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items; the first one is asked for now, so that they are of the version that is the newest now."""
        try:
            first = self._thread.run(_next(items))
        except StopAsyncIteration:
            return iter(())
        return self._each(first, items)

    def _each(self, item: T, items: AsyncIterator[T]) -> Iterator[T]:
        try:
            while True:
                yield item
                try:
                    item = self._thread.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if not self.closed:
                self._thread.run(items.aclose())  # type: ignore[attr-defined]

    def new_txn_id(self) -> TxnId:
        """An id that no transaction has."""
        return self._thread.run(_called(self._remote.new_txn_id))

    def end(self, holder: object) -> None:
        """Let go of a snapshot."""
        self._thread.call_soon(self._remote.end, holder)

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> BlockingFeed:
        """The commits after `since`. Raises VersionTrimmed, FutureVersion."""
        feed = self._thread.run(_called(self._remote.feed, since, prefix, keys))
        self._thread.run(feed.begun())
        return BlockingFeed(feed, self._thread)

    def close(self) -> None:
        """Answer what was sent to be written, then let go of the servers."""
        with self._one_close:
            if not self._remote.closed:
                self._thread.run(self._remote.close())
                self._thread.stop()


class BlockingReader:
    """What a transaction of a thread reads with."""

    def __init__(self, reader: RemoteReader, thread: LoopThread, host: BlockingHost) -> None:
        self._reader, self._thread, self._host = reader, thread, host

    def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key`."""
        return self._thread.run(self._reader.get(key, at))

    def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """(the version read, those of `keys` that exist)."""
        return self._thread.run(self._reader.multi_get(keys, at))

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Rows]:
        """Batches of (key, value)."""
        return self._host.begun(self._reader.scan(start, end, at, reverse=reverse, limit=limit))


class BlockingFeed:
    """A feed for one thread."""

    def __init__(self, feed: RemoteFeed, thread: LoopThread) -> None:
        self._feed, self._thread = feed, thread

    def poll(self, timeout: float | None) -> Change | None:
        """See `hosts.ChangeFeed`."""
        try:
            return self._thread.run(self._feed.poll(timeout))
        except DatabaseClosed:
            return None

    def close(self) -> None:
        """End the feed."""
        self._thread.call_soon(self._feed.end)


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()


async def _called(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)
