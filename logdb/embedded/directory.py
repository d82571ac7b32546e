"""A database directory: what makes it one, and who may write in it.

    LOGDB      the identity: format version and the id of the log, as TOML
    LOCK       held (flock) by the one process that has the directory open for writing; names it
    log/       the segments (`logdb/log/segments/FORMAT.md`): the truth
    map/       the checkpoint of the key map (LMDB): can be deleted, the log rebuilds it
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import google_crc32c

from logdb.errors import Corruption, DatabaseInUse, NotADatabase, Unavailable, UnsupportedFormat

FORMAT: Final = 1
IDENTITY: Final = "LOGDB"
LOCK: Final = "LOCK"


class Directory:
    """An opened database directory. `log_id`: 16 bytes that every file of its log carries."""

    def __init__(self, path: Path, log_id: bytes, lock_fd: int | None) -> None:
        self.path, self.log_id, self._lock_fd = path, log_id, lock_fd
        self.log_path, self.map_path = path / "log", path / "map"

    @classmethod
    def open(cls, path: Path, *, writable: bool, create: bool = True) -> Directory:
        """Open the directory; for writing, take the lock, and make a database of it if it is empty or missing.

        Raises NotADatabase, UnsupportedFormat, Corruption, DatabaseInUse, Unavailable.
        """
        if not writable:
            return cls(path, _identity(path), None)
        if path.exists() and not path.is_dir():
            raise NotADatabase(f"{path} is a file; a LogDB database is a directory")
        if not (path / IDENTITY).exists():
            strangers = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
            strangers = [name for name in strangers if name not in (LOCK, f"{IDENTITY}.tmp")]
            if strangers:
                raise NotADatabase(
                    f"{path} is not a LogDB database and not empty (it holds {strangers[0]!r}); "
                    "give an empty or a new directory"
                )
            if not create:
                raise NotADatabase(f"{path} is not a LogDB database; nothing was created")
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock_fd = _take_lock(path)
        except OSError as error:
            raise Unavailable(f"{path} cannot be written: {error.strerror or error}") from error
        try:
            if not (path / IDENTITY).exists():
                _make_identity(path)
            return cls(path, _identity(path), lock_fd)
        except BaseException:
            os.close(lock_fd)
            raise

    def is_written(self) -> bool:
        """Whether some process has the directory open for writing."""
        try:
            fd = os.open(self.path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give up the lock."""
        if self._lock_fd is not None:
            os.ftruncate(self._lock_fd, 0)
            os.close(self._lock_fd)
            self._lock_fd = None


def _identity(path: Path) -> bytes:
    file = path / IDENTITY
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        what = "does not exist" if not path.exists() else "is not a LogDB database (it has no file LOGDB)"
        raise NotADatabase(f"{path} {what}") from None
    try:
        fields = tomllib.loads(text.decode())
        version, log_id = fields["format"], uuid.UUID(fields["id"]).bytes
        if not isinstance(version, int):
            raise TypeError("format is no integer")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corruption(file, None, f"it does not say what it should ({error})") from error
    if version > FORMAT:
        raise UnsupportedFormat(file, version, FORMAT)
    if text != _signed(text.rpartition(b"crc32c")[0]):
        raise Corruption(file, None, "it does not match its checksum")
    return log_id


def _make_identity(path: Path) -> None:
    staging = path / f"{IDENTITY}.tmp"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    fields = f'# A LogDB database. Do not edit.\nformat = {FORMAT}\nid = "{uuid.uuid4()}"\ncreated = "{now}"\n'
    staging.write_bytes(_signed(fields.encode()))
    with staging.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(staging, path / IDENTITY)
    for directory in (path, path.absolute().parent):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _signed(fields: bytes) -> bytes:
    return fields + b'crc32c = "%08x"\n' % google_crc32c.value(fields)


def _take_lock(path: Path) -> int:
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for patience in reversed(range(50)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = _holder(os.pread(fd, 4096, 0))
            if holder is not None or not patience:
                os.close(fd)
                raise DatabaseInUse(path, holder or "another process") from None
            # Nobody has signed: a reader that asks `is_written`, or a writer that is about to sign.
            time.sleep(0.002)
    me = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join([os.path.basename(sys.argv[0]) or "python", *sys.argv[1:]])[:200],
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(me).encode(), 0)
    return fd


def _holder(text: bytes) -> str | None:
    try:
        who = json.loads(text)
        this = "this process" if who["pid"] == os.getpid() else "process"
        return f"{this} {who['pid']} on {who['host']} ({who['command']}), since {who['since']}"
    except (ValueError, KeyError, TypeError):
        return None
