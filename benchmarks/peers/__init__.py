"""The interface of a database to the benchmarks, so that every peer can answer in the way its experts would.

A verb that takes many keys loops over them inside the peer: where a call costs a microsecond, a wrapper around each
would be a good part of what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

Items = Mapping[bytes, bytes]
Operation = tuple[bytes, int | bytes]
"""(a key, how many rows to read from there on into a list; or the value to write under it, durably)."""
COUNTER_BYTES = 8


class Session(Protocol):
    """A connection of one thread. Writes are durable when they return."""

    def put(self, key: bytes, value: bytes) -> object:
        """Write one key."""

    def multi_put(self, items: Items) -> object:
        """Write all of the items, atomically."""

    def multi_delete(self, keys: Sequence[bytes]) -> object:
        """Remove all of the keys, atomically."""

    def increment(self, key: bytes) -> object:
        """Add 1 to the counter at the head of the value (see `incremented`), in a transaction."""

    def get_each(self, keys: Sequence[bytes]) -> bytes:
        """Read the keys, one operation for each; returns the last value."""

    def multi_get_each(self, groups: Sequence[list[bytes]]) -> int:
        """Read groups of keys, each in one operation of one snapshot; returns the number of values of the last."""

    def scan(self) -> int:
        """Read every key and value in key order; returns the number of rows."""

    def scan_each(self, starts: Sequence[bytes], limit: int) -> int:
        """Read `limit` rows from each key on, in key order; returns the number of rows of the last."""

    def do_each(self, operations: Sequence[Operation]) -> int:
        """Do them one after another; returns the number of rows of the last that read."""

    def close(self) -> None:
        """Release what the thread holds."""


class Peer(Protocol):
    """An opened database in a directory of its own, which is made if it does not exist."""

    name: ClassVar[str]

    def __init__(self, path: Path) -> None: ...

    def load(self, items: Items) -> None:
        """Write the items in the fastest way there is."""

    def reopen(self) -> None:
        """Leave nothing in memory that a restart would have to find on disk, close, and open again."""

    def compact(self) -> None:
        """Give back the space of what was overwritten and removed. No session may be open."""

    def session(self) -> Session:
        """A session for one more thread."""

    def close(self) -> None:
        """Close the database."""


def incremented(value: bytes) -> bytes:
    """The value with 1 added to its counter."""
    return (counter(value) + 1).to_bytes(COUNTER_BYTES, "big") + value[COUNTER_BYTES:]


def counter(value: bytes) -> int:
    """The counter at the head of a value."""
    return int.from_bytes(value[:COUNTER_BYTES], "big")
