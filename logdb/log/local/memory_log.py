"""The reference engine: the log contract in memory, as simple as possible. A record is durable when it is ordered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence

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
from logdb.system.forking import forked_text, own


class IncomingBytes:
    """An `IncomingPayload` in memory."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def take(self) -> bytes:
        """Return the complete payload."""
        payload = b"".join(self._parts)
        assert len(payload) == self.length
        self._parts.clear()
        return payload

    def discard(self) -> None:
        self._parts.clear()


class MemoryLog:
    """A log in a list. Index g - 1 contains the record with GSN g, or None once it is trimmed."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._records: list[LogRecord | None] = []
        self._record_clock = RecordClock(0, clock)
        self._oldest = 1
        self._advanced = threading.Condition()
        self._refusal: str | None = None
        self.durable = 0
        self.sync_s = 0.0
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork() by process `parent`: be closed."""
        self._advanced = threading.Condition()
        self._refusal = f"the log was {forked_text(parent)}"

    def order(self, records: Sequence[Record]) -> int:
        with self._advanced:
            if self._refusal is not None:
                raise LogFailed(self._refusal)
            now = self._record_clock.next()
            first = self.end()
            for gsn, (tag, payload) in enumerate(records, first):
                self._records.append(LogRecord(gsn, now, tag, payload))
            self.durable = len(self._records)
            self._advanced.notify_all()
            return first

    def receive(self, length: int) -> IncomingBytes:
        return IncomingBytes(length)

    def order_incoming(self, tag: int, incoming: IncomingPayload) -> int:
        assert isinstance(incoming, IncomingBytes), incoming
        return self.order(((tag, incoming.take()),))

    def payload(self, gsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        _, _, tag, payload = self.read_record(gsn, 0)
        return tag, len(payload), (payload[at : at + part_bytes] for at in range(0, len(payload), part_bytes))

    def append(self, records: Sequence[Record], after: int | None = None) -> range:
        check_after(after, self.end() - 1)
        first = self.order(records)
        return range(first, first + len(records))

    def append_to_shard(self, records: Sequence[Record], shard: int, after: int | None = None) -> tuple[range, int]:
        if shard != 0:
            raise NotOfThisShard(0, shard)
        return self.append(records, after), 0

    def wait_durable(self, gsn: int) -> None:
        assert gsn <= self.durable

    def wake(self) -> None:
        with self._advanced:
            self._advanced.notify_all()

    def wait_past(self, gsn: int, timeout: float | None, stopped: Callable[[], bool] = always_false) -> bool:
        with self._advanced:
            self._advanced.wait_for(lambda: self.durable > gsn or self._refusal is not None or stopped(), timeout)
            if self._refusal is not None and self.durable <= gsn:
                raise LogFailed(self._refusal)
            return self.durable > gsn

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        with self._advanced:
            if first < self._oldest:
                raise Trimmed(first, self._oldest)
            found = self._records[first - 1 : end - 1]
        return (record for record in found if record is not None)

    def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        return read_waiting(self, gsn, shard, timeout)

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> Subscription:
        return LocalSubscription(self, first_position(gsn, self.oldest, self.tail), tags)

    def refresh(self) -> int:
        return self.durable

    def tail(self) -> int:
        return self.durable

    def oldest(self) -> int:
        return self._oldest

    def end(self) -> int:
        return len(self._records) + 1

    @property
    def unsynced_bytes(self) -> int:
        return 0

    def size(self, first: int = 0) -> int:
        return sum([len(record.payload) for record in self._records[max(first, 1) - 1 :] if record is not None])

    def begin_file(self) -> int:
        return self.end()

    def oldest_after_trim(self, gsn: int) -> int:
        return gsn

    def last_at_time(self, time: int) -> int:
        for record in reversed(self._records):
            if record is None:
                break
            if record.time <= time:
                return record.gsn
        return self._oldest - 1

    def time_of(self, gsn: int) -> int:
        return next(self.scan(gsn, gsn + 1)).time

    def trim(self, gsn: int) -> None:
        with self._advanced:
            if gsn > self.durable + 1:
                raise ValueError(f"cannot trim before {gsn}: the tail is {self.durable}")
            for position in range(self._oldest - 1, gsn - 1):
                self._records[position] = None
            self._oldest = max(self._oldest, gsn)

    def set_shard_policy(self, policy: ShardPolicy) -> None:
        """Ignore `policy`: there is only one shard."""

    def view(self) -> View:
        return View(frozenset({0}), frozenset())

    def close(self) -> None:
        with self._advanced:
            self._refusal = self._refusal or "the log is closed"
            self._advanced.notify_all()
