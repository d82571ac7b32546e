"""Marks: no row expires before its time, and none much later."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logdb.retention.expiry import DIGITS, expiry_rows, prefix_of, ttl_in, ttl_ms, version_in
from logdb.retention.marks import (
    PARTS,
    Limits,
    Mark,
    decode_marks,
    encode_marks,
    end_of,
    expired,
    is_due,
    with_mark,
)
from logdb.store.records import versioned_key

ROWS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=150)
"""The time from the row before, and the size of each row."""


def place(version: int) -> bytes:
    return end_of(version)


@given(ROWS, st.integers(1, 2_000), st.integers(1, 20))
def test_a_row_expires_after_its_age_and_a_part_of_it(rows: list[tuple[int, int]], age: int, every: int) -> None:
    limits, marks, times, now = Limits(age, None), list[Mark](), dict[int, int](), 0
    first = last_sweep = 0
    for version, (pause, _) in enumerate(rows, 1):
        now += pause
        times[version] = now
        if version % every:
            continue
        marks = with_mark(marks, Mark(place(version), now, 0), limits)
        assert len(marks) <= 2 * PARTS + 4
        count = expired(marks, limits, now)
        gone = int.from_bytes(marks[count - 1].place[:8]) if count else first
        assert all(times[row] + age <= now for row in range(first + 1, gone + 1))
        late = age // PARTS + (now - last_sweep)
        longest = max((b.time_ns - a.time_ns for a, b in pairwise([Mark(b"", 0, 0), *marks])), default=0)
        assert all(times[row] + age + late + longest > now for row in range(gone + 1, version + 1))
        first, last_sweep, marks = gone, now, marks[count:]


@given(ROWS, st.integers(1, 5_000))
def test_the_newest_bytes_are_kept_and_a_part_more(rows: list[tuple[int, int]], limit: int) -> None:
    limits, marks, first = Limits(None, limit), list[Mark](), 0
    sizes = [0, *(size for _, size in rows)]
    for version, size in enumerate(sizes[1:], 1):
        marks = with_mark(marks, Mark(place(version), 0, size), limits)
        count = expired(marks, limits, 0)
        gone = int.from_bytes(marks[count - 1].place[:8]) if count else first
        kept, all_ = sum(sizes[gone + 1 : version + 1]), sum(sizes[: version + 1])
        assert kept >= min(limit, all_)
        assert kept <= limit + 2 * (limit // PARTS) + 2 * 100
        first, marks = gone, marks[count:]
        assert sum(mark.size_bytes for mark in marks) == kept


def test_a_time_before_the_last_mark_does_not_go_back() -> None:
    """The clocks of two servers differ."""
    marks = with_mark([Mark(place(1), 100, 0)], Mark(place(2), 90, 0), Limits(10, None))
    assert [mark.time_ns for mark in marks] == [100, 100]
    assert decode_marks(encode_marks(marks)) == marks
    assert decode_marks(None) == []


def test_a_sweep_is_due_for_new_rows_and_for_old_marks() -> None:
    marks = [Mark(place(5), 1_000, 0)]
    by_age, by_size = Limits(3_200, None), Limits(None, 10)
    assert is_due([], by_age, place(1), 0)
    assert not is_due(marks, by_age, place(5), 4_199)
    assert is_due(marks, by_age, place(5), 4_200)
    assert is_due(marks, by_age, place(5), None)
    assert not is_due(marks, by_age, place(6), 1_099)
    assert is_due(marks, by_age, place(6), 1_100)
    assert is_due(marks, by_size, place(6), 0)
    assert not is_due(marks, by_size, place(5), None)
    assert is_due(marks, Limits(3_200, 10), place(6), 1_001)


@given(st.floats(0.001, 1e9))
def test_times_to_live_are_few_and_never_shorter(ttl: float) -> None:
    rounded = ttl_ms(ttl)
    assert ttl * 1_000 - 0.001 <= rounded <= max(ttl * 1_000 * (1 + 2.0 ** (1 - DIGITS)), ttl * 1_000 + 1)
    assert rounded >> max(rounded.bit_length() - DIGITS, 0) << max(rounded.bit_length() - DIGITS, 0) == rounded
    (row,) = expiry_rows([(b"k", rounded)])
    assert ttl_in(row) == rounded
    assert version_in(versioned_key(row, 77), prefix_of(rounded)) == 77
