"""The map gives the same results wherever checkpoints happen (MAP-2), also for keys longer than LMDB accepts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NoReturn

import lmdb
import pytest

import logdb
from logdb.log import MemoryLog
from logdb.log.contract import LogRecord
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import KeyMap
from logdb.store.overlay import Overlay
from logdb.store.range_deletions import NOTHING
from logdb.store.records import COMMIT, Commit, decode_commit, encode_commit
from logdb.store.runs import Group
from logdb.store.values import Values

LOG_ID = b"i" * 16
LENGTHS = [1, 2, 479, 480, 481, 511, 512, 959, 960, 961, 1439, 1440, 1441, 4800, 8191, 8192]
KEYS = sorted(
    {b"a" * length for length in LENGTHS}
    | {b"a" * (length - 1) + tail for length in LENGTHS for tail in (b"\x00", b"b", b"\xff")}
    | {b"\xff" * length for length in LENGTHS}
)


class History:
    """Commits in a log, and the contents of the database at each version."""

    def __init__(self, seed: int, steps: int) -> None:
        random = Random(seed)
        self.log = MemoryLog()
        self.states: list[dict[bytes, bytes]] = [{}]
        self.writes: list[dict[bytes, bytes | None]] = []
        for step in range(steps):
            written = {key: None if random.random() < 0.3 else b"%d" % step for key in random.sample(KEYS, 6)}
            self.log.append([(COMMIT, encode_commit(Commit(1, step, written)))])
            self.writes.append(written)
            after = {**self.states[-1], **written}
            self.states.append({key: value for key, value in after.items() if value is not None})

    def read(self, gsn: int, shard: int) -> LogRecord:
        return self.log.read_record(gsn, shard)


def map_of(history: History, checkpoint: Checkpoint | None, checkpoints_at: set[int]) -> KeyMap:
    key_map = KeyMap(Values(history.read), checkpoint)
    for version, written in enumerate(history.writes, 1):
        key_map.apply(version, written)
        if version in checkpoints_at:
            assert checkpoint is not None
            checkpoint.begin(version)
            for _ in checkpoint.write(key_map.freeze()):
                pass
            checkpoint.finish(version, [])
            key_map.thaw()
    return key_map


def assert_answers(key_map: KeyMap, history: History, random: Random, versions: Iterator[int]) -> None:
    for version in versions:
        state = history.states[version]
        rows = sorted(state.items())
        assert list(itertools.chain(*key_map.scan(None, None, version))) == rows
        assert list(itertools.chain(*key_map.scan(None, None, version, True))) == rows[::-1]
        for _ in range(6):
            low, high = sorted(random.sample(KEYS, 2))
            low, high = low[: random.randrange(1, len(low) + 1)], high + random.choice([b"", b"\x00", b"\xff"])
            inside = [row for row in rows if low <= row[0] < high]
            assert list(itertools.chain(*key_map.scan(low, high, version))) == inside
            assert list(itertools.chain(*key_map.scan(low, high, version, True))) == inside[::-1]
            since = random.randrange(version + 1)
            newest = {key: at for at, writes in enumerate(history.writes[:version], 1) for key in writes}
            first = min([key for key, at in newest.items() if low <= key < high and at > since], default=None)
            assert key_map.changed(low, high, since, version) == (None if first is None else (first, newest[first]))
        for key in random.sample(KEYS, 10):
            assert key_map.get(key, version) == state.get(key)
            written = [at for at, writes in enumerate(history.writes[:version], 1) if key in writes]
            newest, since = max(written, default=0), random.randrange(version + 1)
            assert key_map.newer(key, since, version) == (newest if newest > since else 0)
            changed = key_map.changed(key, key + b"\x00", since, version)
            assert (None if changed is None else changed.version) == (
                max(written) if written and max(written) > since else None
            )


@pytest.mark.parametrize("checkpoints_at", [set(), {60}, {5, 6, 30}, set(range(1, 61)), {10, 20, 30, 40, 50}])
def test_results_do_not_depend_on_checkpoints(tmp_path: Path, checkpoints_at: set[int]) -> None:
    history = History(seed=3, steps=60)
    checkpoint = Checkpoint(tmp_path / "map", LOG_ID)
    key_map = map_of(history, checkpoint, checkpoints_at)
    assert_answers(key_map, history, Random(1), iter(range(0, 61, 6)))
    key_map.check_invariants()
    checkpoint.close()


def test_a_checkpoint_opened_again(tmp_path: Path) -> None:
    history = History(seed=4, steps=50)
    checkpoint = Checkpoint(tmp_path / "map", LOG_ID)
    map_of(history, checkpoint, {20, 50})
    checkpoint.close()
    checkpoint = Checkpoint(tmp_path / "map", LOG_ID)
    assert checkpoint.covers == 50
    assert_answers(KeyMap(Values(history.read), checkpoint), history, Random(2), iter(range(0, 51, 5)))
    checkpoint.close()


@pytest.mark.parametrize("slices", [0, 1, 2, 4])
def test_a_checkpoint_cancelled_between_slices(tmp_path: Path, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.store.checkpoint.SLICE_ROWS", 10)
    history = History(seed=5, steps=60)
    checkpoint = Checkpoint(tmp_path / "map", LOG_ID)
    key_map = map_of(history, checkpoint, {30})
    checkpoint.begin(60)
    for _ in itertools.islice(checkpoint.write(key_map.freeze()), slices):
        pass
    assert_answers(key_map, history, Random(3), iter(range(0, 61, 10)))
    checkpoint.close()
    checkpoint = Checkpoint(tmp_path / "map", LOG_ID)
    assert checkpoint.covers == 30
    replayed = KeyMap(Values(history.read), checkpoint)
    for version in range(31, 61):
        replayed.apply(version, history.writes[version - 1])
    assert_answers(replayed, history, Random(3), iter(range(0, 61, 10)))
    checkpoint.close()


def test_pruning_keeps_every_version_from_the_floor_on(tmp_path: Path) -> None:
    history = History(seed=6, steps=60)
    checkpoint = Checkpoint(tmp_path / "map", LOG_ID)
    key_map = map_of(history, checkpoint, {25, 60})
    for floor in (10, 35, 60):
        for _ in checkpoint.prune(floor):
            pass
        for version in range(floor, 61, 5):
            rows = sorted(history.states[version].items())
            assert list(itertools.chain(*key_map.scan(None, None, version))) == rows
    assert dict(checkpoint.everything()).keys() == history.states[60].keys()
    checkpoint.close()


def test_overlay_keeps_its_order() -> None:
    overlay = Overlay()
    for key in (b"c", b"a", b"b"):
        overlay.put(key, 1, key)
    assert overlay.keys(None, None, False, 9) == [b"a", b"b", b"c"]
    overlay.put(b"aa", 2, None)
    overlay.insert(b"z", 1, b"1")
    overlay.insert(b"a", 3, b"3")
    overlay.insert(b"a", 2, b"2")
    assert overlay.keys(b"a", b"c", True, 9) == [b"b", b"aa", b"a"]
    assert overlay.keys(None, None, False, 2) == [b"a", b"aa"]
    assert [overlay.entry(b"a", at)[1] for at in (1, 2, 3, 9)] == [b"a", b"2", b"3", b"3"]  # type: ignore[index]
    assert overlay.entry(b"a", 0) is None
    assert overlay.has(b"a", 2)
    overlay.prune(2, NOTHING)
    assert overlay.keys(None, None, False, 9) == [b"a", b"b", b"c", b"z"]
    assert overlay.entry(b"a", 1) is None


def test_a_range_is_checked_while_a_checkpoint_ends() -> None:
    """The frozen layer was tested for None and then read again as None: the commit was never decided."""

    class Thawing(KeyMap):
        looks = 0

        @property
        def frozen(self) -> Overlay | None:
            self.looks += 1
            return Overlay() if self.looks == 1 else None

        @frozen.setter
        def frozen(self, overlay: Overlay | None) -> None:
            pass

    key_map = Thawing(Values(lambda gsn, shard: pytest.fail("nothing to read")), None)
    key_map.apply(5, {b"k": b"v"})
    assert key_map.changed(b"l", None, 4, 5) is None


def test_a_change_of_a_range_has_the_newest_version_of_its_key() -> None:
    """A key that was put and then deleted with a range was reported with the version of the put."""
    key_map = KeyMap(Values(lambda gsn, shard: pytest.fail("nothing to read")), None)
    key_map.apply(1, {b"k": b"v"})
    key_map.apply(2, {}, [(b"k", b"l")])
    assert key_map.changed(b"a", None, 0, 2) == (b"k", 2)
    key_map.apply(3, {b"k": b"v"})
    assert key_map.changed(b"a", None, 0, 3) == (b"k", 3)
    key_map.apply(4, {b"b": b"v"})
    assert key_map.changed(b"a", None, 0, 4) == (b"b", 4)


def test_a_run_that_cannot_be_opened_leaves_no_environment_open(tmp_path: Path) -> None:
    """Its environment stayed open, and the next opening used it for the new file."""
    history = History(seed=7, steps=10)
    map_of(history, checkpoint := Checkpoint(tmp_path, LOG_ID), {10})
    checkpoint.close()
    (run,) = tmp_path.glob("run-*.mdb")
    sound = run.read_bytes()
    run.write_bytes(b"?" * len(sound))
    with pytest.raises(logdb.Corruption, match="rebuild"):
        Checkpoint(tmp_path, LOG_ID)
    run.write_bytes(sound)
    checkpoint = Checkpoint(tmp_path, LOG_ID)
    assert checkpoint.covers == 10
    checkpoint.close()


READS: dict[str, Callable[[Checkpoint], object]] = {
    "row": lambda tables: tables.row(b"k", 10),
    "live_value": lambda tables: tables.live_value(b"k"),
    "live_chunk": lambda tables: tables.live_chunk(None, None, False, 10),
    "chunk": lambda tables: tables.chunk(None, None, False, 10),
    "rows": lambda tables: tables.rows(b"", 10),
    "state": lambda tables: tables.state(b""),
    "everything": lambda tables: list(tables.everything()),
}


class Failing:
    """A reader whose every call fails."""

    count, has_long_keys = 1, False

    def __init__(self, error: lmdb.Error) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def fail(*_: object) -> NoReturn:
            raise self._error

        return fail


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("read", READS)
def test_only_damage_is_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str, begins: bool
) -> None:
    """A read that meets an error of LMDB, at its beginning or within."""
    map_of(History(seed=7, steps=10), tables := Checkpoint(tmp_path, LOG_ID), {10})
    for kind, expected in ((lmdb.CorruptedError, logdb.Corruption), (lmdb.MemoryError, logdb.Unavailable)):
        error = kind("planted")

        def reader(group: Group, error: lmdb.Error = error) -> Failing:
            if begins:
                return Failing(error)
            raise error

        monkeypatch.setattr(Group, "reader", reader)
        tables.snapshot.readers.clear()
        with pytest.raises(expected, match="planted"):
            READS[read](tables)
    tables.close()


def test_old_versions_of_a_large_transaction_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction larger than the cache of decoded records was decoded again for each of its keys."""
    monkeypatch.setattr("logdb.store.values.CACHE_BYTES", 1_000)
    keys = [b"%03d" % key for key in range(300)]
    with logdb.open(tmp_path / "db") as db:
        old = db.multi_put(dict.fromkeys(keys, b"old value"))
        db.multi_put(dict.fromkeys(keys, b"new"))
        db.checkpoint()
    with logdb.open(tmp_path / "db") as db:
        decoded: list[bytes] = []

        def decode(payload: bytes, gsn: int) -> Commit:
            decoded.append(payload)
            return decode_commit(payload, gsn)

        monkeypatch.setattr("logdb.store.values.decode_commit", decode)
        assert list(db.at(old).scan()) == [(key, b"old value") for key in keys]
        assert len(decoded) == 1
