"""Writes summaries: SUMMARY records, with the facts about a shard's objects that its own records lack (`summaries.py`).

A mapping server reads the commit records since the last summary once more, shard by shard, because a record from its
subscription does not name its shard. Summaries are written only after a client has stated a placement.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from logdb.cluster.log_adapter import LogAdapter, ignore_result
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.placement import Placement, decode_placement, named, placed
from logdb.cluster.summaries import Summary, encode_summary
from logdb.log import requests as calls
from logdb.log.requests import ShardState
from logdb.store.key_map import KeyMap
from logdb.store.records import COMMIT, SUMMARY, Commit, DeletedRange, Relocated, Value, decode_commit

ROWS_BYTES: Final = 64 << 10
MAX_COMMITS: Final = 10_000
"""Approximate maximum number of commit records that a shard has in the range of a summary."""

Steps = Generator[Any, Any, None]
"""Yields requests to the log and is sent their results."""


class Summarizer:
    """One run at a time. The next run completes what a run leaves when a request fails or the floor rises."""

    def __init__(self, log: LogAdapter, replica: Replica) -> None:
        self._log, self._replica = log, replica
        self._steps: Steps | None = None
        self._subscription = 0
        # (after, through): the log has no commit record with `after` < GSN <= `through`.
        self._empty = 0, 0
        # The GSN before the range that is read, and by shard: rows and range deletes not appended yet, their bytes, and
        # the commit records that were not applied.
        self._rows: dict[int, list[Relocated]] = {}
        self._deletes: dict[int, list[DeletedRange]] = {}
        self._sizes: dict[int, int] = {}
        self._aborted: dict[int, list[int]] = {}
        self._start = 0

    def summarize(self, through: int) -> None:
        """Summarize all shards up to `through`, which this server has applied."""
        if self._steps is None and self._replica.placement:
            self._steps = self._all(self._replica.placement, through)
            self._step(None)

    def _step(self, result: Any) -> None:
        assert self._steps is not None
        try:
            request = None if isinstance(result, Exception) else self._steps.send(result)
        except StopIteration:
            request = None
        if request is not None:
            self._log.call(request, self._step)
            return
        self._steps = None
        if self._subscription:
            self._log.call(calls.Close(self._subscription), ignore_result)
            self._subscription = 0

    def _all(self, placement: bytes, through: int) -> Steps:
        view = yield calls.View()
        if self._replica.placement != placement:
            return
        sources = [config.shard for config in view.shards]
        live = {config.shard for config in view.shards if config.state is ShardState.LIVE}
        shard_of = decode_placement(placement)
        reached_by = {shard: self._replica.summarized_to(shard) for shard in named(shard_of) if shard in live}
        while reached_by:
            after = min(reached_by.values())
            start = self._empty[1] if self._empty[0] == after else after
            end = through
            if start >= end:
                return
            self._rows, self._deletes, self._sizes, self._aborted = {}, {}, {}, {}
            self._start = start
            found = 0
            for source in sources:
                is_first = not found  # the first shard with commits sets the end of the range
                self._subscription = yield calls.Subscribe(start + 1, frozenset({COMMIT}), shard=source)
                position = start + 1
                while position <= end:
                    batch = yield calls.Next(self._subscription)
                    if not self._has_range():
                        return
                    for record in batch.records:
                        if record.gsn <= end:
                            found += 1
                            self._take(record.gsn, record.payload, source, shard_of, reached_by)
                            if is_first and found == MAX_COMMITS:
                                end = record.gsn
                    position = batch.end
                    for shard in [shard for shard, size in self._sizes.items() if size >= ROWS_BYTES]:
                        if not (yield from self._append_with_rows(Summary(shard, placement))):
                            del reached_by[shard]
                yield calls.Close(self._subscription)
                self._subscription = 0
            if not found:
                self._empty = after, end
                continue
            for shard in [shard for shard, reached in reached_by.items() if reached < end]:
                if not self._has_range():
                    return
                aborted = tuple(self._aborted.get(shard, ()))
                whole = Summary(shard, placement, after=reached_by[shard], through=end, aborted=aborted)
                if (yield from self._append_with_rows(whole)):
                    reached_by[shard] = end
                else:
                    del reached_by[shard]

    def _has_range(self) -> bool:
        """Whether the ledger still has all commit records of the range (DBS-11)."""
        return self._replica.coordinator.floor <= self._start + 1

    def _take(self, gsn: int, payload: bytes, source: int, shard_of: Placement, reached_by: dict[int, int]) -> None:
        """Take a commit record on the shard `source`."""
        if self._replica.coordinator.ledger.is_aborted(gsn):
            self._aborted.setdefault(source, []).append(gsn)
            return
        commit = decode_commit(payload, gsn)
        deletes = [DeletedRange(gsn, *deleted) for deleted in commit.deletes]
        for home in reached_by if deletes else ():
            if home != source:
                self._deletes.setdefault(home, []).extend(deletes)
                size = sum([_size(deleted.start, deleted.end) for deleted in deletes])
                self._sizes[home] = self._sizes.get(home, 0) + size
        for key, value in commit.writes.items():
            shard = shard_of(key)
            if shard is not None and shard != source and shard in reached_by:
                self._add_row(shard, Relocated(key, gsn, value))
        for row in values_of_folds(commit, gsn, self._replica.map):
            shard = shard_of(row.key)
            if shard is not None and shard in reached_by:  # also on the shard of the record
                self._add_row(shard, row)

    def _add_row(self, shard: int, row: Relocated) -> None:
        self._rows.setdefault(shard, []).append(row)
        self._sizes[shard] = self._sizes.get(shard, 0) + _size(row.key, row.value)

    def _append_with_rows(self, summary: Summary) -> Generator[Any, Any, bool]:
        """Append a summary, and before it the rows for its shard that exceed one record. Returns whether this shard has
        all of them: a shard that takes no appends is replaced by another."""
        shard, placement = summary.shard, summary.placement
        rows, size, deletes = list[Relocated](), 0, self._deletes.pop(shard, [])
        for row in self._rows.pop(shard, ()):
            rows.append(row)
            size += _size(row.key, row.value)
            if size >= ROWS_BYTES:
                if not (yield from self._append(Summary(shard, placement, rows=rows))):
                    return False
                rows, size = [], 0
        self._sizes.pop(shard, 0)
        return (yield from self._append(summary._replace(rows=rows, deletes=deletes)))

    def _append(self, summary: Summary) -> Generator[Any, Any, bool]:
        done = yield calls.Append((placed(SUMMARY, encode_summary(summary), summary.shard),))
        return bool(done.shards == [summary.shard])


def values_of_folds(commit: Commit, gsn: int, key_map: KeyMap) -> list[Relocated]:
    """The values that the folds of the commit at `gsn` have written: its record does not have them."""
    keys = dict.fromkeys(fold.key for fold in commit.folds if fold.key not in commit.writes)
    return [Relocated(key, gsn, key_map.value(key, gsn)) for key in keys]


def _size(key: bytes, value: Value) -> int:
    return 32 + len(key) + (len(value) if isinstance(value, bytes) else 32)
