"""The log of a directory together with its cold tier: records that were trimmed here are read there."""

from __future__ import annotations

import contextlib
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

from logdb.embedded.aborted import aborted_in
from logdb.embedded.cold.tier import ColdSegment, ColdTier, Era, Manifest, segment_name
from logdb.embedded.state_machine import StateMachine
from logdb.errors import ColdTierError
from logdb.log.contract import LogRecord, Trimmed, always_false
from logdb.log.local.local_log import LocalLog
from logdb.log.local.subscriptions import LocalSubscription
from logdb.log.segments.segment import Segment, SegmentClosed
from logdb.store.records import COMPACTION, decode_compaction
from logdb.system.disk import Disk

CACHED_ABORTS: Final = 64


class SegmentCache:
    """Segments of a cold tier on the local disk: the last ones that were used, up to `max_bytes`. Their files have no
    names, so a process that is killed leaves none. `make_folder`: called before a segment is fetched."""

    def __init__(self, tier: ColdTier, make_folder: Callable[[], Path], max_bytes: int) -> None:
        self._tier, self._make_folder, self._max_bytes = tier, make_folder, max_bytes
        self._opened: OrderedDict[int, Segment] = OrderedDict()
        self._aborted: OrderedDict[int, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def segment(self, cold: ColdSegment) -> Segment:
        """A segment. Raises Corruption, Unavailable."""
        first = cold.part.first
        with self._lock:
            if first in self._opened:
                self._opened.move_to_end(first)
            else:
                self._opened[first] = self._fetched(cold)
                while len(self._opened) > 1 and sum(each.length for each in self._opened.values()) > self._max_bytes:
                    self._opened.popitem(last=False)[1].close()
            return self._opened[first]

    def _fetched(self, cold: ColdSegment) -> Segment:
        data = self._tier.read(cold)
        path = self._make_folder() / segment_name(cold.part.first)
        path.write_bytes(data)
        try:
            segment = Segment.open(path, self._tier.log_id, Disk(), writable=False)
        finally:
            path.unlink()
        segment.walk()
        segment.path = Path(self._tier.place.location(cold.part.name))  # for errors
        return segment

    def aborted(self, cold: ColdSegment) -> array[int]:
        """The aborted commits of a segment. Raises Corruption, Unavailable."""
        first = cold.part.first
        with self._lock:
            found = self._aborted.get(first)
            if found is None:
                found = self._aborted[first] = self._tier.aborted(cold)
                if len(self._aborted) > CACHED_ABORTS:
                    self._aborted.popitem(last=False)
            return found

    @property
    def size_bytes(self) -> int:
        """The size of the cached segments."""
        with self._lock:
            return sum(segment.length for segment in self._opened.values())

    def close(self) -> None:
        """Free the disk space. Reads under way may continue."""
        with self._lock:
            for segment in self._opened.values():
                segment.close()
            self._opened.clear()


class TieredLog:
    """Reads records of a log wherever they are. Every read raises Trimmed (neither has the record), Corruption (which
    names the file in the tier) and Unavailable (the tier cannot be read)."""

    def __init__(self, machine: StateMachine, tier: ColdTier, cache: SegmentCache) -> None:
        assert isinstance(machine.log, LocalLog)
        self._machine, self._local, self._tier, self._cache = machine, machine.log, tier, cache
        self._own_eras: set[Era] = set()

    # ---- which has what

    def oldest(self) -> int:
        """The oldest record that can be read."""
        return min(self._tier.manifest.first, self._local.oldest())

    def manifest(self) -> Manifest:
        """The manifest with the eras of this log. From where they part, a copy of the database that writes to the tier
        has other eras, whose folds do not give the versions of this one (COLD-4)."""
        manifest = self._tier.manifest
        eras = tuple(takewhile(self._has_compaction, manifest.eras))
        if not eras:
            raise ColdTierError(f"{self._tier.location} was begun by another copy of {self._machine.path}")
        return manifest._replace(eras=eras)

    def _has_compaction(self, era: Era) -> bool:
        """Whether the compaction of an era is one of this log. The tier has all that was trimmed here (COLD-2)."""
        at = era.compacted_at
        if era in self._own_eras or at < self._local.oldest():
            return True
        if at > self._local.durable:
            return False
        try:
            record = self._local.read_record(at, 0)
        except Trimmed:
            return True
        if record.tag != COMPACTION or decode_compaction(record.payload).floor != era.floor:
            return False
        self._own_eras.add(era)
        return True

    def _cold(self, gsn: int) -> ColdSegment:
        """The segment of the tier with a record that is not in the local log."""
        manifest = self._tier.manifest
        found = manifest.segment_of(gsn)
        if found is None and gsn >= manifest.end:  # a reader: the process that writes has added it since
            manifest = self._tier.load() or manifest
            found = manifest.segment_of(gsn)
        if found is None:
            raise Trimmed(gsn, self.oldest())
        return found

    # ---- records

    @property
    def durable(self) -> int:
        """As of the local log."""
        return self._local.durable

    def wait_past(self, gsn: int, timeout: float | None, stopped: Callable[[], bool] = always_false) -> bool:
        """As of the local log."""
        return self._local.wait_past(gsn, timeout, stopped)

    def wake(self) -> None:
        """As of the local log."""
        self._local.wake()

    def subscribe(self, gsn: int, tags: set[int]) -> LocalSubscription:
        """As of the local log."""
        return LocalSubscription(self, gsn, tags)

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        """Durable records `first` to `end` - 1, without waiting."""
        while first < end:
            if first >= self._local.oldest():
                with contextlib.suppress(Trimmed):  # a compaction has removed the rest meanwhile
                    for record in self._local.scan(first, end):
                        yield record
                        first = record.gsn + 1
                    return
            segment = self._cache.segment(self._cold(first))
            with contextlib.suppress(SegmentClosed):  # the cache has dropped it
                for record in segment.scan(first, min(end, segment.end)):
                    yield record
                    first = record.gsn + 1

    def read_record(self, gsn: int, shard: int) -> LogRecord:
        """A durable record."""
        while True:
            if gsn >= self._local.oldest():
                with contextlib.suppress(Trimmed):
                    self._local.wait_durable(gsn)
                    return self._local.read_record(gsn, shard)
            with contextlib.suppress(SegmentClosed):
                return self._cache.segment(self._cold(gsn)).read(gsn)

    def payload(self, gsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        """(tag, length, the payload in parts) of a durable record."""
        while True:
            if gsn >= self._local.oldest():
                with contextlib.suppress(Trimmed):
                    return self._local.payload(gsn, part_bytes)
            with contextlib.suppress(SegmentClosed):
                return self._cache.segment(self._cold(gsn)).payload(gsn, part_bytes)

    def frames(self, first: int, end: int, max_bytes: int) -> tuple[bytes, int]:
        """(unverified frames from record `first` on, the next record): as of `SegmentStore.frames`."""
        while True:
            if first >= self._local.oldest():
                with contextlib.suppress(Trimmed):
                    return self._local.store.frames(first, end, max_bytes)
            segment = self._cache.segment(self._cold(first))
            with contextlib.suppress(SegmentClosed):
                return segment.frames(first, min(end, segment.end), max_bytes)

    def aborted(self, first: int, end: int) -> list[int]:
        """The commit records from `first` to before `end` that were not applied, in order."""
        found: list[int] = []
        while first < end:
            if first >= self._local.oldest():
                with contextlib.suppress(Trimmed):
                    return found + aborted_in(self._machine, first, end)
            cold = self._cold(first)
            aborted = self._cache.aborted(cold)
            found += aborted[bisect_left(aborted, first) : bisect_left(aborted, end)]
            first = cold.part.end
        return found

    # ---- times

    def time_of(self, gsn: int) -> int:
        """When a record was ordered, ns since the epoch."""
        return self.read_record(gsn, 0).time

    def last_at_time(self, time: int) -> int:
        """The last durable record with this time (ns since the epoch) or an earlier one; `oldest` - 1 if all are
        newer."""
        last = self._local.last_at_time(time)
        if last >= self._local.oldest():
            return last
        for cold in reversed(self._tier.manifest.segments):
            if cold.part.first_time <= time:
                segment = self._cache.segment(cold)
                return segment.last_at_time(time, cold.part.end)
        return self.oldest() - 1

    # ---- files

    def segments(self, first: int, end: int) -> Iterator[tuple[ColdSegment, int, int]]:
        """(segment, its first record from `first` on, its end before `end`) of each segment of the tier that has
        records `first` to `end` - 1."""
        while first < end:
            cold = self._cold(first)
            yield cold, first, min(cold.part.end, end)
            first = cold.part.end
