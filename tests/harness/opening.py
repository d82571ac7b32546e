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


def on_coroutines(db: logdb.Database) -> logdb.aio.Database:
    """The same database for the event loop that runs."""
    assert isinstance(db._host, EmbeddedHost)
    return logdb.aio.Database(CoroutineHost(db._host))
