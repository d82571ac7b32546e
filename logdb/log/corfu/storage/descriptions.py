"""The descriptions of entries in the journals of a unit: the fields of an entry, then two for each of its streams."""

from __future__ import annotations

from struct import Struct
from typing import Final

from logdb.log.corfu.messages import Entry

_DESCRIBE: Final = Struct("<QQQQI")
_STREAM: Final = Struct("<QQ")


def describe(entry: Entry) -> bytes:
    """The bytes of a description."""
    return _DESCRIBE.pack(*entry[:5]) + packed(entry.streams)


def described(payload: bytes) -> Entry:
    """The entry of a description."""
    return Entry(*_DESCRIBE.unpack_from(payload))._replace(streams=unpacked(payload[_DESCRIBE.size :]))


def packed(streams: tuple[tuple[int, int], ...]) -> bytes:
    """The bytes of the streams of an entry, with their previous positions."""
    return b"".join([_STREAM.pack(*one) for one in streams])


def unpacked(streams: bytes) -> tuple[tuple[int, int], ...]:
    """The streams in these bytes."""
    return tuple([(stream, previous) for stream, previous in _STREAM.iter_unpack(streams)])
