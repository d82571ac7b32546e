"""A large record that comes in parts: its payload goes into a file of its own, which becomes a segment of the log.

So the log takes a record of any size without holding it in memory, and without a long sync that others would wait for:
the payload is on the medium before the record is numbered. The file has room for the store header and the frame's head
in front of the payload. Both are zeros until the record has its number, so a file that a crash leaves behind holds no
record, and opening the log removes it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google_crc32c import extend

from logdb.errors import Unavailable
from logdb.log.segments.format import FRAME_BYTES, STORE_HEADER_BYTES
from logdb.system.disk import DISK_FULL, Disk, described

PREFIX: Final = "incoming-"
PAYLOAD_AT: Final = STORE_HEADER_BYTES + FRAME_BYTES
SYNC_BYTES: Final = 4 << 20
"""What is written is synced so often: the syncs of others, at the same disk, wait behind no more than this."""


class Incoming:
    """The payload of a record of `length` bytes. `write` is called by one thread at a time, `discard` by any.

    `checksum`: CRC32C of what has been written. `fd`: given away with `release`.
    """

    def __init__(self, directory: Path, length: int, disk: Disk) -> None:
        self.path = directory / f"{PREFIX}{secrets.token_hex(8)}"
        self.length, self._disk = length, disk
        self.written = self._synced = 0
        self.checksum = 0
        self._lock = threading.Lock()
        with self._full_disk_refuses():
            self._fd: int | None = disk.create(self.path)

    def write(self, data: bytes) -> None:
        """Add the next bytes of the payload; the last ones are on the medium when it returns.

        Raises Unavailable when the disk has no room, OSError.
        """
        with self._lock:
            if self._fd is None:
                raise ValueError(f"{self.path} was discarded")
            if self.written + len(data) > self.length:
                raise ValueError(f"more than {self.length:,} bytes")
            with self._full_disk_refuses():
                self._disk.allocate(self._fd, PAYLOAD_AT + self.written, len(data))
                self._disk.write(self._fd, data, PAYLOAD_AT + self.written)
                self.written += len(data)
                self.checksum = extend(self.checksum, data)
                if self.written - self._synced >= SYNC_BYTES or self.written == self.length:
                    self._disk.sync(self._fd)
                    self._synced = self.written

    def release(self) -> int:
        """The file descriptor of a payload that is whole: from now on the caller's. The file keeps its name."""
        with self._lock:
            assert self._fd is not None, "it was discarded"
            assert self.written == self.length, "it is not whole"
            fd, self._fd = self._fd, None
            return fd

    def take(self) -> bytes:
        """The payload, which is whole. The file is discarded."""
        with self._lock:
            assert self._fd is not None, "it was discarded"
            assert self.written == self.length, "it is not whole"
            with self._disk.map(self._fd, PAYLOAD_AT + self.length) as mapped:
                payload = mapped[PAYLOAD_AT:]
        self.discard()
        return payload

    def discard(self) -> None:
        """Remove the file, unless it was released. Twice is harmless."""
        with self._lock:
            if self._fd is not None:
                fd, self._fd = self._fd, None
                self._disk.close(fd)
                with contextlib.suppress(OSError):
                    self._disk.unlink(self.path)

    @contextlib.contextmanager
    def _full_disk_refuses(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in DISK_FULL:
                raise Unavailable(f"a value of {self.length:,} bytes has no room: {described(error)}") from error
            raise


def remove_leftovers(directory: Path, disk: Disk) -> None:
    """Remove what a process left there that was killed. Called by the writer of the log, before it takes anything."""
    for path in directory.glob(f"{PREFIX}*"):
        disk.unlink(path)
