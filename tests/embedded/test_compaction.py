"""The cost and the freed space of compaction, also for a small database and after an interruption."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import logdb
from logdb.embedded import compaction, compactor
from logdb.store import relocating, runs
from logdb.store.checkpoint import Checkpoint
from logdb.store.overlay import Overlay
from logdb.store.runs import RunWriter
from tests.harness.opening import host_of, open_database, settled

KEYS = 400


@pytest.fixture
def db(tmp_path: Path) -> Iterator[logdb.Database]:
    """A small database: all of its log is in one file."""
    with open_database(tmp_path / "db") as db:
        for number in range(5):
            for first in range(0, KEYS, 100):
                db.multi_put({b"%04d" % key: b"%d " % number + b"v" * 500 for key in range(first, first + 100)})
        yield db


def log_bytes(db: logdb.Database) -> int:
    return sum(path.stat().st_size for path in Path(db.path, "log").glob("*.log"))


class Interrupted(Exception):
    pass


def interrupted(db: logdb.Database, after: int) -> None:
    """Compact, and raise an exception after `after` copied versions."""
    copied = 0

    def progress(count: int) -> None:
        nonlocal copied
        copied += count
        if copied >= after:
            raise Interrupted

    with pytest.raises(Interrupted):
        db.compact(progress=progress)


def test_a_small_database_is_made_smaller(db: logdb.Database) -> None:
    """Regression: all versions were in one file of 64 MiB, which compaction kept because of the newest version."""
    before, expected = log_bytes(db), dict(db.scan())
    compacted = db.compact()
    assert compacted.relocated == KEYS
    assert log_bytes(db) < before / 2
    assert dict(db.scan()) == expected
    host_of(db).close()
    logdb.rebuild(db.path)
    with logdb.open(db.path) as again:
        assert dict(again.scan()) == expected
        assert again.oldest_version == compacted.floor


def test_a_second_compaction_has_nothing_to_do(db: logdb.Database) -> None:
    first = db.compact()
    size = log_bytes(db)
    second = db.compact()
    assert (second.floor, second.relocated, second.written_bytes) == (first.floor, 0, 0)
    assert log_bytes(db) == size


def test_the_result_has_the_bytes_read_written_and_freed(db: logdb.Database) -> None:
    before = host_of(db).log.size()
    compacted = db.compact()
    data = KEYS * 506
    assert data <= compacted.read_bytes < 4 * data  # all runs, which have an older value of each key
    assert data < compacted.written_bytes < 4 * data  # the copies, and the rewritten map
    grown = host_of(db).log.size() - before
    assert compacted.freed_bytes >= 4 * data
    assert compacted.freed_bytes >= -grown


@pytest.mark.parametrize("then", ["in this process", "after closing", "after a kill"])
def test_copied_versions_are_not_copied_again(
    db: logdb.Database, tmp_path: Path, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after an interruption compaction started again, and copied its own copies."""
    monkeypatch.setattr(runs, "CHUNK_ROWS", 10)
    expected = dict(db.scan())
    interrupted(db, KEYS // 4)
    db.delete(b"0000")
    del expected[b"0000"]
    interrupted(db, KEYS // 4)
    if then == "after closing":
        db.checkpoint()
        db.close()
        db = logdb.open(db.path)
    elif then == "after a kill":
        db.put(b"synced", b"1")
        expected[b"synced"] = b"1"
        shutil.copytree(db.path, tmp_path / "copy")
        db = logdb.open(tmp_path / "copy")
    try:
        compacted = db.compact()
        assert KEYS // 4 <= compacted.relocated <= KEYS // 2 + 1
        assert dict(db.scan()) == expected
        again = db.compact()
        assert again.relocated <= KEYS + 1
        assert dict(db.scan()) == expected
    finally:
        db.close()
    logdb.rebuild(db.path)
    with logdb.open(db.path) as rebuilt:
        assert dict(rebuilt.scan()) == expected


def test_its_cost_follows_from_the_moved_bytes(db: logdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each copied version was decoded, looked up in the map, put into the overlay and written by a
    separate checkpoint."""
    db.multi_put({b"%04d" % key: None for key in range(0, KEYS, 2)})
    db.checkpoint()
    calls: Counter[str] = Counter()

    def counted(owner: object, name: str) -> None:
        right = getattr(owner, name)

        def count(*args: object, **options: object) -> object:
            calls[name] += 1
            return right(*args, **options)

        monkeypatch.setattr(owner, name, count)

    for owner in (relocating, runs):
        counted(owner, "decode")
    counted(Checkpoint, "row")
    counted(Overlay, "move")
    counted(RunWriter, "put")
    assert db.compact().relocated == KEYS // 2
    assert sum(calls.values()) == 0, calls


def test_copies_are_synced_in_batches(db: logdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: all copies waited in memory for one sync, which would have delayed concurrent commits."""
    monkeypatch.setattr(runs, "CHUNK_ROWS", 10)
    monkeypatch.setattr(relocating, "BATCH_BYTES", 2_000)
    monkeypatch.setattr(compaction, "SYNC_BYTES", 10_000)
    log, most = host_of(db).log, 0

    def progress(_: int) -> None:
        nonlocal most
        most = max(most, log.end() - 1 - log.durable)

    db.compact(progress=progress)
    assert 1 <= most <= 6


# ---- automatic compaction


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make logs small, and let a small amount of garbage start a compaction."""
    monkeypatch.setattr(compactor, "MIN_LOG_BYTES", 100_000)


def overwrite(db: logdb.Database, rounds: int) -> dict[bytes, bytes]:
    written = {}
    for number in range(rounds):
        for first in range(0, KEYS, 50):
            written.update({b"%04d" % key: b"%d " % number + b"v" * 500 for key in range(first, first + 50)})
            db.multi_put({b"%04d" % key: written[b"%04d" % key] for key in range(first, first + 50)})
    return written


@pytest.mark.usefixtures("small")
def test_garbage_above_the_share_is_compacted_away(tmp_path: Path) -> None:
    with open_database(tmp_path, overlay_bytes=300_000, compact_above=0.7) as db:
        expected = overwrite(db, 30)
        host = settled(db)
        assert db.oldest_version > 0
        assert host.compactor.garbage <= 0.7
        assert host.log.size() < 30 * KEYS * 500
        assert dict(db.scan()) == expected
    logdb.rebuild(tmp_path)
    with logdb.open(tmp_path) as again:
        assert dict(again.scan()) == expected


@pytest.mark.usefixtures("small")
def test_a_log_without_garbage_is_not_compacted(tmp_path: Path) -> None:
    with open_database(tmp_path, overlay_bytes=100_000, compact_above=0.3) as db:
        for number in range(2_000):
            db.put(b"%06d" % number, b"v" * 300)
        db.multi_put({b"large %d" % number: b"l" * 50_000 for number in range(20)})
        host = settled(db)
        assert host.compactor.garbage < 0.3
        assert db.oldest_version == 0, "nothing was compacted"


@pytest.mark.usefixtures("small")
def test_automatic_compaction_respects_pins_and_readers(tmp_path: Path) -> None:
    with open_database(tmp_path, overlay_bytes=100_000, compact_above=0.5) as db:
        first = overwrite(db, 1)
        pinned = db.pin("first")
        overwrite(db, 10)
        settled(db)
        assert db.oldest_version == pinned
        assert dict(db.at(pinned).scan()) == first
        db.unpin("first")
        with db.transaction() as work:
            expected = work[b"0000"]
            overwrite(db, 10)
            settled(db)
            assert work[b"0000"] == expected


@pytest.mark.usefixtures("small")
def test_closing_ends_a_compaction(tmp_path: Path) -> None:
    with open_database(tmp_path, overlay_bytes=1 << 20) as db:
        expected = overwrite(db, 5)
    db = open_database(tmp_path, overlay_bytes=1 << 20, compact_above=0.1)
    db.checkpoint()
    assert host_of(db).compactor.garbage > 0.1
    host_of(db).compactor.look()
    db.close()
    with logdb.open(tmp_path) as again:
        assert dict(again.scan()) == expected


def test_a_pin_does_not_wait_for_a_compaction(db: logdb.Database) -> None:
    """Regression: a pin waited for the end of the compaction, which can take minutes."""
    pinned = []

    def progress(_: int) -> None:
        if not pinned:
            pinned.append(db.pin("meanwhile"))

    floor = db.compact(progress=progress).floor
    assert pinned[0] >= floor
    assert db.pins == {"meanwhile": pinned[0]}
    db.put(b"0000", b"new")
    db.compact()
    assert db.at(pinned[0])[b"0000"] == b"4 " + b"v" * 500


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5])
def test_an_invalid_share_is_rejected(tmp_path: Path, share: float) -> None:
    with pytest.raises(ValueError, match="compact_above must be more than 0 and less than 1"):
        logdb.open(tmp_path, compact_above=share)
    assert list(tmp_path.iterdir()) == []


def test_a_share_for_a_database_in_memory_is_refused_rather_than_ignored() -> None:
    with pytest.raises(ValueError, match="in memory does not compact itself"):
        logdb.open(":memory:", compact_above=0.5)
