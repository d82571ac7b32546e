"""Checking a database: every byte on disk, and every decision in the log."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from logdb.api.database import Database
from logdb.embedded import EmbeddedBackend
from logdb.embedded.verification.audit import Audit, audit_log
from logdb.embedded.verification.verify import verify_files
from logdb.errors import Corruption, Unavailable
from logdb.system.directories import size_of
from logdb.system.disk import described
from logdb.tables.operations import perform
from logdb.tables.verification import IndexesVerified, verify_tables


class Verified(NamedTuple):
    """The amount of data that `verify` has read, and the damage it has found."""

    bytes_checked: int
    records: int
    keys: int
    damage: list[Corruption]


class Info(NamedTuple):
    """The database at `path`: its newest `version`, the `time_ns` when that was written (ns since the epoch, None if it
    is not known), the `oldest_version` that can be read, and its `pins`.

    Of a directory also, else None: `log_bytes` and `map_bytes`, the size of the log and of the checkpoint's files;
    `garbage`, the share of the log (0 to 1) that a compaction would free at least; `memory_bytes`, what this process
    holds of the map in memory, which no checkpoint has yet.
    """

    path: str
    version: int
    time_ns: int | None
    oldest_version: int
    pins: dict[str, int]
    log_bytes: int | None = None
    map_bytes: int | None = None
    garbage: float | None = None
    memory_bytes: int | None = None


def info(db: Database) -> Info:
    """Sizes and versions of an open database, also one behind endpoints. Raises as `logdb.Database.get`."""
    host = db._host
    version = host.version()
    found = Info(db.path, version, host.time_of(version) if version else None, host.oldest(), host.pins())
    if not isinstance(host, EmbeddedBackend) or host.directory is None:
        return found
    try:
        map_bytes = size_of(host.directory.map_path)
    except OSError as error:
        raise Unavailable(f"{db.path} cannot be read: {described(error)}") from error
    return found._replace(
        log_bytes=host.log.size(),
        map_bytes=map_bytes,
        garbage=host.compactor.garbage,
        memory_bytes=host.machine.coordinator.map.active.size,
    )


def verify(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Verified:
    """Check every byte of a database directory, and its checkpoint against the log. Works while another process writes.

    `progress`: called with the number of bytes checked, and of those to check. Damage in the log needs a backup
    (`logdb.restore`); damage in the checkpoint is repaired by `rebuild`. Raises NotADatabase,
    UnsupportedFormat, Unavailable.
    """
    try:
        return Verified(*verify_files(Path(path), progress))
    except OSError as error:
        raise Unavailable(f"{path} could not be checked: {described(error)}") from error


def verify_indexes(path: str | PathLike[str]) -> IndexesVerified:
    """Check that the indexes of all tables in a database directory have the entries of the rows, and no others.

    Works while another process writes. Raises as `open`.
    """
    backend = EmbeddedBackend.open(Path(path), read_only=True, create=False)
    with Database(backend) as db, db.transaction(read_only=True) as txn:
        return perform(verify_tables(), txn)


def audit(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Decide every commit in the log again and compare.

    `progress`: called with the number of records decided, and of all. Raises as `open`.
    """
    backend = EmbeddedBackend.open(Path(path), read_only=True, create=False)
    try:
        return audit_log(backend, progress)
    finally:
        backend.close()
