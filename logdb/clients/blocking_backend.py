"""A Backend over a RequestBackend: a runner runs its coroutines, in an event loop for which threads wait, or in the
thread that calls."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from logdb.api.backend import AsyncBackend, AsyncChangeFeed, AsyncReader
from logdb.api.results import Change
from logdb.clients.background_loop import LoopRunner
from logdb.clients.lazy_snapshot import RequestBackend
from logdb.errors import DatabaseClosed
from logdb.store.records import TxnId
from logdb.system.forking import own
from logdb.txn.transaction import Workspace

P = ParamSpec("P")
T = TypeVar("T")


class Runner(Protocol):
    """Runs the coroutines of a backend, for any thread."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. Ctrl-C interrupts it."""

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a coroutine, also from a destructor; its result is ignored."""

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function that waits for nothing, also from a destructor."""


SHARED_LOOP: Final = LoopRunner()


def _blocking(
    verb: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[BlockingReader, P], T]:
    """The verb of this name, which blocks until its result is there."""
    name = verb.__name__

    def called(self: BlockingReader, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def in_loop() -> T:
            answer: T = await getattr(self._reader, name)(*args, **kwargs)
            return answer

        return self._runner.run(in_loop())

    return called


def _iterating(
    verb: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingReader, P], Iterator[T]]:
    """The verb of this name; the first item is requested at once, so that it is of the version that is newest now."""
    name = verb.__name__

    def called(self: BlockingReader, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items: AsyncIterator[T] = getattr(self._reader, name)(*args, **kwargs)
        try:
            first = self._runner.run(_next(items))
        except StopAsyncIteration:
            return iter(())
        return _each(first, items, self._runner)

    return called


class BlockingReader:
    """A Reader over an AsyncReader. `runner`: runs its coroutines."""

    def __init__(self, reader: AsyncReader, runner: Runner) -> None:
        self._reader, self._runner = reader, runner

    get = _blocking(AsyncReader.get)
    multi_get = _blocking(AsyncReader.multi_get)
    scan = _iterating(AsyncReader.scan)
    multi_scan = _blocking(AsyncReader.multi_scan)


class BlockingBackend(BlockingReader):
    """A Backend over a RequestBackend. `open` makes one. `runner`: runs its coroutines."""

    def __init__(self, backend: RequestBackend, runner: Runner = SHARED_LOOP) -> None:
        super().__init__(backend, runner)
        self._backend = backend
        self.path, self.read_only = backend.path, backend.read_only
        self._one_close, self._is_over = threading.Lock(), False
        own(self)

    @classmethod
    def open(cls, opening: Coroutine[Any, Any, RequestBackend], runner: Runner = SHARED_LOOP) -> BlockingBackend:
        """Wrap the backend that `opening` returns. Raises the exceptions of `opening`."""
        return cls(runner.run(opening), runner)

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
    outcome = _blocking(AsyncBackend.outcome)
    pins = _blocking(AsyncBackend.pins)
    measures = _blocking(AsyncBackend.measures)
    pin = _blocking(AsyncBackend.pin)
    unpin = _blocking(AsyncBackend.unpin)
    compact = _blocking(AsyncBackend.compact)
    checkpoint = _blocking(AsyncBackend.checkpoint)

    def begin_work(self, work: Workspace) -> BlockingReader:
        """See `Backend.begin_work`: without a request, unless the transaction guards its writes."""
        reader = self._backend.reader_of(work)
        if work.guard_writes:
            self._runner.run(_awaited(reader.begin(None)))
        return BlockingReader(reader, self._runner)

    def commit(self, work: Workspace) -> int:
        """See `Backend.commit`."""
        if not self._backend.closed and self._backend.ends_without_request(work):
            self.end(work)
            return work.snapshot
        return self._runner.run(_awaited(self._backend.commit(work)))

    def new_txn_id(self) -> TxnId:
        """See `Backend.new_txn_id`."""
        return self._runner.run(_called(self._backend.new_txn_id))

    def end(self, holder: object) -> None:
        """See `Backend.end`."""
        if not self._backend.closed:
            self._runner.call_soon(self._backend.end, holder)

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> BlockingFeed:
        """See `Backend.feed`."""
        feed = self._runner.run(_called(self._backend.feed, since, prefix, keys))
        self._runner.run(_awaited(feed.begun()))
        return BlockingFeed(feed, self._runner)

    def disown(self, parent: int) -> None:
        """In a child of fork(): replace the lock. The AsyncBackend is disowned on its own."""
        self._one_close = threading.Lock()

    def close(self) -> None:
        """See `Backend.close`."""
        with self._one_close:
            if not (self._is_over or self.forked_from):
                self._runner.run(_awaited(self._backend.close()))
                self._is_over = True  # not before: the close may be interrupted, and repeated


class BlockingFeed:
    """A ChangeFeed over an AsyncChangeFeed."""

    def __init__(self, feed: AsyncChangeFeed, runner: Runner) -> None:
        self._feed, self._runner = feed, runner

    def poll(self, timeout: float | None) -> Change | None:
        """See `ChangeFeed.poll`."""
        try:
            return self._runner.run(_awaited(self._feed.poll(timeout)))
        except DatabaseClosed as error:
            if error.parent:
                raise
            return None

    def close(self) -> None:
        """See `ChangeFeed.close`."""
        self._runner.begin(_awaited(self._feed.close()))


def _each(item: T, items: AsyncIterator[T], runner: Runner) -> Iterator[T]:
    try:
        while True:
            yield item
            try:
                item = runner.run(_next(items))
            except StopAsyncIteration:
                return
    finally:
        runner.begin(items.aclose())  # type: ignore[attr-defined]


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()


async def _awaited(result: Awaitable[T]) -> T:
    return await result


async def _called(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)
