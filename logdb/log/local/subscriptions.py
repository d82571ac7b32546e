"""Subscriptions and waiting reads of the engines in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from logdb.log.contract import Batch, LogRecord, NotOfThisShard, Trimmed

BATCH_RECORDS = 1024
BATCH_BYTES = 1 << 20
"""A batch ends after the record that reaches this size, including records that the tags exclude."""


class SubscribedLog(Protocol):
    """The part of an engine that subscriptions use."""

    @property
    def durable(self) -> int: ...

    def wait_past(self, gsn: int, timeout: float | None, stopped: Callable[[], bool] = ...) -> bool: ...
    def wake(self) -> None: ...
    def scan(self, first: int, end: int) -> Iterator[LogRecord]: ...
    def oldest(self) -> int: ...


class LocalSubscription:
    """A subscription to a log in this process, from `gsn` on. `position`: where the next batch begins; may be moved."""

    def __init__(self, log: SubscribedLog, gsn: int, tags: Collection[int] | None) -> None:
        self._log, self.position, self._closed = log, gsn, False
        self._tags = None if tags is None else frozenset(tags)
        if gsn < log.oldest():
            raise Trimmed(gsn, log.oldest())

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.poll(None)
        assert batch is not None
        return batch

    def poll(self, timeout: float | None) -> Batch | None:
        return self.take() if self.wait(timeout) else None

    def wait(self, timeout: float | None) -> bool:
        """Whether the record at `position` is durable within `timeout` seconds. Raises StopIteration after `close`,
        LogFailed."""
        reached = not self._closed and self._log.wait_past(self.position - 1, timeout, self._is_closed)
        if self._closed:
            raise StopIteration
        return reached

    def close(self) -> None:
        self._closed = True
        self._log.wake()

    def _is_closed(self) -> bool:
        return self._closed

    def take(self) -> Batch:
        """The batch that begins at `position`, whose record is durable. Raises Trimmed, Corruption."""
        first = self.position
        end = min(self._log.durable + 1, first + BATCH_RECORDS)
        if first < self._log.oldest():
            raise Trimmed(first, self._log.oldest())
        records, size = [], 0
        for record in self._log.scan(first, end):
            if self._tags is None or record.tag in self._tags:
                records.append(record)
            size += len(record.payload)
            if size >= BATCH_BYTES:
                end = record.gsn + 1
                break
        self.position = end
        return Batch(first, end, records)


def read_waiting(log: SubscribedLog, gsn: int, shard: int, timeout: float | None) -> LogRecord:
    """`Log.read_record` for an engine whose only shard is 0."""
    if shard != 0 or gsn < 1:
        raise NotOfThisShard(gsn, shard)
    if not log.wait_past(gsn - 1, timeout):
        raise TimeoutError(f"record {gsn} was not appended within {timeout} seconds")
    if gsn < log.oldest():
        raise Trimmed(gsn, log.oldest())
    return next(log.scan(gsn, gsn + 1))
