"""The reading verbs of a directory with a cold tier: local versions as ever, older ones from a view of the tier."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeVar

from logdb.embedded.cold.history import ColdHistory
from logdb.embedded.large_values import OutgoingValue
from logdb.embedded.reads import Reads
from logdb.embedded.snapshots import Snapshots
from logdb.embedded.state_machine import StateMachine
from logdb.errors import VersionTrimmed
from logdb.log.contract import Trimmed
from logdb.store.key_map import Batches, Rows
from logdb.store.ranges import ScanRange

T = TypeVar("T")

VERBS: Final = (
    *("get", "get_in_parts", "multi_get", "exist", "scan", "multi_scan", "history"),
    *("oldest", "at", "at_time", "time_of"),
)
"""The verbs of `Backend`, and of servers, that this module replaces."""


class TieredReads(Reads):
    """As `Reads` and the versions of `Snapshots`. Every verb raises ColdTierError and Unavailable too, for a version
    that the local log cannot read."""

    def __init__(self, machine: StateMachine, snapshots: Snapshots, cold: ColdHistory) -> None:
        super().__init__(machine, snapshots)
        self._cold = cold

    def _read(self, at: int, local: Callable[[], T], old: Callable[[Reads], T]) -> T:
        """The result of `local`, or of `old` with a view, for a version that `local` cannot read."""
        if not self._cold.has(at):
            try:
                return local()
            except VersionTrimmed:
                if not self._cold.has(at):
                    raise
        with self._cold.at(at) as view:
            return old(view)

    # ---- keys

    def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """See `Backend.get`."""
        if at is None:
            return super().get(key)
        return self._read(at, lambda: Reads.get(self, key, at), lambda view: view.get(key, at))

    def get_in_parts(self, key: bytes, at: int | None, max_bytes: int) -> bytes | OutgoingValue | None:
        """As `get`; a value of an old version is one part."""
        if at is None:
            return super().get_in_parts(key, at, max_bytes)
        return self._read(at, lambda: Reads.get_in_parts(self, key, at, max_bytes), lambda view: view.get(key, at))

    def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """See `Backend.multi_get`."""
        if at is None:
            return super().multi_get(keys)
        return self._read(at, lambda: Reads.multi_get(self, keys, at), lambda view: view.multi_get(keys, at))

    def exist(self, keys: Sequence[bytes], at: int) -> list[bool]:
        """See `Reads.exist`."""
        return self._read(at, lambda: Reads.exist(self, keys, at), lambda view: view.exist(keys, at))

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
        """See `Backend.scan`."""
        if at is None:
            return super().scan(start, end, reverse=reverse, limit=limit)
        return self._scan(start, end, at, reverse, limit)

    def _scan(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool, limit: int | None
    ) -> Generator[Rows, None, None]:
        if not self._cold.has(at):
            begun = False
            try:
                for batch in Reads.scan(self, start, end, at, reverse=reverse, limit=limit):
                    begun = True
                    yield batch
                return
            except VersionTrimmed:
                if begun or not self._cold.has(at):
                    raise
        with self._cold.at(at) as view:
            yield from view.scan(start, end, at, reverse=reverse, limit=limit)

    def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """See `Backend.multi_scan`."""
        if at is None:
            return super().multi_scan(ranges, reverse=reverse)
        return self._read(
            at,
            lambda: Reads.multi_scan(self, ranges, at, reverse=reverse),
            lambda view: view.multi_scan(ranges, at, reverse=reverse),
        )

    # ---- histories

    def history(self, key: bytes, at: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        """See `Backend.history`. The versions before the local floor are read from the tier when they are asked for."""
        return self._all_versions(key, self.machine.version() if at is None else at)

    def _all_versions(self, key: bytes, at: int) -> Iterator[tuple[int, bytes | None]]:
        floor = max(self.machine.coordinator.floor, self.snapshots.compacting_to)
        if at >= floor:
            for version, value in super().history(key, at):
                yield version, value
                at = version - 1
        yield from self._cold.versions(key, at, floor)

    # ---- versions

    def oldest(self) -> int:
        """See `Backend.oldest`."""
        return self._cold.oldest()

    def at(self, version: int) -> int:
        """See `Backend.at`."""
        try:
            return self.snapshots.at(version)
        except VersionTrimmed:
            return self._cold.check(version)

    def at_time(self, when: int) -> int:
        """See `Backend.at_time`."""
        try:
            return self.snapshots.at_time(when)
        except VersionTrimmed:
            return self.at(min(self._cold.log.last_at_time(when), self.machine.version()))

    def time_of(self, version: int) -> int | None:
        """See `Backend.time_of`."""
        try:
            return self._cold.log.time_of(self.at(version))
        except Trimmed:
            return None
