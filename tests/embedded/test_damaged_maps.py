"""Damage to the map is detected when the database is opened or a row is read, and the map is rebuilt."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

import logdb
from logdb.api.inspection import verify
from logdb.store import map_verifier
from tests.harness.forks import in_child
from tests.harness.opening import host_of, open_database

KEYS = [b"key %04d" % number for number in range(400)]
PAGE = 4096
Contents = tuple[object, ...]


def contents(db: logdb.Database) -> Contents:
    """The results of all kinds of reads."""
    newest = dict(db.scan())
    found = db.multi_get(KEYS)
    assert {key: db.get(key) for key in newest} == newest
    assert dict(found) == {key: newest[key] for key in KEYS if key in newest}
    with db.transaction(read_only=True) as txn:
        assert dict(txn.scan(reverse=True)) == newest
    older = dict(db.at(db.pins["here"]).scan())
    return newest, older, [list(db.history(key)) for key in KEYS[::40]]


def tables_of(path: Path, value: bytes = b"second of") -> Path:
    """The run with values that start with `value`."""
    (found,) = (run for run in (path / "map").glob("run-*.mdb") if value in run.read_bytes())
    return found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    """A database whose map has rows in every table, and its contents."""
    path = tmp_path_factory.mktemp("closed") / "db"
    with logdb.open(path) as db:
        db.multi_put({key: b"first of " + key * 5 for key in KEYS})
        db.multi_put({b"large": b"large " * 2_000, b"long" * 200: b"value", b"inline": b"inline" * 500})
        db.pin("here")
        db.checkpoint()
        db.multi_put({key: b"second of " + key * 5 for key in KEYS[::3]})
        db.delete(KEYS[1])
        db.checkpoint()
        db.put(KEYS[2], b"after the checkpoint")
        return path, contents(db)


@pytest.fixture
def copied(closed: tuple[Path, Contents], tmp_path: Path) -> tuple[Path, Contents]:
    shutil.copytree(closed[0], tmp_path / "db")
    return tmp_path / "db", closed[1]


def replace(tables: Path, data: bytes) -> None:
    """Overwrite the file in place."""
    with tables.open("r+b") as file:
        file.write(data)
        file.truncate()


def flips(size: int, seed: int, count: int) -> list[Callable[[bytes], bytes]]:
    rng = random.Random(seed)

    def flip(at: int, bit: int) -> Callable[[bytes], bytes]:
        return lambda data: data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]

    return [flip(rng.randrange(size), rng.randrange(8)) for _ in range(count)]


def other_damage(size: int) -> list[Callable[[bytes], bytes]]:
    last = size // PAGE - 1
    return [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:PAGE],
        lambda data: data[: last * PAGE],
        lambda data: data[: size // 2],
        lambda data: data[:-1],
        lambda data: bytes(size),
        lambda data: data + bytes(PAGE),
        lambda data: data + data,
        *[lambda data, at=at * PAGE: data[:at] + bytes(PAGE) + data[at + PAGE :] for at in range(last + 1)],  # type: ignore[misc]
        *[lambda data, at=at * PAGE: data[:at] + data[:PAGE] + data[at + PAGE :] for at in range(last + 1)],  # type: ignore[misc]
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_database_opens_with_all_its_data_after_any_damage_of_the_map(
    copied: tuple[Path, Contents], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    path, truth = copied
    tables = tables_of(path)
    sound = tables.read_bytes()
    shutil.copytree(path / "map", path.parent / "map")
    for damage in flips(len(sound), seed, 20) + (other_damage(len(sound)) if seed == 0 else []):
        if damage(sound) == sound:
            continue
        caplog.clear()
        replace(tables, damage(sound))
        with logdb.open(path) as db:
            assert contents(db) == truth
        assert "rebuilding the map" in caplog.text
        assert tables.name in caplog.text
        shutil.rmtree(path / "map")
        shutil.copytree(path.parent / "map", path / "map")


@pytest.mark.parametrize("seed", range(2))
def test_a_reader_reports_the_damage_and_the_remedy(copied: tuple[Path, Contents], seed: int) -> None:
    path, truth = copied
    tables = tables_of(path)
    sound = tables.read_bytes()
    for damage in flips(len(sound), seed + 10, 10) + (other_damage(len(sound))[:12] if seed == 0 else []):
        if damage(sound) == sound:
            continue
        replace(tables, damage(sound))
        with pytest.raises(logdb.Corruption, match="opening the database for writing rebuilds it") as error:
            logdb.open(path, read_only=True)
        assert str(path / "map") in str(error.value)
        assert tables.name in str(error.value)
        assert [str(one.path) for one in verify(path).damage] == [str(path / "map")]
    with logdb.open(path) as db:
        assert contents(db) == truth
    assert verify(path).damage == []


def test_a_row_damaged_in_use_is_not_returned_and_the_next_opening_rebuilds_the_map(
    copied: tuple[Path, Contents],
) -> None:
    path, truth = copied
    tables = tables_of(path)
    value = b"second of " + KEYS[3] * 5
    with logdb.open(path) as db, logdb.open(path, read_only=True) as reader:
        replace(tables, tables.read_bytes().replace(value, value.replace(b"second", b"sekond")))
        for one in (db, reader):
            reads: list[Callable[[], object]] = [
                lambda one=one: one.get(KEYS[3]),  # type: ignore[misc]
                lambda one=one: one.multi_get(KEYS),  # type: ignore[misc]
                lambda one=one: list(one.scan()),  # type: ignore[misc]
                lambda one=one: list(one.scan(KEYS[3], limit=1)),  # type: ignore[misc]
                lambda one=one: list(one.at().scan(reverse=True)),  # type: ignore[misc]
                lambda one=one: list(one.history(KEYS[3])),  # type: ignore[misc]
            ]
            for read in reads:
                with pytest.raises(logdb.Corruption, match="opening the database for writing rebuilds it"):
                    read()
            assert one.get(KEYS[4]) == b"first of " + KEYS[4] * 5
    with logdb.open(path) as db:
        assert contents(db) == truth


def test_damage_without_a_change_of_file_times_is_found_after_a_read_of_a_damaged_row(
    copied: tuple[Path, Contents], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, truth = copied
    tables = tables_of(path)
    value = b"second of " + KEYS[3] * 5
    monkeypatch.setattr(map_verifier, "_identity", lambda status: "the same file")
    logdb.open(path).close()
    replace(tables, tables.read_bytes().replace(value, value.replace(b"second", b"sekond")))
    with logdb.open(path) as db, pytest.raises(logdb.Corruption):
        db.get(KEYS[3])
    with logdb.open(path) as db:
        assert contents(db) == truth


def test_a_sound_map_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after any interruption: the manifest lists no incomplete run."""
    path, looked, crc_of = tmp_path / "db", list[str](), map_verifier.crc_of
    monkeypatch.setattr(map_verifier, "crc_of", lambda file: looked.append(file.name) or crc_of(file))

    def looks() -> list[str]:
        looked.clear()
        for read_only in (False, True):
            logdb.open(path, read_only=read_only).close()
        return looked

    with logdb.open(path) as db:
        db.multi_put({key: key for key in KEYS})
        db.checkpoint()
    assert looks() == []
    (tables,) = (path / "map").glob("run-*.mdb")
    os.utime(tables)
    assert looks() == [tables.name]
    assert looks() == []

    def cut_short() -> None:
        """End without closing the database."""
        db = open_database(path)
        db.multi_put(dict.fromkeys(KEYS, b"other"))
        checkpoint = host_of(db).machine.coordinator.map.checkpoint
        assert checkpoint is not None
        checkpoint.begin(db.version)
        next(checkpoint.write(host_of(db).machine.coordinator.map.active))
        assert len(list((path / "map").glob("run-*.mdb"))) == 2

    in_child(cut_short)
    assert len(list((path / "map").glob("run-*.mdb"))) == 2
    assert looks() == []
    assert list((path / "map").glob("run-*.mdb")) == [tables]


def test_a_map_of_an_earlier_version_is_rebuilt(
    copied: tuple[Path, Contents], caplog: pytest.LogCaptureFixture
) -> None:
    """That map was one LMDB file that was changed in place."""
    path, truth = copied
    shutil.rmtree(path / "map")
    with lmdb.open(str(path / "map"), max_dbs=16, map_size=1 << 30) as env:
        env.open_db(b"newest2")
    with pytest.raises(logdb.Corruption, match="an earlier version of LogDB; opening the database for writing"):
        logdb.open(path, read_only=True)
    with logdb.open(path) as db:
        assert contents(db) == truth
        db.checkpoint()
    assert "an earlier version of LogDB" in caplog.text
    assert not (path / "map" / "data.mdb").exists()
    assert verify(path).damage == []
    caplog.clear()
    with logdb.open(path) as db:
        assert contents(db) == truth
    assert not caplog.records


def test_a_map_older_than_the_trimmed_log_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory assembled from two backups: the log is trimmed past the versions that the map covers."""
    path = tmp_path / "db"
    small = {"segment_bytes": 5_000}
    with open_database(path, **small) as db:
        db.multi_put(dict.fromkeys(KEYS, b"1"))
        db.checkpoint()
    shutil.copytree(path / "map", tmp_path / "old")
    with open_database(path, **small) as db:
        for number in range(40):
            db.multi_put(dict.fromkeys(KEYS, b"%d" % number))
        db.compact()
        truth = dict(db.scan())
    shutil.rmtree(path / "map")
    shutil.copytree(tmp_path / "old", path / "map")
    with logdb.open(path) as db:
        assert dict(db.scan()) == truth
    assert "the log begins at" in caplog.text


def test_a_decision_that_reads_damage_leaves_the_outcome_unknown(copied: tuple[Path, Contents]) -> None:
    path, _ = copied
    tables = tables_of(path, b"first of")
    with logdb.open(path) as db:
        sound = tables.read_bytes()
        replace(tables, re.sub(KEYS[5] + b"(?s:.){8}", KEYS[5] + b"damaged!", sound))
        with pytest.raises(logdb.OutcomeUnknown, match="is damaged") as unknown:
            db.test_and_multi_put([logdb.exists(KEYS[5])], {b"written": b"value"})
        replace(tables, sound)  # as after a temporary read error
        for asked in (lambda: db.outcome(unknown.value.txn_id), db.checkpoint, lambda: db.put(b"more", b"value")):
            with pytest.raises(logdb.Unavailable, match="close it and open it again"):
                asked()
        assert b"written" not in db
    with logdb.open(path) as db:
        assert db[b"written"] == b"value"
        assert db.outcome(unknown.value.txn_id).committed
    assert not verify(path).damage


def test_the_next_read_of_a_snapshot_reports_the_damage_too(copied: tuple[Path, Contents]) -> None:
    path, _ = copied
    tables = tables_of(path, b"first of")
    with logdb.open(path) as db:
        sound = tables.read_bytes()
        leaves = [at for at in range(2 * PAGE, len(sound), PAGE) if b"first of" in sound[at : at + PAGE]]
        pages = [sound[:PAGE] if at in leaves else sound[at : at + PAGE] for at in range(0, len(sound), PAGE)]
        replace(tables, b"".join(pages))
        for key in (key for key in KEYS[10:20] if key not in KEYS[::3]):
            with pytest.raises(logdb.Corruption, match="opening the database for writing rebuilds it"):
                db.get(key)
        with pytest.raises(logdb.Corruption, match="opening the database for writing rebuilds it"):
            list(db.scan())
        replace(tables, sound)
