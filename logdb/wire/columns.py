"""Lists of keys, versions and values as columns, so that protobuf builds a few lists and not a message for each row
(format: `proto/mapping.proto`). Every decoder raises WireError for columns that do not fit each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Final

from logdb.cluster.messages import MapRow
from logdb.store.records import PLACE, Place, Value
from logdb.wire.limits import MAX_POSITION, WireError
from logdb.wire.packing import flat

_BARE, _DELETED, _PLACED = range(3)
_KINDS: Final[dict[type, int]] = {bytes: _BARE, NoneType: _DELETED, Place: _PLACED}


def _columns(values: Sequence[Value]) -> dict[str, Any]:
    kinds = bytes([_KINDS[type(value)] for value in values])
    if not any(kinds):
        return {"values": values}
    return {"values": [_item(value) for value in values], "kinds": kinds}


def _item(value: Value) -> bytes:
    if value is None:
        return b""
    return PLACE.pack(*value) if type(value) is Place else value  # type: ignore[return-value]


def _values(wire: Any, count: int) -> Sequence[Value]:
    items, kinds = wire.values, wire.kinds
    if len(items) != count or len(kinds) not in (0, count):
        raise WireError(f"{len(items)} values of {len(kinds)} kinds where there are {count}")
    return list(map(_value, items, kinds)) if kinds else items


def _value(item: bytes, kind: int) -> Value:
    if kind == _BARE:
        return item
    if kind == _DELETED and not item:
        return None
    if kind != _PLACED or len(item) != PLACE.size:
        raise WireError(f"a value of {len(item)} bytes and of kind {kind}")
    place = Place.unpack(item)
    if place.gsn > MAX_POSITION:
        raise WireError(f"a value at {place}, which is not a place")
    return place


def _check(numbers: Any) -> None:
    if numbers and min(numbers) < 0:
        raise WireError("an invalid position")


def _encode_versions(rows: Sequence[tuple[int, Value]]) -> dict[str, Any]:
    return {"versions": [version for version, _ in rows], **_columns([value for _, value in rows])}


def _decode_versions(wire: Any) -> tuple[tuple[int, Value], ...]:
    _check(wire.versions)
    return tuple(zip(wire.versions, _values(wire, len(wire.versions)), strict=True))


def _encode_rows(rows: Sequence[tuple[bytes, Value]]) -> dict[str, Any]:
    return {"keys": [key for key, _ in rows], **_columns([value for _, value in rows])}


def _decode_rows(wire: Any) -> tuple[tuple[bytes, Value], ...]:
    return tuple(zip(wire.keys, _values(wire, len(wire.keys)), strict=True))


def _encode_copies(rows: Sequence[MapRow]) -> dict[str, Any]:
    numbers = flat([(version, copy) for _, version, _, copy in rows])
    return {"keys": [row.key for row in rows], "numbers": numbers, **_columns([row.value for row in rows])}


def _decode_copies(wire: Any) -> tuple[MapRow, ...]:
    keys, numbers = wire.keys, list(wire.numbers)
    _check(numbers)
    if len(numbers) != 2 * len(keys):
        raise WireError(f"{len(numbers)} numbers for {len(keys)} keys")
    return tuple(map(MapRow, keys, numbers[::2], _values(wire, len(keys)), numbers[1::2]))


COLUMNS: Final[dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    tuple[tuple[int, Value], ...]: (_encode_versions, _decode_versions),
    tuple[tuple[bytes, Value], ...]: (_encode_rows, _decode_rows),
    tuple[MapRow, ...]: (_encode_copies, _decode_copies),
}
"""(encoder, decoder) for fields of these types."""
