"""Ranges of keys as callers name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from logdb.errors import KeyTooLarge
from logdb.store.arguments import check_flag, listed
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


class ScanRange(NamedTuple):
    """[start, end), and how many of its rows are wanted; None: no bound."""

    start: bytes | None
    end: bytes | None
    limit: int | None


def scan_ranges(
    ranges: Iterable[tuple[bytes | None, bytes | None]], limit: int | None, reverse: bool
) -> list[ScanRange]:
    """The ranges of a multi-scan, `limit` rows of each. Raises as `key_range`."""
    key_range(None, None, None, limit, reverse)
    wanted = []
    for each in listed(ranges, "ranges"):
        start, end = _pair(each)
        key_range(start, end, None, None)
        wanted.append(ScanRange(start, end, limit))
    return wanted


def _pair(bounds: Any) -> tuple[Any, Any]:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise TypeError(f"each of the ranges must be a pair (start, end), not {bounds!r:.100}")
    return bounds[0], bounds[1]


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all that begin with `prefix`; None if there can be none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
