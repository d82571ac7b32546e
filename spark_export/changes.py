"""The changes in a range of versions, from the log, each with its type: insert, update or delete.

A row is a key that a committed transaction wrote, in the order of the log, as `db.watch` reports it. For that a task
needs one range of the log and nothing else; a range delete is reported as a deletion of each key that existed, which
the task reads from the database, just before that version. To distinguish an insert from an update, or to report the
old value, it needs the previous value of the key, which any earlier range may contain. So with types or old values:

1. each task reduces its own range to the newest version of each key and leaves that as a run for the tasks after it; 2.
the previous value of a key is its previous row in the same range; for its first row there, the row of the nearest
earlier
   run that has the key; and without one, that of the snapshot at the version before the first change.

That snapshot consists of runs too (`runs`), over the whole log before. A stream has a lease on that version, so it
reads the database's map instead (`SnapshotSource.values_at`): its batches are small and many, and each would read all
of the log. Before version 1 there is no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logdb.store.ranges import joined
from spark_export.checksums import Numbers
from spark_export.decoding import ITEMS, KeyRange, Labels, decoded, filled
from spark_export.entries import SelectedColumns
from spark_export.places import RangeDeletion
from spark_export.runs import (
    PARTITION_BYTES,
    RUN,
    SUFFIX,
    LogRange,
    Runs,
    bounded_batches,
    folder_for,
    log_ranges,
    newest_versions,
    read_run,
    write_once,
    write_run,
)
from spark_export.snapshot_source import LargeValues, SnapshotPlan

COLUMNS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "_change_type": pa.string(),
    "_commit_version": pa.int64(),
    "_commit_timestamp": pa.timestamp("us", tz="UTC"),
}
LABEL: Final = "_commit_label"
OLD_VALUE: Final = "old_value"
DELETED_ROWS: Final = 100_000
"""Maximum number of rows of a range delete in one table."""
_VALUES: Final = pa.schema([RUN.field(name) for name in ("key", "value", "large")])
_TYPES: Final = pa.array(["insert", "update", "delete", "update_preimage", "update_postimage"])
_UPDATE, _DELETE, _PREIMAGE, _POSTIMAGE = range(1, 5)


class Changes:
    """The changes to some keys by the commits after `since` up to `until`. Cheap to make and to pickle.

    The plan has the log of these versions and, for types, what is live at `since`. `is_leased`: a lease keeps `since`
    from compaction, so a task can read the database's map first. `images`: an update is two rows, the old value and the
    new one, and a deletion has the value that it deleted.
    """

    def __init__(
        self,
        plan: SnapshotPlan,
        keys: KeyRange,
        since: int,
        until: int,
        columns: SelectedColumns,
        partition_bytes: int = PARTITION_BYTES,
        *,
        is_leased: bool = False,
        images: bool = False,
    ) -> None:
        self._is_leased, self._images = is_leased, images
        self.plan, self.keys, self.since, self.columns = plan._replace(version=until), keys, since, columns
        parts = [part for part in plan.parts if part.end > since + 1 and part.first <= until]
        self.ranges = log_ranges(parts, partition_bytes)
        self._with_types = images or "_change_type" in columns.plain or OLD_VALUE in columns.plain
        self._before = Runs(plan._replace(version=since), keys, partition_bytes=partition_bytes) if since else None
        self._shows_old = OLD_VALUE in columns.plain
        self._with_old = images or self._shows_old
        self._with_labels = LABEL in columns.plain
        self._folder = folder_for(plan, "changes", repr((since, until, keys, self._with_old)))

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The changes in the range `number`, in the order of the log, as batches of `columns`. Raises Corruption."""
        large_values = self.plan.source.large_values(self.plan)
        labels: Labels = {}
        for rows in self._rows(number, labels if self._with_labels else None):
            for batch in bounded_batches(rows):
                yield self.columns.batch(self._output(batch, large_values, labels))

    def _rows(self, number: int, labels: Labels | None) -> Iterator[pa.Table]:
        """The changes in a range: table by table, or in one table if they get types."""
        if not self._with_types:
            yield from self._decoded(self.ranges[number], labels)
            return
        rows = self._written(self.ranges[number], labels)
        old = self._old_values(number, rows)
        kind = np.where(pc.is_null(rows.column("value")), _DELETE, np.where(old.exists, _UPDATE, 0))
        rows = rows.append_column("kind", pa.array(kind))
        rows = rows.append_column("old", old.values).append_column("old_large", old.large)
        yield _with_images(rows, kind) if self._images else rows

    def _output(self, batch: pa.RecordBatch, fetch: LargeValues, labels: Labels) -> dict[str, pa.Array]:
        content = batch.column("value")
        if self.columns.needs_values:
            at = batch.column("version")
            if self._images:
                at = pc.subtract(at, pc.is_in(batch.column("kind"), pa.array([_DELETE, _PREIMAGE])).cast(pa.int64()))
            content = filled(fetch, content, batch.column("large"), batch.column("key"), at)
        output = {
            "key": batch.column("key"),
            "value": content.cast(pa.binary()),
            "version": batch.column("version"),
            "_commit_version": batch.column("version"),
        }
        if "_commit_timestamp" in self.columns.plain:
            time_us = -(-batch.column("time").to_numpy() // 1_000)
            output["_commit_timestamp"] = pa.array(time_us, pa.timestamp("us", tz="UTC"))
        if self._with_labels:
            output[LABEL] = pa.array([labels.get(version, "") for version in batch.column("version").to_pylist()])
        if self._with_types:
            output["_change_type"] = _TYPES.take(batch.column("kind"))
        if self._shows_old:
            before = pc.subtract(batch.column("version"), 1)
            old = filled(fetch, batch.column("old"), batch.column("old_large"), batch.column("key"), before)
            output[OLD_VALUE] = old.cast(pa.binary())
        return output

    def _written(self, log_range: LogRange, labels: Labels | None = None) -> pa.Table:
        return pa.concat_tables([ITEMS.empty_table(), *self._decoded(log_range, labels)]).combine_chunks()

    def _decoded(self, log_range: LogRange, labels: Labels | None) -> Iterator[pa.Table]:
        for part in log_range.parts:
            deletions: list[RangeDeletion] = []
            for batch in decoded(
                self.plan, part, self.keys, copies=False, after=self.since, labels=labels, deletions=deletions
            ):
                if not batch.num_rows:
                    continue
                table = pa.Table.from_batches([batch])
                # Range deletes among these records are known by now; rows are in the order of the log.
                while deletions and deletions[0].deleted.version <= batch.column("gsn")[-1].as_py():
                    before = int(np.searchsorted(table.column("gsn").to_numpy(), deletions[0].deleted.version))
                    yield table.slice(0, before)
                    table = table.slice(before)
                    yield from self._deleted(_of_one_commit(deletions))
                yield table
            while deletions:
                yield from self._deleted(_of_one_commit(deletions))

    def _deleted(self, deletions: list[RangeDeletion]) -> Iterator[pa.Table]:
        """A deletion of each key that the range deletes of one commit have deleted. Raises VersionTrimmed."""
        ((version, _, _), time, written), source, holder = deletions[0], self.plan.source, object()
        if version == 1:
            return
        source.lease(holder, version - 1)
        try:
            with source.database() as database:
                before = database.at(version - 1)
                ranges = [KeyRange(one.deleted.start, one.deleted.end) for one in deletions]
                kept = [self.keys.within(keys.low, keys.high) for keys in ranges]
                keys = joined([(keys.low, keys.high) for keys in kept if keys.high is None or keys.low < keys.high])
                rows = (key for start, end in keys for key, _ in before.scan(start, end) if key not in written)
                while some := list(islice(rows, DELETED_ROWS)):
                    columns = [some, [None] * len(some), [False] * len(some)]
                    columns += [[number] * len(some) for number in (version, version, time)]
                    yield pa.table([pa.array(*column) for column in zip(columns, ITEMS.types, strict=True)], ITEMS)
        finally:
            source.release(holder)

    # ---- previous values

    def _old_values(self, number: int, rows: pa.Table) -> _OldValues:
        self._write_runs(number, rows)
        codes = rows.column("key").combine_chunks().dictionary_encode().indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        previous = np.full(len(codes), -1, np.int64)
        follows = codes[order[1:]] == codes[order[:-1]]
        previous[order[1:][follows]] = order[:-1][follows]
        firsts = np.flatnonzero(previous < 0)
        earlier = self._earlier(number, rows.column("key").take(pa.array(firsts)).combine_chunks())
        previous[firsts] = len(codes) + np.arange(len(firsts))
        both = pa.concat_tables([rows.select(["value", "large"]), earlier]).take(pa.array(previous))
        return _OldValues(pc.is_valid(both.column("value")), both.column("value"), both.column("large"))

    def _write_runs(self, number: int, rows: pa.Table) -> None:
        """Write the run of the range, then those of earlier ranges that no other task has written or is writing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if number + 1 < len(self.ranges):
            write_once(self._file(number), lambda file: self._write(rows, file), wait=True)
        for wait in (False, True):
            for earlier in range(number):
                self._write_earlier(earlier, wait=wait)

    def _file(self, number: int) -> Path:
        return self._folder / f"{self.ranges[number].name}{SUFFIX}"

    def _write_earlier(self, number: int, *, wait: bool) -> None:
        write_once(self._file(number), lambda file: self._write(self._written(self.ranges[number]), file), wait=wait)

    def _write(self, rows: pa.Table, file: Path) -> None:
        if not self._with_old:  # a run without old values says only whether there is one
            at, value = rows.schema.get_field_index("value"), rows.column("value")
            rows = rows.set_column(at, RUN.field("value"), pc.if_else(pc.is_valid(value), b"", value))
        write_run(newest_versions([rows.select(RUN.names)]), file)

    def _earlier(self, number: int, keys: pa.Array) -> pa.Table:
        """(value, large) of each key before the range; null if it did not exist."""
        found = np.full(len(keys), -1, np.int64)
        sources = [pa.table({"value": [None], "large": [False]}, pa.schema([RUN.field("value"), RUN.field("large")]))]
        size = 1
        for number_before in reversed(range(-1, number)):
            missing = np.flatnonzero(found < 0)
            if not len(missing):
                break
            left = keys.take(pa.array(missing))
            run = read_run(self._file(number_before)) if number_before >= 0 else self._at_since(number, left)
            if run is None:
                break
            at = pc.index_in(left, value_set=run.column("key").combine_chunks())
            known = np.flatnonzero(pc.is_valid(at))
            found[missing[known]] = at.take(pa.array(known)).to_numpy() + size
            sources.append(run.select(["value", "large"]))
            size += run.num_rows
        return pa.concat_tables(sources).take(pa.array(np.maximum(found, 0)))

    def _at_since(self, number: int, keys: pa.Array) -> pa.Table | None:
        """(key, value, large) of those keys that existed at `since`; None: no key did. Raises VersionTrimmed,
        Unavailable."""
        if self._before is None:
            return None
        if self._is_leased:
            found = self.plan.source.values_at(self.since, keys.to_pylist(), with_values=self._with_old)
            if found is not None:
                columns = [[key for key, _ in found], [value for _, value in found], [False] * len(found)]
                return pa.table(columns, schema=_VALUES)
        self._before.make(number)
        return self._before.newest_of(keys)


def _with_images(rows: pa.Table, kind: Numbers) -> pa.Table:
    """The rows with the old value as that of deletions, and with two rows for each update."""
    is_update = kind == _UPDATE
    at = np.repeat(np.arange(len(kind)), 1 + is_update)
    shown = np.where(is_update, _POSTIMAGE, kind)[at]
    shown[:-1][(at[:-1] == at[1:])] = _PREIMAGE
    rows = rows.take(pa.array(at))
    is_old = pa.array(np.isin(shown, (_DELETE, _PREIMAGE)))
    for name, old in (("value", "old"), ("large", "old_large")):
        column = pc.if_else(is_old, rows.column(old), rows.column(name))
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows.set_column(rows.schema.get_field_index("kind"), "kind", pa.array(shown))


def _of_one_commit(deletions: list[RangeDeletion]) -> list[RangeDeletion]:
    """Take the range deletes of the first commit out of the list."""
    version = deletions[0].deleted.version
    found = [one for one in deletions if one.deleted.version == version]
    deletions[:] = [one for one in deletions if one.deleted.version != version]
    return found


class _OldValues(NamedTuple):
    """Previous values of keys: whether each existed, its value, and whether that is the location of a large value."""

    exists: Numbers
    values: pa.ChunkedArray
    large: pa.ChunkedArray
