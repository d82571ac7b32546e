"""Opening a database, or connecting to one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Literal

from logdb.api.database import Database
from logdb.api.results import HistoryEntry, ShardHistory
from logdb.cluster.placement import Placement
from logdb.embedded import EmbeddedBackend
from logdb.embedded.directory import Directory
from logdb.errors import Unavailable
from logdb.named_logs.retention import check_seconds
from logdb.store.arguments import checked_version
from logdb.store.limits import check_key
from logdb.system.disk import described

Consistency = Literal["strict", "session"]
IN_MEMORY = ":memory:"
SWEEP_INTERVAL_S = 10.0
TIMEOUT_S = 10.0
"""How long a call to a server waits for its answer."""


def open(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    compact_above: float | None = None,
    sweep_interval: float | None = SWEEP_INTERVAL_S,
    cold: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Database:
    """Open the database in the directory `path`, and create one there if the directory is missing or empty and `create`
    is true.

    One process writes. Any number of processes may open the directory with `read_only` meanwhile and see what has
    become durable. The path ":memory:" is a database without a directory.

    `compact_above`: a share from 0 to 1. When more than this share of the log is garbage, and the log has 64 MiB, it is
    compacted in the background as by `Database.compact`; then only the newest and pinned versions stay readable. Not in
    memory. `sweep_interval`: the time in seconds between two sweeps, which delete in the background what has expired,
    as `Database.sweep`; None: never. A database without keys or named logs that expire is only looked at.

    `cold`: the cold tier of the database from now on, a directory or a URL of fsspec ("s3://bucket/folder"). Segments
    of the log are copied there before compactions remove them, and older versions are read there. The directory
    remembers it, so later openings need not name it. `progress`: called during the replay with (records done, records
    in all).

    Raises NotADatabase, DatabaseInUse, UnsupportedFormat, Corruption, Unavailable, ReadOnly, TypeError, ValueError;
    ColdTierError; ModuleNotFoundError for a URL without fsspec.
    """
    return Database(
        open_backend(
            path,
            read_only=read_only,
            create=create,
            compact_above=compact_above,
            sweep_interval=sweep_interval,
            cold=cold,
            progress=progress,
        )
    )


def connect(
    endpoints: str | Iterable[str],
    *,
    timeout: float = TIMEOUT_S,
    placement: Placement | None = None,
    session: int | None = None,
    consistency: Consistency | None = None,
    ca: str | PathLike[str] | None = None,
    certificate: str | PathLike[str] | None = None,
    certificate_key: str | PathLike[str] | None = None,
    token: str | None = None,
) -> Database:
    """Connect to the database that servers answer for; it has the same methods as one that `logdb.open` opens.

    `endpoints`: "HOST:PORT", several with commas between, or a list: a server of one directory (`logdb serve`), or any
    servers of a cluster, which name the others. `timeout`: seconds that a call waits for its answer, whatever happens
    to streams and servers meanwhile. Then it raises Unavailable, or OutcomeUnknown if it may have been carried out.

    `placement`: the shard of a cluster for what is written to a key (`logdb.ByPrefix`, `logdb.ByHash`, or a function of
    the key; None: any shard). `consistency`: "strict" (the default): a read sees every commit that was acknowledged to
    any client, which costs a request to the log. "session": a read, or the snapshot of a transaction, sees what this
    client has seen, and may be older than what others have committed. In both, a commit is ordered after every commit
    that had returned. `session`: another client's `Database.session`; reads see at least that version, with
    consistency "session".

    `ca`: a file with the certificates to trust (PEM); it turns on TLS. `certificate`, `certificate_key`: the files of
    the certificate and key to present to a server that requires them; without the second the key is in the first.
    `token`: the client's token.

    Raises Unavailable, AccessDenied, ProtocolMismatch, TypeError; ValueError for arguments or certificates that cannot
    be used; ModuleNotFoundError without the extra `logdb[cluster]`.
    """
    with cluster_needed():
        from logdb.clients.connecting import connect_for_threads
        from logdb.security.credentials import credentials
        from logdb.system.addresses import endpoints_of
    addresses, timeout_s = endpoints_of(endpoints), checked_timeout(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    since = checked_session(session, consistency)
    return Database(connect_for_threads(addresses, timeout_s, placement, since, shown))


def shard_history(
    endpoints: str | Iterable[str],
    key: bytes,
    *,
    placement: Placement,
    timeout: float = TIMEOUT_S,
    ca: str | PathLike[str] | None = None,
    certificate: str | PathLike[str] | None = None,
    certificate_key: str | PathLike[str] | None = None,
    token: str | None = None,
) -> ShardHistory:
    """The history of `key` in a cluster, read from any one replica of its shard, for when no mapping server answers.

    `endpoints`, `ca`, `certificate`, `certificate_key`, `token`: as `logdb.connect`. `placement`: as `logdb.connect`;
    the cluster must know it. `timeout`: seconds for each answer. The result's `through` is the version up to which it
    is complete: about every ten seconds mapping servers write the facts that the shard's records lack. Reads all
    transactions of the shard.

    Raises Unavailable if the shard does not have it, AccessDenied, Corruption, TypeError, ValueError.
    """
    with cluster_needed():
        from logdb.clients.background_loop import in_shared_loop
        from logdb.clients.shard_history import read_history
        from logdb.security.credentials import credentials
        from logdb.system.addresses import endpoints_of
    check_key(key)
    addresses, timeout_s = endpoints_of(endpoints), checked_timeout(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    through, entries = in_shared_loop(read_history(addresses, key, placement, timeout_s, shown))
    return ShardHistory(through, [HistoryEntry(*entry) for entry in entries])


@contextlib.contextmanager
def cluster_needed() -> Iterator[None]:
    """If an import of the block fails because gRPC is missing, raise an error that names the package to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("grpc", "google", "grpc_health", "cryptography"):
            raise
        raise ModuleNotFoundError(
            "servers and their clients need gRPC: pip install 'logdb[cluster]'", name=error.name
        ) from error


def checked_timeout(timeout: float) -> float:
    """Raises TypeError, ValueError."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, not {type(timeout).__name__}")
    if not 0 < timeout < 1e6:
        raise ValueError(f"timeout must be positive, not {timeout}")
    return float(timeout)


def checked_share(share: float | None) -> float | None:
    """Raises TypeError, ValueError."""
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise TypeError(f"compact_above must be a number, not {type(share).__name__}")
    if not 0 < share < 1:
        raise ValueError(f"compact_above must be more than 0 and less than 1, not {share}")
    return float(share)


def checked_session(session: int | None, consistency: Consistency | None) -> int | None:
    """The version that reads must see at least; None: every commit that was acknowledged. Raises TypeError,
    ValueError."""
    if consistency not in (None, "strict", "session"):
        raise ValueError(f'consistency must be "strict" or "session", not {consistency!r}')
    if session is None:
        return 0 if consistency == "session" else None
    if consistency == "strict":
        raise ValueError('session is for consistency="session"; with "strict", reads see every commit anyway')
    return checked_version(session)


def open_backend(
    path: str | PathLike[str],
    *,
    read_only: bool,
    create: bool,
    compact_above: float | None = None,
    sweep_interval: float | None = None,
    cold: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EmbeddedBackend:
    """The backend of a directory or of memory. Raises as `open`."""
    above = checked_share(compact_above)
    if sweep_interval is not None:
        check_seconds("sweep_interval", sweep_interval)
    backend = _opened(path, read_only, create, above, cold, progress)
    if sweep_interval is not None and not read_only:
        backend.sweep_every(sweep_interval)
    return backend


def _opened(
    path: str | PathLike[str],
    read_only: bool,
    create: bool,
    above: float | None,
    cold: str | PathLike[str] | None,
    progress: Callable[[int, int], None] | None,
) -> EmbeddedBackend:
    if path == IN_MEMORY:
        if read_only:
            raise ValueError("a database in memory has nothing to read yet: open it for writing")
        if cold is not None:
            raise ValueError("a database in memory has no segments for a cold tier")
        if above is not None:
            raise ValueError("a database in memory does not compact itself: omit compact_above, and call compact()")
        return EmbeddedBackend.in_memory()
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be a str or a path, not {type(path).__name__}")
    try:
        return EmbeddedBackend.open(
            Path(path), read_only=read_only, create=create, compact_above=above, cold=cold, progress=progress
        )
    except FileNotFoundError as error:
        raise Unavailable(
            f"{path} is being created or compacted, or a file is missing ({described(error)}): try again, and if it "
            "stays so, run `logdb verify`"
        ) from error


def rebuild(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> int:
    """Remove the checkpoint of the database in `path` and make it again from the log. Returns the version that it
    covers.

    `progress`: as `logdb.open`. Raises as `logdb.open`.
    """
    directory = Directory.open(Path(path), writable=True, create=False)
    try:
        shutil.rmtree(directory.map_path, ignore_errors=True)
    finally:
        directory.close()
    with open(path, create=False, progress=progress) as db:
        return db.checkpoint()
