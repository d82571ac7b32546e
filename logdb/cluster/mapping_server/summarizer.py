"""What a mapping server does to tell each shard what its records do not say (`summaries.py`).

It reads the commit records that came since the last summary once more, shard by shard, since a record that it follows
does not say where it stands. Only where a placement is stated.
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
from logdb.store.records import COMMIT, SUMMARY, Relocated, Value, decode_commit

ROWS_BYTES: Final = 64 << 10
STRETCH: Final = 10_000
"""So many GSNs are summarized at once."""

Steps = Generator[Any, Any, None]
"""Yields calls to the log and is sent their results."""


class Summarizer:
    """One run at a time. What it does not get done, because the log or the floor moved, the next one does."""

    def __init__(self, log: LogAdapter, replica: Replica) -> None:
        self._log, self._replica = log, replica
        self._steps: Steps | None = None
        self._subscription = 0
        # No commit record stands between these two.
        self._quiet = 0, 0
        # Of the stretch that is read, by shard: rows not appended yet, their bytes, and what was not applied.
        self._rows: dict[int, list[Relocated]] = {}
        self._sizes: dict[int, int] = {}
        self._aborted: dict[int, list[int]] = {}
        self._stretch = 0, 0

    def summarize(self, through: int) -> None:
        """Tell all shards up to `through`, which this server has applied."""
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
        told = {shard: self._replica.summarized_to(shard) for shard in named(shard_of) if shard in live}
        while told:
            after = min(told.values())
            start = self._quiet[1] if self._quiet[0] == after else after
            end = min(through, start + STRETCH)
            if start >= end:
                return
            self._rows, self._sizes, self._aborted, self._stretch = {}, {}, {}, (start, end)
            found = 0
            for source in sources:
                self._subscription = yield calls.Subscribe(start + 1, frozenset({COMMIT}), shard=source)
                position = start + 1
                while position <= end:
                    batch = yield calls.Next(self._subscription)
                    if not self._is_known():
                        return
                    for record in batch.records:
                        if record.gsn <= end:
                            found += 1
                            self._look(record.gsn, record.payload, source, shard_of, told)
                    position = batch.end
                    for shard in [shard for shard, size in self._sizes.items() if size >= ROWS_BYTES]:
                        if not (yield from self._tell(Summary(shard, placement))):
                            del told[shard]
                yield calls.Close(self._subscription)
                self._subscription = 0
            if not found:
                self._quiet = after, end
                continue
            for shard in [shard for shard, reached in told.items() if reached < end]:
                if not self._is_known():
                    return
                aborted = tuple(self._aborted.get(shard, ()))
                whole = Summary(shard, placement, after=told[shard], through=end, aborted=aborted)
                if (yield from self._tell(whole)):
                    told[shard] = end
                else:
                    del told[shard]

    def _is_known(self) -> bool:
        """Whether this server still knows what became of all commit records of the stretch (DBS-11)."""
        return self._replica.coordinator.floor <= self._stretch[0] + 1

    def _look(self, gsn: int, payload: bytes, source: int, shard_of: Placement, told: dict[int, int]) -> None:
        """A commit record on the shard `source`."""
        if self._replica.coordinator.ledger.is_aborted(gsn):
            self._aborted.setdefault(source, []).append(gsn)
            return
        for key, value in decode_commit(payload).writes.items():
            shard = shard_of(key)
            if shard is not None and shard != source and shard in told:
                self._rows.setdefault(shard, []).append(Relocated(key, gsn, value))
                self._sizes[shard] = self._sizes.get(shard, 0) + _size(key, value)

    def _tell(self, summary: Summary) -> Generator[Any, Any, bool]:
        """Append it, and before it the rows that there are. Returns whether the shard has it: another may stand in."""
        shard, placement = summary.shard, summary.placement
        rows, size = list[Relocated](), 0
        for row in self._rows.pop(shard, ()):
            rows.append(row)
            size += _size(row.key, row.value)
            if size >= ROWS_BYTES:
                if not (yield from self._append(Summary(shard, placement, rows=rows))):
                    return False
                rows, size = [], 0
        self._sizes.pop(shard, 0)
        return (yield from self._append(summary._replace(rows=rows)))

    def _append(self, summary: Summary) -> Generator[Any, Any, bool]:
        done = yield calls.Append((placed(SUMMARY, encode_summary(summary), summary.shard),))
        return bool(done.shards == [summary.shard])


def _size(key: bytes, value: Value) -> int:
    return 32 + len(key) + (len(value) if isinstance(value, bytes) else 32)
