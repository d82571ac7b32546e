"""The only interface between segments and the operating system's files.

Segments access the disk through a `Disk`, so that tests can pass one that fails, loses unsynced writes, or tears a
write.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
ADVICE = {
    **dict.fromkeys(DISK_FULL, "free some space and try again"),
    errno.EMFILE: "allow this process more open files (ulimit -n)",
    errno.ENFILE: "the whole machine has too many open files",
    errno.ENOMEM: "free some memory, or allow this process more (ulimit -v)",
    errno.EACCES: "have its owner allow it, or run as its owner",
    errno.EPERM: "have its owner allow it, or run as its owner",
    errno.EROFS: "it is on a file system that is mounted read-only",
    errno.ESTALE: "close the database, and open it where it is now",
    errno.EIO: "the disk is failing: look into the kernel's log, and copy what can be read",
}
_OF_CONTENT = (None, errno.EINVAL, errno.ELOOP, errno.EISDIR)
P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate["Disk", int, P], R]


def _naming(method: Method[P, R]) -> Method[P, R]:
    """Add the file's name to the error of a failed call: the system's error for an open file has none."""

    def named(self: Disk, fd: int, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, fd, *args, **kwargs)
        except OSError as error:
            with contextlib.suppress(OSError):
                error.filename = os.readlink(f"/proc/self/fd/{fd}")
            raise

    return named


def is_of_system(error: BaseException) -> bool:
    """Whether the system has failed to read a file. False for errors that libraries raise as OSErrors for wrong content
    (without a number; EINVAL for an offset before the file), and for a link or a directory in the file's place."""
    return isinstance(error, OSError) and error.errno not in _OF_CONTENT


def described(error: OSError) -> str:
    """The message for people: the file, if the error names one, the reason, and what to do."""
    what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    advice = ADVICE.get(error.errno or 0)
    return f"{what}; {advice}" if advice else what


class Disk:
    """Files of the local file system. Every method raises `OSError` when the system call fails, naming the file."""

    def create(self, path: Path) -> int:
        """Create `path` for reading and writing; it must not exist. Returns the file descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open(self, path: Path, *, writable: bool) -> int:
        """Open an existing file. Returns the file descriptor."""
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Close a file descriptor."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Bytes in the file."""
        return os.fstat(fd).st_size

    @_naming
    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        written = os.pwrite(fd, data, offset)
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], offset + written)

    @_naming
    def allocate(self, fd: int, offset: int, length: int) -> None:
        """Reserve zeroed blocks for the range, so that a write in it can neither grow the file nor fill the disk."""
        os.posix_fallocate(fd, offset, length)

    @_naming
    def truncate(self, fd: int, length: int) -> None:
        """Set the file's length."""
        os.ftruncate(fd, length)

    @_naming
    def sync(self, fd: int) -> None:
        """Return when every write to the file is on the medium (fdatasync: size included, timestamps not)."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._sync_names(fd)
        finally:
            os.close(fd)

    @_naming
    def _sync_names(self, fd: int) -> None:
        os.fsync(fd)

    def identity(self, path: Path) -> tuple[int, int]:
        """The device and number of a directory, which it keeps when it is moved. Another one at its path has others."""
        status = os.stat(path)
        return status.st_dev, status.st_ino

    def check_identity(self, path: Path, identity: tuple[int, int]) -> None:
        """Raise OSError if the directory was moved. Another one may have its path, and the files there are not ours."""
        if self.identity(path) != identity:
            raise OSError(errno.ESTALE, "the directory was moved, and another one has its path", str(path))

    def names(self, path: Path) -> list[str]:
        """The names in a directory. `Path.glob` finds nothing in a directory that this process may not list."""
        return os.listdir(path)

    def make_directory(self, path: Path) -> None:
        """Create a directory, if it does not exist."""
        path.mkdir(exist_ok=True)

    def make_directories(self, path: Path) -> None:
        """Create a directory and those above it, as far as they do not exist. Their names are on the medium then."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            self.sync_directory(folder.parent)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name, replacing what had it."""
        os.replace(old, new)

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        os.unlink(path)

    @_naming
    def map(self, fd: int, length: int, *, writable: bool = False) -> mmap.mmap:
        """Map the first `length` bytes of the file."""
        return mmap.mmap(fd, length, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
