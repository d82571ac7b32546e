"""Messages of every kind, made from the types of their fields and from the schema: one fixed sample of each, random
ones for Hypothesis, and the check that a value has its type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import count
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from logdb.cluster import messages as mapping
from logdb.log.contract import LogRecord, Record
from logdb.log.engine import Batch, all_engines
from logdb.log.paxos import messages as paxos
from logdb.log.requests import END
from logdb.store.limits import MAX_VALUE_BYTES
from logdb.store.records import Place, Value
from logdb.wire.codec import KINDS, wire_name
from logdb.wire.envelopes import Envelope, pack, unpack
from logdb.wire.schema import MESSAGE

STORED = {
    kind: engine.wire.header_bytes
    for engine in all_engines()
    for kind, batch in engine.wire.batches.items()
    if batch is not Batch.RECORDS
}
"""Messages with stored records: the bytes before each payload."""
CONVERTERS = {field: sent for engine in all_engines() for field, (sent, _) in engine.wire.field_converters.items()}
"""The conversion of a field, (kind, name), before it is sent. It raises ValueError for a value that is not allowed."""


def parts_of(hint: Any) -> Iterator[Any]:
    """The NamedTuples that a type is made of."""
    for part in get_args(hint) or (hint,):
        if part is not hint:
            yield from parts_of(part)
        elif hasattr(part, "_fields"):
            yield part


def message_types() -> list[type]:
    """Every NamedTuple in the modules of messages that is not a part of another one."""
    tuples = [
        kind
        for module in (*(engine.wire.messages for engine in all_engines()), paxos, mapping)
        for kind in vars(module).values()
        if isinstance(kind, type) and hasattr(kind, "_fields") and kind.__module__ == module.__name__
    ]
    parts = {part for kind in tuples for hint in get_type_hints(kind).values() for part in parts_of(hint)}
    return [kind for kind in tuples if kind not in parts]


def _schemas() -> dict[type, Any]:
    """The protobuf descriptor of each message and of each of its parts."""
    found: dict[type, Any] = {}

    def walk(kind: Any, descriptor: Any) -> None:
        if kind in found:
            return
        found[kind] = descriptor
        for name, hint in get_type_hints(kind).items():
            field = descriptor.fields_by_name.get(name)
            parts = list(parts_of(hint)) if field is not None and field.message_type is not None else []
            for part in parts:
                option = field.message_type.fields_by_name.get(wire_name(part)) if len(parts) > 1 else field
                if option is not None:
                    walk(part, option.message_type)

    for kind, (name, *_) in KINDS.items():
        walk(kind, MESSAGE.fields_by_name[name].message_type)
    return found


SCHEMAS = _schemas()


def is_id(kind: type, name: str) -> bool:
    """Whether a field holds a random number of 64 bits, in a table its first column; other integers are positions."""
    field = SCHEMAS[kind].fields_by_name.get(name) if kind in SCHEMAS else None
    return field is not None and bool(field.type == FieldDescriptor.TYPE_UINT64)


# ---- one fixed sample


def options_of(hint: Any) -> list[Any]:
    """The options of a union type, without a None that means absence."""
    return list(get_args(Value)) if hint == Value else [it for it in get_args(hint) if it is not NoneType]


def variants(hint: Any) -> int:
    """The number of samples that show each option of each union once."""
    own = len(options_of(hint)) if get_origin(hint) is UnionType else 1
    if hasattr(hint, "_fields"):
        return max([1, *map(variants, get_type_hints(hint).values())])
    return max([own, *map(variants, get_args(hint))])


def sample(kind: Any, variant: int = 0) -> Any:
    """A message whose fields are all different and none of them is the default. Lists have two items."""
    return _Sampler(variant).make(kind, kind, "")


class _Sampler:
    def __init__(self, variant: int) -> None:
        self.variant, self.numbers = variant, count(1000)

    def make(self, hint: Any, kind: Any, name: str) -> Any:
        options = get_args(hint)
        if hint is int:
            return next(self.numbers) + (1 << 63 if is_id(kind, name) else 0)
        if hint is bool:
            return True
        if hint is NoneType:
            return None
        if hint is str:
            return f"node-{next(self.numbers)}:7400"
        if hint is bytes:
            payload = f"stored payload {next(self.numbers)}".encode()
            return payload[-16:] if kind is Place else payload
        if isinstance(hint, type) and issubclass(hint, Enum):
            return list(hint)[-1]
        if get_origin(hint) is UnionType:
            choices = options_of(hint)
            return self.make(choices[self.variant % len(choices)], kind, name)
        if hint == frozenset[int]:
            return frozenset({3, 255})
        if hint == Sequence[Record]:
            payloads = [self.make(bytes, kind, name).ljust(STORED.get(kind, 0), b".") for _ in (1, 2)]
            return ((7, payloads[0]), (8, payloads[1]))
        if hint == Sequence[LogRecord]:
            numbers = self.numbers
            stored = [f"stored payload {n}".encode().ljust(STORED.get(kind, 0), b".") for n in (1, 2)]
            records = [(next(numbers), next(numbers), 7 + n, payload) for n, payload in enumerate(stored, 1)]
            return tuple([LogRecord(*record) for record in records])
        if hasattr(hint, "_fields"):
            return hint(*(self.make(field, hint, at) for at, field in get_type_hints(hint).items()))
        if len(options) == 1 or options[-1] is Ellipsis:
            return tuple(self.make(options[0], kind, name) for _ in range(2))
        return tuple(self.make(option, kind, "") for option in options)


# ---- random ones

positions = st.integers(0, END) | st.integers(0, 100)
ids = st.integers(0, (1 << 64) - 1)
tags = st.integers(1, 255)


def messages(kind: Any) -> st.SearchStrategy[Any]:
    """Any message of a kind."""
    fields = []
    for name, hint in get_type_hints(kind).items():
        field = _field(hint, kind, name)
        fields.append(field.filter(lambda value, name=name: _may_be_sent(kind, name, value)))
    return st.builds(kind, *fields)


def _may_be_sent(kind: Any, name: str, value: Any) -> bool:
    try:
        CONVERTERS.get((kind, name), lambda value: value)(value)
    except ValueError:
        return False
    return True


def _field(hint: Any, kind: Any, name: str) -> st.SearchStrategy[Any]:
    options = get_args(hint)
    if hint is int:
        return ids if is_id(kind, name) else positions
    if hint in (bool, str, NoneType) or (isinstance(hint, type) and issubclass(hint, Enum)):
        return st.from_type(hint)
    if hint is bytes:
        return st.binary(max_size=40)
    payloads = st.binary(min_size=STORED.get(kind, 0), max_size=60)
    if hint == Sequence[Record]:
        return st.lists(st.tuples(tags, payloads), max_size=5).map(tuple)
    if hint == Sequence[LogRecord]:
        return st.lists(st.builds(LogRecord, positions, positions, tags, payloads), max_size=5).map(tuple)
    if hint == frozenset[int]:
        return st.frozensets(tags, max_size=5)
    if hint is Place:
        shards = st.integers(0, (1 << 32) - 1)
        lengths = st.integers(0, MAX_VALUE_BYTES + 1)
        return st.builds(Place, positions, shards, lengths, st.binary(min_size=16, max_size=16))
    if get_origin(hint) is UnionType:
        return st.one_of(*(_field(option, kind, name) for option in options))
    if hasattr(hint, "_fields"):
        return messages(hint)
    if len(options) == 1 or options[-1] is Ellipsis:
        return st.lists(_field(options[0], kind, name), max_size=4).map(tuple)
    is_converted = (kind, name) in CONVERTERS
    columns = [_small if is_converted and option is int else _field(option, kind, "") for option in options]
    if is_id(kind, name):
        columns[0] = ids
    return st.tuples(*columns)


_small = st.integers(0, END - 1)
"""Positions that a converter may raise by one."""

any_message = st.one_of(*(messages(kind) for kind in message_types()))


# ---- what has come


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value conforms to its type, with all numbers in their bounds."""
    options = get_args(hint)
    if hint is int:
        return type(value) is int and -1 <= value < 1 << 64
    if get_origin(hint) is UnionType:
        return any(conforms(value, option) for option in options)
    if hint == frozenset[int]:
        return type(value) is frozenset and all(0 < tag < 256 for tag in value)
    if hint == Record:
        return type(value) is tuple and len(value) == 2 and 0 < value[0] < 256 and type(value[1]) is bytes
    if hasattr(hint, "_fields"):
        hints = get_type_hints(hint).values()
        return type(value) is hint and len(value) == len(hints) and all(map(conforms, value, hints))
    if not options:
        return type(value) is hint
    if len(options) == 1 or options[-1] is Ellipsis:
        return type(value) is tuple and all(conforms(item, options[0]) for item in value)
    return type(value) is tuple and len(value) == len(options) and all(map(conforms, value, options))


# ---- packed and unpacked


def arrivals(packets: list[bytes]) -> list[Any]:
    """The messages of all packets."""
    found = []
    for packet in packets:
        mail = unpack(packet)
        assert isinstance(mail, Envelope)
        assert mail[:2] == ("one:1", "two:2")
        found += mail.messages
    return found


def sent(message: Any) -> Any:
    """A message that was packed and unpacked."""
    (arrived,) = arrivals(pack("one:1", "two:2", [message]))
    return arrived


def tight(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Set the limits of a message and of its records to `limit` bytes."""
    monkeypatch.setattr("logdb.wire.packing.MAX_BATCH_BYTES", limit)
    monkeypatch.setattr("logdb.wire.codec.MAX_MESSAGE_BYTES", limit)
