"""Ranges of keys as callers name them."""

from __future__ import annotations

from typing import Final

from logdb.errors import KeyTooLarge
from logdb.store.arguments import check_flag
from logdb.store.limits import MAX_KEY_BYTES, check_key

MAX_BOUND_BYTES: Final = MAX_KEY_BYTES + 1
"""The first key after the longest one is named by one byte more."""
MAX_LIMIT: Final = (1 << 63) - 1


def key_range(
    start: bytes | None, end: bytes | None, prefix: bytes | None, limit: int | None, reverse: bool = False
) -> tuple[bytes | None, bytes | None]:
    """[start, end) of the keys that are meant; None: no bound. Raises TypeError, ValueError, KeyTooLarge."""
    check_flag("reverse", reverse)
    for name, bound in (("start", start), ("end", end), ("prefix", prefix)):
        if bound is not None and type(bound) is not bytes:
            raise TypeError(f"{name} must be bytes, not {type(bound).__name__}")
        if bound is not None and len(bound) > MAX_BOUND_BYTES:
            raise KeyTooLarge(len(bound), MAX_BOUND_BYTES, f", as the {name} of a range,")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise ValueError(f"limit must be a whole number from 0 on, not {limit!r}")
    if limit is not None and limit > MAX_LIMIT:
        raise ValueError(f"limit must be less than 2^63, not {limit:,}; leave it out to get all rows")
    if prefix is None:
        return start, end
    if start is not None or end is not None:
        raise ValueError("give a prefix, or a start and an end, but not both")
    if prefix == b"":
        return None, None
    check_key(prefix)
    return prefix, after_prefix(prefix)


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all that begin with `prefix`; None if there can be none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
