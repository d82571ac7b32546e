"""What other processes need of a database directory, kept from compaction: folders in `DIR/exports/`, one for each
need.

A folder's name says whose it is, `host~pid~started~unique` (the host with its PID namespace, as containers may share a
host's name and its files, but not its PIDs), and a process that has died needs nothing: `sweep` removes
what it has left. Two things can stand in a folder. *Links* to store files (`plan`): compaction unlinks files and never
changes durable bytes, so the writer need not know of them. *A hold*, a file with a version (`ExternalLease`):
compaction does not pass it, which is for those who will want the log that is still to be written, so that there is
nothing to link yet.

While somebody takes a hold nobody decides how far to compact, and the other way round: both lock (flock) the log's
folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from google_crc32c import value

from logdb.errors import Corruption, Unavailable
from logdb.system.forking import forked_text, own

FOLDER: Final = "exports"
FOREIGN_S: Final = 7 * 86_400
"""What another machine needs, of which nobody here can tell whether it lives, is swept when it is this old."""
_HOLD: Final = "hold"
_LOG: Final = "log"


class LeaseOwner(NamedTuple):
    """The process that a need lives as long as; `started` tells it from a later one with its number."""

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
        return False


def make_folder(path: Path, owner: LeaseOwner) -> Path:
    """A new folder for a need of `owner`'s. Raises FileNotFoundError if another one was closed meanwhile: try again;
    Unavailable.
    """
    folder = path / FOLDER / f"{owner.host}~{owner.pid}~{owner.started}~{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(
            f"{folder.parent} cannot be made ({error.strerror}); reading needs it to keep the files in use"
        ) from error
    return folder


def remove_folder(folder: Path) -> None:
    """Need nothing any more. Twice is harmless."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # others have folders there
        os.rmdir(folder.parent)


def sweep(path: Path) -> int:
    """Remove the folders whose owners are gone. Returns how many."""
    swept = 0
    for folder in (path / FOLDER).glob("*~*~*~*"):
        if not _is_alive(folder):
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
    return swept


class ExternalLease:
    """Compaction does not pass `version` while this is held. Move it forward with `move`, end it with `close`."""

    def __init__(self, path: Path, version: int, owner: LeaseOwner) -> None:
        """Waits for a compaction under way, so the caller looks only afterwards whether `version` is still there."""
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
        """Hold another version. Raises Unavailable in a child of fork()."""
        if self._forked_from:
            raise Unavailable(f"the hold was {forked_text(self._forked_from)}")
        staging = self._folder / f"{_HOLD}.tmp"
        staging.write_bytes(_signed(version))
        os.replace(staging, self._folder / _HOLD)

    def close(self) -> None:
        """Hold nothing any more. Twice is harmless; in a child of fork(), too: the hold is its parent's."""
        if not self._forked_from:
            remove_folder(self._folder)

    def disown(self, parent: int) -> None:
        """In a child of fork(): it goes on with its parent."""
        self._forked_from = parent


@contextlib.contextmanager
def held(path: Path) -> Iterator[list[int]]:
    """The versions that processes hold. Nobody takes another hold before the block ends. Raises Corruption."""
    with _locked(path, fcntl.LOCK_EX):
        found = []
        for file in (path / FOLDER).glob(f"*/{_HOLD}"):
            with contextlib.suppress(FileNotFoundError):
                if _is_alive(file.parent):
                    found.append(_held_version(file))
        yield found


def _signed(version: int) -> bytes:
    text = b"%d" % version
    return b"%b %08x" % (text, value(text))


def _held_version(file: Path) -> int:
    """Raises Corruption, FileNotFoundError."""
    content = file.read_bytes()
    text = content.partition(b" ")[0]
    if not text.isdigit() or content != _signed(int(text)):
        owner = file.parent.name.split("~")
        what = f"it does not say which version process {owner[1]} of {owner[0]} holds; end it or remove {file.parent}"
        raise Corruption(file, None, what)
    return int(text)


@contextlib.contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    fd = os.open(path / _LOG, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, kind)
        yield
    finally:
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
    """Where a process can be found by its PID."""
    return f"{socket.gethostname()}-{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> int:
    """When a process of this machine started, in ticks since boot. Raises ProcessLookupError."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    return int(fields[19])
