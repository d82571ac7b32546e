"""Values as columns, and rows as JSON values.

A field of an object, in JSON or another format (`formats`), goes into the column of its name if the column's type holds
its value exactly. A value that does not fit, and a field without a column, go into the column `_rescued_data`, a JSON
object of the rest. Without that column in the schema, a value that does not fit is an error that names the key, and
other fields are ignored. A field that is null and one that is missing are both null.

`infer_columns` finds the columns for a sample of values. A schema of the user may also read text as numbers, dates,
times and bytes, and without `_rescued_data` anything as STRING: a value that is not a string becomes its JSON text.

JSON values are UTF-8, one object each. NaN and Infinity are read, as Python writes them, but never written.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from logdb.errors import shown
from spark_export.formats import JSON_TEXT, MAX_DIGITS, Decode, ValueFormat

RESCUED: Final = "_rescued_data"
_INTEGERS: Final = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_EXACT: Final[dict[type[DataType], type]] = {
    BooleanType: bool,
    LongType: int,
    DoubleType: float,
    StringType: str,
    BinaryType: bytes,
}
_TEXT_OF_BYTES: Final = "base64"
_BELOW_MICROSECONDS: Final = re.compile(r"[.,]\d{6}\d*[1-9]")

Convert = Callable[[Any], Any]
T = TypeVar("T", dt.time, dt.datetime)


class JsonValues(NamedTuple):
    """Values as JSON objects in UTF-8."""

    name: str = "JSON"

    def decoder(self, *, exactly: bool) -> Decode:
        decode = _decoder(exactly=exactly)
        return lambda value: decode(value.decode())

    def fields(self) -> list[StructField] | None:
        return None


JSON: Final = JsonValues()


class Documents(NamedTuple):
    """The columns for values of a `format`: some fields, and with `rescues` the rest.

    `zone`: for times that name none.
    """

    fields: tuple[StructField, ...]
    rescues: bool
    zone: dt.tzinfo | None = None
    format: ValueFormat = JSON

    def columns(self, keys: pa.Array, values: pa.Array) -> dict[str, pa.Array]:
        """Convert the values of some rows to columns; null has no fields. Raises ValueError, which names the key."""
        has_decimals = any("decimal" in field.dataType.simpleString() for field in self.fields)
        decode, rows = self.format.decoder(exactly=has_decimals), list[dict[str, Any]]()
        text = _exact_text if has_decimals and self.format == JSON else _text
        for value in values.to_pylist():
            rows.append({} if value is None else _parsed(self.format, decode, value, keys[len(rows)]))
        columns = {field.name: self._column(field, rows, keys, text) for field in self.fields}
        if self.rescues:
            rest = [_rest(row, keys[at], text) if row else None for at, row in enumerate(rows)]
            columns[RESCUED] = pa.array(rest, pa.string())
        return columns

    def _column(
        self, field: StructField, rows: Sequence[dict[str, Any]], keys: pa.Array, text: Callable[[Any], str]
    ) -> pa.Array:
        name, kind = field.name, to_arrow_type(field.dataType, timezone="UTC")
        items = [row.pop(name, None) for row in rows]
        if not field.metadata and {*map(type, items)} <= {_EXACT.get(type(field.dataType)), type(None)}:
            try:
                return pa.array(items, kind)
            except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                pass  # one of the items does not fit
        convert = text if field.metadata.get(JSON_TEXT) else self._conversion(field.dataType)
        for at, item in enumerate(items):
            try:
                items[at] = None if item is None else convert(item)
            except (ValueError, OverflowError, RecursionError):
                if not self.rescues:
                    what = f"should be {kind}, not {item!r:.60}"
                    raise ValueError(f"the field {name!r} of key {shown(keys[at].as_py())} {what}") from None
                items[at], rows[at][name] = None, item
        return pa.array(items, kind)

    # ---- one value; ValueError or OverflowError: it does not fit

    def _conversion(self, kind: DataType) -> Convert:
        """The conversion of JSON values to a type. Raises ValueError if there is none."""
        match kind:
            case BooleanType():
                return self._boolean
            case ByteType() | ShortType() | IntegerType() | LongType():
                return self._integer(_INTEGERS[type(kind)])
            case FloatType() | DoubleType():
                return self._floating(np.float32 if isinstance(kind, FloatType) else np.float64)
            case DecimalType():
                return self._decimal(kind)
            case StringType():
                return self._string
            case BinaryType():
                return _binary
            case DateType():
                return _date
            case TimestampType():
                return self._timestamp
            case TimestampNTZType():
                return _local_time
            case TimeType():
                return _time
            case ArrayType():
                return self._array(kind)
            case MapType(keyType=StringType()):
                return self._map(kind)
            case StructType():
                return self._struct(kind)
        raise ValueError(f"a field of a JSON object cannot be {kind.simpleString()}")

    def check(self) -> Documents:
        """Check that each column has a conversion, and return self. Raises ValueError."""
        for field in self.fields:
            self._conversion(field.dataType)
        return self

    def _number(self, item: Any) -> Any:
        """Convert a number, which may be text unless the rest is rescued."""
        if isinstance(item, str) and not self.rescues:
            item = _decoder(exactly=True)(item)
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise ValueError
        return item

    def _boolean(self, item: Any) -> bool:
        if isinstance(item, str) and not self.rescues:
            item = {"true": True, "false": False}.get(item.lower())
        return bool(_only(item, bool))

    def _integer(self, bits: int) -> Convert:
        end = 1 << (bits - 1)

        def convert(item: Any) -> int:
            item = self._number(item)
            if item != int(item) or not -end <= item < end:
                raise ValueError
            return int(item)

        return convert

    def _floating(self, kind: type[np.floating[Any]]) -> Convert:
        def convert(item: Any) -> Any:
            item = self._number(item)
            with np.errstate(over="ignore"):
                converted = kind(float(item))
            if int(converted) != item if isinstance(item, int) else math.isinf(converted) and not math.isinf(item):
                raise ValueError
            return converted

        return convert

    def _decimal(self, kind: DecimalType) -> Convert:
        unit, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

        def convert(item: Any) -> Decimal:
            item = item if isinstance(item, Decimal) else self._number(item)
            try:
                number = Decimal(getattr(item, "text", item) if isinstance(item, float) else item)
                if number.is_finite() and abs(number) < limit and number == (exact := number.quantize(unit)):
                    return exact
            except InvalidOperation:
                pass
            raise ValueError

        return convert

    def _string(self, item: Any) -> str:
        if isinstance(item, UUID):
            return str(item)
        if self.rescues or isinstance(item, str):
            _only(item, str).encode()
            return str(item)
        return _text(item)

    def _timestamp(self, item: Any) -> dt.datetime:
        time = _datetime(item)
        return (time if time.tzinfo else time.replace(tzinfo=self.zone)).astimezone(dt.UTC)

    def _array(self, kind: ArrayType) -> Convert:
        convert = self._inner(kind.elementType, kind.containsNull)
        return lambda item: [convert(one) for one in _only(item, list)]

    def _map(self, kind: MapType) -> Convert:
        convert = self._inner(kind.valueType, kind.valueContainsNull)
        return lambda item: [(self._string(name), convert(one)) for name, one in _only(item, dict).items()]

    def _struct(self, kind: StructType) -> Convert:
        inner = {field.name: self._inner(field.dataType, field.nullable) for field in kind.fields}

        def convert(item: Any) -> dict[str, Any]:
            if _only(item, dict).keys() - inner.keys() and self.rescues:
                raise ValueError
            return {name: convert(item.get(name)) for name, convert in inner.items()}

        return convert

    def _inner(self, kind: DataType, nullable: bool) -> Convert:
        convert = self._conversion(kind)

        def of_null(item: Any) -> Any:
            if item is None and not nullable:
                raise ValueError
            return None if item is None else convert(item)

        return of_null


def infer_columns(
    rows: Iterable[tuple[bytes, bytes]], reserved: Collection[str], format: ValueFormat = JSON
) -> list[StructField]:
    """Infer the columns for the objects of some rows (key, value), without reserved names. Raises ValueError, which
    names a key.

    Numbers become BIGINT, DECIMAL(38,0) or DOUBLE, strings STRING; lists, objects and values of several types STRING
    with JSON text, unless there are strings among them: then the column has the strings, and the rest is rescued.
    """
    decode, kinds, names = format.decoder(exactly=False), dict[str, set[type]](), dict[str, str]()
    for key, value in rows:
        for name, item in _parsed(format, decode, value, pa.scalar(key)).items():
            if names.setdefault(name.lower(), name) == name:  # Spark ignores the case of a name
                found = kinds.setdefault(name, set())
                if item is not None:
                    found.add(Decimal if type(item) is int and item.bit_length() > _BITS else type(item))
    hidden = {"", *(name.lower() for name in reserved)}
    wanted = [name for name in kinds if name.isprintable() and name.lower() not in hidden]
    return [_infer_column(name, kinds[name]) for name in wanted]


_BITS: Final = 63


def _infer_column(name: str, found: set[type]) -> StructField:
    if not found or str in found or found == {UUID}:
        return StructField(name, StringType())
    for kind, among in (
        (BooleanType(), {bool}),
        (LongType(), {int}),
        (DecimalType(MAX_DIGITS, 0), {int, Decimal}),
        (DoubleType(), {int, Decimal, float}),
        (BinaryType(), {bytes}),
        (TimestampType(), {dt.datetime}),
        (DateType(), {dt.date}),
    ):
        if found <= among:
            return StructField(name, kind)
    return StructField(name, StringType(), metadata={JSON_TEXT: True})


# ---- parsing


class _NumberWithText(float):
    """A number with its text."""

    text: str


def _decoder(*, exactly: bool = False) -> Convert:
    return json.JSONDecoder(parse_float=_with_text if exactly else _finite, object_pairs_hook=_unique).decode


def _with_text(text: str) -> _NumberWithText:
    number = _NumberWithText(_finite(text))
    number.text = text
    return number


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text:.40} is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return found


def _parsed(format: ValueFormat, decode: Decode, value: bytes, key: pa.Scalar) -> dict[str, Any]:
    try:
        found = decode(value)
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"the value of key {shown(key.as_py())} is not {format.name} ({what})") from None
    if not isinstance(found, dict) or not all(type(name) is str for name in found):
        raise ValueError(f"the value of key {shown(key.as_py())} is not a {format.name} object: {value!r:.60}")
    return found


def _rest(row: dict[str, Any], key: pa.Scalar, text: Callable[[Any], str]) -> str:
    """The fields that the other columns do not hold, as JSON. Raises ValueError, which names the key."""
    try:
        return text(row)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the rest of the fields of key {shown(key.as_py())} cannot be JSON: {error}") from None


def _text(item: Any) -> str:
    """JSON text, with escapes for surrogates. Raises ValueError."""
    try:
        text = json.dumps(item, ensure_ascii=False, default=_plain)
    except TypeError as error:  # a map whose keys JSON does not have
        raise ValueError(str(error)) from error
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(item, default=_plain)
    return text


def _exact_text(item: Any, encode: Callable[[Any], str] = _text, comma: str = ", ", colon: str = ": ") -> str:
    """As `encode`, for objects whose names are strings: a number that has its text keeps it."""
    if isinstance(item, _NumberWithText):
        return item.text
    if not isinstance(item, dict | list):
        return encode(item)
    parts, is_object = [], isinstance(item, dict)
    for one in item:  # one frame for each level
        text = _exact_text(item[one] if is_object else one, encode, comma, colon)
        parts.append(encode(one) + colon + text if is_object else text)
    return f"{{{comma.join(parts)}}}" if is_object else f"[{comma.join(parts)}]"


def _only(item: Any, kind: type) -> Any:
    if not isinstance(item, kind):
        raise ValueError
    return item


def _date(item: Any) -> dt.date:
    return item if type(item) is dt.date else dt.date.fromisoformat(_only(item, str))


def _time(item: Any) -> dt.time:
    return _without_zone(item if isinstance(item, dt.time) else dt.time.fromisoformat(_of_microseconds(item)))


def _datetime(item: Any) -> dt.datetime:
    return item if isinstance(item, dt.datetime) else dt.datetime.fromisoformat(_of_microseconds(item))


def _binary(item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, dict) and item.keys() == {_TEXT_OF_BYTES}:
        try:
            return base64.b64decode(_only(item[_TEXT_OF_BYTES], str), validate=True)
        except binascii.Error:
            raise ValueError from None
    return bytes(_only(item, str).encode())


def _of_microseconds(item: Any) -> str:
    if _BELOW_MICROSECONDS.search(_only(item, str)):
        raise ValueError
    return str(item)


def _local_time(item: Any) -> dt.datetime:
    return _without_zone(_datetime(item))


def _without_zone(time: T) -> T:
    if time.tzinfo is not None:
        raise ValueError
    return time


# ---- writing


def check_encodable(schema: StructType, names: Sequence[str]) -> None:
    """Check that the columns of these names can be written as JSON. Raises ValueError."""
    for field in schema.fields:
        if field.name in names:
            _check_encodable(field.name, field.dataType)


def _check_encodable(name: str, kind: DataType) -> None:
    match kind:
        case ArrayType():
            _check_encodable(name, kind.elementType)
        case MapType():
            if not isinstance(kind.keyType, StringType):
                raise ValueError(f"the column {name} has a map whose keys are not strings, which JSON does not have")
            _check_encodable(name, kind.valueType)
        case StructType():
            for field in kind.fields:
                _check_encodable(name, field.dataType)
        case _ if kind.typeName() in ("variant", "geometry", "geography", "interval", "yearmonthinterval"):
            raise ValueError(f"the column {name} is {kind.simpleString()}, which JSON does not have")


def encode_rows(rows: pa.RecordBatch, keys: Sequence[bytes | None], texts: Collection[str]) -> Iterator[bytes]:
    """Encode rows as JSON objects, with rescued fields in their place; `texts`: the columns of JSON text. Raises
    ValueError, which names the key."""
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
    decode, some = _decoder(exactly=True), _objects(rows)
    for key in keys:
        try:
            row = next(some)
            for name in texts:
                row[name] = None if row[name] is None else decode(row[name])
            if (rest := row.pop(RESCUED, None)) is not None:
                row |= _only(decode(rest), dict)
            yield (encode(row) if rest is None and not texts else _exact_text(row, encode, ",", ":")).encode()
        except (ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"the row of key {shown(key or b'')} cannot be JSON: {error}") from None


def _objects(rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    try:
        return iter(rows.to_pylist(maps_as_pydicts="strict"))
    except (ValueError, OverflowError):  # one of them has a time beyond those of Python
        return (rows.slice(at, 1).to_pylist(maps_as_pydicts="strict")[0] for at in range(rows.num_rows))


def _plain(thing: Any) -> Any:
    """Convert a value of Spark that JSON does not have. A decimal of a type without fractions is a whole number; others
    stay text, since programs read a number with a fraction as a double."""
    if isinstance(thing, Decimal) and thing.as_tuple().exponent == 0:
        return int(thing)
    if isinstance(thing, bytes):
        return {_TEXT_OF_BYTES: base64.b64encode(thing).decode()}
    return thing.isoformat() if isinstance(thing, dt.date | dt.time) else str(thing)
