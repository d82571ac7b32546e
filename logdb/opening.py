"""Opening a database, or connecting to one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path

from logdb.cluster.placement import Placement
from logdb.database import Database, HistoryEntry, ShardHistory
from logdb.embedded import EmbeddedHost
from logdb.embedded.directory import Directory
from logdb.errors import Unavailable
from logdb.log.segments.disk import described
from logdb.store.arguments import checked_version
from logdb.store.limits import check_key

IN_MEMORY = ":memory:"
TIMEOUT_S = 10.0
"""How long a call to a server waits for its answer."""


def open(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    compact_above: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Database:
    """Open the database in a directory, and make one of it if it is new or empty and `create` is true.

    One process writes; any number may open the directory with `read_only` meanwhile and see what has become durable.
    ":memory:" is a database that is gone when it is closed. `progress` hears of the replay: (records done, of how
    many).

    `compact_above`: when more than this share of the log is garbage, from 0 to 1, it is compacted in the background, as
    by `Database.compact()`, as soon as it has 64 MiB: then only pinned versions stay readable beside the newest ones.

    Raises NotADatabase, DatabaseInUse, UnsupportedFormat, Corruption, Unavailable.
    """
    return Database(
        open_host(path, read_only=read_only, create=create, compact_above=compact_above, progress=progress)
    )


def connect(
    endpoints: str | Iterable[str],
    *,
    timeout: float = TIMEOUT_S,
    placement: Placement | None = None,
    session: int | None = None,
    ca: str | PathLike[str] | None = None,
    certificate: str | PathLike[str] | None = None,
    certificate_key: str | PathLike[str] | None = None,
    token: str | None = None,
) -> Database:
    """The database that servers answer for, with the same verbs: "HOST:PORT", several with commas between, or a list.

    That is a server of one directory, or any nodes of a cluster, which tell of all others. A call waits `timeout`
    seconds for its answer, whatever becomes of streams and servers meanwhile; then it raises Unavailable, or
    OutcomeUnknown if it may have been carried out.

    `placement`: the shard of a cluster to which what is written to a key goes (`ByPrefix`, `ByHash`, or a function of
    the key; None: any). `session`: plain reads see that version (another client's `Database.session`, or 0) and
    whatever this client has seen; without it they see every commit that anybody has been told of, which is one more
    question to the log.

    `ca`: a file with the certificates of whom to believe (PEM), which makes it TLS. `certificate` and
    `certificate_key`: what to show to a server that asks for it; without the latter it is in the same file. `token`:
    what gives the right to read, to write, or to everything.

    Raises Unavailable, AccessDenied, ProtocolMismatch; ValueError for certificates that cannot be used.
    """
    with cluster_needed():
        from logdb.net.blocking import BlockingHost
        from logdb.net.connecting import connect
        from logdb.net.security.credentials import credentials
        from logdb.net.service.addresses import endpoints_of
    addresses, timeout_s = endpoints_of(endpoints), checked_timeout(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    return Database(BlockingHost.open(connect(addresses, timeout_s, placement, checked_session(session), shown)))


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
    """The history of a key of a cluster, read from any replica of its shard alone, and the version up to which that is
    complete: for when no mapping server answers.

    `placement`: as for `connect`; the cluster must know it. Mapping servers tell the shard every ten seconds or so what
    its own records do not say, so what was committed last may be missing: `through` tells. Reads all transactions of
    the shard. `timeout`: seconds for each answer; the rest as for `connect`. Raises Unavailable if the shard cannot
    tell, AccessDenied, Corruption, ValueError.
    """
    with cluster_needed():
        from logdb.net.loops import in_shared_loop
        from logdb.net.security.credentials import credentials
        from logdb.net.service.addresses import endpoints_of
        from logdb.net.shard_history import read_history
    check_key(key)
    addresses, timeout_s = endpoints_of(endpoints), checked_timeout(timeout)
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    through, entries = in_shared_loop(read_history(addresses, key, placement, timeout_s, shown))
    return ShardHistory(through, [HistoryEntry(*entry) for entry in entries])


@contextlib.contextmanager
def cluster_needed() -> Iterator[None]:
    """Says what to install if an import of what speaks to servers fails."""
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


def checked_session(session: int | None) -> int | None:
    """Raises TypeError, ValueError."""
    return None if session is None else checked_version(session)


def open_host(
    path: str | PathLike[str],
    *,
    read_only: bool,
    create: bool,
    compact_above: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EmbeddedHost:
    """What `open` puts its face on. Raises as `open`."""
    above = checked_share(compact_above)
    if path == IN_MEMORY:
        if read_only:
            raise ValueError("a database in memory has nothing to read yet: open it for writing")
        return EmbeddedHost.in_memory()
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be a str or a path, not {type(path).__name__}")
    try:
        return EmbeddedHost.open(
            Path(path), read_only=read_only, create=create, compact_above=above, progress=progress
        )
    except FileNotFoundError as error:
        raise Unavailable(
            f"{path} is being created or compacted, or a file is missing ({described(error)}): try again, and if it "
            "stays so, ask `logdb verify`"
        ) from error


def rebuild(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> int:
    """Throw the checkpoint of a database away and make it anew from the log. Returns the version that it covers.

    Raises as `open`.
    """
    directory = Directory.open(Path(path), writable=True, create=False)
    try:
        shutil.rmtree(directory.map_path, ignore_errors=True)
    finally:
        directory.close()
    with open(path, create=False, progress=progress) as db:
        return db.checkpoint()
