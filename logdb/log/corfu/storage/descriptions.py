"""The descriptions of entries in the journals of a unit."""

from __future__ import annotations

from struct import Struct
from typing import Final

from logdb.log.corfu.messages import Entry

_DESCRIBE: Final = Struct("<QQQQI")


def describe(entry: Entry) -> bytes:
    """The bytes of a description."""
    return _DESCRIBE.pack(*entry)


def described(payload: bytes) -> Entry:
    """The entry of a description."""
    return Entry(*_DESCRIBE.unpack(payload))
