"""What keys held at a version, asked of the database's own map: for streams, whose batches are small and many.

A batch of changes learns what was there before from the log before (`changes`), all of it. A stream would read all of
the log for each of its batches; but its version is held, so the map still has it. A worker of Spark's keeps the
database open for its next task, and then follows what has been written meanwhile.
"""

from __future__ import annotations

from itertools import compress
from pathlib import Path

import pyarrow as pa

from logdb.embedded.host import EmbeddedHost
from logdb.errors import LogDBError
from logdb.log.contract import Trimmed
from spark_export.remote import Endpoints, connected
from spark_export.runs import RUN

_HELD = pa.schema([RUN.field(name) for name in ("key", "value", "large")])
_open: dict[str, EmbeddedHost] = {}
"""At most one."""


def held(where: str | Endpoints, version: int, keys: pa.Array, *, with_values: bool) -> pa.Table | None:
    """(key, value, large) of those of `keys` that existed at a version, the value perhaps b"" unless `with_values`;
    None if the map of a directory cannot tell. Raises VersionTrimmed, Unavailable."""
    if isinstance(where, Endpoints):  # of the log before, a plan that follows has nothing
        found = connected(where).held_at(version, keys.to_pylist())
    else:
        try:
            host = _host(where)
            host.at(version)
            named = keys.to_pylist()
            if with_values:
                _, found = host.multi_get(named, at=version)
            else:
                found = [(key, b"") for key in compress(named, host.exist(named, version))]
        except (LogDBError, Trimmed, OSError):  # the log tells, or says what is wrong
            return None
    columns = [[key for key, _ in found], [value for _, value in found], [False] * len(found)]
    return pa.table(columns, schema=_HELD)


def _host(path: str) -> EmbeddedHost:
    if path not in _open:
        for other in list(_open):
            _open.pop(other).close()
        _open[path] = EmbeddedHost.open(Path(path), read_only=True, create=False)
    return _open[path]
