"""Which shard an object lives on (vScalog, dissertation section 3.4.3): a policy of the log client.

An object is a key, or all keys with a prefix that the application names. Its records are appended to its shard, or to
another one if that takes no appends any more; existing records stay. A client states its placement in the log
(PLACEMENT), so that no compaction moves a record of an object to another shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from struct import Struct, error
from typing import Final

from logdb.log.contract import Record
from logdb.log.policies import ANYWHERE, Anywhere, Policy, RecordIndexes
from logdb.store.records import MalformedRecord

_FORMAT: Final = 1
_PLACEMENT: Final = Struct("<BBI")  # format, whether by prefix, entries
_PREFIX: Final = Struct("<IH")  # shard, bytes of the prefix, which follows
_SHARD: Final = Struct("<I")
TOGETHER_BYTES: Final = 16 << 20
MAX_BYTES: Final = 64 << 10
"""Maximum size of a placement stated in the log: every server keeps it."""

Placement = Callable[[bytes], int | None]
"""The shard of the object that a key belongs to; None: any."""


class PlacedRecord(tuple[int, bytes]):
    """A record to be appended to `shard` (None: any)."""

    shard: int | None = None


def placed(tag: int, payload: bytes, shard: int | None) -> Record:
    """A record for that shard."""
    if shard is None:
        return tag, payload
    record = PlacedRecord((tag, payload))
    record.shard = shard
    return record


class StickySegmentPolicy:
    """Picks the same segment while appends are under way: one segment keeps their order. An append without others under
    way, or after `TOGETHER_BYTES`, draws another one, so that all segments share the load."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._draw = self._bytes = self.under_way = 0

    def split(self, records: Sequence[Record]) -> Iterable[tuple[int | None, RecordIndexes]]:
        self._bytes += sum([len(payload) for _, payload in records])
        return ANYWHERE.split(records)

    def pick(self, segments: Sequence[int], round_trip: Callable[[int], int], rng: Random) -> int:
        return segments[self._draw % len(segments)]

    def appending(self) -> None:
        """Prepare for an append whose order matters."""
        if not self.under_way or self._bytes >= TOGETHER_BYTES:
            self._draw, self._bytes = self._rng.getrandbits(32), 0
        self.under_way += 1

    def appended(self) -> None:
        """Such an append has ended."""
        self.under_way -= 1


@dataclass(frozen=True, slots=True)
class ByObject(Anywhere):
    """Appends placed records to their shards, and all others by another policy."""

    otherwise: Policy | StickySegmentPolicy = ANYWHERE

    def split(self, records: Sequence[Record]) -> Iterable[tuple[int | None, RecordIndexes]]:
        by_shard: dict[int | None, list[int]] = {}
        for index, record in enumerate(records):
            by_shard.setdefault(record.shard if type(record) is PlacedRecord else None, []).append(index)
        if list(by_shard) == [None]:
            return self.otherwise.split(records)
        return by_shard.items()

    def pick(self, segments: Sequence[int], round_trip: Callable[[int], int], rng: Random) -> int:
        return self.otherwise.pick(segments, round_trip, rng)


@dataclass(frozen=True, slots=True)
class ByPrefix:
    """A placement: each key on the shard of the longest of these prefixes that it begins with; other keys on any shard.

    `shards`: prefix -> number of a shard. For `logdb.connect` (vScalog, dissertation 3.4.3).
    """

    shards: Mapping[bytes, int]

    def __call__(self, key: bytes) -> int | None:
        found = [prefix for prefix in self.shards if key.startswith(prefix)]
        return self.shards[max(found, key=len)] if found else None


@dataclass(frozen=True, slots=True)
class ByHash:
    """A placement: keys spread by their hash over the shards with these numbers, `shards`. For `logdb.connect`."""

    shards: tuple[int, ...]

    def __call__(self, key: bytes) -> int | None:
        return self.shards[int.from_bytes(blake2b(key, digest_size=8).digest()) % len(self.shards)]


def named(placement: Placement) -> list[int]:
    """The shards that a stated placement names, in order."""
    shards: Iterable[int] = ()
    if isinstance(placement, ByPrefix):
        shards = placement.shards.values()
    elif isinstance(placement, ByHash):
        shards = placement.shards
    return sorted(set(shards))


def encode_placement(placement: Placement | None) -> bytes | None:
    """The payload of a PLACEMENT record; None for no placement, a function, or one that is too long."""
    payload = _encoded(placement)
    return None if payload is None or len(payload) > MAX_BYTES else payload


def _encoded(placement: Placement | None) -> bytes | None:
    if isinstance(placement, ByPrefix):
        entries = [_PREFIX.pack(shard, len(prefix)) + prefix for prefix, shard in sorted(placement.shards.items())]
        return _PLACEMENT.pack(_FORMAT, True, len(entries)) + b"".join(entries)
    if isinstance(placement, ByHash):
        return _PLACEMENT.pack(_FORMAT, False, len(placement.shards)) + b"".join(map(_SHARD.pack, placement.shards))
    return None


def decode_placement(payload: bytes) -> Placement:
    """The inverse. Raises MalformedRecord."""
    with suppress(error):
        form, is_by_prefix, count = _PLACEMENT.unpack_from(payload)
        at, shards, prefixes = _PLACEMENT.size, list[int](), dict[bytes, int]()
        for _ in range(count):
            if is_by_prefix:
                shard, length = _PREFIX.unpack_from(payload, at)
                at += _PREFIX.size + length
                prefixes[payload[at - length : at]] = shard
            else:
                shards += _SHARD.unpack_from(payload, at)
                at += _SHARD.size
        if form == _FORMAT and at == len(payload) and is_by_prefix in (0, 1) and (is_by_prefix or shards):
            return ByPrefix(prefixes) if is_by_prefix else ByHash(tuple(shards))
    raise MalformedRecord(f"a placement of {len(payload)} bytes: {payload[:16]!r}")


def joined(stated: bytes, payload: bytes) -> bytes:
    """The placement after `payload` is stated on top of `stated` (b"": none): prefixes are added to earlier ones within
    `MAX_BYTES`, any other placement replaces the earlier one. Raises MalformedRecord."""
    before, placement = decode_placement(stated) if stated else None, decode_placement(payload)
    if isinstance(before, ByPrefix) and isinstance(placement, ByPrefix):
        return encode_placement(ByPrefix({**before.shards, **placement.shards})) or payload
    return payload
