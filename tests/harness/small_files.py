"""Small segment files: a conftest that imports `small_files` sets them for its folder."""

from __future__ import annotations

import pytest

from logdb.log.segments import segment


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are preallocated 256 bytes at a time, so that they are rotated after a few records and opened fast."""
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 256)
