"""Compares the runs of a map with the manifest before LMDB maps them.

LMDB has no checksums and trusts its file: a damaged page ends the process that reads it, or hides rows. A run never
changes once the manifest names it, with its size and the CRC-32 of its bytes (`FileChecksum`). `find_damage` compares
them:

1. A file that passed the check before (same inode, size and time of change) since the last boot is not read again.
2. Otherwise its CRC must be that of the manifest.

The CRC has another polynomial than the checksums of rows. A CRC32C of the file would not change if rows of the same
length changed places: each leaves the same residue behind.

The note `SUM` beside the runs lists the files that passed. It is a cache: where it is missing, stale or damaged, the
second step decides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

RESIDUE: Final = 0x48674BC7
"""The CRC32C of any bytes followed by their own CRC32C. The checksum of a row begins with it, so that consecutive rows
have it, too."""
NOTE: Final = "SUM"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
CHUNK_BYTES: Final = 256 << 10


class FileChecksum(NamedTuple):
    """Size in bytes and CRC-32 of a file that does not change."""

    size: int
    crc: int


def find_damage(path: Path, files: Mapping[str, FileChecksum], *, ignore_note: bool = False) -> str | None:
    """The first damage to the files in the directory `path`; None if they are as they were written.

    `ignore_note`: read every file, also those that the note lists. Raises FileNotFoundError, and other OSErrors when a
    file cannot be read.
    """
    noted = [] if ignore_note else _read_note(path)
    lines = _note_lines(path, files)
    doubted = [name for name, line in zip(files, lines, strict=True) if line not in noted]
    for name in doubted:
        size, written = os.path.getsize(path / name), files[name]
        if size != written.size:
            return f"{name} has {size:,} bytes, and was written with {written.size:,}"
        if crc_of(path / name) != written.crc:
            return f"{name} is not what was written"
    if doubted:
        _write_note(path, lines)
    return None


def note(path: Path, files: Mapping[str, FileChecksum]) -> None:
    """List these files, which were just written, in the note."""
    with contextlib.suppress(OSError):
        _write_note(path, _note_lines(path, files))


def forget(path: Path) -> None:
    """Remove the note: the next `find_damage` reads all files."""
    with contextlib.suppress(OSError):
        (path / NOTE).unlink()


def crc_of(file: Path) -> int:
    """The CRC-32 of a file. Other threads run meanwhile."""
    crc, at = 0, 0
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while chunk := os.pread(fd, CHUNK_BYTES, at):
            crc = crc32(chunk, crc)
            at += len(chunk)
    finally:
        os.close(fd)
    return crc


def _read_note(path: Path) -> list[str]:
    try:
        return (path / NOTE).read_text().splitlines()
    except (OSError, ValueError):
        return []


def _note_lines(path: Path, files: Mapping[str, FileChecksum]) -> list[str]:
    """The line of the note for each of the files."""
    return [f"{name} {written.crc:08x} {_identity(os.stat(path / name))}" for name, written in files.items()]


def _identity(status: os.stat_result) -> str:
    boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else os.urandom(8).hex()
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_ctime_ns} {boot}"


def _write_note(path: Path, lines: list[str]) -> None:
    with contextlib.suppress(OSError):
        (path / NOTE).write_text("\n".join(lines))
