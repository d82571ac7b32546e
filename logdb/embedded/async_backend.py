"""A database of this process for the coroutines of one event loop: writes wait for the disk in a thread, reads run in
the loop.

Reads answer from memory and the map, and yield to the loop now and then, which awaiting a finished result does not.
Upkeep runs in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast

from logdb.api.backend import AsyncBackend, AsyncChangeFeed, Backend
from logdb.api.results import Change
from logdb.embedded.acknowledgements import Acknowledgements
from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.cold.reads import VERBS
from logdb.embedded.feed import Feed
from logdb.embedded.snapshots import Holder
from logdb.errors import OutcomeUnknown, Unavailable
from logdb.store.key_map import Rows
from logdb.store.ranges import ScanRange
from logdb.store.records import Condition, Fold, Range, TxnId
from logdb.system.forking import keep_for_ever, own
from logdb.txn.transaction import Workspace
from logdb.txn.validation import Verdict

P = ParamSpec("P")
T = TypeVar("T")

TURN_KEYS: Final = 1_000
"""Number of keys (or KiB) read before the loop runs other coroutines; takes about a millisecond."""
BATCH_KEYS: Final = 100
"""Number of keys that a batch of a scan, or a change, counts as."""
PASSED_KEYS: Final = 500
"""The same for an empty batch: keys that do not exist take the longest."""

VERSION_KEYS: Final = 5
"""Number of keys that a version of a history counts as: the value of an older one may be read from the log."""


class LoopBudget:
    """How many keys the coroutines of one event loop may still read before they yield to the loop."""

    def __init__(self) -> None:
        self.left = TURN_KEYS

    async def end(self) -> None:
        """Let the loop run all coroutines that are ready."""
        self.left = TURN_KEYS
        await asyncio.sleep(0)


class CoroutineFeed(AsyncChangeFeed):
    """The change feed for one coroutine; it waits in a thread of its own."""

    def __init__(self, feed: Feed, budget: LoopBudget) -> None:
        self._feed, self._budget = feed, budget
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-watch")
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(), which does not have the thread."""
        keep_for_ever(self._thread)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-watch")

    async def begun(self) -> None:
        """Return at once: the version is known."""

    async def poll(self, timeout: float | None) -> Change | None:
        """See `Feed.poll`."""
        feed, budget = self._feed, self._budget
        budget.left -= BATCH_KEYS
        if budget.left < 0:
            await budget.end()
        while not feed.is_cold:
            if feed.has_ready:
                return feed.take()
            if not feed.read(0):
                break
            if not feed.has_ready:  # it has passed a thousand commits
                await budget.end()
        return await asyncio.get_running_loop().run_in_executor(self._thread, feed.poll, timeout)

    async def close(self) -> None:
        """End the feed and its thread."""
        self._feed.close()
        self._thread.shutdown()


def _at_once(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[CoroutineBackend, P], Coroutine[Any, Any, T]]:
    """The verb of this name of `EmbeddedBackend`, run in the loop: it answers from memory."""
    name = verb.__name__

    async def called(self: CoroutineBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.embedded.cold is not None and name in VERBS:
            return cast(T, await asyncio.to_thread(getattr(self.embedded, name), *args, **kwargs))
        answer: T = getattr(self.embedded, name)(*args, **kwargs)
        budget = self.budget
        budget.left -= 1
        if budget.left < 0:
            await budget.end()
        return answer

    return called


def _in_thread(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[CoroutineBackend, P], Coroutine[Any, Any, T]]:
    """The verb of this name of `EmbeddedBackend`, run in a thread: it waits for the disk."""
    name = verb.__name__

    async def called(self: CoroutineBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = await asyncio.to_thread(getattr(self.embedded, name), *args, **kwargs)
        return answer

    return called


def _in_own_thread(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[CoroutineBackend, P], Coroutine[Any, Any, T]]:
    """The same, in the one thread of this verb: its calls wait for each other, and would hold all threads meanwhile."""
    name = verb.__name__

    async def called(self: CoroutineBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = partial(getattr(self.embedded, name), *args, **kwargs)
        if self.closed:
            return cast(T, call())  # raises that it is
        return cast(T, await asyncio.get_running_loop().run_in_executor(self.upkeep[name], call))

    return called


class Items(Generic[T]):
    """The items of an iterator; it yields to the loop now and then. `keys`: number of keys that an item counts as.

    An asynchronous generator would be registered by the loop at its beginning and its end, which takes as long as a
    short scan.
    """

    __slots__ = ("_budget", "_items", "_keys")

    def __init__(self, items: Iterator[T], budget: LoopBudget, keys: int) -> None:
        self._items, self._budget, self._keys = items, budget, keys

    def __aiter__(self) -> Items[T]:
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            budget = self._budget
            budget.left -= self._keys if item else PASSED_KEYS
            if budget.left < 0:
                await budget.end()
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close the iterator, which ends its lease, if it has one."""
        if isinstance(self._items, Generator):
            self._items.close()


class SlowItems(Items[T]):
    """As `Items`, of an iterator that may read the cold tier: each item is read in a thread."""

    __slots__ = ()

    async def __anext__(self) -> T:
        end = object()
        item = await asyncio.to_thread(next, self._items, end)
        if item is end:
            raise StopAsyncIteration
        return cast(T, item)


def _upkeep_threads() -> dict[str, ThreadPoolExecutor]:
    return {name: ThreadPoolExecutor(1, thread_name_prefix=f"logdb-{name}") for name in ("compact", "checkpoint")}


class CoroutineBackend(AsyncBackend):
    """An AsyncBackend over `embedded`. `sync_in_loop`: see `Acknowledgements`."""

    def __init__(self, embedded: EmbeddedBackend, *, sync_in_loop: bool = False) -> None:
        self.embedded = embedded
        self.path, self.read_only = embedded.path, embedded.read_only
        self.acknowledgements = Acknowledgements(embedded.log, embedded.commits, in_loop=sync_in_loop)
        self.budget = LoopBudget()
        self.upkeep = _upkeep_threads()
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(), which does not have the threads."""
        keep_for_ever(self.upkeep)
        self.upkeep = _upkeep_threads()

    @property
    def closed(self) -> bool:
        """See `EmbeddedBackend.closed`."""
        return self.embedded.closed

    @property
    def forked_from(self) -> int:
        """See `EmbeddedBackend.forked_from`."""
        return self.embedded.forked_from

    @property
    def session(self) -> int:
        """See `EmbeddedBackend.session`."""
        return self.embedded.session

    version = _at_once(Backend.version)
    oldest = _at_once(Backend.oldest)
    at = _at_once(Backend.at)
    at_time = _at_once(Backend.at_time)
    time_of = _at_once(Backend.time_of)
    pins = _at_once(Backend.pins)
    measures = _at_once(Backend.measures)
    outcome = _in_thread(Backend.outcome)
    pin = _in_thread(Backend.pin)
    unpin = _in_thread(Backend.unpin)
    compact = _in_own_thread(Backend.compact)
    checkpoint = _in_own_thread(Backend.checkpoint)

    # The verbs below are hot, or count what they read: a wrapper would cost a get a tenth of its throughput.

    async def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """See `Backend.get`."""
        if at is not None and self._is_cold(at):
            return await asyncio.to_thread(self.embedded.get, key, at)
        value = self.embedded.get(key, at)
        budget = self.budget
        budget.left -= 1 if value is None else 1 + (len(value) >> 10)
        if budget.left < 0:
            await budget.end()
        return value

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `Backend.multi_get`."""
        if at is not None and self._is_cold(at):
            return await asyncio.to_thread(self.embedded.multi_get, keys, at)
        if len(keys) > TURN_KEYS:
            return await self._multi_get_in_turns(keys, at)
        answer = self.embedded.multi_get(keys, at)
        budget = self.budget
        found = answer[1]
        budget.left -= 1 + len(keys) + (len(found) * len(found[0][1]) >> 10 if found else 0)  # of similar sizes
        if budget.left < 0:
            await budget.end()
        return answer

    async def _multi_get_in_turns(self, keys: list[bytes], at: int | None) -> tuple[int, list[tuple[bytes, bytes]]]:
        holder, found, snapshots = Holder(), list[tuple[bytes, bytes]](), self.embedded.snapshots
        if at is None:
            at = snapshots.begin(holder, read_only=True)
        else:
            snapshots.keep(holder, at)
        try:
            for first in range(0, len(keys), TURN_KEYS):
                found += (await self.multi_get(keys[first : first + TURN_KEYS], at))[1]
        finally:
            self.embedded.end(holder)
        return at, found

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """See `Backend.scan`."""
        kind = SlowItems if at is not None and self._is_cold(at) else Items
        batches = self.embedded.scan(start, end, at, reverse=reverse, limit=limit)
        return kind(iter(batches), self.budget, BATCH_KEYS)

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `Backend.multi_scan`."""
        holder, found = Holder(), []
        version = self.embedded.snapshots.begin(holder, read_only=True) if at is None else at
        try:
            for start, end, limit in ranges:
                rows: list[tuple[bytes, bytes]] = []
                async for batch in self.scan(start, end, version, reverse=reverse, limit=limit):
                    rows += batch
                found.append(rows[:limit])
        finally:
            self.embedded.end(holder)
        return found

    def history(self, key: bytes, at: int | None = None) -> AsyncIterator[tuple[int, bytes | None]]:
        """See `Backend.history`."""
        kind = Items if self.embedded.cold is None else SlowItems
        return kind(self.embedded.history(key, at), self.budget, VERSION_KEYS)

    def _is_cold(self, at: int) -> bool:
        """Whether a version is read from the cold tier."""
        cold = self.embedded.cold
        return cold is not None and cold.has(at)

    def new_txn_id(self) -> TxnId:
        """See `Backend.new_txn_id`."""
        return self.embedded.new_txn_id()

    def write(
        self,
        writes: Mapping[bytes, bytes | None],
        label: str = "",
        conditions: Sequence[Condition] = (),
        deletes: Sequence[Range] = (),
        appended: int = 0,
        folds: Sequence[Fold] = (),
    ) -> asyncio.Future[tuple[int, Verdict]]:
        """See `Backend.write`: the record is ordered now, or once the disk has taken others; the future is done when it
        is durable."""
        commits = self.embedded.commits

        def submit() -> tuple[int, Verdict]:
            return commits.submit(
                writes, label=label, conditions=conditions, deletes=deletes, appended=appended, folds=folds
            )

        if not commits.has_room:
            return asyncio.ensure_future(self._write_later(submit))
        written = submit()
        return self.acknowledgements.wait(written[0], written)

    async def _write_later(self, submit: Callable[[], tuple[int, Verdict]]) -> tuple[int, Verdict]:
        await self.acknowledgements.until_room()
        written = submit()
        return await self.acknowledgements.wait(written[0], written)

    async def begin_work(self, work: Workspace) -> CoroutineBackend:
        """See `Backend.begin_work`."""
        self.embedded.snapshots.begin_work(work)
        budget = self.budget
        budget.left -= 1
        if budget.left < 0:
            await budget.end()
        return self

    def end(self, holder: object) -> None:
        """See `Backend.end`."""
        self.embedded.end(holder)

    async def commit(self, work: Workspace) -> int:
        """See `Backend.commit`."""
        if not self.embedded.commits.has_room:
            try:
                await self.acknowledgements.until_room()
            except BaseException:
                self.embedded.end(work)
                raise
        gsn, verdict = self.embedded.commits.submit_work(work)
        try:
            await self.acknowledgements.wait(gsn, None)
        except OutcomeUnknown as error:
            if verdict is None:  # it only read, so the lost commit is another's
                raise Unavailable(error.cause) from error
            raise
        if verdict is not None and not verdict.committed:
            raise self.embedded.commits.conflict(verdict, work.snapshot)
        return gsn

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> CoroutineFeed:
        """See `Backend.feed`."""
        return CoroutineFeed(self.embedded.feed(since, prefix, keys), self.budget)

    async def close(self) -> None:
        """See `Backend.close`."""
        try:
            await asyncio.to_thread(self.embedded.close)
        finally:
            for thread in self.upkeep.values():
                thread.shutdown(wait=False)
            await self.acknowledgements.close()
