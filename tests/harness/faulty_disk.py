"""A disk that fails, loses and tears writes: the `Disk` for tests of segments.

`FaultyDisk` works on real files, records every change in order, and raises a given error at a given operation. `Crash`
takes such a record up to some operation and yields the directories that a power failure there may leave: synced data is
present; of unsynced data, each write may be whole, lost or torn, and each name may be present, missing or still the old
one, in any combination. A store through a map is whole or lost, since it is within one sector. (A sync here reaches no
medium: the model decides what is lost.)
"""

from __future__ import annotations

import contextlib
import mmap
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from logdb.log.segments import Disk

FAILED_SYNC = "failed sync"


class Operation(NamedTuple):
    """One change: `kind` is the name of the method of `Disk`, "store" for one through a writable map, or
    FAILED_SYNC."""

    kind: str
    name: str = ""
    offset: int = 0
    data: bytes = b""
    target: str = ""


class Fault(NamedTuple):
    """Raise `error` at the `nth` operation (from 0) of these kinds, before it is carried out or `after` it.

    With `forever`, at each that follows too.
    """

    kinds: frozenset[str]
    nth: int
    error: BaseException
    after: bool = False
    forever: bool = False


class FaultyDisk(Disk):
    """Real files without real syncs. `operations`: all changes so far."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.operations: list[Operation] = []
        self.fault = fault
        self.hits = 0
        self._names: dict[int, str] = {}
        self._maps: dict[str, tuple[mmap.mmap, bytes]] = {}
        self._lock = threading.Lock()
        self.seen = 0

    def count(self, kind: str) -> int:
        """The number of operations of this kind."""
        return sum(operation.kind == kind for operation in self.operations)

    def position(self) -> int:
        """The number of operations so far, stores through maps included."""
        with self._lock:
            self._note_stores()
            return len(self.operations)

    def name_of(self, path: Path) -> str:
        """The name of a file in the record of operations."""
        return path.name

    # ---- the methods of Disk

    def create(self, path: Path) -> int:
        with self._changing(Operation("create", self.name_of(path))):
            fd = super().create(path)
            self._names[fd] = self.name_of(path)
            return fd

    def open(self, path: Path, *, writable: bool) -> int:
        fd = super().open(path, writable=writable)
        self._names[fd] = self.name_of(path)
        return fd

    def write(self, fd: int, data: bytes, offset: int) -> None:
        with self._changing(Operation("write", self._names[fd], offset, data)):
            super().write(fd, data, offset)

    def allocate(self, fd: int, offset: int, length: int) -> None:
        with self._changing(Operation("allocate", self._names[fd], offset + length)):
            super().allocate(fd, offset, length)

    def truncate(self, fd: int, length: int) -> None:
        with self._changing(Operation("truncate", self._names[fd], length)):
            super().truncate(fd, length)

    def sync(self, fd: int) -> None:
        with self._changing(Operation("sync", self._names[fd])):
            pass

    def sync_directory(self, path: Path) -> None:
        with self._changing(Operation("sync_directory", self.name_of(path))):
            pass

    def rename(self, old: Path, new: Path) -> None:
        with self._changing(Operation("rename", self.name_of(old), target=self.name_of(new))):
            super().rename(old, new)
            was, now = self.name_of(old), self.name_of(new)
            self._names = {fd: now if name == was else name for fd, name in self._names.items()}

    def unlink(self, path: Path) -> None:
        with self._changing(Operation("unlink", self.name_of(path))):
            super().unlink(path)

    def map(self, fd: int, length: int, *, writable: bool = False) -> mmap.mmap:
        mapped = super().map(fd, length, writable=writable)
        if writable:
            with self._lock:
                self._maps[self._names[fd]] = mapped, mapped[:]
        return mapped

    # ---- recording and failing

    @contextlib.contextmanager
    def _changing(self, operation: Operation) -> Iterator[None]:
        with self._lock:
            self._note_stores()
            fault = self._due(operation)
            if fault is None or fault.after:
                self.operations.append(operation)
            elif operation.kind == "sync" and isinstance(fault.error, OSError):
                self.operations.append(operation._replace(kind=FAILED_SYNC))
        if fault is not None and not fault.after:
            raise fault.error
        yield
        if fault is not None:
            raise fault.error

    def _due(self, operation: Operation) -> Fault | None:
        fault = self.fault
        if fault is None or operation.kind not in fault.kinds:
            return None
        self.seen += 1
        if self.seen - 1 == fault.nth or (fault.forever and self.seen - 1 > fault.nth):
            self.hits += 1
            return fault
        return None

    def _note_stores(self) -> None:
        for name, (mapped, before) in list(self._maps.items()):
            if mapped.closed:
                del self._maps[name]
            elif (now := mapped[:]) != before:
                self._maps[name] = mapped, now
                self.operations.append(Operation("store", name, 0, now))


class _File:
    """An inode: what is on the medium, and the changes that are not."""

    def __init__(self, content: bytes = b"") -> None:
        self.stable = bytearray(content)
        self.pending: list[Operation] = []

    def sync(self) -> None:
        for change in self.pending:
            apply(self.stable, change)
        self.pending = []

    def fail_sync(self) -> None:
        """The writes stay in memory, and no later sync writes them: the system counts their pages as clean."""
        self.pending = [change for change in self.pending if change.kind != "write"]


class Crash:
    """The state of a directory, `before` plus `operations`, when the power fails after the last of them."""

    def __init__(self, operations: Sequence[Operation], before: dict[str, bytes] | None = None) -> None:
        self._stable = {name: _File(content) for name, content in (before or {}).items()}
        self._live = dict(self._stable)
        self._renaming: list[tuple[str, _File | None]] = []
        for operation in operations:
            self._take(operation)

    def _take(self, operation: Operation) -> None:
        kind, name = operation.kind, operation.name
        if kind == "create":
            self._set(name, _File())
        elif kind == "unlink":
            self._set(name, None)
        elif kind == "rename":
            file = self._live[name]
            self._set(operation.target, file)
            self._set(name, None)
        elif kind == "sync_directory":
            self._stable, self._renaming = dict(self._live), []
        elif name in self._live:
            if kind == "sync":
                self._live[name].sync()
            elif kind == FAILED_SYNC:
                self._live[name].fail_sync()
            else:
                self._live[name].pending.append(operation)

    def _set(self, name: str, file: _File | None) -> None:
        if file is None:
            self._live.pop(name, None)
        else:
            self._live[name] = file
        self._renaming.append((name, file))

    def then(self, operations: Sequence[Operation]) -> Crash:
        """The state after these, too: the process was killed in between, and the system kept running."""
        for operation in operations:
            self._take(operation)
        return self

    def images(self, rng: random.Random, samples: int) -> Iterator[dict[str, bytes]]:
        """Directories that may be left: the four extremes, then `samples` drawn at random."""
        for names in (1.0, 0.0):
            for data in (1.0, 0.0):
                yield self._image(rng, names, data, 0.0)
        for _ in range(samples):
            yield self._image(rng, rng.choice((0.0, 0.5, 1.0)), rng.choice((0.2, 0.5, 0.8)), 0.5)

    def killed(self) -> dict[str, bytes]:
        """The directory after a kill of the process, which loses no data that was passed to the system."""
        return self._image(random.Random(0), 1.0, 1.0, 0.0)

    def _image(self, rng: random.Random, names: float, data: float, torn: float) -> dict[str, bytes]:
        entries = dict(self._stable)
        for name, file in self._renaming:
            if rng.random() < names:
                if file is None:
                    entries.pop(name, None)
                else:
                    entries[name] = file
        image = {}
        for name, file in entries.items():
            content = bytearray(file.stable)
            for change in file.pending:
                if rng.random() < data:
                    apply(content, change)
                elif change.kind == "write" and rng.random() < torn:
                    apply(content, part_of(change, rng))
            image[name] = bytes(content)
        return image


def part_of(write: Operation, rng: random.Random) -> Operation:
    """The write torn: only its beginning or its end reached the medium."""
    cut = rng.randrange(len(write.data) + 1)
    if rng.random() < 0.5:
        return write._replace(data=write.data[:cut])
    return write._replace(offset=write.offset + cut, data=write.data[cut:])


def apply(content: bytearray, change: Operation) -> None:
    """Apply the change to a file's bytes."""
    if change.kind == "truncate":
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
    elif change.kind == "allocate":
        content.extend(bytes(max(0, change.offset - len(content))))
    elif change.data:
        end = change.offset + len(change.data)
        content.extend(bytes(max(0, end - len(content))))
        content[change.offset : end] = change.data


def materialize(image: dict[str, bytes], directory: Path) -> Path:
    """Write the files of an image; returns the directory."""
    directory.mkdir(parents=True)
    for name, content in image.items():
        (directory / name).write_bytes(content)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """The files of a directory as an image."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}
