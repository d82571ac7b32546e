"""Codecs: the rows of a table to bytes and back, without pickle, and without code of the application in what is stored.

A codec names its `format`, of which there are two: "json" and "msgpack". The fields of an index are read from the
stored bytes by the format alone (`parse`), so that a program which does not have the application's classes can check
an index, too.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import math
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar
from uuid import UUID

V = TypeVar("V")
D = TypeVar("D")


class Codec(Protocol[V]):
    """Rows to bytes and back. `format`: what the bytes are, "json" or "msgpack"."""

    @property
    def format(self) -> str: ...

    def encode(self, value: V) -> bytes:
        """The bytes of the row `value`. Raises TypeError, ValueError."""

    def decode(self, data: bytes) -> V:
        """The row of the bytes `data`. Raises ValueError."""

    def conversion(self, path: str) -> str:
        """How an index reads the stored field `path`: a name of `CONVERSIONS`, or "". Raises ValueError."""


class Json:
    """Rows as JSON: dictionaries, lists, text, numbers, booleans, None. `format`: "json".

    As everywhere in JSON, tuples return as lists and the keys of dictionaries as text.
    """

    format = "json"

    def encode(self, value: Any) -> bytes:
        """The JSON of `value`, in UTF-8. Raises TypeError, and ValueError for nan, infinities, what is nested too
        deeply, and a dictionary of which two keys have the same text, such as 1 and "1"."""
        try:
            data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        _check_names(value)
        return data

    def decode(self, data: bytes) -> Any:
        """The value of the JSON `data`. Raises ValueError, also for what `encode` refuses."""
        return _json_value(data, parse_constant=_refuse_number, parse_float=_finite)

    def conversion(self, path: str) -> str:
        """ "": an index holds a field `path` as JSON has it."""
        return ""


class Msgpack:
    """Rows as msgpack, with bytes and datetimes (in UTC) beside what JSON has. `format`: "msgpack".

    A time of msgpack may have nanoseconds. One that a datetime cannot hold is refused both ways, so that no row that is
    read and written again loses them.

    The constructor raises ModuleNotFoundError without the package `msgpack` (the extra `logdb[msgpack]`).
    """

    format = "msgpack"

    def __init__(self) -> None:
        import msgpack

        self._pack, self._unpack = msgpack.packb, msgpack_decoder(_refused)

    def encode(self, value: Any) -> bytes:
        """The msgpack of `value`. Raises TypeError, and ValueError for ints of more than 64 bits and for times that
        `decode` refuses."""
        try:
            data: bytes = self._pack(value, datetime=True)
        except OverflowError as error:
            raise ValueError(str(error)) from error
        if _may_have_nanoseconds(data):
            self._unpack(data)
        return data

    def decode(self, data: bytes) -> Any:
        """The value of the msgpack `data`. Raises ValueError."""
        return self._unpack(data)

    def conversion(self, path: str) -> str:
        """ "": an index holds a field `path` as msgpack has it."""
        return ""


class Dataclass(Generic[D]):
    """Instances of a dataclass, as JSON objects by field name. `format`: "json".

    A field is of type str, int, float, bool, None, bytes, datetime, UUID, an Enum (stored by its value), another
    dataclass, list[T], tuple[T, ...], dict[str, T], or T | None. Bytes are stored in base64, datetimes in ISO format
    (with a zone: in UTC). A row without a field takes the field's default; a row with a field that the class does not
    have is refused, so that no program drops it. Types are checked both ways.

    The constructor raises TypeError for a class that is not a dataclass, or has a field of another type.
    """

    format = "json"

    def __init__(self, kind: type[D]) -> None:
        self._kind = kind
        self._stored, self._loaded = _dataclass_converter(kind)

    def encode(self, value: D) -> bytes:
        """The JSON of the instance `value`. Raises TypeError, ValueError."""
        return Json().encode(self._stored(value))

    def decode(self, data: bytes) -> D:
        """The instance in the JSON `data`. Raises TypeError, ValueError."""
        return self._loaded(Json().decode(data))  # type: ignore[no-any-return]

    def conversion(self, path: str) -> str:
        """How an index reads the field `path`, such as "created" or "address.city". Raises ValueError for a path that
        the class does not have.
        """
        kind: Any = self._kind
        for part in path.split("."):
            hints = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
            if part not in hints:
                raise ValueError(f"{self._kind.__name__} has no field {path!r}")
            kind = _optional(hints[part])
        return _CONVERSION_OF.get(kind, "")


def _json_value(data: bytes, **hooks: Any) -> Any:
    try:
        return json.loads(data, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_CONTAINERS: Final = (dict, list, tuple)


def _check_names(value: Any) -> None:
    """Raise ValueError for a dictionary whose JSON would have a name twice. `value`: what has a JSON."""
    left: list[Any] = [[value]]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            kinds = set(map(type, one))
            if len(kinds) > 1 and str in kinds:
                keys: dict[str, Any] = {}
                for key in one:
                    (name,) = json.loads(json.dumps({key: None}))
                    if name in keys:
                        raise ValueError(
                            f"the keys {keys[name]!r:.100} and {key!r:.100} of one dictionary are equal in JSON"
                        )
                    keys[name] = key
            one = one.values()
        left += [inner for inner in one if isinstance(inner, _CONTAINERS)]


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


# ---- reading fields of stored rows


def parse(format: str, data: bytes) -> Any:
    """The stored bytes of a row, decoded by a format of this module alone. Raises ValueError.

    Times are of whole microseconds, as in the keys of an index: a row whose time has nanoseconds can be deleted.
    """
    if format == "json":
        return _json_value(data)
    return msgpack_decoder(lambda time: time.to_datetime())(data)


_LONG_TIMES: Final = ((b"\xd7\xff", 2), (b"\x08\xff", 2), (b"\x0c\xff", 0))
"""The ends of the headers of times (extension -1) of 8 and 12 bytes. The next 4 bytes have the nanoseconds, after a
shift to the right (https://github.com/msgpack/msgpack/blob/master/spec.md)."""


def _may_have_nanoseconds(data: bytes) -> bool:
    """Whether msgpack may have a time that is not of whole microseconds; False: it has none."""
    for header, shift in _LONG_TIMES:
        at = data.find(header)
        while at >= 0:
            if (int.from_bytes(data[at + 2 : at + 6]) >> shift) % 1_000:
                return True
            at = data.find(header, at + 2)
    return False


def msgpack_decoder(convert: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    """A decoder of msgpack, with times as datetimes in UTC. It raises ValueError.

    `convert`: called with a `msgpack.Timestamp` that is not of whole microseconds; its result takes that place.
    """
    import msgpack

    unpack, kind = msgpack.unpackb, msgpack.Timestamp

    def converted(item: Any) -> Any:
        if item.__class__ is not kind:
            return item
        return convert(item) if item.nanoseconds % 1_000 else item.to_datetime()

    def of_map(found: dict[Any, Any]) -> dict[Any, Any]:
        return {converted(name): converted(item) for name, item in found.items()}

    def of_list(found: list[Any]) -> list[Any]:
        return [converted(item) for item in found]

    def decode(data: bytes) -> Any:
        try:
            if not _may_have_nanoseconds(data):
                return unpack(data, timestamp=3, strict_map_key=False)
            return converted(unpack(data, strict_map_key=False, object_hook=of_map, list_hook=of_list))
        except OverflowError as error:  # a time after the year 9999
            raise ValueError(str(error)) from error

    return decode


def _refused(time: Any) -> Any:
    raise ValueError(f"the time {shown_time(time)} is not one of whole microseconds")


def shown_time(time: Any) -> str:
    """A `msgpack.Timestamp` in ISO format, with its nanoseconds."""
    second = time.to_datetime().replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{second}.{time.nanoseconds:09}+00:00"


FORMATS: Final = ("json", "msgpack")

CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "datetime": dt.datetime.fromisoformat,
    "uuid": UUID,
}
"""How an index reads text in JSON: by names that the catalog keeps."""
_CONVERSION_OF: Final = {bytes: "bytes", dt.datetime: "datetime", UUID: "uuid"}


_TEXT_OF: Final[dict[type, Callable[[Any], str]]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    dt.datetime: lambda value: _in_utc(value).isoformat(),
    UUID: str,
}


# ---- dataclasses


class Converter(NamedTuple):
    """Converts a value of one type to what JSON can store, and back."""

    stored: Callable[[Any], Any]
    loaded: Callable[[Any], Any]


def _converter(kind: Any) -> Converter:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind in (str, int, bool, type(None), None):
        exactly = _exactly(type(None) if kind is None else kind)
        return Converter(exactly, exactly)
    if kind is float:
        return Converter(_number, _number)
    if kind in _CONVERSION_OF:
        stored = _TEXT_OF[kind]
        is_kind, is_text = _exactly(kind), _exactly(str)
        loaded = CONVERSIONS[_CONVERSION_OF[kind]]
        return Converter(lambda value: stored(is_kind(value)), lambda value: loaded(is_text(value)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_converter(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass_converter(kind)
    if origin in (types.UnionType, typing.Union) and len(args) == 2 and type(None) in args:
        inner = _converter(_optional(kind))
        return Converter(*(_or_none(one) for one in inner))
    if origin is list or (origin is tuple and len(args) == 2 and args[1] is Ellipsis):
        inner, is_list = _converter(args[0]), _exactly(list)
        is_origin = _exactly(origin)
        return Converter(
            lambda value: [inner.stored(one) for one in is_origin(value)],
            lambda value: origin(inner.loaded(one) for one in is_list(value)),
        )
    if origin is dict and args[0] is str:
        inner, is_dict, is_text = _converter(args[1]), _exactly(dict), _exactly(str)
        return Converter(
            *(
                lambda value, each=each: {is_text(name): each(one) for name, one in is_dict(value).items()}
                for each in inner
            )
        )
    raise TypeError(
        f"a field of a stored dataclass cannot have the type {kind}: use str, int, float, bool, None, bytes, datetime,"
        " UUID, an Enum, a dataclass, list[T], tuple[T, ...], dict[str, T] or T | None"
    )


def _enum_converter(kind: type[Enum]) -> Converter:
    """JSON has a list for the value of a member that is a tuple."""
    lists = [(Json().decode(Json().encode(member.value)), member) for member in kind if type(member.value) is tuple]

    def loaded(value: Any) -> Enum:
        for stored, member in lists:
            if stored == value:
                return member
        return kind(value)

    return Converter(lambda value: kind(value).value, loaded)


def _in_utc(value: dt.datetime) -> dt.datetime:
    """A datetime in UTC if it has a zone. Raises ValueError."""
    try:
        return value.astimezone(dt.UTC) if value.tzinfo else value
    except OverflowError:
        raise ValueError(f"the datetime {value!r} is not in the years 1 to 9999 of UTC") from None


def _dataclass_converter(kind: Any) -> Converter:
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise TypeError(f"{kind!r} is not a dataclass")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unset := [name for name, field in fields.items() if not field.init]:
        raise TypeError(f"the field {unset[0]!r} of {kind.__name__} is not an argument of its constructor")
    converters = {name: _converter(hints[name]) for name in fields}
    is_kind, is_object = _exactly(kind), _exactly(dict)

    def stored(value: Any) -> dict[str, Any]:
        is_kind(value)
        return {name: one.stored(getattr(value, name)) for name, one in converters.items()}

    def loaded(row: Any) -> Any:
        if unknown := is_object(row).keys() - fields.keys():
            raise ValueError(
                f"a row has the field {min(unknown)!r}, which {kind.__name__} does not have; add it, with a default"
            )
        return kind(**{name: converters[name].loaded(one) for name, one in row.items()})

    return Converter(stored, loaded)


def _optional(kind: Any) -> Any:
    """T of T | None; other types as they are."""
    args = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union) and len(args) == 2 and type(None) in args:
        return args[args[0] is type(None)]
    return kind


def _exactly(kind: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"a field of type {kind.__name__} cannot hold {value!r:.100}")
        return value

    return checked


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"a field of type float cannot hold {value!r:.100}")
    return float(value)


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)
