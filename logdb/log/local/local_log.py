"""The local engine: one process and one shard. The GSN of a record is its sequence number in the segments.

It corresponds to Scalog with a cut after every append: the order is decided at once, and callers wait only for
durability. Group commit: the first caller that needs a sync becomes the leader and syncs everything ordered so far.
Callers that arrive during the sync wait, and the first of them whose records were not included becomes the next leader.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from logdb.log.contract import (
    IncomingPayload,
    LogFailed,
    LogRecord,
    NotOfThisShard,
    Record,
    ShardPolicy,
    Subscription,
    Trimmed,
    View,
    always_false,
    check_after,
    first_position,
)
from logdb.log.local.subscriptions import LocalSubscription, read_waiting
from logdb.log.record_clock import RecordClock
from logdb.log.segments import Disk, SegmentStore
from logdb.log.segments.incoming import Incoming
from logdb.log.segments.store import SEGMENT_BYTES
from logdb.system.forking import forked_text, own

FOLLOW_INTERVAL_S = 0.002
MIN_ALLOCATION_BYTES = 1 << 20
"""The initial allocation of a file. Later allocations add a quarter of its size, so that a small log stays small."""
MEDIAN_STEP = 1.05
"""The factor by which `sync_s` changes with each sync."""


class LocalLog:
    """A log in a directory of segments. One process writes it (the caller must hold the lock); others can `follow`."""

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
            directory,
            log_id,
            writable=writable,
            follow=follow,
            segment_bytes=segment_bytes,
            min_allocation_bytes=MIN_ALLOCATION_BYTES,
            disk=disk,
        )
        # A reader also follows a writer that starts later.
        self._follow, self._writable = not writable, writable
        self._lock = threading.Lock()
        self._advanced = threading.Condition(self._lock)
        self._listeners = 0
        self._leader: _Caller | None = None
        self._waiters: list[_Caller] = []
        self._refusal = None if writable else "the log is open for reading only"
        self._closed = False
        self.durable = self.store.durable_end - 1
        self.sync_s = 0.001
        try:
            last = self.store.time(self.durable) if self.durable >= self.store.base else 0
        except BaseException:
            self.store.abandon()
            raise
        self._record_clock = RecordClock(last, clock)
        own(self)

    # ---- appending

    def append(self, records: Sequence[Record], after: int | None = None) -> range:
        check_after(after, self.end() - 1)
        first = self.order(records)
        self.wait_durable(first + len(records) - 1)
        return range(first, first + len(records))

    def append_to_shard(self, records: Sequence[Record], shard: int, after: int | None = None) -> tuple[range, int]:
        if shard != 0:
            raise NotOfThisShard(0, shard)
        return self.append(records, after), 0

    def order(self, records: Sequence[Record]) -> int:
        with self._lock:
            if self._refusal is not None:
                raise LogFailed(self._refusal)
            now = self._record_clock.next()
            try:
                return self.store.append(records, now)
            except LogFailed:
                self._advanced.notify_all()
                raise

    def receive(self, length: int) -> Incoming:
        if self._refusal is not None:
            raise LogFailed(self._refusal)
        return self.store.receive(length)

    def order_incoming(self, tag: int, incoming: IncomingPayload) -> int:
        assert isinstance(incoming, Incoming), incoming
        with self._lock:
            if self._refusal is not None:
                raise LogFailed(self._refusal)
            now = self._record_clock.next()
            try:
                return self.store.append_incoming(tag, incoming, now)
            except LogFailed:
                self._advanced.notify_all()
                raise

    def wait_durable(self, gsn: int) -> None:
        if self.durable >= gsn:
            return
        caller = _Caller(gsn)
        try:
            try:
                self._wait(caller)
            finally:
                if caller.queued:
                    self._leave(caller)
        finally:
            # An interrupt can occur anywhere, also within `_leave`: call it again.
            if caller.queued:
                self._leave(caller)

    @property
    def flushing(self) -> int:
        """The number of callers that are syncing records or waiting for a sync."""
        with self._lock:
            return len(self._waiters) + (self._leader is not None)

    def _wait(self, caller: _Caller) -> None:
        with self._lock:
            if caller.gsn >= self.store.end:
                raise ValueError(f"record {caller.gsn} was never ordered")
            if self._leader is None:
                self._leader = caller
            else:
                caller.turn = threading.Lock()
                caller.turn.acquire()
                self._waiters.append(caller)
        while self.durable < caller.gsn:
            if self.store.failure is not None:
                raise LogFailed(str(self.store.failure)) from self.store.failure
            if self._leader is caller:
                self._lead()
            else:
                caller.turn.acquire()

    def _lead(self) -> None:
        """Sync all ordered records."""
        with self._lock:
            batch = self.store.take_batch()
        started = time.perf_counter()
        self.store.flush(batch)
        self.durable = self.store.durable_end - 1
        # A step up or down for each sync converges to the median.
        self.sync_s *= MEDIAN_STEP if time.perf_counter() - started > self.sync_s else 1 / MEDIAN_STEP

    def _leave(self, caller: _Caller) -> None:
        """Leave the queue. A leader wakes the callers whose records it synced, and the first of the others becomes the
        next leader.

        Can be interrupted and called again: everything before the final assignments is then repeated, and waking a
        caller twice is harmless.
        """
        with self._lock:
            if self._leader is caller:
                self.durable = durable = self.store.durable_end - 1
                if not self._waiters:
                    self._leader = None
                else:
                    if self.store.failure is not None:
                        done, waiting = self._waiters, []
                    else:
                        done = [waiter for waiter in self._waiters if waiter.gsn <= durable]
                        waiting = [waiter for waiter in self._waiters if waiter.gsn > durable]
                    successor = waiting[0] if waiting else None
                    caller.done, caller.successor = done, successor
                    self._leader, self._waiters = successor, waiting[1:]
            elif caller in self._waiters:
                self._waiters.remove(caller)
            if self._listeners:
                self._advanced.notify_all()
        for waiter in caller.done:
            waiter.queued = False
            waiter.wake()
        if caller.successor is not None:
            caller.successor.wake()
        caller.queued = False

    # ---- reading

    def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        return read_waiting(self, gsn, shard, timeout)

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> Subscription:
        return LocalSubscription(self, first_position(gsn, self.oldest, self.tail), tags)

    def payload(self, gsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        if gsn < self.store.first:
            raise Trimmed(gsn, self.store.first)
        return self.store.payload(gsn, part_bytes)

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        if first < self.store.first:
            raise Trimmed(first, self.store.first)
        return self.store.scan(first, end)

    def wake(self) -> None:
        with self._lock:
            self._advanced.notify_all()

    def wait_past(self, gsn: int, timeout: float | None, stopped: Callable[[], bool] = always_false) -> bool:
        if self.durable > gsn:
            return True
        if self._follow:
            return self._poll_past(gsn, timeout, stopped)
        with self._advanced:
            self._listeners += 1
            try:
                self._advanced.wait_for(
                    lambda: self.durable > gsn or self._closed or self.store.failure is not None or stopped(), timeout
                )
            finally:
                self._listeners -= 1
            if self.durable > gsn:
                return True
            if self._closed:
                raise LogFailed("the log is closed")
            if self.store.failure is not None:
                raise LogFailed(str(self.store.failure)) from self.store.failure
            return False

    def _poll_past(self, gsn: int, timeout: float | None, stopped: Callable[[], bool]) -> bool:
        """Poll the watermark of the process that writes the log."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.refresh() <= gsn:
            if self._closed:
                raise LogFailed("the log is closed")
            if stopped() or (deadline is not None and time.monotonic() >= deadline):
                return False
            time.sleep(FOLLOW_INTERVAL_S)
        return True

    def refresh(self) -> int:
        if self._follow:
            with self._lock:
                self.durable = self.store.refresh() - 1
        return self.durable

    def tail(self) -> int:
        return self.refresh()

    def oldest(self) -> int:
        return self.store.first

    def end(self) -> int:
        return self.store.end

    def size(self, first: int = 0) -> int:
        return self.store.size(first)

    @property
    def unsynced_bytes(self) -> int:
        return self.store.unsynced_bytes

    def begin_file(self) -> int:
        with self._lock:
            if self._refusal is not None:
                raise LogFailed(self._refusal)
            try:
                self.store.begin_file()
            except LogFailed:
                self._advanced.notify_all()
                raise
            return self.store.end

    def oldest_after_trim(self, gsn: int) -> int:
        return self.store.oldest_after_trim(gsn)

    def last_at_time(self, time: int) -> int:
        return max(self.store.last_at_time(time), self.store.first - 1)

    def time_of(self, gsn: int) -> int:
        return self.store.time(gsn)

    # ---- the rest of the contract

    def trim(self, gsn: int) -> None:
        with self._lock:
            if self._refusal is not None:
                raise LogFailed(self._refusal)
            if gsn > self.durable + 1:
                raise ValueError(f"cannot trim before {gsn}: the tail is {self.durable}")
            try:
                self.store.trim(gsn)
            except LogFailed:
                self._advanced.notify_all()
                raise

    def set_shard_policy(self, policy: ShardPolicy) -> None:
        """Ignore `policy`: there is only one shard."""

    def view(self) -> View:
        return View(frozenset({0}), frozenset())

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._refusal = "the log is closed"
        try:
            if self._writable and self.store.failure is None:
                self.wait_durable(self.store.end - 1)
        except LogFailed:
            self._release()
            raise
        self._release()

    def disown(self, parent: int) -> None:
        """In a child of fork() by process `parent`: reject appends and do not touch the parent's files."""
        self._lock = threading.Lock()
        self._advanced = threading.Condition(self._lock)
        self._leader, self._waiters = None, []
        self._refusal, self._closed = f"the log was {forked_text(parent)}", True
        self.store.disown()

    def _release(self) -> None:
        with self._lock:
            self._closed = True
            self._advanced.notify_all()
        self.store.close()


class _Caller:
    """A call of `wait_durable`. A caller that waits for a leader has a lock `turn`, which is released when `gsn` is
    durable, the log has failed, or the caller is the next leader."""

    __slots__ = ("done", "gsn", "queued", "successor", "turn")
    turn: threading.Lock

    def __init__(self, gsn: int) -> None:
        self.gsn, self.queued = gsn, True
        self.done: Sequence[_Caller] = ()
        self.successor: _Caller | None = None

    def wake(self) -> None:
        """Make the waiting caller check its conditions again."""
        if self.turn.locked():
            self.turn.release()
