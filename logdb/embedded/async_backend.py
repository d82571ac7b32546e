"""The embedded host for the coroutines of one event loop: what waits for the disk leaves the loop, reads do not.

Coroutines share syncs: those that commit while one is under way are made durable together by the next, in a thread of
the host's own. Reads answer from memory and the map, and now and then let the other coroutines have their turn, which
awaiting what is there already does not. Upkeep runs in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from logdb.api.results import Change
from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.feed import Feed
from logdb.errors import OutcomeUnknown, Unavailable
from logdb.log.contract import LogFailed
from logdb.store.key_map import Rows
from logdb.store.ranges import ScanRange
from logdb.store.records import Condition, TxnId
from logdb.system.forking import own
from logdb.txn.transaction import Workspace
from logdb.txn.validation import Verdict

P = ParamSpec("P")
T = TypeVar("T")
Told = Callable[[BaseException | None], None]
"""Hears that a commit is durable, or why it is not known to be; OutcomeUnknown if the log has failed."""


HANDOVER_S: Final = 0.0005
"""A sync that takes no longer costs the loop hardly more than to hand it to the thread and back."""


DELAY_S: Final = 0.002
"""So often it is seen, at the end, whether all have been told who had to wait."""

TURN_KEYS: Final = 1_000
"""After reading so many keys (or as many KiB), which takes about a millisecond, the others have their turn."""
BATCH_KEYS: Final = 100
"""A batch of a scan or a change counts as so many."""


class LoopBudget:
    """How much the coroutines of one event loop may still read before the loop goes round."""

    def __init__(self) -> None:
        self.left = TURN_KEYS

    async def end(self) -> None:
        """Let all that are ready have their turn."""
        self.left = TURN_KEYS
        await asyncio.sleep(0)


class Acknowledgements:
    """The commits of one event loop that wait to be durable, and the thread that syncs for all of them.

    `in_loop`: where the last sync was quick the next one is made in the loop. A program's own loop never waits.
    """

    def __init__(self, host: EmbeddedBackend, *, in_loop: bool) -> None:
        self._host, self._in_loop = host, in_loop
        self._waiting: list[tuple[int, int, Told]] = []
        self._delayed = 0
        self._syncing = False
        self._took_s = math.inf
        self._jobs: SimpleQueue[tuple[asyncio.AbstractEventLoop, int] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): the commits that wait are the parent's, and its thread is not here."""
        self._waiting, self._syncing, self._thread, self._jobs = [], False, None, SimpleQueue()

    def wait(self, gsn: int, result: T) -> asyncio.Future[T]:
        """To be awaited: `result`, when `gsn` is durable. Raises OutcomeUnknown."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def told(failure: BaseException | None) -> None:
            if future.done():
                return
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)

        self.tell(gsn, told)
        return future

    def tell(self, gsn: int, told: Told, first: int = 0) -> None:
        """Call `told` when `gsn` is durable, and what the caller has committed since `first` may be acknowledged."""
        if self._host.log.durable >= gsn:
            self._acknowledge(first or gsn, gsn, told)
            return
        self._waiting.append((first or gsn, gsn, told))
        if not self._syncing:
            # Not before the coroutines that are ready now have had their turn: their commits ride along.
            self._syncing = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._sync, loop)

    async def close(self) -> None:
        """End the thread. What waits is answered first."""
        while self._waiting:
            await asyncio.gather(self.wait(self._waiting[-1][1], None), return_exceptions=True)
        while self._delayed:
            await asyncio.sleep(DELAY_S)
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _sync(self, loop: asyncio.AbstractEventLoop) -> None:
        last = max([gsn for _, gsn, _ in self._waiting])
        if self._in_loop and self._took_s < HANDOVER_S:
            self._answer(loop, self._flush(last))
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="logdb-sync", daemon=True)
            self._thread.start()
        self._jobs.put((loop, last))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, last = job
            failure = self._flush(last)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._answer, loop, failure)

    def _flush(self, last: int) -> BaseException | None:
        """Returns what it raised, whatever that is: who waits must hear of it."""
        begun = time.perf_counter()
        try:
            self._host.log.wait_durable(last)
        except BaseException as error:
            return error
        finally:
            self._took_s = time.perf_counter() - begun
        return None

    def _answer(self, loop: asyncio.AbstractEventLoop, failure: BaseException | None) -> None:
        durable = self._host.log.durable
        waiting, self._waiting = self._waiting, []
        for first, gsn, told in waiting:
            if gsn <= durable:
                self._acknowledge(first, gsn, told)
            elif failure is None:
                self._waiting.append((first, gsn, told))
            else:
                told(self._host.outcome_unknown(gsn, failure) if isinstance(failure, LogFailed) else failure)
        self._syncing = bool(self._waiting)
        if self._syncing:
            self._sync(loop)

    def _acknowledge(self, first: int, gsn: int, told: Told) -> None:
        """Tell of what is durable, as soon as the pacer lets it."""
        pacer = self._host.pacer
        if pacer is None or not (left := pacer.owed(first, gsn)):
            told(None)
            return

        def paid() -> None:
            self._delayed -= 1
            pacer.paid(gsn)
            told(None)

        self._delayed += 1
        asyncio.get_running_loop().call_later(left, paid)


class CoroutineFeed:
    """The change feed for one coroutine, which waits in a thread of the feed's own."""

    def __init__(self, feed: Feed, turn: LoopBudget) -> None:
        self._feed, self._turn = feed, turn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-watch")

    async def begun(self) -> None:
        """It has."""

    async def poll(self, timeout: float | None) -> Change | None:
        """See `Feed.poll`."""
        feed, turn = self._feed, self._turn
        turn.left -= BATCH_KEYS
        if turn.left < 0:
            await turn.end()
        return feed.poll(0) or await asyncio.get_running_loop().run_in_executor(self._thread, feed.poll, timeout)

    async def close(self) -> None:
        """End the feed and its thread."""
        self._feed.close()
        self._thread.shutdown()


Verb = Callable[Concatenate[EmbeddedBackend, P], T]
CoroutineVerb = Callable[Concatenate["CoroutineBackend", P], Coroutine[Any, Any, T]]


def _at_once(verb: Verb[P, T]) -> CoroutineVerb[P, T]:
    """The verb for what is answered from memory."""

    async def called(self: CoroutineBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer = verb(self.host, *args, **kwargs)
        turn = self.turn
        turn.left -= 1
        if turn.left < 0:
            await turn.end()
        return answer

    return called


def _background(verb: Verb[P, T]) -> CoroutineVerb[P, T]:
    """The verb for what waits: in a thread."""

    async def called(self: CoroutineBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(verb, self.host, *args, **kwargs)

    return called


class Items(Generic[T]):
    """What an iterator of the host gives, with a turn for others now and then. `keys`: as how many an item counts.

    A generator would be noted by the loop, when it begins and when it is left, which takes as long as a short scan.
    """

    __slots__ = ("_items", "_keys", "_turn")

    def __init__(self, items: Iterator[T], turn: LoopBudget, keys: int) -> None:
        self._items, self._turn, self._keys = items, turn, keys

    def __aiter__(self) -> Items[T]:
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            turn = self._turn
            turn.left -= self._keys
            if turn.left < 0:
                await turn.end()
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go of what the iterator holds."""
        self._items.close()  # type: ignore[attr-defined]


class CoroutineBackend:
    """An AsyncBackend over `host`. `sync_in_loop`: see `Acknowledgements`."""

    def __init__(self, host: EmbeddedBackend, *, sync_in_loop: bool = False) -> None:
        self.host = host
        self.path, self.read_only = host.path, host.read_only
        self.acknowledgements = Acknowledgements(host, in_loop=sync_in_loop)
        self.turn = LoopBudget()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self.host.closed

    @property
    def forked_from(self) -> int:
        """See `EmbeddedBackend.forked_from`."""
        return self.host.forked_from

    @property
    def session(self) -> int:
        """See `EmbeddedBackend.session`."""
        return self.host.session

    version = _at_once(EmbeddedBackend.version)
    oldest = _at_once(EmbeddedBackend.oldest)
    at = _at_once(EmbeddedBackend.at)
    at_time = _at_once(EmbeddedBackend.at_time)
    time_of = _at_once(EmbeddedBackend.time_of)
    pins = _at_once(EmbeddedBackend.pins)
    outcome = _background(EmbeddedBackend.outcome)
    pin = _background(EmbeddedBackend.pin)
    unpin = _background(EmbeddedBackend.unpin)
    compact = _background(EmbeddedBackend.compact)
    checkpoint = _background(EmbeddedBackend.checkpoint)

    async def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """See `EmbeddedBackend.get`."""
        value = self.host.get(key, at)
        turn = self.turn
        turn.left -= 1 if value is None else 1 + (len(value) >> 10)
        if turn.left < 0:
            await turn.end()
        return value

    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `EmbeddedBackend.multi_get`."""
        answer = self.host.multi_get(keys, at)
        turn = self.turn
        found = answer[1]
        turn.left -= 1 + len(keys) + (len(found) * len(found[0][1]) >> 10 if found else 0)  # alike, as a rule
        if turn.left < 0:
            await turn.end()
        return answer

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]:
        """See `EmbeddedBackend.scan`."""
        return Items(self.host.scan(start, end, at, reverse=reverse, limit=limit), self.turn, BATCH_KEYS)

    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `EmbeddedBackend.multi_scan`."""
        holder, found = object(), []
        version = self.host.begin(holder, read_only=True) if at is None else at
        try:
            for start, end, limit in ranges:
                rows: list[tuple[bytes, bytes]] = []
                async for batch in self.scan(start, end, version, reverse=reverse, limit=limit):
                    rows += batch
                found.append(rows[:limit])
        finally:
            self.host.end(holder)
        return found

    def history(self, key: bytes, at: int | None = None) -> AsyncIterator[tuple[int, bytes | None]]:
        """See `EmbeddedBackend.history`."""
        return Items(self.host.history(key, at), self.turn, 1)

    def new_txn_id(self) -> TxnId:
        """An id that no transaction has."""
        return self.host.new_txn_id()

    def write(
        self, writes: Mapping[bytes, bytes | None], label: str = "", conditions: Sequence[Condition] = ()
    ) -> asyncio.Future[tuple[int, Verdict]]:
        """Write all if all conditions hold; the answer comes when it is durable. Raises as `EmbeddedBackend.write`."""
        written = self.host.submit(writes, label=label, conditions=conditions)
        return self.acknowledgements.wait(written[0], written)

    async def begin_work(self, work: Workspace) -> CoroutineBackend:
        """Give a transaction its snapshot, and what reads it."""
        self.host.begin_work(work)
        turn = self.turn
        turn.left -= 1
        if turn.left < 0:
            await turn.end()
        return self

    def end(self, holder: object) -> None:
        """Let go of a snapshot."""
        self.host.end(holder)

    async def commit(self, work: Workspace) -> int:
        """Commit what a transaction has read and written. Raises as `EmbeddedBackend.commit`."""
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
        """See `EmbeddedBackend.feed`."""
        return CoroutineFeed(self.host.feed(since, prefix, keys), self.turn)

    async def close(self) -> None:
        """Make durable what was written and release the directory."""
        try:
            await asyncio.to_thread(self.host.close)
        finally:
            await self.acknowledgements.close()
