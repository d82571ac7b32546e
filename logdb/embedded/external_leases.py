"""Files and versions of a database directory that other processes use: one folder in `DIR/exports/` for each need.

A folder's name identifies its owner, `host~pid~started~unique` (the host with its PID namespace: containers may share
a host's name and files, but not its PIDs). `sweep` removes the folders of processes that have ended. A folder may have
two things. *Links* to store files (`snapshot_plan.pin`): compaction unlinks files and never changes durable bytes, so
the writer need not consider links. *A lease*, a file with a version (`ExternalLease`): compaction does not pass that
version; used by readers of records that are still to be written, for which no file exists yet.

Taking a lease and computing how far to compact exclude each other: both lock (flock) the log's folder.

Readers and the writer may be different users, with any umask. All users who may write in the directory may make a
folder here; only its owner may change or remove it (`exports/` is sticky where it has several writers). The writer
must see all leases: folders and leases are readable for all who may enter the directory, and a compaction does not
begin while one cannot be read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from google_crc32c import value

from logdb.errors import Corruption, Unavailable
from logdb.system.disk import described
from logdb.system.forking import forked_text, own

FOLDER: Final = "exports"
FOREIGN_S: Final = 7 * 86_400
"""Age at which the folder of another machine is swept: whether its owner is alive cannot be checked from here."""
_LEASE: Final = "hold"
_LOG: Final = "log"
_FOLDER_RIGHTS: Final = 0o755
_LEASE_RIGHTS: Final = 0o644


class LeaseOwner(NamedTuple):
    """The process whose end ends a lease. `started` distinguishes it from a later process with the same PID."""

    host: str
    pid: int
    started: int


def process_owner(pid: int) -> LeaseOwner:
    """The process `pid` of this machine."""
    return LeaseOwner(_here(), pid, _started(pid))


def is_alive(owner: LeaseOwner) -> bool | None:
    """Return whether a process of this machine lives; None if it is of another machine."""
    if owner.host != _here():
        return None
    try:
        return _started(owner.pid) == owner.started
    except ProcessLookupError:
        return _is_of_another_user(owner.pid)


def make_folder(path: Path, owner: LeaseOwner) -> Path:
    """Make a folder for a need of `owner`. Raises FileNotFoundError if another one was removed meanwhile (try again),
    Unavailable.
    """
    make_parent(path)
    folder = path / FOLDER / f"{owner.host}~{owner.pid}~{owner.started}~{uuid.uuid4().hex}"
    try:
        folder.mkdir(_FOLDER_RIGHTS)
        with _opened(folder) as fd:
            _add_rights(fd, _FOLDER_RIGHTS)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _not_made(folder, error) from error
    return folder


def make_parent(path: Path) -> None:
    """Make the folder of the needs in the directory `path`, if there is none. Raises FileNotFoundError as
    `make_folder`, Unavailable."""
    parent = path / FOLDER
    try:
        parent.mkdir(_FOLDER_RIGHTS)
        with _opened(parent) as fd:
            directory = path.stat()
            with contextlib.suppress(OSError):  # as by a user who is not in its group
                os.fchown(fd, directory.st_uid if os.geteuid() == 0 else -1, directory.st_gid)
            others = directory.st_mode & stat.S_IWOTH
            same_group = os.fstat(fd).st_gid == directory.st_gid
            writers = others | (directory.st_mode & stat.S_IWGRP if same_group else others << 3)
            _add_rights(fd, _FOLDER_RIGHTS | writers | (stat.S_ISVTX if writers else 0))
    except FileExistsError:
        return
    except FileNotFoundError as error:
        if path.exists():
            raise
        raise Unavailable(f"{path} was moved or removed") from error
    except OSError as error:
        raise _not_made(parent, error) from error


def remove_folder(folder: Path) -> None:
    """Remove the folder of a need. Removing it twice has no effect."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # others have folders there
        os.rmdir(folder.parent)


def sweep(path: Path) -> int:
    """Remove the folders whose owners have ended. Returns their number."""
    swept = 0
    with contextlib.suppress(Unavailable):  # what cannot be listed stays
        for folder in _folders(path):
            if not _is_alive(folder):
                shutil.rmtree(folder, ignore_errors=True)
                swept += 1
    return swept


def external_needs(path: Path) -> int:
    """The number of needs of other processes for files or versions of the directory `path`. Raises Unavailable."""
    return sum(1 for folder in _folders(path) if _is_alive(folder))


class ExternalLease:
    """Compaction does not pass `version` until this is closed. `move` changes the version."""

    def __init__(self, path: Path, version: int, owner: LeaseOwner) -> None:
        """Waits for a compaction in progress; the caller must then check whether `version` can still be read."""
        self._forked_from = 0
        while True:
            with _locked(path, fcntl.LOCK_SH):
                try:
                    self._folder = make_folder(path, owner)
                    self.move(version)
                    own(self)
                    return
                except FileNotFoundError:
                    continue

    def move(self, version: int) -> None:
        """Keep another version instead. Raises Unavailable in a child of fork()."""
        if self._forked_from:
            raise Unavailable(f"the lease was {forked_text(self._forked_from)}")
        staging = self._folder / f"{_LEASE}.tmp"
        with open(staging, "wb", opener=_make_lease) as file:
            file.write(_signed(version))
        os.replace(staging, self._folder / _LEASE)

    def close(self) -> None:
        """End the lease. Ending it twice, or in a child of fork(), has no effect."""
        if not self._forked_from:
            remove_folder(self._folder)

    def disown(self, parent: int) -> None:
        """In a child of fork(): the lease stays with the parent."""
        self._forked_from = parent


@contextlib.contextmanager
def leased_versions(path: Path) -> Iterator[list[int]]:
    """The versions that processes lease; no new lease is granted until the block ends. Raises Corruption; Unavailable
    if there may be a lease that this process cannot read."""
    with _locked(path, fcntl.LOCK_EX):
        found = []
        for folder in _folders(path):
            if _is_alive(folder):
                with contextlib.suppress(FileNotFoundError):
                    found.append(_leased_version(folder / _LEASE))
        yield found


def _folders(path: Path) -> list[Path]:
    """The folders of needs. Raises Unavailable."""
    parent = path / FOLDER
    try:
        return [parent / name for name in os.listdir(parent) if name.count("~") >= 3]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unavailable(f"what other processes need cannot be listed: {described(error)}") from error


def _not_made(folder: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{folder} cannot be made ({error.strerror}); reading needs it to keep the files in use")


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _make_lease(file: str, flags: int) -> int:
    fd = os.open(file, flags | os.O_CLOEXEC, _LEASE_RIGHTS)
    try:
        _add_rights(fd, _LEASE_RIGHTS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _add_rights(fd: int, rights: int) -> None:
    """Give a file or folder that this process has made the rights that its umask has withheld."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & rights != rights:
        os.fchmod(fd, mode | rights)


def _signed(version: int) -> bytes:
    text = b"%d" % version
    return b"%b %08x" % (text, value(text))


def _leased_version(file: Path) -> int:
    """Raises Corruption, FileNotFoundError, Unavailable."""
    host, pid, *_ = file.parent.name.split("~")
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(
            f"the version that another process needs cannot be read: {described(error)}; else end process {pid} of "
            f"{host}, or remove {file.parent}"
        ) from error
    text = content.partition(b" ")[0]
    if not text.isdigit() or content != _signed(int(text)):
        what = f"it does not name the version that process {pid} of {host} needs; end it or remove {file.parent}"
        raise Corruption(file, None, what)
    return int(text)


@contextlib.contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    try:
        fd = os.open(path / _LOG, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(f"the leases in {path} cannot be locked: {described(error)}") from error
    try:
        fcntl.flock(fd, kind)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough: a child may have inherited the descriptor
        os.close(fd)


def _is_alive(folder: Path) -> bool:
    host, pid, started, _ = folder.name.split("~", 3)
    try:
        alive = is_alive(LeaseOwner(host, int(pid), int(started)))
    except ValueError:
        return False
    if alive is None:
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime < FOREIGN_S
        return True
    return alive


def _here() -> str:
    """The host and PID namespace in which a PID is valid."""
    return f"{socket.gethostname()}-{os.stat('/proc/self/ns/pid').st_ino}"


def _is_of_another_user(pid: int) -> bool:
    """Whether this process may not see the process `pid`, which is there: /proc may be mounted with `hidepid`."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False


def _started(pid: int) -> int:
    """When a process of this machine started, in ticks since boot. Raises ProcessLookupError."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    return int(fields[19])
