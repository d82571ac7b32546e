"""The history of a key: each layer's chain is walked once, and checkpoints and compactions beside it change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from logdb.log import MemoryLog
from logdb.log.contract import LogRecord, Trimmed
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import KeyMap
from logdb.store.records import COMMIT, VALUE, Commit, Place, Range, Value, digest, encode_commit
from logdb.store.values import Values
from tests.harness.counted_entries import CountedEntry, counted

KEY = b"hot"
VERSIONS = 300


def no_record(gsn: int, shard: int) -> LogRecord:
    raise AssertionError("the values are in memory")


@pytest.mark.parametrize("verb", ["history", "versions", "replace"])
def test_all_versions_of_a_key_are_found_in_one_walk(verb: str) -> None:
    key_map = KeyMap(Values(no_record), None)
    for version in range(1, VERSIONS + 1):
        key_map.apply(version, {KEY: b"%d" % version})
        if version == VERSIONS // 2:
            key_map.freeze()
    for layer in (key_map.active, key_map.frozen):
        assert layer is not None
        layer.newest[KEY] = counted(layer.newest[KEY])
    CountedEntry.reads = 0
    if verb == "replace":
        key_map.replace(KEY, VERSIONS // 2 + 1, b"new")
    else:
        found = key_map.history(KEY, VERSIONS, 0) if verb == "history" else key_map.versions(KEY, VERSIONS)
        assert [entry[0] for entry in found] == list(range(VERSIONS, 0, -1))
    assert CountedEntry.reads <= 10 * VERSIONS


def test_replacing_versions_in_their_order_walks_no_chain() -> None:
    """So a server that recovers from the log takes time in proportion to the versions of a hot key."""
    key_map, CountedEntry.reads = KeyMap(Values(no_record), None), 0
    for version in range(1, VERSIONS + 1):
        key_map.replace(KEY, version, b"%d" % version)
        key_map.active.newest[KEY] = CountedEntry(key_map.active.newest[KEY])  # type: ignore[assignment]
    assert CountedEntry.reads <= 10 * VERSIONS
    assert [found[:2] for found in key_map.versions(KEY, VERSIONS)] == [
        (version, b"%d" % version) for version in range(VERSIONS, 0, -1)
    ]


def by_single_reads(key_map: KeyMap, at: int, floor: int) -> Iterator[tuple[int, Value]]:
    """The history, each version looked up by itself."""
    while (entry := key_map.entry(KEY, at)) is not None and (entry[0] > floor or entry[1] is not None):
        yield entry[:2]
        if entry[0] <= floor:
            return
        at = entry[0] - 1


@pytest.mark.parametrize("seed", range(3))
def test_a_history_is_what_single_reads_find(tmp_path: Path, seed: int) -> None:
    random, log = Random(seed), MemoryLog()
    checkpoint = Checkpoint(tmp_path / "map", b"i" * 16)
    key_map = KeyMap(Values(log.read_record), checkpoint)
    for version in range(1, 61):
        written = {key: random.choice([None, b"%d" % version]) for key in (KEY, b"other") if random.random() < 0.6}
        deleted: list[Range] = [(b"h", b"i")] if random.random() < 0.2 else []
        log.append([(COMMIT, encode_commit(Commit(1, version, written, deletes=tuple(deleted))))])
        key_map.apply(version, written, deleted)
        if version in (20, 40):
            checkpoint.begin(version)
            for _ in checkpoint.write(key_map.freeze()):
                pass
            checkpoint.finish(version, [])
            key_map.thaw()
        if version == 50:
            key_map.freeze()
    for at in range(0, 61, 4):
        for floor in range(0, at + 1, 3):
            assert list(key_map.history(KEY, at, floor)) == list(by_single_reads(key_map, at, floor))
    checkpoint.close()


def test_a_history_goes_on_while_its_layers_move_down(tmp_path: Path) -> None:
    log = MemoryLog()
    checkpoint = Checkpoint(tmp_path / "map", b"i" * 16)
    key_map = KeyMap(Values(log.read_record), checkpoint)

    def write(versions: range) -> None:
        for version in versions:
            log.append([(COMMIT, encode_commit(Commit(1, version, {KEY: b"%d" % version})))])
            key_map.apply(version, {KEY: b"%d" % version})

    def move_down(covered: int) -> None:
        frozen = key_map.freeze()
        checkpoint.begin(covered)
        for _ in checkpoint.write(frozen):
            pass
        checkpoint.finish(covered, [])
        key_map.thaw()
        frozen.clear_gradually()

    write(range(1, 11))
    move_down(10)
    write(range(11, 21))
    found = key_map.history(KEY, 20, 0)
    entries = [next(found) for _ in range(3)]
    move_down(20)
    write(range(21, 31))
    key_map.freeze()
    entries += found
    assert entries == [(version, b"%d" % version) for version in range(20, 0, -1)]
    checkpoint.close()


def test_a_history_finds_the_copy_of_a_value_that_a_compaction_moves() -> None:
    places = {version: Place(version, 0, 5, digest(b"large")) for version in (1, 2, 9)}
    trimmed = set[int]()

    def read(gsn: int, shard: int) -> LogRecord:
        if gsn in trimmed:
            raise Trimmed(gsn, gsn + 1)
        return LogRecord(gsn, 0, VALUE, b"large")

    key_map = KeyMap(Values(read), None)
    key_map.apply(1, {KEY: places[1]})
    key_map.apply(2, {KEY: places[2]})
    found = key_map.history(KEY, 2, 0)
    assert next(found) == (2, b"large")
    key_map.replace(KEY, 1, places[9])
    trimmed.add(1)
    assert list(found) == [(1, b"large")]
