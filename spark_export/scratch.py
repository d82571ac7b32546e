"""Scratch folders, in which tasks store results for other tasks; they can be made again from the log.

Those of a directory are in `DIR/exports/`, which all executors see; those of servers in `logdb-spark-UID/` on each
machine, among the temporary files or in the directory of the option `scratch`. Only this user may enter them: what is
there already must be a directory, not a link, owned by this user, and not writable by others.

All plans of one version of a database share a folder. A task locks the folder (flock, shared) while it works there,
which any container and any machine that shares the file system can see. An application leaves its mark in each folder
that its tasks use. A folder without a lock is removed

- when all applications with a mark have ended: by the last of them, or if that was killed, when the next folder is made
  beside it;
- when it has been idle for `IDLE_S` and the next folder is made beside it: its application may still run, and makes the
folder again if it needs it; - by the export or the stream for which it was made, at its end.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from logdb.embedded.external_leases import FOLDER, make_parent
from logdb.errors import Unavailable
from spark_export.application import Application

IDLE_S: Final = 600.0
PREFIX: Final = "runs-"
_LOCK: Final = "in-use"
_MARK: Final = "application~"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

HasEnded = Callable[[Application], bool]


def named(*of: object) -> str:
    """The name of the folder for some content."""
    return f"{PREFIX}{hashlib.blake2b(repr(of).encode(), digest_size=16).hexdigest()}"


def fresh() -> str:
    """A name that no other folder has."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def base(scratch: str | None) -> Path:
    """The parent of the folders for servers on this machine."""
    return Path(scratch or tempfile.gettempdir()) / f"logdb-spark-{os.geteuid()}"


@contextmanager
def used(folder: Path, application: Application) -> Iterator[None]:
    """Make the folder if it is missing, mark it for an application, and keep it for the block. Raises Unavailable."""
    lock = _lock(folder, application)
    try:
        yield
    finally:
        with suppress(OSError):
            os.utime(lock)
        os.close(lock)


def remove(folder: Path) -> None:
    """Remove a folder unless it is in use."""
    _remove_if(folder, lambda: True)


def sweep(parent: Path, has_ended: HasEnded) -> None:
    """Remove the folders whose applications have all ended, and those that are idle."""
    for folder in parent.glob(f"{PREFIX}*"):
        remove_ended(folder, has_ended)


def sweep_base(has_ended: HasEnded) -> None:
    """`sweep` the folders for servers among the temporary files, if there are some of this user."""
    parent = base(None)
    with suppress(Unavailable):
        if parent.exists():
            private(parent)
            sweep(parent, has_ended)


def remove_ended(folder: Path, has_ended: HasEnded, *, idle_s: float = IDLE_S) -> None:
    """Remove a folder if all of its applications have ended, or if it has been idle for `idle_s`."""

    def is_removable() -> bool:
        marks = list(folder.glob(f"{_MARK}*"))
        ended = [mark for mark in marks if has_ended(Application.parse(mark.name.removeprefix(_MARK)))]
        for mark in ended:
            mark.unlink()
        is_idle = time.time() - (folder / _LOCK).stat().st_mtime > idle_s
        return is_idle or (bool(marks) and len(ended) == len(marks))

    _remove_if(folder, is_removable)


def _remove_if(folder: Path, is_removable: Callable[[], bool]) -> None:
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # PermissionError: it is of another user
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_of(folder, lock) and is_removable():
                removed = folder.with_name(fresh())  # a task that waits for the lock makes another folder
                os.rename(folder, removed)
                shutil.rmtree(removed, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
    with suppress(OSError):  # other folders are there
        os.rmdir(folder.parent)


def private(folder: Path) -> bool:
    """Make a directory that only this user can enter, whether or not it is there; returns whether it was not. Raises
    Unavailable if there is something else, or the directory of another user."""
    try:
        if folder.parent.name == FOLDER:
            make_parent(folder.parent.parent)
        else:
            folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(folder, stat.S_IRWXU)
            return True
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # removed meanwhile
        return private(folder)
    except OSError as error:
        raise Unavailable(
            f"{folder} cannot be used for temporary files ({error.strerror}): it must be a directory of this "
            "user; remove it, or name another one (TMPDIR, or the option scratch)"
        ) from error
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise Unavailable(
                f"{folder} belongs to another user, or others can write to it: remove it, or name another directory "
                "for temporary files (TMPDIR, or the option scratch)"
            )
        if found.st_mode & _OTHERS:
            os.fchmod(fd, stat.S_IRWXU)
    finally:
        os.close(fd)
    return False


def _lock(folder: Path, application: Application) -> int:
    """A shared lock on the folder, which has a mark of the application."""
    while True:
        if folder.parent.name != FOLDER:
            private(folder.parent)
        is_new = private(folder)
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # removed meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_of(folder, lock):
                (folder / f"{_MARK}{application}").touch()
                if is_new:
                    sweep(folder.parent, lambda other: other.has_ended(application))
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _is_of(folder: Path, lock: int) -> bool:
    """Whether a lock is that of the folder, which may have been removed, and made again, before it was locked."""
    try:
        return os.path.samestat(os.stat(folder / _LOCK), os.fstat(lock))
    except FileNotFoundError:
        return False
