"""The one seam between segments and the operating system's files.

Everything that a segment does to a disk goes through one `Disk`, so that the tests can hand in one that fails,
forgets what was not synced, or tears a write in two.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path


class Disk:
    """Files of the local file system. Every method raises `OSError` when the system call fails."""

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

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        written = os.pwrite(fd, data, offset)
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], offset + written)

    def allocate(self, fd: int, offset: int, length: int) -> None:
        """Reserve zeroed blocks for the range, so that a write in it can neither grow the file nor fill the disk."""
        os.posix_fallocate(fd, offset, length)

    def truncate(self, fd: int, length: int) -> None:
        """Set the file's length."""
        os.ftruncate(fd, length)

    def sync(self, fd: int) -> None:
        """Return when every write to the file is on the medium (fdatasync: size included, timestamps not)."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        """Create a directory, if it does not exist."""
        path.mkdir(exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name, replacing what had it."""
        os.replace(old, new)

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        os.unlink(path)

    def map(self, fd: int, length: int, *, writable: bool = False) -> mmap.mmap:
        """Map the first `length` bytes of the file."""
        return mmap.mmap(fd, length, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
