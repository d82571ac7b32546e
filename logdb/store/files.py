"""The files of a map's directory, and every operation on them.

run-<number>.mdb   a run (`runs.py`): an LMDB file, written once, then only read.
RUNS               the manifest (`manifest.py`): the list of runs. Its replacement is the only commit point.

A run that the manifest does not name is removed when the map is next opened for writing. A reader that has a removed
run open can still read it: the system keeps the file until it is closed.

All operations except LMDB's own writes go through the `Disk` of the log, so that tests can cut, lose or tear them.
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

from logdb.store.map_verifier import FileChecksum, crc_of
from logdb.system.disk import Disk
from logdb.system.forking import keep_for_ever

MANIFEST: Final = "RUNS"
STAGING: Final = "RUNS.new"
OLD_FORMAT: Final = ("data.mdb", "lock.mdb")
RUN_NAME: Final = re.compile(r"run-(\d+)\.mdb")
TABLES: Final = (b"rows", b"older", b"state")
MIN_MAP_BYTES: Final = 1 << 20


class OpenRun:
    """An LMDB environment for reading and its tables; it is closed with its last reference."""

    __slots__ = ("__weakref__", "env", "older", "rows", "state")

    def __init__(self, env: Any) -> None:
        self.env = env
        self.rows, self.older, self.state = (env.open_db(name, create=False) for name in TABLES)


class MapFiles:
    """The files in one directory. All methods raise OSError; `create`, `open` and environments raise lmdb.Error."""

    def __init__(self, path: str, disk: Disk | None = None) -> None:
        self.path, self._disk = path, disk or Disk()
        self._directory = Path(path)
        self._identity = (0, 0)

    def make_directory(self) -> None:
        """Create the directory if it does not exist. Must be called before the methods that write."""
        self._disk.make_directory(self._directory)
        self._identity = self._disk.identity(self._directory)

    def read_manifest(self) -> bytes | None:
        """The manifest, None if there is none."""
        try:
            return (self._directory / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None

    def replace_manifest(self, content: bytes) -> None:
        """Replace the manifest. The new one is durable when this returns."""
        staging, disk = self._directory / STAGING, self._disk
        disk.check_identity(self._directory, self._identity)
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
        """An LMDB environment for writing a new run, which is durable after `sync`."""
        self._disk.check_identity(self._directory, self._identity)
        self.remove(number)
        return lmdb.open(
            self.run_path(number),
            subdir=False,
            map_size=max(map_bytes, MIN_MAP_BYTES),
            max_dbs=len(TABLES),
            sync=False,
            metasync=False,
            lock=False,
        )

    def make_room(self, number: int, size: int) -> None:
        """Reserve `size` bytes after the end of a run. Raises the OSError of a full disk, which LMDB reports as an
        input/output error."""
        fd = self._disk.open(Path(self.run_path(number)), writable=True)
        try:
            self._disk.allocate(fd, self._disk.size(fd), size)
        finally:
            self._disk.close(fd)

    def sync(self, number: int) -> None:
        """Make a run and its name durable. Its environment must be closed."""
        fd = self._disk.open(Path(self.run_path(number)), writable=False)
        try:
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.sync_directory(self._directory)

    def measure(self, number: int) -> FileChecksum:
        """Size and checksum of a run. Its environment must be closed."""
        path = Path(self.run_path(number))
        return FileChecksum(path.stat().st_size, crc_of(path))

    def open(self, number: int) -> OpenRun:
        """A run for reading, shared by all readers in this process."""
        return _share(self.run_path(number))

    def numbers(self) -> list[int]:
        """The numbers of the run files in the directory, also of those that the manifest does not name."""
        with contextlib.suppress(FileNotFoundError):
            return [int(found[1]) for name in os.listdir(self.path) if (found := RUN_NAME.fullmatch(name))]
        return []

    def remove(self, number: int) -> None:
        """Remove a run. Readers that have it open read on."""
        self._unlink(run_name(number))

    def has_old_format(self) -> bool:
        """Whether the directory has a map of an earlier version of LogDB."""
        return os.path.exists(os.path.join(self.path, OLD_FORMAT[0]))

    def remove_old_format(self) -> None:
        """Remove the files of earlier versions of LogDB, and an unfinished manifest."""
        for name in (*OLD_FORMAT, STAGING):
            self._unlink(name)

    def run_path(self, number: int) -> str:
        return os.path.join(self.path, run_name(number))

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._disk.identity(self._directory) == self._identity:
                self._disk.unlink(self._directory / name)


def run_name(number: int) -> str:
    """The name of a run's file."""
    return f"run-{number}.mdb"


_open_runs: dict[tuple[int, int], weakref.ref[OpenRun]] = {}
"""By device and inode: py-lmdb opens a file once in a process. The references have no callbacks: a Ctrl-C during one
would be lost."""
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
    """In a child of fork(): runs that the parent has open stay readable, since they are never locked or changed.

    py-lmdb's list may also have a run that a thread of the parent was opening or writing; the child must be able to
    open it, so it lists environments by process.
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
