"""Recording what an embedded database writes and syncs, and what a power failure leaves of it.

The log goes through `FaultyDisk`, which knows each write, sync, name and store. LMDB writes by itself, so its part is
modelled after its contract, commit by commit, from the file before and after: (1) it writes pages that no snapshot uses
(a test checks that), (2) syncs them, (3) writes one meta page, which lies in one sector, (4) syncs it. A power failure
within (1) and (2) leaves the old meta pages and any of the new ones, each whole, torn or lost; after (3) all are there.
Nobody syncs the folder of the map, nor its note: the map may be missing, its note be missing, empty, or older.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from logdb.store import checking
from logdb.store.checkpoint import Checkpoint
from tests.log.faulty_disk import Crash, FaultyDisk, Operation

PAGE = 4096
SECTOR = 512
METAS = 2


Image = tuple[dict[str, bytes], bytes | None]
"""The files of the log, and that of the map if it is there."""


class MapCommit(NamedTuple):
    """A transaction of LMDB, begun when the disk had done `begin` operations, over at its own among them.

    `before`, `after`: the file; b"" where there was none.
    """

    begin: int
    before: bytes
    after: bytes


class RecordingDisk(FaultyDisk):
    """The disk of the log, with the commits of the map among its operations."""

    def __init__(self, map_path: Path) -> None:
        super().__init__()
        self.map_path = map_path
        self.commits: list[MapCommit] = []
        self.notes: list[bytes] = []

    def note_commit(self, begin: int, before: bytes) -> None:
        after = self.map_bytes()
        with self._lock:
            self._note_stores()
            self.operations.append(Operation("map", offset=len(self.commits)))
            self.commits.append(MapCommit(begin, before, after))

    def map_bytes(self) -> bytes:
        file = self.map_path / checking.DATA
        return file.read_bytes() if file.exists() else b""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record the commits of the map in `map_path` meanwhile. Making its tables counts to the first."""
        writing, note = Checkpoint._writing, checking.note

        @contextlib.contextmanager
        def recorded(checkpoint: Checkpoint) -> Iterator[Any]:
            begin = self.position()
            before = self.commits[-1].after if self.commits else b""
            with writing(checkpoint) as txn:
                yield txn
            self.note_commit(begin, before)

        def noted(path: Path) -> None:
            note(path)
            self.notes.append((path / checking.NOTE).read_bytes())

        Checkpoint._writing, checking.note = recorded, noted  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Checkpoint._writing, checking.note = writing, note  # type: ignore[method-assign]

    # ---- what is left

    def images(self, position: int, rng: random.Random, samples: int) -> Iterator[Image]:
        """What a failure after so many operations may leave."""
        operations = self.operations[:position]
        done = [operation.offset for operation in operations if operation.kind == "map"]
        under_way = [
            commit for number, commit in enumerate(self.commits) if commit.begin <= position and number not in done
        ]
        stable = self.commits[max(done)].after if done else b""
        for number, image in enumerate(Crash(operations).images(rng, samples)):
            table = torn(under_way[0], rng) if under_way and number % 2 else stable
            is_missing = rng.random() < (0.1 if table else 0.5)
            yield image, None if is_missing else table

    def place(self, left: Image, rng: random.Random, path: Path) -> None:
        """Make these files a database in `path`, which has an identity."""
        image, table = left
        (path / "log").mkdir()
        for name, content in image.items():
            (path / "log" / name).write_bytes(content)
        if table is None:
            return
        (path / "map").mkdir()
        (path / "map" / checking.DATA).write_bytes(table)
        note = rng.choice([None, b"", *self.notes[-2:]])
        if note is not None:
            (path / "map" / checking.NOTE).write_bytes(note)


def torn(commit: MapCommit, rng: random.Random) -> bytes:
    """The file when the power fails within a commit."""
    before, after = commit.before, commit.after
    if rng.random() < 0.2:
        return after
    content = bytearray(before)
    share = rng.choice((0.2, 0.5, 0.8, 1.0))
    for at in range(METAS * PAGE if before else 0, len(after), PAGE):
        if after[at : at + PAGE] == before[at : at + PAGE]:
            continue
        if rng.random() < share:
            first, last = 0, PAGE
        elif rng.random() < 0.5:
            first, last = sorted(rng.choices(range(0, PAGE + 1, SECTOR), k=2))
        else:
            continue
        content.extend(bytes(max(0, at + last - len(content))))
        content[at + first : at + last] = after[at + first : at + last]
    return bytes(content)
