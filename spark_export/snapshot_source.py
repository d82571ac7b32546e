"""One interface for the databases that Spark reads: a directory, a server of a directory, or a cluster.

    SnapshotSource    directory_source.DirectorySource   the store files of a directory, kept by hard links
                      server_source.ServerSource         the same files, sent by the server that has them open
                      cluster_source.ClusterSource       the log of a cluster, from any replica of each shard

The driver asks a source for a plan: one version, and the parts of the log that hold it. A plan is a value. Spark sends
it along with each task, and each process looks up its own source for the plan's location (`source_of`). Snapshots,
changes, streams and exports are written over plans and do not depend on the kind of source.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from logdb import Database
from logdb.clients.background_loop import in_shared_loop
from logdb.clients.cluster_backend import ClusterBackend
from logdb.embedded.snapshot_plan import SegmentPart
from logdb.store.records import Place
from spark_export import scratch
from spark_export.application import Application
from spark_export.endpoints import Endpoints
from spark_export.places import Records

PART_BYTES: Final = 128 << 20
"""The default size of a part of a server's or a cluster's log."""

Location = Path | Endpoints


class PlanRequest(NamedTuple):
    """The version to plan: by number or by time in ns (neither: the newest version).

    `since`: the changes after this version too. `changes_only`: nothing else; the caller has a lease on `since`.
    `part_bytes`: the size of a part, where the log has no files. `application`: the plan ends with it (default: with
    this process). `scratch_parent`: the directory for scratch folders of servers. `shared`: all plans of the version
    share one.
    """

    version: int | None = None
    time_ns: int | None = None
    since: int | None = None
    changes_only: bool = False
    part_bytes: int = PART_BYTES
    application: Application | None = None
    scratch_parent: str | None = None
    shared: bool = False


class SnapshotPlan(NamedTuple):
    """The snapshot `version` of the database at `location`, as parts of its log.

    `since`: all commits after this version are in the parts too (None: only what is live at `version`). `time`: when
    the version was written, ns since the epoch (None: unknown). `floor`: the oldest version that could be read at
    planning. `copies_from`: the GSN at which the compaction begins whose copies count (0: all copies count). `sample`:
    some of the keys, in order. `folder`: of this plan alone. `scratch`: the folder for results of tasks, on behalf of
    `application`. `process`: the process that planned; `close` does nothing in others.
    """

    location: Location
    folder: str
    scratch: str
    application: Application
    log_id: bytes
    version: int
    since: int | None
    time: int | None
    floor: int
    copies_from: int
    part_bytes: int
    parts: tuple[SegmentPart, ...]
    sample: tuple[bytes, ...]
    process: int

    @property
    def source(self) -> SnapshotSource:
        """The source of this process."""
        return source_of(self.location)

    @contextmanager
    def task(self) -> Iterator[None]:
        """Keep the scratch folder and what the parts need, for the block."""
        with scratch.used(Path(self.scratch), self.application), self.source.retained(self):
            yield

    @contextmanager
    def job(self) -> Iterator[SnapshotPlan]:
        """As `task`, and `close` the plan at the end of the block."""
        try:
            with self.task():
                yield self
        finally:
            self.close()

    def release(self) -> None:
        """Release the parts, in the process that planned. Repeated calls are harmless."""
        if os.getpid() == self.process:
            self.source.discard(self)

    def close(self) -> None:
        """`release` the parts and remove the scratch folder, unless others use it."""
        if os.getpid() == self.process:
            scratch.remove(Path(self.scratch))
        self.release()


class LargeValue(NamedTuple):
    """A large value to fetch: the location of its record, its key, and a version at which the key has it."""

    place: Place
    key: bytes
    version: int


LargeValues = Callable[[Sequence[LargeValue]], list[bytes]]


class SnapshotSource(ABC):
    """A database that Spark reads. All methods may be called from any thread and raise Unavailable."""

    location: Location

    @abstractmethod
    def database(self) -> Database:
        """Open the database, read-only where it is a directory, to be closed by the caller."""

    # ---- versions

    @abstractmethod
    def version(self) -> int:
        """The newest version."""

    @abstractmethod
    def at(self, version: int) -> int:
        """Return `version` if it can be read. Raises VersionTrimmed, FutureVersion."""

    @abstractmethod
    def at_time(self, time_ns: int) -> int:
        """Return the newest version that was written up to a time. Raises VersionTrimmed, FutureVersion."""

    @abstractmethod
    def lease(self, holder: object, version: int) -> None:
        """Keep compaction from passing `version` until `release(holder)`; a holder has one version. A holder checks
        afterwards that the version is there (`at`); some sources raise VersionTrimmed at once."""

    @abstractmethod
    def lease_oldest(self, holder: object) -> int:
        """Lease the oldest version that can be read, and return it."""

    @abstractmethod
    def release(self, holder: object) -> None:
        """End the lease of `holder`. Repeated calls have no effect."""

    # ---- plans

    @abstractmethod
    def plan(self, request: PlanRequest) -> SnapshotPlan:
        """Resolve the version and plan its parts. Raises VersionTrimmed, FutureVersion, Corruption, ValueError."""

    @abstractmethod
    def replan(self, plan: SnapshotPlan) -> SnapshotPlan:
        """Plan the parts of the same version again, from the current log. Raises VersionTrimmed."""

    @abstractmethod
    def retained(self, plan: SnapshotPlan) -> AbstractContextManager[None]:
        """Keep what the parts need from compaction, for the block."""

    @abstractmethod
    def discard(self, plan: SnapshotPlan) -> None:
        """Release what the plan keeps outside of `retained`."""

    # ---- reading

    @abstractmethod
    def records(
        self, plan: SnapshotPlan, part: SegmentPart, first: int, end: int, *, copies: bool
    ) -> Iterator[Records]:
        """Read the records of a part from GSN `first` to before `end`, in the order of the log, with their checksums
        verified. With `copies`, also what compaction has copied. Raises Corruption, VersionTrimmed."""

    @abstractmethod
    def aborted(self, plan: SnapshotPlan, part: SegmentPart, first: int, end: int) -> Iterable[int]:
        """Return the GSNs of the commit records among `records` that were not applied. Raises as `records`."""

    @abstractmethod
    def large_values(self, plan: SnapshotPlan) -> LargeValues:
        """Return a function that fetches large values of the plan. It raises Corruption, VersionTrimmed."""

    @abstractmethod
    def values_at(self, version: int, keys: list[bytes], *, with_values: bool) -> list[tuple[bytes, bytes]] | None:
        """Look up `keys` in the database's map at a version: (key, value) of those that exist, the value may be b""
        unless `with_values`. Return None if only the log has them. Raises VersionTrimmed."""

    @abstractmethod
    def commits(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read (GSN, payload) of the commit records from `first` to before `end`, applied or not."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection or the files that the source keeps open."""


_sources: dict[Location, SnapshotSource] = {}
"""A worker of Spark keeps its connections for its next task."""
_connecting = threading.Lock()


def source_of(location: Location) -> SnapshotSource:
    """Return this process's source for a location. Raises Unavailable, AccessDenied, ProtocolMismatch, ValueError."""
    from spark_export.cluster_source import ClusterSource
    from spark_export.directory_source import DirectorySource
    from spark_export.server_source import ServerSource

    with _connecting:
        if location not in _sources:
            if isinstance(location, Path):
                _sources[location] = DirectorySource(location)
            else:
                host: Any = in_shared_loop(location.connecting())
                kind = ClusterSource if isinstance(host, ClusterBackend) else ServerSource
                _sources[location] = kind(location, host)
        return _sources[location]


def close_sources() -> None:
    """Close the sources of this process."""
    with _connecting:
        while _sources:
            _sources.popitem()[1].close()
