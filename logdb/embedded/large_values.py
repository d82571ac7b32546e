"""Large values in parts: one that is being received into the log, and one that is being read from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from logdb.log.contract import IncomingPayload
from logdb.store.records import VALUE, Place
from logdb.store.values import MisplacedValue

PART_BYTES: Final = 512 << 10
"""Size of the parts in which a value is read."""


class IncomingValue:
    """A large value that is being received into the log. `len()`: of the whole. `write`: from one thread at a time."""

    def __init__(self, payload: IncomingPayload) -> None:
        self.payload = payload
        self._digest = hashlib.blake2b(digest_size=16)

    def __len__(self) -> int:
        return self.payload.length

    @property
    def digest(self) -> bytes:
        """See `records.digest`."""
        return self._digest.digest()

    def write(self, data: bytes) -> None:
        """Write the next bytes; after the last ones the value is durable. Raises Unavailable, OSError."""
        self._digest.update(data)
        self.payload.write(data)

    def discard(self) -> None:
        """Remove the value, unless it was committed. Discarding it twice has no effect."""
        self.payload.discard()


class OutgoingValue:
    """A large value that is read in parts; its version stays readable meanwhile. `length`: of the whole, in bytes."""

    def __init__(self, place: Place, record: tuple[int, int, Iterator[bytes]]) -> None:
        tag, length, self._parts = record
        if tag != VALUE or length != place.length:
            raise MisplacedValue(f"record {place.gsn} does not hold the value that the map places there")
        self.length = length
        self._place = place

    def parts(self) -> Iterator[bytes]:
        """The bytes. Raises Corruption, MisplacedValue with the last part, if they do not match the digest."""
        digest, left = hashlib.blake2b(digest_size=16), self.length
        for part in self._parts:
            digest.update(part)
            left -= len(part)
            if not left and digest.digest() != self._place.digest:
                raise MisplacedValue(f"record {self._place.gsn} does not hold the value that the map places there")
            yield part
