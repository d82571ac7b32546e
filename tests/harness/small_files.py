"""Segment files as small as tests want them: a conftest that imports `small_files` has them in its whole folder."""

from __future__ import annotations

import pytest

from logdb.log.segments import segment


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are preallocated 256 bytes at a time, so that they are rotated after a few records and opened fast."""
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 256)
