"""One transaction of many puts: in order, in random order, and with a scan of ten rows after each put."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
from rich.table import Table
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

import logdb
from benchmarks.peers.sqlite import WRITE, connect
from benchmarks.rounds import spread

SCANNED: Final = 10
ROUNDS: Final = 7
VALUE: Final = bytes(100)
Putting = Callable[[Path, Sequence[bytes], bool], None]
"""Writes the keys in one durable transaction of a new database; with scans, also scans from each key after its put."""


def with_logdb(path: Path, keys: Sequence[bytes], scans: bool) -> None:
    with logdb.open(path) as db, db.transaction() as txn:
        put = txn.put
        for key in keys:
            put(key, VALUE)
            if scans:
                list(txn.scan(key, limit=SCANNED))


def with_sqlite(path: Path, keys: Sequence[bytes], scans: bool) -> None:
    path.mkdir()
    connection = connect(path / "pairs.sqlite")
    connection.execute("CREATE TABLE pairs (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    for key in keys:
        execute(WRITE, (key, VALUE))
        if scans:
            list(execute("SELECT key, value FROM pairs WHERE key >= ? ORDER BY key LIMIT ?", (key, SCANNED)))
    execute("COMMIT")
    connection.close()


def with_lmdb(path: Path, keys: Sequence[bytes], scans: bool) -> None:
    environment: Any = lmdb.open(str(path), map_size=8 << 30)
    with environment.begin(write=True) as txn:
        put = txn.put
        for key in keys:
            put(key, VALUE)
            if scans:
                with txn.cursor() as cursor:
                    cursor.set_range(key)
                    list(islice(cursor, SCANNED))
    environment.close()


def with_rocksdb(path: Path, keys: Sequence[bytes], scans: bool) -> None:
    """A batch that is written at once; nothing is read in it."""
    synced = WriteOptions()
    synced.sync = True
    db, batch = Rdict(str(path), Options(raw_mode=True)), WriteBatch(raw_mode=True)
    db.set_write_options(synced)
    for key in keys:
        batch.put(key, VALUE)
    db.write(batch)
    db.close()


PEERS: Final[Mapping[str, Putting]] = {
    "LogDB": with_logdb,
    "SQLite": with_sqlite,
    "py-lmdb": with_lmdb,
    "rocksdict": with_rocksdb,
}
WITHOUT_SCANS: Final = ("rocksdict",)


class Measured(NamedTuple):
    """Seconds of each round. `scanning` is empty where nothing can be read in a transaction."""

    sequential: list[float]
    random: list[float]
    scanning: list[float]


def measure(root: Path, keys: int, rounds: int, progress: Callable[[str], None]) -> dict[str, Measured]:
    """All peers in turns."""
    found = {name: Measured([], [], []) for name in PEERS}
    order = random.Random(20130101)
    for turn in range(rounds):
        progress(f"round {turn + 1} of {rounds}")
        numbers = order.sample(range(keys), keys)
        for name in order.sample(list(PEERS), len(PEERS)):
            measured = found[name]
            # The keys are made in the order in which they are written, as a program would: not to measure caches.
            measured.sequential.append(_took(name, root, [b"key%012d" % number for number in range(keys)], False))
            measured.random.append(_took(name, root, [b"key%012d" % number for number in numbers], False))
            if name not in WITHOUT_SCANS:
                measured.scanning.append(_took(name, root, [b"key%012d" % number for number in numbers], True))
    return found


def _took(name: str, root: Path, keys: Sequence[bytes], scans: bool) -> float:
    path = root / name
    begun = time.perf_counter()
    PEERS[name](path, keys, scans)
    took = time.perf_counter() - begun
    shutil.rmtree(path)
    return took


def as_json(found: Mapping[str, Measured], keys: int) -> dict[str, Any]:
    """The seconds of each round."""
    return {"keys": keys, "seconds": {name: measured._asdict() for name, measured in found.items()}}


def table(found: Mapping[str, Measured], keys: int) -> Table:
    """Medians, and the ratio of random to sequential round by round."""
    shown = Table(title=f"One transaction of {keys:,} puts, opening and closing included")
    for heading in ("", "sequential", "random", "random / sequential", f"random, a scan of {SCANNED} after each"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for name, measured in found.items():
        ratio = spread([late / early for early, late in zip(measured.sequential, measured.random, strict=True)])
        shown.add_row(
            name,
            f"{spread(measured.sequential).median:.3f} s",
            f"{spread(measured.random).median:.3f} s",
            f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})",
            f"{spread(measured.scanning).median:.3f} s" if measured.scanning else "",
        )
    return shown
