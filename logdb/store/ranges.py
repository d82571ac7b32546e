"""Checks the ranges of keys that callers pass."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn

from logdb.errors import KeyTooLarge, shown
from logdb.store.arguments import check_flag, listed
from logdb.store.limits import MAX_KEY_BYTES, check_key
from logdb.store.records import APPENDED_BYTES, Range

MAX_BOUND_BYTES: Final = MAX_KEY_BYTES + 1
"""The first key after a key of maximum length is one byte longer."""
MAX_LIMIT: Final = (1 << 63) - 1


def key_range(
    start: bytes | None, end: bytes | None, prefix: bytes | None, limit: int | None, reverse: bool = False
) -> tuple[bytes | None, bytes | None]:
    """[start, end) of the keys that the arguments select; None: no bound. Raises TypeError, ValueError, KeyTooLarge."""
    if reverse is not False:
        check_flag("reverse", reverse)
    if start is not None and (start.__class__ is not bytes or len(start) > MAX_BOUND_BYTES):
        _refuse_bound("start", start)
    if end is not None and (end.__class__ is not bytes or len(end) > MAX_BOUND_BYTES):
        _refuse_bound("end", end)
    if limit is not None and (limit.__class__ is not int or not 0 <= limit <= MAX_LIMIT):
        _refuse_limit(limit)
    if prefix is None:
        return start, end
    if prefix.__class__ is not bytes or len(prefix) > MAX_BOUND_BYTES:
        _refuse_bound("prefix", prefix)
    if start is not None or end is not None:
        raise ValueError("give a prefix, or a start and an end, but not both")
    if prefix == b"":
        return None, None
    check_key(prefix)
    return prefix, after_prefix(prefix)


def check_prefix(prefix: bytes) -> None:
    """Check the prefix of keys that commits make. Raises TypeError, KeyTooLarge."""
    if type(prefix) is not bytes:
        raise TypeError(f"prefix must be bytes, not {type(prefix).__name__}")
    if len(prefix) > MAX_KEY_BYTES - APPENDED_BYTES:
        raise KeyTooLarge(len(prefix) + APPENDED_BYTES, MAX_KEY_BYTES, f", made of prefix {shown(prefix)},")


def _refuse_bound(name: str, bound: bytes) -> NoReturn:
    if type(bound) is not bytes:
        raise TypeError(f"{name} must be bytes, not {type(bound).__name__}")
    raise KeyTooLarge(len(bound), MAX_BOUND_BYTES, f", as the {name} of a range,")


def _refuse_limit(limit: int) -> NoReturn:
    if type(limit) is not int or limit < 0:
        raise ValueError(f"limit must be a whole number from 0 on, not {limit!r}")
    raise ValueError(f"limit must be less than 2^63, not {limit:,}; leave it out to get all rows")


class ScanRange(NamedTuple):
    """[start, end), and the maximum number of its rows to return; None: no bound."""

    start: bytes | None
    end: bytes | None
    limit: int | None


def scan_ranges(
    ranges: Iterable[tuple[bytes | None, bytes | None]], limit: int | None, reverse: bool
) -> list[ScanRange]:
    """The ranges of a multi-scan, `limit` rows of each. Raises as `key_range`."""
    key_range(None, None, None, limit, reverse)
    checked = []
    for each in listed(ranges, "ranges"):
        start, end = _pair(each)
        key_range(start, end, None, None)
        checked.append(ScanRange(start, end, limit))
    return checked


def _pair(bounds: Any) -> tuple[Any, Any]:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise TypeError(f"each of the ranges must be a pair (start, end), not {bounds!r:.100}")
    return bounds[0], bounds[1]


def range_to_delete(start: bytes | None, end: bytes | None, prefix: bytes | None = None) -> list[Range]:
    """The range of the keys to delete; none if it is empty. Raises as `key_range`."""
    low, high = key_range(start, end, prefix, None)
    return [] if high is not None and (low or b"") >= high else [(low or b"", high)]


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same keys in order, in ranges that neither overlap nor touch."""
    found: list[Range] = []
    for start, end in sorted(ranges, key=itemgetter(0)):
        if found:
            known_start, known_end = found[-1]
            if known_end is None or known_end >= start:
                if known_end is not None and (end is None or end > known_end):
                    found[-1] = known_start, end
                continue
        found.append((start, end))
    return found


def common(one: Range, other: Range) -> Range | None:
    """The keys that are in both ranges; None if there are none."""
    start = max(one[0], other[0])
    ends = [end for _, end in (one, other) if end is not None]
    end = min(ends) if ends else None
    return None if end is not None and start >= end else (start, end)


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys that begin with `prefix`; None if every later key begins with it."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
