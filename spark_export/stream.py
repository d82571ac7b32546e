"""`spark.readStream.format("logdb")`: a stream of commits, with the version as offset.

An offset is the version up to which Spark has all changes. So a query that starts again from its checkpoint continues
with the commit after it, whatever happened meanwhile. A batch is a range of versions, and its tasks read the log, as
those of a batch of changes do (`changes`).

The process in which Spark plans has a lease on the version from which the query continues, so compaction waits for the
query. A query that is stopped has no lease; a pin keeps the version until it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logdb.errors import FutureVersion
from logdb.store.records import Place, decode_commit
from spark_export.application import Application
from spark_export.changes import Changes
from spark_export.decoding import KeyRange
from spark_export.entries import SelectedColumns
from spark_export.snapshot_source import Location, PlanRequest, SnapshotPlan, SnapshotSource, source_of
from spark_export.task_errors import task

if TYPE_CHECKING:
    import pyarrow as pa


class StartTime(NamedTuple):
    """The stream begins with the first commit at this time or later, in ns since the epoch."""

    time_ns: int


LATEST = "latest"
OLDEST = "oldest"
Offset = dict[str, int]


class ChangesPartition(InputPartition):
    """The partition `number`: the changes in one range of the log."""

    def __init__(self, number: int, changes: Changes) -> None:
        super().__init__(number)
        self.number, self.changes = number, changes


class LogDBStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the commits after the version `since`, or from LATEST, OLDEST or a time on, within `limit` in a batch."""

    def __init__(
        self,
        location: Location,
        scratch_parent: str | None,
        keys: KeyRange,
        columns: SelectedColumns,
        since: int | str | StartTime,
        limit: ReadLimit,
        partition_bytes: int,
        application: Application,
        *,
        images: bool = False,
    ) -> None:
        self._location, self._scratch_parent, self._keys, self._columns = location, scratch_parent, keys, columns
        self._since, self._limit, self._partition_bytes = since, limit, partition_bytes
        self._application, self._images = application, images
        self._plans: list[SnapshotPlan] = []
        self._source_in_use: SnapshotSource | None = None
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        if self._since == OLDEST:
            return {"version": self._source.lease_oldest(self)}
        if isinstance(self._since, StartTime):
            version = before(self._source, self._since)
        else:
            version = self._since if isinstance(self._since, int) else self._source.version()
        self._lease(version)
        return {"version": version}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._source.version()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        since = start["version"]
        self._lease(since)
        newest = self._source.version()
        if since > newest:
            raise FutureVersion(since, newest)
        end = newest if self._target is None else max(since, min(newest, self._target))
        if isinstance(limit, ReadMaxRows):
            end = self._limited(since, end, limit.max_rows, _rows_in)
        elif isinstance(limit, ReadMaxBytes):
            end = self._limited(since, end, limit.max_bytes, _bytes_in)
        return {"version": end}

    def _limited(self, since: int, until: int, limit: int, size_of: Callable[[bytes], int]) -> int:
        commits = self._source.commits(since + 1, until + 1)
        return last_within(since, until, limit, ((gsn, size_of(payload)) for gsn, payload in commits))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return {"version": self._source.version()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        since, until = start["version"], end["version"]
        if since == until:
            return []
        self._lease(since)
        request = PlanRequest(
            version=until,
            since=since,
            changes_only=True,
            part_bytes=self._partition_bytes,
            application=self._application,
            scratch_parent=self._scratch_parent,
        )
        plan = self._source.plan(request)._replace(sample=())
        self._plans.append(plan)
        size, images = self._partition_bytes, self._images
        changes = Changes(plan, self._keys, since, until, self._columns, size, is_leased=True, images=images)
        return [ChangesPartition(number, changes) for number in range(len(changes.ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangesPartition)
        partition.changes.columns.check_zone()
        with task(partition.changes.plan):
            yield from partition.changes.read(partition.number)

    def commit(self, end: Offset) -> None:
        done = [plan for plan in self._plans if plan.version <= end["version"]]
        self._plans = [plan for plan in self._plans if plan.version > end["version"]]
        for plan in done:
            plan.close()
        self._lease(end["version"])

    def stop(self) -> None:
        while self._plans:
            self._plans.pop().close()
        if self._source_in_use is not None:
            self._source_in_use.release(self)
            self._source_in_use = None

    @property
    def _source(self) -> SnapshotSource:
        if self._source_in_use is None:
            self._source_in_use = source_of(self._location)
        return self._source_in_use

    def _lease(self, version: int) -> None:
        """Keep the log after `version`. Raises VersionTrimmed, FutureVersion."""
        self._source.lease(self, version)
        self._source.at(version)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": [], "_source_in_use": None}


def before(source: SnapshotSource, start: StartTime) -> int:
    """The last version before a time, as times are shown: in microseconds, rounded up. Raises VersionTrimmed,
    FutureVersion, Unavailable."""
    return source.at_time(start.time_ns - 1_000)


def last_within(since: int, until: int, limit: int, sizes: Iterable[tuple[int, int]]) -> int:
    """The last of the commits after `since`, given as (GSN, size), up to which the sizes add up to `limit` or less; at
    least the first one; `until` if all of them do."""
    total, last = 0, since
    for gsn, size in sizes:
        total += size
        if total > limit and last > since:
            return last
        last = gsn
        if total >= limit:
            return last
    return until


def _rows_in(payload: bytes) -> int:
    commit = decode_commit(payload, 0)
    return len(commit.writes) + len(commit.deletes)


def _bytes_in(payload: bytes) -> int:
    """The size of a commit, with its large values."""
    values = decode_commit(payload, 0).writes.values()
    return len(payload) + sum(value.length for value in values if isinstance(value, Place))
