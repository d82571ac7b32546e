"""Any two tuples order as their keys do, and every key has one tuple."""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logdb
from logdb import keys
from logdb.keys import Item, Subspace, pack, prefix_range, unpack

zones = st.timezones() | st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
sizes = st.sampled_from([8, 9, 255, 256, 257]).map(lambda size: 1 << 8 * size)
near_a_power = st.builds(
    lambda power, more, sign: sign * ((1 << power) + more),
    st.integers(0, 2_100),
    st.integers(-2, 2),
    st.sampled_from([-1, 1]),
)
texts = st.text(max_size=6) | st.text("\0\x01a\U0001f525", max_size=4)
scalars = st.one_of(
    st.none(),
    st.binary(max_size=6),
    st.lists(st.sampled_from([b"\0", b"\xff", b"a"]), max_size=4).map(b"".join),
    texts,
    st.integers(),
    near_a_power,
    st.floats(),
    st.booleans(),
    st.uuids(),
    st.datetimes(),
    st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=zones),
)
items = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
tuples = st.lists(items, max_size=4).map(tuple)


def rank(item: Item) -> Any:
    """An item as something that Python orders: its kind, then its value."""
    if item is None:
        return (0,)
    if isinstance(item, bytes):
        return (1, item)
    if isinstance(item, str):
        return (2, [ord(character) for character in item])
    if isinstance(item, tuple):
        return (3, [rank(each) for each in item])
    if isinstance(item, bool):
        return (6, item)
    if isinstance(item, int):
        return (4, item)
    if isinstance(item, float):
        sign = math.copysign(1.0, item)
        return (5, 2 * sign, sign * payload(item)) if math.isnan(item) else (5, 0, item, sign)
    if isinstance(item, UUID):
        return (7, item.bytes)
    assert isinstance(item, dt.datetime)
    return (8, item.astimezone(dt.UTC)) if item.tzinfo else (9, item)


def payload(item: float) -> int:
    """The bits of a NaN without its sign."""
    return int.from_bytes(struct.pack(">d", item)) & ~(1 << 63)


def order(these: tuple[Item, ...]) -> list[Any]:
    return [rank(item) for item in these]


def check_order(a: tuple[Item, ...], b: tuple[Item, ...]) -> None:
    assert (pack(a) < pack(b)) == (order(a) < order(b))
    assert (pack(a) == pack(b)) == (order(a) == order(b))


@given(tuples, tuples)
def test_keys_order_as_tuples_do(a: tuple[Item, ...], b: tuple[Item, ...]) -> None:
    check_order(a, b)


@given(tuples, scalars, scalars)
def test_keys_order_as_the_last_items_do(start: tuple[Item, ...], a: Item, b: Item) -> None:
    check_order((*start, a), (*start, b))
    check_order((start, a), ((*start, a), b))


@given(tuples)
def test_a_key_is_unpacked_to_its_tuple(these: tuple[Item, ...]) -> None:
    unpacked = unpack(pack(these))
    assert order(unpacked) == order(these)
    assert pack(unpacked) == pack(these)


@given(tuples, tuples)
def test_tuples_are_concatenated_as_their_keys(a: tuple[Item, ...], b: tuple[Item, ...]) -> None:
    assert pack(a) + pack(b) == pack(a + b)


def check_only_spelling(key: bytes) -> None:
    try:
        unpacked = unpack(key)
    except ValueError:
        return
    assert pack(unpacked) == key


@given(st.binary(max_size=30) | st.lists(st.sampled_from(range(0x45)), max_size=20).map(bytes))
def test_other_bytes_are_refused_or_the_key_of_their_tuple(key: bytes) -> None:
    check_only_spelling(key)


@given(tuples, st.data())
def test_a_key_that_is_cut_off_or_changed_is_no_other_spelling(these: tuple[Item, ...], data: st.DataObject) -> None:
    key = bytearray(pack(these) + b"\x14")
    key[data.draw(st.integers(0, len(key) - 1))] = data.draw(st.integers(0, 255))
    check_only_spelling(bytes(key))
    check_only_spelling(bytes(key[:-2]))


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 254, 255, 256, 257, 4_000, 65_535])
def test_ints_order_at_the_ends_of_each_size(size: int, sign: int) -> None:
    first, last = 1 << 8 * (size - 1), (1 << 8 * size) - 1
    numbers = sorted({sign * (edge + more) for edge in (first, last) for more in (-1, 0, 1)})
    if size == 65_535:
        numbers = [number for number in numbers if abs(number) <= last]
    packed = [pack((number,)) for number in numbers]
    assert packed == sorted(packed)
    assert [unpack(key) for key in packed] == [(number,) for number in numbers]


def test_an_int_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="65,535"):
        pack((1 << 8 * 65_535,))


@given(tuples, tuples)
def test_a_subspace_has_the_keys_that_continue_its_prefix(prefix: tuple[Item, ...], these: tuple[Item, ...]) -> None:
    space = Subspace(*prefix)
    key = space.pack(these)
    assert key in space
    assert order(space.unpack(key)) == order(these)
    start, end = space.range()
    assert (start <= key < end) == bool(these)
    begins = order(these)[: len(prefix)] == order(prefix)
    assert (pack(these) in space) == begins
    assert (start <= pack(these) < end) == (begins and len(these) > len(prefix))


def test_a_subspace_has_no_key_that_continues_its_text() -> None:
    space = Subspace("user")
    other = pack(("user\0s", 1))
    assert other.startswith(space.key)
    assert other not in space
    assert not space.range()[0] <= other < space.range()[1]
    with pytest.raises(ValueError, match="not in Subspace"):
        space.unpack(other)
    for wrong in (None, "user", bytearray(space.key)):
        with pytest.raises(TypeError, match="what is unpacked must be bytes"):
            space.unpack(wrong)  # type: ignore[arg-type]


def test_subspaces_are_nested() -> None:
    space = Subspace("shop").subspace("order", 7)
    assert space == Subspace("shop", "order", 7)
    assert space in {space}
    assert repr(space) == "Subspace('shop', 'order', 7)"
    assert space.unpack(pack(("shop", "order", 7, "line", 1))) == ("line", 1)


class Color(enum.IntEnum):
    RED = 5


class Point(NamedTuple):
    x: int
    y: int


class Name(str):
    __slots__ = ()


def test_subclasses_are_packed_as_their_base() -> None:
    assert unpack(pack((Color.RED, Point(1, 2), Name("n")))) == (5, (1, 2), "n")
    assert pack(Point(1, 2)) == pack((1, 2))


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ((1j,), TypeError),
        (([1],), TypeError),
        ((bytearray(b"a"),), TypeError),
        ((dt.date(2000, 1, 1),), TypeError),
        (("\ud800",), ValueError),
        ((dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),), ValueError),
        ((dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(-dt.timedelta(hours=2))),), ValueError),
        ("text", TypeError),
        ([1], TypeError),
    ],
)
def test_other_items_are_refused(items: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pack(items)


def test_tuples_that_are_nested_too_deeply_are_refused() -> None:
    nested: Item = ()
    for _ in range(100_000):
        nested = (nested,)
    with pytest.raises(ValueError, match="nested"):
        pack((nested,))


@given(st.lists(st.binary(min_size=1, max_size=3), max_size=20, unique=True), st.binary(min_size=1, max_size=2))
def test_a_prefix_range_has_the_keys_that_begin_with_it(some: list[bytes], prefix: bytes) -> None:
    start, end = prefix_range(prefix)
    assert [key for key in some if key.startswith(prefix)] == [
        key for key in some if start <= key and (end is None or key < end)
    ]


def test_ranges_are_those_of_scans() -> None:
    with logdb.open(":memory:") as db:
        users = keys.Subspace("user")
        db.multi_put({users.pack((number,)): b"%d" % number for number in (-300, -2, 0, 5, 256)})
        db.put(keys.pack(("user\0", 1)), b"another")
        assert [users.unpack(key)[0] for key, _ in db.scan(*users.range())] == [-300, -2, 0, 5, 256]
        assert [value for _, value in db.scan(users.pack((-2,)), users.pack((256,)))] == [b"-2", b"0", b"5"]
        assert len(list(db.scan(*prefix_range(b"\x02user")))) == 6
