"""The backend interface under both faces: the verbs of a database, in this process or in another.

`database.py` and `aio.py` check arguments and call these verbs, each of which is one request and one response. A
backend may be in another process: a read names its version (None: the newest), and only bytes and numbers are shared.

    Backend        embedded.EmbeddedBackend (a directory of this process),
                   clients.blocking_backend.BlockingBackend (over any AsyncBackend)
    AsyncBackend   embedded.async_backend.CoroutineBackend (a directory of this process),
                   clients.remote_backend.RemoteBackend (one server), clients.cluster_backend.ClusterBackend (a cluster)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from logdb.api.results import Change, Compacted
from logdb.store.key_map import Rows
from logdb.store.ranges import ScanRange
from logdb.store.records import Condition, TxnId
from logdb.txn.coordinator import Outcome
from logdb.txn.transaction import Reader, Workspace
from logdb.txn.validation import Verdict

Progress = Callable[[int], None] | None
Written = tuple[int, Verdict]
"""Where a write stands in the log, durable, and how it was decided."""


class ChangeFeed(Protocol):
    """Commits, in order, from a version on."""

    def poll(self, timeout: float | None) -> Change | None:
        """The next commit; None when there was none within `timeout` seconds (None: wait) or the feed was closed.

        Raises VersionTrimmed, Corruption, Unavailable.
        """

    def close(self) -> None:
        """End the feed: who waits in it returns."""


class Backend(Protocol):
    """A database, for threads. Every verb raises DatabaseClosed, Unavailable; reads VersionTrimmed, Corruption.

    `forked_from`: in a child of fork(), where it is closed, the process that opened it; else 0.
    """

    @property
    def path(self) -> str:
        """The directory, ":memory:", or the servers' addresses."""

    @property
    def closed(self) -> bool: ...
    @property
    def forked_from(self) -> int: ...
    @property
    def read_only(self) -> bool: ...

    @property
    def session(self) -> int:
        """The newest version that was seen through this backend."""

    def version(self) -> int:
        """The newest version that is durable."""

    def oldest(self) -> int:
        """The oldest version that can be read."""

    def at(self, version: int) -> int:
        """`version`, if it can be read. Raises VersionTrimmed, FutureVersion."""

    def at_time(self, when: int) -> int:
        """The newest version not younger than `when` (ns since the epoch). Raises VersionTrimmed, FutureVersion."""

    def time_of(self, version: int) -> int | None:
        """When `version` was written, ns since the epoch; None if its record was compacted away. Raises as `at`."""

    def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key` at a version."""

    def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """(the version read, those of `keys` that exist with their values)."""

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Rows]:
        """Batches, none of them empty, of (key, value) of [start, end), in order; `at` None: of what is newest now.

        `limit`: more rows than that will not be asked for.
        """

    def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of each range, in order, all of one snapshot."""

    def history(self, key: bytes, at: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        """(version, value) of `key` from a version back to the oldest that is left, newest first."""

    def new_txn_id(self) -> TxnId:
        """An id that no transaction has."""

    def write(
        self, writes: Mapping[bytes, bytes | None], label: str = "", conditions: Sequence[Condition] = ()
    ) -> Written:
        """Write all if all conditions hold. Raises OutcomeUnknown, ReadOnly, LimitExceeded."""

    def begin_work(self, work: Workspace) -> Reader:
        """Give a transaction its snapshot, and what reads it; it stays readable until `end` or `commit`.

        Where that takes a journey, the snapshot may be taken with the first read, and is 0 until then.
        """

    def end(self, holder: object) -> None:
        """Let go of a transaction's snapshot. Twice is harmless."""

    def commit(self, work: Workspace) -> int:
        """Commit what a transaction that holds a snapshot has read and written: its version, durable.

        Raises ConflictError, VersionTrimmed, OutcomeUnknown, ReadOnly, LimitExceeded.
        """

    def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome:
        """How a transaction ended, as far as that is durable. `settle`: one that the log has nothing of is aborted."""

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> ChangeFeed:
        """The commits after `since` (None: from now on). Raises VersionTrimmed, FutureVersion."""

    def pins(self) -> dict[str, int]:
        """The pinned versions by name."""

    def pin(self, name: str, version: int | None) -> int:
        """Pin a version (None: the newest). Returns it. Raises ValueError, VersionTrimmed, FutureVersion."""

    def unpin(self, name: str) -> None:
        """Raises KeyError."""

    def compact(self, before: int | None, progress: Progress = None) -> Compacted:
        """Drop what only reads before `before` (None: the newest version) could see."""

    def checkpoint(self, progress: Progress = None) -> int:
        """Bring the checkpoint of the map up to date; returns the version that it covers."""

    def close(self) -> None:
        """Make durable what was written and release everything. Raises OutcomeUnknown. Twice is harmless."""


class AsyncChangeFeed(Protocol):
    """As ChangeFeed, for coroutines."""

    async def begun(self) -> None:
        """Return when it is known from which version on it runs. Raises VersionTrimmed, FutureVersion."""

    async def poll(self, timeout: float | None) -> Change | None: ...
    async def close(self) -> None: ...


class AsyncReader(Protocol):
    """What a transaction of coroutines reads with."""

    async def get(self, key: bytes, at: int | None = None) -> bytes | None: ...
    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]: ...
    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]: ...
    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]: ...


class AsyncBackend(Protocol):
    """As Backend, for the coroutines of one event loop. A plain function acts when it is called."""

    @property
    def path(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def forked_from(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def session(self) -> int: ...
    async def version(self) -> int: ...
    async def oldest(self) -> int: ...
    async def at(self, version: int) -> int: ...
    async def at_time(self, when: int) -> int: ...
    async def time_of(self, version: int) -> int | None: ...
    async def get(self, key: bytes, at: int | None = None) -> bytes | None: ...
    async def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]: ...
    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Rows]: ...
    async def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]: ...
    def history(self, key: bytes, at: int | None = None) -> AsyncIterator[tuple[int, bytes | None]]: ...
    def new_txn_id(self) -> TxnId: ...
    def write(
        self, writes: Mapping[bytes, bytes | None], label: str = "", conditions: Sequence[Condition] = ()
    ) -> Awaitable[Written]: ...
    async def begin_work(self, work: Workspace) -> AsyncReader: ...
    def end(self, holder: object) -> None: ...
    async def commit(self, work: Workspace) -> int: ...
    async def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome: ...
    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> AsyncChangeFeed: ...
    async def pins(self) -> dict[str, int]: ...
    async def pin(self, name: str, version: int | None) -> int: ...
    async def unpin(self, name: str) -> None: ...
    async def compact(self, before: int | None, progress: Progress = None) -> Compacted: ...
    async def checkpoint(self, progress: Progress = None) -> int: ...
    async def close(self) -> None: ...
