"""Backups of a database behind servers: rows of one version, then commits."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

import logdb
from logdb.api import inspection
from logdb.backups import restoring, taking
from logdb.backups.places import DirectoryPlace, place_of
from logdb.backups.taking import back_up
from logdb.embedded import commits
from tests.harness.faulty_disk import Fault, FaultyDisk
from tests.harness.served import Served

SMALL = 2_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def interrupt(db: logdb.Database, place: Path) -> None:
    """Begin a backup, and stop after two parts."""
    disk = FaultyDisk(Fault(frozenset({"create"}), 2, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        back_up(db, DirectoryPlace(place, disk), part_bytes=SMALL)
    assert len(list(place.glob("*.log"))) >= 2


def restored(place: Path) -> dict[bytes, bytes]:
    with logdb.open(":memory:") as into:
        logdb.restore(place, into)
        return dict(into.scan())


def test_a_backup_continues_none_of_another_database(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have a version of the same number."""
    monkeypatch.setattr(taking, "ROWS_BYTES", SMALL // 2)
    with logdb.open(":memory:") as one, logdb.open(":memory:") as other:
        for db, value in ((one, b"1" * 100), (other, b"2" * 100)):
            for number in range(40):
                db.put(b"k%02d" % number, value)
        assert one.version == other.version
        interrupt(one, place)
        back_up(other, place_of(place), part_bytes=SMALL)
        assert restored(place) == dict(other.scan())


def test_a_large_transaction_is_restored_behind_small_ones(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with what came before, it was larger than a transaction may be, and nothing could be restored."""
    with logdb.open(":memory:") as db:
        db.put(b"first", b"1")
        logdb.backup(db, place)
        db.multi_put({b"small %02d" % number: b"s" * 1_000 for number in range(45)})
        db.multi_put({b"large %02d" % number: b"l" * 1_000 for number in range(90)})
        logdb.backup(db, place)
        monkeypatch.setattr(restoring, "BATCH_BYTES", 50_000)
        monkeypatch.setattr(commits, "MAX_TRANSACTION_BYTES", 100_000)
        assert restored(place) == dict(db.scan())


def test_a_backup_continues_none_of_a_lost_history(tmp_path: Path, place: Path) -> None:
    """A database was put back to an earlier state after a backup had been interrupted."""
    before, after = tmp_path / "before", tmp_path / "after"
    with logdb.open(before) as db:
        db.put(b"k", b"first")
    shutil.copytree(before, after)
    for path in (before, after):
        served = Served(path)
        with closing(logdb.connect(served.address)) as db:
            if path == before:
                back_up(db, place_of(place), part_bytes=SMALL)
            for number in range(40):
                db.put(b"k%02d" % number, path.name.encode() * 20)
            if path == before:
                interrupt(db, place)
            else:
                back_up(db, place_of(place), part_bytes=SMALL)
                assert restored(place) == dict(db.scan())
        served.close()


def test_a_restored_directory_appends_behind_the_entries_of_the_backup(tmp_path: Path, place: Path) -> None:
    """Positions contain versions, so those of the new database must be later."""
    with logdb.open(":memory:") as db:
        for number in range(100):
            db.put(b"k", b"%d" % number)
        db.log("orders").extend([b"1", b"2"])
        version = back_up(db, place_of(place)).version
    made = logdb.restore(place, tmp_path / "restored")
    assert made.version == version < made.new_version
    for _ in range(2):
        with logdb.open(tmp_path / "restored") as db:
            assert db.oldest_version > version
            db.log("orders").append(b"new")
        logdb.rebuild(tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as db:
        assert [entry.value for entry in db.log("orders").read()] == [b"1", b"2", b"new", b"new"]
        assert db[b"k"] == b"99"
        db.compact()
        logdb.backup(db, tmp_path / "again")
    logdb.restore(tmp_path / "again", tmp_path / "twice")
    assert not inspection.verify(tmp_path / "twice").damage
