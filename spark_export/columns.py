"""The columns of a DataFrame: those of the query's schema, in its order and types.

Without a schema a DataFrame has all columns. `.schema("key STRING, version LONG")` selects some of them, in another
order, or bytes as text; tasks do not read the others. With a codec the value is a document, and columns with other
names are its fields: `.schema("key BINARY, carrier STRING, delay DOUBLE")`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from logdb.errors import shown
from spark_export.documents import RESCUED, Documents, check_encodable, encode_rows
from spark_export.formats import JSON_TEXT, ValueFormat
from spark_export.options import zone_named
from spark_export.row_keys import RowKeys

CODECS: Final = ("json", "msgpack", "avro", "protobuf")
WRITABLE: Final = ("json",)


class OutputColumns(NamedTuple):
    """The columns of `schema`: those in `plain` come from the rows, the others from `documents`.

    `zone`: the time zone for times that name none, that of the session when the data source was registered; None where
    no time can depend on it. `keys`: the columns of the keys of a table; the documents of an index are its keys.
    """

    schema: pa.Schema
    plain: tuple[str, ...]
    documents: Documents | None = None
    zone: str | None = None
    keys: RowKeys | None = None

    @property
    def needs_values(self) -> bool:
        """Whether the rows need values."""
        return "value" in self.plain or self.documents is not None or self._is_index

    @property
    def _is_index(self) -> bool:
        return self.keys is not None and self.keys.of_index is not None

    def batch(self, rows: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Convert rows to a batch for Spark. Raises ValueError, which names the key of a value that does not fit."""
        parsed: dict[str, pa.Array] = {}
        if self.documents is not None:
            parsed = self.documents.columns(rows["key"], rows["key" if self._is_index else "value"])
        if self.keys is not None:
            parsed |= self.keys.columns(rows["key"], rows["value"])
        columns = []
        for field in self.schema:
            column = parsed[field.name] if field.name in parsed else rows[field.name]
            column = column if column.type == field.type else _cast(column, field, rows["key"])
            if column.null_count and not field.nullable:
                key = rows["key"].filter(column.is_null())[0].as_py()
                raise ValueError(f"the {field.name} of key {shown(key)} is null, and the schema says NOT NULL")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def check_zone(self) -> None:
        """Called by each task, also of one without rows: they may be of another time. Raises ValueError."""
        context = TaskContext.get()
        now = None if context is None else context.getLocalProperty("spark.sql.session.timeZone")
        if self.zone is not None and now is not None and now != self.zone:
            raise ValueError(
                f"the time zone of Spark's session is {now}, and was {self.zone} when the data source was registered: "
                "call register(spark) again, or have times name their zone"
            )


def select_columns(
    schema: StructType,
    available: Mapping[str, pa.DataType],
    format: ValueFormat | None,
    zone: str | None = None,
    lacks_zone: bool = False,
    keys: RowKeys | None = None,
) -> OutputColumns:
    """Select the columns of a schema from those available, and with a format from fields. `zone`: for times that name
    none; `lacks_zone`: an option is such a time; `keys`: the columns of keys. Raises ValueError."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    plain = tuple(name for name in arrow.names if name in available)
    others = [field for field in schema.fields if field.name not in available]
    if others and format is None:
        names = ", ".join(field.name for field in others)
        raise ValueError(
            f"there is no column {names} (the columns are {', '.join(available)}); fields of values need a codec"
        )
    for name in plain:
        wanted, found = arrow.field(name).type, available[name]
        if wanted != found and not (pa.types.is_binary(found) and pa.types.is_string(wanted)):
            field = f"; a field of that name is in the column {RESCUED}" if format is not None else ""
            raise ValueError(f"the column {name} can be {_readable(found)}, not {wanted}{field}")
    if not others:
        return OutputColumns(arrow, plain, zone=zone if lacks_zone else None, keys=keys)
    assert format is not None
    fields = tuple(field for field in others if field.name != RESCUED)
    if len(fields) < len(others) and not isinstance(schema[RESCUED].dataType, StringType):
        raise ValueError(f"the column {RESCUED} must be STRING")
    has_times = any("timestamp" in field.dataType.simpleString() for field in fields)
    used_zone = zone if lacks_zone or has_times else None
    documents = Documents(fields, len(fields) < len(others), zone_named(zone), format).check()
    return OutputColumns(arrow, plain, documents, used_zone, keys)


def _readable(kind: pa.DataType) -> str:
    return "BINARY or STRING" if pa.types.is_binary(kind) else str(kind)


def _cast(column: pa.Array, field: pa.Field, keys: pa.Array) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        for key, item in zip(keys.to_pylist(), column.to_pylist(), strict=True):
            try:
                item.decode()
            except UnicodeDecodeError:
                raise ValueError(f"the {field.name} of key {shown(key)} is not UTF-8: use BINARY") from None
        raise


# ---- writing


def check_writable(schema: StructType, codec: str | None, ignored: Sequence[str]) -> tuple[str, ...]:
    """Check that a DataFrame can be written, and return its columns of JSON text. Raises ValueError."""
    names = schema.names
    content = [name for name in names if name != "key" and (codec is not None or name not in ignored)]
    if "key" not in names:
        raise ValueError(f"the DataFrame has no column key (it has {', '.join(names)})")
    if codec is None and content != ["value"]:
        raise ValueError(f"the columns must be key and value, not {', '.join(names)}; documents need a codec")
    for name in ("key",) if codec is not None else ("key", "value"):
        kind = schema[name].dataType.simpleString()
        if kind not in ("binary", "string"):
            raise ValueError(f"the column {name} must be BINARY or STRING, not {kind}")
    if codec is not None:
        if reserved := [name for name in content if name in ignored]:
            raise ValueError(
                f"the column {reserved[0]} is not part of the documents and would not be written: drop or rename it"
            )
        check_encodable(schema, content)
    return tuple(field.name for field in schema.fields if codec is not None and field.metadata.get(JSON_TEXT))


def written_items(
    batch: pa.RecordBatch, codec: str | None, texts: Sequence[str]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Convert rows to keys and values; `texts`: the columns of JSON text. Raises ValueError."""
    keys = _as_bytes(batch.column("key"))
    values: Sequence[bytes | None]
    if codec is None:
        values = _as_bytes(batch.column("value"))
    else:
        values = list(encode_rows(batch.select([name for name in batch.schema.names if name != "key"]), keys, texts))
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise ValueError("a row has no key: the column key is null")
        yield key, value


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    items: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return items
