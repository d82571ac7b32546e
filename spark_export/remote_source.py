"""The common part of the sources of a server and of a cluster: plans without files, leases, and fetches in parallel.

A part is a range of GSNs. A task fetches its records when it runs, from the server of a directory (`server_source`) or
from the replicas of a cluster (`cluster_source`).

*How versions are leased.* Planning and each task lease the oldest version that the plan needs, so no compaction passes
it meanwhile. Between planning and a task the plan has no lease. A task that finds its records trimmed plans the same
version again (`replan`), which fails only if the version itself is trimmed. A pin (`logdb pin`) keeps the version of a
DataFrame that is used for long.

Tasks leave their runs in a folder that all executors of one machine share (`scratch`). Executors on several machines
fetch the log once per machine, or once in all with the option `scratch`, a directory that every machine sees.
"""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from logdb import Database
from logdb.clients.background_loop import in_shared_loop, shared_loop
from logdb.embedded.snapshot_plan import SegmentPart
from logdb.errors import Corruption, VersionTrimmed
from logdb.log.contract import LogRecord
from logdb.store.records import Place
from spark_export import scratch
from spark_export.application import this_process
from spark_export.endpoints import Endpoints
from spark_export.snapshot_source import LargeValue, LargeValues, PlanRequest, SnapshotPlan, SnapshotSource

H = TypeVar("H", bound=Any)
T = TypeVar("T")

PLANNER_LEASE_S: Final = 10.0
"""A planner keeps its lease for this long, until the first tasks have theirs."""
ABORTED_PER_REQUEST: Final = 1 << 18
"""The largest range of GSNs in one request for aborted commits: all of them fit into a response."""


class Floor(NamedTuple):
    """The oldest version that can be read, and the compaction that set it: its first GSN and its last (0: none)."""

    version: int
    copies_from: int = 0
    copies_end: int = 0


class Layout(NamedTuple):
    """The parts of the log with a version; the fields as in `SnapshotPlan`."""

    log_id: bytes
    time: int | None
    parts: tuple[SegmentPart, ...]
    sample: tuple[bytes, ...]


class RemoteSource(SnapshotSource, Generic[H]):
    """A database behind endpoints, over one connection."""

    LARGE_VALUES_AT_ONCE: ClassVar[int]

    def __init__(self, endpoints: Endpoints, host: H) -> None:
        self.location: Endpoints = endpoints
        self._host: H = host

    @abstractmethod
    async def _lay_out(
        self, version: int, first: int, floor: Floor | None, part_bytes: int, since: int | None
    ) -> Layout:
        """Plan the parts of the log from record `first` on that have a version, and the changes after `since`; without
        `floor` only commits count."""

    @abstractmethod
    async def _lease(self, holder: object, version: int) -> None: ...

    @abstractmethod
    async def _lease_floor(self, holder: object, needed: int | None = None) -> Floor:
        """Lease the oldest version that can be planned from. `needed`: the oldest version that a plan reads."""

    @abstractmethod
    async def _aborted(self, first: int, end: int) -> Iterable[int]: ...

    @abstractmethod
    async def _read_record(self, place: Place) -> LogRecord | None:
        """The record of a large value; None if compaction has moved it. Raises Corruption, Unavailable."""

    def database(self) -> Database:
        return self.location.database()

    # ---- versions

    def version(self) -> int:
        return in_shared_loop(self._host.version())  # type: ignore[no-any-return]

    def at(self, version: int) -> int:
        return in_shared_loop(self._host.at(version))  # type: ignore[no-any-return]

    def at_time(self, time_ns: int) -> int:
        return in_shared_loop(self._host.at_time(time_ns))  # type: ignore[no-any-return]

    def lease(self, holder: object, version: int) -> None:
        in_shared_loop(self._lease(holder, version))

    def lease_oldest(self, holder: object) -> int:
        in_shared_loop(self._lease_floor(holder))
        return in_shared_loop(self._host.oldest())  # type: ignore[no-any-return]

    def release(self, holder: object) -> None:
        shared_loop().call_soon_threadsafe(self._host.end, holder)

    # ---- plans

    def plan(self, request: PlanRequest) -> SnapshotPlan:
        version, floor, layout = in_shared_loop(self._plan(request))
        if request.shared:
            name = scratch.named(self.location.addresses, layout.log_id, version, layout.time)
        else:
            name = scratch.fresh()
        folder = str(scratch.base(request.scratch_parent) / name)
        return SnapshotPlan(
            self.location,
            folder,
            folder,
            request.application or this_process(),
            layout.log_id,
            version,
            request.since,
            layout.time,
            floor.version,
            floor.copies_from,
            request.part_bytes,
            layout.parts,
            layout.sample,
            os.getpid(),
        )

    def replan(self, plan: SnapshotPlan) -> SnapshotPlan:
        request = PlanRequest(version=plan.version, since=plan.since, part_bytes=plan.part_bytes)
        _, floor, layout = in_shared_loop(self._plan(request))
        return plan._replace(floor=floor.version, copies_from=floor.copies_from, parts=layout.parts)

    async def _plan(self, request: PlanRequest) -> tuple[int, Floor, Layout]:
        host, holder, since = self._host, object(), request.since
        if request.version is not None:
            version = await host.at(request.version)
        else:
            version = await (host.version() if request.time_ns is None else host.at_time(request.time_ns))
        if since is not None and since > version:
            raise ValueError(f"there are no changes after version {since} up to version {version}")
        if request.changes_only:
            assert since is not None
            return version, Floor(since), await self._lay_out(version, since + 1, None, request.part_bytes, since)
        try:
            needed = version if since is None else since
            floor = await self._lease_floor(holder, needed)
            if needed < floor.version:
                raise VersionTrimmed(needed, floor.version)  # the log does not have it
            await host.at(version)  # a compaction may have passed it before the lease
            if since is not None:
                await host.at(since)
            first, part_bytes = max(floor.version, 1), request.part_bytes
            return version, floor, await self._lay_out(version, first, floor, part_bytes, since)
        finally:
            asyncio.get_running_loop().call_later(PLANNER_LEASE_S, host.end, holder)

    @contextmanager
    def retained(self, plan: SnapshotPlan) -> Iterator[None]:
        holder = object()
        try:
            self.lease(holder, plan.floor)
        except VersionTrimmed:  # a task will plan again, from what is left
            self.lease_oldest(holder)
        try:
            yield
        finally:
            self.release(holder)

    def discard(self, plan: SnapshotPlan) -> None:
        """No effect: servers keep leases for planners and tasks only."""

    # ---- reading

    def aborted(self, plan: SnapshotPlan, part: SegmentPart, first: int, end: int) -> Iterable[int]:
        found, end = set[int](), min(end, plan.version + 1)
        for low in range(first, end, ABORTED_PER_REQUEST):
            found.update(in_shared_loop(self._aborted(low, min(low + ABORTED_PER_REQUEST, end))))
        return found

    def large_values(self, plan: SnapshotPlan) -> LargeValues:
        return lambda values: in_shared_loop(self._large_values(values))

    async def _large_values(self, values: Sequence[LargeValue]) -> list[bytes]:
        found: list[bytes] = []
        for first in range(0, len(values), self.LARGE_VALUES_AT_ONCE):
            some = values[first : first + self.LARGE_VALUES_AT_ONCE]
            found += await asyncio.gather(*map(self._large_value, some))
        return found

    async def _large_value(self, large: LargeValue) -> bytes:
        record = await self._read_record(large.place)
        if record is None:
            value: bytes = await self._host.get(large.key, large.version)  # the map has the new location
            return value
        if not large.place.has(record.tag, record.payload):
            what = f"record {large.place.gsn} of shard {large.place.shard} is not the large value of its commit"
            raise Corruption(self._host.path, None, what)
        return record.payload

    def values_at(self, version: int, keys: list[bytes], *, with_values: bool) -> list[tuple[bytes, bytes]] | None:
        found: list[tuple[bytes, bytes]] = in_shared_loop(self._host.multi_get(keys, version))[1]
        return found

    def close(self) -> None:
        in_shared_loop(self._host.close())


def prefetched(items: AsyncGenerator[T]) -> Generator[T]:
    """Iterate in a thread over a generator of the shared loop, which fetches the next item meanwhile."""
    loop = shared_loop()
    coming = asyncio.run_coroutine_threadsafe(_next(items), loop)
    try:
        while (item := coming.result()) is not None:
            coming = asyncio.run_coroutine_threadsafe(_next(items), loop)
            yield item
    finally:
        futures.wait((coming,))
        in_shared_loop(_close(items))


async def _next(items: AsyncGenerator[T]) -> T | None:
    return await anext(items, None)


async def _close(items: AsyncGenerator[T]) -> None:
    await items.aclose()
