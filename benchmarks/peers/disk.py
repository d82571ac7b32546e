"""The bare limit: write + fdatasync of the bytes that LogDB writes for a put, in a loop on a preallocated file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from logdb.log.segments.format import FRAME_BYTES
from logdb.store.records import Commit, encode_commit

ALLOCATE_BYTES = 16 << 20


class Disk:
    name: ClassVar[str] = "write + fdatasync"

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._end = self._allocated = 0

    def write(self, data: bytes) -> None:
        if self._end + len(data) > self._allocated:
            os.posix_fallocate(self._fd, self._allocated, ALLOCATE_BYTES)
            self._allocated += ALLOCATE_BYTES
        os.pwrite(self._fd, data, self._end)
        os.fdatasync(self._fd)
        self._end += len(data)

    def close(self) -> None:
        os.close(self._fd)


def record_of_put(key: bytes, value: bytes) -> bytes:
    """As many bytes as the log has for the put."""
    commit = Commit(1 << 62, 1 << 20, {key: value}, 0, "", (), (), ())
    return bytes(FRAME_BYTES + len(encode_commit(commit)))
