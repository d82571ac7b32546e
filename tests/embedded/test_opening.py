"""One writer and many readers of a directory, and directories without a database."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Sized
from pathlib import Path

import pytest

import logdb
from tests.harness.opening import host_of, open_database

LARGE = b"large " * 2_000


def in_another_process(script: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr


def test_the_error_of_a_second_writer_names_the_first(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        db.put(b"k", b"1")
        with pytest.raises(logdb.DatabaseInUse, match=f"this process {os.getpid()} on .* read_only=True") as caught:
            logdb.open(tmp_path)
        assert caught.value.advice is logdb.Advice.RETRY
        said = in_another_process("import logdb, sys; logdb.open(sys.argv[1])", tmp_path)
        assert "DatabaseInUse" in said
        assert f"process {os.getpid()} on" in said
        script = "import logdb, sys; print(logdb.open(sys.argv[1], read_only=True)[b'k'])"
        assert in_another_process(script, tmp_path) == "b'1'\n"
    assert in_another_process("import logdb, sys; logdb.open(sys.argv[1]).put(b'k', b'2')", tmp_path) == ""
    with logdb.open(tmp_path) as again:
        assert again[b"k"] == b"2"


def test_a_reader_follows_the_writer_through_checkpoints_and_compactions(tmp_path: Path) -> None:
    with open_database(tmp_path, segment_bytes=20_000) as db:
        db.put(b"k", b"0")
        with open_database(tmp_path, read_only=True) as reader:
            for number in range(60):
                db.multi_put({b"k": b"%d" % number, b"%d" % (number % 7): b"%d" % number + LARGE, b"8": None})
                if number % 10 == 4:
                    db.checkpoint()
                if number % 10 == 9:
                    db.compact()
                assert reader[b"k"] == b"%d" % number
                assert dict(reader.scan()) == dict(db.scan())
                assert (reader.version, reader.oldest_version) == (db.version, db.oldest_version)


def test_a_reader_that_read_nothing_while_its_files_were_compacted(tmp_path: Path) -> None:
    with open_database(tmp_path, segment_bytes=20_000) as db, open_database(tmp_path, read_only=True) as reader:
        db.put(b"k", b"0")
        assert reader[b"k"] == b"0"
        for number in range(60):
            db.multi_put({b"k": b"%d" % number, b"%d" % (number % 7): b"%d" % number + LARGE})
        db.pin("here")
        for number in range(3):
            db.compact()
            db.put(b"more", b"%d" % number)
        assert reader[b"k"] == b"59"
        assert dict(reader.scan()) == dict(db.scan())
        assert reader.pins == db.pins
        assert reader.oldest_version == db.oldest_version
        db.put(b"k", b"last")
        assert reader[b"k"] == b"last"


def test_a_reader_that_opened_before_the_writer(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        db.put(b"k", b"1")
    with logdb.open(tmp_path, read_only=True) as reader:
        assert reader[b"k"] == b"1"
        with logdb.open(tmp_path) as db:
            db.put(b"k", b"2")
            assert reader[b"k"] == b"2"
            assert [item.changes for item in reader.watch(since=1, timeout=0)] == [{b"k": b"2"}]


def test_a_reader_adopts_the_writers_checkpoints_beside_its_own_threads(tmp_path: Path) -> None:
    with open_database(tmp_path) as db, open_database(tmp_path, read_only=True, overlay_bytes=10_000) as reader:
        stop, wrong = threading.Event(), list[object]()

        def read() -> None:
            try:
                least = 0
                while not stop.is_set():
                    found = reader.multi_get([b"a", b"b"])
                    if found:
                        number = int(found[b"a"])
                        if found[b"a"] != found[b"b"] or number < least:
                            wrong.append((least, found))
                        least = number
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(400):
            value = b"%d" % number
            db.multi_put({b"a": value, b"b": value, b"k%d" % number: b"x" * 200})
            if number % 20 == 0:
                db.checkpoint()
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a reader hangs"
        assert wrong == []
        assert host_of(reader).machine.coordinator.map.active.size < 200_000


@pytest.mark.parametrize("write", ["put", "delete", "multi_put", "compact", "pin", "unpin", "transaction"])
def test_a_reader_does_not_write(tmp_path: Path, write: str) -> None:
    with logdb.open(tmp_path) as db:
        db.put(b"k", b"1")
        db.pin("name")
    with logdb.open(tmp_path, read_only=True) as reader:

        def transact() -> None:
            with reader.transaction() as txn:
                txn[b"k"] = b"2"

        calls = {
            "put": lambda: reader.put(b"k", b"2"),
            "delete": lambda: reader.delete(b"k"),
            "multi_put": lambda: reader.multi_put({b"k": b"2"}),
            "compact": reader.compact,
            "pin": lambda: reader.pin("other"),
            "unpin": lambda: reader.unpin("name"),
            "transaction": transact,
        }
        with pytest.raises(logdb.ReadOnly):
            calls[write]()
        assert reader[b"k"] == b"1"
        assert reader.outcome("0000000000000001-1").status is logdb.Status.NOT_FOUND


def test_directories_without_a_database(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "stranger.txt").write_text("hello")
    missing = tmp_path / "missing" / "deep"
    with pytest.raises(logdb.NotADatabase, match="is a file"):
        logdb.open(tmp_path / "file")
    with pytest.raises(logdb.NotADatabase, match=r"not empty \(it holds 'stranger.txt'\)"):
        logdb.open(tmp_path / "folder")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["stranger.txt"]
    for path in (tmp_path / "file", tmp_path / "folder", missing):
        with pytest.raises(logdb.NotADatabase):
            logdb.open(path, read_only=True)
    with pytest.raises(logdb.NotADatabase, match="nothing was created"):
        logdb.open(missing, create=False)
    assert not missing.exists()
    with logdb.open(str(missing)) as db:
        db.put(b"k", b"1")
    assert missing.is_dir()
    with pytest.raises(TypeError):
        logdb.open(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="in memory"):
        logdb.open(":memory:", read_only=True)


def test_a_format_from_the_future(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        db.put(b"k", b"1")
    identity = tmp_path / "LOGDB"
    text = identity.read_text()
    identity.write_text(text.replace("format = 1", "format = 2"))
    for read_only in (False, True):
        with pytest.raises(logdb.UnsupportedFormat, match="has format 2, this LogDB reads up to 1"):
            logdb.open(tmp_path, read_only=read_only)
    for damaged in ("", "format = 1", text.replace("id", "di"), "format = 'one'\nid = 'x'", "\x00"):
        identity.write_text(damaged)
        with pytest.raises(logdb.Corruption) as caught:
            logdb.open(tmp_path)
        assert caught.value.path == str(identity)
    identity.write_text(text)
    with logdb.open(tmp_path) as db:
        assert db[b"k"] == b"1"


@pytest.mark.parametrize("where", [":memory:", "directory"])
def test_use_after_close(where: str, tmp_path: Path) -> None:
    db = logdb.open(where if where == ":memory:" else tmp_path)
    db.put(b"k", b"1")
    snapshot, rows = db.at(), db.scan()
    txn = db.transaction()
    txn.__enter__()
    db.close()
    db.close()
    assert "closed" in repr(db)
    calls = [
        lambda: db.get(b"k"),
        lambda: db.multi_get([b"k"]),
        lambda: list(db.scan()),
        lambda: list(db.history(b"k")),
        lambda: list(rows),
        lambda: snapshot.get(b"k"),
        lambda: list(snapshot.scan()),
        lambda: db.at(1),
        lambda: db.put(b"k", b"2"),
        lambda: db.delete(b"k"),
        lambda: db.multi_put({b"k": b"2"}),
        lambda: db.test_and_multi_put([], {b"k": b"2"}),
        lambda: db.transaction().__enter__(),
        lambda: db.outcome("0000000000000001-1"),
        db.watch,
        lambda: db.pin("name"),
        lambda: db.unpin("name"),
        lambda: db.pins,
        db.compact,
        db.checkpoint,
        lambda: db.version,
        lambda: db.oldest_version,
        lambda: db.time_of(1),
    ]
    for position, call in enumerate(calls):
        with pytest.raises(logdb.DatabaseClosed, match="is closed"):
            call()
            raise AssertionError(f"call {position} succeeded")


def test_programs_that_look_at_all_objects_meet_no_closed_database(tmp_path: Path) -> None:
    """A profiler of memory asks each object for its class, which raised DatabaseClosed."""
    db = logdb.open(tmp_path)
    db.close()
    assert sum(isinstance(each, Sized) for each in gc.get_objects())


def test_opening_beside_a_checkpoint_of_the_same_process(tmp_path: Path) -> None:
    """Regression: the opening never ended, because LMDB opened tables in a write transaction."""
    with open_database(tmp_path) as db:
        db.put(b"k", b"1")
        checkpoint = host_of(db).machine.coordinator.map.checkpoint
        assert checkpoint is not None
        checkpoint.begin(1)
        slices = checkpoint.write(host_of(db).machine.coordinator.map.active)
        assert next(slices) == 1
        with logdb.open(tmp_path, read_only=True) as reader:
            assert reader[b"k"] == b"1"
