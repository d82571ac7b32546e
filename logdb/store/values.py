"""Fetching values out of the log: large ones by their place, old versions by the record that wrote them."""

from __future__ import annotations

from collections.abc import Callable

from logdb.errors import LogDBError
from logdb.log.contract import LogRecord
from logdb.store.records import (
    COMMIT,
    RELOCATION,
    VALUE,
    Place,
    Value,
    decode_commit,
    decode_relocation,
    digest,
)

ReadRecord = Callable[[int, int], LogRecord]
"""(gsn, shard) -> the record; `Log.read_record`."""


class Values:
    """Reads values from the log through `read_record`, and checks that they are what the map says."""

    def __init__(self, read_record: ReadRecord) -> None:
        self._read_record = read_record

    def load(self, value: Value) -> bytes | None:
        """The bytes of a value, fetched if it is a place. Raises Trimmed, Corruption."""
        if not isinstance(value, Place):
            return value
        record = self._read_record(value.gsn, value.shard)
        if record.tag != VALUE or len(record.payload) != value.length or digest(record.payload) != value.digest:
            raise MisplacedValue(f"record {value.gsn} does not hold the value that the map places there")
        return record.payload

    def written(self, gsn: int, key: bytes, version: int) -> Value:
        """What `version` of `key` holds according to the commit or relocation record at `gsn`."""
        record = self._read_record(gsn, 0)
        if record.tag == COMMIT and gsn == version:
            writes = decode_commit(record.payload).writes
            if key in writes:
                return writes[key]
        elif record.tag == RELOCATION:
            for entry in decode_relocation(record.payload):
                if entry.key == key and entry.version == version:
                    return entry.value
        raise MisplacedValue(f"record {gsn} does not hold version {version} of key {key!r}")


class MisplacedValue(LogDBError):
    """The map and the log disagree: the checkpoint is damaged. `logdb verify --rebuild` makes it anew from the log."""
