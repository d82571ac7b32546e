"""What the tests of the log share: small preallocation, so that thousands of logs can be opened in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logdb.log.segments import segment


@pytest.fixture(autouse=True)
def small_allocations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preallocate 256 bytes at a time."""
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 256)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """A new path in the temporary directory at each call."""
    count = iter(range(1 << 30))
    return lambda: tmp_path / f"{next(count):06d}"
