"""Codecs: what is written is read, and what cannot be read again is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.tables import Dataclass, Json, Msgpack
from logdb.tables.codecs import CONVERSIONS, parse


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Address:
    city: str
    zip_code: str | None = None


@dataclasses.dataclass(frozen=True)
class User:
    name: str
    age: int
    score: float
    is_admin: bool
    picture: bytes
    created: dt.datetime
    id: UUID
    color: Color
    address: Address
    tags: list[str]
    marks: tuple[int, ...] = ()
    notes: dict[str, float] = dataclasses.field(default_factory=dict)
    manager: UUID | None = None
    nothing: None = None


users = st.builds(
    User,
    name=st.text(max_size=5),
    age=st.integers(),
    score=st.floats(allow_nan=False, allow_infinity=False),
    created=st.datetimes() | st.datetimes(timezones=st.just(dt.UTC)),
    tags=st.lists(st.text(max_size=3), max_size=3),
    marks=st.lists(st.integers(), max_size=3).map(tuple),
    notes=st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False), max_size=2),
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(users)
def test_a_dataclass_returns_as_it_was(user: User) -> None:
    codec = Dataclass(User)
    assert codec.decode(codec.encode(user)) == user


@given(plain)
def test_plain_values_return_as_they_were(value: Any) -> None:
    for codec in (Json(), Msgpack()):
        assert codec.decode(codec.encode(value)) == value
        assert parse(codec.format, codec.encode(value)) == value


def test_msgpack_has_bytes_and_datetimes() -> None:
    row = {"raw": b"\0\xff", "at": dt.datetime(2026, 5, 1, tzinfo=dt.UTC), 5: [1, 2]}
    assert Msgpack().decode(Msgpack().encode(row)) == row


@given(users)
def test_an_index_reads_what_a_dataclass_holds(user: User) -> None:
    codec = Dataclass(User)
    row = parse(codec.format, codec.encode(user))
    for field in ("picture", "created", "id"):
        assert CONVERSIONS[codec.conversion(field)](row[field]) == getattr(user, field)
    assert codec.conversion("manager") == "uuid"
    assert codec.conversion("name") == codec.conversion("address.city") == ""
    assert codec.conversion("address.zip_code") == ""


@pytest.mark.parametrize("path", ["nam", "address.street", "name.first", ""])
def test_a_field_that_the_class_lacks_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no field"):
        Dataclass(User).conversion(path)


def test_a_row_without_a_field_takes_the_default() -> None:
    assert Dataclass(Address).decode(b'{"city": "Rome"}') == Address("Rome")


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        ({"city": "Rome", "street": "x"}, ValueError),
        ({"zip_code": "1"}, TypeError),
        ({"city": 5}, TypeError),
        ({"city": None}, TypeError),
        (["Rome"], TypeError),
    ],
)
def test_a_row_of_another_class_is_refused(stored: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Dataclass(Address).decode(json.dumps(stored).encode())


def test_a_field_of_another_type_is_not_written() -> None:
    with pytest.raises(TypeError, match="of type str cannot hold 5"):
        Dataclass(Address).encode(Address(5))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Address cannot hold"):
        Dataclass(Address).encode("Rome")  # type: ignore[arg-type]


@dataclasses.dataclass
class WithSet:
    some: set[int]


@dataclasses.dataclass
class WithoutArgument:
    some: int = dataclasses.field(init=False)


@pytest.mark.parametrize("kind", [WithSet, WithoutArgument, int, dict])
def test_a_class_that_cannot_be_stored_is_refused(kind: type) -> None:
    with pytest.raises(TypeError):
        Dataclass(kind)


@pytest.mark.parametrize(
    ("codec", "value"), [(Json(), float("nan")), (Json(), b"x"), (Msgpack(), 2**64), (Msgpack(), {1, 2})]
)
def test_a_value_that_the_format_lacks_is_refused(codec: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec.encode(value)


@pytest.mark.parametrize("keys", [(1, "1"), ("1", 1), (True, "true"), (None, "null"), ("0.5", 0.5), (2, "a", "2")])
@pytest.mark.parametrize("where", [lambda row: row, lambda row: {"a": [1, row]}, lambda row: [{"b": (row,)}, {}]])
def test_keys_that_are_one_name_in_json_are_refused(keys: tuple[Any, ...], where: Any) -> None:
    """The row was stored with a name twice, and lost a value when it was read."""
    named = [key for key in keys if key != "a"]
    with pytest.raises(ValueError, match=f"the keys {named[0]!r} and {named[1]!r} of one dictionary"):
        Json().encode(where(dict.fromkeys(keys, 0)))


@pytest.mark.parametrize("value", [{1: 0, "2": 0, None: [{}]}, {True: 0, "1": 0}, "1", 1, None, [], ["1", 1]])
def test_values_with_different_names_have_a_json(value: Any) -> None:
    assert Json().decode(Json().encode(value)) in (value, {"1": 0, "2": 0, "null": [{}]}, {"true": 0, "1": 0})


NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
times = st.datetimes(timezones=st.just(dt.UTC)) | st.just(NOON)
like_times = st.sampled_from([b"\xd7\xff\0\0\0\x07", b"\x08\xff\xff", b"\x0c\xff\0\0\0\x01\xd7\xff", b"\xff" * 9])


@given(
    st.dictionaries(
        st.text(max_size=2) | times,
        st.recursive(times | like_times, lambda inner: st.lists(inner) | st.dictionaries(times, inner), max_leaves=6),
    )
)
def test_msgpack_times_return_as_they_were(row: Any) -> None:
    """Also beside bytes that look like the header of a time."""
    assert Msgpack().decode(Msgpack().encode(row)) == row


@pytest.mark.parametrize("where", [lambda time: time, lambda time: {"a": [time]}, lambda time: [{"a": {1: time}}]])
@pytest.mark.parametrize("seconds", [0, 1_700_000_000, 2**34, -1])
def test_msgpack_times_below_a_microsecond_are_refused(where: Any, seconds: int) -> None:
    row = where(msgpack.Timestamp(seconds, 123_456_789))
    refused = r"the time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.123456789\+00:00 is not one of whole microseconds"
    for step in (lambda: Msgpack().encode(row), lambda: Msgpack().decode(msgpack.packb(row))):
        with pytest.raises(ValueError, match=refused):
            step()


@pytest.mark.parametrize("header", [b"\xd7", b"\xc7\x08", b"\xc8\0\x08", b"\xc9\0\0\0\x08"])
@pytest.mark.parametrize("nanoseconds", [1, 999, 1_000, 999_999_999])
def test_msgpack_times_in_any_header(header: bytes, nanoseconds: int) -> None:
    data = header + b"\xff" + (nanoseconds << 34 | 5).to_bytes(8)
    if nanoseconds % 1_000:
        with pytest.raises(ValueError, match="whole microseconds"):
            Msgpack().decode(data)
    else:
        assert Msgpack().decode(data) == dt.datetime(1970, 1, 1, 0, 0, 5, nanoseconds // 1_000, dt.UTC)


@pytest.mark.parametrize("nanoseconds", [0, 1])
def test_a_msgpack_time_after_the_year_9999_is_refused(nanoseconds: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        Msgpack().decode(msgpack.packb([msgpack.Timestamp(10**12, nanoseconds)]))


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("codec", [Json(), Dataclass(Address)])
@pytest.mark.parametrize("stored", [b"NaN", b"-Infinity", b"1e999", b"-1e999", DEEP])
def test_a_stored_value_that_could_not_be_written_is_refused(codec: Any, stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"is not a number|nested too deeply"):
        codec.decode(b'{"city":%b}' % stored)


def test_json_that_is_nested_too_deeply() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        Json().encode(deep)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse("json", DEEP)


def test_a_row_with_a_value_that_is_not_a_number_can_be_replaced() -> None:
    """An index reads its other fields."""
    assert parse("json", b'{"city":"x","n":NaN}')["city"] == "x"


class Planet(enum.Enum):
    EARTH = (5, 6)
    MARS = (0, (3,))
    NONE = 0


@dataclasses.dataclass
class Trip:
    planet: Planet
    begin: dt.datetime | None = None


@pytest.mark.parametrize("planet", Planet)
def test_a_member_of_an_enum_may_have_a_tuple(planet: Planet) -> None:
    codec = Dataclass(Trip)
    assert codec.decode(codec.encode(Trip(planet))) == Trip(planet)


def test_a_time_that_utc_does_not_have_is_refused() -> None:
    begin = dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))
    with pytest.raises(ValueError, match="years 1 to 9999"):
        Dataclass(Trip).encode(Trip(Planet.MARS, begin))
