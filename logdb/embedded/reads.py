"""Reading a database of this process at a version: keys, ranges, histories, and large values in parts."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, cast

from logdb.embedded.large_values import PART_BYTES, OutgoingValue
from logdb.embedded.snapshots import Holder, Snapshots
from logdb.embedded.state_machine import StateMachine
from logdb.errors import DatabaseClosed, VersionTrimmed
from logdb.log.contract import Trimmed
from logdb.store.key_map import Batches, Rows
from logdb.store.ranges import ScanRange
from logdb.store.records import Place

SHORT_ROWS: Final = 256
"""A scan with a limit of at most this many rows is read in one step, without a lease, unless it passes many keys that
do not exist."""


class Reads:
    """The reading verbs of `Backend`. Each names a version (None: the newest) and raises VersionTrimmed, Corruption,
    DatabaseClosed, Unavailable."""

    def __init__(self, machine: StateMachine, snapshots: Snapshots) -> None:
        self.machine, self.snapshots = machine, snapshots

    # ---- keys

    def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key` at a version."""
        machine = self.machine
        if at is not None or machine.closed or machine.read_only:
            version = machine.version() if at is None else at  # a follower may replace its coordinator
            coordinator = machine.coordinator
        else:
            coordinator = machine.coordinator
            durable, applied = machine.log.durable, coordinator.applied
            version = durable if durable < applied else applied
        try:
            value = coordinator.map.get(key, version)
        except Exception as error:
            return self._get_again(key, at, version, error)
        return value if version >= coordinator.floor else self._get_again(key, at, version, None)

    def get_in_parts(self, key: bytes, at: int | None, max_bytes: int) -> bytes | OutgoingValue | None:
        """As `get`, but a value of more than `max_bytes` is read in parts."""
        if at is None:
            return self.snapshots.at_newest(lambda version: self._value(key, version, max_bytes))
        return self._value(key, at, max_bytes)

    def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """(the version read, those of `keys` that exist with their values)."""
        if at is None:
            return self.snapshots.at_newest(lambda version: (version, self._read_many(keys, version)))
        return at, self._read_many(keys, at)

    def exist(self, keys: Sequence[bytes], at: int) -> list[bool]:
        """Whether each of the keys exists at a version."""
        found = self.machine.coordinator.map.exist(keys, at)
        self._check_floor(at)
        return found

    def _check_floor(self, at: int) -> None:
        floor = self.machine.coordinator.floor
        if at < floor:
            raise VersionTrimmed(at, floor)

    def _value(self, key: bytes, at: int, max_bytes: int, attempts: int = 2) -> bytes | OutgoingValue | None:
        machine = self.machine
        try:
            value: Any = machine.coordinator.map.get(key, at, whole=False)
            if value.__class__ is Place:
                if value.length <= max_bytes:
                    value = machine.coordinator.map.values.load(value)
                else:
                    machine.log.wait_durable(value.gsn)
                    value = OutgoingValue(value, machine.log.payload(value.gsn, PART_BYTES))
        except Exception as error:
            if attempts > 1 and isinstance(error, Trimmed):  # a compaction has moved it after it was looked up
                return self._value(key, at, max_bytes, attempts - 1)
            raise machine.explained(error, at) from error
        self._check_floor(at)
        return cast("bytes | OutgoingValue | None", value)

    def _read_many(self, keys: Sequence[bytes], at: int) -> list[tuple[bytes, bytes]]:
        coordinator = self.machine.coordinator
        try:
            values = coordinator.map.get_many(keys, at)
            found = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
        except Exception:
            return [(key, value) for key in keys if (value := self.get(key, at)) is not None]
        self._check_floor(at)
        return found

    def _get_again(self, key: bytes, at: int | None, version: int, failure: Exception | None) -> bytes | None:
        if at is None:
            return self.snapshots.at_newest(lambda version: self._read_again(key, version, failure))
        return self._read_again(key, version, failure)

    def _read_again(self, key: bytes, at: int, failure: Exception | None) -> bytes | None:
        """Repeat a read that failed because a compaction had moved the value after it was looked up."""
        machine = self.machine
        if failure is None or isinstance(failure, Trimmed):
            try:
                value = machine.coordinator.map.get(key, at)
            except Exception as again:
                raise machine.explained(again, at) from again
            self._check_floor(at)
            return value
        raise machine.explained(failure, at) from failure

    # ---- ranges

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Batches:
        """Batches of (key, value) of [start, end) at a version, in order. Ends after `limit` rows; the last batch may
        have more.

        With a small limit, the rows are read now, which needs no lease, unless that may take long.
        """
        machine = self.machine
        if at is not None or machine.closed or machine.read_only:
            version = machine.version() if at is None else at  # a follower may replace its coordinator
            coordinator = machine.coordinator
        else:
            coordinator = machine.coordinator
            durable, applied = machine.log.durable, coordinator.applied
            version = durable if durable < applied else applied
        if limit is None or limit > SHORT_ROWS:
            return self._range(start, end, version, reverse, limit, at is None)
        try:
            rows = coordinator.map.first(start, end, version, reverse, limit) if limit else []
        except Exception as error:
            if at is not None or not isinstance(error, Trimmed):
                raise machine.explained(error, version) from error
        else:
            if rows is None:
                return self._range(start, end, version, reverse, limit, at is None)
            if version >= coordinator.floor:
                return (rows,)
            if at is not None:
                raise VersionTrimmed(version, coordinator.floor)
        # A compaction has dropped the version that was the newest.
        return self.scan(start, end, reverse=reverse, limit=limit)

    def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of each range at a version, in order."""
        holder = Holder()
        version = self.snapshots.begin(holder, read_only=True) if at is None else at
        try:
            return [
                list(islice(chain.from_iterable(self.scan(start, end, version, reverse=reverse, limit=limit)), limit))
                for start, end, limit in ranges
            ]
        finally:
            self.snapshots.end(holder)

    def _range(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool, limit: int | None, or_newer: bool
    ) -> Generator[Rows, None, None]:
        """`or_newer`: read the newest version if `at` is compacted away before the first batch."""
        machine, snapshots = self.machine, self.snapshots
        if machine.closed:
            raise DatabaseClosed(machine.path, machine.forked_from)
        holder = Holder()
        try:
            if or_newer:
                at = snapshots.keep_or_newer(holder, at)
            else:
                snapshots.keep(holder, at)
            for batch in machine.coordinator.map.scan(start, end, at, reverse, limit):
                self._check_floor(at)
                yield batch
                if machine.closed:
                    raise DatabaseClosed(machine.path, machine.forked_from)
            self._check_floor(at)
        except Exception as error:
            raise machine.explained(error, at) from error
        finally:
            snapshots.end(holder)

    # ---- histories

    def history(self, key: bytes, at: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        """(version, value) of `key` from a version back to the oldest that is left, newest first."""
        return self._versions(key, self.machine.version() if at is None else at)

    def _versions(self, key: bytes, at: int) -> Iterator[tuple[int, bytes | None]]:
        machine, snapshots = self.machine, self.snapshots
        if machine.closed:
            raise DatabaseClosed(machine.path, machine.forked_from)
        holder = Holder()
        snapshots.keep(holder, machine.coordinator.floor)
        try:
            self._check_floor(at)
            for entry in machine.coordinator.map.history(key, at, machine.coordinator.floor):
                yield entry
                if machine.closed:
                    raise DatabaseClosed(machine.path, machine.forked_from)
        except Exception as error:
            raise machine.explained(error, at) from error
        finally:
            snapshots.end(holder)
