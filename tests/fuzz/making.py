"""Random messages: of every kind and plausible, so that they get far; then some with their bytes changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from logdb.cluster.placement import ByPrefix, encode_placement
from logdb.log.contract import LogRecord, Record
from logdb.store.records import (
    COMMIT,
    PIN,
    PLACEMENT,
    VALUE,
    Commit,
    Condition,
    Fold,
    Place,
    encode_commit,
    encode_pin,
)
from logdb.wire.database_codec import LARGE_BYTES, PART_BYTES
from logdb.wire.proto import database_pb2 as pb
from tests.harness.forged import FORGED
from tests.harness.samples import STORED, is_id

NUMBERS = [0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 10, 20, 21, 40, 100, 1_000, 4_096, 1 << 31, 1 << 32, (1 << 63) - 1]
"""Small ones are servers, shards, segments, epochs and GSNs of a young cluster."""
IDS = [0, 1, 2, 77, 1 << 63, (1 << 64) - 1]
SHARDS = [0, 1, 1, 1, 2, 77, (1 << 32) - 1]
BYTES = [b"", b"\0", b"k1", b"k2", b"\xff" * 16, b"\xff" * 8192, b"\xff" * 8193, bytes(100_000)]


class Maker:
    """`texts`: addresses that occur."""

    def __init__(self, rng: random.Random, texts: Sequence[str]) -> None:
        self.rng, self.texts = rng, [*texts, "", "nowhere:1", "client-1"]

    def number(self) -> int:
        rng = self.rng
        return rng.choice(NUMBERS) if rng.random() < 0.9 else rng.getrandbits(rng.randrange(1, 64))

    def record(self) -> Record:
        rng = self.rng
        kind = rng.randrange(8)
        if kind < 4:
            return COMMIT, encode_commit(self.commit())
        if kind == 4:
            return PIN, encode_pin("p", self.wide())
        if kind == 5:
            return PLACEMENT, rng.choice([encode_placement(ByPrefix({b"k": rng.choice(SHARDS)})), b"p"]) or b""
        if kind == 6:
            return rng.choice([*FORGED.values()])
        return rng.choice([VALUE, COMMIT, PIN, 1, 4, 7, 255]), rng.choice(BYTES)

    def commit(self) -> Commit:
        """A transaction with any of what a commit record has."""
        rng = self.rng
        key, other = rng.choice([(b"k1", b"k2"), (b"k2", b"k1")])
        condition = Condition(rng.choice([1, 2, 3, 99]), key, rng.choice([None, b"v", self.place()]))
        on_version = Condition(rng.choice([16, 17, 18, 99]), key, self.wide())
        return Commit(
            rng.choice(IDS),
            self.wide(),
            rng.choice([{}, {key: None}, {key: b"v"}, {key: self.place()}, {key: self.place(), b"k3": self.place()}]),
            self.wide(),
            rng.choice(["", "label", "x" * 2_000]),
            rng.choice([(), (other,), (b"",)]),
            rng.choice([(), ((b"k", None),), ((b"k", bytes(9_000)),)]),
            rng.choice([(), (), (condition,), (on_version,)]),
            rng.choice([(), (), ((b"k", b"l"),)]),
            folds=rng.choice([(), (), (Fold(rng.randrange(1, 4), other, self.wide()),)]),
        )

    def place(self) -> Place:
        """Of a large value, mostly of one that is nowhere."""
        rng = self.rng
        return Place(rng.choice([1, 2, 20, self.wide()]), rng.choice(SHARDS), self.wide(), bytes(16))

    def wide(self) -> int:
        """A number for a field of a record, which has 64 bits without a sign."""
        return self.rng.choice([*IDS, self.number(), self.number(), self.number()])

    def message(self, kind: Any) -> Any:
        """Of a kind of the cluster's."""
        return self.make(kind, kind, "")

    def make(self, hint: Any, kind: Any, name: str) -> Any:
        rng, options = self.rng, get_args(hint)
        if hint is int:
            return rng.choice(IDS) if is_id(kind, name) and rng.random() < 0.7 else self.number()
        if hint is bool:
            return rng.random() < 0.5
        if hint is NoneType:
            return None
        if hint is str:
            return rng.choice(self.texts)
        if hint is bytes:
            return rng.choice(BYTES) if kind.__name__ != "Place" else bytes(16)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return rng.choice(list(hint))
        if get_origin(hint) is UnionType:
            return self.make(rng.choice(options), kind, name)
        if hint == frozenset[int]:
            return frozenset(rng.sample(range(1, 256), rng.randrange(3)))
        if hint == Sequence[Record]:
            head = bytes(STORED.get(kind, 0))
            return tuple((tag, head + payload) for tag, payload in (self.record() for _ in range(rng.randrange(4))))
        if hint == Sequence[LogRecord]:
            records = [self.record() for _ in range(rng.randrange(3))]
            head = bytes(STORED[kind])
            return tuple(LogRecord(self.number(), self.number(), tag, head + data) for tag, data in records)
        if hasattr(hint, "_fields"):
            return hint(*(self.make(field, hint, at) for at, field in get_type_hints(hint).items()))
        if len(options) == 1 or options[-1] is Ellipsis:
            return tuple(self.make(options[0], kind, name) for _ in range(rng.randrange(4)))
        return tuple(self.make(option, kind, "" if at else name) for at, option in enumerate(options))

    # ---- requests to one server

    def fill(self, message: Any) -> Any:
        """Random fields of a message of protobuf, of any depth."""
        rng = self.rng
        for field in message.DESCRIPTOR.fields:
            if rng.random() < 0.5:
                continue
            if field.is_repeated and field.message_type is not None:
                for _ in range(rng.randrange(3)):
                    self.fill(getattr(message, field.name).add())
            elif field.is_repeated:
                getattr(message, field.name).extend(self._scalar(field) for _ in range(rng.randrange(4)))
            elif field.message_type is not None:
                getattr(message, field.name).SetInParent()
                self.fill(getattr(message, field.name))
            else:
                setattr(message, field.name, self._scalar(field))
        return message

    def _scalar(self, field: Any) -> Any:
        rng = self.rng
        if field.type == field.TYPE_BYTES:
            return rng.choice(BYTES)
        if field.name == "verb":
            return rng.choice(["write", "write", "commit", "get", "watch", "upload", "a"])
        if field.type == field.TYPE_STRING:
            return rng.choice(["", "a", "ä" * 300, "x" * 5_000])
        if field.type == field.TYPE_BOOL:
            return rng.random() < 0.5
        if field.type == field.TYPE_UINT32:
            return rng.choice([0, 1, 2, 3, 7, (1 << 32) - 1])
        if field.containing_type is pb.Upload.DESCRIPTOR:
            return rng.choice([0, 1, 4, 100_000, PART_BYTES + 1, LARGE_BYTES])
        if field.name == "wait_ms":
            return rng.choice([0, 1, (1 << 64) - 1])
        return rng.choice([*NUMBERS, 1 << 63, (1 << 64) - 1])

    def request(self) -> pb.Request:
        """One of any verb, but for what takes long by its nature."""
        rng = self.rng
        verbs = [field.name for field in pb.Request.DESCRIPTOR.oneofs_by_name["verb"].fields]
        verb = rng.choice([verb for verb in verbs if verb not in ("compact", "checkpoint") or rng.random() < 0.02])
        request = pb.Request(id=rng.choice([0, 1, 2, 1 << 63, rng.getrandbits(32)]))
        getattr(request, verb).SetInParent()
        self.fill(getattr(request, verb))
        if verb == "upload" and rng.random() < 0.7:  # one that is taken
            length, number = rng.choice([(LARGE_BYTES, 1), (PART_BYTES + 1, 0)])
            upload = pb.Upload(number=number, length=length, data=bytes(rng.choice([1, PART_BYTES])), verb="write")
            request.upload.CopyFrom(upload)
        return request

    # ---- bytes

    def changed(self, data: bytes) -> bytes:
        """With some bytes changed, dropped, repeated or added."""
        rng, changed = self.rng, bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(changed) + 1)
            kind = rng.randrange(5)
            if kind == 0 and changed:
                changed[at % len(changed)] = rng.randrange(256)
            elif kind == 1:
                del changed[at : at + rng.randrange(1, 9)]
            elif kind == 2:
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
            elif kind == 3:
                changed[at:at] = changed[at : at + rng.randrange(1, 60)]
            else:
                del changed[at:]
        return bytes(changed)
