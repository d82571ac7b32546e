"""What a DataFrame shows of the rows read: the columns of the asked schema, of the asked types.

Without a schema those are the columns that there are. `.schema("key STRING, version LONG")` asks for some of them, in
another order or (bytes) as text; what nobody asks for is not read. With a codec the value is a document, and columns
by other names are its fields: `.schema("key BINARY, carrier STRING, delay DOUBLE")`.

Documents are parsed by Arrow, all of a batch together. What it cannot take, be it a number where text is asked for or
no document at all, is looked at again one by one, which finds what can be converted after all or which key is to blame.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from logdb.errors import shown

CODECS: Final = ("json",)
SAMPLED_VALUES: Final = 1_000
_TYPES: Final = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "STRING"}


class Asked(NamedTuple):
    """The columns to yield, as Spark wants them in `schema`: those in `plain` as they are, `fields` of the value."""

    schema: pa.Schema
    plain: tuple[str, ...]
    fields: pa.Schema

    @property
    def needs_values(self) -> bool:
        """Whether the column value must be there."""
        return "value" in self.plain or len(self.fields) > 0

    def batch(self, rows: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The rows as Spark gets them. Raises ValueError, which names the key, if a value cannot be converted."""
        parsed = _parsed(rows["key"], rows["value"], self.fields) if len(self.fields) else {}
        columns = []
        for field in self.schema:
            column = parsed[field.name] if field.name in parsed else rows[field.name]
            columns.append(column if column.type == field.type else _cast(column, field, rows["key"]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def asked(schema: StructType, there_are: Mapping[str, pa.DataType], codec: str | None) -> Asked:
    """What a schema asks for of columns that there are. Raises ValueError."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    plain = tuple(name for name in arrow.names if name in there_are)
    fields = [field for field in arrow if field.name not in there_are]
    if fields and codec is None:
        names = ", ".join(field.name for field in fields)
        raise ValueError(
            f"there is no column {names} (there are {', '.join(there_are)}); fields of values need a codec"
        )
    for name in plain:
        wanted, found = arrow.field(name).type, there_are[name]
        if wanted != found and not (pa.types.is_binary(found) and pa.types.is_string(wanted)):
            raise ValueError(f"the column {name} can be {_readable(found)}, not {wanted}")
    return Asked(arrow, plain, pa.schema(fields))


def inferred(values: Iterable[bytes], keys: Iterable[bytes]) -> str:
    """The fields of JSON objects, as columns for a schema. Raises ValueError."""
    kinds: dict[str, set[str]] = {}
    for key, value in zip(keys, values, strict=True):
        for name, content in _object(key, value).items():
            found = kinds.setdefault(name, set())
            if content is not None:
                found.add(_TYPES.get(type(content), "STRING"))
    columns = []
    for name, found in kinds.items():
        kind = found.pop() if len(found) == 1 else "DOUBLE" if found == {"BIGINT", "DOUBLE"} else "STRING"
        columns.append(f"`{name.replace('`', '``')}` {kind}")
    return ", ".join(columns)


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
                raise ValueError(f"the {field.name} of key {shown(key)} is no UTF-8: ask for BINARY") from None
        raise


def _parsed(keys: pa.Array, values: pa.Array, fields: pa.Schema) -> dict[str, pa.Array]:
    lines = pc.fill_null(values, b"{}")
    options = pj.ParseOptions(explicit_schema=fields, newlines_in_values=True, unexpected_field_behavior="ignore")
    try:
        content = pc.binary_join(pa.LargeListArray.from_arrays([0, len(lines)], lines.cast(pa.large_binary())), b"\n")
        table = pj.read_json(
            pa.py_buffer(content[0].as_py()),
            parse_options=options,
            read_options=pj.ReadOptions(use_threads=False, block_size=max(content[0].as_buffer().size, 1)),
        )
        if table.num_rows == len(keys):
            return {name: table.column(name).combine_chunks() for name in fields.names}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    return _parsed_one_by_one(keys, lines, fields)


def _parsed_one_by_one(keys: pa.Array, lines: pa.Array, fields: pa.Schema) -> dict[str, pa.Array]:
    named = keys.to_pylist()
    rows = [_object(key, line) for key, line in zip(named, lines.to_pylist(), strict=True)]
    parsed = {}
    for field in fields:
        column = [_fitting(row.get(field.name), field.type) for row in rows]
        try:
            parsed[field.name] = _array(column, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            for key, item in zip(named, column, strict=True):
                try:
                    _array([item], field.type)
                except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                    raise ValueError(
                        f"the field {field.name!r} of key {shown(key)} should be {field.type}, not {item!r:.60}"
                    ) from None
            raise
    return parsed


def _fitting(item: Any, kind: pa.DataType) -> Any:
    if item is None or not pa.types.is_string(kind):
        return item
    return item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)


def _array(column: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind) or not any(isinstance(item, str) for item in column):
        return pa.array(column, kind)
    return pa.array(column, pa.string()).cast(kind)  # dates and the like


def _object(key: bytes, value: bytes) -> dict[str, Any]:
    try:
        found = json.load(io.BytesIO(value))
    except ValueError as error:
        raise ValueError(f"the value of key {shown(key)} is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"the value of key {shown(key)} is no JSON object: {value!r:.60}")
    return found


# ---- the other way round


def check_written(schema: StructType, codec: str | None, ignored: Sequence[str]) -> None:
    """That a DataFrame with these columns can be written. Raises ValueError."""
    names = schema.names
    content = [name for name in names if name not in ("key", *ignored)]
    if "key" not in names:
        raise ValueError(f"the DataFrame has no column key (it has {', '.join(names)})")
    if codec is None and content != ["value"]:
        raise ValueError(f"the columns are to be key and value, not {', '.join(names)}; documents need a codec")
    for name in ("key",) if codec is not None else ("key", "value"):
        kind = schema[name].dataType.simpleString()
        if kind not in ("binary", "string"):
            raise ValueError(f"the column {name} must be BINARY or STRING, not {kind}")


def documents(batch: pa.RecordBatch, codec: str | None, ignored: Sequence[str]) -> Iterator[tuple[bytes, bytes | None]]:
    """The keys and values that rows are written as. Raises ValueError."""
    keys = _as_bytes(batch.column("key"))
    if codec is None:
        values = _as_bytes(batch.column("value"))
    else:
        names = [name for name in batch.schema.names if name not in ("key", *ignored)]
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode
        values = [encode(row).encode() for row in batch.select(names).to_pylist()]
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise ValueError("a row has no key: the column key is null")
        yield key, value


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    items: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return items


def _plain(thing: Any) -> Any:
    """What Spark has and JSON has not."""
    if isinstance(thing, bytes):
        return {"base64": base64.b64encode(thing).decode()}
    return thing.isoformat() if isinstance(thing, dt.date | dt.time) else str(thing)
