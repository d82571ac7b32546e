"""A disk that fails: ext4 in a file, mounted for one server.

Both shut the file system down (EXT4_IOC_SHUTDOWN): whoever still writes or syncs is told EIO. `cut_power` flushes
nothing, so what was not synced is gone: a power loss, for processes that are frozen before and killed after. A sync
that is under way then may succeed although what it synced is lost: ext4 could not mark the extents as written, and
does not tell (once in 60 cuts of a file that is synced all the time, without LogDB). A process that goes on would
acknowledge that, so `fail`, the disk that fails under it, lets syncs that are under way end first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import subprocess
from pathlib import Path

SHUTDOWN, FREEZE_FIRST, NO_FLUSH = 0x8004587D, 0, 2
"""ext4's ioctl, its flag for ending what is under way first, and that for losing even what its journal has not written
yet."""


class FailingDisk:
    """Mounted at `path` when it is made. Its server must not run when it is unmounted."""

    def __init__(self, image: Path, path: Path, mib: int) -> None:
        self.image, self.path = image, path
        path.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        self.mount()

    def mount(self) -> None:
        """As after the machine was started."""
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.path)], check=True)

    def unmount(self) -> None:
        """What is not on the disk is forgotten if its power was cut, else written."""
        subprocess.run(["umount", str(self.path)], check=True)

    def cut_power(self) -> None:
        """From now on nothing can be read, written or synced here, and what was not synced is lost."""
        self._shut_down(NO_FLUSH)

    def fail(self) -> None:
        """From now on nothing can be read, written or synced here."""
        self._shut_down(FREEZE_FIRST)

    def _shut_down(self, flag: int) -> None:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(fd)

    def restart(self) -> None:
        """Unmount it and mount it again. What filled it may be there again: that it went was not on the disk."""
        self.unmount()
        self.mount()
        self.clear()

    def fill(self) -> None:
        """Leave no room."""
        fd = os.open(self.path / "ballast", os.O_CREAT | os.O_WRONLY)
        try:
            at, step = 0, 64 << 20
            while step >= 1 << 10:
                try:
                    os.posix_fallocate(fd, at, step)
                    at += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
        finally:
            os.close(fd)

    def clear(self) -> None:
        """Give the room back."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path / "ballast")
