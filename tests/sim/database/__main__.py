"""`python -m tests.sim.database`: replay a seed, run many, or see the planted bugs caught."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.sim.__main__ import fresh_base
from tests.sim.database.cluster import MAPPING_FAULTS
from tests.sim.database.planted import PLANTED, catch
from tests.sim.database.run import Simulation, simulate
from tests.sim.database.workload import WEIGHTS
from tests.sim.run import Outcome

OTHERS = (
    "verdict COMMITTED",
    "verdict CONDITION",
    "verdict CONFLICT",
    "verdict DANGLING",
    "told OutcomeUnknown",
    "told Unavailable",
    "large value",
    "decision record",
    "transaction twice in the log",
    "checkpoint taken",
)
"""What must also have happened in enough seeds."""

console = Console()


@click.command()
@click.option("--seed", type=int, help="Replay this seed, twice, and compare.")
@click.option("--trace", is_flag=True, help="With --seed: print every event.")
@click.option("--seeds", help="Run these: A..B, or a number of fresh ones.")
@click.option("--jobs", type=int, default=2, show_default=True, help="Processes.")
@click.option("--planted", help="Plant this bug (or all, one after another) and run seeds until each is caught.")
@click.option("--digest", is_flag=True, hidden=True, help="With --seed: print the digest of one exact run, only.")
def main(seed: int | None, trace: bool, seeds: str | None, jobs: int, planted: str | None, digest: bool) -> None:
    """Run a whole cluster with a database on it in one process, under one seed, with everything going wrong."""
    if seed is not None:
        sys.exit(0 if replay(seed, trace=trace, digest=digest) else 1)
    if planted is not None:
        sys.exit(0 if plant(planted, jobs) else 1)
    if seeds is None:
        raise click.UsageError("--seed N, --seeds A..B or --planted NAME?")
    first, dots, last = seeds.partition("..")
    base = int(first) if dots else fresh_base()
    sys.exit(0 if many(base, int(last) if dots else base + int(first) - 1, jobs) else 1)


def replay(seed: int, *, trace: bool, digest: bool) -> bool:
    """One seed here, and once more in a process with another hash seed."""
    if digest:
        print(simulate(seed, exact=True).digest)
        return True
    console.print(Simulation(seed).plan)
    outcome = simulate(seed, exact=True, show=print if trace else None)
    again = subprocess.run(
        [sys.executable, "-m", "tests.sim.database", "--seed", str(seed), "--digest"],
        env=os.environ | {"PYTHONHASHSEED": str(seed % 1000 + 1)},
        capture_output=True,
        text=True,
        check=False,
    )
    same = again.stdout.strip() == outcome.digest
    console.print(f"{outcome.events:,} events, {outcome.records:,} records, digest {outcome.digest}")
    if not same:
        console.print(f"[red]not the same run twice[/]: {again.stdout.strip()} {again.stderr[-2000:]}")
    if outcome.failure:
        print(outcome.story)
        console.print(f"[red]seed {outcome.seed}: {outcome.failure}[/]")
        print(outcome.detail)
    return same and not outcome.failure


def many(first: int, last: int, jobs: int) -> bool:
    """All seeds from `first` to `last`; a table of what occurred, and the seeds that failed."""
    counts: Counter[str] = Counter()
    failed: list[Outcome] = []
    events = records = 0
    began = time.perf_counter()
    console.print(f"seeds {first}..{last}")
    with ProcessPoolExecutor(jobs) as pool, Progress(console=console) as progress:
        task = progress.add_task("seeds", total=last - first + 1)
        for outcome in pool.map(simulate, range(first, last + 1), chunksize=4):
            counts.update(outcome.counts)
            events += outcome.events
            records += outcome.records
            if outcome.failure:
                failed.append(outcome)
                progress.console.print(f"[red]seed {outcome.seed}: {outcome.failure}[/]: {outcome.detail[:300]}")
            progress.advance(task)
    wanted = [*WEIGHTS, *MAPPING_FAULTS, *OTHERS]
    table = Table("what happened", "times")
    for name in [*wanted, *sorted(set(counts) - set(wanted))]:
        table.add_row(name, f"{counts[name]:,}")
    console.print(table)
    took = time.perf_counter() - began
    console.print(
        f"{last - first + 1:,} seeds, {events:,} events, {records:,} records in {took:.0f} s on {jobs} processes; "
        f"{len(failed)} failed"
    )
    for outcome in failed[:20]:
        console.print(f"[red]{outcome.failure}[/]: python -m tests.sim.database --seed {outcome.seed}")
    missing = [name for name in wanted if not counts[name]]
    if missing:
        console.print(f"[red]never happened: {', '.join(missing)}[/]")
    return not failed and not missing


def plant(name: str, jobs: int) -> bool:
    """Plant each bug and run seeds until one fails."""
    names = sorted(PLANTED) if name == "all" else [name]
    table = Table("planted bug", "caught by seed", "as", "seeds run")
    caught = 0
    with ProcessPoolExecutor(jobs) as pool:
        for bug, outcome, tries in pool.map(catch, names):
            caught += outcome is not None
            seed, failure = (str(outcome.seed), outcome.failure) if outcome else ("[red]none[/]", "")
            table.add_row(bug, seed, failure, str(tries))
            console.print(f"{bug}: {seed} {failure}")
    console.print(table)
    console.print(f"{caught} of {len(names)} caught")
    return caught == len(names)


if __name__ == "__main__":
    main()
