"""The files of a map's directory, and every operation on them.

run-<number>.mdb   a run (`runs.py`): an LMDB file, written once, then only read.
RUNS               the manifest (`manifest.py`): which runs there are. Its replacement is the only commit point.

A run that the manifest does not name is of no use: it is removed when the map is next opened for writing. A reader
that has a removed run open reads on, as the system keeps the file until it is closed.

All but what LMDB itself writes goes through the `Disk` of the log, so that tests can cut it, lose it or tear it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from pathlib import Path
from typing import Any, Final

import lmdb
from lmdb import _envid

from logdb.store.map_verifier import Written, crc_of
from logdb.system.disk import Disk
from logdb.system.forking import keep_for_ever

MANIFEST: Final = "RUNS"
STAGING: Final = "RUNS.new"
OLD_FORMAT: Final = ("data.mdb", "lock.mdb")
RUN_NAME: Final = re.compile(r"run-(\d+)\.mdb")
TABLES: Final = (b"rows", b"older", b"state")
LEAST_MAP_BYTES: Final = 1 << 20


class OpenRun:
    """An LMDB environment for reading and its tables; it is closed when the last reference is gone."""

    __slots__ = ("__weakref__", "env", "older", "rows", "state")

    def __init__(self, env: Any) -> None:
        self.env = env
        self.rows, self.older, self.state = (env.open_db(name, create=False) for name in TABLES)


class MapFiles:
    """The files in one directory. All methods raise OSError; `create`, `open` and environments raise lmdb.Error."""

    def __init__(self, path: str, disk: Disk | None = None) -> None:
        self.path, self._disk = path, disk or Disk()
        self._directory = Path(path)

    def make_directory(self) -> None:
        """Make the directory if it is not there."""
        self._disk.make_directory(self._directory)

    def read_manifest(self) -> bytes | None:
        """The manifest, None if there is none."""
        try:
            return (self._directory / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None

    def replace_manifest(self, content: bytes) -> None:
        """Put another manifest in the place of the one that is there. It is durable when this returns."""
        staging, disk = self._directory / STAGING, self._disk
        self._unlink(STAGING)
        fd = disk.create(staging)
        try:
            disk.write(fd, content, 0)
            disk.sync(fd)
        finally:
            disk.close(fd)
        disk.rename(staging, self._directory / MANIFEST)
        disk.sync_directory(self._directory)

    def create(self, number: int, map_bytes: int) -> Any:
        """An LMDB environment for writing a new run. Nothing of it is durable before `sync`."""
        self.remove(number)
        return lmdb.open(
            self.run_path(number),
            subdir=False,
            map_size=max(map_bytes, LEAST_MAP_BYTES),
            max_dbs=len(TABLES),
            sync=False,
            metasync=False,
            lock=False,
        )

    def make_room(self, number: int, size: int) -> None:
        """Reserve so many bytes behind a run. LMDB calls it an input/output error when a disk is full; this tells."""
        fd = self._disk.open(Path(self.run_path(number)), writable=True)
        try:
            self._disk.allocate(fd, self._disk.size(fd), size)
        finally:
            self._disk.close(fd)

    def sync(self, number: int) -> None:
        """Make a run whose environment is closed durable, its name included."""
        fd = self._disk.open(Path(self.run_path(number)), writable=False)
        try:
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.sync_directory(self._directory)

    def measure(self, number: int) -> Written:
        """What there is to know of a run whose environment is closed."""
        path = Path(self.run_path(number))
        return Written(path.stat().st_size, crc_of(path))

    def open(self, number: int) -> OpenRun:
        """A run for reading, shared by all who read it in this process."""
        return _share(self.run_path(number))

    def numbers(self) -> list[int]:
        """The numbers of the runs that are there, named in the manifest or not."""
        with contextlib.suppress(FileNotFoundError):
            return [int(found[1]) for name in os.listdir(self.path) if (found := RUN_NAME.fullmatch(name))]
        return []

    def remove(self, number: int) -> None:
        """Remove a run. Readers that have it open read on."""
        self._unlink(run_name(number))

    def has_old_format(self) -> bool:
        """Whether there is a map of an earlier version of LogDB."""
        return os.path.exists(os.path.join(self.path, OLD_FORMAT[0]))

    def remove_old_format(self) -> None:
        """Remove what earlier versions of LogDB have left, and a manifest that was not finished."""
        for name in (*OLD_FORMAT, STAGING):
            self._unlink(name)

    def run_path(self, number: int) -> str:
        return os.path.join(self.path, run_name(number))

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(self._directory / name)


def run_name(number: int) -> str:
    """The file of a run."""
    return f"run-{number}.mdb"


_open_runs: dict[tuple[int, int], weakref.ref[OpenRun]] = {}
"""By device and inode: py-lmdb opens a file once in a process. Without callbacks: Ctrl-C that comes in one is lost."""
_opening = threading.Lock()


def _share(path: str) -> OpenRun:
    with _opening:
        status = os.stat(path)
        file = status.st_dev, status.st_ino
        known = _open_runs.get(file)
        run = None if known is None else known()
        if run is None:
            for gone in [key for key, ref in _open_runs.items() if ref() is None]:
                del _open_runs[gone]
            try:
                env = lmdb.open(
                    path,
                    subdir=False,
                    readonly=True,
                    create=False,
                    lock=False,
                    max_dbs=len(TABLES),
                    map_size=status.st_size,
                    max_spare_txns=16,
                )
            except lmdb.Error:
                os.stat(path)  # raises FileNotFoundError where a merge has removed the run meanwhile
                raise
            run = OpenRun(env)
            _open_runs[file] = weakref.ref(run)
        return run


def _begin_in_child() -> None:
    """In a child of fork(): a run that the parent has open can be read on, as it is never locked or changed.

    One that a thread of the parent was just opening or writing is open in no thread of the child, and may be opened
    here, though py-lmdb has it in its list.
    """
    global _opening  # noqa: PLW0603 - a thread of the parent may hold it
    _opening = threading.Lock()
    keep_for_ever([ref() for ref in _open_runs.values()])
    identities: Any = _envid.env_keys
    child = os.getpid()

    def identities_here(path: Any, subdir: bool) -> tuple[tuple[Any, ...], ...]:
        return tuple((child, *key) for key in identities(path, subdir))

    _envid.env_keys = identities_here


os.register_at_fork(after_in_child=_begin_in_child)
