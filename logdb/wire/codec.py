"""Conversion between the cores' messages and their wire types: the only module that imports both.

The encoding follows from the types of a message's fields (`_Of`), by name: a field that is missing on one side is an
error when this module is loaded, and two fields cannot be confused. Towards the wire a message
becomes a dict, from which protobuf builds all of it in one call. The records of a message do not go through protobuf:
they are a batch of their own (`packing.py`).

Malformed bytes from the wire raise `WireError` before a core receives a message.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor

from logdb.cluster import messages as mapping
from logdb.log.contract import LogRecord, Record
from logdb.log.engine import Batch, all_engines
from logdb.log.paxos import messages as paxos
from logdb.wire.columns import COLUMNS
from logdb.wire.limits import MAX_MESSAGE_BYTES, TooLargeToSend, WireError
from logdb.wire.packing import flat, pack_numbered, pack_records, rows_of, unpack_numbered, unpack_records
from logdb.wire.schema import MESSAGE, Packet

Convert = Callable[[Any], Any]
Descriptor = Any
"""The descriptor of a message. Its class in protobuf's stubs is not that in its C code."""

_new = tuple.__new__


def wire_name(kind: type, prefix: str = "") -> str:
    """The name of a message's field in a `oneof`: the name of its class in snake case."""
    return prefix + re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class _Message:
    """The codec of one NamedTuple.

    `_encoders`: functions that convert fields for protobuf, by name. `_decoders`: the inverse, by position;
    `_optional`: fields that may be None, by position; `_positions`: integers that must not be negative.
    """

    def __init__(self, kind: Any, descriptor: Descriptor) -> None:
        self.kind = kind
        hints = {name: hint for name, hint in get_type_hints(kind).items() if hint not in _BATCHES}
        if set(hints) != set(descriptor.fields_by_name):
            raise TypeError(f"{kind.__name__} has the fields {sorted(hints)}, on the wire there are others")
        self._names = tuple(hints)
        self._get: Convert = attrgetter(*self._names) if hints else lambda _: ()
        self._encoders: list[tuple[str, Convert]] = []
        self._decoders: list[tuple[int, Convert]] = []
        self._optional: list[tuple[int, str]] = []
        self._positions: list[int] = []
        for at, (name, hint) in enumerate(hints.items()):
            field = descriptor.fields_by_name[name]
            if get_origin(hint) is UnionType and NoneType in get_args(hint):
                (hint,) = (option for option in get_args(hint) if option is not NoneType)
                self._optional.append((at, name))
            if hint is int and field.type == FieldDescriptor.TYPE_INT64:
                self._positions.append(at)
            encode, decode = _of(hint, field)
            if (kind, name) in _FIELDS:
                encode, decode = _around(*_FIELDS[kind, name], encode, decode)
            if encode is not None:
                self._encoders.append((name, encode))
            if decode is not None:
                self._decoders.append((at, decode))

    def encode(self, message: Any) -> dict[str, Any]:
        """The arguments of the wire type, which treats None as a missing argument. Raises WireError."""
        fields = dict(zip(self._names, message, strict=False))
        if None in fields.values():
            self._check_absent(fields)
        for name, encode in self._encoders:
            value = fields[name]
            if value is not None:
                fields[name] = encode(value)
        return fields

    def _check_absent(self, fields: dict[str, Any]) -> None:
        absent = {name for name, value in fields.items() if value is None}
        if wrong := absent - {name for _, name in self._optional}:
            raise WireError(f"{self.kind.__name__} without {', '.join(sorted(wrong))}")

    def decode(self, wire: Any) -> Any:
        """The message, without its batch. Raises WireError."""
        values: list[Any] = [self._get(wire)] if len(self._names) == 1 else list(self._get(wire))
        absent = [at for at, name in self._optional if not wire.HasField(name)]
        for at in self._positions:
            if values[at] < 0:
                raise WireError(f"{self.kind.__name__} with {self._names[at]} {values[at]}")
        for at in absent:
            values[at] = None
        for at, decode in self._decoders:
            value = values[at]
            if value is not None:
                values[at] = decode(value)
        return _new(self.kind, values)


class _OneOf:
    """The codec of a union of NamedTuples."""

    def __init__(self, kinds: Sequence[type], descriptor: Descriptor) -> None:
        self._names = {kind: wire_name(kind) for kind in kinds}
        self._what = descriptor.name
        fields = descriptor.fields_by_name
        if set(self._names.values()) != set(fields):
            raise TypeError(f"the kinds of {descriptor.name} are {kinds}, on the wire there are others")
        self._codecs = {name: _codec(kind, fields[name].message_type) for kind, name in self._names.items()}

    def encode(self, message: Any) -> dict[str, Any]:
        """The arguments of the wire type."""
        name = self._names[type(message)]
        return {name: self._codecs[name].encode(message)}

    def decode(self, wire: Any) -> Any:
        """The message. Raises WireError."""
        name = wire.WhichOneof("kind")
        if name is None:
            raise WireError(f"a {self._what} of an unknown kind")
        return self._codecs[name].decode(getattr(wire, name))


def _codec(kind: Any, descriptor: Descriptor) -> _Message:
    if descriptor not in _known:
        _known[descriptor] = _Message(kind, descriptor)
    found = _known[descriptor]
    assert found.kind is kind, f"{descriptor.full_name} is the wire type of {found.kind} and of {kind}"
    return found


def _of(hint: Any, field: Any) -> tuple[Convert | None, Convert | None]:
    """(encoder, decoder) for a field of this type; None: the value stays the same."""
    if hint in (int, bool, str, bytes):
        return None, None
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint, field)
    if hint in COLUMNS:
        return COLUMNS[hint]
    if hint == frozenset[int]:
        return lambda tags: bytes(sorted(tags)), _tags
    if get_origin(hint) is UnionType:
        union = _OneOf(get_args(hint), field.message_type)
        return union.encode, union.decode
    if hint == paxos.Entry:
        return _entry(field)
    if isinstance(hint, type) and issubclass(hint, tuple) and field.message_type is not None:
        codec = _codec(hint, field.message_type)
        return codec.encode, codec.decode
    return _sequence(get_args(hint)[0], field)


def _sequence(item: Any, field: Any) -> tuple[Convert | None, Convert | None]:
    assert field.is_repeated, field.full_name
    if field.message_type is not None:
        encode, decode = _of(item, field)
        assert encode is not None, field.full_name
        assert decode is not None, field.full_name
        return lambda items: [encode(item) for item in items], lambda wires: tuple([decode(wire) for wire in wires])
    if item is int:
        one = rows_of(1, first_is_id=False)
        return None, lambda numbers: tuple([number for (number,) in one(numbers)])
    if item in (bytes, str):
        return None, tuple
    fields = get_args(item) or tuple(get_type_hints(item).values())
    assert len(set(fields)) == 1, field.full_name
    if fields[0] in (str, bytes):
        return flat, _rows_of_strings(len(fields))
    make = None if get_origin(item) is tuple else item._make
    return flat, rows_of(len(fields), field.type == FieldDescriptor.TYPE_UINT64, make)


def _enum(kind: type[Enum], field: Any) -> tuple[Convert, Convert]:
    """(encoder, decoder) of an enum. Members are matched by name; only the schema has their numbers."""
    values = field.enum_type.values_by_name
    if set(values) != {"UNSPECIFIED", *kind.__members__}:
        raise TypeError(f"{kind.__name__} has the members {list(kind.__members__)}, on the wire there are others")
    number_of = {member: values[member.name].number for member in kind}
    member_of = {number: member for member, number in number_of.items()}

    def decode(number: int) -> Enum:
        member = member_of.get(number)
        if member is None:
            raise WireError(f"{number} is not a {kind.__name__}")
        return member

    return number_of.__getitem__, decode


def _tags(wire: bytes) -> frozenset[int]:
    if 0 in wire:
        raise WireError("0 is not a tag")
    return frozenset(wire)


def _entry(field: Any) -> tuple[Convert, Convert]:
    ballots = _codec(paxos.Ballot, field.message_type.fields_by_name["ballot"].message_type)

    def encode(entry: paxos.Entry) -> dict[str, Any]:
        return {"ballot": ballots.encode(entry[0]), "value": entry[1]}

    return encode, lambda wire: (ballots.decode(wire.ballot), wire.value)


def _rows_of_strings(width: int) -> Convert:
    def rows(strings: Any) -> tuple[tuple[str, ...], ...]:
        if len(strings) % width:
            raise WireError(f"{len(strings)} strings where each row has {width}")
        return tuple(zip(*[iter(strings)] * width, strict=True))

    return rows


def _around(before: Convert, after: Convert, encode: Convert | None, decode: Convert | None) -> tuple[Convert, Convert]:
    """(encoder, decoder) of a field that the engine converts with `before` and `after`."""

    def encoded(value: Any) -> Any:
        assert encode is not None
        return encode(before(value))

    def decoded(wire: Any) -> Any:
        value = wire if decode is None else decode(wire)
        try:
            return after(value)
        except ValueError as error:
            raise WireError(str(error)) from error

    return before if encode is None else encoded, decoded


_BATCHES: Final = (Sequence[Record], Sequence[LogRecord])
_FIELDS: Final = {
    where: converts for engine in all_engines() for where, converts in engine.wire.field_converters.items()
}
_known: Final[dict[Descriptor, _Message]] = {}


def _packing(batch: Batch, header_bytes: int) -> tuple[Convert, Convert]:
    if batch is Batch.RECORDS:
        return pack_records, unpack_records
    if batch is Batch.STORED:
        return pack_records, partial(unpack_records, min_bytes=header_bytes)
    return pack_numbered, partial(unpack_numbered, min_bytes=header_bytes)


WITH_RECORDS: Final[dict[type, tuple[Convert, Convert]]] = {
    kind: _packing(batch, engine.wire.header_bytes)
    for engine in all_engines()
    for kind, batch in engine.wire.batches.items()
}
"""Messages that are sent with a batch of records: the functions that pack and unpack it."""


def _codecs() -> Iterator[tuple[type, str, _Message]]:
    fields = MESSAGE.fields_by_name
    engines = [(engine.wire.messages, engine.wire.prefix) for engine in all_engines()]
    for module, prefix in (*engines, (paxos, "paxos_"), (mapping, "mapping_")):
        for kind in vars(module).values():
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            field = fields.get(wire_name(kind, prefix))
            if field is not None:
                yield kind, field.name, _codec(kind, field.message_type)


KINDS: Final = {kind: (name, codec.encode, WITH_RECORDS.get(kind)) for kind, name, codec in _codecs()}
"""Every message that may be sent: its field on the wire, its encoder, and the functions for its records."""

_BY_NAME: Final = {name: (codec.decode, WITH_RECORDS.get(kind)) for kind, name, codec in _codecs()}

assert set(_BY_NAME) == set(MESSAGE.fields_by_name), "a wire type without a message class"


def encode(message: Any) -> bytes:
    """A packet with this message only, without addresses. Raises WireError; TooLargeToSend if a split may help."""
    try:
        name, to_wire, records = KINDS[type(message)]
        fields = [{name: to_wire(message)}]
        if records is None:
            batch, wire = b"", Packet(messages=fields).SerializeToString()
        else:
            batch = records[0](message.records)
            wire = Packet(messages=fields, batches=[batch]).SerializeToString()
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, struct.error) as error:
        raise WireError(f"{type(message).__name__} cannot be sent: {error}") from error
    if len(wire) - len(batch) > MAX_MESSAGE_BYTES:
        raise TooLargeToSend(f"a {name}", len(wire) - len(batch), MAX_MESSAGE_BYTES)
    return wire


def decode(packet: Packet) -> list[Any]:
    """The messages of a packet, with their records. Raises WireError."""
    batches = iter(packet.batches)
    messages = []
    for wire in packet.messages:
        name = wire.WhichOneof("kind")
        if name is None:
            raise WireError("a message of an unknown kind")
        from_wire, records = _BY_NAME[name]
        message = from_wire(getattr(wire, name))
        if records is not None:
            batch = next(batches, None)
            if batch is None:
                raise WireError(f"{name} without its batch of records")
            message = _new(type(message), (*message, records[1](batch)))
        messages.append(message)
    if next(batches, None) is not None:
        raise WireError("a batch of records without its message")
    return messages
