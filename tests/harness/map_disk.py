"""The disk of a map, with every operation recorded: those of `MapFiles`, and what LMDB itself writes to new runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.harness.faulty_disk import Fault, FaultyDisk, Operation

PAGE_BYTES: Final = 4096
"""The size of the pieces of a run that was not synced: any of them may be missing after a power failure."""


class MapDisk(FaultyDisk):
    """Records operations as `FaultyDisk` does. A run in `directory` is compared before each operation until it is
    synced."""

    def __init__(self, directory: Path, fault: Fault | None = None) -> None:
        super().__init__(fault)
        self.directory = directory
        self._written: dict[Path, tuple[int, bytes]] = {}
        self._synced = {(path, path.stat().st_ino) for path in self._runs()}

    def sync(self, fd: int) -> None:
        super().sync(fd)
        name = self._names[fd]
        self._synced |= {(path, inode) for path, (inode, _) in self._written.items() if self.name_of(path) == name}

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._written.pop(path, None)
        self._synced = {known for known in self._synced if known[0] != path}

    def _runs(self) -> list[Path]:
        return sorted(self.directory.glob("run-*.mdb"))

    def _note_stores(self) -> None:
        super()._note_stores()
        for path in self._runs():
            inode, name = path.stat().st_ino, self.name_of(path)
            if (path, inode) in self._synced:
                continue
            known, before = self._written.get(path, (0, b""))
            if known != inode:
                self.operations.append(Operation("create", name))
                before = b""
            content = path.read_bytes()
            if len(content) < len(before):
                self.operations.append(Operation("truncate", name, len(content)))
            for at in range(0, len(content), PAGE_BYTES):
                chunk = content[at : at + PAGE_BYTES]
                if chunk != before[at : at + PAGE_BYTES]:
                    self.operations.append(Operation("write", name, at, chunk))
            self._written[path] = inode, content
