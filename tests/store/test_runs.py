"""The map over runs agrees with a dictionary of versions, whatever happens to its files (MAP-1 to MAP-6)."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from google_crc32c import value as crc32c

from logdb.errors import Corruption
from logdb.log.contract import LogRecord
from logdb.store import checkpoint as checkpoints
from logdb.store import merging, runs
from logdb.store.checkpoint import Checkpoint
from logdb.store.files import MapFiles
from logdb.store.key_map import KeyMap
from logdb.store.manifest import MalformedManifest, Manifest, RunInfo, decode_manifest
from logdb.store.merging import LEVEL_BYTES, MAX_GROUPS, MAX_RUNS, SMALL_BYTES, runs_due
from logdb.store.overlay import Overlay
from logdb.store.records import (
    COMMIT,
    RELOCATION,
    Commit,
    Place,
    Relocated,
    decode_relocation,
    encode_commit,
    encode_relocation,
)
from logdb.store.values import Values
from tests.harness.forks import in_child
from tests.store.test_gaps import first_rows

LOG_ID = b"i" * 16
KEYS = sorted(
    [b"%03d" % number for number in range(40)]
    + [b"a" * length + tail for length in (479, 480, 481, 600) for tail in (b"", b"\x00", b"b", b"\xff\xff")]
    + [b"a" * 480 + (0).to_bytes(8), b"a" * 472 + b"\xff" * 16, b"\xff" * 500]
)


class Model:
    """A log and the expected contents of its map: each version of each key from the floor on."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.log: dict[int, LogRecord] = {}
        self.versions: dict[bytes, dict[int, bytes | None]] = {}
        self.places: dict[tuple[bytes, int], int] = {}
        self.floor = 0

    @property
    def end(self) -> int:
        return len(self.log)

    def read(self, gsn: int, shard: int) -> LogRecord:
        return self.log[gsn]

    def commit(self, keys: list[bytes] | None = None) -> None:
        gsn, draw = self.end + 1, self.draw
        writes = {
            key: None if draw.random() < 0.3 else b"%d " % gsn * draw.choice((1, 30))
            for key in keys or draw.sample(KEYS, draw.randrange(1, 8))
        }
        self.log[gsn] = LogRecord(gsn, 0, COMMIT, encode_commit(Commit(1, gsn, writes)))
        for key, value in writes.items():
            self.versions.setdefault(key, {})[gsn] = value

    def relocate(self) -> None:
        """Copy versions that are live at the floor, as a compaction does."""
        gsn, copies = self.end + 1, []
        for key in self.draw.sample(KEYS, 8):
            version = self.version(key, self.floor)
            if version and (value := self.versions[key][version]) is not None:
                copies.append(Relocated(key, version, value))
                self.places[key, version] = gsn
        self.log[gsn] = LogRecord(gsn, 0, RELOCATION, encode_relocation(copies))

    def version(self, key: bytes, at: int) -> int:
        return max((version for version in self.versions.get(key, {}) if version <= at), default=0)

    def value(self, key: bytes, at: int) -> bytes | None:
        return self.versions.get(key, {}).get(self.version(key, at))

    def rows(self, at: int) -> list[tuple[bytes, bytes]]:
        return [(key, value) for key in KEYS if (value := self.value(key, at)) is not None]


class Machine:
    """A map under random steps. `merging`, `writing`: operations in progress, cancelled at any step or continued."""

    def __init__(self, path: Path, model: Model, *, inline: bool) -> None:
        self.path, self.inline = path, inline
        self.model = model
        self.draw = self.model.draw
        self.merging: Iterator[int] | None = None
        self.writing: Iterator[int] | None = None
        self.target = self.next_key = 0
        self.max_in_a_group = 0
        self.is_cancelled = False
        self.open()

    def open(self) -> None:
        self.is_cancelled = False
        self.checkpoint = Checkpoint(self.path, LOG_ID, inline=self.inline)
        self.map = KeyMap(Values(self.model.read), self.checkpoint)
        for gsn in range(self.checkpoint.covers + 1, self.model.end + 1):
            self.apply(gsn)
        self.check_files()

    def apply(self, gsn: int) -> None:
        record, versions = self.model.log[gsn], self.model.versions
        if record.tag == COMMIT:
            self.map.apply(gsn, {key: found[gsn] for key, found in versions.items() if gsn in found})
        else:
            self.map.relocate(gsn, decode_relocation(record.payload))

    # ---- steps

    def commit(self) -> None:
        self.model.commit()
        self.apply(self.model.end)

    def write_in_order(self) -> None:
        """Checkpoints whose keys do not overlap."""
        self.write()
        for _ in range(4):
            self.model.commit(KEYS[self.next_key : self.next_key + 5])
            self.next_key = (self.next_key + 5) % len(KEYS)
            self.apply(self.model.end)
            self.write()

    def relocate(self) -> None:
        self.model.relocate()
        self.apply(self.model.end)

    def write_on(self) -> None:
        """Write a slice of the current checkpoint, or of a new one."""
        if self.writing is None:
            if self.map.frozen is None:
                self.target = self.model.end
                self.map.freeze()
            self.checkpoint.begin(self.target)
            self.is_cancelled = False
            assert self.map.frozen is not None
            self.writing = self.checkpoint.write(self.map.frozen)
        if next(self.writing, None) is None:
            self.checkpoint.finish(
                self.target, [(b"s%d" % self.draw.randrange(5), b"%d" % self.target), (b"gone", None)]
            )
            self.map.thaw()
            self.writing = None
            self.check_files()

    def write(self) -> None:
        self.write_on()
        while self.writing is not None:
            self.write_on()

    def cancel_writing(self) -> None:
        """Cancel the checkpoint; its file stays until the next one begins."""
        self.is_cancelled = self.is_cancelled or self.writing is not None
        self.writing = None

    def merge_on(self) -> None:
        if self.merging is None:
            self.merging = self.checkpoint.merge(closing=self.draw.random() < 0.3)
        if next(self.merging, None) is None:
            self.merging = None
            self.check_files()

    def merge(self) -> None:
        self.merge_on()
        while self.merging is not None:
            self.merge_on()

    def cancel_merging(self) -> None:
        self.merging = None
        self.check_files()

    def prune(self) -> None:
        if self.model.floor > self.checkpoint.covers:
            return
        self.model.floor = self.draw.randrange(self.model.floor, self.checkpoint.covers + 1)
        self.merging = self.checkpoint.prune(self.model.floor)
        for _ in self.merging:
            if self.draw.random() < 0.3:
                self.commit()
            if self.draw.random() < 0.2:
                self.write()
        self.merging = None
        self.check_files()

    def reopen(self) -> None:
        self.checkpoint.close()
        self.cancel_all()
        self.open()

    def kill(self) -> None:
        """Leave unfinished operations as they are, and open the same files again."""
        old, merging, writing = self.checkpoint, self.merging, self.writing
        self.writing = self.merging = None
        self.open()
        del merging, writing
        old.close()

    def cancel_all(self) -> None:
        self.writing = self.merging = None

    # ---- checks

    def check_files(self) -> None:
        """MAP-5, MAP-6."""
        content = (self.path / "RUNS").read_bytes() if (self.path / "RUNS").exists() else None
        infos: tuple[RunInfo, ...] = () if content is None else decode_manifest(content).runs
        named = {f"run-{info.number}.mdb" for info in infos}
        there = {file.name for file in self.path.glob("run-*.mdb")}
        assert named <= there, "MAP-5"
        if self.writing is None and self.merging is None and not self.is_cancelled:
            assert named == there, "a file was left"
        self.checkpoint.check_invariants()
        for group in self.checkpoint.snapshot.groups:
            self.max_in_a_group = max(self.max_in_a_group, len(group.runs))

    def check(self) -> None:
        model, key_map, draw = self.model, self.map, self.draw
        versions = {model.end, max(model.floor, self.checkpoint.covers), model.floor}
        for at in versions | {draw.randrange(model.floor, model.end + 1)}:
            rows = model.rows(at)
            assert list(itertools.chain(*key_map.scan(None, None, at))) == rows
            assert list(itertools.chain(*key_map.scan(None, None, at, True))) == rows[::-1]
            low, high = sorted(draw.sample(KEYS, 2))
            inside = [row for row in rows if low <= row[0] < high]
            limit = draw.randrange(1, 6)
            assert list(itertools.chain(*key_map.scan(low, high, at, False, limit)))[:limit] == inside[:limit]
            assert list(itertools.chain(*key_map.scan(low, high, at, True, limit)))[:limit] == inside[::-1][:limit]
            assert first_rows(key_map, low, high, at, True, 3) == inside[::-1][:3]
            assert key_map.get_many(KEYS, at) == [model.value(key, at) for key in KEYS]
            for key in draw.sample(KEYS, 5):
                assert key_map.get(key, at) == model.value(key, at)
                version = model.version(key, at)
                since = draw.randrange(model.floor, at + 1)
                if model.value(key, at) is not None:
                    assert key_map.newer(key, since, at) == (version if version > since else 0)
                changed = key_map.changed(key, key + b"\x00", since, at)
                assert (None if changed is None else changed.version) == (version if version > since else None)
                history = [(at, model.versions[key][at]) for at in sorted(model.versions.get(key, {}), reverse=True)]
                seen = [(version, value) for version, value in history if model.floor < version <= at]
                if (oldest := model.value(key, model.floor)) is not None and model.floor <= at:
                    seen.append((model.version(key, model.floor), oldest))
                assert list(key_map.history(key, at, model.floor)) == seen
        assert key_map.keys_from(b"", 7) == self.kept_keys()[:7]
        key_map.check_invariants()

    def kept_keys(self) -> list[bytes]:
        found: list[bytes] = []
        start = b""
        while keys := self.map.keys_from(start, 3):
            found += keys
            start = keys[-1] + b"\0"
        assert found == sorted(set(found))
        assert set(found) >= {key for key, _ in self.model.rows(self.model.end)}
        return found


STEPS = (
    ["commit"] * 8
    + ["relocate", "write", "write", "write_on", "write_on", "merge", "merge_on", "merge_on"]
    + ["cancel_writing", "cancel_merging", "prune", "reopen", "kill", "write_in_order", "write_in_order"]
)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("seed", [*range(6), 12])
def test_a_map_under_any_steps_agrees_with_the_log(
    tmp_path: Path, seed: int, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(checkpoints, "SLICE_ROWS", draw.choice((1, 7, 1_000)))
    monkeypatch.setattr(runs, "CHUNK_ROWS", draw.choice((1, 3, 1_000)))
    monkeypatch.setattr(runs, "OLDER_ROWS", draw.choice((1, 500)))
    monkeypatch.setattr(runs, "STATE_ROWS", draw.choice((1, 500)))
    monkeypatch.setattr(runs, "WRITE_BYTES", draw.choice((1, 10_000)))
    monkeypatch.setattr(merging, "RATIO", draw.choice((2, 4)))
    monkeypatch.setattr(merging, "DISJOINT_RATIO", draw.choice((2, 4, 32)))
    least = draw.choice((1, LEVEL_BYTES))
    monkeypatch.setattr(checkpoints, "MIN_RUN_BYTES", least)
    monkeypatch.setattr(checkpoints, "FENCE_BYTES", least)
    monkeypatch.setattr(runs, "FENCE_BYTES", draw.choice((99, 9_999)))
    machine = Machine(tmp_path / "map", Model(seed), inline=inline)
    for _ in range(80):
        getattr(machine, machine.draw.choice(STEPS))()
        machine.check()
    assert machine.max_in_a_group > 1
    machine.reopen()
    machine.check()
    machine.checkpoint.close()


def test_write_amplification_and_number_of_runs() -> None:
    """Every byte is written about once for each factor of four by which the map is larger than a checkpoint."""
    for size in (3 * LEVEL_BYTES, 50 << 20, 70 << 20):
        sizes: list[int] = []
        written = 0
        for count in range(1, 300):
            sizes.append(size)
            while due := runs_due([[each] for each in sizes], closing=False):
                written += sum(sizes[-due:])
                sizes[-due:] = [sum(sizes[-due:])]
            assert len(sizes) <= MAX_GROUPS
            assert written <= size * count * (1 + math.log(count, 4))
    assert runs_due([[SMALL_BYTES - 9, 9]], closing=True) == runs_due([[SMALL_BYTES - 9], [9]], closing=True) == 2
    assert runs_due([[SMALL_BYTES, 9]], closing=True) == runs_due([[9]], closing=True) == 0
    assert runs_due([], closing=True) == runs_due([], closing=False) == 0


def test_runs_of_a_group_are_merged_to_bound_their_number() -> None:
    for size in (3 * LEVEL_BYTES, 50 << 20):
        group: list[int] = []
        written = 0
        for count in range(1, 3_000):
            group.append(size)
            while due := runs_due([group], closing=False):
                written += sum(group[-due:])
                group[-due:] = [sum(group[-due:])]
            assert len(group) <= MAX_RUNS
            assert written <= size * count * (1 + math.log(count, 32))


def test_keys_overwritten_in_order_are_seldom_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints begin and end anywhere: some have the last keys and the first ones. All are merged when they
    have been written about four times over."""
    monkeypatch.setattr(merging, "LEVEL_BYTES", 1 << 16)
    monkeypatch.setattr(runs, "WRITE_BYTES", 1 << 14)
    monkeypatch.setattr(runs, "FENCE_BYTES", 1 << 17)
    monkeypatch.setattr(checkpoints, "FENCE_BYTES", 1 << 17)
    monkeypatch.setattr(checkpoints, "MIN_RUN_BYTES", 1 << 12)
    keys, passes, rows = 2_000, 8, 270
    checkpoint = Checkpoint(tmp_path, LOG_ID)
    expected: dict[bytes, bytes] = {}
    by_merges = by_checkpoints = 0
    for version, begin in enumerate(range(0, keys * passes, rows), 1):
        written = {b"%06d" % (number % keys): b"%04d" % version * 250 for number in range(begin, begin + rows)}
        overlay = Overlay()
        overlay.apply(version, written)
        expected |= written
        before = checkpoint.written
        write(checkpoint, overlay, version)
        by_checkpoints += checkpoint.written - before
        by_merges -= checkpoint.written
        for _ in checkpoint.merge():
            pass
        by_merges += checkpoint.written
    rows_now = dict(itertools.chain(*KeyMap(NO_VALUES, checkpoint).scan(None, None, version)))
    assert rows_now == expected
    assert by_merges < 0.5 * by_checkpoints
    checkpoint.close()


def test_groups_are_merged_to_bound_the_lookups_of_a_read() -> None:
    """Keys that are overwritten in order, some runs for each pass over all of them."""
    for size in (3 * LEVEL_BYTES, 50 << 20):
        for runs_of_a_pass in (3, 20, 100):
            groups: list[list[int]] = []
            written, passes = 0, 60
            for number in range(passes * runs_of_a_pass):
                if number % runs_of_a_pass == 0:
                    groups.append([])
                groups[-1].append(size)
                while due := runs_due(groups, closing=False):
                    newest, merged = [], 0
                    while merged < due:
                        newest = groups.pop()
                        merged += len(newest)
                    kept = newest[: merged - due]
                    all_of_it = not groups and not kept
                    result = size * runs_of_a_pass if all_of_it and number >= runs_of_a_pass else size * due
                    written += result
                    groups.append([*kept, result])
                assert len(groups) <= MAX_GROUPS
                assert sum(map(len, groups)) <= MAX_RUNS
            assert written <= 1.2 * size * passes * runs_of_a_pass


def test_live_bytes_drop_overwritten_versions_after_a_merge(tmp_path: Path) -> None:
    """Large values are included: otherwise a log would be compacted before it has the configured share of garbage."""
    checkpoint = Checkpoint(tmp_path, LOG_ID)
    for version in (1, 2):
        overlay = Overlay()
        overlay.apply(version, {b"small": b"s" * 1_000, b"large": Place(version, 0, 100_000, bytes(16))})
        write(checkpoint, overlay, version)
    assert 202_000 < checkpoint.live_bytes < 203_000
    for _ in checkpoint.merge(closing=True):
        pass
    assert 101_000 < checkpoint.live_bytes < 102_000
    checkpoint.close()


def test_small_runs_do_not_collect_between_large_ones() -> None:
    draw, sizes = random.Random(1), list[int]()
    for _ in range(2_000):
        sizes.append(draw.choice((1 << 10, 1 << 20, 1 << 26)))
        while due := runs_due([[each] for each in sizes], closing=False):
            sizes[-due:] = [sum(sizes[-due:])]
        assert len(sizes) <= MAX_GROUPS


def test_a_reader_can_still_read_removed_runs(tmp_path: Path) -> None:
    """Also a follower that opens the map between a merge and the removal of the merged runs."""
    writer = Checkpoint(tmp_path, LOG_ID)
    for version in range(1, 9):
        overlay = Overlay()
        overlay.apply(version, {b"%d" % key: b"%d" % version for key in range(version, 20)})
        write(writer, overlay, version)
    reader = Checkpoint(tmp_path, LOG_ID, follow=True)
    before = list(itertools.chain(*KeyMap(NO_VALUES, reader).scan(None, None, 8)))
    walk = reader.everything()
    first, _ = next(walk)
    for _ in writer.merge(closing=True):
        pass
    for _ in writer.prune(8):
        pass
    assert len(list(tmp_path.glob("run-*.mdb"))) == 1
    assert list(itertools.chain(*KeyMap(NO_VALUES, reader).scan(None, None, 8))) == before
    assert [first, *[key for key, _ in walk]] == [key for key, _ in before]
    reader.switch(reader.newest())
    assert list(itertools.chain(*KeyMap(NO_VALUES, reader).scan(None, None, 8))) == before
    assert (reader.covers, reader.pruned) == (8, 8)
    reader.close()
    writer.close()
    assert open_files(tmp_path) == []


def test_a_fork_while_the_error_of_an_opening_is_kept(tmp_path: Path) -> None:
    (tmp_path / "RUNS").write_bytes(b"what nothing has written")
    with pytest.raises(Corruption) as refused:
        Checkpoint(tmp_path, LOG_ID)
    assert in_child(lambda: "it runs") == "it runs"
    assert "not what was written" in str(refused.value)


def test_a_run_is_closed_with_its_last_reader(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, LOG_ID)
    for version in (1, 2):
        overlay = Overlay()
        overlay.apply(version, {b"k%d" % key: b"%d" % version for key in range(9)})
        write(checkpoint, overlay, version)
        assert checkpoint.live_value(b"k1") == b"%d" % version
    walk = checkpoint.everything()
    next(walk)
    for _ in checkpoint.prune(2):
        pass
    assert len([file for file in open_files(tmp_path) if file.endswith("(deleted)")]) == 2
    walk.close()
    assert checkpoint.live_value(b"k1") == b"2"
    assert [file for file in open_files(tmp_path) if file.endswith("(deleted)")] == []
    checkpoint.close()


@pytest.mark.parametrize("of_runs", [False, True], ids=["of the map", "of a run"])
def test_a_field_of_a_later_version(tmp_path: Path, of_runs: bool) -> None:
    run = RunInfo(1, 0, 3, rows=1, long_keys=0, bytes=2, crc=3)
    written = Manifest(LOG_ID, covers=3, runs=(run,))
    assert decode_manifest(written.encode()) == written
    fields = json.loads(written.encode().partition(b"\n")[0])
    (fields["runs"][0] if of_runs else fields)["of a later version"] = 1
    text = json.dumps(fields).encode()
    with pytest.raises(MalformedManifest, match="written by another version"):
        decode_manifest(text + b"\n%08x\n" % crc32c(text))


def test_a_run_that_a_merge_removes_while_it_is_opened_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen once with a reader beside a writer: LMDB's error for it ended the opening instead of a second look."""
    checkpoint = Checkpoint(tmp_path, LOG_ID)
    overlay = Overlay()
    overlay.apply(1, {b"k": b"v"})
    write(checkpoint, overlay, 1)
    checkpoint.close()
    opened = lmdb.open

    def removed_first(path: str, **options: Any) -> Any:
        os.unlink(path)
        return opened(path, **options)

    monkeypatch.setattr(lmdb, "open", removed_first)
    with pytest.raises(FileNotFoundError, match=r"run-1\.mdb"):
        MapFiles(tmp_path).open(1)


def write(checkpoint: Checkpoint, overlay: Overlay, version: int) -> None:
    checkpoint.begin(version)
    for _ in checkpoint.write(overlay):
        pass
    checkpoint.finish(version, [])


def open_files(path: Path) -> list[str]:
    """The files below `path` that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(link))
    return [file for file in found if file.startswith(str(path))]


NO_VALUES = Values(lambda gsn, shard: pytest.fail("nothing to read"))


def test_keys_are_sorted_in_parts() -> None:
    for count in (0, 1, 7, 500):
        overlay, draw = Overlay(), random.Random(count)
        keys = [b"%d" % draw.randrange(10**6) for _ in range(count)]
        overlay.apply(1, dict.fromkeys(keys, b"v"))
        overlay.move(b"moved", 1, 2, b"v")
        parts = list(overlay.sorted_keys(20))
        assert list(itertools.chain(*parts)) == sorted({*keys, b"moved"})
        assert all(len(part) <= 20 for part in parts)
