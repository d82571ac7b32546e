"""A disk that fails: ext4 in a file, mounted for one server.

Both faults shut the file system down (EXT4_IOC_SHUTDOWN): later writes and syncs end with EIO. `cut_power` flushes
nothing, so data that was not synced is lost: a power loss, for processes that are frozen before and killed after. A
sync under way may succeed then although its data is lost: ext4 could not mark the extents as written, and reports no
error (once in 60 cuts of a file that is synced all the time, without LogDB). A running process would acknowledge that,
so `fail`, a disk that fails under a running process, lets syncs under way end first.
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
"""ext4's ioctl, its flag for ending operations under way first, and its flag for losing even data that its journal has
not written yet."""


class FailingDisk:
    """Mounted at `path` on creation. Its server must not run when it is unmounted."""

    def __init__(self, image: Path, path: Path, mib: int) -> None:
        self.image, self.path = image, path
        path.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        self.mount()

    def mount(self) -> None:
        """Mount it as after a start of the machine."""
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.path)], check=True)

    def unmount(self) -> None:
        """Unmount it. Unsynced data is lost if the power was cut, otherwise written."""
        subprocess.run(["umount", str(self.path)], check=True)

    def cut_power(self) -> None:
        """Fail all reads, writes and syncs from now on; data that was not synced is lost."""
        self._shut_down(NO_FLUSH)

    def fail(self) -> None:
        """Fail all reads, writes and syncs from now on."""
        self._shut_down(FREEZE_FIRST)

    def _shut_down(self, flag: int) -> None:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(fd)

    def restart(self) -> None:
        """Unmount it and mount it again. Its filler may be back, since its removal was not on the disk."""
        self.unmount()
        self.mount()
        self.clear()

    def fill(self) -> None:
        """Fill the disk."""
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
        """Free the space."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path / "ballast")
