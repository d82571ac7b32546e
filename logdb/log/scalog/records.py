"""The format of a record in a segment: the client's number and the sequence number, then the application's payload.

So the records of a copy are enough to restore which client has appended what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from logdb.log.contract import LogRecord, Record

HEADER: Final = Struct("<QQ")
"""Client, sequence number."""

HEADER_BYTES: Final = HEADER.size


def wrap(client: int, sequence: int, records: Sequence[Record]) -> list[Record]:
    """The stored form of a client's records, numbered from `sequence` on."""
    pack = HEADER.pack
    return [(tag, pack(client, number) + payload) for number, (tag, payload) in enumerate(records, sequence)]


def unwrap(payload: bytes) -> bytes:
    """The application's part of a stored payload."""
    return payload[HEADER_BYTES:]


def unwrap_all(records: Iterable[LogRecord]) -> list[LogRecord]:
    """The records with the application's part of their payloads."""
    make = LogRecord._make
    return [make((gsn, time, tag, payload[HEADER_BYTES:])) for gsn, time, tag, payload in records]


def runs_of(payloads: Iterable[bytes]) -> list[tuple[int, int, int]]:
    """(client, first sequence number, count) of stored payloads that follow each other, in their order."""
    runs = []
    unpack = HEADER.unpack_from
    of, first, following = -1, 0, 0
    for payload in payloads:
        client, sequence = unpack(payload)
        if client != of or sequence != following:
            if of >= 0:
                runs.append((of, first, following - first))
            of, first = client, sequence
        following = sequence + 1
    if of >= 0:
        runs.append((of, first, following - first))
    return runs
