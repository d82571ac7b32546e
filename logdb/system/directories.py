"""The directories of LogDB: each has an identity file, and a lock that one process at a time holds.

the identity   format version, the id (16 random bytes) and the fields of its kind, as TOML with a checksum
LOCK           held (flock) by the process that has the directory open for writing, and names it
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import time
import tomllib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import google_crc32c

from logdb.errors import Corruption, DatabaseInUse, NotADatabase, Unavailable, UnsupportedFormat
from logdb.system.disk import Disk, described
from logdb.system.forking import own

LOCK: Final = "LOCK"


class Kind(NamedTuple):
    """A kind of directory. `title`: "a LogDB database"; `identity`: its file's name; `format`: the newest known."""

    title: str
    identity: str
    format: int


class Identity(NamedTuple):
    """The content of an identity file. `fields`: all of it."""

    id: bytes
    fields: Mapping[str, Any]


def prepare(path: Path, kind: Kind, *, create: bool) -> bool:
    """Whether the directory has an identity; if not, it may get one. Raises NotADatabase."""
    if path.exists() and not path.is_dir():
        raise NotADatabase(f"{path} is a file; {kind.title} is a directory")
    if (path / kind.identity).exists():
        return True
    strangers = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    strangers = [name for name in strangers if name not in (LOCK, f"{kind.identity}.tmp")]
    if strangers:
        raise NotADatabase(
            f"{path} is not {kind.title} and not empty (it holds {strangers[0]!r}); give an empty or a new directory"
        )
    if not create:
        raise NotADatabase(f"{path} is not {kind.title}; nothing was created")
    return False


class DirectoryLock:
    """The lock of a directory, which this process holds until `release`, or until the object is freed: Ctrl-C can come
    before the caller has stored it."""

    def __init__(self, path: Path) -> None:
        """Raises DatabaseInUse, OSError."""
        self._fd = -1
        self._fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _take_lock(path, self._fd)
        except BaseException:
            self.__del__()
            raise
        own(self)

    def __del__(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def release(self) -> None:
        """Release the lock. Releasing it twice has no effect."""
        if self._fd >= 0:
            try:
                os.ftruncate(self._fd, 0)
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough: a child may have inherited the descriptor
            finally:
                self.__del__()

    def disown(self, parent: int) -> None:
        """Close the child's descriptor: else the lock would be held for as long as any child lives."""
        self.__del__()


def lock(path: Path) -> DirectoryLock:
    """Make the directory if there is none, and take its lock. Raises DatabaseInUse, Unavailable."""
    try:
        Disk().make_directories(path.absolute())
        return DirectoryLock(path)
    except OSError as error:
        raise _not_written(path, error) from error


def is_locked(path: Path) -> bool:
    """Whether some process has the directory open for writing."""
    try:
        fd = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough, see `DirectoryLock.release`
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def holding_process(path: Path) -> int | None:
    """The PID of the process of this machine that has the directory open for writing; None if there is none, or if it
    has not written its PID yet."""
    if not is_locked(path):
        return None
    try:
        who = json.loads((path / LOCK).read_bytes())
        return int(who["pid"]) if who["host"] == socket.gethostname() else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def size_of(path: Path, prefix: str = "") -> int:
    """The total size in bytes of those files of a directory whose names begin with `prefix`; 0 without the directory.
    Raises OSError."""
    size = 0
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(path) as entries:
            files = [entry for entry in entries if entry.name.startswith(prefix) and entry.is_file()]
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                size += file.stat().st_size
    return size


def identify(path: Path, kind: Kind) -> Identity:
    """Read the identity. Raises NotADatabase, UnsupportedFormat, Corruption."""
    file = path / kind.identity
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        lacks = f"is not {kind.title} (it has no file {kind.identity})"
        raise NotADatabase(f"{path} {lacks if path.exists() else 'does not exist'}") from None
    try:
        fields = tomllib.loads(text.decode())
        version, id = fields["format"], uuid.UUID(fields["id"]).bytes
        if not isinstance(version, int):
            raise TypeError("format is not an integer")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corruption(file, None, f"it does not say what it should ({error})") from error
    if version > kind.format:
        raise UnsupportedFormat(file, version, kind.format)
    if text != _signed(text.rpartition(b"crc32c")[0]):
        raise Corruption(file, None, "it does not match its checksum")
    return Identity(id, fields)


def make_identity(path: Path, kind: Kind, more: Mapping[str, str] | None = None) -> None:
    """Write a new identity; replaces an existing one. Raises Unavailable."""
    fields = {"id": str(uuid.uuid4()), "created": datetime.now(UTC).isoformat(timespec="seconds"), **(more or {})}
    lines = [f"# This is {kind.title}. Do not edit.", f"format = {kind.format}"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    try:
        _write_identity(path / kind.identity, _signed("".join(f"{line}\n" for line in lines).encode()))
    except OSError as error:
        raise _not_written(path / kind.identity, error) from error


def _write_identity(file: Path, text: bytes) -> None:
    staging = file.with_name(f"{file.name}.tmp")
    staging.write_bytes(text)
    with staging.open("rb") as opened:
        os.fsync(opened.fileno())
    os.replace(staging, file)
    for directory in (file.parent, file.parent.absolute().parent):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _not_written(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path} cannot be written: {described(error)}")


def _signed(fields: bytes) -> bytes:
    return fields + b'crc32c = "%08x"\n' % google_crc32c.value(fields)


def _take_lock(path: Path, fd: int) -> None:
    _wait_for_lock(path, fd)
    me = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join([os.path.basename(sys.argv[0]) or "python", *sys.argv[1:]])[:200],
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(me).encode(), 0)


def _wait_for_lock(path: Path, fd: int) -> None:
    for attempts_left in reversed(range(50)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = _holder(os.pread(fd, 4096, 0))
            if holder is not None or not attempts_left:
                raise DatabaseInUse(path, holder or "another process") from None
            # The lock has no PID: its holder is a reader that calls `is_written`, or a writer that will write its PID.
            time.sleep(0.002)


def _holder(text: bytes) -> str | None:
    try:
        who = json.loads(text)
        this = "this process" if who["pid"] == os.getpid() else "process"
        return f"{this} {who['pid']} on {who['host']} ({who['command']}), since {who['since']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
