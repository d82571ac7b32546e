"""What the system counts of a process: bytes that it had written to disk, its memory, the disk that its files take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
BLOCK_BYTES = 512


class Memory(NamedTuple):
    """MiB of a process: what it allocated itself, and that with the pages of mapped files."""

    anonymous: float
    all: float


def written_bytes(pid: int | str = "self") -> int:
    """Bytes of pages that the process had written to disk, less those that were truncated before they were."""
    fields = _fields(f"/proc/{pid}/io")
    return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


def memory(pid: int | str = "self") -> Memory:
    """The resident memory of the process."""
    fields = _fields(f"/proc/{pid}/status")
    return Memory(*(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS")))


def disk_bytes(directory: Path) -> int:
    """What the files beneath the directory take on disk: their blocks, also those that are only reserved."""
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
