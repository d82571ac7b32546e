"""Databases with many small segments, and exports whose tasks run in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from logdb import Database
from logdb.embedded import EmbeddedBackend
from logdb.log.segments import segment
from spark_export import export
from spark_export.manifest import File
from spark_export.parts import HistoryTask, Task
from spark_export.snapshot_source import SnapshotPlan


@pytest.fixture
def open_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Database]]:
    """Opens databases with segments of 64 KiB, and closes them at the end of the test."""
    opened: list[Database] = []
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 1 << 14)

    def open_one(name: str = "db") -> Database:
        options = {"segment_bytes": 1 << 16}
        host = EmbeddedBackend.open(tmp_path / name, read_only=False, create=True, log_options=options)
        opened.append(Database(host))
        return opened[-1]

    yield open_one
    for db in opened:
        db.close()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs the tasks of exports in this process; returns the list of their names, in order."""
    ran: list[str] = []

    def run(plan: SnapshotPlan, some: Sequence[Task | HistoryTask]) -> list[File]:
        found = {}
        for task in sorted(some, key=lambda task: task.number, reverse=True):
            ran.append(task.name)
            found[task.name] = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(task)).run()))
        return [found[task.name] for task in some]

    monkeypatch.setattr(export, "_run", run)
    return ran
