"""Fetching values out of the log: large ones by their place, old versions by the record that wrote them."""

from __future__ import annotations

from collections.abc import Callable

from logdb.errors import LogDBError
from logdb.log.contract import LogRecord
from logdb.store.records import (
    COMMIT,
    RELOCATION,
    Place,
    Value,
    decode_commit,
    decode_relocation,
)

KEPT_BYTES = 16 << 20
ReadRecord = Callable[[int, int], LogRecord]
"""(gsn, shard) -> the record; `Log.read_record`."""


class Values:
    """Reads values from the log through `read_record`, and checks that they are what the map says."""

    def __init__(self, read_record: ReadRecord) -> None:
        self._read_record = read_record
        # A scan of an old version asks one large commit record for one key after the other.
        self._recent: tuple[int, dict[tuple[bytes, int], Value]] = (0, {})

    def load(self, value: Value) -> bytes | None:
        """The bytes of a value, fetched if it is a place. Raises Trimmed, Corruption."""
        if not isinstance(value, Place):
            return value
        record = self._read_record(value.gsn, value.shard)
        if not value.has(record.tag, record.payload):
            raise MisplacedValue(f"record {value.gsn} does not hold the value that the map places there")
        return record.payload

    def written(self, gsn: int, key: bytes, version: int) -> Value:
        """What `version` of `key` holds according to the commit or relocation record at `gsn`."""
        recent, writes = self._recent
        if recent != gsn:
            writes = self._writes(gsn)
        if (key, version) in writes:
            return writes[key, version]
        raise MisplacedValue(f"record {gsn} does not hold version {version} of key {key!r}")

    def _writes(self, gsn: int) -> dict[tuple[bytes, int], Value]:
        record, writes = self._read_record(gsn, 0), {}
        if record.tag == COMMIT:
            writes = {(key, gsn): value for key, value in decode_commit(record.payload).writes.items()}
        elif record.tag == RELOCATION:
            writes = {(key, version): value for key, version, value in decode_relocation(record.payload)}
        if len(record.payload) <= KEPT_BYTES:
            self._recent = gsn, writes
        return writes


class MisplacedValue(LogDBError):
    """The map and the log disagree: the checkpoint is damaged. `logdb verify --rebuild` makes it anew from the log."""
