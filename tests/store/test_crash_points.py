"""A map that is interrupted at any file operation comes back as it was before or after the current step.

The disk records what the code and LMDB do; `Crash` says what a power failure may leave of it.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from logdb.errors import Corruption, Unavailable
from logdb.store import checkpoint as checkpoints
from logdb.store import merging
from logdb.store.checkpoint import LIVE, TOMBSTONE, Checkpoint
from logdb.store.files import run_name
from logdb.store.overlay import Overlay
from logdb.store.records import Place, Value
from tests.harness.faulty_disk import Crash, Fault, materialize
from tests.harness.forks import in_child
from tests.harness.map_disk import MapDisk
from tests.store.planted import PLANTED

LOG_ID = b"i" * 16
KEYS = [b"key %02d" % number for number in range(24)] + [b"long" * 150 + b"%d" % number for number in range(4)]
StateRows = list[tuple[bytes, bytes | None]]
CHANGING = frozenset({"create", "write", "sync", "rename", "unlink", "sync_directory"})


class Story:
    """The model of the map at every version: all input of checkpoints, also of those that were not written."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.version = 0
        self.written: dict[bytes, dict[int, Value]] = {}
        self.places: dict[int, dict[tuple[bytes, int], int]] = {0: {}}
        self.states: dict[int, dict[bytes, bytes]] = {0: {}}

    def overlay(self, floor: int) -> tuple[Overlay, StateRows]:
        """The input of a checkpoint: some versions, copies of some that are visible from `floor` on, rows of state."""
        draw, overlay = self.random, Overlay()
        places = dict(self.places[max(self.places)])
        for _ in range(draw.randrange(1, 5)):
            self.version += 1
            first = draw.randrange(len(KEYS))
            nearby = draw.sample(KEYS[first : first + 8], min(len(KEYS) - first, 4))
            writes = {key: self._value() for key in draw.choice((nearby, draw.sample(KEYS, draw.randrange(1, 8))))}
            overlay.apply(self.version, writes)
            for key, value in writes.items():
                self.written.setdefault(key, {})[self.version] = value
                places[key, self.version] = self.version
        self.version += 1
        for key in draw.sample(sorted(self.written), min(3, len(self.written))):
            oldest = max((version for version in self.written[key] if version <= floor), default=0)
            version, value = draw.choice([one for one in self.written[key].items() if one[0] >= oldest])
            if value is not None:
                overlay.move(key, version, self.version, value)
                places[key, version] = self.version
        state = {b"s%d" % draw.randrange(9): draw.choice((None, b"%d" % self.version)) for _ in range(3)}
        self.places[self.version] = places
        kept = self.states[max(self.states)] | state
        self.states[self.version] = {key: row for key, row in kept.items() if row is not None}
        return overlay, sorted(state.items())

    def _value(self) -> Value:
        draw = self.random
        small = b"%d " % self.version * draw.choice((1, 40))
        return draw.choice((small, small, None, Place(self.version, draw.randrange(9), 9_000, bytes(16))))

    def check(self, checkpoint: Checkpoint) -> None:
        """Compare it with the model at all versions from its floor to the newest that it covers."""
        covers = checkpoint.covers
        assert dict(checkpoint.state(b"")) == self.states[covers]
        everything = {key: {row.version: row for row in rows} for key, rows in checkpoint.everything()}
        for key in KEYS:
            written = {version: value for version, value in self.written.get(key, {}).items() if version <= covers}
            for at in range(checkpoint.pruned, covers + 1):
                version = max((version for version in written if version <= at), default=0)
                value = written.get(version)
                row = checkpoint.row(key, at)
                where = f"{key!r} at {at}"
                if value is None:
                    assert row is None or (row.version == version and row.kind == TOMBSTONE), where
                    continue
                assert row is not None, where
                assert (row.version, row.value) == (version, value), where
                assert row.place == self.places[covers][key, version], where
                assert everything[key][version] == row, where
                if at == covers:
                    assert checkpoint.live_value(key) == (value if row.kind == LIVE and len(key) < 480 else None)


class Step(NamedTuple):
    """A step on the map, which ended after `end` disk operations."""

    end: int
    covers: int
    pruned: int


def opened(path: Path, disk: MapDisk | None = None, *, follow: bool = False) -> Checkpoint:
    return Checkpoint(path, LOG_ID, inline=True, disk=disk, follow=follow)


def write(checkpoint: Checkpoint, version: int, overlay: Overlay, state: StateRows) -> None:
    checkpoint.begin(version)
    exhaust(checkpoint.write(overlay))
    checkpoint.finish(version, state)


def exhaust(steps: Iterator[int]) -> None:
    for _ in steps:
        pass


def steps(path: Path, disk: MapDisk, story: Story, count: int) -> Iterator[None]:
    """Checkpoints, merges, prunings and openings; yields after each."""
    checkpoint = opened(path, disk)
    try:
        for number in range(count):
            overlay, state = story.overlay(checkpoint.pruned)
            write(checkpoint, story.version, overlay, state)
            yield
            if number % 3 == 2:
                exhaust(checkpoint.prune(story.random.randrange(checkpoint.pruned, checkpoint.covers + 1)))
                yield
            exhaust(checkpoint.merge())
            yield
            if number % 4 == 3:
                checkpoint.close()
                checkpoint = opened(path, disk)
                yield
    finally:
        checkpoint.close()


@pytest.fixture(autouse=True)
def levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small runs are of several levels, so that some merges are of all runs and others are not; and large enough for
    checkpoints of several runs."""
    monkeypatch.setattr(merging, "LEVEL_BYTES", 1 << 14)
    monkeypatch.setattr(checkpoints, "MIN_RUN_BYTES", 1)
    monkeypatch.setattr(checkpoints, "FENCE_BYTES", 1)


class Recorded(NamedTuple):
    disk: MapDisk
    story: Story
    steps: list[Step]


def record(path: Path, seed: int, count: int) -> Recorded:
    disk, story, done = MapDisk(path), Story(seed), [Step(0, 0, 0)]
    for _ in steps(path, disk, story, count):
        with closing(opened(path, follow=True)) as reader:
            story.check(reader)
            done.append(Step(disk.position(), reader.covers, reader.pruned))
    return Recorded(disk, story, done)


def fail_everywhere(recorded: Recorded, scratch: Path) -> int:
    """Simulate a power failure after each operation and open the possible images; returns their number."""
    disk, story, done = recorded
    tried = 0
    for position in range(len(disk.operations) + 1):
        before = max(step for step in done if step.end <= position)
        after = min([step for step in done if step.end > position], default=before)
        for image in Crash(disk.operations[:position]).images(random.Random(position), 0):
            path = materialize(image, scratch / "map")
            again = MapDisk(path)
            with closing(opened(path, follow=True)) as reader, closing(opened(path, again)) as checkpoint:
                where = f"after {position} operations, {sorted(image)}"
                for one in (reader, checkpoint):
                    assert before.covers <= one.covers <= after.covers, where
                    assert one.pruned in {before.pruned, after.pruned}, where
                story.check(checkpoint)
                assert {one.kind for one in again.operations} <= {"unlink"}
                named = {run_name(run.info.number) for run in checkpoint.snapshot.runs}
                assert {file.name for file in path.glob("run-*")} == named, where
            shutil.rmtree(path)
            tried += 1
    return tried


def test_a_power_failure_at_any_operation_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    recorded = record(tmp_path / "recorded", seed=1, count=8)
    assert {one.kind for one in recorded.disk.operations} == CHANGING
    assert len({step.pruned for step in recorded.steps}) > 2
    assert fail_everywhere(recorded, tmp_path) > 300


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    with PLANTED[bug]():
        recorded = record(tmp_path / "recorded", seed=1, count=6)
    with pytest.raises((Corruption, AssertionError)):
        fail_everywhere(recorded, tmp_path)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failed_operation_leaves_the_map_unchanged_and_the_next_attempt_succeeds(tmp_path: Path, error: int) -> None:
    """A failed attempt leaves only files that the manifest does not name."""
    counting = record(tmp_path / "whole", seed=2, count=6)
    for nth in range(counting.disk.count("sync") + counting.disk.count("rename") + counting.disk.count("create")):
        path = tmp_path / str(nth)
        disk = MapDisk(path, Fault(frozenset({"sync", "rename", "create"}), nth, OSError(error, os.strerror(error))))
        story = Story(2)
        with closing(opened(path, disk)) as checkpoint:
            for _ in range(6):
                overlay, state = story.overlay(0)
                for step in (
                    lambda overlay=overlay, state=state: write(checkpoint, story.version, overlay, state),
                    lambda: exhaust(checkpoint.merge()),
                    lambda: exhaust(checkpoint.prune(0)),
                ):
                    before = checkpoint.covers
                    try:
                        step()
                    except Unavailable as failed:
                        assert os.strerror(error) in str(failed)
                        assert checkpoint.covers == before
                        story.check(checkpoint)
                        step()
                    story.check(checkpoint)
            with closing(opened(path, follow=True)) as reader:
                story.check(reader)
        assert disk.hits == 1


def test_a_full_disk_is_named_in_the_error(tmp_path: Path) -> None:
    """LMDB reports a short write as an input/output error."""

    def body() -> list[str]:
        with closing(opened(tmp_path / "map")) as checkpoint:
            overlay = Overlay()
            overlay.apply(1, {b"%05d" % number: b"v" * 100 for number in range(20_000)})
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            with pytest.raises(Unavailable) as refused:
                write(checkpoint, 1, overlay, [])
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            left = sorted(file.name for file in (tmp_path / "map").iterdir())
            write(checkpoint, 1, overlay, [])
            assert checkpoint.live_value(b"00077") == b"v" * 100
            return [str(refused.value), *left]

    assert in_child(body) == [
        f"the checkpoint in {tmp_path}/map could not be written ({tmp_path}/map/run-1.mdb: File too large); "
        "nothing is lost, the log has it all"
    ]
