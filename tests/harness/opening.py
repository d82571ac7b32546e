"""Opening a database in a directory with small segments, small checkpoints, or a disk that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import logdb
import logdb.aio
from logdb.embedded import EmbeddedHost
from logdb.embedded.coroutines import CoroutineHost


def open_database(
    path: Path,
    *,
    read_only: bool = False,
    overlay_bytes: int = 1 << 20,
    compact_above: float | None = None,
    **log_options: Any,
) -> logdb.Database:
    host = EmbeddedHost.open(
        path,
        read_only=read_only,
        create=not read_only,
        overlay_bytes=overlay_bytes,
        compact_above=compact_above,
        log_options=log_options,
    )
    return logdb.Database(host)


def host_of(db: logdb.Database) -> EmbeddedHost:
    """What is behind a database of this process."""
    assert isinstance(db._host, EmbeddedHost)
    return db._host


def checkpointed(db: logdb.Database) -> EmbeddedHost:
    """When the checkpoint under way, if there is one, has ended."""
    host = host_of(db)
    assert host._checkpointer is not None
    host._checkpointer.join()
    return host


def settled(db: logdb.Database) -> EmbeddedHost:
    """After a checkpoint, and when the compaction that garbage asks for has ended."""
    db.checkpoint()
    host = checkpointed(db)
    host.look_at_garbage()
    if host._compacting is not None:
        host._compacting.join()
    return host


def on_coroutines(db: logdb.Database) -> logdb.aio.Database:
    """The same database for the event loop that runs."""
    return logdb.aio.Database(CoroutineHost(host_of(db)))
