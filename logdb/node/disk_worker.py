"""The disk of a process: threads flush the journals of several servers side by side, and report each flush in the event
loop. After a short flush the next one runs in the loop itself: a handover to a thread and back takes as long."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from logdb.node.journals import FlushBatch, Journals

Flushed = Callable[[BaseException | None], None]
"""Called in the loop after a flush, with the exception that it raised."""

HANDOVER_S: Final = 0.0005
"""A flush below this duration costs the loop hardly more than handing it to a thread and back."""
SYNC_BOUNDS_S: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


class SyncTimes:
    """A histogram of the durations of flushes: `counts[i]` took at most `SYNC_BOUNDS_S[i]` seconds and longer than the
    bound before; the last count is of those beyond all bounds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SYNC_BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one flush."""
        self.counts[bisect_left(SYNC_BOUNDS_S, seconds)] += 1
        self.total_s += seconds


class DiskWorker:
    """Made in the event loop that it reports to. `threads`: maximum number of flushes side by side; those of the same
    journals must come one at a time. `close` waits for the queued flushes."""

    def __init__(self, threads: int = 1) -> None:
        self.times = SyncTimes()
        self._took_s = math.inf
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Journals, FlushBatch, Flushed] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"logdb-disk-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def flush(self, journals: Journals, taken: FlushBatch, flushed: Flushed) -> None:
        """Flush, then call `flushed` in a later step of the loop."""
        if self._took_s < HANDOVER_S and taken.is_short:
            self._loop.call_soon(self._report, *_flush(journals, taken), flushed)
        else:
            self._jobs.put((journals, taken, flushed))

    def close(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            journals, taken, flushed = job
            self._loop.call_soon_threadsafe(self._report, *_flush(journals, taken), flushed)

    def _report(self, seconds: float, failure: BaseException | None, flushed: Flushed) -> None:
        self.times.add(seconds)
        self._took_s = seconds
        flushed(failure)


def _flush(journals: Journals, taken: FlushBatch) -> tuple[float, BaseException | None]:
    """(seconds, the exception that it raised)."""
    failure: BaseException | None = None
    begin = time.perf_counter()
    try:
        journals.flush(taken)
    except BaseException as error:  # reported to the loop, whatever it is
        failure = error
    return time.perf_counter() - begin, failure
