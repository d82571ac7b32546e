"""A directory of directories on a disk that fails and loses writes, built on `faulty_disk`.

After a power failure, the contents of each folder are those of `Crash`. Whether a folder exists, and under which name,
depends on the syncs of its parent directory. The creation, renaming or removal of a folder is atomic.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.harness.faulty_disk import Crash, Fault, FaultyDisk, Operation

ROOT = "."
Tree = dict[str, dict[str, bytes]]
"""Folders, and the files in them."""


class FaultyTree(FaultyDisk):
    """A disk that records operations on folders too. Names in operations are paths below `root`."""

    def __init__(self, root: Path, fault: Fault | None = None) -> None:
        super().__init__(fault)
        self._root = root

    def name_of(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else ".."

    def make_directory(self, path: Path) -> None:
        if path == self._root or path.exists():
            super().make_directory(path)
            return
        with self._changing(Operation("make_directory", self.name_of(path))):
            super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        with self._changing(Operation("remove_directory", self.name_of(path))):
            super().remove_directory(path)


class _Folder:
    def __init__(self) -> None:
        self.operations: list[Operation] = []


class CrashedTree:
    """The possible states after a power failure following the last of `operations`."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._live: dict[str, _Folder] = {}
        self._stable: dict[str, _Folder] = {}
        self._naming: list[tuple[str, str, _Folder]] = []
        for operation in operations:
            self._apply(operation)

    def _apply(self, operation: Operation) -> None:
        kind, name = operation.kind, operation.name
        folder, _, file = name.partition("/")
        if kind == "sync_directory" and name == ROOT:
            self._stable, self._naming = dict(self._live), []
        elif kind == "make_directory":
            self._live[name] = _Folder()
            self._naming.append(("", name, self._live[name]))
        elif kind == "remove_directory":
            self._naming.append((name, "", self._live.pop(name)))
        elif kind == "rename" and not file:
            self._live[operation.target] = self._live.pop(name)
            self._naming.append((name, operation.target, self._live[operation.target]))
        elif folder in self._live:
            target = operation.target.partition("/")[2]
            self._live[folder].operations.append(operation._replace(name=file, target=target))

    def images(self, rng: random.Random, samples: int) -> Iterator[Tree]:
        """The state with all changes that were not synced, the state without them, and `samples` states between."""
        yield self._image(rng, 1.0, 1.0, 0.0)
        yield self._image(rng, 0.0, 0.0, 0.0)
        for _ in range(samples):
            yield self._image(rng, rng.choice((0.0, 0.5, 1.0)), rng.choice((0.2, 0.5, 0.8)), 0.5)

    def _image(self, rng: random.Random, names: float, data: float, torn: float) -> Tree:
        entries = dict(self._stable)
        for old, new, folder in self._naming:
            if rng.random() < names:
                if old:
                    entries.pop(old, None)
                if new:
                    entries[new] = folder
        return {name: Crash(folder.operations)._image(rng, names, data, torn) for name, folder in entries.items()}


def write_tree(tree: Tree, directory: Path) -> Path:
    """Create these folders in a new directory. Returns the directory."""
    directory.mkdir(parents=True)
    for name, files in tree.items():
        (directory / name).mkdir()
        for file, content in files.items():
            (directory / name / file).write_bytes(content)
    return directory
