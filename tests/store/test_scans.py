"""Scans of a map with keys in memory and on disk: how much they read, and layers that move down meanwhile."""

from __future__ import annotations

import itertools
import random
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import logdb
from logdb.log import MemoryLog
from logdb.store import key_map
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import MAX_ROWS, KeyMap, Passed
from logdb.store.ordered_keys import BLOCK_KEYS, OrderedKeys
from logdb.store.overlay import BURY_AFTER, Overlay
from logdb.store.range_deletions import NOTHING
from logdb.store.values import Values
from tests.harness.opening import host_of

KEYS = [b"%05d" % number for number in range(2_000)]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[logdb.Database]:
    """2,000 keys on disk, and 200 keys between them in memory."""
    with logdb.open(tmp_path / "db") as db:
        db.multi_put(dict.fromkeys(KEYS, b"old"))
        db.checkpoint()
        db.multi_put({key + b"+": b"new" for key in KEYS[::10]})
        yield db


def map_of(db: logdb.Database) -> KeyMap:
    return host_of(db).machine.coordinator.map


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the number of keys of each look into an overlay."""
    numbers: list[int] = []
    keys = Overlay.keys

    def counting(*arguments: Any) -> list[bytes]:
        found = keys(*arguments)
        numbers.append(len(found))
        return found

    monkeypatch.setattr(Overlay, "keys", counting)
    return numbers


def test_a_scan_reads_only_the_keys_of_the_overlay_that_it_passes(db: logdb.Database, looked_at: list[int]) -> None:
    """A scan of 50 rows read 50 keys of the overlay and used five."""
    assert len(list(db.scan(b"00500", limit=50))) == 50
    assert len(list(db.scan(end=b"00500", limit=50, reverse=True))) == 50
    assert looked_at == [5, 5]


def test_a_range_with_an_end_begins_with_few_rows(db: logdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of a prefix with ten keys read 256 rows from disk."""
    requested: list[int] = []
    live_chunk = Checkpoint.live_chunk

    def counting(self: Checkpoint, start: Any, end: Any, reverse: bool, max_rows: int, *deleted: Any) -> Any:
        requested.append(max_rows)
        return live_chunk(self, start, end, reverse, max_rows, *deleted)

    monkeypatch.setattr(Checkpoint, "live_chunk", counting)
    expected = [b"00500", b"00500+", *KEYS[501:510]]
    for limit in (None, 200):
        assert [key for key, _ in db.scan(prefix=b"0050", limit=limit)] == expected
        assert [key for key, _ in db.scan(prefix=b"0050", limit=limit, reverse=True)] == expected[::-1]
    assert max(requested) <= 32
    for limit in (None, 100, 10_000):
        assert len(list(db.scan(b"00500", b"00990", limit=limit))) == min(539, limit or 539)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_layer_that_moves_down_between_two_reads_is_found(
    db: logdb.Database, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    """A checkpoint ends after a scan has read the disk, and before it reads the overlay."""
    key_map, live_chunk = map_of(db), Checkpoint.live_chunk
    moved: list[Overlay] = []

    def overtaken(self: Checkpoint, *arguments: Any) -> Any:
        found = live_chunk(self, *arguments)
        if not moved:
            moved.append(key_map.active)
            db.checkpoint()
            assert key_map.active is not moved[0]
            moved[0].newest.clear()  # as the checkpointer does
            moved[0]._ordered = OrderedKeys()
        return found

    expected = list(db.scan(b"00500", b"00600", reverse=reverse))
    monkeypatch.setattr(Checkpoint, "live_chunk", overtaken)
    assert list(db.scan(b"00500", b"00600", reverse=reverse)) == expected
    assert moved
    assert len(expected) == 110


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_few_and_many_changes_above_the_disk_are_merged(db: logdb.Database, share: float) -> None:
    draw = random.Random(7)
    state = dict(db.scan())
    for kind in ("put", "delete", "large"):
        for key in draw.sample(sorted(state), int(share * len(KEYS) / 3)):
            value = None if kind == "delete" else b"v" * (9_000 if kind == "large" else 9)
            db.multi_put({key: value, key + b"x": b"fresh"})
            state[key + b"x"] = b"fresh"
            if value is None:
                del state[key]
            else:
                state[key] = value
    rows = sorted(state.items())
    for limit in (1, 7, 50, 300, None):
        for start in draw.sample(KEYS, 20):
            before, after = [row for row in rows if row[0] < start], [row for row in rows if row[0] >= start]
            assert list(db.scan(start, limit=limit)) == after[:limit]
            assert list(db.scan(end=start, limit=limit, reverse=True)) == before[::-1][:limit]


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_consumer_of_a_queue_does_not_pass_all_keys_that_it_has_deleted(
    tmp_path: Path, looked_at: list[int], on_disk: bool
) -> None:
    """The first key of a queue was found by looking at each deleted key in memory."""
    with logdb.open(tmp_path / "db") as db:
        for key in KEYS[:800]:
            db.put(key, b"job")
        if on_disk:
            db.checkpoint()
        for key in KEYS[:800]:
            looked_at.clear()
            with db.transaction() as txn:
                ((first, _),) = txn.scan(limit=1)
                del txn[first]
            assert first == key
            assert sum(looked_at) <= 2 * BURY_AFTER + 2
        assert list(db.scan()) == []
        assert len(list(db.at(1_000).scan())) == 600


@pytest.mark.parametrize("seed", range(4))
def test_buried_keys_come_back_where_they_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Of few keys, many are deleted and written again, while they are in one layer or in several; scans at random
    versions."""
    monkeypatch.setattr("logdb.store.overlay.BURY_AFTER", 3)
    draw = random.Random(seed)
    some = KEYS[:40]
    with logdb.open(tmp_path / "db") as db:
        states: list[dict[bytes, bytes]] = [{}]
        for number in range(600):
            key = draw.choice(some)
            state = dict(states[-1])
            if draw.random() < 0.6:
                db.delete(key)
                state.pop(key, None)
            elif draw.random() < 0.1:
                start, end = sorted(draw.sample(some, 2))
                db.delete_range(start, end)
                state = {each: value for each, value in state.items() if not start <= each < end}
            else:
                state[key] = b"%d" % number
                db.put(key, state[key])
            states.append(state)
            if draw.random() < 0.01:
                db.checkpoint()
            version = draw.choice((db.version, db.version, draw.randrange(db.version + 1)))
            start, end = draw.choice((None, *some)), draw.choice((None, *some))
            limit, reverse = draw.choice((1, 2, 5, None)), draw.random() < 0.5
            rows = sorted(
                row for row in states[version].items() if (not start or row[0] >= start) and (not end or row[0] < end)
            )
            expected = (rows[::-1] if reverse else rows)[:limit]
            assert list(db.at(version).scan(start, end, reverse=reverse, limit=limit)) == expected
        assert map_of(db).active.buried_to


def test_deletions_that_are_pruned_leave_nothing_behind() -> None:
    """Without a scan each deletion of a database in memory was remembered, also after compactions."""
    overlay, key = Overlay(), b"%d" % random.getrandbits(64)
    references = sys.getrefcount(key)
    for version in range(1, 100, 2):
        overlay.apply(version, {key: b"value"})
        overlay.apply(version + 1, {key: None})
    overlay.prune(100, NOTHING)
    assert sys.getrefcount(key) == references


def test_what_lies_below_buried_keys_stays_hidden_while_their_layer_moves_down(
    db: logdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that was written to the checkpoint is emptied. A scan that had read the old checkpoint asked it then
    which keys of that exist."""
    db.delete(KEYS[500])
    for number in range(BURY_AFTER):
        db.put(KEYS[501] + b"%02d" % number, b"new")
    expected, moved = list(db.scan(KEYS[500], limit=9)), list[int]()

    def overtaken(*arguments: Any, **options: Any) -> int:
        if not moved:
            moved.append(0)
            moved.append(db.checkpoint())
        return bisect_right(*arguments, **options)

    monkeypatch.setattr(key_map, "bisect_right", overtaken)  # called for the rows after the last key in memory
    assert list(db.scan(KEYS[500], limit=9)) == expected
    assert len(moved) == 2


def test_an_interrupt_at_any_call_leaves_the_index_of_keys_usable() -> None:
    """Ctrl-C in a scan left the lock locked, keys twice in the index or in none: a later scan waited without end, or
    missed them."""
    for nth in itertools.count(1):
        overlay = Overlay()
        for number in range(5):
            overlay.put(b"a%d" % number, 1 + number, b"value")
            overlay.put(b"a%d" % number, 11 + number, None)
        overlay.keys(None, None, False, 1, 100)
        overlay.put(b"a0", 101, b"back")
        overlay.put(b"b", 102, b"value")
        overlay.put(b"c", 103, b"value")
        overlay.put(b"c", 104, None)
        calls = 0

        def interrupt(_frame: Any, event: str, function: Any, nth: int = nth) -> None:
            """Python handles signals when a function is called, and after each call of one of C."""
            nonlocal calls
            calls += event in ("call", "c_return") and function is not sys.setprofile
            if calls == nth:
                raise KeyboardInterrupt

        try:
            sys.setprofile(interrupt)
            overlay.keys(None, None, False, 10, 200)
        except KeyboardInterrupt:
            sys.setprofile(None)
        else:
            sys.setprofile(None)
            break
        found = list[list[bytes]]()
        others = [partial(overlay.keys, None, None, False, 10, at) for at in (200, 10)]
        scanning = Thread(target=lambda: found.extend(other() for other in others), daemon=True)
        scanning.start()
        scanning.join(10)
        assert found == [[b"a0", b"b"], [b"a0", b"a1", b"a2", b"a3", b"a4", b"b", b"c"]], nth
    assert nth > 20


def calls(function: Callable[[], object]) -> int:
    """Number of calls of functions, of Python and of C, that it makes."""
    seen: list[str] = []
    sys.setprofile(lambda frame, event, argument: seen.append(event) if event in ("call", "c_call") else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(seen) - 2  # of the function itself, and of setprofile


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_short_scan_makes_few_calls(tmp_path: Path, on_disk: bool) -> None:
    """A scan of one row made 53 calls in memory, where a get makes 4, and one in a transaction still 36."""
    with logdb.open(tmp_path / "db") as db:
        db.multi_put(dict.fromkeys(KEYS, b"value"))
        if on_disk:
            db.checkpoint()
        with db.transaction() as txn:
            for scan, rows, at_most in (db.scan, 1, 22), (db.scan, 10, 34), (txn.scan, 1, 26), (txn.scan, 10, 47):
                for _ in range(2):  # the first scan sorts the keys and opens a reader
                    found: list[tuple[bytes, bytes]] = []
                    made = calls(lambda found=found, scan=scan, rows=rows: found.extend(scan(b"00500", limit=rows)))
                assert [key for key, _ in found] == KEYS[500 : 500 + rows]
                assert made <= at_most


@pytest.mark.parametrize("change", ["sorts", "buries", "prunes"])
def test_keys_that_are_sorted_while_a_scan_looks_for_some_are_read_again(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A scan takes no lock where nothing has to be sorted. Another thread moves the keys meanwhile."""
    overlay, between = Overlay(), OrderedKeys.between
    overlay.apply(1, dict.fromkeys(KEYS, b"value"))
    assert overlay.keys(None, None, False, 1, 1) == KEYS[:1]
    interruptions = [change]

    def overtaken(self: OrderedKeys, *arguments: Any) -> list[bytes]:
        if interruptions:
            interruptions.clear()
            if change == "sorts":
                overlay.apply(2, dict.fromkeys([b"0", b"00000+"], b"later"))
            elif change == "buries":
                overlay.apply(2, {KEYS[0]: None})
            if change == "prunes":
                overlay.prune(2, NOTHING.with_range(KEYS[0], KEYS[1], 2))
            else:
                overlay.keys(None, None, False, 1, 2 + BURY_AFTER)
            return []  # as of a block that is being sorted
        return between(self, *arguments)

    monkeypatch.setattr(OrderedKeys, "between", overtaken)
    expected = {"sorts": [b"0", KEYS[0], b"00000+"], "buries": KEYS[:3], "prunes": KEYS[1:4]}[change]
    assert overlay.keys(None, None, False, 3, 1) == expected
    assert not interruptions


@pytest.mark.parametrize("layer", ["active", "checkpoint"])
def test_rows_beside_deleted_and_large_ones_at_old_and_new_versions(tmp_path: Path, layer: str) -> None:
    """Rows of the layer in memory are read together if all are plain, and one by one where some are not."""
    with logdb.open(tmp_path / "db") as db:
        state, states = dict[bytes, bytes](), list[tuple[Any, dict[bytes, bytes]]]()
        draw = random.Random(3)
        for number in range(40):
            for key in draw.sample(KEYS[:30], 3):
                value = draw.choice((None, b"plain %d" % number, b"large" * 2_000))
                db.multi_put({key: value})
                state.pop(key, None)
                if value is not None:
                    state[key] = value
            states.append((db.at(), dict(state)))
            if layer == "checkpoint" and number == 20:
                db.checkpoint()
        for at, known in states:
            rows = sorted(known.items())
            for limit in (1, 3, 10, 100, None):
                start = draw.choice(KEYS[:30])
                assert list(at.scan(start, limit=limit)) == [row for row in rows if row[0] >= start][:limit]
                below = [row for row in reversed(rows) if row[0] < start]
                assert list(at.scan(end=start, limit=limit, reverse=True)) == below[:limit]


def test_ordered_keys_agree_with_a_sorted_list() -> None:
    draw = random.Random(11)
    ordered, there = OrderedKeys(), set[bytes]()
    for count in (0, 1, 3, 50, 7 * BLOCK_KEYS, 1, 900, 2, 3 * BLOCK_KEYS, 4):
        fresh = list({draw.randbytes(draw.choice((1, 2, 3))) for _ in range(count)} - there)
        ordered.add(fresh)
        there.update(fresh)
        for key in draw.sample(sorted(there), len(there) // 10):
            ordered.remove(key)
            there.discard(key)
        rows = sorted(there)
        assert ordered.between(None, None, False, len(rows) + 1) == rows
        for _ in range(200):
            start, end = (draw.choice((None, b"", b"\xff\xff\xff\xff", draw.randbytes(2))) for _ in range(2))
            inside = [key for key in rows if (start is None or key >= start) and (end is None or key < end)]
            limit = draw.choice((0, 1, 10, 2_500, 100_000))
            assert ordered.between(start, end, False, limit) == inside[:limit]
            assert ordered.between(start, end, True, limit) == inside[::-1][:limit]


@pytest.mark.parametrize("layer", ["active", "frozen", "checkpoint"])
@pytest.mark.parametrize("why", ["deleted", "deleted as a range", "newer"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_that_finds_nothing_says_where_it_is(tmp_path: Path, layer: str, why: str, reverse: bool) -> None:
    """Its caller can stop, or let others have their turn, after each few keys."""
    log, count = MemoryLog(), 5_000
    checkpoint = Checkpoint(tmp_path / "map", b"i" * 16)
    key_map = KeyMap(Values(log.read_record), checkpoint)
    keys = [b"k%05d" % number for number in range(count)]
    key_map.apply(2, dict.fromkeys(keys, b"v"))
    is_range = why == "deleted as a range"
    key_map.apply(3, {} if is_range else dict.fromkeys(keys), [(b"k", b"l")] if is_range else [])
    if layer != "active":
        checkpoint.begin(3)
        for _ in checkpoint.write(key_map.freeze()):
            pass
        if layer == "checkpoint":
            checkpoint.finish(3, [])
            key_map.thaw()
    at = 1 if why == "newer" else 3
    assert key_map.first(None, None, at, reverse, 1) in (None, [])
    positions = []
    for batch in key_map.scan(None, None, at, reverse):
        assert isinstance(batch, Passed)
        positions.append(batch.rest)
    looked_at = [bisect_left(keys, position) for position in positions]
    assert looked_at == sorted(looked_at, reverse=reverse)
    assert all(0 < abs(after - before) <= MAX_ROWS for before, after in pairwise(looked_at))
    is_skipped = is_range and layer == "checkpoint"  # it has nothing from after the deletion
    assert is_skipped or len(positions) >= count // MAX_ROWS
    checkpoint.close()
