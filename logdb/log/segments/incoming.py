"""A large record that is received in parts: its payload is written to a separate file, which becomes a segment.

The log can append a record of any size without keeping it in memory, and without a long sync that delays other appends:
the payload is on the medium before the record is numbered. The file reserves space for the store header and the frame's
head in front of the payload. Both are zeros until the record has its number, so a file left by a crash contains no
record; opening the log removes it.
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
"""Bytes between two syncs. Limits how long the syncs of other writers to the same disk are delayed."""


class Incoming:
    """The payload of a record, `length` bytes. One thread at a time may call `write`, any thread `discard`.

    `written`, `checksum`: the number of bytes written so far and their CRC32C.
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
        """Append `data` to the payload. Once the payload is complete, it is on the medium when this returns.

        Raises Unavailable if the disk is full, OSError.
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
        """Pass the ownership of the file with the complete payload to the caller; returns its descriptor."""
        with self._lock:
            assert self._fd is not None, "it was discarded"
            assert self.written == self.length, "it is incomplete"
            fd, self._fd = self._fd, None
            return fd

    def take(self) -> bytes:
        """Return the complete payload and discard the file."""
        with self._lock:
            assert self._fd is not None, "it was discarded"
            assert self.written == self.length, "it is incomplete"
            with self._disk.map(self._fd, PAYLOAD_AT + self.length) as mapped:
                payload = mapped[PAYLOAD_AT:]
        self.discard()
        return payload

    def discard(self) -> None:
        """Remove the file, unless it was released. Can be called repeatedly."""
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
                raise Unavailable(
                    f"there is no space for a value of {self.length:,} bytes: {described(error)}"
                ) from error
            raise


def remove_leftovers(directory: Path, disk: Disk) -> None:
    """Remove the files of a process that was killed. The writer of the log calls this before it appends."""
    for name in disk.names(directory):
        if name.startswith(PREFIX):
            disk.unlink(directory / name)
