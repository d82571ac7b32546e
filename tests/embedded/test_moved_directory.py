"""The current directory changes while a database is open, or the database's directory is moved."""

from __future__ import annotations

from pathlib import Path

import pytest

import logdb
from logdb.api.inspection import verify
from logdb.embedded import EmbeddedBackend
from logdb.log.contract import LogFailed
from logdb.log.local.local_log import LocalLog
from spark_export.directory_source import DirectorySource

LOG_ID = bytes(16)


def fill(db: logdb.Database, prefix: bytes, count: int = 40) -> dict[bytes, bytes]:
    """Puts that need several segments of 64 KiB."""
    written = {b"%s/%03d" % (prefix, number): bytes(4_000) + b"%d" % number for number in range(count)}
    for key, value in written.items():
        db.put(key, value)
    return written


def small_segments(path: str | Path) -> logdb.Database:
    return logdb.Database(
        EmbeddedBackend.open(Path(path), read_only=False, create=True, log_options={"segment_bytes": 1 << 16})
    )


def test_a_relative_path_is_that_of_the_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another database is at the same relative path from the new current directory."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "two")
    with small_segments("data") as other:
        others = fill(other, b"other")
    monkeypatch.chdir(tmp_path / "one")
    with small_segments("data") as db:
        written = fill(db, b"a")
        monkeypatch.chdir(tmp_path / "two")
        written |= fill(db, b"b")
        db.checkpoint()
        db.compact()
        written |= fill(db, b"c")
        assert Path(db.path) == tmp_path / "one" / "data"
    monkeypatch.chdir(tmp_path)
    for path, expected in (("one/data", written), ("two/data", others)):
        assert verify(path).damage == []
        with logdb.open(path, read_only=True) as db:
            assert dict(db.scan()) == expected


def test_a_relative_place_of_a_cold_tier_and_of_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with logdb.open("data", cold="cold") as db:
        monkeypatch.chdir(tmp_path / "elsewhere")
        db.put(b"k", b"v")
        db.compact()
        assert db.at(1).get(b"k") == b"v"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with logdb.open(tmp_path / "data") as db:
        assert db.get(b"k") == b"v"


def test_a_log_whose_directory_was_moved_leaves_another_one_alone(tmp_path: Path) -> None:
    path, moved = tmp_path / "log", tmp_path / "moved"
    log = LocalLog(path, LOG_ID, segment_bytes=1 << 16)
    for _ in range(4):
        log.append([(0, bytes(1 << 15))])
    path.rename(moved)
    other = LocalLog(path, bytes([1] * 16), segment_bytes=1 << 16)
    for _ in range(6):
        other.append([(0, bytes(1 << 15))])
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(LogFailed, match="moved"):
        log.trim(4)
    with pytest.raises(LogFailed, match="moved"):
        log.append([(0, bytes(1 << 16))])
    log.close()
    assert {file.name: file.read_bytes() for file in path.iterdir()} == files
    other.close()


def test_a_database_that_was_moved_leaves_another_one_alone(tmp_path: Path) -> None:
    path, moved = tmp_path / "data", tmp_path / "moved"
    db = small_segments(path)
    written = fill(db, b"a")
    db.checkpoint()
    path.rename(moved)
    with small_segments(path) as other:
        others = fill(other, b"other")
        other.checkpoint()
    with pytest.raises(logdb.errors.Unavailable, match="moved"):
        written |= fill(db, b"a", 1)
        db.checkpoint()
    db.close()
    assert verify(path).damage == []
    with logdb.open(path) as again:
        assert dict(again.scan()) == others
    with logdb.open(moved) as again:
        assert dict(again.scan()) == written


@pytest.mark.parametrize("is_replaced", [True, False])
def test_what_other_processes_would_use_is_refused_after_a_move(tmp_path: Path, is_replaced: bool) -> None:
    """A backup reads links to the log's files, and a compaction the leases there."""
    path, moved = tmp_path / "data", tmp_path / "moved"
    with logdb.open(path, cold=tmp_path / "tier") as db:
        db.put(b"k", b"old")
        db.compact()
        db.put(b"k", b"new")
        path.rename(moved)
        if is_replaced:
            logdb.open(path).close()
        for use in (lambda: logdb.backup(db, tmp_path / "backups"), db.compact, lambda: db.at(1).get(b"k")):
            with pytest.raises(logdb.Unavailable, match=f"{path} was moved or removed .* open it where it is now"):
                use()
        assert path.exists() == is_replaced
        assert not (path / "exports").exists()
    with logdb.open(moved) as db:
        assert logdb.backup(db, tmp_path / "backups").version == db.version
        assert db.at(1).get(b"k") == b"old"


def test_a_spark_lease_is_refused_after_a_move(tmp_path: Path) -> None:
    path = tmp_path / "data"
    logdb.open(path).close()
    source = DirectorySource(path)
    source.version()
    path.rename(tmp_path / "moved")
    logdb.open(path).close()
    with pytest.raises(logdb.Unavailable, match="was moved"):
        source.lease("reader", 0)
    assert not (path / "exports").exists()
    source.close()
