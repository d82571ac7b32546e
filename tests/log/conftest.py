"""Fixtures of the log tests: small preallocation, so that thousands of logs can be opened in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.small_files import small_files

__all__ = ["fresh", "small_files"]


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """A new path in the temporary directory at each call."""
    count = iter(range(1 << 30))
    return lambda: tmp_path / f"{next(count):06d}"
