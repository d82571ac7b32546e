"""Segment files as small as the tests want them."""

from __future__ import annotations

import pytest

from logdb.log.segments import segment


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are preallocated in small pieces, so that they are rotated after a few records."""
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 256)
