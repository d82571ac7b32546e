"""Named logs in Spark: entries as rows, read and written.

    spark.read.format("logdb").option("log", "orders").load("data")
    spark.readStream.format("logdb").option("log", "orders").load("data")
    df.write.format("logdb").option("log", "orders").mode("append").save("data")

A row is an entry: `version` and `index`, its position; `txn_id`, null without; `key`, the partition key, null without;
`value`. Entries are the rows of a range of keys, so batches and streams read them as they read other keys. Deletions of
entries, by truncation or retention, are no rows of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import count
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from logdb.named_logs.layout import Layout, check_entry, stored
from logdb.store.records import unversioned_key
from logdb.txn.transaction import Workspace
from spark_export.columns import OutputColumns

COLUMNS: Final = {
    "version": pa.int64(),
    "index": pa.int64(),
    "txn_id": pa.decimal128(20, 0),
    "key": pa.binary(),
    "value": pa.binary(),
}


class EntryColumns:
    """The columns of entries: an `OutputColumns` whose batches are made of the rows of the log `name`."""

    documents = keys = None
    needs_values = True
    plain = ("value",)
    """The columns that filters of rows may use: not the version, which differs from that of the row after a restore."""

    def __init__(self, name: str, columns: OutputColumns) -> None:
        self._name, self._columns, self.schema = name, columns, columns.schema

    def check_zone(self) -> None:
        """See `OutputColumns.check_zone`."""
        self._columns.check_zone()

    def batch(self, rows: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Convert rows to a batch of entries. Raises ValueError."""
        layout = Layout(self._name)
        pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
        entries = list(layout.read((key, value) for key, value in pairs if value is not None))
        found = {
            "version": [entry.position.version for entry in entries],
            "index": [entry.position.index for entry in entries],
            "txn_id": [None if entry.txn_id is None else Decimal(entry.txn_id) for entry in entries],
            "key": [entry.key for entry in entries],
            "value": [entry.value for entry in entries],
        }
        return self._columns.batch({name: pa.array(found[name], kind) for name, kind in COLUMNS.items()})


SelectedColumns = OutputColumns | EntryColumns


# ---- writing


def check_entries_writable(schema: StructType, name: str) -> None:
    """Check that a DataFrame can be appended to the log `name`. Raises ValueError."""
    Layout(name)
    names = schema.names
    if "value" not in names:
        raise ValueError(f"the DataFrame has no column value (it has {', '.join(names)})")
    if others := set(names) - set(COLUMNS):
        raise ValueError(
            f"there is no column {min(others)} in a log: the columns are value, and if needed key and txn_id"
        )
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name in ("key", "value") and kind not in ("binary", "string"):
            raise ValueError(f"the column {field.name} must be BINARY or STRING, not {kind}")
        if field.name == "txn_id" and kind not in ("int", "bigint", "smallint", "tinyint", "decimal(20,0)"):
            raise ValueError(f"the column txn_id must be an integer or DECIMAL(20, 0), not {kind}")


def written_entries(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[tuple[bytes, bytes]]:
    """The rows of entries to append, by keys whose versions are not known. Raises TypeError, ValueError."""
    layout, numbers = Layout(name), count()
    for batch in batches:
        columns = {}
        for column in ("value", "key", "txn_id"):
            if column in batch.schema.names:
                found = batch.column(column)
                columns[column] = (found if column == "txn_id" else found.cast(pa.large_binary())).to_pylist()
        nothing = [None] * batch.num_rows
        ids = [None if txn_id is None else int(txn_id) for txn_id in columns.get("txn_id", nothing)]
        for value, key, txn_id in zip(columns["value"], columns.get("key", nothing), ids, strict=True):
            if value is None:
                raise ValueError("an entry has no value: the column value is null")
            check_entry(value, txn_id, key)
            yield unversioned_key(layout.entries, next(numbers)), stored(value, txn_id, key)


def append_entries(
    work: Workspace,
    name: str,
    rows: Mapping[bytes, bytes | None],
    last_row: Callable[[tuple[bytes, bytes]], tuple[bytes, bytes] | None],
) -> None:
    """Append the rows of `written_entries` in a transaction. `last_row`: reads the last row of a range. Raises
    ValueError for a transaction id that is less than the last one of the log."""
    layout, last, is_known = Layout(name), None, False
    for key, value in rows.items():
        assert value is not None
        entry = layout.entry(key, value)
        if entry.txn_id is not None and not is_known:
            row = last_row(layout.id_range)
            last, is_known = None if row is None else layout.id_of(row[0]), True
        layout.append(work, entry.value, entry.txn_id, entry.key, last)
        last = last if entry.txn_id is None else entry.txn_id
