"""Whether the runs of a map are as they were written, found out before LMDB maps them.

LMDB has no checksums and trusts its file: a damaged page ends the process that reads it, or hides rows. A run never
changes once the manifest names it, with its size and the CRC-32 of its bytes (`Written`). `find_damage` compares them:

1. A file that was found sound before (same inode, size and time of change) on a machine that has not been started
   since is not read again.
2. Else its CRC must be that of the manifest.

The CRC has another polynomial than the seals of rows. A CRC32C of the file would be the same whichever sealed rows of
the same length stand where: all of them leave the same residue behind.

What was found sound is noted beside the runs (`SUM`). The note is a cache: where it is missing, stale or damaged
itself, the second step decides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

RESIDUE: Final = 0x48674BC7
"""The CRC32C of anything followed by its own. A seal begins with it, so that sealed rows one after another have it."""
NOTE: Final = "SUM"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
PIECE_BYTES: Final = 256 << 10


class Written(NamedTuple):
    """What was written to a file that does not change: how many bytes, and their CRC-32."""

    size: int
    crc: int


def find_damage(path: Path, files: Mapping[str, Written], *, all_of_it: bool = False) -> str | None:
    """Which of the files in the directory `path` is not what was written, and why; None if all are.

    `all_of_it`: trust no note. Raises FileNotFoundError, and other OSErrors when one cannot be read.
    """
    noted = [] if all_of_it else _noted(path)
    lines = _lines(path, files)
    doubted = [name for name, line in zip(files, lines, strict=True) if line not in noted]
    for name in doubted:
        size, written = os.path.getsize(path / name), files[name]
        if size != written.size:
            return f"{name} has {size:,} bytes, and was written with {written.size:,}"
        if crc_of(path / name) != written.crc:
            return f"{name} is not what was written"
    if doubted:
        _keep(path, lines)
    return None


def note(path: Path, files: Mapping[str, Written]) -> None:
    """Note that these files are what was just written."""
    with contextlib.suppress(OSError):
        _keep(path, _lines(path, files))


def forget(path: Path) -> None:
    """Doubt the files: the next `find_damage` reads them."""
    with contextlib.suppress(OSError):
        (path / NOTE).unlink()


def crc_of(file: Path) -> int:
    """The CRC-32 of all of a file. Other threads go on meanwhile."""
    crc, at = 0, 0
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while chunk := os.pread(fd, PIECE_BYTES, at):
            crc = crc32(chunk, crc)
            at += len(chunk)
    finally:
        os.close(fd)
    return crc


def _noted(path: Path) -> list[str]:
    try:
        return (path / NOTE).read_text().splitlines()
    except (OSError, ValueError):
        return []


def _lines(path: Path, files: Mapping[str, Written]) -> list[str]:
    """What is noted of each of the files."""
    return [f"{name} {written.crc:08x} {_identity(os.stat(path / name))}" for name, written in files.items()]


def _identity(status: os.stat_result) -> str:
    boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else os.urandom(8).hex()
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_ctime_ns} {boot}"


def _keep(path: Path, lines: list[str]) -> None:
    with contextlib.suppress(OSError):
        (path / NOTE).write_text("\n".join(lines))
