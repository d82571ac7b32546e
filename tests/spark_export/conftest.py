"""Databases of many small segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logdb import Database
from logdb.embedded import EmbeddedHost
from logdb.log.segments import segment


@pytest.fixture
def open_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Database]]:
    """Opens a database whose segments hold 64 KiB; the tests' databases are closed at the end."""
    opened: list[Database] = []
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 1 << 14)

    def open_one(name: str = "db") -> Database:
        options = {"segment_bytes": 1 << 16}
        host = EmbeddedHost.open(tmp_path / name, read_only=False, create=True, log_options=options)
        opened.append(Database(host))
        return opened[-1]

    yield open_one
    for db in opened:
        db.close()
