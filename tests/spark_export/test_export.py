"""Exports: equal to the scan, checked by their manifest, published whole or not at all."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

import logdb
from logdb import Database
from spark_export import ExportFailed, export, export_snapshot, verify_export
from tests.spark_export import histories

OpenSmall = Callable[..., Database]


def exported_rows(to: Path) -> list[tuple[bytes, bytes, int]]:
    """Every row, in the order of the files."""
    return [tuple(row.values()) for file in sorted(to.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def scanned_rows(db: Database, version: int) -> list[tuple[bytes, bytes, int]]:
    """What the export of a version should hold."""
    at = db.at(version)
    return [(key, value, next(at.history(key)).version) for key, value in at.scan()]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", range(3))
def test_an_export_equals_the_scan(open_small: OpenSmall, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    db = open_small()
    versions = histories.write(db, rng, 300)
    db.compact(versions[120])
    versions = [*versions[120:], *histories.write(db, rng, 50)]
    heard: list[tuple[int, int]] = []
    for number, version in enumerate((rng.choice(versions), db.oldest_version)):
        to = tmp_path / f"out-{number}"
        result = export_snapshot(db.path, to, version=version, progress=lambda *done: heard.append(done))
        assert exported_rows(to) == scanned_rows(db, version)
        assert result == verify_export(to)
        assert (result.version, result.rows) == (version, len(list(db.at(version).scan())))
        assert result.time == db.time_of(version)
        assert result.bytes == sum(file.stat().st_size for file in to.glob("*.parquet"))
        assert heard[-1][0] == heard[-1][1] > 0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["db", "out-0", "out-1"]
    assert not (Path(db.path) / "exports").exists()


def test_by_time_and_prefix_in_several_files(
    spark: Any, open_small: OpenSmall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PARTITION_BYTES", 100_000)
    db = open_small()
    versions = histories.write(db, Random(5), 300)
    time = db.time_of(versions[200])
    assert time is not None
    time += dt.timedelta(microseconds=1)
    result = export_snapshot(db.path, tmp_path / "out", timestamp=time, prefix=b"b/")
    assert result.files > 1
    assert [row[:2] for row in exported_rows(tmp_path / "out")] == list(db.at(time=time).scan(prefix=b"b/"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == result.rows
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["prefix"] == b"b/".hex()
    assert manifest["version"] == result.version
    assert [column["name"] for column in manifest["schema"]] == ["key", "value", "version"]


@pytest.mark.usefixtures("spark")
def test_an_empty_snapshot(open_small: OpenSmall, tmp_path: Path) -> None:
    db = open_small()
    result = export_snapshot(db.path, tmp_path / "out")
    assert (result.version, result.time, result.rows, result.files) == (0, None, 0, 1)
    assert verify_export(tmp_path / "out") == result
    assert pq.read_table(tmp_path / "out" / "part-00000.parquet").column_names == ["key", "value", "version"]


@pytest.mark.usefixtures("spark")
def test_verify_finds_what_was_changed(open_small: OpenSmall, tmp_path: Path) -> None:
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
    with pytest.raises(logdb.Corruption, match="the manifest lists it and it is gone"):
        verify_export(to)
    file.write_bytes(content)
    (to / "part-7.parquet").write_bytes(content)
    with pytest.raises(logdb.Corruption, match="the manifest does not list it"):
        verify_export(to)
    with pytest.raises(ExportFailed, match="is not an export of LogDB"):
        verify_export(tmp_path)


@pytest.mark.usefixtures("spark")
def test_nothing_is_published_that_is_not_whole(
    open_small: OpenSmall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an export that died has left beside the target, the next one clears away."""
    db, to, staging = open_small(), tmp_path / "out", tmp_path / ".out.staging"
    histories.write(db, Random(7), 40)
    (staging / "spark" / "_temporary").mkdir(parents=True)
    (staging / "part-00099.parquet").write_bytes(b"half")
    with monkeypatch.context() as patched:
        patched.setattr(export, "_write_manifest", stopped)
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


def stopped(*_: object) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def test_what_is_refused_at_the_door(open_small: OpenSmall, tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="time zone"):
        export_snapshot(db.path, tmp_path / "out", timestamp=dt.datetime(2024, 1, 1))
    with pytest.raises(TypeError, match="datetime"):
        export_snapshot(db.path, tmp_path / "out", timestamp=12.5)  # type: ignore[arg-type]
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
        export_snapshot(db.path, tmp_path / "out", version=version)
    assert caught.value.path == str(segment)
    assert caught.value.offset is not None
    assert [entry.name for entry in tmp_path.iterdir()] == ["db"]
