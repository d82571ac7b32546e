"""The Database contract, reading: points, snapshots, scans, history and time travel."""

from __future__ import annotations

import datetime as dt
import time

import pytest

import logdb
from tests.harness.worlds import World

LARGE = bytes(range(256)) * 40
LONG = [b"", b"a" * 470, b"a" * 960, b"a" * 1440, b"\xff" * 480, b"a" * 8180]
"""Stems under which keys share more bytes than the largest index entry."""


def rows_under(stems: list[bytes]) -> dict[bytes, bytes]:
    keys = {stem + tail for stem in stems for tail in (b"", b"0", b"1\x00", b"\xff", b"\xff\xff", b"z" * 12)}
    keys |= {b"k" * length for length in (1, 479, 480, 481, 959, 960, 961, 1439, 1440, 8191, 8192)}
    return {key: b"value %d" % len(key) for key in keys if key}


def test_a_get_returns_the_value_that_was_put(world: World) -> None:
    world.db.put(b"k", b"1")
    world.db.put(b"empty", b"")
    world.db.put(b"large", LARGE)
    db = world.disturb()
    assert (db[b"k"], db[b"empty"], db[b"large"]) == (b"1", b"", LARGE)
    assert db.get(b"nope") is None
    assert db.get(b"nope", b"default") == b"default"
    assert db.get(b"empty", b"default") == b""
    assert b"k" in db
    assert b"nope" not in db
    with pytest.raises(KeyError):
        db[b"nope"]


def test_the_newest_value_wins_and_a_deleted_key_is_absent(world: World) -> None:
    world.db.put(b"k", b"1")
    world.db.put(b"gone", b"1")
    world.disturb()
    world.db.put(b"k", LARGE)
    world.db.delete(b"gone")
    world.db.delete(b"never")
    db = world.disturb()
    assert db[b"k"] == LARGE
    assert b"gone" not in db
    assert b"never" not in db
    db.put(b"gone", b"again")
    assert world.disturb()[b"gone"] == b"again"


def test_a_key_that_is_too_long_to_exist_is_refused_by_every_read(world: World) -> None:
    """Some answered that there is none, a server said that nothing was written, and a cluster did not answer."""
    world.db.put(b"k", b"1")
    db, long = world.disturb(), bytes(logdb.MAX_KEY_BYTES + 1)
    snapshot = db.at()
    for read in (
        lambda: db.get(long),
        lambda: db[long],
        lambda: long in db,
        lambda: db.multi_get([b"k", long]),
        lambda: snapshot.get(long),
        lambda: snapshot.multi_get([b"k", long]),
        lambda: db.history(long),
        lambda: db.run(lambda txn: txn.get(long)),
        lambda: db.run(lambda txn: txn.multi_get([b"k", long])),
    ):
        with pytest.raises(logdb.KeyTooLarge, match="8,193 bytes, the limit is 8,192; nothing was done"):
            read()
    assert db.get(long[1:]) is None


def test_a_time_beyond_all_clocks_is_named_as_it_was_given(world: World) -> None:
    """In the years that a message cannot carry, too."""
    for when, named in ((1e10, "10000000000.000"), (1e30, "253402300799.000")):
        with pytest.raises(logdb.FutureVersion, match=f"version of the time {named} "):
            world.db.at(time=when)


def test_multi_get_returns_one_snapshot_and_its_version(world: World) -> None:
    version = world.db.multi_put({b"a": b"1", b"b": LARGE, b"c": b"3"})
    world.db.delete(b"c")
    db = world.disturb()
    found = db.multi_get([b"a", b"b", b"c", b"d"])
    assert found == {b"a": b"1", b"b": LARGE}
    assert found.version == db.version
    assert db.at(version).multi_get([b"c", b"d"]) == {b"c": b"3"}
    assert db.multi_get([]) == {}


def test_scans_agree_with_a_sorted_dictionary(world: World) -> None:
    expected = rows_under(LONG)
    world.db.multi_put(expected | {b"a" * 961: None})
    world.db.multi_put({b"deleted": b"1"})
    world.disturb()
    world.db.delete(b"deleted")
    expected.pop(b"a" * 961, None)
    db = world.disturb()
    ordered = sorted(expected.items())
    assert list(db.scan()) == ordered
    assert list(db.scan(reverse=True)) == ordered[::-1]
    bounds = [key for key, _ in ordered[::4]] + [b"a" * 480, b"a" * 1440 + b"1", b"\xff" * 600, b"b"]
    for low in bounds:
        assert list(db.scan(prefix=low)) == [row for row in ordered if row[0].startswith(low)]
        assert list(db.scan(low)) == [row for row in ordered if low <= row[0]]
        assert list(db.scan(end=low, reverse=True)) == [row for row in ordered if row[0] < low][::-1]
        for high in bounds[::3]:
            inside = [row for row in ordered if low <= row[0] < high]
            assert list(db.scan(low, high)) == inside
            assert list(db.scan(low, high, reverse=True, limit=2)) == inside[::-1][:2]


def test_prefix_of_only_0xff(world: World) -> None:
    rows = {b"\xff": b"1", b"\xff\xff": b"2", b"\xff\xff\x00": b"3", b"\xfe\xff": b"4", b"\xfe": b"5"}
    world.db.multi_put(rows)
    db = world.disturb()
    assert [key for key, _ in db.scan(prefix=b"\xff")] == [b"\xff", b"\xff\xff", b"\xff\xff\x00"]
    assert [key for key, _ in db.scan(prefix=b"\xff\xff", reverse=True)] == [b"\xff\xff\x00", b"\xff\xff"]
    assert [key for key, _ in db.scan(prefix=b"\xfe")] == [b"\xfe", b"\xfe\xff"]


def test_scans_longer_than_a_batch(world: World) -> None:
    world.db.multi_put({b"%05d" % number: b"%d" % number for number in range(0, 5_000, 2)})
    world.disturb()
    world.db.multi_put({b"%05d" % number: b"%d" % number for number in range(1, 5_000, 2)})
    world.disturb()
    world.db.multi_put({b"%05d" % number: None for number in range(1_000, 3_500)})
    db = world.disturb()
    left = [b"%05d" % number for number in [*range(1_000), *range(3_500, 5_000)]]
    assert [key for key, _ in db.scan()] == left
    assert [key for key, _ in db.scan(reverse=True)] == left[::-1]
    assert [key for key, _ in db.scan(limit=1_003)] == left[:1_003]
    assert [key for key, _ in db.scan(b"00998", limit=4, reverse=False)] == [b"00998", b"00999", b"03500", b"03501"]
    assert [key for key, _ in db.scan(end=b"03501", limit=3, reverse=True)] == [b"03500", b"00999", b"00998"]


def test_empty_ranges_and_limits(world: World) -> None:
    world.db.multi_put({b"a": b"1", b"b": b"2"})
    db = world.disturb()
    assert list(db.scan(b"b", b"b")) == []
    assert list(db.scan(b"b", b"a")) == []
    assert list(db.scan(b"b", b"a", reverse=True)) == []
    assert list(db.scan(prefix=b"c")) == []
    assert list(db.scan(limit=0)) == []
    assert list(db.scan(prefix=b"", limit=1)) == [(b"a", b"1")]


@pytest.mark.parametrize("reverse", [False, True])
def test_several_ranges_are_read_as_scans_of_each(world: World, reverse: bool) -> None:
    world.db.multi_put({b"%04d" % number: b"v%d" % number for number in range(0, 2_000, 2)})
    world.db.multi_put(dict.fromkeys([b"0006", b"0900"]))
    db = world.disturb()
    db.multi_put({b"0007": b"new", b"0008": b"x" * 5_000, b"0010": None})
    ranges = [(b"0003", b"0013"), (None, b"0004"), (b"1990", None), (b"5", b"6"), (b"b", b"a"), (None, None)]
    ranges.append(ranges[0])
    for limit in (None, 0, 1, 3, 700):
        each = [list(db.scan(*bounds, reverse=reverse, limit=limit)) for bounds in ranges]
        assert db.multi_scan(ranges, reverse=reverse, limit=limit) == each
        assert db.at().multi_scan(iter(ranges), reverse=reverse, limit=limit) == each
        for read_only in (False, True):
            with db.transaction(read_only=read_only) as txn:
                assert txn.multi_scan(ranges, reverse=reverse, limit=limit) == each
    assert db.multi_scan([]) == []
    snapshot = db.at()
    db.multi_put({b"0007": None, b"0009": b"later"})
    assert snapshot.multi_scan([(b"0005", b"0012")]) == [[(b"0007", b"new"), (b"0008", b"x" * 5_000)]]


def test_more_ranges_and_rows_than_fit_in_a_page(world: World) -> None:
    world.db.multi_put({b"%04d" % number: b"%d" % number * 600 for number in range(1_100)})
    db = world.disturb()
    rows = list(db.scan())
    ranges: list[tuple[bytes | None, bytes | None]] = [(key, key + b"\0") for key, _ in rows]
    assert db.multi_scan([*ranges, (b"0400", b"0600"), (None, None)]) == [*([row] for row in rows), rows[400:600], rows]
    assert db.multi_scan([(None, None), (b"05", b"06")], limit=600, reverse=True) == [rows[:-601:-1], rows[599:499:-1]]
    with db.transaction() as txn:
        assert txn.multi_scan([(None, b"0900"), *ranges]) == [rows[:900], *([row] for row in rows)]


def test_several_ranges_of_a_compacted_version(world: World) -> None:
    old = world.db.put(b"k", b"1")
    snapshot = world.db.at(old)
    world.db.put(b"k", b"2")
    world.db.compact()
    with pytest.raises(logdb.VersionTrimmed):
        snapshot.multi_scan([(None, None)])
    db = world.disturb()
    assert db.multi_scan([(b"k", b"l"), (b"l", None)]) == [[(b"k", b"2")], []]
    assert db.at().multi_scan([(None, None)]) == [[(b"k", b"2")]]


def test_a_scan_reads_one_snapshot_despite_concurrent_writes(world: World) -> None:
    world.db.multi_put({b"%04d" % number: b"old" for number in range(2_500)})
    db = world.disturb()
    rows = db.scan()
    first = next(rows)
    db.multi_put({b"%04d" % number: b"new" for number in range(2_500)} | {b"0000a": b"new", b"2000": None})
    db.checkpoint()
    rest = list(rows)
    assert [first, *rest] == [(b"%04d" % number, b"old") for number in range(2_500)]


def test_history_goes_back_newest_first(world: World) -> None:
    versions = [world.db.put(b"k", b"1"), world.db.put(b"k", LARGE)]
    world.disturb()
    versions += [world.db.delete(b"k"), world.db.put(b"k", b"4")]
    world.db.put(b"other", b"1")
    db = world.disturb()
    values = [b"1", LARGE, None, b"4"]
    expected = list(zip(versions, values, strict=True))[::-1]
    assert list(db.history(b"k")) == expected
    assert list(db.at(versions[2]).history(b"k")) == expected[1:]
    assert list(db.history(b"never")) == []
    assert next(db.history(b"k")).value == b"4"


def test_time_travel_by_version(world: World) -> None:
    states: dict[int, dict[bytes, bytes]] = {0: {}}
    state: dict[bytes, bytes] = {}
    for step in range(12):
        key = b"%d" % (step % 5)
        if step % 4 == 3:
            state.pop(key, None)
            version = world.db.delete(key)
        else:
            state[key] = LARGE if step % 3 == 0 else b"%d" % step
            version = world.db.put(key, state[key])
        states[version] = dict(state)
        if step == 6:
            world.disturb()
    db = world.disturb()
    for version, expected in states.items():
        snapshot = db.at(version)
        assert dict(snapshot.scan()) == expected
        assert snapshot.version == version
        for key in (b"0", b"1", b"2", b"3", b"4"):
            assert snapshot.get(key) == expected.get(key)
            assert (key in snapshot) == (key in expected)
    assert db.at().version == db.version
    with pytest.raises(KeyError):
        db.at(0)[b"0"]


def test_time_travel_by_time(world: World) -> None:
    first = world.db.put(b"k", b"1")
    second = world.db.put(b"k", b"2")
    db = world.disturb()
    when = db.time_of(first)
    assert when is not None
    then = db.at(time=when + dt.timedelta(microseconds=1))
    assert then.version >= first
    assert then.get(b"k") in (b"1", b"2")
    assert db.at(time=time.time()).get(b"k") == b"2"
    assert db.at(time=0).version == 0
    assert db.at(time=when - dt.timedelta(seconds=1)).get(b"k") is None
    assert db.time_of(0) is None
    last = db.time_of(second)
    assert last is not None
    assert when <= last <= dt.datetime.now(dt.UTC)


def test_versions_that_do_not_exist(db: logdb.Database) -> None:
    version = db.put(b"k", b"1")
    with pytest.raises(logdb.FutureVersion) as caught:
        db.at(version + 1)
    assert (caught.value.version, caught.value.newest) == (version + 1, version)
    assert caught.value.advice is logdb.Advice.GIVE_UP
    with pytest.raises(logdb.FutureVersion):
        db.at(time=time.time() + 1_000)
    with pytest.raises(logdb.FutureVersion):
        db.time_of(version + 1)
    with pytest.raises(ValueError):
        db.at(-1)
    with pytest.raises(ValueError):
        db.at(1, time=1.0)
    for wrong in ("1", 1.0, True, b"1"):
        with pytest.raises(TypeError):
            db.at(wrong)  # type: ignore[arg-type]
    for wrong in ("now", b"1", True):
        with pytest.raises(TypeError):
            db.at(time=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["text", bytearray(b"k"), memoryview(b"k"), 1, None])
def test_keys_of_the_wrong_type(db: logdb.Database, wrong: object) -> None:
    for read in (db.get, db.__getitem__, db.__contains__, db.at().get, db.history, db.at().history):
        with pytest.raises(TypeError, match="must be bytes"):
            read(wrong)  # type: ignore[operator]
    with pytest.raises(TypeError):
        db.multi_get([b"a", wrong])  # type: ignore[list-item]
    if wrong is not None:
        for bounds in ({"start": wrong}, {"end": wrong}, {"prefix": wrong}):
            with pytest.raises(TypeError):
                db.scan(**bounds)  # type: ignore[arg-type]


def test_invalid_scan_arguments(db: logdb.Database) -> None:
    for limit in (-1, 1.5, "1"):
        with pytest.raises(ValueError, match="limit"):
            db.scan(limit=limit)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="but not both"):
        db.scan(b"a", prefix=b"b")
    with pytest.raises(logdb.KeyTooLarge):
        db.scan(b"a" * 8194)
    with pytest.raises(ValueError, match="empty"):
        db.get(b"")


def test_the_error_of_a_str_key_suggests_encoding(db: logdb.Database) -> None:
    with pytest.raises(TypeError, match=r"encode it first, for example with \.encode\(\)"):
        db.get("k")  # type: ignore[call-overload]


def test_the_time_of_a_version_finds_that_version(db: logdb.Database) -> None:
    for number in range(50):
        version = db.put(b"k", b"%d" % number)
        time = db.time_of(version)
        assert time is not None
        db.put(b"k", b"later")
        assert db.at(time=time).version >= version
        assert db.at(time=time - dt.timedelta(microseconds=1)).version < version


def test_a_version_outside_the_range_of_versions(world: World) -> None:
    """No message can contain it; every backend rejects it at once."""
    world.db.put(b"k", b"v")
    db = world.disturb()
    for number in (1 << 63, (1 << 64) - 1, 1 << 64, 1 << 80):
        for ask in (
            db.at,
            db.time_of,
            db.compact,
            lambda version: db.pin("name", version),
            lambda version: next(iter(db.watch(since=version))),
            lambda when: db.at(time=when),
        ):
            with pytest.raises(logdb.FutureVersion, match="does not exist yet"):
                ask(number)
        with pytest.raises(ValueError, match="limit must be less than"):
            next(iter(db.scan(limit=number)))
    assert db[b"k"] == b"v"


@pytest.mark.parametrize("key", [b"k", b"nope"])
def test_a_snapshot_of_a_closed_database_answers_nothing(world: World, key: bytes) -> None:
    """The history of a key returned its newest entry, or none."""
    world.db.put(b"k", b"1")
    snapshot = world.db.at()
    world.db.close()
    for read in (
        lambda: snapshot.get(key),
        lambda: snapshot.multi_get([key]),
        lambda: snapshot.multi_scan([(None, None)]),
        lambda: list(snapshot.scan()),
        lambda: list(snapshot.history(key)),
    ):
        with pytest.raises(logdb.DatabaseClosed):
            read()
