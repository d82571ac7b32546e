"""The formats of values that a codec reads as columns: JSON, msgpack, Avro, protobuf, and entries of an index.

A format turns the bytes of a value into an object of named fields. Fields are what JSON has, and of other formats also
bytes, times, decimals and UUIDs. Avro and protobuf know their fields from a schema; of the others the fields are found
in the values (`documents.infer_columns`).
"""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from logdb.keys import unpack
from logdb.tables.codecs import msgpack_decoder, shown_time

JSON_TEXT: Final = "json"
"""In a field's metadata: the column, a STRING, holds the JSON text of every value."""

MAX_DIGITS: Final = 38
"""The digits of Spark's DECIMAL."""

Decode = Callable[[bytes], Any]


class ValueFormat(Protocol):
    """`name`: for errors, "JSON"."""

    @property
    def name(self) -> str: ...

    def decoder(self, *, exactly: bool) -> Decode:
        """The function that decodes a value; with `exactly`, floats keep their text. It raises ValueError."""

    def fields(self) -> list[StructField] | None:
        """The columns that the format's schema names; None without a schema. Raises ValueError."""


class LongTime:
    """A time of msgpack that is not of whole microseconds, so no TIMESTAMP can hold it: as text."""

    def __init__(self, time: Any) -> None:
        self._text = shown_time(time)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class MsgpackValues(NamedTuple):
    """Values as msgpack. Those of `logdb.tables.Msgpack` have no `LongTime`."""

    name: str = "msgpack"

    def decoder(self, *, exactly: bool) -> Decode:
        try:
            return msgpack_decoder(LongTime)
        except ModuleNotFoundError:
            raise ValueError("msgpack is not installed: pip install 'logdb[msgpack]'") from None

    def fields(self) -> list[StructField] | None:
        return None


class IndexEntries(NamedTuple):
    """The keys of the entries of an index: `skipped` items, then the `indexed` fields, then the key of the row."""

    skipped: int
    indexed: tuple[str, ...]
    name: str = "an index entry"

    def decoder(self, *, exactly: bool) -> Decode:
        return lambda key: dict(zip(self.indexed, unpack(key)[self.skipped :], strict=False))

    def fields(self) -> list[StructField] | None:
        return None


# ---- Avro


class AvroValues(NamedTuple):
    """Values as Avro records without a header, of one `schema`, as JSON text."""

    schema: str
    name: str = "Avro"

    def decoder(self, *, exactly: bool) -> Decode:
        from fastavro import schemaless_reader

        schema = _parsed_avro(self.schema)

        def decode(value: bytes) -> Any:
            content = io.BytesIO(value)
            try:
                found = schemaless_reader(content, schema, None)
            except Exception as error:  # which ones fastavro raises for wrong bytes depends on the schema
                raise ValueError(f"{type(error).__name__}: {error}") from error
            if left := len(value) - content.tell():
                raise ValueError(f"{left} bytes follow the record")
            return found

        return decode

    def fields(self) -> list[StructField] | None:
        _parsed_avro(self.schema)
        record = json.loads(self.schema)
        if not isinstance(record, dict) or record.get("type") != "record":
            raise ValueError("avroSchema must be that of a record")
        return [_column(field["name"], kind) for field, kind in _avro_fields(record, {})]


@cache
def _parsed_avro(schema: str) -> Any:
    try:
        from fastavro import parse_schema
    except ModuleNotFoundError:
        raise ValueError("fastavro is not installed: pip install 'logdb[avro]'") from None
    try:
        return parse_schema(json.loads(schema))
    except Exception as error:
        raise ValueError(f"avroSchema is not an Avro schema ({type(error).__name__}: {error})") from error


_AVRO: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_AVRO_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("int", "time-millis"): TimeType(),
    ("long", "time-micros"): TimeType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
    ("string", "uuid"): StringType(),
}

_Named = dict[str, DataType | None]


def _avro_fields(record: dict[str, Any], named: _Named) -> list[tuple[dict[str, Any], DataType | None]]:
    return [(field, _avro_type(field["type"], named)) for field in record["fields"]]


def _avro_type(schema: Any, named: _Named) -> DataType | None:
    """The type of a column for an Avro type; None: its JSON text. `named`: the types that were defined before."""
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        return _avro_type(kinds[0], named) if len(kinds) == 1 else None
    if isinstance(schema, str):
        return _AVRO[schema] if schema in _AVRO else named.get(schema.rpartition(".")[2])
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _avro_type(kind, named)
    found: DataType | None
    if kind == "record":
        named[schema["name"].rpartition(".")[2]] = None  # within itself
        fields = _avro_fields(schema, named)
        found = StructType([StructField(field["name"], one or StringType()) for field, one in fields])
    elif kind == "array":
        found = ArrayType(_avro_type(schema["items"], named) or StringType())
    elif kind == "map":
        found = MapType(StringType(), _avro_type(schema["values"], named) or StringType())
    elif logical == "decimal" and kind in ("bytes", "fixed"):
        digits = schema["precision"]
        found = DecimalType(digits, schema.get("scale", 0)) if digits <= MAX_DIGITS else None
    else:
        found = _AVRO_LOGICAL.get((kind, logical or "")) or _avro_type(kind, named)
    if kind in ("record", "enum", "fixed"):
        named[schema["name"].rpartition(".")[2]] = found
    return found


def _column(name: str, kind: DataType | None) -> StructField:
    return StructField(name, kind or StringType(), metadata={} if kind else {JSON_TEXT: True})


# ---- protobuf


class ProtobufValues(NamedTuple):
    """Values as protobuf messages of the type `message`. `descriptors`: a FileDescriptorSet."""

    descriptors: bytes
    message: str
    name: str = "protobuf"

    def decoder(self, *, exactly: bool) -> Decode:
        from google.protobuf.message import DecodeError

        kind = _message_class(self.descriptors, self.message)

        def decode(value: bytes) -> Any:
            try:
                return _object(kind.FromString(value))
            except DecodeError as error:
                raise ValueError(str(error)) from error

        return decode

    def fields(self) -> list[StructField] | None:
        descriptor = _message_class(self.descriptors, self.message).DESCRIPTOR
        return [_column(field.name, _protobuf_type(field, (descriptor.full_name,))) for field in descriptor.fields]


@cache
def _message_class(descriptors: bytes, message: str) -> Any:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ModuleNotFoundError:
        raise ValueError("protobuf is not installed: pip install 'logdb[cluster]'") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        for file in files:
            pool.Add(file)
        kind = pool.FindMessageTypeByName(message)
    except KeyError:
        names = sorted(f"{file.package}.{one.name}".lstrip(".") for file in files for one in file.message_type)
        raise ValueError(f"descriptorFile has no message {message!r}; it has {', '.join(names)}") from None
    except Exception as error:  # of several kinds, by the implementation of protobuf
        what = "make one with protoc --include_imports --descriptor_set_out=FILE"
        raise ValueError(f"descriptorFile is not a complete set of descriptors ({error}): {what}") from error
    return message_factory.GetMessageClass(kind)


_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _object(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _item(inner, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_item(field, one) for one in value]
        else:
            found[field.name] = _item(field, value)
    return found


def _item(field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        if value.nanos % 1_000:
            raise ValueError(f"the time of the field {field.name!r} is not one of whole microseconds")
        try:
            return _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
        except OverflowError as error:
            raise ValueError(f"the time of the field {field.name!r} is not in the years 1 to 9999") from error
    return _object(value)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _protobuf_type(field: Any, within: tuple[str, ...]) -> DataType | None:
    """The type of a column for a field; None: its JSON text. `within`: the messages around it."""
    if _is_map(field):
        inner = _single_type(field.message_type.fields_by_name["value"], within)
        return MapType(StringType(), inner or StringType())
    kind = _single_type(field, within)
    return ArrayType(kind or StringType()) if field.is_repeated else kind


def _single_type(field: Any, within: tuple[str, ...]) -> DataType | None:
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        if field.type == field.TYPE_BYTES:
            return BinaryType()
        return {
            field.CPPTYPE_INT32: IntegerType(),
            field.CPPTYPE_INT64: LongType(),
            field.CPPTYPE_UINT32: LongType(),
            field.CPPTYPE_UINT64: DecimalType(20, 0),
            field.CPPTYPE_DOUBLE: DoubleType(),
            field.CPPTYPE_FLOAT: FloatType(),
            field.CPPTYPE_BOOL: BooleanType(),
            field.CPPTYPE_ENUM: StringType(),
            field.CPPTYPE_STRING: StringType(),
        }[field.cpp_type]
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return TimestampType()
    if name in within or not field.message_type.fields:
        return None
    fields = [
        StructField(one.name, _protobuf_type(one, (*within, name)) or StringType()) for one in field.message_type.fields
    ]
    return StructType(fields)
