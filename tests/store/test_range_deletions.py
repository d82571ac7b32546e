"""The index of range deletes against the plain reading of the list: for each key, the newest range that has it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.store import range_deletions
from logdb.store.range_deletions import ChunkedIndex, RangeDeletions, index_of
from logdb.store.records import DeletedRange, Range

KEYS = [bytes([letter]) for letter in b"abcdefghij"]
bounds = st.sampled_from([b"", *KEYS, b"c\0", b"ee"])
ranges = st.tuples(bounds, st.one_of(st.none(), bounds)).filter(lambda found: found[1] is None or found[0] < found[1])
commits = st.lists(st.lists(ranges, min_size=1, max_size=3), max_size=20)
versions = st.integers(0, 210)


@contextmanager
def small_parts() -> Iterator[None]:
    """Few range deletes fill several chunks and parts."""
    with mock.patch.object(range_deletions, "MAX_CHUNK", 3), mock.patch.object(range_deletions, "PART", 2):
        yield


def made(found: list[list[Range]]) -> tuple[RangeDeletions, list[DeletedRange]]:
    """Range deletes at versions 10, 20, ..., and the list of them."""
    deletions, all_ranges = RangeDeletions(), []
    for number, some in enumerate(found, 1):
        deletions.add(10 * number, some)
        all_ranges += [DeletedRange(10 * number, start, end) for start, end in some]
    return deletions, all_ranges


def newest(all_ranges: list[DeletedRange], key: bytes, at: int) -> int:
    return max((deleted.version for deleted in all_ranges if deleted.version <= at and deleted.has(key)), default=0)


@given(commits, versions)
def test_each_key_has_its_newest_range_delete_of_every_version(found: list[list[Range]], at: int) -> None:
    with small_parts():
        deletions, all_ranges = made(found)
        deletions.at(at)
    for key in KEYS:
        expected = newest(all_ranges, key, at)
        assert deletions.newest(key, at) == expected
        assert index_of([deleted for deleted in all_ranges if deleted.version <= at]).newest(key) == expected
    assert list(deletions) == list(RangeDeletions(all_ranges)) == list(deletions.with_older(all_ranges))


@given(commits, versions, st.one_of(st.none(), bounds), st.one_of(st.none(), bounds), st.booleans())
def test_a_range_is_divided_into_stretches(
    found: list[list[Range]], at: int, start: bytes | None, end: bytes | None, reverse: bool
) -> None:
    with small_parts():
        deletions, all_ranges = made(found)
        deletions.at(at)
    seen: list[tuple[bytes, int]] = []
    index, low, high = deletions.at(at), start, end
    for _ in range(100):
        stretch = index.first(low, high, reverse)
        inside = [key for key in KEYS if (stretch.start or b"") <= key and (stretch.end is None or key < stretch.end)]
        seen += [(key, stretch.version) for key in (reversed(inside) if reverse else inside)]
        if (stretch.start == low) if reverse else (stretch.end == high):
            break
        low, high = (low, stretch.start) if reverse else (stretch.end, high)
    else:
        raise AssertionError("the stretches have no end")
    expected = [key for key in KEYS if (start or b"") <= key and (end is None or key < end)]
    assert seen == [(key, newest(all_ranges, key, at)) for key in (reversed(expected) if reverse else expected)]


@given(commits, versions, versions, ranges)
def test_a_range_that_was_read_conflicts_with_overlapping_range_deletes_since(
    found: list[list[Range]], since: int, at: int, read: Range
) -> None:
    deletions, all_ranges = made(found)
    start, end = read
    later = [one for one in all_ranges if since < one.version <= at and one.overlaps(start, end)]
    changed = deletions.changed(start, end, since, at)
    if not later:
        assert changed is None
        return
    assert changed is not None
    assert changed.start == min(max(start, one.start) for one in later)
    assert changed.version == max(one.version for one in later if max(start, one.start) == changed.start)


@given(commits, versions)
def test_range_deletes_are_dropped_by_version(found: list[list[Range]], before: int) -> None:
    deletions, all_ranges = made(found)
    left = deletions.without(lambda deleted: deleted.version < before)
    assert set(left) == {deleted for deleted in all_ranges if deleted.version >= before}
    assert left.between(0, 100) == deletions.between(before - 1, 100)


def disjoint(count: int) -> list[DeletedRange]:
    """Range deletes at versions 1, 2, ..., each of a range of its own."""
    return [DeletedRange(number + 1, b"%08d" % (2 * number), b"%08d" % (2 * number + 1)) for number in range(count)]


def test_adding_a_range_delete_copies_a_small_part_of_the_index() -> None:
    """A copy of all bounds for each range delete would take minutes for 100,000 of them."""
    deletions, kept = RangeDeletions(disjoint(5_000)), []
    tracemalloc.start()
    try:
        for number in range(200):
            deletions.add(6_000 + number, [(b"%08d" % (50 * number), b"%08d" % (50 * number + 20))])
            kept.append(deletions.at(6_000 + number))
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept[0].newest(b"%08d" % 51) == 0
    assert kept[-1].newest(b"%08d" % 51) == 6_001
    assert used_bytes < 5 << 20, "200 copies of 10,000 bounds take 32 MB"


def test_reading_many_earlier_versions_sorts_each_range_delete_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    deletions, sorted_ranges = RangeDeletions(disjoint(3_000)), 0

    def counted(ranges: Iterable[DeletedRange]) -> ChunkedIndex:
        nonlocal sorted_ranges
        ranges = list(ranges)
        sorted_ranges += len(ranges)
        return index_of(ranges)

    monkeypatch.setattr(range_deletions, "index_of", counted)
    for version in range(100, 3_000, 7):
        assert deletions.newest(b"%08d" % (2 * version - 2), version) == version
        assert deletions.newest(b"%08d" % (2 * version), version) == 0
    assert sorted_ranges < 8 * 3_000
