"""Opening a database in a directory with small segments, small checkpoints, or a disk that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import logdb
from logdb.embedded import EmbeddedHost


def open_database(
    path: Path, *, read_only: bool = False, overlay_bytes: int = 1 << 20, **log_options: Any
) -> logdb.Database:
    host = EmbeddedHost.open(
        path, read_only=read_only, create=not read_only, overlay_bytes=overlay_bytes, log_options=log_options
    )
    return logdb.Database(host)
