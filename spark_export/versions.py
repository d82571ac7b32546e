"""A listing of versions: `option("listing", "versions")`, one row for each commit that wrote something.

Partitions are ranges of the log. A commit is one record, so each task groups what it decodes by version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from spark_export.columns import OutputColumns
from spark_export.decoding import KeyRange, Labels, decoded
from spark_export.filters import Bounds
from spark_export.places import RangeDeletion
from spark_export.runs import LogRange, log_ranges
from spark_export.snapshot_source import SnapshotPlan
from spark_export.task_errors import task

COLUMNS: Final = {
    "version": pa.int64(),
    "time": pa.timestamp("us", tz="UTC"),
    "label": pa.string(),
    "keys": pa.int64(),
    "deleted_ranges": pa.int64(),
}
_COUNTS: Final = pa.schema(
    [("version", pa.int64()), ("time", pa.int64()), ("keys", pa.int64()), ("ranges", pa.int64())]
)


class RangePartition(InputPartition):
    """The versions in one range of the log."""

    def __init__(self, number: int, log_range: LogRange) -> None:
        super().__init__(number)
        self.log_range = log_range


class VersionsReader(DataSourceReader):
    """Lists the commits of a plan that wrote to some keys or deleted ranges."""

    def __init__(self, plan: SnapshotPlan, keys: KeyRange, columns: OutputColumns, partition_bytes: int) -> None:
        assert plan.since is not None
        self._plan, self._columns, self._partition_bytes = plan, columns, partition_bytes
        self._bounds = Bounds(keys, plan.since + 1, plan.version)

    def narrow(self, filters: list[Filter]) -> list[Filter]:
        """Read less by filters; return those that Spark must apply."""
        self._bounds, left = self._bounds.narrowed(filters, "version", COLUMNS)
        return left

    def partitions(self) -> list[InputPartition]:
        _, least, most = self._bounds
        parts = [part for part in self._plan.parts if part.end > least and part.first <= most]
        ranges = log_ranges(parts, self._partition_bytes)
        return [RangePartition(number, log_range) for number, log_range in enumerate(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._columns.check_zone()
        if isinstance(partition, RangePartition):  # Spark makes an empty partition if there are no versions
            with task(self._plan):
                for part in partition.log_range.parts:
                    labels: Labels = {}
                    deletions: list[RangeDeletion] = []
                    keys, least, most = self._bounds
                    plan = self._plan._replace(version=most)
                    items = decoded(plan, part, keys, copies=False, after=least - 1, labels=labels, deletions=deletions)
                    found = [pa.table([batch.column("gsn"), batch.column("time")], ["gsn", "time"]) for batch in items]
                    rows = _by_version(found, deletions, keys).filter(pc.field("version") >= least)
                    for batch in rows.to_batches():
                        yield self._columns.batch(_output(batch, labels))


def _by_version(items: Iterable[pa.Table], deletions: Iterable[RangeDeletion], keys: KeyRange) -> pa.Table:
    """Count the keys and the range deletes of each commit, in the order of the log."""
    counted = [_COUNTS.empty_table()]
    for table in items:
        count = pa.repeat(1, table.num_rows)
        counted.append(pa.table([table["gsn"], table["time"], count, pa.repeat(0, table.num_rows)], _COUNTS.names))
    ranges = [found for found in deletions if _overlap(found, keys)]
    if ranges:
        versions, times = zip(*((found.deleted.version, found.time) for found in ranges), strict=True)
        counted.append(pa.table([versions, times, pa.repeat(0, len(ranges)), pa.repeat(1, len(ranges))], _COUNTS.names))
    grouped = pa.concat_tables(counted).group_by("version")
    grouped = grouped.aggregate([("time", "max"), ("keys", "sum"), ("ranges", "sum")])
    return grouped.rename_columns(["version", "time", "keys", "ranges"]).sort_by("version")


def _overlap(deletion: RangeDeletion, keys: KeyRange) -> bool:
    both = keys.within(deletion.deleted.start, deletion.deleted.end)
    return both.high is None or both.low < both.high


def _output(rows: pa.RecordBatch, labels: Labels) -> dict[str, pa.Array]:
    time_us = -(-rows.column("time").to_numpy() // 1_000)
    return {
        "version": rows.column("version"),
        "time": pa.array(time_us, COLUMNS["time"]),
        "label": pa.array([labels.get(version, "") for version in rows.column("version").to_pylist()], pa.string()),
        "keys": rows.column("keys"),
        "deleted_ranges": rows.column("ranges"),
    }
