"""The form of a record in a journal: the time at which it was ordered is a prefix of the payload.

So a journal needs no index: a record's LSN in the journal is its GSN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from logdb.log.contract import LogRecord, Record

_TIME: Final = Struct("<Q")

HEADER_BYTES: Final = _TIME.size


def wrap(time: int, records: Sequence[Record]) -> list[Record]:
    """Records in stored form. `time`: ns since the epoch."""
    header = _TIME.pack(time)
    return [(tag, header + payload) for tag, payload in records]


def unwrap(gsn: int, record: Record) -> LogRecord:
    """A stored record in the form for clients."""
    tag, payload = record
    return LogRecord(gsn, _TIME.unpack_from(payload)[0], tag, payload[HEADER_BYTES:])


def unwrap_all(records: Iterable[LogRecord]) -> list[LogRecord]:
    """Stored records in the form for clients."""
    make, time = tuple.__new__, _TIME.unpack_from
    return [make(LogRecord, (gsn, time(payload)[0], tag, payload[HEADER_BYTES:])) for gsn, _, tag, payload in records]
