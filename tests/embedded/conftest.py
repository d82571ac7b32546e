"""Small segment files for these tests."""

from tests.harness.small_files import small_files

__all__ = ["small_files"]
