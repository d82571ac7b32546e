"""Opening a database."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from logdb.database import Database
from logdb.embedded import EmbeddedHost
from logdb.embedded.directory import Directory
from logdb.errors import Unavailable
from logdb.store.checkpoint import is_open

IN_MEMORY = ":memory:"


def open(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Database:
    """Open the database in a directory, and make one of it if it is new or empty and `create` is true.

    One process writes; any number may open the directory with `read_only` meanwhile and see what has become durable.
    ":memory:" is a database that is gone when it is closed. `progress` hears of the replay: (records done, of how
    many). Raises NotADatabase, DatabaseInUse, UnsupportedFormat, Corruption, Unavailable.
    """
    return Database(open_host(path, read_only=read_only, create=create, progress=progress))


def open_host(
    path: str | PathLike[str],
    *,
    read_only: bool,
    create: bool,
    progress: Callable[[int, int], None] | None = None,
) -> EmbeddedHost:
    """What `open` puts its face on. Raises as `open`."""
    if path == IN_MEMORY:
        if read_only:
            raise ValueError("a database in memory has nothing to read yet: open it for writing")
        return EmbeddedHost.in_memory()
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be a str or a path, not {type(path).__name__}")
    return EmbeddedHost.open(Path(path), read_only=read_only, create=create, progress=progress)


def rebuild(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> int:
    """Throw the checkpoint of a database away and make it anew from the log. Returns the version that it covers.

    Raises as `open`.
    """
    directory = Directory.open(Path(path), writable=True, create=False)
    try:
        if is_open(directory.map_path):
            raise Unavailable(f"this process has {path} open for reading; close it there, then rebuild it")
        shutil.rmtree(directory.map_path, ignore_errors=True)
    finally:
        directory.close()
    with open(path, create=False, progress=progress) as db:
        return db.checkpoint()
