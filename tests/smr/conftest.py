"""Logs for replicas: in memory, in a directory, and on the servers of each engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logdb.log import LocalLog, MemoryLog
from logdb.log.contract import Log
from logdb.log.engine import ENGINES, engine_of
from tests.harness.clusters import Cluster


@pytest.fixture(params=ENGINES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A running cluster without a database, of each engine."""
    shape = replace(engine_of(request.param).operations.default_shape, mapping=0)
    cluster = Cluster.of_shape(tmp_path / "cluster", shape)
    cluster.start(shape.shards)
    yield cluster
    cluster.check()
    cluster.close()


@pytest.fixture(params=["memory", "directory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A log of this process."""
    log = MemoryLog() if request.param == "memory" else LocalLog(tmp_path / "log", bytes(16), segment_bytes=1 << 12)
    yield log
    log.close()
