"""Counters of the system: bytes written to a disk, the memory of a process, the disk space of files.

`/proc/PID/io` does not give the bytes written: where a file system has large folios (ext4 since Linux 6.16) it counts
up to 2 MiB for a page of 4 KiB that is written in one. The disk's own count is exact, but it includes the writes of
other processes and the journal: measure on a file system of its own (a loop device does).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
BLOCK_BYTES = 512
SECTORS_WRITTEN = 6
"""The field of a disk's statistics."""


class Memory(NamedTuple):
    """MiB of a process: what it allocated itself, and that with the pages of mapped files."""

    anonymous: float
    all: float


def written_bytes(directory: Path) -> int:
    """Bytes that were ever written to the disk of the directory, once what waits in memory has been.

    If the system does not show the disk (a container's root), bytes of pages that this process has made dirty.
    """
    statistics = disk_statistics(directory)
    if statistics is None:
        fields = _fields("/proc/self/io")
        return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])
    fd = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), f"{directory} could not be synced")
    finally:
        os.close(fd)
    return int(statistics.read_text().split()[SECTORS_WRITTEN]) * BLOCK_BYTES


def disk_statistics(directory: Path) -> Path | None:
    """The file with the counts of the disk on which the directory stands, if the system has one."""
    device = os.stat(directory).st_dev
    file = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return file if file.exists() else None


def memory(pid: int | str = "self") -> Memory:
    """The resident memory of the process."""
    fields = _fields(f"/proc/{pid}/status")
    return Memory(*(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS")))


def disk_bytes(directory: Path) -> int:
    """Disk space of all files below the directory in bytes, reserved blocks included."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * BLOCK_BYTES
            except FileNotFoundError:  # of a database that goes on working
                continue
    return total


def _fields(path: str) -> dict[str, str]:
    lines = Path(path).read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
