"""The directory of a database as a source for Spark: its store files, kept by hard links while a plan needs them.

`logdb.embedded.snapshot_plan` pins a version: it links the store files into a folder of the plan and writes down which
of their commits were aborted. Executors read the links. Compaction unlinks files and never changes durable bytes, so a
plan needs no lease. A stream does: it will read records that are still to be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import compress
from pathlib import Path
from typing import Final

import logdb
from logdb import Database
from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.external_leases import FOLDER, ExternalLease, remove_folder, sweep
from logdb.embedded.snapshot_plan import DirectoryPlan, SegmentPart, load, pin, pin_at, read_aborted
from logdb.errors import Corruption, LogDBError
from logdb.log.contract import Trimmed
from logdb.log.segments.format import read_frame
from logdb.store.records import COMMIT
from spark_export import scratch
from spark_export.application import Application, current_application, this_process
from spark_export.frames import SegmentFile, verified_frames
from spark_export.places import Records
from spark_export.snapshot_source import LargeValue, LargeValues, PlanRequest, SnapshotPlan, SnapshotSource


class DirectorySource(SnapshotSource):
    """The source of a directory.

    A process keeps the databases of streams with a lease open, read-only, and one more database for its next task:
    following its writer costs less than opening it again.
    """

    def __init__(self, path: Path) -> None:
        self.location: Path = path.absolute()
        self._host: EmbeddedBackend | None = None
        self._leases: dict[object, ExternalLease] = {}

    def database(self) -> Database:
        return logdb.open(self.location, read_only=True)

    def _opened(self) -> EmbeddedBackend:
        if self._host is None:
            for other in [other for other in _OPEN if not other._leases]:
                other.close()
            self._host = EmbeddedBackend.open(self.location, read_only=True, create=False)
            _OPEN.add(self)
        return self._host

    def close(self) -> None:
        _OPEN.discard(self)
        host, self._host = self._host, None
        if host is not None:
            with suppress(Exception):
                host.close()

    # ---- versions

    def version(self) -> int:
        return self._opened().version()

    def at(self, version: int) -> int:
        return self._opened().at(version)

    def at_time(self, time_ns: int) -> int:
        return self._opened().at_time(time_ns)

    def lease(self, holder: object, version: int) -> None:
        if holder in self._leases:
            self._leases[holder].move(version)
        else:
            directory = self._opened().directory
            assert directory is not None
            directory.check()
            sweep(self.location)
            self._leases[holder] = ExternalLease(self.location, version, current_application().process)

    def lease_oldest(self, holder: object) -> int:
        self.lease(holder, 0)  # no compaction begins from here on
        self.lease(holder, version := self._opened().oldest())
        return version

    def release(self, holder: object) -> None:
        if holder in self._leases:
            self._leases.pop(holder).close()
        if not self._leases:
            self.close()

    # ---- plans

    def plan(self, request: PlanRequest) -> SnapshotPlan:
        version, time_ns, since, application = request.version, request.time_ns, request.since, request.application
        owner = None if application is None else application.process
        if not self._leases:
            pinned = pin(self.location, version=version, time_ns=time_ns, since=since, owner=owner)
            return snapshot_plan(pinned, application)
        while True:
            try:
                pinned = pin_at(self._opened(), version=version, time_ns=time_ns, since=since, owner=owner)
                return snapshot_plan(pinned, application)
            except (FileNotFoundError, Trimmed):  # the log was trimmed, but not past the lease
                self.close()

    def replan(self, plan: SnapshotPlan) -> SnapshotPlan:
        return plan

    def retained(self, plan: SnapshotPlan) -> AbstractContextManager[None]:
        return nullcontext()

    def discard(self, plan: SnapshotPlan) -> None:
        remove_folder(Path(plan.folder))

    # ---- reading

    def records(
        self, plan: SnapshotPlan, part: SegmentPart, first: int, end: int, *, copies: bool
    ) -> Iterator[Records]:
        file = SegmentFile(plan.folder, plan.log_id, part)
        for gsns, starts in verified_frames(file, file.offsets, first=first):
            yield Records(file, gsns, starts)

    def aborted(self, plan: SnapshotPlan, part: SegmentPart, first: int, end: int) -> Iterable[int]:
        return read_aborted(Path(plan.folder), part)

    def large_values(self, plan: SnapshotPlan) -> LargeValues:
        files: dict[SegmentPart, SegmentFile] = {}

        def fetch(large: LargeValue) -> bytes:
            gsn = large.place.gsn
            part = next((part for part in plan.parts if part.first <= gsn < part.end), plan.parts[0])
            if part not in files:
                files[part] = SegmentFile(plan.folder, plan.log_id, part)
            return _read_value(files[part], large)

        return lambda values: list(map(fetch, values))

    def values_at(self, version: int, keys: list[bytes], *, with_values: bool) -> list[tuple[bytes, bytes]] | None:
        try:
            host = self._opened()
            host.at(version)
            if with_values:
                return host.multi_get(keys, at=version)[1]
            return [(key, b"") for key in compress(keys, host.exist(keys, version))]
        except (LogDBError, Trimmed, OSError):  # the plan's links still have the log, or reading them raises the reason
            return None

    def commits(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        records = self._opened().records.scan(first, end)
        return ((record.gsn, record.payload) for record in records if record.tag == COMMIT)


_OPEN: Final = set[DirectorySource]()
"""The sources of this process whose database is open."""


def pinned_snapshot(folder: Path, application: Application | None = None) -> SnapshotPlan:
    """Load the plan of a pinned snapshot from its folder. Raises NotADatabase, Corruption."""
    return snapshot_plan(load(folder), application)


def snapshot_plan(pinned: DirectoryPlan, application: Application | None = None) -> SnapshotPlan:
    """The plan for Spark of a pinned version."""
    path = Path(pinned.path)
    name = scratch.named(pinned.log_id, pinned.floor, [(part.first, part.end) for part in pinned.parts])
    return SnapshotPlan(
        path,
        pinned.folder,
        str(path / FOLDER / name),
        application or this_process(),
        pinned.log_id,
        pinned.version,
        pinned.since,
        pinned.time,
        pinned.floor,
        0,
        0,
        pinned.parts,
        pinned.sample,
        pinned.process,
    )


def _read_value(file: SegmentFile, large: LargeValue) -> bytes:
    place, part = large.place, file.part
    at = place.gsn - part.first
    if not 0 <= at < len(file.offsets) - 1:
        raise Corruption(part.origin, None, f"it lacks the large value that should be record {place.gsn}")
    offset = int(file.offsets[at])
    record = read_frame(file.data, offset, len(file.data), place.gsn, file.salt)
    if record is None or not place.has(record.tag, record.payload):
        raise file.damaged(offset, f"record {place.gsn} is not the large value of its commit")
    return record.payload
