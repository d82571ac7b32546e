"""A workload on an embedded database, a power failure at each of its points, and the checks afterwards."""

from __future__ import annotations

import contextlib
import random
import shutil
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import logdb
from logdb.embedded import EmbeddedBackend, backend
from logdb.embedded.snapshot_plan import pin
from tests.harness.faulty_disk import FaultyDisk
from tests.harness.opening import host_of
from tests.power_loss.recording import RecordingDisk

SEGMENT_BYTES = 6_000
KEYS = [b"key %02d" % number for number in range(40)]
LARGE = b"large " * 1_000
State = dict[bytes, bytes]


class Mark(NamedTuple):
    """After `position` operations of the disk, all versions up to `acknowledged` were acknowledged, `floor` was the
    oldest version that a compaction may have left, and these pins existed."""

    position: int
    acknowledged: int
    pins: dict[str, int]


class Recorded(NamedTuple):
    """`states`: the contents at each version that changed them, from 0 on, whether it was acknowledged or not."""

    disk: RecordingDisk
    identity: bytes
    states: dict[int, State]
    marks: list[Mark]


class Lost(Exception):
    """A check after a power failure has failed."""


def opened(path: Path, disk: FaultyDisk, *, read_only: bool = False) -> logdb.Database:
    options = {"segment_bytes": SEGMENT_BYTES, "disk": disk}
    backend = EmbeddedBackend.open(path, read_only=read_only, create=not read_only, log_options=options)
    return logdb.Database(backend)


def record(path: Path, seed: int, lives: int = 2, steps: int = 14) -> Recorded:
    """Commits of all kinds, checkpoints, compactions, exports' pins and openings."""
    rng = random.Random(seed)
    disk = RecordingDisk(path / "map")
    state: State = {}
    states: dict[int, State] = {0: {}}
    marks: list[Mark] = []
    for _ in range(lives):
        db = opened(path, disk)
        backend = host_of(db)
        assert isinstance(backend, EmbeddedBackend)

        def mark(version: int, db: logdb.Database = db) -> None:
            marks.append(Mark(disk.position(), version, db.pins))

        def write(backend: EmbeddedBackend = backend) -> int:
            """Order a commit, which is not acknowledged yet."""
            writes: dict[bytes, bytes | None] = {}
            for key in rng.sample(KEYS, rng.choice((1, 2, 20))):
                value = b"%d of %d" % (len(states), rng.randrange(1 << 30))
                writes[key] = rng.choice((None, value, value * 20, value + LARGE))
            version = backend.commits.submit(writes)[0]
            state.update({key: value for key, value in writes.items() if value is not None})
            for key in [key for key, value in writes.items() if value is None]:
                state.pop(key, None)
            states[version] = dict(state)
            return version

        def commit(backend: EmbeddedBackend = backend, mark: Callable[[int], None] = mark) -> None:
            versions = [write() for _ in range(rng.randrange(1, 4))]
            backend.commits.acknowledge(versions[-1])
            mark(versions[-1])

        def refuse(db: logdb.Database = db) -> None:
            assert not db.test_and_multi_put([logdb.equals(KEYS[0], b"never")], {KEYS[1]: b"never"}).committed

        def export(db: logdb.Database = db) -> None:
            with pin(path) as plan:
                commit()
                db.compact()
                assert plan.parts or not plan.version

        def checkpoint(db: logdb.Database = db) -> None:
            write()  # in progress
            db.checkpoint()

        def keep(db: logdb.Database = db, mark: Callable[[int], None] = mark) -> None:
            if db.pins:
                db.unpin("name")
            elif db.version:
                db.pin("name")
            mark(0)

        kinds: list[Callable[[], object]] = [commit, commit, commit, refuse, checkpoint, export, keep, db.compact]
        commit()
        for _ in range(steps):
            rng.choice(kinds)()
        for step in (commit, checkpoint, commit, db.compact, commit):
            step()
        pins = db.pins
        db.close()
        marks.append(Mark(disk.position(), max(states), pins))
    return Recorded(disk, (path / "LOGDB").read_bytes(), states, marks)


def positions(recorded: Recorded) -> range:
    """The numbers of operations after which the power may fail."""
    return range(recorded.disk.position() + 1)


def check(recorded: Recorded, position: int, seed: int, samples: int, scratch: Path) -> int:
    """Fail after this number of operations, and open the remaining files. Returns the number of images. Raises Lost."""
    rng = random.Random(f"{seed} {position}")
    count = 0
    for left in recorded.disk.images(position, rng, samples):
        path = scratch / "db"
        path.mkdir(parents=True)
        (path / "LOGDB").write_bytes(recorded.identity)
        recorded.disk.place(left, rng, path)
        try:
            _check_image(recorded, position, path, rng)
        except (logdb.LogDBError, AssertionError, OSError, ValueError, KeyError) as error:
            raise Lost(f"after {position} operations, image {count}: {type(error).__name__}: {error}") from error
        shutil.rmtree(path)
        count += 1
    return count


def _check_image(recorded: Recorded, position: int, path: Path, rng: random.Random) -> None:
    done = [mark for mark in recorded.marks if mark.position <= position]
    acknowledged = max((mark.acknowledged for mark in done), default=0)
    with never_rebuilt(), opened(path, FaultyDisk()) as db:
        version = db.version
        assert version >= acknowledged, f"version {acknowledged} was acknowledged, the database ends at {version}"
        _check_versions(recorded, db, version, rng)
        pins = db.pins
        for kept in pins.values():
            assert dict(db.at(kept).scan()) == state_at(recorded, kept), f"the pinned version {kept} is another"
        following = [mark.pins for mark in recorded.marks if mark.position >= position][:1]
        assert pins in [mark.pins for mark in done[-1:]] + following + ([{}] if not done else []), f"pins {pins}"
        db.put(b"goes on", b"1")
        if rng.random() < 0.2:
            db.compact()
        expected = state_at(recorded, version) | {b"goes on": b"1"}
        assert dict(db.scan()) == expected, "it does not go on"
    with opened(path, FaultyDisk(), read_only=True) as db:
        assert dict(db.scan()) == expected, "a reader sees something else"


@contextlib.contextmanager
def never_rebuilt() -> Iterator[None]:
    """A power failure leaves a map that is sound, however old."""
    with unittest.mock.patch.object(backend.logger, "warning") as warning:
        yield
    assert not warning.called, f"{warning.call_args}"


def _check_versions(recorded: Recorded, db: logdb.Database, newest: int, rng: random.Random) -> None:
    """The newest version, the oldest one, and one in between are what was written."""
    oldest = db.oldest_version
    for version in {newest, oldest, rng.randrange(oldest, newest + 1)}:
        found, expected = dict(db.at(version).scan()), state_at(recorded, version)
        assert found == expected, f"version {version} is not what was written: {different(found, expected)}"
        key = rng.choice(KEYS)
        assert db.at(version).get(key) == expected.get(key)


def state_at(recorded: Recorded, version: int) -> State:
    return recorded.states[max(written for written in recorded.states if written <= version)]


def different(found: State, expected: State) -> list[bytes]:
    return sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
