"""The durable watermark: the number up to which the log is known to be on the medium.

The writer sets it through a memory map after every fdatasync, without a system call. It is read by processes that
follow the log and by recovery. After the writer was killed it is exact, because the page cache survives. After a power
failure it may be too low but never too high, because it is set only after the sync.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct

from logdb.system.disk import Disk

FILE_NAME = "durable"
_PAIR = Struct("<QQ")
_ALL_ONES = (1 << 64) - 1


class Watermark:
    """`next`: the first sequence number that is not known to be durable; 0 if nothing is known."""

    def __init__(self, directory: Path, disk: Disk, *, writable: bool) -> None:
        self._disk = disk
        self._map: mmap.mmap | None = None
        path = directory / FILE_NAME
        try:
            self._fd = disk.open(path, writable=writable)
        except FileNotFoundError:
            if not writable:
                raise
            self._fd = disk.create(path)
        try:
            if writable and disk.size(self._fd) != _PAIR.size:
                disk.truncate(self._fd, 0)
                disk.write(self._fd, bytes(_PAIR.size), 0)
                disk.sync(self._fd)
            if disk.size(self._fd) >= _PAIR.size:
                self._map = disk.map(self._fd, _PAIR.size, writable=writable)
        except BaseException:
            self.close(sync=False)
            raise
        self.is_whole = self._read() is not None
        """Whether the number and its complement matched when the log was opened."""

    @property
    def next(self) -> int:
        # A read can occur between the writer's two stores.
        for _ in range(100):
            if (number := self._read()) is not None:
                return number
        return 0

    def _read(self) -> int | None:
        if self._map is None:
            return None
        try:
            number, complement = _PAIR.unpack(self._map[: _PAIR.size])
        except ValueError:  # closed by another thread
            return 0
        if number == complement == 0:
            return 0
        return int(number) if number == complement ^ _ALL_ONES else None

    def advance(self, lsn: int) -> None:
        """Record that all records before `lsn` are durable."""
        assert self._map is not None
        self._map[:] = _PAIR.pack(lsn, lsn ^ _ALL_ONES)

    def close(self, *, sync: bool) -> None:
        """Close the file; with `sync`, sync the number first. Can be called repeatedly."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            if self._map is not None:
                if sync:
                    self._map.flush()
                    self._disk.sync(fd)
                self._map.close()
        finally:
            self._disk.close(fd)
