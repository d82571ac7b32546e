"""Where tasks leave for each other what they have made of the log: folders that can be made again at any time.

Of a directory they stand in `DIR/exports/`, which all executors see; of servers on each machine in
`logdb-spark-UID/` among the temporary files, or in the directory that the option `scratch` names. Only this user may
enter them: what is there already must be a directory, no link, of this user, that nobody else can write to.

All DataFrames of one version of a database share a folder. Who works with it locks it (flock, shared), so whether it
is in use can be told in any container and on any machine that shares the file system. A folder that nobody has used
for `IDLE_S` goes when another one is made beside it; those of exports and streams go when these have ended.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from logdb.embedded.holds import FOLDER
from logdb.embedded.plan import Plan
from logdb.errors import Unavailable

IDLE_S: Final = 600.0
PREFIX: Final = "runs-"
_LOCK: Final = "in-use"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def folder_of(plan: Plan) -> Path:
    """The folder for a plan of a directory."""
    parts = [(part.first, part.end) for part in plan.parts]
    return Path(plan.path) / FOLDER / named(plan.log_id, plan.floor, parts)


def named(*of: object) -> str:
    """The name of the folder for something."""
    return f"{PREFIX}{hashlib.blake2b(repr(of).encode(), digest_size=16).hexdigest()}"


def fresh() -> str:
    """A name that no other folder has."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def base(scratch: str | None) -> Path:
    """Where folders for servers stand on this machine."""
    return Path(scratch or tempfile.gettempdir()) / f"logdb-spark-{os.geteuid()}"


@contextmanager
def used(folder: Path) -> Iterator[None]:
    """Nobody removes the folder, which is made if it is not there, before the end of the block. Raises Unavailable."""
    lock = _locked(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            os.utime(lock)
        os.close(lock)


@contextmanager
def temporary(folder: Path) -> Iterator[None]:
    """As `used`; the folder goes at the end of the block, unless others use it."""
    try:
        with used(folder):
            yield
    finally:
        remove(folder)


def remove(folder: Path, *, idle_s: float = 0.0) -> None:
    """Remove a folder, unless it is in use, or has been in the last seconds."""
    with suppress(FileNotFoundError, NotADirectoryError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not idle_s or time.time() - os.fstat(lock).st_mtime > idle_s:
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
    with suppress(OSError):  # others have folders there
        os.rmdir(folder.parent)


def private(folder: Path) -> bool:
    """Make a directory that only this user can enter, whether or not it is there; returns whether it was not. Raises
    Unavailable if what is there is something else, or another user's."""
    try:
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


def _locked(folder: Path) -> int:
    while True:
        if folder.parent.name != FOLDER:
            private(folder.parent)
        is_new = private(folder)
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # removed meanwhile
            continue
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(folder / _LOCK), os.fstat(lock)):
                break
        os.close(lock)
    if is_new:
        for other in folder.parent.glob(f"{PREFIX}*"):
            if other != folder:
                remove(other, idle_s=IDLE_S)
    return lock
