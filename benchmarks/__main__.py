"""The command: `python -m benchmarks` measures everything, `python -m benchmarks mixed` checks for growth."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType

from benchmarks import fresh, large_transactions, long_load, map_designs, mixed, report, scalog, verification
from benchmarks.rounds import FULL, QUICK, interleaved
from benchmarks.workloads import WORKLOADS, Stage
from logdb.log.engine import ENGINES
from tests.harness.progress import showing_progress

RESULTS = Path(__file__).parent / "results"
NAMES = [*(workload.name for workload in WORKLOADS), "open"]

QUICK_RUN = click.option("--quick", is_flag=True, help="To see that it runs. The figures mean nothing.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
SCRATCH = click.option(
    "--dir",
    "scratch",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An existing directory, on a real disk, for databases and journals.",
)


def writes(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that names a directory for the files of a report."""
    return click.option("--to", type=click.Path(path_type=Path), help=f"Where to write {names}.")


@contextmanager
def working_in(scratch: Path | None) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """A new directory below `scratch`, removed at the end, and what shows the progress."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory, showing_progress(Console(stderr=True)) as progress:
        yield Path(directory), progress


def show(results: Any, table: RenderableType, as_json: bool, width: int) -> None:
    """Print what was measured: as JSON, or as a table, in a file `width` columns wide."""
    if as_json:
        click.echo(json.dumps(results))
    else:
        Console(width=None if sys.stdout.isatty() else width).print(table)


def show_with_absent(results: Any, as_json: bool, width: int) -> None:
    """Likewise, and which peers were left out."""
    show(results.as_json(), results.table(), as_json, width)
    if not as_json:
        for name in results.absent:
            click.echo(f"{name} is not installed, or too old, and was left out")


@click.group(invoke_without_command=True)
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Measure only this (can be repeated).")
@click.option("--quick", is_flag=True, help="A few keys and milliseconds: to see that it runs. The rates mean nothing.")
@AS_JSON
@SCRATCH
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    help="Where to write results.json, .md and .png. Default: benchmarks/results for a whole run, else nowhere.",
)
@click.pass_context
def main(
    context: click.Context, only: tuple[str, ...], quick: bool, as_json: bool, scratch: Path | None, to: Path | None
) -> None:
    """LogDB against its peers, in interleaved rounds."""
    if context.invoked_subcommand is not None:
        return
    scale = QUICK if quick else FULL
    rows: list[report.Row] = []
    rates: dict[str, dict[str, list[float]]] = {}
    with working_in(scratch) as (directory, progress):
        for workload in WORKLOADS:
            if only and workload.name not in only:
                continue
            progress(workload.title)
            with Stage(directory / workload.name, scale) as stage:
                opened = {name: contestant(stage) for name, contestant in workload.contestants.items()}
                rates[workload.name] = interleaved(opened, scale)
            rows += report.rows_of(workload, rates[workload.name])
        if not only or "open" in only:
            figures = fresh.figures(directory, scale, progress)
            rates |= {figure.name: {report.OURS: figure.values} for figure in figures}
            rows += [report.row_of(figure) for figure in figures]
    results = report.as_json(rows, rates, scale)
    show(results, report.as_table(rows), as_json, 160)
    if to is None and not (only or quick):
        to = RESULTS
    if to is not None:
        report.write(to, rows, results, scale)


@main.command("mixed")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True)
@click.option("--where", type=click.Choice(mixed.WHERE), default="embedded", show_default=True)
@click.option("--keys", type=click.IntRange(min=100), default=FULL.keys, show_default=True)
@AS_JSON
@SCRATCH
@writes("mixed-WHERE.json and .png")
def mixed_run(minutes: float, where: str, keys: int, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """Run a mixture of everything for an hour; the exit code is 1 if memory, disk or latency grow."""
    with working_in(scratch) as (directory, progress):
        found = mixed.run(where, directory / "mixed", keys, minutes, progress)
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        click.echo(f"{sum(found.operations.values()):,} operations in {minutes:g} minutes: {found.operations}")
        for trend in found.trends:
            click.echo(str(trend))
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
        (to / f"mixed-{where}.json").write_text(json.dumps(found.as_json()) + "\n")
        report.plot_mixed(found, to / f"mixed-{where}.png")
    if growing := [str(trend) for trend in found.trends if trend.grows]:
        raise click.ClickException("\n".join(growing))


@main.command("large-transactions")
@click.option("--keys", type=click.IntRange(min=100), default=FULL.keys, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=large_transactions.ROUNDS, show_default=True)
@AS_JSON
@SCRATCH
def large_transactions_run(keys: int, rounds: int, as_json: bool, scratch: Path | None) -> None:
    """One transaction of many puts, in the order of the keys and in random order, against SQLite, LMDB and RocksDB."""
    with working_in(scratch) as (directory, progress):
        found = large_transactions.measure(directory, keys, rounds, progress)
    show(large_transactions.as_json(found, keys), large_transactions.table(found, keys), as_json, 120)


@main.command("verification")
@click.option("--keys", type=click.IntRange(min=100), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=verification.ROUNDS, show_default=True)
@AS_JSON
@SCRATCH
def verification_run(keys: int, rounds: int, as_json: bool, scratch: Path | None) -> None:
    """`verify` and `audit` of a database whose keys were overwritten twice, against a plain read of its files."""
    with working_in(scratch) as (directory, progress):
        found = verification.measure(directory, keys, rounds, progress)
    show(found._asdict(), verification.table(found), as_json, 120)


@main.command("scalog")
@QUICK_RUN
@AS_JSON
@writes("scalog.json, .md and .png")
def scalog_run(quick: bool, as_json: bool, to: Path | None) -> None:
    """CPU time of a record and of a cut in the Scalog engine."""
    with showing_progress(Console(stderr=True)) as progress:
        progress("the Scalog engine")
        costs = scalog.measure(quick)
    show(costs.as_json(), costs.table(), as_json, 160)
    if to is not None:
        scalog.write(costs, to)


@main.command("long-load")
@click.option(
    "--keys",
    "sizes",
    multiple=True,
    type=click.IntRange(min=1_000),
    default=(1_000_000, 5_000_000),
    show_default=True,
    help="How many (can be repeated).",
)
@click.option("--order", "orders", multiple=True, type=click.Choice(long_load.ORDERS), default=long_load.ORDERS)
@click.option("--engine", "engines", multiple=True, type=click.Choice(long_load.ENGINES), default=long_load.ENGINES)
@click.option("--passes", type=click.IntRange(min=1), default=3, show_default=True, help="Times all is overwritten.")
@click.option("--quick", is_flag=True, help="5,000 keys: to see that it runs. The figures mean nothing.")
@AS_JSON
@SCRATCH
@writes("long-load.json, .md and the plots")
def long_load_run(
    sizes: tuple[int, ...],
    orders: tuple[str, ...],
    engines: tuple[str, ...],
    passes: int,
    quick: bool,
    as_json: bool,
    scratch: Path | None,
    to: Path | None,
) -> None:
    """Load, overwrite, kill, open, delete half and compact: stalls, bytes written, space and memory of each engine."""
    with working_in(scratch) as (directory, progress):
        loads: list[long_load.Load] = []
        for load in long_load.measure(directory, (5_000,) if quick else sizes, orders, engines, passes, progress):
            loads.append(load)
            if to is not None:  # after each: it takes long
                long_load.write(loads, passes, to)
    if as_json:
        click.echo(json.dumps(long_load.as_json(loads, passes)))
    else:
        Console().print(*long_load.tables(loads))
        for aim in long_load.aims(loads):
            click.echo(str(aim))


@main.command("map-designs")
@click.option("--keys", type=click.IntRange(min=100), default=500_000, show_default=True)
@click.option("--batch", type=click.IntRange(min=1), default=20_000, show_default=True, help="Rows of a checkpoint.")
@click.option("--passes", type=click.IntRange(min=1), default=3, show_default=True, help="Times all is overwritten.")
@AS_JSON
@SCRATCH
@writes("map-designs.json and .md")
def map_designs_run(keys: int, batch: int, passes: int, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """Writes, time and reads of designs for the map on disk: LMDB in place, places in the log, sorted runs."""
    with working_in(scratch) as (directory, progress):
        trials = map_designs.measure(directory, keys, batch, passes, progress)
    show([trial._asdict() for trial in trials], map_designs.table(trials), as_json, 160)
    if to is not None:
        map_designs.write(trials, keys, batch, passes, to)


@main.command("served")
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("served.json, .md and .png")
def served_run(quick: bool, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """The single-node server against etcd and Redis, with 1, 8 and 64 clients."""
    from benchmarks import served

    with working_in(scratch) as (directory, progress):
        scale = served.QUICK if quick else served.FULL
        results = served.measure(served.SERVERS, directory, scale, progress)
    show_with_absent(results, as_json, 140)
    if to is not None:
        served.write(results, to)


@main.command("named-logs")
@QUICK_RUN
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds instead of 5, for a short run.")
@click.option("--nats-server", default="nats-server", show_default=True, help="The program, 2.10 or newer.")
@AS_JSON
@SCRATCH
@writes("named-logs.json, .md and .png")
def named_logs_run(
    quick: bool, rounds: int | None, nats_server: str, as_json: bool, scratch: Path | None, to: Path | None
) -> None:
    """Named logs of a server against Redis Streams and NATS JetStream, all with a sync for each acknowledgement."""
    from benchmarks import named_logs

    scale = named_logs.QUICK if quick else named_logs.FULL
    if rounds is not None:
        scale = scale._replace(rounds=rounds)
    with working_in(scratch) as (directory, progress):
        results = named_logs.measure(nats_server, directory, scale, progress)
    show_with_absent(results, as_json, 140)
    if to is not None:
        named_logs.write(results, to)


@main.command("large")
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("large.json and .md")
def large_run(quick: bool, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """Values of 64 MiB at the single-node server and at Redis, beside small puts, and what the servers keep."""
    from benchmarks import large

    with working_in(scratch) as (directory, progress):
        results = large.measure(directory, large.QUICK if quick else large.FULL, progress)
    show_with_absent(results, as_json, 160)
    if to is not None:
        large.write(results, to)


@main.command("fair")
@click.option("--cluster", "layout", type=click.Choice(("nodes", "processes")), help="Measure hot keys of a cluster.")
@click.option("--engine", type=click.Choice(ENGINES), default=ENGINES[0], show_default=True, help="Of the cluster.")
@QUICK_RUN
@AS_JSON
@SCRATCH
def fair_run(layout: str | None, engine: str, quick: bool, as_json: bool, scratch: Path | None) -> None:
    """How long small puts wait at the single-node server beside clients that scan everything again and again.

    With --cluster: how long increments of hot keys wait beside 16 coroutines that increment the same keys.
    """
    from benchmarks import fair

    scale = fair.QUICK if quick else fair.FULL
    measured: fair.Waited | fair.HotKeys
    with working_in(scratch) as (directory, progress):
        if layout is None:
            measured = fair.measure(directory, scale, progress)
        else:
            measured = fair.measure_hot_keys(directory, layout, engine, scale, progress)
    click.echo(json.dumps(measured._asdict()) if as_json else "\n".join(measured.lines()))


@main.command("client")
@click.option("--cluster", "layout", type=click.Choice(("nodes", "processes")), help="Measure clients of a cluster.")
@click.option("--engine", type=click.Choice(ENGINES), default=ENGINES[0], show_default=True, help="Of the cluster.")
@QUICK_RUN
@AS_JSON
@SCRATCH
def client_run(layout: str | None, engine: str, quick: bool, as_json: bool, scratch: Path | None) -> None:
    """CPU time that a client's process takes for a transaction: of LogDB's clients, and of psycopg with PostgreSQL.

    With --cluster: of LogDB's clients at three nodes, or at a process for each server.
    """
    from benchmarks import client

    scale = client.QUICK if quick else client.FULL
    with working_in(scratch) as (directory, progress):
        directory.chmod(0o755)  # PostgreSQL runs as another user
        if layout is None:
            measured = client.measure(directory, scale, progress)
        else:
            measured = client.measure_cluster(directory, layout, engine, scale, progress)
    click.echo(json.dumps([each._asdict() for each in measured]) if as_json else "\n".join(client.lines(measured)))


@main.command("tpcc")
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("tpcc.json and .md")
@click.option("--embedded", is_flag=True, help="By threads of one process, in a directory and on SQLite.")
def tpcc_run(quick: bool, as_json: bool, scratch: Path | None, to: Path | None, embedded: bool) -> None:
    """TPC-C by eight processes on three nodes, and on PostgreSQL with and without synchronous standbys."""
    from benchmarks.tpcc import measuring

    if embedded:
        _tpcc_embedded(quick, as_json, scratch)
        return
    effort = measuring.QUICK if quick else measuring.FULL
    with working_in(scratch) as (directory, progress):
        directory.chmod(0o755)  # PostgreSQL runs as another user
        measured = measuring.measure(effort, directory, progress)
    if to is not None:
        measuring.write(measured, effort, to)
    show(measuring.as_json(measured, effort), measuring.table(measured), as_json, 160)
    if any(each.violations for each in measured):
        raise SystemExit("\n".join(violation for each in measured for violation in each.violations))


def _tpcc_embedded(quick: bool, as_json: bool, scratch: Path | None) -> None:
    from benchmarks.tpcc import embedded

    with working_in(scratch) as (directory, progress):
        effort = embedded.QUICK if quick else embedded.FULL
        measured, violations = embedded.measure(effort, directory, progress)
    click.echo(json.dumps([each._asdict() for each in measured]) if as_json else "\n".join(m.line() for m in measured))
    if violations:
        raise SystemExit("\n".join(violations))


@main.command("cluster")
@click.argument(
    "parts",
    nargs=-1,
    type=click.Choice(
        ["served", "cost", "hops", "leader", "node-corfu", "node-multipaxos", "node-scalog", "node-ziplog", "shards"]
    ),
)
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("cluster-PART.json, .md and .png")
def cluster_run(parts: tuple[str, ...], quick: bool, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """The database on a cluster in processes of its own: all PARTS, or those that are named.

    served: against etcd and Redis. cost: CPU time of each role. hops: the latency of a commit. leader, node-*, shards:
    throughput over time while the ordering leader or a node is killed, and shards are added and finalized.
    """
    from benchmarks import cluster

    results = {}
    for part in parts or cluster.PARTS:
        _, measure = cluster.PARTS[part]
        with working_in(scratch) as (directory, progress):
            found = measure(directory, quick, progress)
        results[part] = found.as_json()
        if not as_json:
            show(results, found.table(), as_json, 140)
        if to is not None:
            cluster.write(part, found, to)
    if as_json:
        click.echo(json.dumps(results))


@main.command("steps")
@click.option("--engine", type=click.Choice(ENGINES), default=ENGINES[0], show_default=True)
@click.option("--nodes", type=click.Choice(["3", "5"]), help="Equal nodes, each with a server of every role.")
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("steps-ENGINE.json and .md")
def steps_run(
    engine: str, nodes: str | None, quick: bool, as_json: bool, scratch: Path | None, to: Path | None
) -> None:
    """Messages, stream writes, wake-ups, thread handovers, syncs and CPU time of one commit alone and one get alone.

    Without --nodes there is a process for each server.
    """
    from benchmarks import steps

    with working_in(scratch) as (directory, progress):
        found = steps.measure(directory, engine, int(nodes or 0), 15 if quick else 600, progress)
    show(found.as_json(), found.table(), as_json, 140)
    if to is not None:
        found.write(to)


@main.command("ziplog")
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("ziplog.json, .md and .png")
def ziplog_run(quick: bool, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """Ziplog beside Scalog and Multi-Paxos: the figures of section 4.4 of the dissertation, and its statements."""
    from benchmarks.ziplog import measuring
    from benchmarks.ziplog import report as ziplog_report

    with working_in(scratch) as (directory, progress):
        found = measuring.measure(directory, measuring.QUICK if quick else measuring.FULL, progress)
    show(ziplog_report.as_json(found), ziplog_report.table(found), as_json, 160)
    if to is not None:
        ziplog_report.write(found, to)


@main.command("corfu")
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("corfu.json, .md and .png")
def corfu_run(quick: bool, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """Corfu beside Scalog, Multi-Paxos and Ziplog: the figures of its paper, and of those on Scalog and vCorfu."""
    from benchmarks.corfu import effort, measuring
    from benchmarks.corfu import report as corfu_report

    with working_in(scratch) as (directory, progress):
        found = measuring.measure(directory, effort.QUICK if quick else effort.FULL, progress)
    show(corfu_report.as_json(found), corfu_report.table(found), as_json, 160)
    if to is not None:
        corfu_report.write(found, to)


@main.command("log-cluster")
@QUICK_RUN
@AS_JSON
@SCRATCH
@writes("log-cluster.json")
def log_cluster_run(quick: bool, as_json: bool, scratch: Path | None, to: Path | None) -> None:
    """The shared log in processes of its own: appends of one client, and the CPU time of each role."""
    from benchmarks import log_cluster

    found: list[log_cluster.ClusterFigure] = []
    with working_in(scratch) as (directory, progress):
        for number, name in enumerate(log_cluster.SHAPES):
            progress(name)
            if not (quick and number):
                found += log_cluster.measure(directory / str(number), name, 0.2 if quick else 5.0)
    results = [figure._asdict() for figure in found]
    show(results, log_cluster.table(found), as_json, 200)
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
        (to / "log-cluster.json").write_text(json.dumps(results) + "\n")


@main.command("spark")
@click.option("--rows", type=click.IntRange(min=100), help="Versions written. Default: 5,000,000.")
@click.option("--keys", type=click.IntRange(min=1), help="Keys that have them. Default: a tenth of the rows.")
@click.option("--cores", type=click.IntRange(min=1), default=2, show_default=True, help="Of Spark.")
@click.option("--rounds", type=click.IntRange(min=1), help="Of each measurement. Default: 3.")
@click.option("--quick", is_flag=True, help="50,000 rows and one round: to see that it runs. The ratios mean nothing.")
@AS_JSON
@SCRATCH
@writes("spark.json, .md and .png")
def spark_run(
    rows: int | None,
    keys: int | None,
    cores: int,
    rounds: int | None,
    quick: bool,
    as_json: bool,
    scratch: Path | None,
    to: Path | None,
) -> None:
    """Scans and exports with Spark, against Spark on Parquet and a plain pyarrow fold."""
    from pyspark.sql import SparkSession

    from benchmarks import spark

    usual = spark.QUICK if quick else spark.FULL
    rows = rows or usual.rows
    scale = spark.Scale(rows, keys or max(rows // 10, 1), cores, rounds or usual.rounds)
    with working_in(scratch) as (directory, progress):
        try:
            figures = spark.measure(directory, scale, progress)
        finally:
            if (session := SparkSession.getActiveSession()) is not None:
                session.stop()
    show(spark.as_json(figures, scale), spark.table(figures), as_json, 140)
    if to is not None:
        spark.write(figures, scale, to)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
