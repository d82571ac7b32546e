"""Scans and exports with Spark: LogDB against Spark on Parquet of the same rows, and against a plain pyarrow fold.

Rows are versions: keys are written several times each, by a transaction for every row. Timed queries end in Spark's
`noop` sink, which takes every row, or in files. There are rounds of all of it, so that ratios are of times near each
other; if there are several, one more comes first and is not timed. The peak of memory is that of all processes beneath
this one, the JVM and Python's workers, looked at again and again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
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
from logdb.embedded.backend import EmbeddedBackend
from spark_export import export_snapshot, session

VALUE_BYTES: Final = 100
LOADED_TOGETHER: Final = 20_000
LAST: Final = 16
"""Number of parts of the log; an incremental export reads the last one."""
SAMPLE_S: Final = 0.1
FEW: Final = "-few"
"""Ends the name of the same work on few rows: what of the time is its fixed start."""
MIN_S: Final = 1e-3
TRANSACTION_KEYS: Final = 1_000
PARTITION_MIB: Final = (16, 64, 256)
PARTS_OF_THE_LOG: Final = (0.25, 0.5, 1.0)
ROWS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("version", pa.int64())])


class Scale(NamedTuple):
    """The scale: rows, keys, cores of Spark, and the number of rounds."""

    rows: int
    keys: int
    cores: int
    rounds: int


FULL: Final = Scale(rows=5_000_000, keys=500_000, cores=2, rounds=3)
QUICK: Final = Scale(rows=50_000, keys=5_000, cores=2, rounds=1)


class Figure(NamedTuple):
    """An operation that took `seconds` in each round, for `rows` rows of the log, with peaks of memory in MiB."""

    name: str
    title: str
    seconds: tuple[float, ...]
    rows: int
    jvm_mib: float
    python_mib: float

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)

    @property
    def mb(self) -> float:
        """Megabytes of keys and values."""
        return self.rows * (VALUE_BYTES + len(key_of(0))) / 1e6


class Goal(NamedTuple):
    """`name` should take at most `times` as long as `than`; with `marginal`, beyond what each takes for `FEW` rows."""

    name: str
    than: str
    times: float
    marginal: bool = False


GOALS: Final = (
    Goal("scan", "parquet-scan", 3.0),
    Goal("export", "parquet-newest", 1.0),
    Goal("export-incremental", "export", 0.5),
    Goal("feed-stream", "feed", 3.0, marginal=True),
)


class Verdict(NamedTuple):
    """The ratios of two figures, round by round, and their median against the goal."""

    title: str
    goal: Goal
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Their median."""
        return statistics.median(self.ratios)

    @property
    def met(self) -> bool:
        """Whether the goal is met."""
        return self.ratio <= self.goal.times

    def __str__(self) -> str:
        between, verdict = f"{min(self.ratios):.2f} to {max(self.ratios):.2f}", "met" if self.met else "MISSED"
        return f"{self.title}: {self.ratio:.2f} ({between}), at most {self.goal.times:g}: {verdict}"


def verdicts(figures: list[Figure]) -> list[Verdict]:
    """Every goal and whether it is met."""
    by_name = {figure.name: figure for figure in figures}
    found = []
    for goal in GOALS:
        one, other = by_name[goal.name], by_name[goal.than]
        pairs, title = list(zip(one.seconds, other.seconds, strict=True)), f"{one.title} / {other.title}"
        if goal.marginal:
            few = zip(by_name[goal.name + FEW].seconds, by_name[goal.than + FEW].seconds, strict=True)
            pairs = [
                (mine - my_few, theirs - their_few)
                for (mine, theirs), (my_few, their_few) in zip(pairs, few, strict=True)
            ]
            title += ", for each row more"
        ratios = tuple(mine / max(theirs, MIN_S) for mine, theirs in pairs)
        found.append(Verdict(title, goal, ratios))
    return found


class Work(NamedTuple):
    """Something to time."""

    name: str
    title: str
    run: Callable[[], object]
    rows: int


def measure(root: Path, scale: Scale, progress: Callable[[str], None]) -> list[Figure]:
    """All figures."""
    progress(f"loading {scale.rows:,} rows")
    middle = load(root / "db", root / "rows.parquet", scale, progress)
    progress("loading large transactions")
    load_transactions(root / "transactions", scale)
    progress("starting Spark")
    spark = session(cores=scale.cores, memory="2g", name="logdb-benchmark")
    export_snapshot(root / "db", root / "base", version=middle)
    works = _works(root, spark, scale)
    timed: dict[str, list[tuple[float, float, float]]] = {work.name: [] for work in works}
    for number in range(0 if scale.rounds > 1 else 1, scale.rounds + 1):
        for work in works:
            progress(f"round {number} of {scale.rounds}: {work.title}" if number else f"warming up: {work.title}")
            shutil.rmtree(root / work.name, ignore_errors=True)
            with _peaks() as peaks:
                begun = time.perf_counter()
                work.run()
                took = time.perf_counter() - begun
            if number:
                timed[work.name].append((took, peaks[0], peaks[1]))
    figures = []
    for work in works:
        seconds, jvm, python = zip(*timed[work.name], strict=True)
        figures.append(Figure(work.name, work.title, seconds, work.rows, max(jvm), max(python)))
    return figures


def _works(root: Path, spark: Any, scale: Scale) -> list[Work]:
    """All operations in the order in which they are compared. Each writes its files to a folder of its name."""
    database, parquet = str(root / "db"), str(root / "rows.parquet")

    def read(**options: Any) -> Any:
        return spark.read.format("logdb").options(**options)

    def newest() -> Any:
        of = expr("max_by(value, version) AS value"), expr("max(version) AS version")
        return spark.read.parquet(parquet).groupBy("key").agg(*of)

    everything = read(readChangeFeed="true", startingVersion=1)
    scan = everything.schema("key BINARY, value BINARY, _commit_version LONG")
    changes = read(readChangeFeed="true", startingVersion=1)
    rows, part = scale.rows, scale.rows // LAST
    works = [
        Work("parquet-scan", "Spark, Parquet: scan", lambda: taken(spark.read.parquet(parquet)), rows),
        Work("scan", "LogDB: scan of all versions", lambda: taken(scan.load(database)), rows),
        Work(
            "parquet-newest",
            "Spark, Parquet: newest per key, to Parquet",
            lambda: written(newest(), root / "parquet-newest"),
            rows,
        ),
        Work("export", "LogDB: export", lambda: export_snapshot(database, root / "export"), rows),
        Work(
            "export-incremental",
            f"LogDB: incremental export of the last 1/{LAST}",
            lambda: export_snapshot(database, root / "export-incremental", base=root / "base"),
            part,
        ),
        Work("fold", "pyarrow: newest per key, to Parquet", lambda: fold(Path(parquet), root / "fold"), rows),
        Work("changes", "LogDB: scan with types of changes", lambda: taken(changes.load(database)), rows),
    ]
    transactions, count, size = str(root / "transactions"), *_transactions(scale)
    for name, commits in (("", count * 3 // 4), (FEW, max(count // 40, 1))):
        feed = {"readChangeFeed": "true", "oldValues": "true", "startingVersion": count - commits + 1}
        stream = spark.readStream.format("logdb").options(**feed)
        works += [
            Work(
                "feed" + name,
                f"LogDB: changes with old values, {commits:,} commits of {size:,} keys",
                partial(loaded, read(**feed), transactions),
                commits * size,
            ),
            Work(
                "feed-stream" + name,
                "LogDB: the same as a stream",
                partial(streamed, stream, transactions, root / f"feed-stream{name}"),
                commits * size,
            ),
        ]
    for mib in PARTITION_MIB:
        title = f"LogDB: snapshot, partitions of {mib} MiB"
        works.append(
            Work(f"snapshot-{mib}-mib", title, partial(loaded, read(partitionBytes=mib << 20), database), rows)
        )
    for share in PARTS_OF_THE_LOG:
        version = int(rows * share)
        title = f"LogDB: snapshot, {version / scale.keys:g} versions per key"
        run = partial(loaded, read(versionAsOf=version), database)
        works.append(Work(f"snapshot-{share:g}", title, run, version))
    return works


def load(path: Path, parquet: Path, scale: Scale, progress: Callable[[str], None]) -> int:
    """Put the rows into a database and into a Parquet file. The version before the last part."""
    chance, noise = random.Random(1), os.urandom(1 << 20)
    middle, last = 0, scale.rows - scale.rows // LAST
    host = EmbeddedBackend.open(path, read_only=False, create=True)
    with pq.ParquetWriter(parquet, ROWS) as writer:
        for begin in range(0, scale.rows, LOADED_TOGETHER):
            progress(f"loading {begin:,} of {scale.rows:,} rows")
            count = min(LOADED_TOGETHER, scale.rows - begin)
            keys = [key_of(number) for number in chance.choices(range(scale.keys), k=count)]
            places = chance.choices(range(len(noise) - VALUE_BYTES), k=count)
            values = [noise[at : at + VALUE_BYTES] for at in places]
            versions = [host.commits.submit({key: value})[0] for key, value in zip(keys, values, strict=True)]
            host.commits.acknowledge(versions[-1])
            writer.write_table(pa.table([keys, values, versions], ROWS))
            if begin < last <= begin + count:
                middle = versions[last - begin - 1]
    progress("checkpoint of the database")
    host.checkpoint()
    host.close()
    return middle


def _transactions(scale: Scale) -> tuple[int, int]:
    """(how many large transactions, with how many keys each)"""
    size = min(TRANSACTION_KEYS, scale.keys // 5)
    return max(8, scale.rows // 10 // size), size


def load_transactions(path: Path, scale: Scale) -> None:
    """Transactions with many keys of all over the place, and a checkpoint after them."""
    chance, (count, size) = random.Random(2), _transactions(scale)
    with logdb.open(path) as db:
        for _ in range(count):
            keys = chance.sample(range(scale.keys // 4), size)
            db.multi_put({key_of(number): chance.randbytes(VALUE_BYTES) for number in keys})
        db.checkpoint()


def key_of(number: int) -> bytes:
    """16 bytes."""
    return b"key-%012d" % number


def taken(frame: Any) -> None:
    """Have Spark make every row of a DataFrame."""
    frame.write.format("noop").mode("overwrite").save()


def loaded(reader: Any, database: str) -> None:
    """Have Spark read all of a database."""
    taken(reader.load(database))


def streamed(reader: Any, database: str, checkpoint: Path) -> None:
    """Have Spark take all that a stream has now."""
    writer = reader.load(database).writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def written(frame: Any, to: Path) -> None:
    """Have Spark write a DataFrame as Parquet."""
    frame.write.option("compression", "zstd").parquet(str(to))


def fold(parquet: Path, to: Path) -> None:
    """The newest row of each key, without Spark and without LogDB."""
    rows = pq.read_table(parquet)
    places = pa.table({"key": rows.column("key"), "at": pa.array(range(len(rows)))})
    last = places.group_by("key", use_threads=True).aggregate([("at", "max")])
    newest = rows.take(last.column("at_max").combine_chunks())
    to.mkdir()
    order = pc.sort_indices(newest.column("key").combine_chunks())
    pq.write_table(newest.take(order), to / "newest.parquet", compression="zstd")


def table(figures: list[Figure]) -> Table:
    """For a terminal."""
    shown = Table(title="LogDB with Spark", title_justify="left")
    for heading in ("", "s", "rows/s", "MB/s", "JVM MiB", "Python MiB"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for figure in figures:
        shown.add_row(figure.title, *_cells(figure))
    shown.caption = "\n".join(map(str, verdicts(figures)))
    return shown


def as_json(figures: list[Figure], scale: Scale) -> dict[str, Any]:
    """For programs."""
    goals = [{**one.goal._asdict(), "ratios": one.ratios, "met": one.met} for one in verdicts(figures)]
    return {"scale": scale._asdict(), "figures": [figure._asdict() for figure in figures], "goals": goals}


def write(figures: list[Figure], scale: Scale, to: Path) -> None:
    """spark.json, spark.md and spark.png."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "spark.json").write_text(json.dumps(as_json(figures, scale)) + "\n")
    lines = [
        "# LogDB with Spark",
        "",
        f"{scale.rows:,} rows over {scale.keys:,} keys, {VALUE_BYTES}-byte values, local[{scale.cores}];"
        f" the median of {scale.rounds}, ratios round by round. Rows and bytes are those of the log that were read;"
        " memory is the peak of Spark's JVM and of all Python workers together.",
        "",
        "| | s | rows/s | MB/s | JVM MiB | Python MiB |",
        "|---|---|---|---|---|---|",
        *(f"| {figure.title} | {' | '.join(_cells(figure))} |" for figure in figures),
        "",
        *(f"- {verdict}" for verdict in verdicts(figures)),
    ]
    (to / "spark.md").write_text("\n".join(lines) + "\n")
    plot(figures, to / "spark.png")


def plot(figures: list[Figure], to: Path) -> None:
    """The comparison, and how a snapshot grows with partitions and with versions per key."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    by_name = {figure.name: figure for figure in figures}
    picture, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 3.8), constrained_layout=True)
    compared = [figure for figure in figures if not figure.name.startswith("snapshot")][::-1]
    left.barh([figure.title for figure in compared], [figure.median for figure in compared])
    left.set_title("seconds", fontsize=9)
    for axis, names, heading in (
        (middle, {f"{mib}": f"snapshot-{mib}-mib" for mib in PARTITION_MIB}, "snapshot: MiB of log for each partition"),
        (right, {f"{share:g}": f"snapshot-{share:g}" for share in PARTS_OF_THE_LOG}, "snapshot: share of the versions"),
    ):
        axis.plot(list(names), [by_name[name].median for name in names.values()], marker="o", label="s")
        gib = [(by_name[name].python_mib + by_name[name].jvm_mib) / 1024 for name in names.values()]
        axis.plot(list(names), gib, marker="s", linestyle="--", label="GiB of memory")
        axis.set_title(heading, fontsize=9)
        axis.set_ylim(bottom=0)
        axis.legend()
    picture.savefig(to, dpi=110)
    plt.close(picture)


def _cells(figure: Figure) -> list[str]:
    rates = [f"{figure.rows / figure.median:,.0f}", f"{figure.mb / figure.median:,.0f}"]
    return [f"{figure.median:.2f}", *rates, f"{figure.jvm_mib:,.0f}", f"{figure.python_mib:,.0f}"]


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
