"""A record in a journal: its GSN, client and sequence number stand in front of the payload.

So a journal needs no complete index, and tells after a restart which records of which client it has.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from logdb.log.contract import LogRecord, Record
from logdb.log.ziplog.epochs import time_of

_HEADER: Final = Struct("<QQQ")

HEADER_BYTES: Final = _HEADER.size


def wrap(gsn: int, client: int, sequence: int, record: Record) -> Record:
    """A record as it is stored."""
    tag, payload = record
    return tag, _HEADER.pack(gsn, client, sequence) + payload


def header(stored: Record) -> tuple[int, int, int]:
    """(GSN, client, sequence number) of a stored record."""
    return _HEADER.unpack_from(stored[1])


def gsn_of(payload: bytes) -> int:
    """The GSN of a stored record."""
    return int.from_bytes(payload[:8], "little")


def unwrap(stored: Record, origin: int) -> LogRecord:
    """A stored record as a client gets it, of a log that began at `origin`."""
    tag, payload = stored
    gsn = gsn_of(payload)
    return LogRecord(gsn, time_of(gsn, origin), tag, payload[HEADER_BYTES:])
