"""Marks: the age and the size of a sequence of rows whose keys commits make.

A commit does not know its time when it is written, and compaction removes the times of old versions. So a sweep writes
marks: "the rows up to here were committed at this time or before, and those after the last mark have this size".
The time is that of a record of the log. Everything that a sweep deletes follows from marks, so it is a function of the
log's prefix, and no row is deleted before its time.

Invariants:

RET-1  A mark's time is that of a record behind the rows up to it in the log, so they are at least as old.
RET-2  Marks are in order of place and of time. Two neighbours together are more than a part, so they are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from logdb.store.records import APPENDED_BYTES, INDEX_BYTES, VERSION_BYTES

PARTS: Final = 32
"""A row is deleted late by at most one of this number of parts of its age, or of the size."""
LAST_PLACE: Final = b"\x80"
"""Behind the places of all versions, which are less than 2^63."""
_MARK: Final = Struct(f">{APPENDED_BYTES}sQQ")


class Mark(NamedTuple):
    """A mark: the rows up to `place` (the version and index at the end of their keys) were committed at `time_ns` or
    before, and those after the mark before it have `size_bytes`."""

    place: bytes
    time_ns: int
    size_bytes: int


class Limits(NamedTuple):
    """How long rows are kept: `age_ns` after their commit, and the newest `size_bytes`; None: without limit."""

    age_ns: int | None
    size_bytes: int | None


def end_of(version: int) -> bytes:
    """The place behind all rows of a version."""
    return version.to_bytes(VERSION_BYTES) + b"\xff" * INDEX_BYTES


def encode_marks(marks: Sequence[Mark]) -> bytes:
    """The value of the key with the marks."""
    return b"".join([_MARK.pack(*mark) for mark in marks])


def decode_marks(value: bytes | None) -> list[Mark]:
    """The inverse of `encode_marks`; None: no marks. A value that sweeps do not write (programs can write any key) has
    none either: its rows are as new as the next mark."""
    if value is None or len(value) % _MARK.size:
        return []
    marks = [Mark(*fields) for fields in _MARK.iter_unpack(value)]
    are_ordered = all(a.place < b.place and a.time_ns <= b.time_ns for a, b in pairwise(marks))
    are_small = all(mark.place < LAST_PLACE and max(mark.time_ns, mark.size_bytes) < 1 << 62 for mark in marks)
    return marks if are_ordered and are_small else []


def with_mark(marks: Sequence[Mark], mark: Mark, limits: Limits) -> list[Mark]:
    """The marks and the next one. It takes the place of the last one while both together are less than a part."""
    if marks and mark.time_ns < marks[-1].time_ns:
        mark = mark._replace(time_ns=marks[-1].time_ns)
    if len(marks) < 2:
        return [*marks, mark]
    (*before, last), age_ns, size_bytes = marks, *limits
    joined = mark._replace(size_bytes=last.size_bytes + mark.size_bytes)
    is_long = age_ns is not None and joined.time_ns - before[-1].time_ns > age_ns // PARTS
    is_large = size_bytes is not None and joined.size_bytes > size_bytes // PARTS
    return [*marks, mark] if is_long or is_large else [*before, joined]


def expired(marks: Sequence[Mark], limits: Limits, now_ns: int) -> int:
    """The number of marks, from the first, whose rows are not kept at the time `now_ns` of the log."""
    age_ns, size_bytes = limits
    count = 0
    if age_ns is not None:
        count = sum(mark.time_ns + age_ns <= now_ns for mark in marks)
    if size_bytes is not None:
        left = sum(mark.size_bytes for mark in marks[count:])
        while count < len(marks) and (left := left - marks[count].size_bytes) >= size_bytes:
            count += 1
    return count


def is_due(marks: Sequence[Mark], limits: Limits, last: bytes, now_ns: int | None) -> bool:
    """Whether a sweep at about `now_ns` (None: unknown) has something to do. `last`: the place of the last row."""
    age_ns, size_bytes = limits
    is_unmarked = not marks or last > marks[-1].place
    if age_ns is None or (is_unmarked and (size_bytes is not None or not marks)):
        return is_unmarked
    if now_ns is None:
        return True
    is_time_for_mark = is_unmarked and marks[-1].time_ns + age_ns // PARTS <= now_ns
    return is_time_for_mark or marks[0].time_ns + age_ns <= now_ns
