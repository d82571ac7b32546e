"""A backup of a database in each world restores to what it had, and a backup restores into each world."""

from __future__ import annotations

from pathlib import Path

import pytest

import logdb


def state(db: logdb.Database) -> dict[bytes, bytes]:
    return dict(db.scan())


def test_a_chain_restores_each_of_its_versions(db: logdb.Database, tmp_path: Path) -> None:
    db.multi_put({b"k%03d" % n: b"v" * (n * 50) for n in range(200)})
    states = {}
    for step in range(4):
        made = logdb.backup(db, tmp_path / "backup")
        assert (made.number, made.is_full) == (step + 1, step == 0)
        states[made.version] = dict(db.at(made.version).scan())
        db.put(b"k%03d" % step, b"new", label="a step")
        db.delete_range(b"k1%d" % step, b"k1%d" % (step + 1))
        db.multi_put({b"large": b"x" * 100_000, b"k150": None, b"more": b"%d" % step})
    assert logdb.verify_backup(tmp_path / "backup").damage == []
    for version, expected in states.items():
        restored = logdb.restore(tmp_path / "backup", tmp_path / f"at-{version}", version=version)
        assert restored.version == version
        with logdb.open(tmp_path / f"at-{version}", create=False) as opened:
            assert state(opened) == expected
            opened.put(b"k", b"it takes writes")


def test_a_version_between_two_backups_is_restored(db: logdb.Database, tmp_path: Path) -> None:
    db.put(b"k", b"0")
    logdb.backup(db, tmp_path / "backup")
    versions = [db.put(b"k", b"%d" % n) for n in range(5)]
    states = {version: {b"k": b"%d" % n} for n, version in enumerate(versions)} | {db.delete(b"k"): {}}
    logdb.backup(db, tmp_path / "backup")
    with logdb.open(":memory:") as into:
        assert logdb.restore(tmp_path / "backup", into, version=versions[2]).version == versions[2]
        assert state(into) == {b"k": b"2"}
    at = db.time_of(versions[3])
    assert at is not None
    with logdb.open(":memory:") as into:
        newest = max(version for version in states if db.time_of(version) == at)
        assert logdb.restore(tmp_path / "backup", into, time=at).version == newest
        assert state(into) == states[newest]


def test_nothing_new_makes_no_backup(db: logdb.Database, tmp_path: Path) -> None:
    assert logdb.backup(db, tmp_path / "empty").records == 0
    db.put(b"k", b"v")
    first = logdb.backup(db, tmp_path / "backup")
    assert logdb.backup(db, tmp_path / "backup") == first
    full = logdb.backup(db, tmp_path / "backup", full=True)
    assert full.is_full
    assert logdb.list_backups(tmp_path / "backup") == ([first] if full == first else [first, full])


def test_a_compaction_between_two_backups_makes_the_next_one_restorable(db: logdb.Database, tmp_path: Path) -> None:
    for round in range(3):
        db.multi_put({b"k%03d" % n: b"%d" % round * 500 for n in range(100)})
        db.compact()
        made = logdb.backup(db, tmp_path / "backup")
        with logdb.open(":memory:") as into:
            logdb.restore(tmp_path / "backup", into)
            assert state(into) == dict(db.at(made.version).scan())


def test_a_backup_of_a_directory_restores_into_each_world(db: logdb.Database, tmp_path: Path) -> None:
    with logdb.open(tmp_path / "source") as source:
        source.multi_put({b"k%03d" % n: b"v" * n for n in range(300)})
        source.put(b"large", b"x" * 100_000)
        logdb.backup(source, tmp_path / "of-directory")
        expected = state(source)
    logdb.restore(tmp_path / "of-directory", db)
    assert state(db) == expected
    with pytest.raises(logdb.BackupError, match="is not empty"):
        logdb.restore(tmp_path / "of-directory", db)
