"""A Backend over any AsyncBackend: threads wait while its coroutines run in the event loop of this process."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from logdb.api.backend import AsyncBackend, AsyncChangeFeed, AsyncReader
from logdb.api.results import Change
from logdb.clients.background_loop import begin_in_shared_loop, in_shared_loop, shared_loop
from logdb.errors import DatabaseClosed
from logdb.store.key_map import Rows
from logdb.store.ranges import ScanRange
from logdb.store.records import TxnId
from logdb.system.forking import own
from logdb.txn.transaction import Workspace

P = ParamSpec("P")
T = TypeVar("T")

Verb = Callable[Concatenate[AsyncBackend, P], Awaitable[T]]
BlockingVerb = Callable[Concatenate["BlockingBackend", P], T]


def _blocking(verb: Verb[P, T]) -> BlockingVerb[P, T]:
    """The verb of that name."""
    name = verb.__name__

    def called(self: BlockingBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def in_loop() -> T:
            answer: T = await getattr(self._host, name)(*args, **kwargs)
            return answer

        return in_shared_loop(in_loop())

    return called


class BlockingBackend:
    """A database for threads. `open` makes one."""

    def __init__(self, host: AsyncBackend) -> None:
        self._host = host
        self.path, self.read_only = host.path, host.read_only
        self._one_close = threading.Lock()
        own(self)

    @classmethod
    def open(cls, opening: Coroutine[Any, Any, AsyncBackend]) -> BlockingBackend:
        """Over the host that it returns. Raises what it raises."""
        return cls(in_shared_loop(opening))

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._host.closed

    @property
    def forked_from(self) -> int:
        """In a child of fork() that has inherited it, the parent."""
        return self._host.forked_from

    @property
    def session(self) -> int:
        """The newest version that has been seen through this host."""
        return self._host.session

    version = _blocking(AsyncBackend.version)
    oldest = _blocking(AsyncBackend.oldest)
    at = _blocking(AsyncBackend.at)
    at_time = _blocking(AsyncBackend.at_time)
    time_of = _blocking(AsyncBackend.time_of)
    get = _blocking(AsyncBackend.get)
    multi_get = _blocking(AsyncBackend.multi_get)
    multi_scan = _blocking(AsyncBackend.multi_scan)
    write = _blocking(AsyncBackend.write)
    commit = _blocking(AsyncBackend.commit)
    outcome = _blocking(AsyncBackend.outcome)
    pins = _blocking(AsyncBackend.pins)
    pin = _blocking(AsyncBackend.pin)
    unpin = _blocking(AsyncBackend.unpin)
    compact = _blocking(AsyncBackend.compact)
    checkpoint = _blocking(AsyncBackend.checkpoint)

    def begin_work(self, work: Workspace) -> BlockingReader:
        """A transaction, and what it reads with."""
        return BlockingReader(in_shared_loop(self._host.begin_work(work)), self)

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
        return self.begun(self._host.scan(start, end, at, reverse=reverse, limit=limit))

    def history(self, key: bytes, at: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        """(version, value), newest first."""
        return self.begun(self._host.history(key, at))

    def begun(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items; the first one is asked for now, so that they are of the version that is the newest now."""
        try:
            first = in_shared_loop(_next(items))
        except StopAsyncIteration:
            return iter(())
        return self._each(first, items)

    def _each(self, item: T, items: AsyncIterator[T]) -> Iterator[T]:
        try:
            while True:
                yield item
                try:
                    item = in_shared_loop(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            begin_in_shared_loop(items.aclose())  # type: ignore[attr-defined]

    def new_txn_id(self) -> TxnId:
        """An id that no transaction has."""
        return in_shared_loop(_called(self._host.new_txn_id))

    def end(self, holder: object) -> None:
        """Let go of a snapshot."""
        if not self._host.closed:
            shared_loop().call_soon_threadsafe(self._host.end, holder)

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> BlockingFeed:
        """The commits after `since`. Raises VersionTrimmed, FutureVersion."""
        feed = in_shared_loop(_called(self._host.feed, since, prefix, keys))
        in_shared_loop(feed.begun())
        return BlockingFeed(feed)

    def disown(self, parent: int) -> None:
        """In a child of fork(). The host is disowned on its own."""
        self._one_close = threading.Lock()

    def close(self) -> None:
        """Answer what was sent to be written, then let go of the servers."""
        with self._one_close:
            if not self._host.closed:
                in_shared_loop(self._host.close())


class BlockingReader:
    """What a transaction of a thread reads with."""

    def __init__(self, reader: AsyncReader, host: BlockingBackend) -> None:
        self._reader, self._host = reader, host

    def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key`."""
        return in_shared_loop(self._reader.get(key, at))

    def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """(the version read, those of `keys` that exist)."""
        return in_shared_loop(self._reader.multi_get(keys, at))

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

    def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of each range."""
        return in_shared_loop(self._reader.multi_scan(ranges, at, reverse=reverse))


class BlockingFeed:
    """A feed for one thread."""

    def __init__(self, feed: AsyncChangeFeed) -> None:
        self._feed = feed

    def poll(self, timeout: float | None) -> Change | None:
        """See `hosts.ChangeFeed`."""
        try:
            return in_shared_loop(self._feed.poll(timeout))
        except DatabaseClosed as error:
            if error.parent:
                raise
            return None

    def close(self) -> None:
        """End the feed."""
        begin_in_shared_loop(self._feed.close())


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()


async def _called(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)
