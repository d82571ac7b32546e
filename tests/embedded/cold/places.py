"""A place that fails on request, for tests of the cold tier."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from logdb.backups.places import DirectoryPlace, Place
from logdb.errors import Unavailable


class Killed(BaseException):
    """The process ends here, as by kill -9."""


class FailingPlace(Place):
    """A directory. `before`: called with the kind of each operation and its file before it is done. `writing`: the file
    that was written last, or that is being written, and its content."""

    def __init__(self, path: Path) -> None:
        self._place = DirectoryPlace(path)
        self.before: Callable[[str, str], None] = lambda kind, name: None
        self.operations: list[tuple[str, str]] = []
        self.writing = "", b""

    def _next(self, kind: str, name: str) -> None:
        self.operations.append((kind, name))
        self.before(kind, name)

    def location(self, name: str = "") -> str:
        return self._place.location(name)

    def sizes(self) -> dict[str, int]:
        self._next("list", "")
        return self._place.sizes()

    def read(self, name: str) -> bytes:
        self._next("read", name)
        return self._place.read(name)

    def write(self, name: str, content: bytes) -> None:
        self.writing = name, content
        self._next("write", name)
        self._place.write(name, content)

    def remove(self, name: str) -> None:
        self._next("remove", name)
        self._place.remove(name)

    def lock(self) -> contextlib.AbstractContextManager[object]:
        return self._place.lock()


def down(kind: str, name: str) -> None:
    """The store does not answer."""
    raise Unavailable(f"{name} cannot be reached")


def failing(monkeypatch: pytest.MonkeyPatch, path: Path) -> FailingPlace:
    """The place that databases with a cold tier in `path` use from now on."""
    place = FailingPlace(path)
    for module in ("backend", "cold.history"):
        monkeypatch.setattr(f"logdb.embedded.{module}.place_of", lambda _: place)
    return place
