"""A snapshot of a database behind endpoints, laid out for tasks that fetch the log for themselves.

The same as a plan of a directory (`logdb.embedded.plan`), but that nothing of the log is kept: a part is a stretch of
it, which a task fetches when its turn comes, from the server of a directory (`serving`) or from any replicas of all
shards of a cluster (`clustering`). What comes is laid out as frames, and decoded like those of a file.

*What protects the version.* Who plans and each task hold the oldest version that the plan needs, as long as they are
at it, so no compaction passes it meanwhile. In between one may: a task that finds the log gone lays the same version
out anew (`again`), which fails only if that version is gone too. Pin it (`logdb pin`) if a DataFrame is to be used for
long.

The runs that tasks make (`runs`) go into a folder that all executors of one machine share (`scratch`): on several
machines each of them reads the log for itself, once, unless the option `scratch` names a directory that all of them
see.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from logdb import Database
from logdb.embedded.plan import Part
from logdb.errors import Corruption, VersionTrimmed
from logdb.hosts import AsyncHost
from logdb.log.contract import LogRecord
from logdb.log.segments.format import FRAME, FRAME_BYTES, FRAME_MAGIC
from logdb.net.blocking import BlockingHost
from logdb.net.connecting import connect
from logdb.net.database.client import ClusterHost
from logdb.net.loops import in_shared_loop, shared_loop
from logdb.net.security.credentials import AnyPath, Credentials, credentials
from logdb.net.service.addresses import endpoints_of
from logdb.store.records import Place
from spark_export import scratch
from spark_export.checksums import Numbers
from spark_export.frames import Frames

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
ASKED_AT_ONCE: Final = 1 << 18
"""Of so many records it is asked at a time which were not applied: all of them fit into an answer."""
PLANNED_BYTES: Final = 128 << 20
"""Of a part, unless it is said otherwise."""


class Endpoints(NamedTuple):
    """Where servers are (`addresses`), what is shown to them (`credentials`), and the seconds they have to answer
    (`timeout_s`).
    """

    addresses: tuple[str, ...]
    credentials: Credentials
    timeout_s: float

    @classmethod
    def of(
        cls,
        addresses: str | Iterable[str],
        *,
        timeout_s: float = TIMEOUT_S,
        ca: AnyPath | None = None,
        certificate: AnyPath | None = None,
        certificate_key: AnyPath | None = None,
        token: str | None = None,
    ) -> Endpoints:
        """Servers, for `export_snapshot`.

        `addresses`, `ca`, `certificate`, `certificate_key`, `token`: as `logdb.connect`. `timeout_s`: seconds for each
        answer. Raises ValueError.
        """
        shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
        return cls(tuple(endpoints_of(addresses)), shown, timeout_s)

    def __str__(self) -> str:
        return ",".join(self.addresses)

    def connecting(self) -> Coroutine[Any, Any, AsyncHost]:
        """To be awaited. Raises Unavailable, AccessDenied, ProtocolMismatch, ValueError."""
        return connect(self.addresses, self.timeout_s, credentials=self.credentials)

    def database(self) -> Database:
        """The database there, on a connection of its own. Raises as `connecting`."""
        return Database(BlockingHost.open(self.connecting()))


class Asked(NamedTuple):
    """What is to be laid out: a version or a time (neither: the newest), with the changes after `since` if it is not
    None, in parts of about so many bytes. `follows`: nothing but these changes; whoever asks holds `since`."""

    version: int | None
    time_ns: int | None
    since: int | None
    part_bytes: int
    follows: bool = False

    async def of(self, host: AsyncHost) -> int:
        """The version. Raises VersionTrimmed, FutureVersion."""
        if self.version is not None:
            return await host.at(self.version)
        return await (host.version() if self.time_ns is None else host.at_time(self.time_ns))


class Laid(NamedTuple):
    """How it was laid out; the fields as in `Plan`. `began`: which compaction's copies count."""

    log_id: bytes
    version: int
    time: int | None
    floor: int
    began: int
    parts: tuple[Part, ...]
    sample: tuple[bytes, ...]


class Large(NamedTuple):
    """A large value to be fetched: its place, and a version at which the key has it."""

    place: Place
    key: bytes
    version: int


class Fetched:
    """Frames in memory."""

    def __init__(self, data: bytes, origin: str) -> None:
        self.data, self._origin = data, origin

    def damaged(self, offset: int, what: str) -> Corruption:
        """The error for what is wrong with a record."""
        return Corruption(self._origin, None, what)


Stretch = tuple[Frames, Numbers, Numbers]
"""Frames, their GSNs, where they begin."""


class Source(Protocol):
    """A connection to the servers."""

    def lay_out(self, asked: Asked) -> Laid: ...
    def version(self) -> int: ...
    def at(self, version: int) -> int: ...
    def hold(self, holder: object, version: int) -> None: ...
    def hold_oldest(self, holder: object) -> int: ...
    def end(self, holder: object) -> None: ...
    def fetch(self, plan: RemotePlan, part: Part, *, copies: bool) -> Iterator[Stretch]: ...
    def aborted(self, plan: RemotePlan, part: Part) -> Iterable[int]: ...
    def commits(self, first: int, end: int) -> Iterator[tuple[int, bytes]]: ...
    def values(self, plan: RemotePlan, large: Sequence[Large]) -> list[bytes]: ...
    def held_at(self, version: int, keys: list[bytes]) -> list[tuple[bytes, bytes]]: ...
    def close(self) -> None: ...


class RemotePlan(NamedTuple):
    """As `Plan`; `path` is what the endpoints are called, `name` the folder for what tasks leave, in `scratch`."""

    endpoints: Endpoints
    scratch: str | None
    name: str
    log_id: bytes
    version: int
    since: int | None
    time: int | None
    floor: int
    began: int
    part_bytes: int
    parts: tuple[Part, ...]
    sample: tuple[bytes, ...]

    @property
    def path(self) -> str:
        """For people."""
        return str(self.endpoints)

    @property
    def folder(self) -> str:
        """On this machine."""
        return str(scratch.base(self.scratch) / self.name)

    def source(self) -> Source:
        """The connection that this process has."""
        return connected(self.endpoints)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing that the plan needs is compacted away, if the servers hear of it in time."""
        source, holder = self.source(), object()
        try:
            source.hold(holder, self.floor)
        except VersionTrimmed:  # it is to be planned anew, from what is left
            source.hold_oldest(holder)
        try:
            yield
        finally:
            source.end(holder)

    def aborted(self, part: Part) -> frozenset[int]:
        """The GSNs of the commit records in `part` that were not applied. Raises VersionTrimmed."""
        source, found = self.source(), set[int]()
        for first in range(part.first, part.end, ASKED_AT_ONCE):
            some = part._replace(first=first, end=min(first + ASKED_AT_ONCE, part.end))
            found.update(source.aborted(self, some))
        return frozenset(found)

    def again(self) -> RemotePlan:
        """The same version laid out anew, as the log is now. Raises VersionTrimmed."""
        laid = self.source().lay_out(Asked(self.version, None, self.since, self.part_bytes))
        return self._replace(floor=laid.floor, began=laid.began, parts=laid.parts)

    def close(self) -> None:
        """Remove what tasks have left, unless it is in use. Twice is harmless."""
        scratch.remove(Path(self.folder))

    def __enter__(self) -> RemotePlan:
        """Hold what it needs until the end of the block, and `close` it."""
        self.source().hold(self.folder, self.floor)
        return self

    def __exit__(self, *_: object) -> None:
        self.source().end(self.folder)
        self.close()


def laid_out(
    endpoints: Endpoints,
    *,
    version: int | None = None,
    time_ns: int | None = None,
    since: int | None = None,
    part_bytes: int = PLANNED_BYTES,
    follows: bool = False,
    scratch_in: str | None = None,
    shared: bool = False,
) -> RemotePlan:
    """Lay out the snapshot at a version or a point in time (default: the newest), and `since`: the changes after that
    version too. `shared`: what tasks leave is for all plans of that version. Raises VersionTrimmed, FutureVersion,
    Unavailable, AccessDenied, Corruption, ValueError (`since` comes after the version).
    """
    laid = connected(endpoints).lay_out(Asked(version, time_ns, since, part_bytes, follows))
    if since is not None and since > laid.version:
        raise ValueError(f"there are no changes after version {since} up to version {laid.version}")
    of = (endpoints.addresses, laid.log_id, laid.version, laid.time)
    return RemotePlan(
        endpoints,
        scratch_in,
        scratch.named(*of) if shared else scratch.fresh(),
        laid.log_id,
        laid.version,
        since,
        laid.time,
        laid.floor,
        laid.began,
        part_bytes,
        laid.parts,
        laid.sample,
    )


_sources: dict[Endpoints, Source] = {}
"""A worker of Spark's keeps its connection for its next task."""
_connecting = threading.Lock()


def connected(endpoints: Endpoints) -> Source:
    """The connection of this process. Raises Unavailable, AccessDenied, ProtocolMismatch, ValueError."""
    with _connecting:
        source = _sources.get(endpoints)
        if source is None:
            from spark_export.clustering import ClusterSource
            from spark_export.serving import ServerSource

            host: Any = in_shared_loop(endpoints.connecting())
            source = ClusterSource(host) if isinstance(host, ClusterHost) else ServerSource(host)
            _sources[endpoints] = source
        return source


def pulled(items: AsyncGenerator[T]) -> Generator[T]:
    """An iterator for a thread over one of the shared loop; the next item is on its way while one is looked at."""
    loop = shared_loop()
    coming = asyncio.run_coroutine_threadsafe(_next(items), loop)
    try:
        while (item := coming.result()) is not None:
            coming = asyncio.run_coroutine_threadsafe(_next(items), loop)
            yield item
    finally:
        futures.wait((coming,))
        in_shared_loop(_closed(items))


async def _next(items: AsyncGenerator[T]) -> T | None:
    return await anext(items, None)


async def _closed(items: AsyncGenerator[T]) -> None:
    await items.aclose()


def laid_as_frames(records: Sequence[LogRecord], origin: str) -> Stretch:
    """Records as frames, without checksums: those of the log have been compared where they stood."""
    gsns, times, tags, payloads = zip(*records, strict=True)
    lengths = list(map(len, payloads))
    heads: Any = map(FRAME.pack, repeat(FRAME_MAGIC), repeat(0), lengths, repeat(0), times, tags)
    data = b"".join([piece for frame in zip(heads, payloads, strict=True) for piece in frame])
    starts = np.zeros(len(lengths), np.int64)
    np.cumsum(np.array(lengths[:-1], np.int64) + FRAME_BYTES, out=starts[1:])
    return Fetched(data, origin), np.array(gsns, np.int64), starts
