"""Segment files as small as the tests want them."""

from tests.harness.small_files import small_files

__all__ = ["small_files"]
