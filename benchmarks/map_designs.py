"""The trial of designs for the map on disk: random overwrites of small values, sorted and written in batches.

Every design gets the same log (a file, synced after each `COMMIT_ROWS` rows) and the same batches of rows, sorted by
key, as a checkpoint would give them to it. Writes in place depend on the share of all keys that is in a
batch: one in 25 is as with 5 million keys and an overlay of 200,000.

`values, 2,000`    one LMDB file with key -> value, a transaction and a sync for each 2,000 rows
`values`           the same with one transaction for the whole batch
`places`           one LMDB file with key -> place in the log (20 bytes); the value of each read comes from the log
`runs`             each batch becomes an LMDB file of its own, written once by appending; when `RATIO` neighbours of
                   similar size have come together they are merged into one

Each design runs in a process of its own (`python -m benchmarks.map_designs DIRECTORY DESIGN KEYS ROWS PASSES`).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

import lmdb
from rich.table import Table

from benchmarks.counters import MIB, disk_bytes, memory, written_bytes
from benchmarks.fresh import CHECKOUT, key_of
from benchmarks.workloads import VALUE_BYTES

COMMIT_ROWS: Final = 1_000
SLICE_ROWS: Final = 2_000
RATIO: Final = 4
CHUNK_ROWS: Final = 4_000
MAP_BYTES: Final = 1 << 40
PLACE: Final = Struct("<QQI")
"""Version, offset in the log, length."""
READS: Final = 20_000
SCANS: Final = 2_000
SCAN_ROWS: Final = 10
ROW_BYTES: Final = len(key_of(0)) + VALUE_BYTES
NOISE: Final = random.Random(1).randbytes(MIB)

Row = tuple[bytes, bytes, bytes]
"""Key, value, place."""


class Trial(NamedTuple):
    """Measurements of a design. Bytes and seconds are of the map alone, without the log that all of them have."""

    design: str
    load_written: float
    overwrite_written: float
    space: float
    longest_batch_s: float
    seconds: float
    cpu_s: float
    gets: float
    scans: float
    anonymous_mib: float

    def cells(self) -> list[str]:
        """As `HEADINGS` says."""
        times = [f"{each:.1f}" for each in (self.load_written, self.overwrite_written, self.space)]
        rates = [f"{each:,.0f}" for each in (self.gets, self.scans, self.anonymous_mib)]
        return [self.design, *times, f"{self.seconds:.0f}", f"{self.cpu_s:.0f}", f"{self.longest_batch_s:.1f}", *rates]


HEADINGS: Final = (
    "Design",
    "Load: written / data",
    "Overwrite: written / data",
    "Space / data",
    "Seconds",
    "CPU seconds",
    "Longest batch, s",
    "Gets/s",
    f"Scans of {SCAN_ROWS}/s",
    "Anonymous MiB",
)


class Design(Protocol):
    """A map on disk, that takes sorted batches."""

    def write(self, rows: list[Row]) -> None: ...
    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]: ...


class Values:
    """One LMDB file, updated in place."""

    def __init__(self, path: Path, log: Log, slice_rows: int) -> None:
        self._slice_rows = slice_rows
        self._env = lmdb.open(str(path), map_size=MAP_BYTES)

    def write(self, rows: list[Row]) -> None:
        for begin in range(0, len(rows), self._slice_rows):
            with self._env.begin(write=True) as txn, txn.cursor() as cursor:
                cursor.putmulti([self._stored(*row) for row in rows[begin : begin + self._slice_rows]])

    def get(self, key: bytes) -> bytes | None:
        with self._env.begin() as txn:
            found: bytes | None = txn.get(key)
            return found

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        with self._env.begin() as txn, txn.cursor() as cursor:
            return list(islice(cursor, limit)) if cursor.set_range(start) else []

    def _stored(self, key: bytes, value: bytes, place: bytes) -> tuple[bytes, bytes]:
        return key, value


class Places(Values):
    """One LMDB file with the places of values, which stay in the log."""

    def __init__(self, path: Path, log: Log, slice_rows: int) -> None:
        super().__init__(path, log, slice_rows)
        self._log = log

    def get(self, key: bytes) -> bytes | None:
        place = super().get(key)
        return None if place is None else self._log.read(place)

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return [(key, self._log.read(place)) for key, place in super().scan(start, limit)]

    def _stored(self, key: bytes, value: bytes, place: bytes) -> tuple[bytes, bytes]:
        return key, place


class Run:
    """A file of rows in the order of their keys, written once."""

    def __init__(self, path: Path, chunks: Iterable[list[tuple[bytes, bytes]]]) -> None:
        self.path, self.rows = path, 0
        env = lmdb.open(str(path), subdir=False, map_size=MAP_BYTES, sync=False, metasync=False, lock=False)
        for chunk in chunks:
            with env.begin(write=True) as txn, txn.cursor() as cursor:
                cursor.putmulti(chunk, append=True)
            self.rows += len(chunk)
        env.sync(True)
        env.close()
        size = path.stat().st_size
        self._env = lmdb.open(str(path), subdir=False, map_size=size, readonly=True, lock=False)
        self._txn = self._env.begin()
        self.get: Callable[[bytes], bytes | None] = self._txn.get

    def cursor(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows from a key on."""
        cursor = self._txn.cursor()
        return iter(cursor if cursor.set_range(start) else ())

    def remove(self) -> None:
        self._txn.abort()
        self._env.close()
        self.path.unlink()


class Runs:
    """A log-structured merge tree of `Run`s, the oldest first."""

    def __init__(self, path: Path, log: Log, slice_rows: int) -> None:
        path.mkdir()
        self._path, self._runs, self._made, self._slice_rows = path, list[Run](), 0, slice_rows

    def write(self, rows: list[Row]) -> None:
        slices = range(0, len(rows), self._slice_rows)
        self._add([], ([row[:2] for row in rows[begin : begin + self._slice_rows]] for begin in slices))
        while due := self._due():
            self._add(due, merged([run.cursor(b"") for run in due], CHUNK_ROWS))

    def get(self, key: bytes) -> bytes | None:
        for run in reversed(self._runs):
            value = run.get(key)
            if value is not None:
                return value
        return None

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if len(self._runs) == 1:
            return list(islice(self._runs[0].cursor(start), limit))
        rows = (row for chunk in merged([run.cursor(start) for run in self._runs], limit) for row in chunk)
        return list(islice(rows, limit))

    def _due(self) -> list[Run]:
        """The newest runs, if `RATIO` of them are of similar size: none is larger than the newer ones together."""
        together, count = 0, 0
        for run in reversed(self._runs):
            if count >= RATIO - 1 and run.rows > together:
                break
            together, count = together + run.rows, count + 1
        return self._runs[-count:] if count >= RATIO else []

    def _add(self, instead_of: list[Run], chunks: Iterable[list[tuple[bytes, bytes]]]) -> None:
        self._made += 1
        new = Run(self._path / f"run-{self._made}.mdb", chunks)
        self._runs = [*self._runs[: len(self._runs) - len(instead_of)], new]
        for run in instead_of:
            run.remove()


def merged(cursors: list[Iterator[tuple[bytes, bytes]]], limit: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """The rows of all cursors in order, a key's from the last cursor that has it, in chunks."""
    heads: list[list[tuple[bytes, bytes]]] = [[] for _ in cursors]
    while True:
        for place, cursor in enumerate(cursors):
            if not heads[place]:
                heads[place] = list(islice(cursor, limit))
        if not any(heads):
            return
        cut = min(head[-1][0] for head in heads if head)
        chunk: dict[bytes, bytes] = {}
        for place, head in enumerate(heads):
            if head and head[-1][0] <= cut:
                chunk.update(head)
                heads[place] = []
            elif head and head[0][0] <= cut:
                within = next(number for number, row in enumerate(head) if row[0] > cut)
                chunk.update(head[:within])
                heads[place] = head[within:]
        yield sorted(chunk.items())


class Log:
    """The file to which every value goes first."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._end = self._version = 0

    def append(self, pairs: list[tuple[bytes, bytes]]) -> list[Row]:
        """Write the pairs, durably; returns them with their places."""
        rows, parts, end = list[Row](), list[bytes](), self._end
        for key, value in pairs:
            end += len(key)
            rows.append((key, value, PLACE.pack(self._version, end, len(value))))
            parts += (key, value)
            end += len(value)
        os.pwrite(self._fd, b"".join(parts), self._end)
        os.fdatasync(self._fd)
        self._end, self._version = end, self._version + 1
        return rows

    def read(self, place: bytes) -> bytes:
        _version, offset, size = PLACE.unpack(place)
        return os.pread(self._fd, size, offset)


DESIGNS: Final[dict[str, tuple[Callable[[Path, Log, int], Design], int]]] = {
    "LMDB, values, 2,000 rows a transaction": (Values, SLICE_ROWS),
    "LMDB, values, a transaction for each batch": (Values, sys.maxsize),
    "LMDB, places, 2,000 rows a transaction": (Places, SLICE_ROWS),
    "LMDB, places, a transaction for each batch": (Places, sys.maxsize),
    "Sorted runs, merged by tiers of 4": (Runs, SLICE_ROWS),
}


def measure(root: Path, keys: int, rows: int, passes: int, progress: Callable[[str], None]) -> list[Trial]:
    """Every design in a process of its own."""
    trials = []
    for number, design in enumerate(DESIGNS):
        progress(design)
        path = (root / str(number)).resolve()
        command = [sys.executable, "-m", "benchmarks.map_designs", str(path), design, *map(str, (keys, rows, passes))]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=CHECKOUT)
        trials.append(Trial(*json.loads(done.stdout)))
    return trials


def run(path: Path, design: str, keys: int, batch_rows: int, passes: int) -> Trial:
    """Load the keys in random order, overwrite all `passes` times in random order, and read."""
    path.mkdir()
    log, draw = Log(path / "log"), random.Random(2)
    kind, slice_rows = DESIGNS[design]
    tables = kind(path / "map", log, slice_rows)
    took: list[float] = []
    cpu_s = 0.0
    written = {}
    order = list(range(keys))
    draw.shuffle(order)
    for stage, rows in (("load", keys), ("overwrite", keys * passes)):
        if stage == "overwrite":
            order = []
        written[stage] = 0
        for begin in range(0, rows, batch_rows):
            count = min(batch_rows, rows - begin)
            batch: dict[bytes, Row] = {}
            numbers = order[begin : begin + count] or draw.choices(range(keys), k=count)
            for first in range(0, count, COMMIT_ROWS):
                for row in log.append([(key_of(each), value(draw)) for each in numbers[first : first + COMMIT_ROWS]]):
                    batch[row[0]] = row
            before, begun, cpu = written_bytes(path), time.perf_counter(), time.process_time()
            tables.write(sorted(batch.values()))
            took.append(time.perf_counter() - begun)
            cpu_s += time.process_time() - cpu
            written[stage] += written_bytes(path) - before
    mib = memory().anonymous
    data = keys * ROW_BYTES
    return Trial(
        design,
        written["load"] / data,
        written["overwrite"] / (data * passes),
        disk_bytes(path / "map") / data,
        max(took),
        sum(took),
        cpu_s,
        rate(lambda: tables.get(key_of(draw.randrange(keys))), min(READS, keys)),
        rate(lambda: tables.scan(key_of(draw.randrange(keys)), SCAN_ROWS), min(SCANS, keys)),
        mib,
    )


def value(draw: random.Random) -> bytes:
    at = draw.randrange(len(NOISE) - VALUE_BYTES)
    return NOISE[at : at + VALUE_BYTES]


def rate(read: Callable[[], Any], count: int) -> float:
    """How often a second it can be done; every answer must be one."""
    begun = time.perf_counter()
    for _ in range(count):
        if not read():
            raise RuntimeError("a key that was written is not found")
    return count / (time.perf_counter() - begun)


def table(trials: list[Trial]) -> Table:
    """For a terminal."""
    shown = Table(*HEADINGS)
    for trial in trials:
        shown.add_row(*trial.cells())
    return shown


def write(trials: list[Trial], keys: int, rows: int, passes: int, directory: Path) -> None:
    """map-designs.json and map-designs.md."""
    directory.mkdir(parents=True, exist_ok=True)
    found = {"keys": keys, "batch": rows, "passes": passes, "trials": [trial._asdict() for trial in trials]}
    (directory / "map-designs.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = [
        "# Designs for the map on disk",
        "",
        f"`python -m benchmarks map-designs`: {keys:,} keys, values of {VALUE_BYTES} bytes, loaded in random order and",
        f"overwritten at random {passes} times over, in sorted batches of {rows:,} rows. Written bytes are the",
        "disk's count while the map was written, without the log, which is the same for all of them and adds 1.0",
        "or a little more; data are keys and values. Seconds are those of writing the map: where other load ran beside",
        "it, the CPU seconds say more. With *places* the log must keep every live value, so space is that of the map",
        "and of a log that is at least as large as the data.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|---|{'---:|' * (len(HEADINGS) - 1)}",
        *(f"| {' | '.join(trial.cells())} |" for trial in trials),
        "",
    ]
    (directory / "map-designs.md").write_text("\n".join(lines))


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))))
