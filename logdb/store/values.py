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

CACHE_BYTES = 16 << 20
Writes = dict[tuple[bytes, int], Value]
ReadRecord = Callable[[int, int], LogRecord]
"""(gsn, shard) -> the record; `Log.read_record`."""


class Values:
    """Reads values from the log through `read_record`, and checks that they are what the map says."""

    def __init__(self, read_record: ReadRecord) -> None:
        self._read_record = read_record
        # Consecutive reads of old versions often need the same few commit records.
        self._recent: dict[int, tuple[int, Writes]] = {}

    @property
    def cached_bytes(self) -> int:
        """Bytes of the records that are cached."""
        return sum([size for size, _ in self._recent.values()])

    def load(self, value: Value) -> bytes | None:
        """The bytes of a value, fetched if it is a place. Raises Trimmed, Corruption."""
        if not isinstance(value, Place):
            return value
        record = self._read_record(value.gsn, value.shard)
        if not value.has(record.tag, record.payload):
            raise MisplacedValue(f"record {value.gsn} does not hold the value that the map expects there")
        return record.payload

    def written(self, gsn: int, key: bytes, version: int) -> Value:
        """The value of `version` of `key` in the commit or relocation record at `gsn`. Raises MisplacedValue."""
        return self.among(self.writes(gsn), gsn, key, version)

    def among(self, writes: Writes, gsn: int, key: bytes, version: int) -> Value:
        """As `written`; `writes`: the content of the record at `gsn`."""
        if (key, version) in writes:
            return writes[key, version]
        raise MisplacedValue(f"record {gsn} does not hold version {version} of key {key!r}")

    def writes(self, gsn: int) -> Writes:
        """The values in a commit or relocation record, by key and version.

        Caches the last records up to `CACHE_BYTES`, and the last one whatever its size: a scan of old versions may read
        a million keys of one record.
        """
        if (kept := self._recent.get(gsn)) is not None:
            return kept[1]
        record, writes = self._read_record(gsn, 0), Writes()
        if record.tag == COMMIT:
            writes = {(key, gsn): value for key, value in decode_commit(record.payload, gsn).writes.items()}
        elif record.tag == RELOCATION:
            writes = {(key, version): value for key, version, value in decode_relocation(record.payload)}
        recent = {**self._recent, gsn: (len(record.payload), writes)}
        size = sum(of for of, _ in recent.values())
        for oldest in list(recent)[:-1]:
            if size <= CACHE_BYTES:
                break
            size -= recent.pop(oldest)[0]
        self._recent = recent  # replaced, not changed: other threads read it
        return writes


class MisplacedValue(LogDBError):
    """The map and the log disagree: the checkpoint is damaged. `logdb verify --rebuild` rebuilds it from the log."""
