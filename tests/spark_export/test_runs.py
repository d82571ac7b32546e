"""Runs and their merge: ranges cover all keys once, tasks share runs, and damage is reported with its place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

import logdb
from logdb import Database
from spark_export.decoding import EVERYTHING
from spark_export.runs import BATCH_BYTES, LogRange, Runs, folded_bytes
from spark_export.snapshot_source import SnapshotPlan
from tests.spark_export import histories

OpenSmall = Callable[..., Database]


@pytest.fixture
def busy(open_small: OpenSmall) -> Database:
    """A database of several segments."""
    db = open_small()
    histories.write(db, Random(11), 400)
    return db


def test_ranges_with_any_bounds_cover_all_keys_once(busy: Database) -> None:
    everything = list(busy.scan())
    keys = [key for key, _ in everything]
    with histories.planned(busy.path) as plan:
        assert len(plan.parts) > 3
        for bounds in ([], keys[:1], keys[3:5], [b"a/0", b"a/9", b"b"], [b"\0"], [b"\xff"], plan.sample):
            assert histories.rows(plan, b"", (None, *bounds, None)) == everything


@pytest.mark.parametrize("prefix", [b"a/", b"b/01", b"b/007", b"nothing", b"\xff"])
def test_a_prefix(busy: Database, prefix: bytes) -> None:
    with histories.planned(busy.path) as plan:
        assert histories.rows(plan, prefix) == list(busy.scan(prefix=prefix))


def test_an_empty_database_and_version_0(open_small: OpenSmall) -> None:
    db = open_small()
    assert histories.snapshot(db.path) == []
    db.put(b"k", b"v")
    assert histories.snapshot(db.path, 0) == []
    assert histories.snapshot(db.path, 1) == [(b"k", b"v")]


def test_the_version_of_each_row(busy: Database) -> None:
    with histories.planned(busy.path) as plan:
        runs = Runs(plan)
        runs.make(0)
        for batch in runs.merge(EVERYTHING):
            for row in batch.to_pylist():
                assert row["version"] == next(busy.history(row["key"])).version


def test_large_values_come_in_batches_of_bounded_size(tmp_path: Path) -> None:
    large = {b"%d" % number: bytes([number]) * (12 << 20) for number in range(6)}
    with logdb.open(tmp_path / "db") as db:
        for key, value in large.items():
            db.put(key, value)
        with histories.planned(tmp_path / "db") as plan:
            runs = Runs(plan)
            runs.make(0)
            batches = list(runs.merge(EVERYTHING))
    assert max(batch.nbytes for batch in batches) < 2 * BATCH_BYTES
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert {row["key"]: row["value"] for row in rows} == large


def test_concurrent_tasks_build_each_run_once(busy: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    write = Runs._write

    def counted(self: Runs, log_range: LogRange, file: Path) -> None:
        made.append(log_range)
        write(self, log_range, file)

    monkeypatch.setattr(Runs, "_write", counted)
    with histories.planned(busy.path) as plan, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: Runs(plan, partition_bytes=1).make(number), range(8)))
        assert sorted(made) == [((part,),) for part in plan.parts]
        assert folded_bytes(plan) == sum(part.size for part in plan.parts)


def test_the_run_of_a_killed_task_is_built_by_the_next_task(busy: Database) -> None:
    with histories.planned(busy.path) as plan:
        runs = Runs(plan, partition_bytes=histories.PARTITION_BYTES)
        folder = runs._folder
        folder.mkdir(parents=True)
        run = runs._file(runs.ranges[0])
        script = (
            "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
            " print('locked', flush=True); input()"
        )
        command = [sys.executable, "-c", script, str(run.with_suffix(".lock"))]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
            assert maker.stdout is not None
            assert maker.stdout.readline() == b"locked\n"
            with ThreadPoolExecutor(1) as thread:
                task = thread.submit(histories.rows, plan)
                maker.kill()
                assert task.result() == list(busy.scan())


def test_damage_names_the_file_of_the_database_and_the_byte(busy: Database) -> None:
    with histories.planned(busy.path) as plan:
        sizes = [Path(part.origin).stat().st_size for part in plan.parts]
        for part, size in zip(plan.parts[:-1], sizes, strict=False):
            for offset in (3, 70, size // 2, size - 1):
                assert_found(plan, part.origin, offset)
        assert histories.rows(plan) == list(busy.scan())


def assert_found(plan: SnapshotPlan, file: str, offset: int) -> None:
    """A flipped byte at `offset` fails the task, which names the record that begins there or before."""
    with open(file, "r+b") as damaged:
        damaged.seek(offset)
        byte = damaged.read(1)
        damaged.seek(offset)
        damaged.write(bytes([byte[0] ^ 1]))
        damaged.flush()
        with pytest.raises(logdb.Corruption, match="is damaged at byte") as caught:
            histories.rows(plan)
        damaged.seek(offset)
        damaged.write(byte)
    assert caught.value.path == file
    assert caught.value.offset is not None
    assert caught.value.offset <= offset
