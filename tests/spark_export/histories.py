"""Random histories with every kind of record that a reader of the log decodes, and plans of their snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import logdb
from logdb import Database
from logdb.store.ranges import after_prefix
from spark_export.decoding import KeyRange
from spark_export.runs import Runs
from spark_export.snapshot_source import PlanRequest, SnapshotPlan, source_of

KEYS = 120
PARTITION_BYTES = 100_000
"""A database of small segments has several ranges of this size, of one or two segments."""


def write(db: Database, rng: Random, steps: int) -> list[int]:
    """Write puts, deletes, multi-puts, conditions, aborted transactions and large values; returns the versions."""
    versions = []
    for _ in range(steps):
        kind = rng.random()
        if kind < 0.45:
            versions.append(db.put(key(rng), value(rng)))
        elif kind < 0.60:
            versions.append(db.delete(key(rng)))
        elif kind < 0.75:
            items = {key(rng): value(rng) if rng.random() < 0.8 else None for _ in range(rng.randrange(2, 12))}
            versions.append(db.multi_put(items, label="several"))
        elif kind < 0.90:
            condition = (logdb.exists if rng.random() < 0.5 else logdb.absent)(key(rng))
            versions.append(db.test_and_multi_put([condition], {key(rng): value(rng), key(rng): None}).version)
        else:
            abort(db, key(rng), b"lost")
            versions.append(db.version)
    return versions


def abort(db: Database, contested: bytes, lost: bytes) -> None:
    """Run a transaction that reads and writes `contested`, and aborts because of a concurrent write."""
    try:
        with db.transaction() as txn:
            txn.get(contested)
            txn[contested] = lost
            db.put(contested, b"won" * 50)
    except logdb.ConflictError:
        return
    raise AssertionError("the transaction did not abort")


def key(rng: Random) -> bytes:
    number = rng.randrange(KEYS)
    return b"%s/%03d" % (b"ab"[number % 2 : number % 2 + 1], number) + (b"\xff" * 600 if number == 7 else b"")


def value(rng: Random) -> bytes:
    return rng.randbytes(rng.randrange(5_000, 9_000) if rng.random() < 0.08 else rng.randrange(600))


def rows(
    plan: SnapshotPlan, prefix: bytes = b"", bounds: tuple[bytes | None, ...] = (None, None)
) -> list[tuple[bytes, bytes]]:
    """(key, value) of the plan's snapshot, read without Spark, range by range between the bounds."""
    runs = Runs(plan, KeyRange(prefix, after_prefix(prefix)), partition_bytes=PARTITION_BYTES)
    runs.make(0)
    return [
        (row["key"], row["value"])
        for low, high in pairwise(bounds)
        for batch in runs.merge(KeyRange(low or b"", high))
        for row in batch.to_pylist()
    ]


def snapshot(path: str, version: int | None = None) -> list[tuple[bytes, bytes]]:
    """(key, value) at a version, through a plan of its own."""
    with planned(path, version=version) as plan:
        return rows(plan)


@contextmanager
def planned(path: str | Path, **request: Any) -> Iterator[SnapshotPlan]:
    """A plan of a directory, closed at the end of the block."""
    with source_of(Path(path)).plan(PlanRequest(**request)).job() as plan:
        yield plan
