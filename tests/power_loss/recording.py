"""Records the writes and syncs of an embedded database, and builds the directories that a power failure leaves.

The log and the map use one `MapDisk`, which records each write, sync and name, and what LMDB writes to a run. Unsynced
data may be present, lost or torn, and names that were not synced with their directory may be missing or old. The
directory of the map itself and its note are never synced: the map may be missing, its note missing, empty or older.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from logdb.store import map_verifier
from tests.harness.faulty_disk import Crash, Operation, materialize
from tests.harness.map_disk import MapDisk

MAP = "map"
MISSING = 0.1
"""The share of images in which the directory of the map is lost."""


class Image(NamedTuple):
    """The files of the log, and those of the map if it is present."""

    log: dict[str, bytes]
    map: dict[str, bytes] | None


class RecordingDisk(MapDisk):
    """The disk of a database: names of files of the map begin with that of its directory."""

    def __init__(self, map_path: Path) -> None:
        super().__init__(map_path)
        self.notes: list[bytes] = []

    def name_of(self, path: Path) -> str:
        return f"{MAP}/{path.name}" if path.parent == self.directory else path.name

    def _note_stores(self) -> None:
        super()._note_stores()
        note = self.directory / map_verifier.NOTE
        if note.exists() and (content := note.read_bytes()) not in self.notes[-1:]:
            self.notes.append(content)

    def images(self, position: int, rng: random.Random, samples: int) -> Iterator[Image]:
        """The files that a failure after this number of operations may leave."""
        of_log, of_map = [], []
        for one in self.operations[:position]:
            is_of_map = one.name.startswith(MAP)
            (of_map if is_of_map else of_log).append(one)
        maps = list(Crash(of_map).images(rng, samples))
        rng.shuffle(maps)
        for log, files in zip(Crash(of_log).images(rng, samples), maps, strict=True):
            yield Image(log, None if rng.random() < MISSING else files)

    def place(self, left: Image, rng: random.Random, path: Path) -> None:
        """Create a database with an identity from these files in `path`."""
        materialize(left.log, path / "log")
        if left.map is None:
            return
        for name, content in left.map.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(content)
        note = rng.choice([None, b"", *self.notes[-2:]])
        if left.map and note is not None:
            (path / MAP / map_verifier.NOTE).write_bytes(note)


def is_of_map(operation: Operation) -> bool:
    """Whether an operation is on a file of the map."""
    return operation.name.startswith(MAP)
