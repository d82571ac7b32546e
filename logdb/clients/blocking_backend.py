"""A Backend over any AsyncBackend: its coroutines run in an event loop, that of this process if the program has none,
and threads wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from logdb.api.backend import AsyncBackend, AsyncChangeFeed, AsyncReader
from logdb.api.results import Change
from logdb.clients.background_loop import begin_in_shared_loop, in_shared_loop, shared_loop
from logdb.errors import DatabaseClosed
from logdb.store.records import TxnId
from logdb.system.forking import own
from logdb.txn.transaction import Workspace

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    verb: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[BlockingReader, P], T]:
    """The verb of this name, which blocks until its result is there."""
    name = verb.__name__

    def called(self: BlockingReader, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def in_loop() -> T:
            answer: T = await getattr(self._reader, name)(*args, **kwargs)
            return answer

        return in_shared_loop(in_loop(), self._loop)

    return called


def _iterating(
    verb: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingReader, P], Iterator[T]]:
    """The verb of this name; the first item is requested at once, so that it is of the version that is newest now."""
    name = verb.__name__

    def called(self: BlockingReader, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items: AsyncIterator[T] = getattr(self._reader, name)(*args, **kwargs)
        try:
            first = in_shared_loop(_next(items), self._loop)
        except StopAsyncIteration:
            return iter(())
        return _each(first, items, self._loop)

    return called


class BlockingReader:
    """A Reader over an AsyncReader. `loop`: that of the reader; None: the one of this process."""

    def __init__(self, reader: AsyncReader, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._reader, self._loop = reader, loop

    get = _blocking(AsyncReader.get)
    multi_get = _blocking(AsyncReader.multi_get)
    scan = _iterating(AsyncReader.scan)
    multi_scan = _blocking(AsyncReader.multi_scan)


class BlockingBackend(BlockingReader):
    """A Backend over an AsyncBackend. `open` makes one. `loop`: that of the backend, which other threads run in; None:
    the one of this process."""

    def __init__(self, backend: AsyncBackend, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(backend, loop)
        self._backend = backend
        self.path, self.read_only = backend.path, backend.read_only
        self._one_close = threading.Lock()
        own(self)

    @classmethod
    def open(cls, opening: Coroutine[Any, Any, AsyncBackend]) -> BlockingBackend:
        """Wrap the backend that `opening` returns. Raises the exceptions of `opening`."""
        return cls(in_shared_loop(opening))

    @property
    def closed(self) -> bool:
        """See `Backend.closed`."""
        return self._backend.closed

    @property
    def forked_from(self) -> int:
        """See `Backend.forked_from`."""
        return self._backend.forked_from

    @property
    def session(self) -> int:
        """See `Backend.session`."""
        return self._backend.session

    version = _blocking(AsyncBackend.version)
    oldest = _blocking(AsyncBackend.oldest)
    at = _blocking(AsyncBackend.at)
    at_time = _blocking(AsyncBackend.at_time)
    time_of = _blocking(AsyncBackend.time_of)
    history = _iterating(AsyncBackend.history)
    write = _blocking(AsyncBackend.write)
    commit = _blocking(AsyncBackend.commit)
    outcome = _blocking(AsyncBackend.outcome)
    pins = _blocking(AsyncBackend.pins)
    measures = _blocking(AsyncBackend.measures)
    pin = _blocking(AsyncBackend.pin)
    unpin = _blocking(AsyncBackend.unpin)
    compact = _blocking(AsyncBackend.compact)
    checkpoint = _blocking(AsyncBackend.checkpoint)

    def begin_work(self, work: Workspace) -> BlockingReader:
        """See `Backend.begin_work`."""
        return BlockingReader(in_shared_loop(_awaited(self._backend.begin_work(work)), self._loop), self._loop)

    def new_txn_id(self) -> TxnId:
        """See `Backend.new_txn_id`."""
        return in_shared_loop(_called(self._backend.new_txn_id), self._loop)

    def end(self, holder: object) -> None:
        """See `Backend.end`."""
        if not self._backend.closed:
            (self._loop or shared_loop()).call_soon_threadsafe(self._backend.end, holder)

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> BlockingFeed:
        """See `Backend.feed`."""
        feed = in_shared_loop(_called(self._backend.feed, since, prefix, keys), self._loop)
        in_shared_loop(_awaited(feed.begun()), self._loop)
        return BlockingFeed(feed, self._loop)

    def disown(self, parent: int) -> None:
        """In a child of fork(): replace the lock. The AsyncBackend is disowned on its own."""
        self._one_close = threading.Lock()

    def close(self) -> None:
        """See `Backend.close`."""
        with self._one_close:
            if not self._backend.closed:
                in_shared_loop(_awaited(self._backend.close()), self._loop)


class BlockingFeed:
    """A ChangeFeed over an AsyncChangeFeed."""

    def __init__(self, feed: AsyncChangeFeed, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._feed, self._loop = feed, loop

    def poll(self, timeout: float | None) -> Change | None:
        """See `ChangeFeed.poll`."""
        try:
            return in_shared_loop(_awaited(self._feed.poll(timeout)), self._loop)
        except DatabaseClosed as error:
            if error.parent:
                raise
            return None

    def close(self) -> None:
        """See `ChangeFeed.close`."""
        begin_in_shared_loop(_awaited(self._feed.close()), self._loop)


def _each(item: T, items: AsyncIterator[T], loop: asyncio.AbstractEventLoop | None) -> Iterator[T]:
    try:
        while True:
            yield item
            try:
                item = in_shared_loop(_next(items), loop)
            except StopAsyncIteration:
                return
    finally:
        begin_in_shared_loop(items.aclose(), loop)  # type: ignore[attr-defined]


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()


async def _awaited(result: Awaitable[T]) -> T:
    return await result


async def _called(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)
