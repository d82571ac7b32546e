"""Exports: equal to the scan, verified by their manifest, published atomically.

Most tests run the tasks in this process, pickled as by Spark; a few run them on Spark.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import logdb
from logdb import Database
from logdb.embedded.external_leases import ExternalLease, process_owner
from logdb.store import limits
from spark_export import ExportFailed, export, export_snapshot, import_export, restoring, verify_export
from tests.spark_export import histories

OpenSmall = Callable[..., Database]
FILE_BYTES = 100_000


def exported_rows(to: Path) -> list[tuple[bytes, bytes, int]]:
    """Every row, in the order of the files."""
    files = sorted(to.glob("part-*.parquet"))
    return [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]


def scanned_rows(db: Database, version: int) -> list[tuple[bytes, bytes, int]]:
    """The expected rows of the export of a version."""
    at = db.at(version)
    return [(key, value, next(at.history(key)).version) for key, value in at.scan()]


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("seed", range(3))
def test_an_export_equals_the_scan(open_small: OpenSmall, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    db = open_small()
    versions = histories.write(db, rng, 300)
    db.compact(versions[120])
    versions = [*versions[120:], *histories.write(db, rng, 50)]
    reports: list[tuple[int, int]] = []
    for number, version in enumerate((rng.choice(versions), db.oldest_version)):
        to = tmp_path / f"out-{number}"
        result = export_snapshot(db.path, to, version=version, progress=lambda *done: reports.append(done))
        assert exported_rows(to) == scanned_rows(db, version)
        assert result == verify_export(to)
        assert (result.version, result.rows) == (version, len(list(db.at(version).scan())))
        assert result.time == db.time_of(version)
        assert result.bytes == sum(file.stat().st_size for file in to.glob("*.parquet"))
        assert reports[-1][0] == reports[-1][1] > 0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["db", "out-0", "out-1"]
    assert not (Path(db.path) / "exports").exists()


def test_on_spark_by_time_and_prefix_in_several_files(spark: Any, open_small: OpenSmall, tmp_path: Path) -> None:
    db = open_small()
    versions = histories.write(db, Random(5), 300)
    time = db.time_of(versions[200])
    assert time is not None
    time += dt.timedelta(microseconds=1)
    result = export_snapshot(db.path, tmp_path / "out", timestamp=time, prefix=b"b/", file_bytes=FILE_BYTES)
    assert result.files > 1
    assert [row[:2] for row in exported_rows(tmp_path / "out")] == list(db.at(time=time).scan(prefix=b"b/"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == result.rows
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["prefix"] == b"b/".hex()
    assert manifest["version"] == result.version
    assert [column["name"] for column in manifest["schema"]] == ["key", "value", "version"]


@pytest.mark.usefixtures("tasks")
def test_an_empty_snapshot(open_small: OpenSmall, tmp_path: Path) -> None:
    db = open_small()
    result = export_snapshot(db.path, tmp_path / "out")
    assert (result.version, result.time, result.rows, result.files) == (0, None, 0, 1)
    assert verify_export(tmp_path / "out") == result
    assert pq.read_table(tmp_path / "out" / "part-00000.parquet").column_names == ["key", "value", "version"]


@pytest.mark.usefixtures("tasks")
def test_verify_finds_changed_files(open_small: OpenSmall, tmp_path: Path) -> None:
    db, to = open_small(), tmp_path / "out"
    histories.write(db, Random(6), 40)
    export_snapshot(db.path, to)
    (file,) = to.glob("*.parquet")
    content = file.read_bytes()
    for damaged in (bytes([*content[:50], content[50] ^ 1, *content[51:]]), content[:-1], b""):
        file.write_bytes(damaged)
        with pytest.raises(logdb.Corruption, match="part-00000"):
            verify_export(to)
    file.unlink()
    with pytest.raises(logdb.Corruption, match="the manifest lists it, but it is missing"):
        verify_export(to)
    file.write_bytes(content)
    (to / "part-7.parquet").write_bytes(content)
    with pytest.raises(logdb.Corruption, match="the manifest does not list it"):
        verify_export(to)
    with pytest.raises(ExportFailed, match="is not an export of LogDB"):
        verify_export(tmp_path)


@pytest.mark.usefixtures("tasks")
def test_an_incomplete_export_is_not_published(
    open_small: OpenSmall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next export removes the files that another failed export has left beside the target."""
    db, to, staging = open_small(), tmp_path / "out", tmp_path / ".out.staging"
    histories.write(db, Random(7), 40)
    (staging / "spark" / "_temporary").mkdir(parents=True)
    (staging / "part-00000.parquet").write_bytes(b"half")
    (staging / "part-00000.parquet.json").write_text("[]")
    with monkeypatch.context() as patched:
        patched.setattr(export, "write_manifest", stopped)
        with pytest.raises(KeyboardInterrupt):
            export_snapshot(db.path, to)
    assert [entry.name for entry in tmp_path.iterdir()] == ["db"]
    assert not (Path(db.path) / "exports").exists()
    staging.mkdir()
    lock = os.open(staging, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(ExportFailed, match=r"another export to .* is running"):
        export_snapshot(db.path, to)
    os.close(lock)
    to.mkdir()
    export_snapshot(db.path, to)
    assert [row[:2] for row in exported_rows(to)] == list(db.scan())
    assert sorted(entry.name for entry in to.iterdir()) == ["_manifest.json", "part-00000.parquet"]


def stopped(*_: object) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def test_invalid_arguments_are_rejected(open_small: OpenSmall, tmp_path: Path) -> None:
    db, full = open_small(), tmp_path / "full"
    db.compact(db.put(b"k", b"v"))
    full.mkdir()
    (full / "mine").write_text("mine")
    for to, message in ((full, "is not an empty directory"), (full / "mine", "exists"), (full / "a" / "b", "make it")):
        with pytest.raises(ExportFailed, match=message):
            export_snapshot(db.path, to)
    with pytest.raises(logdb.FutureVersion):
        export_snapshot(db.path, tmp_path / "out", version=10_000)
    with pytest.raises(logdb.VersionTrimmed):
        export_snapshot(db.path, tmp_path / "out", version=0)
    with pytest.raises(TypeError, match="datetime"):
        export_snapshot(db.path, tmp_path / "out", timestamp="2024-01-01")  # type: ignore[arg-type]
    assert [entry.name for entry in full.iterdir()] == ["mine"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["db", "full"]


@pytest.mark.usefixtures("spark")
def test_damage_found_by_a_task_is_the_error_of_the_export(open_small: OpenSmall, tmp_path: Path) -> None:
    db = open_small()
    histories.write(db, Random(8), 200)
    version = db.version
    histories.write(db, Random(9), 1)
    db.checkpoint()
    segment = sorted((Path(db.path) / "log").glob("*.log"))[0]
    with segment.open("r+b") as file:
        file.seek(6_000)
        byte = file.read(1)
        file.seek(6_000)
        file.write(bytes([byte[0] ^ 8]))
    with pytest.raises(logdb.Corruption) as caught:
        export_snapshot(db.path, tmp_path / "out", version=version, file_bytes=FILE_BYTES)
    assert caught.value.path == str(segment)
    assert caught.value.offset is not None
    assert [entry.name for entry in tmp_path.iterdir()] == ["db"]


# ---- incremental


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("seed", range(2))
def test_an_incremental_export_equals_a_full_one(open_small: OpenSmall, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    db = open_small()
    histories.write(db, rng, 250)
    base = tmp_path / "base"
    export_snapshot(db.path, base, file_bytes=FILE_BYTES)
    db.compact(db.put(b"k", b"v"))
    export_snapshot(db.path, base := tmp_path / "again", file_bytes=FILE_BYTES)
    for number in range(3):
        versions = histories.write(db, rng, 60)
        db.compact(min(version for version in versions if version > db.oldest_version) - 1 if number == 1 else None)
        if number == 1:
            continue
        to = tmp_path / f"out-{number}"
        if db.oldest_version > json.loads((base / "_manifest.json").read_text())["version"]:
            with pytest.raises(logdb.VersionTrimmed):
                export_snapshot(db.path, to, base=base)
            export_snapshot(db.path, base := to)
            continue
        result = export_snapshot(db.path, to, base=base)
        assert exported_rows(to) == scanned_rows(db, db.version)
        assert verify_export(to) == result
        base = to


def test_files_whose_keys_have_not_changed_are_linked(open_small: OpenSmall, tmp_path: Path, tasks: list[str]) -> None:
    db = open_small()
    histories.write(db, Random(2), 300)
    export_snapshot(db.path, tmp_path / "base", file_bytes=FILE_BYTES)
    written = len(tasks)
    assert written > 2
    version = db.multi_put({b"a/000": b"new", b"a/002": None})
    export_snapshot(db.path, tmp_path / "out", base=tmp_path / "base", version=version)
    assert exported_rows(tmp_path / "out") == scanned_rows(db, version)
    assert len(tasks) == 2 * written
    same = [file.name for file in (tmp_path / "out").iterdir() if file.stat().st_nlink == 2]
    assert len(same) == written - 1
    prefixed = tmp_path / "prefixed"
    export_snapshot(db.path, prefixed, prefix=b"b/", base=None)
    other = open_small("other")
    for base, path, options, message in (
        (prefixed, db.path, {}, "is an export of other keys: the prefix must be the same"),
        (tmp_path / "base", other.path, {}, "is an export of another database"),
        (tmp_path / "out", db.path, {"version": version - 1}, f"the base is of version {version}, later than"),
        (tmp_path, db.path, {}, "is not an export of LogDB"),
    ):
        other.put(b"k", b"v")
        while other.version < db.version:
            other.put(b"k", b"v")
        with pytest.raises(ExportFailed, match=message):
            export_snapshot(path, tmp_path / "never", base=base, **options)
    damaged = next((tmp_path / "base").glob("part-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(logdb.Corruption, match=damaged.name):
        export_snapshot(db.path, tmp_path / "never", base=tmp_path / "base")


@pytest.mark.usefixtures("tasks")
def test_exports_of_a_database_that_another_process_writes_and_compacts(tmp_path: Path) -> None:
    """Each transaction writes the next number under 40 keys. A lease keeps the base version of the next export."""
    path, base = tmp_path / "db", None
    command = [sys.executable, "-m", "tests.spark_export.busy_writer", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        hold = ExternalLease(path, 0, process_owner(os.getpid()))
        for number in range(4):
            to = tmp_path / f"out-{number}"
            result = export_snapshot(path, to, base=base, file_bytes=FILE_BYTES)
            rows = exported_rows(to)
            assert [key for key, _, _ in rows] == [b"k%02d" % key for key in range(40)]
            assert len({(value, version) for _, value, version in rows}) == 1
            assert result.version >= rows[0][2]
            hold.move(result.version)
            base = to
        writer.stdin.close()
        assert writer.wait() == 0
    hold.close()


def test_a_base_of_a_lost_history_is_refused(tmp_path: Path, tasks: list[str]) -> None:
    """The directory was put back to an earlier state after the base had been exported."""
    before, after = tmp_path / "before", tmp_path / "after"
    logdb.open(before).close()
    shutil.copytree(before, after)
    for path in (before, after):
        with logdb.open(path) as db:
            for number in range(5):
                db.put(b"%s %d" % (path.name.encode(), number), b"v")
            if path == before:
                export_snapshot(path, tmp_path / "base")
            else:
                with pytest.raises(ExportFailed, match="an export of another history"):
                    export_snapshot(path, tmp_path / "next", base=tmp_path / "base")


# ---- killed and started again


def test_an_export_continues_after_it_was_killed(open_small: OpenSmall, tmp_path: Path, tasks: list[str]) -> None:
    """The export gets SIGKILL when its second file has been written."""
    db = open_small()
    histories.write(db, Random(3), 300)
    expected = scanned_rows(db, version := db.version)
    script = (
        "import os, signal, sys, tests.spark_export.test_export as t; from spark_export import export, parts;"
        "described, made = parts._described, []\n"
        "def dying(file, description):\n"
        "    described(file, description); made.append(file)\n"
        "    if len(made) == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return description\n"
        "parts._described = dying\n"
        "export._run = lambda plan, tasks: [task.run() for task in tasks]\n"
        f"export.export_snapshot(sys.argv[1], sys.argv[2], file_bytes={FILE_BYTES})"
    )
    to, staging = tmp_path / "out", tmp_path / ".out.staging"
    done = subprocess.run([sys.executable, "-c", script, db.path, str(to)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = {file.name: file.stat().st_ino for file in staging.glob("part-?????.parquet")}
    assert sorted(left) == ["part-00000.parquet", "part-00001.parquet"]
    shutil.copytree(staging, tmp_path / ".other.staging")
    histories.write(db, Random(4), 20)
    result = export_snapshot(db.path, to, file_bytes=FILE_BYTES)
    assert result == verify_export(to)
    assert result.version == version
    assert exported_rows(to) == expected
    assert {name: (to / name).stat().st_ino for name in left} == left
    assert not staging.exists()
    db.compact(db.put(b"k", b"v"))
    assert export_snapshot(db.path, tmp_path / "other", file_bytes=FILE_BYTES).version == db.version
    assert exported_rows(tmp_path / "other") == scanned_rows(db, db.version)


@pytest.mark.parametrize("steps", [100, 400], ids=["shorter", "longer"])
def test_an_export_continues_none_of_another_database(
    open_small: OpenSmall, tmp_path: Path, tasks: list[str], monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """An export was killed, and the next one to the same place is of another database."""
    one, other = open_small("one"), open_small("other")
    histories.write(one, Random(3), 300)
    histories.write(other, Random(4), steps)
    target, left = tmp_path / "out", tmp_path / "left"

    def killed(*_: Any) -> Any:
        shutil.copytree(tmp_path / ".out.staging", left)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(export, "Manifest", killed)
        export_snapshot(one.path, target, file_bytes=FILE_BYTES)
    left.rename(tmp_path / ".out.staging")
    assert export_snapshot(other.path, target, file_bytes=FILE_BYTES).version == other.version
    assert exported_rows(target) == scanned_rows(other, other.version)


# ---- Delta


def test_a_delta_table_has_a_version_for_each_export(open_small: OpenSmall, tmp_path: Path, tasks: list[str]) -> None:
    db, to = open_small(), tmp_path / "table"
    histories.write(db, Random(5), 250)
    first = export_snapshot(db.path, to, format="delta", file_bytes=FILE_BYTES)
    assert verify_export(to) == first
    count = len(tasks)
    seen = [scanned_rows(db, db.version)]
    for seed in range(2):
        db.put(b"a/000", b"%d" % seed)
        result = export_snapshot(db.path, to, format="delta")
        assert verify_export(to) == result
        seen.append(scanned_rows(db, db.version))
    assert export_snapshot(db.path, to, format="delta") == result
    assert len(tasks) == 3 * count
    assert len(list(to.glob("*.parquet"))) == count + 2
    for version, rows in enumerate(seen, 1):
        table = DeltaTable(to, version=version)
        assert sorted(rows_of(table.to_pyarrow_table())) == rows
    exported = [commit["logdb.version"] for commit in DeltaTable(to).history() if "logdb.version" in commit]
    assert exported == [str(version) for version in (result.version, result.version - 1, first.version)]
    with pytest.raises(ValueError, match="continues from its last version, without a base"):
        export_snapshot(db.path, to, format="delta", base=to)
    with pytest.raises(ExportFailed, match="is not an empty directory"):
        export_snapshot(db.path, to)
    DeltaTable.create(tmp_path / "stranger", pa.schema([("a", pa.int64())]))
    with pytest.raises(ExportFailed, match="is not an export of LogDB"):
        export_snapshot(db.path, tmp_path / "stranger", format="delta")
    with pytest.raises(ValueError, match="format must be parquet or delta, not 'iceberg'"):
        export_snapshot(db.path, tmp_path / "never", format="iceberg")


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


# ---- imports


@pytest.mark.usefixtures("tasks")
def test_a_snapshot_is_imported_key_by_key(open_small: OpenSmall, tmp_path: Path) -> None:
    db, back = open_small(), open_small("back")
    histories.write(db, Random(6), 200)
    for to, options in ((tmp_path / "out", {}), (tmp_path / "table", {"format": "delta"})):
        result = export_snapshot(db.path, to, file_bytes=FILE_BYTES, **options)
        back = open_small(f"back-{to.name}")
        assert import_export(back, to, batch_rows=30) == result.rows
        assert list(back.scan()) == list(db.scan())
    with pytest.raises(ExportFailed, match="is not empty"):
        import_export(back, tmp_path / "out")


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("trimmed", [False, True])
def test_a_history_is_imported_version_by_version(open_small: OpenSmall, tmp_path: Path, trimmed: bool) -> None:
    db, back = open_small(), open_small("back")
    versions = histories.write(db, Random(7), 200)
    if trimmed:
        db.compact(versions[90])
        histories.write(db, Random(8), 50)
    to = tmp_path / "out"
    export_snapshot(db.path, to, history=True, file_bytes=FILE_BYTES)
    verify_export(to)
    with pytest.raises(ValueError, match="a history is exported in full, as parquet"):
        export_snapshot(db.path, tmp_path / "never", history=True, base=to)
    rows = 0

    def interrupted(done: int, total: int) -> None:
        nonlocal rows
        rows = total
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_export(back, to, progress=interrupted)
    assert import_export(back, to) == rows
    begin = db.oldest_version
    labels = [commit.label for commit in db.watch(since=begin, timeout=0)]
    assert [commit.label for commit in back.watch(since=0, timeout=0)][-len(labels) :] == labels
    assert "several" in labels
    expected = [commit.changes for commit in db.watch(since=begin, timeout=0)]
    found = [commit.changes for commit in back.watch(since=0, timeout=0)]
    assert found[len(found) - len(expected) :] == expected
    assert len(found) - len(expected) == (1 if trimmed else 0)
    assert found[0] == dict(db.at(begin).scan()) if trimmed else found == expected
    for key in {key for changes in found for key in changes}:
        ours = [entry.value for entry in db.history(key) if entry.version > begin or entry.value is not None]
        theirs = [entry.value for entry in back.history(key)]
        assert ours == theirs


@pytest.mark.usefixtures("tasks")
def test_an_import_that_begins_with_a_large_value_is_continued(open_small: OpenSmall, tmp_path: Path) -> None:
    db, back, to = open_small(), open_small("back"), tmp_path / "out"
    db.multi_put({b"a": bytes(restoring.BYTES + 1), b"b": b"small"})
    export_snapshot(db.path, to)

    def interrupted(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_export(back, to, progress=interrupted)
    import_export(back, to)
    assert list(back.scan()) == list(db.scan())


@pytest.mark.usefixtures("tasks")
def test_a_range_delete_of_more_keys_than_a_transaction_has_is_imported(
    open_small: OpenSmall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, back, to = open_small(), open_small("back"), tmp_path / "out"
    for first in range(0, 600, 100):
        db.multi_put({b"k%04d" % number: b"v" for number in range(first, first + 100)})
    db.put(b"l", b"kept")
    db.delete_prefix(b"k")
    db.put(b"m", b"kept")
    export_snapshot(db.path, to, history=True)
    for module in (limits, restoring):
        monkeypatch.setattr(module, "MAX_TRANSACTION_BYTES", 2_500, raising=False)
    import_export(back, to)
    assert list(back.scan()) == list(db.scan()) == [(b"l", b"kept"), (b"m", b"kept")]
    sizes = [len(commit.changes) for commit in back.watch(since=0, timeout=0)]
    assert sizes[:7] == [100] * 6 + [1]
    assert (sum(sizes[7:-1]), sizes[-1]) == (600, 1)


def test_an_export_that_is_damaged_is_not_imported(open_small: OpenSmall, tmp_path: Path, tasks: list[str]) -> None:
    db, back, to = open_small(), open_small("back"), tmp_path / "out"
    histories.write(db, Random(9), 50)
    export_snapshot(db.path, to)
    (file,) = to.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(logdb.Corruption, match=file.name):
        import_export(back, to)
    assert tasks
    assert back.version == 0
