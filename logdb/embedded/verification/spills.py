"""The writes, reads and conditions of each key, in files by partition of the keys: they need not fit into memory.

The files are those of one examination and one version of Python (`marshal`), in a directory that is removed with it.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from google_crc32c import value

from logdb.store.records import Place, Value

PARTITION_BYTES: Final = 16 << 20
"""Size of log and map per partition, which takes about four times as much memory."""
MAX_PARTITIONS: Final = 4_096
BUFFER_BYTES: Final = 16 << 20
ITEM_BYTES: Final = 100
"""Memory of an item beside its key and value."""

Plain = bytes | None | tuple[int, int, bytes]
"""A value, or (shard, length, digest) of a large one."""
Written = tuple[bytes, int, Plain]
"""key, version, value."""
Read = tuple[bytes, int, int]
"""key, snapshot, the GSN of the commit that has read it."""
Tested = tuple[bytes, int, int, Any]
"""key, the GSN of the commit that tests it, operator, operand."""
Found = tuple[bytes, list[tuple[int, int, Plain]]]
"""key, and of each version that the map has: itself, its kind, its value."""


class Part(NamedTuple):
    """The items of one partition, in no particular order."""

    written: list[Written]
    read: list[Read]
    tested: list[Tested]
    found: list[Found]


def partitions_for(size: int) -> int:
    """The number of partitions for `size` bytes of log and map."""
    return min(MAX_PARTITIONS, 1 + size // PARTITION_BYTES)


def plain(value: Value) -> Plain:
    """A value without its place in the log."""
    return (value.shard, value.length, value.digest) if isinstance(value, Place) else value


def placed(plain: Plain) -> Value:
    """The inverse of `plain`, with an arbitrary place."""
    return Place(0, *plain) if isinstance(plain, tuple) else plain


class Spill:
    """Buffers items, and writes them to the files of their partitions. `name`: of this writer."""

    def __init__(self, directory: Path, name: str, partitions: int) -> None:
        self._directory, self._name, self._partitions = directory, name, partitions
        self._size = 0
        self._parts = [Part([], [], [], []) for _ in range(partitions)]

    def of(self, key: bytes) -> Part:
        """The part for items of a key."""
        crc: int = value(key)
        return self._parts[crc % self._partitions]

    def added(self, items: int, size: int) -> None:
        """Count items that were added since the last call, and the size of their keys and values in bytes."""
        self._size += items * ITEM_BYTES + size
        if self._size >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all buffered items."""
        for partition, part in enumerate(self._parts):
            if any(part):
                raw = marshal.dumps(tuple(part), 2)
                with (self._directory / f"{partition}-{self._name}").open("ab") as file:
                    file.write(len(raw).to_bytes(8))
                    file.write(raw)
                for items in part:
                    items.clear()
        self._size = 0


def spilled(directory: Path, partition: int) -> Iterator[Part]:
    """All items of a partition, of all writers."""
    for path in [entry for entry in directory.iterdir() if entry.name.startswith(f"{partition}-")]:
        with path.open("rb") as file:
            while size := int.from_bytes(file.read(8)):
                yield Part(*marshal.loads(file.read(size)))
        path.unlink()
