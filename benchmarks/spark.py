"""Scans and exports with Spark: LogDB against Spark on Parquet of the same rows, and against a plain pyarrow fold.

Rows are versions: keys are written several times each, by a transaction for every row. What is timed ends in Spark's
`noop` sink, which takes every row, or in files. The peak of memory is that of all processes beneath this one, the JVM
and Python's workers, looked at again and again.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.functions import expr
from rich.table import Table

import logdb
from logdb.embedded.host import EmbeddedHost
from spark_export import export_snapshot, session

VALUE_BYTES: Final = 100
LOADED_TOGETHER: Final = 2_000
LAST: Final = 16
"""An incremental export reads the last of so many parts of the log."""
SAMPLE_S: Final = 0.1
PARTITION_MIB: Final = (32, 128, 512)
PARTS_OF_THE_LOG: Final = (0.25, 0.5, 1.0)


class Scale(NamedTuple):
    """How much: rows, keys, cores of Spark, and how often each thing is timed."""

    rows: int = 5_000_000
    keys: int = 500_000
    cores: int = 2
    rounds: int = 2


class Figure(NamedTuple):
    """What took `seconds` (the median), for `rows` rows of the log, with peaks of memory in MiB."""

    name: str
    title: str
    seconds: float
    rows: int
    jvm_mib: float
    python_mib: float

    @property
    def mb(self) -> float:
        """Megabytes of keys and values."""
        return self.rows * (VALUE_BYTES + len(key_of(0))) / 1e6


class Goal(NamedTuple):
    """`name` should take at most `times` as long as `than`."""

    name: str
    than: str
    times: float


GOALS: Final = (
    Goal("scan", "parquet-scan", 3.0),
    Goal("export", "parquet-newest", 1.0),
    Goal("export-incremental", "export", 0.5),
)


def measure(root: Path, scale: Scale, progress: Callable[[str], None]) -> list[Figure]:
    """All figures."""
    progress(f"loading {scale.rows:,} rows")
    database, parquet = str(root / "db"), str(root / "rows.parquet")
    middle = load(root / "db", Path(parquet), scale)
    progress("starting Spark")
    spark = session(cores=scale.cores, memory="2g", name="logdb-benchmark")
    spark.range(10).mapInArrow(lambda batches: batches, "id LONG").count()
    outputs = (root / f"export-{number}" for number in range(10_000))
    base = next(outputs)
    figures = []

    def timed(name: str, title: str, work: Callable[[], object], rows: int = scale.rows) -> None:
        took, jvm, python = [], 0.0, 0.0
        for _ in range(scale.rounds):
            progress(title)
            with _peaks() as peaks:
                begun = time.perf_counter()
                work()
                took.append(time.perf_counter() - begun)
            jvm, python = max(jvm, peaks[0]), max(python, peaks[1])
        figures.append(Figure(name, title, statistics.median(took), rows, jvm, python))

    def read(**options: Any) -> Any:
        return spark.read.format("logdb").options(**options)

    def newest() -> Any:
        of = expr("max_by(value, version) AS value"), expr("max(version) AS version")
        return spark.read.parquet(parquet).groupBy("key").agg(*of)

    timed("parquet-scan", "Spark, Parquet: scan", lambda: taken(spark.read.parquet(parquet)))
    scan = read(readChangeFeed="true", startingVersion=1).schema("key BINARY, value BINARY, _commit_version LONG")
    timed("scan", "LogDB: scan of all versions", lambda: taken(scan.load(database)))
    changes = read(readChangeFeed="true", startingVersion=1)
    timed("changes", "LogDB: the same with types of changes", lambda: taken(changes.load(database)))
    timed("snapshot", "LogDB: snapshot", lambda: taken(read().load(database)))
    timed("parquet-newest", "Spark, Parquet: newest per key, to Parquet", lambda: written(newest(), next(outputs)))
    timed("fold", "pyarrow: newest per key, to Parquet", lambda: fold(Path(parquet), next(outputs)))
    timed("export", "LogDB: export", lambda: export_snapshot(database, next(outputs)))
    export_snapshot(database, base, version=middle)
    last = f"LogDB: incremental export of the last 1/{LAST}"
    timed("export-incremental", last, lambda: export_snapshot(database, next(outputs), base=base), scale.rows // LAST)
    for mib in PARTITION_MIB:
        frame = read(partitionBytes=mib << 20)
        timed(f"snapshot-{mib}-mib", f"snapshot, partitions of {mib} MiB", partial(loaded, frame, database))
    for part in PARTS_OF_THE_LOG:
        version = int(scale.rows * part)
        title = f"snapshot, {version / scale.keys:g} versions per key"
        timed(f"snapshot-{part:g}", title, partial(loaded, read(versionAsOf=version), database), version)
    return figures


def load(path: Path, parquet: Path, scale: Scale) -> int:
    """Put the rows into a database, and what it then holds into a Parquet file. The version before the last part."""
    chance, noise = random.Random(1), os.urandom(1 << 20)
    middle = 0
    host = EmbeddedHost.open(path, read_only=False, create=True)
    for number in range(1, scale.rows + 1):
        at = chance.randrange(len(noise) - VALUE_BYTES)
        version, _ = host.submit({key_of(chance.randrange(scale.keys)): noise[at : at + VALUE_BYTES]})
        if number % LOADED_TOGETHER == 0:
            host.acknowledge(version)
        if number == scale.rows - scale.rows // LAST:
            middle = version
    host.acknowledge(version)
    host.checkpoint()
    host.close()
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("version", pa.int64())])
    some: list[tuple[bytes, bytes | None, int]] = []
    with logdb.open(path, read_only=True) as db, pq.ParquetWriter(parquet, schema) as writer:

        def write() -> None:
            writer.write_table(pa.table(list(map(list, zip(*some, strict=True))), schema))
            some.clear()

        for commit in db.watch(since=0, timeout=0):
            some += ((key, value, commit.version) for key, value in commit.changes.items())
            if len(some) >= 500_000:
                write()
        if some:
            write()
    return middle


def key_of(number: int) -> bytes:
    """16 bytes."""
    return b"key-%012d" % number


def taken(frame: Any) -> None:
    """Have Spark make every row of a DataFrame."""
    frame.write.format("noop").mode("overwrite").save()


def loaded(reader: Any, database: str) -> None:
    """Have Spark read all of a database."""
    taken(reader.load(database))


def written(frame: Any, to: Path) -> None:
    """Have Spark write a DataFrame as Parquet."""
    frame.write.option("compression", "zstd").parquet(str(to))


def fold(parquet: Path, to: Path) -> None:
    """The newest row of each key, without Spark and without LogDB."""
    rows = pq.read_table(parquet)
    places = pa.table({"key": rows.column("key"), "at": pa.array(range(len(rows)))})
    last = places.group_by("key", use_threads=True).aggregate([("at", "max")])
    newest = rows.take(last.column("at_max").combine_chunks())
    pq.write_table(newest.take(pc.sort_indices(newest.column("key").combine_chunks())), to, compression="zstd")


def table(figures: list[Figure]) -> Table:
    """For a terminal."""
    shown = Table(title="LogDB with Spark", title_justify="left")
    for heading in ("", "s", "rows/s", "MB/s", "JVM MiB", "Python MiB"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for figure in figures:
        shown.add_row(figure.title, *_cells(figure))
    shown.caption = "\n".join(_verdict(figures, goal) for goal in GOALS)
    return shown


def as_json(figures: list[Figure], scale: Scale) -> dict[str, Any]:
    """For programs."""
    return {"scale": scale._asdict(), "figures": [figure._asdict() for figure in figures]}


def write(figures: list[Figure], scale: Scale, to: Path) -> None:
    """spark.json and spark.md."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "spark.json").write_text(json.dumps(as_json(figures, scale)) + "\n")
    lines = [
        "# LogDB with Spark",
        "",
        f"{scale.rows:,} rows over {scale.keys:,} keys, {VALUE_BYTES}-byte values, local[{scale.cores}];"
        f" the median of {scale.rounds}. Rows and bytes are those of the log that were read.",
        "",
        "| | s | rows/s | MB/s | JVM MiB | Python MiB |",
        "|---|---|---|---|---|---|",
        *(f"| {figure.title} | {' | '.join(_cells(figure))} |" for figure in figures),
        "",
        *(f"- {_verdict(figures, goal)}" for goal in GOALS),
    ]
    (to / "spark.md").write_text("\n".join(lines) + "\n")


def _cells(figure: Figure) -> list[str]:
    rates = [f"{figure.rows / figure.seconds:,.0f}", f"{figure.mb / figure.seconds:,.0f}"]
    return [f"{figure.seconds:.2f}", *rates, f"{figure.jvm_mib:,.0f}", f"{figure.python_mib:,.0f}"]


def _verdict(figures: list[Figure], goal: Goal) -> str:
    by_name = {figure.name: figure for figure in figures}
    one, other = by_name[goal.name], by_name[goal.than]
    return f"{one.title}: {one.seconds / other.seconds:.2f} of {other.title} (goal: at most {goal.times:g})"


@contextmanager
def _peaks() -> Iterator[list[float]]:
    """[MiB of the JVM, MiB of all Python processes beneath it], at their peaks when the block ends."""
    peaks, ended = [0.0, 0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            jvm = python = 0.0
            for name, mib in _descendants(os.getpid()):
                if name == "java":
                    jvm += mib
                else:
                    python += mib
            peaks[0], peaks[1] = max(peaks[0], jvm), max(peaks[1], python)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def _descendants(pid: int) -> Iterator[tuple[str, float]]:
    """(name, anonymous memory in MiB) of all processes beneath one."""
    parents: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        names[int(entry.name)] = head.partition("(")[2]
        parents.setdefault(int(tail.split()[1]), []).append(int(entry.name))
    waiting = list(parents.get(pid, []))
    while waiting:
        child = waiting.pop()
        waiting += parents.get(child, [])
        try:
            status = Path(f"/proc/{child}/status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        yield names[child], int(fields.get("RssAnon", "0 kB").split()[0]) / 1024
