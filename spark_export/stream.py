"""`spark.readStream.format("logdb")`: what is committed, as it comes, with the version as offset.

An offset is the version up to which everything has been handed on, so a query that starts again from its checkpoint
goes on with the commit after it, whatever happened meanwhile. A batch is a range of versions; its tasks read the log
themselves, as for a batch of changes (`changes`).

The process in which Spark plans follows the database (`following`). It holds the version from which the query goes
on, so compaction waits for the query. When the query is stopped it holds nothing any more; pin the version if it must
wait until the query comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logdb.errors import FutureVersion
from spark_export.changes import Changes
from spark_export.columns import Asked
from spark_export.decoding import KeyRange
from spark_export.failure import task
from spark_export.following import Followed, FollowedDirectory, FollowedServers
from spark_export.remote import Endpoints

if TYPE_CHECKING:
    import pyarrow as pa

LATEST = "latest"
OLDEST = "oldest"
Offset = dict[str, int]


class Stretched(InputPartition):
    """The changes in one stretch of the log, the partition `number`."""

    def __init__(self, number: int, changes: Changes) -> None:
        super().__init__(number)
        self.number, self.changes = number, changes


class LogDBStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the commits after the version `since`, or from LATEST or OLDEST on, at most `most_rows` in a batch."""

    def __init__(
        self,
        where: Path | Endpoints,
        scratch: str | None,
        keys: KeyRange,
        columns: Asked,
        since: int | str,
        most_rows: int | None,
        partition_bytes: int,
    ) -> None:
        self._where, self._scratch, self._keys, self._columns = where, scratch, keys, columns
        self._since, self._most_rows, self._partition_bytes = since, most_rows, partition_bytes
        self._source: Followed | None = None
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        followed = self._followed()
        if isinstance(self._since, int):
            followed.hold(self._since)
            return {"version": self._since}
        return {"version": followed.hold_newest() if self._since == LATEST else followed.hold_oldest()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._most_rows is None else ReadMaxRows(self._most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._followed().version()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        followed, since = self._followed(), start["version"]
        followed.hold(since)
        newest = followed.version()
        if since > newest:
            raise FutureVersion(since, newest)
        end = newest if self._target is None else max(since, min(newest, self._target))
        if isinstance(limit, ReadMaxRows):
            end = followed.after_rows(since, end, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            end = followed.after_bytes(since, end, limit.max_bytes)
        return {"version": end}

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return {"version": self._followed().version()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        since, until = start["version"], end["version"]
        if since == until:
            return []
        self._followed().hold(since)
        plan = self._followed().planned(since, until)
        changes = Changes(plan, self._keys, since, until, self._columns, self._partition_bytes, is_held=True)
        return [Stretched(number, changes) for number in range(len(changes.stretches))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretched)
        with task(partition.changes.plan):
            yield from partition.changes.read(partition.number)

    def commit(self, end: Offset) -> None:
        self._followed().done(end["version"])

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _followed(self) -> Followed:
        if self._source is None:
            where = self._where
            if isinstance(where, Endpoints):
                self._source = FollowedServers(where, self._scratch, self._partition_bytes)
            else:
                self._source = FollowedDirectory(where)
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}
