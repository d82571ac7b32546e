"""Durability for the coroutines of one event loop: their commits share syncs, which run in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, TypeVar

from logdb.embedded.commits import Commits
from logdb.errors import OutcomeUnknown
from logdb.log.contract import LogFailed, OrderedLog
from logdb.system.forking import own

T = TypeVar("T")
OnDurable = Callable[[BaseException | None], None]
"""Called with None when a commit is durable, else with the error: OutcomeUnknown if the log has failed."""

HANDOVER_S: Final = 0.0005
"""A sync below this duration costs the loop hardly more than handing it to the thread and back."""
DELAY_S: Final = 0.002
"""Interval at which `close` checks whether all delayed commits have been acknowledged."""


class Acknowledgements:
    """The commits of one event loop that wait to be durable, and the thread that syncs for all of them.

    `in_loop`: after a short sync the next one runs in the loop; for a server's loop. A program's own loop never waits.
    """

    def __init__(self, log: OrderedLog, commits: Commits, *, in_loop: bool) -> None:
        self._log, self._commits, self._in_loop = log, commits, in_loop
        self._waiting: list[tuple[int, int, OnDurable]] = []
        self._delayed = 0
        self._syncing: asyncio.AbstractEventLoop | None = None
        self._took_s = math.inf
        self._jobs: SimpleQueue[tuple[asyncio.AbstractEventLoop, int] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(), which has no such thread: the waiting commits are the parent's."""
        self._waiting, self._syncing, self._thread, self._jobs = [], None, None, SimpleQueue()

    def wait(self, gsn: int, result: T) -> asyncio.Future[T]:
        """A future with `result` when `gsn` is durable. Its error: OutcomeUnknown."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def on_durable(failure: BaseException | None) -> None:
            if future.done():
                return
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)

        self.notify(gsn, on_durable)
        return future

    def notify(self, gsn: int, on_durable: OnDurable, first: int = 0) -> None:
        """Call `on_durable` when the caller's commits from `first` (default: `gsn`) to `gsn` may be acknowledged."""
        if self._log.durable >= gsn:
            self._acknowledge(first or gsn, gsn, on_durable)
            return
        self._waiting.append((first or gsn, gsn, on_durable))
        loop = asyncio.get_running_loop()
        if self._syncing is not loop:  # a loop that has ended learns of no sync
            # Coroutines that are ready now run first, so that their commits share the sync.
            self._syncing = loop
            loop.call_soon(self._sync, loop)

    async def until_room(self) -> None:
        """Wait until `Commits.has_room`, or the log has failed: then the next write raises the error."""
        with contextlib.suppress(OutcomeUnknown):
            while not self._commits.has_room:
                await self.wait(self._log.end() - 1, None)

    async def close(self) -> None:
        """Acknowledge all waiting commits, then end the thread."""
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
            self._synced(loop, self._flush(last))
            return
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="logdb-sync", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started now
                self._synced(loop, self._flush(last))
                return
            self._thread = thread
        self._jobs.put((loop, last))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, last = job
            failure = self._flush(last)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._synced, loop, failure)

    def _flush(self, last: int) -> BaseException | None:
        """Sync the log; returns any error, for the waiting commits."""
        begun = time.perf_counter()
        try:
            self._log.wait_durable(last)
        except BaseException as error:
            return error
        finally:
            self._took_s = time.perf_counter() - begun
        return None

    def _synced(self, loop: asyncio.AbstractEventLoop, failure: BaseException | None) -> None:
        durable = self._log.durable
        waiting, self._waiting = self._waiting, []
        for first, gsn, on_durable in waiting:
            if gsn <= durable:
                self._acknowledge(first, gsn, on_durable)
            elif failure is None:
                self._waiting.append((first, gsn, on_durable))
            else:
                on_durable(self._commits.outcome_unknown(gsn, failure) if isinstance(failure, LogFailed) else failure)
        self._syncing = loop if self._waiting else None
        if self._waiting:
            self._sync(loop)

    def _acknowledge(self, first: int, gsn: int, on_durable: OnDurable) -> None:
        """Acknowledge durable commits, when the pacer allows it."""
        pacer = self._commits.pacer
        if pacer is None or not (left := pacer.owed(first, gsn)):
            on_durable(None)
            return

        def paid() -> None:
            self._delayed -= 1
            pacer.paid(gsn)
            on_durable(None)

        self._delayed += 1
        asyncio.get_running_loop().call_later(left, paid)
