"""The local engine: one process, one shard, and the sequence number in its segments is the GSN.

The degenerate Scalog: a cut after every append, so order is decided at once and only durability is waited for. Group
commit: the first caller that needs the disk becomes the leader and syncs everything ordered so far; those who come
meanwhile wait, and the first of them whose records the leader did not take leads next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from logdb.log.contract import LogFailed, LogRecord, NotOfThisShard, Record, ShardPolicy, Subscription, Trimmed, View
from logdb.log.following import Following, read_waiting
from logdb.log.segments import Disk, SegmentStore
from logdb.log.segments.store import SEGMENT_BYTES

FOLLOW_INTERVAL_S = 0.002


class LocalLog:
    """A log in a directory of segments. One process writes it (the caller holds the lock); others may `follow`."""

    def __init__(
        self,
        directory: Path,
        log_id: bytes,
        *,
        writable: bool = True,
        follow: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        disk: Disk | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.store = SegmentStore(
            directory, log_id, writable=writable, follow=follow, segment_bytes=segment_bytes, disk=disk
        )
        self._clock, self._follow, self._writable = clock, follow, writable
        self._lock = threading.Lock()
        self._advanced = threading.Condition(self._lock)
        self._listeners = 0
        self._leading = False
        self._waiters: list[_Waiter] = []
        self._failure: LogFailed | None = None
        self._closed = False
        self.durable = self.store.durable_end - 1
        self._time = self.store.time(self.durable) if self.durable >= self.store.base else 0

    # ---- appending

    def append(self, records: Sequence[Record]) -> range:
        first = self.order(records)
        self.wait_durable(first + len(records) - 1)
        return range(first, first + len(records))

    def append_to_shard(self, records: Sequence[Record], shard: int) -> tuple[range, int]:
        if shard != 0:
            raise NotOfThisShard(0, shard)
        return self.append(records), 0

    def order(self, records: Sequence[Record]) -> int:
        with self._lock:
            if self._closed:
                raise LogFailed("the log is closed")
            now = self._clock()
            if now <= self._time:
                now = self._time + 1
            first = self.store.append(records, now)
            self._time = now
            return first

    def wait_durable(self, gsn: int) -> None:
        if self.durable >= gsn:
            return
        with self._lock:
            if self.durable >= gsn:
                return
            if self._failure is not None:
                raise self._failure
            waiter = None
            if self._leading:
                waiter = _Waiter(gsn)
                self._waiters.append(waiter)
            else:
                self._leading = True
        if waiter is not None:
            try:
                waiter.turn.acquire()
            except BaseException:
                self._give_up(waiter)
                raise
            if not waiter.leads:
                if self.durable < gsn:
                    raise self._failure or LogFailed("the log is closed")
                return
        self._lead()

    def _lead(self) -> None:
        """Sync all that is ordered, wake those who waited for it, and hand the lead to one who waits for more."""
        try:
            with self._lock:
                taken = self.store.take()
            self.store.flush(taken)
        except LogFailed as failure:
            self._failure = failure
            raise
        finally:
            with self._lock:
                durable = self.store.durable_end - 1
                self.durable = durable
                if self._failure is not None:
                    done, self._waiters = self._waiters, []
                else:
                    done = [waiter for waiter in self._waiters if waiter.gsn <= durable]
                    self._waiters = [waiter for waiter in self._waiters if waiter.gsn > durable]
                self._hand_over()
                if self._listeners:
                    self._advanced.notify_all()
            for waiter in done:
                waiter.turn.release()

    def _hand_over(self) -> None:
        """The first who waits leads from now on, or nobody. Called with the lock held."""
        if self._waiters:
            heir = self._waiters.pop(0)
            heir.leads = True
            heir.turn.release()
        else:
            self._leading = False

    def _give_up(self, waiter: _Waiter) -> None:
        """The waiter was interrupted: it must not inherit the lead."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.leads:
                self._hand_over()

    # ---- reading

    def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        return read_waiting(self, gsn, shard, timeout)

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> Subscription:
        return Following(self, gsn, tags)

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        if first < self.store.first:
            raise Trimmed(first, self.store.first)
        return self.store.scan(first, end)

    def wait_past(self, gsn: int, timeout: float | None) -> bool:
        if self.durable > gsn:
            return True
        if self._follow:
            return self._poll_past(gsn, timeout)
        with self._advanced:
            self._listeners += 1
            try:
                self._advanced.wait_for(lambda: self.durable > gsn or self._closed, timeout)
            finally:
                self._listeners -= 1
            if self._closed and self.durable <= gsn:
                raise LogFailed("the log is closed")
            return self.durable > gsn

    def _poll_past(self, gsn: int, timeout: float | None) -> bool:
        """Another process writes, and tells nobody: look at its watermark again and again."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.refresh() <= gsn:
            if self._closed:
                raise LogFailed("the log is closed")
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(FOLLOW_INTERVAL_S)
        return True

    def refresh(self) -> int:
        if self._follow:
            self.durable = self.store.refresh() - 1
        return self.durable

    def tail(self) -> int:
        return self.refresh()

    def oldest(self) -> int:
        return self.store.first

    def end(self) -> int:
        return self.store.end

    def left_by_trim(self, gsn: int) -> int:
        return self.store.left_by_trim(gsn)

    def last_at_time(self, time: int) -> int:
        return self.store.last_at_time(time)

    def time_of(self, gsn: int) -> int:
        if gsn < self.store.base:
            raise Trimmed(gsn, self.store.first)
        return self.store.time(gsn)

    # ---- the rest of the contract

    def trim(self, gsn: int) -> None:
        with self._lock:
            if gsn > self.durable + 1:
                raise ValueError(f"cannot trim before {gsn}: the tail is {self.durable}")
            self.store.trim(gsn)

    def set_shard_policy(self, policy: ShardPolicy) -> None:
        """There is one shard, so every policy chooses it."""

    def view(self) -> View:
        return View(frozenset({0}), frozenset())

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._writable and self._failure is None:
                self.wait_durable(self.store.end - 1)
        finally:
            with self._lock:
                self._closed = True
                self._advanced.notify_all()
            self.store.close()


class _Waiter:
    """A caller that waits for `gsn` to be durable; `turn` is released when it is, or when it must lead."""

    __slots__ = ("gsn", "leads", "turn")

    def __init__(self, gsn: int) -> None:
        self.gsn, self.leads = gsn, False
        self.turn = threading.Lock()
        self.turn.acquire()
