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
    **log_options: Any,
) -> logdb.Database:
    host = EmbeddedBackend.open(
        path,
        read_only=read_only,
        create=not read_only,
        overlay_bytes=overlay_bytes,
        compact_above=compact_above,
        log_options=log_options,
    )
    return logdb.Database(host)


def host_of(db: logdb.Database) -> EmbeddedBackend:
    """What is behind a database of this process."""
    assert isinstance(db._host, EmbeddedBackend)
    return db._host


def checkpointed(db: logdb.Database) -> EmbeddedBackend:
    """When the checkpoint under way, if there is one, has ended."""
    host = host_of(db)
    assert host.checkpointer is not None
    host.checkpointer.join()
    return host


def settled(db: logdb.Database) -> EmbeddedBackend:
    """After a checkpoint, and when the compaction that garbage asks for has ended."""
    db.checkpoint()
    host = checkpointed(db)
    host.compactor.look()
    host.compactor.join()
    return host


def on_coroutines(db: logdb.Database) -> logdb.aio.Database:
    """The same database for the event loop that runs."""
    return logdb.aio.Database(CoroutineBackend(host_of(db)))
