"""What a record looks like in a segment: its client and sequence number stand in front of the application's payload.

So a copy of a segment knows from its records alone who has appended what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from logdb.log.contract import LogRecord, Record

HEADER: Final = Struct("<QQ")
"""Client, sequence number."""

HEADER_BYTES: Final = HEADER.size

BYTES_A_SECOND: Final = 8 << 20
"""A server that is busy takes so many at least, over the network and onto its disk."""
PROMPT_BYTES: Final = 1 << 20
"""What is no larger is answered within the usual time."""


def transfer_ns(size: int) -> int:
    """How much longer than usual an answer about so many bytes may take. Sending them again earlier makes it worse."""
    return max(0, size - PROMPT_BYTES) * 1_000_000_000 // BYTES_A_SECOND


def wrap(client: int, sequence: int, records: Sequence[Record]) -> list[Record]:
    """The records of a client, numbered from `sequence` on, as they are stored."""
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
