"""Reading in steps: they reach everything, and each has a bounded cost."""

from __future__ import annotations

import random

import pytest

import logdb
from logdb.dashboard import browsing


def every_key(snapshot: logdb.Snapshot, prefix: bytes) -> list[bytes]:
    found, start = [], b""
    while True:
        page = browsing.keys_from(snapshot, prefix, start)
        assert len(page.rows) <= browsing.ROWS
        found += [row.key for row in page.rows]
        if page.following is None:
            return found
        start = page.following


def every_key_backwards(snapshot: logdb.Snapshot, prefix: bytes, end: bytes) -> list[bytes]:
    found: list[bytes] = []
    while True:
        page = browsing.keys_before(snapshot, prefix, end)
        found = [row.key for row in page.rows] + found
        if not page.has_previous:
            return found
        end = page.rows[0].key


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100, 101, 333])
def test_pages_reach_every_key(count: int) -> None:
    with logdb.open(":memory:") as db:
        db.multi_put({b"before": b"", b"l": b"after"})
        keys = [b"k%04d" % number for number in range(count)]
        for key in keys:
            db.put(key, key)
        snapshot = db.at()
        assert every_key(snapshot, b"k") == keys
        assert every_key(snapshot, b"") == [b"before", *keys, b"l"]
        if keys:
            assert every_key_backwards(snapshot, b"k", b"k9999") == keys
        assert browsing.keys_before(snapshot, b"k", b"k").rows == browsing.keys_from(snapshot, b"k", b"").rows


def test_a_page_holds_few_bytes_of_large_values() -> None:
    with logdb.open(":memory:") as db:
        value = bytes(1 << 20)
        keys = [b"%02d" % number for number in range(20)]
        for key in keys:
            db.put(key, value)
        page = browsing.keys_from(db.at(), b"", b"")
        assert 4 <= len(page.rows) <= 5
        assert all(row.value.size_bytes == 1 << 20 and len(row.value.beginning) < 1_000 for row in page.rows)
        assert every_key(db.at(), b"") == keys
        assert every_key_backwards(db.at(), b"", b"99") == keys
        for _ in range(9):
            db.put(b"00", value)
        history = browsing.history_of(db, db.at(), b"00")
        assert len(history.entries) == 5
        assert history.following == [entry.version for entry in db.history(b"00")][5]


def test_the_longest_keys_are_paged() -> None:
    with logdb.open(":memory:") as db:
        keys = [b"\xff" * (8 << 10), b"\xff" * ((8 << 10) - 1)]
        for key in keys:
            db.put(key, bytes(5 << 20))
        assert every_key(db.at(), b"\xff") == sorted(keys)


def test_a_history_is_paged() -> None:
    with logdb.open(":memory:") as db:
        for number in range(60):
            db.put(b"k", b"%d" % number)
        db.delete(b"k")
        found, at = [], db.version
        while True:
            page = browsing.history_of(db, db.at(at), b"k")
            found += page.entries
            if page.following is None:
                break
            at = page.following
        assert [entry.version for entry in found] == [entry.version for entry in db.history(b"k")]
        assert found[0].value is None
        assert found[1].value == browsing.Shown(2, b"59")
        assert all(entry.time is not None for entry in found)


def test_commits_are_paged() -> None:
    with logdb.open(":memory:") as db:
        versions = [db.put(b"%d" % number, b"", label=f"l{number}") for number in range(120)]
        db.pin("a")
        db.delete_range(b"5", b"6")
        found, until = [], db.version
        while True:
            rows, following = browsing.commits_up_to(db, until, db.oldest_version)
            found += rows
            if following is None:
                break
            until = following
        assert [row.version for row in found] == [versions[-1] + 2, *versions[::-1]]
        assert found[1].label == "l119"
        assert found[0].keys == [b"5"]


def test_a_difference_is_that_of_two_scans() -> None:
    rng = random.Random(7)
    with logdb.open(":memory:") as db:
        for _ in range(600):
            key = b"k%03d" % rng.randrange(150)
            if rng.random() < 0.2:
                db.delete(key)
            elif rng.random() < 0.03:
                db.delete_range(key, key[:-1] + b"\xff")
            else:
                db.put(key, b"%d" % rng.randrange(3))
        for _ in range(12):
            before, after = sorted(rng.sample(range(db.version + 1), 2))
            prefix = rng.choice([b"", b"k0", b"k14"])
            old, new = dict(db.at(before).scan(prefix=prefix)), dict(db.at(after).scan(prefix=prefix))
            expected = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            found: dict[bytes, browsing.ChangedRow] = {}
            since = before
            while since < after:
                step = browsing.difference(db, before, after, prefix, since)
                assert step.reached > since
                assert not step.is_partial
                assert len(step.rows) <= 2 * browsing.CHANGED
                found |= {row.key: row for row in step.rows}
                since = step.reached
            assert found.keys() == expected
            for key, row in found.items():
                assert (row.before and row.before.beginning) == old.get(key)
                assert (row.after and row.after.beginning) == new.get(key)


def test_a_difference_names_what_it_leaves_out() -> None:
    with logdb.open(":memory:") as db:
        db.multi_put({b"a%04d" % number: b"1" for number in range(1_000)})
        step = browsing.difference(db, 0, 1, b"", 0)
        assert step.is_partial
        assert len(step.rows) == browsing.CHANGED
        db.delete_prefix(b"a")
        step = browsing.difference(db, 1, 2, b"", 1)
        assert step.is_partial
        assert not browsing.difference(db, 1, 2, b"a000", 1).is_partial
        assert len(browsing.difference(db, 1, 2, b"a000", 1).rows) == 10
