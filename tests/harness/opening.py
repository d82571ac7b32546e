"""Opening a database in a directory with small segments, small checkpoints, or a disk that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import logdb
import logdb.aio
from logdb.embedded import EmbeddedBackend
from logdb.embedded.async_backend import CoroutineBackend


def open_database(
    path: Path,
    *,
    read_only: bool = False,
    overlay_bytes: int = 1 << 20,
    compact_above: float | None = None,
    cold: str | Path | None = None,
    **log_options: Any,
) -> logdb.Database:
    host = EmbeddedBackend.open(
        path,
        read_only=read_only,
        create=not read_only,
        overlay_bytes=overlay_bytes,
        compact_above=compact_above,
        cold=cold,
        log_options=log_options,
    )
    return logdb.Database(host)


def host_of(db: logdb.Database) -> EmbeddedBackend:
    """The backend of a database of this process."""
    host = db._host
    assert isinstance(host, EmbeddedBackend)
    return host


def checkpointed(db: logdb.Database) -> EmbeddedBackend:
    """The backend, once a checkpoint under way, if any, has ended."""
    host = host_of(db)
    assert host.checkpointer is not None
    host.checkpointer.join()
    return host


def settled(db: logdb.Database) -> EmbeddedBackend:
    """The backend after a checkpoint, once a compaction that garbage requires has ended."""
    db.checkpoint()
    host = checkpointed(db)
    host.compactor.look()
    host.compactor.join()
    return host


def on_coroutines(db: logdb.Database) -> logdb.aio.Database:
    """The same database for the running event loop."""
    return logdb.aio.Database(CoroutineBackend(host_of(db)))
