"""The index of range deletes against the plain reading of the list: for each key, the newest range that has it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logdb.store.range_deletions import RangeDeletions, index_of
from logdb.store.records import DeletedRange, Range

KEYS = [bytes([letter]) for letter in b"abcdefghij"]
bounds = st.sampled_from([b"", *KEYS, b"c\0", b"ee"])
ranges = st.tuples(bounds, st.one_of(st.none(), bounds)).filter(lambda found: found[1] is None or found[0] < found[1])
commits = st.lists(st.lists(ranges, min_size=1, max_size=3), max_size=8)
versions = st.integers(0, 90)


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
    deletions, all_ranges = made(found)
    for key in KEYS:
        expected = newest(all_ranges, key, at)
        assert deletions.newest(key, at) == expected
        assert index_of([deleted for deleted in all_ranges if deleted.version <= at]).newest(key) == expected
    assert list(deletions) == list(RangeDeletions(all_ranges)) == list(deletions.with_older(all_ranges))


@given(commits, versions, st.one_of(st.none(), bounds), st.one_of(st.none(), bounds), st.booleans())
def test_a_range_is_divided_into_stretches(
    found: list[list[Range]], at: int, start: bytes | None, end: bytes | None, reverse: bool
) -> None:
    deletions, all_ranges = made(found)
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
