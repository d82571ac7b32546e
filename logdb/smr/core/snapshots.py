"""Snapshots in the log: split into parts, and found again.

SMR-4: the log is trimmed only to the position after that of a snapshot whose parts are all in the log. All parts are
ordered after the position of their snapshot, so a trim keeps them, and the commands that follow the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logdb.log.contract import LogRecord, Record
from logdb.smr.core.records import CHUNK, Chunk, chunk_record, decode_chunk

CHUNK_BYTES: Final = 1 << 20


def chunks(snapshot: int, position: int, data: bytes) -> Iterator[Record]:
    """The records of the snapshot `data` at `position`. `snapshot`: a random number, below 2^64."""
    count = -(-len(data) // CHUNK_BYTES) or 1
    for index in range(count):
        at = index * CHUNK_BYTES
        yield chunk_record(Chunk(snapshot, position, index, count, data[at : at + CHUNK_BYTES]))


class SnapshotFinder:
    """Finds the newest complete snapshot in the records that it receives. `position`: of that snapshot, 0 if there is
    none; `data`: its bytes."""

    def __init__(self) -> None:
        self.position, self.data = 0, b""
        self._parts: dict[tuple[int, int], dict[int, bytes]] = {}

    def add(self, record: LogRecord) -> None:
        """Receive the next record. Raises ForeignRecord."""
        if record.tag != CHUNK:
            return
        chunk = decode_chunk(record)
        if chunk.position <= self.position:
            return
        parts = self._parts.setdefault((chunk.position, chunk.snapshot), {})
        parts[chunk.part] = chunk.data
        if len(parts) == chunk.parts:
            self.position, self.data = chunk.position, b"".join([parts[part] for part in range(chunk.parts)])
            self._parts = {key: parts for key, parts in self._parts.items() if key[0] > self.position}
