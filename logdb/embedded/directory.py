"""A database directory: its identity, and its lock for writing.

LOGDB      the identity: format version and the id of the log, as TOML
LOCK       held (flock) by the one process that has the directory open for writing; names it
log/       the segments (`logdb/log/segments/FORMAT.md`): the truth
map/       the checkpoint of the key map (`logdb/store/files.py`): can be deleted, the log rebuilds it
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from logdb.errors import Unavailable
from logdb.system.directories import LOCK, DirectoryLock, Kind, identify, is_locked, lock, make_identity, prepare
from logdb.system.disk import Disk

__all__ = ["FORMAT", "IDENTITY", "LOCK", "Directory"]

FORMAT: Final = 1
IDENTITY: Final = "LOGDB"
DATABASE: Final = Kind("a LogDB database", IDENTITY, FORMAT)


class Directory:
    """An opened database directory. `log_id`: 16 bytes that every file of its log carries."""

    def __init__(self, path: Path, log_id: bytes, lock: DirectoryLock | None) -> None:
        self.path, self.log_id, self._lock = path.absolute(), log_id, lock  # the current directory may change
        self.log_path, self.map_path = self.path / "log", self.path / "map"
        self._identity = Disk().identity(self.path)

    @classmethod
    def open(cls, path: Path, *, writable: bool, create: bool = True) -> Directory:
        """Open the directory; for writing, take the lock, and make a database of it if it is empty or missing.

        Raises NotADatabase, UnsupportedFormat, Corruption, DatabaseInUse, Unavailable.
        """
        if not writable:
            return cls(path, identify(path, DATABASE).id, None)
        prepare(path, DATABASE, create=create)
        held = lock(path)
        try:
            if not (path / IDENTITY).exists():
                make_identity(path, DATABASE)
            return cls(path, identify(path, DATABASE).id, held)
        except BaseException:
            held.release()
            raise

    def is_written(self) -> bool:
        """Whether some process has the directory open for writing."""
        return is_locked(self.path)

    def check(self) -> None:
        """Raise Unavailable if the directory was moved: the files at its path are not its own."""
        try:
            Disk().check_identity(self.path, self._identity)
        except OSError as error:
            raise Unavailable(
                f"{self.path} was moved or removed while this process has it open: close it, and open it where it"
                " is now"
            ) from error

    def close(self) -> None:
        """Give up the lock."""
        if self._lock is not None:
            self._lock.release()
