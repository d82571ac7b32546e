"""The backend interface under both faces: the verbs of a database, in this process or in another.

`database.py` and `aio.py` check arguments and call these verbs, each of which is one request and one response. A
backend may be in another process: a read names its version (None: the newest), and only bytes and numbers are shared.

    Backend        embedded.EmbeddedBackend (a directory of this process),
                   clients.blocking_backend.BlockingBackend (over any AsyncBackend)
    AsyncBackend   embedded.async_backend.CoroutineBackend (a directory of this process),
                   clients.remote_backend.RemoteBackend (one server), clients.cluster_backend.ClusterBackend (a cluster)

The signature of a verb is written once, in `Backend`: `AsyncBackend` derives its verbs from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from logdb.api.results import Change, Compacted
from logdb.store.records import Condition, Fold, Range, TxnId
from logdb.txn.coordinator import Outcome
from logdb.txn.transaction import Reader, Workspace
from logdb.txn.validation import Verdict

P = ParamSpec("P")
T = TypeVar("T")

Progress = Callable[[int], None] | None
Written = tuple[int, Verdict]
"""The version of a write in the log, durable, and its decision."""


class ChangeFeed(Protocol):
    """Commits, in order, from a version on."""

    def poll(self, timeout: float | None) -> Change | None:
        """The next commit; None when there was none within `timeout` seconds (None: wait) or the feed was closed.

        Raises VersionTrimmed, Corruption, Unavailable.
        """

    def close(self) -> None:
        """End the feed; a waiting `poll` returns None."""


class Backend(Reader, Protocol):
    """A database, for threads. Every verb raises DatabaseClosed, Unavailable; reads VersionTrimmed, Corruption.

    `get`, `multi_get`, `scan` and `multi_scan` are those of `Reader`. `forked_from`: in a child of fork(), where the
    backend is closed, the process that opened it; else 0.
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

    def history(self, key: bytes, at: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        """(version, value) of `key` from a version back to the oldest that is left, newest first."""

    def new_txn_id(self) -> TxnId:
        """A transaction id that has not been used."""

    def write(
        self,
        writes: Mapping[bytes, bytes | None],
        label: str = "",
        conditions: Sequence[Condition] = (),
        deletes: Sequence[Range] = (),
        appended: int = 0,
        folds: Sequence[Fold] = (),
    ) -> Written:
        """Delete the ranges `deletes`, write all and make `folds` if all conditions hold. The keys of the last
        `appended` of `writes` are of `records.unversioned_key`, and get the version of the commit. Raises
        OutcomeUnknown, ReadOnly, LimitExceeded, NotANumber."""

    def begin_work(self, work: Workspace) -> Reader:
        """Set a transaction's snapshot, and return its reader; the snapshot stays readable until `end` or `commit`.

        A remote backend may take the snapshot with the first read; `snapshot` is 0 until then.
        """

    def end(self, holder: object) -> None:
        """End the lease on a transaction's snapshot. Ending it twice has no effect."""

    def commit(self, work: Workspace) -> int:
        """Commit the reads and writes of a transaction. Returns its version, which is durable.

        Raises ConflictError, VersionTrimmed, OutcomeUnknown, ReadOnly, LimitExceeded, NotANumber.
        """

    def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome:
        """How a transaction ended, as far as that is durable. `settle`: abort it if the log has no record of it."""

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> ChangeFeed:
        """The commits after `since` (None: from now on). Raises VersionTrimmed, FutureVersion."""

    def pins(self) -> dict[str, int]:
        """The pinned versions by name."""

    def measures(self) -> dict[str, Any]:
        """Numbers about the database in the process that answers, by name (`logdb/txn/measures.py`)."""

    def pin(self, name: str, version: int | None) -> int:
        """Pin a version (None: the newest). Returns it. Raises ValueError, VersionTrimmed, FutureVersion."""

    def unpin(self, name: str) -> None:
        """Raises KeyError."""

    def compact(self, before: int | None, progress: Progress = None) -> Compacted:
        """Drop the versions that only reads before `before` (None: the newest version) can see."""

    def checkpoint(self, progress: Progress = None) -> int:
        """Bring the checkpoint of the map up to date; returns the version that it covers."""

    def close(self) -> None:
        """Make all writes durable and release all resources. Raises OutcomeUnknown. Closing twice has no effect."""


def _declared(verb: Callable[..., Any]) -> Callable[..., Any]:
    """An abstract verb of the same name."""

    @wraps(verb)
    def declared(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(verb.__name__)

    return abstractmethod(declared)


def _plain(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The verb unchanged: it takes effect when it is called."""
    return _declared(verb)


def _awaited(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """The verb with a result to be awaited."""
    return _declared(verb)


def _iterated(verb: Callable[Concatenate[Any, P], Iterable[T]]) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """The verb with a result for `async for`."""
    return _declared(verb)


class AsyncReader(ABC):  # noqa: B024 - its abstract methods are derived
    """As `Reader`, for coroutines."""

    get = _awaited(Reader.get)
    multi_get = _awaited(Reader.multi_get)
    scan = _iterated(Reader.scan)
    multi_scan = _awaited(Reader.multi_scan)


class AsyncChangeFeed(ABC):
    """As `ChangeFeed`, for coroutines."""

    poll = _awaited(ChangeFeed.poll)
    close = _awaited(ChangeFeed.close)

    @abstractmethod
    async def begun(self) -> None:
        """Return when the version after which the feed runs is known. Raises VersionTrimmed, FutureVersion."""


class AsyncBackend(AsyncReader):
    """As `Backend`, for the coroutines of one event loop."""

    path: str
    read_only: bool

    @property
    @abstractmethod
    def closed(self) -> bool: ...
    @property
    @abstractmethod
    def forked_from(self) -> int: ...
    @property
    @abstractmethod
    def session(self) -> int: ...

    version = _awaited(Backend.version)
    oldest = _awaited(Backend.oldest)
    at = _awaited(Backend.at)
    at_time = _awaited(Backend.at_time)
    time_of = _awaited(Backend.time_of)
    history = _iterated(Backend.history)
    new_txn_id = _plain(Backend.new_txn_id)
    write = _awaited(Backend.write)
    end = _plain(Backend.end)
    commit = _awaited(Backend.commit)
    outcome = _awaited(Backend.outcome)
    pins = _awaited(Backend.pins)
    measures = _awaited(Backend.measures)
    pin = _awaited(Backend.pin)
    unpin = _awaited(Backend.unpin)
    compact = _awaited(Backend.compact)
    checkpoint = _awaited(Backend.checkpoint)
    close = _awaited(Backend.close)

    @abstractmethod
    async def begin_work(self, work: Workspace) -> AsyncReader: ...
    @abstractmethod
    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> AsyncChangeFeed: ...
