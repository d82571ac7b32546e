"""The durable watermark: one number that tells how far the log is known to be on the medium.

It is written through a memory map right after every fdatasync, costs no system call, and has two readers: processes
that follow the log while another one writes it, and recovery. After a kill it is exact, since the page cache
survives; after a power loss it may be old, but it is never too high, since it is set only after the sync that it
speaks of.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from struct import Struct

from logdb.log.segments.disk import Disk

FILE_NAME = "durable"
_PAIR = Struct("<QQ")
_ALL_ONES = (1 << 64) - 1


class Watermark:
    """`next`: the first sequence number that is not known to be durable; 0 when nothing is known."""

    def __init__(self, directory: Path, disk: Disk, *, writable: bool) -> None:
        self._disk = disk
        path = directory / FILE_NAME
        try:
            self._fd = disk.open(path, writable=writable)
        except FileNotFoundError:
            if not writable:
                raise
            self._fd = disk.create(path)
        if writable and disk.size(self._fd) != _PAIR.size:
            disk.truncate(self._fd, 0)
            disk.write(self._fd, _PAIR.pack(0, _ALL_ONES), 0)
        self._map = disk.map(self._fd, _PAIR.size, writable=writable)

    @property
    def next(self) -> int:
        for _ in range(100):
            number, complement = _PAIR.unpack(self._map[: _PAIR.size])
            if number == complement ^ _ALL_ONES:
                return int(number)
        return 0

    @property
    def is_whole(self) -> bool:
        """Whether the number and its complement agree."""
        number, complement = _PAIR.unpack(self._map[: _PAIR.size])
        return bool(number == complement ^ _ALL_ONES)

    def advance(self, lsn: int) -> None:
        """Everything before `lsn` is durable."""
        _PAIR.pack_into(self._map, 0, lsn, lsn ^ _ALL_ONES)

    def close(self, *, sync: bool) -> None:
        """Release the file; with `sync`, put the number on the medium first."""
        if sync:
            self._map.flush()
            self._disk.sync(self._fd)
        with contextlib.suppress(BufferError):
            self._map.close()
        self._disk.close(self._fd)
