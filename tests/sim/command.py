"""The command of a simulator: replay a seed, run many, or check that the planted bugs are caught."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.harness.progress import counting
from tests.sim.run import Outcome

console = Console()
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Suite:
    """A simulation and its command. `module`: the arguments of `python -m`, with the engine. `plan`: the meaning of a
    seed, for people. `simulate` runs a seed, `catch` runs seeds with a bug of `planted`. `expected_events`: events that
    must occur if there are enough seeds."""

    module: tuple[str, ...]
    plan: Callable[[int], object]
    simulate: Callable[..., Outcome]
    planted: Collection[str]
    catch: Callable[[str], tuple[str, Outcome | None, int]]
    expected_events: Collection[str]


def command(about: str, engines: Sequence[str], suite_of: Callable[[str, bool], Suite]) -> click.Command:
    """The command line of a simulator, for these engines."""

    @click.command(help=about)
    @click.option("--engine", type=click.Choice(engines), default=engines[0], show_default=True)
    @click.option("--nodes", is_flag=True, help="Servers of all roles share nodes, and fail with them.")
    @click.option("--seed", type=int, help="Replay this seed, twice, and compare.")
    @click.option("--trace", is_flag=True, help="With --seed: print every event.")
    @click.option("--seeds", help="Run these: A..B, or a number of fresh ones.")
    @click.option("--jobs", type=int, default=2, show_default=True, help="Processes.")
    @click.option("--planted", help="Plant this bug (or all, one after another) and run seeds until each is caught.")
    @click.option("--digest", is_flag=True, hidden=True, help="With --seed: print the digest of one exact run, only.")
    def main(
        engine: str,
        nodes: bool,
        seed: int | None,
        trace: bool,
        seeds: str | None,
        jobs: int,
        planted: str | None,
        digest: bool,
    ) -> None:
        suite = suite_of(engine, nodes)
        if seed is not None and digest:
            print(suite.simulate(seed, exact=True).digest)
        elif seed is not None:
            sys.exit(0 if replay(suite, seed, trace=trace) else 1)
        elif planted is not None:
            sys.exit(0 if plant(suite, planted, jobs) else 1)
        elif seeds is not None:
            sys.exit(0 if many(suite, *span(seeds), jobs) else 1)
        else:
            raise click.UsageError("--seed N, --seeds A..B or --planted NAME?")

    return main


def span(seeds: str) -> tuple[int, int]:
    """The first and the last seed of A..B, or of a number of fresh seeds."""
    first, dots, last = seeds.partition("..")
    if dots:
        return int(first), int(last)
    base = fresh_base()
    return base, base + int(seeds) - 1


def fresh_base() -> int:
    """The first of a range of fresh seeds, from the clock."""
    return time.time_ns() // 1_000_000 % 1_000_000_000 * 1_000


def base_of_source() -> int:
    """The first of a range of seeds that belongs to this source code.

    Each change of the product or the simulator draws new seeds, and all test runs of one commit use the same ones, so a
    run that passes before a commit lands also says something about the runs after it.
    """
    source = hashlib.sha256()
    for room in ("logdb", "tests/sim"):
        for path in sorted((ROOT / room).rglob("*.py")):
            source.update(path.read_bytes())
    return int.from_bytes(source.digest()[:4], "big") % 1_000_000_000 * 1_000


def replay(suite: Suite, seed: int, *, trace: bool) -> bool:
    """Run one seed here, and once more in a process with another hash seed."""
    console.print(suite.plan(seed))
    began = time.perf_counter()
    outcome = suite.simulate(seed, exact=True, show=print if trace else None)
    took = time.perf_counter() - began
    again = subprocess.run(
        [sys.executable, "-m", *suite.module, "--seed", str(seed), "--digest"],
        env=os.environ | {"PYTHONHASHSEED": str(seed % 1000 + 1)},
        capture_output=True,
        text=True,
        check=False,
    )
    same = again.stdout.strip() == outcome.digest
    console.print(f"{outcome.events:,} events, {outcome.records:,} records, {took:.2f} s, digest {outcome.digest}")
    if not same:
        console.print(f"[red]not the same run twice[/]: {again.stdout.strip()} {again.stderr[-2000:]}")
    if outcome.failure:
        show_failure(outcome)
    return same and not outcome.failure


def show_failure(outcome: Outcome) -> None:
    """Print the failure and the events before it."""
    print(outcome.story)
    console.print(f"[red]seed {outcome.seed}: {outcome.failure}[/]")
    print(outcome.detail)


def many(suite: Suite, first: int, last: int, jobs: int) -> bool:
    """Run all seeds from `first` to `last`; print a table of the events that occurred, and the seeds that failed."""
    counts: Counter[str] = Counter()
    failed: list[Outcome] = []
    events = records = 0
    began = time.perf_counter()
    console.print(f"seeds {first}..{last}")
    with ProcessPoolExecutor(jobs) as pool, counting(console, "seeds", last - first + 1) as advance:
        for outcome in pool.map(suite.simulate, range(first, last + 1), chunksize=8):
            counts.update(outcome.counts)
            events += outcome.events
            records += outcome.records
            if outcome.failure:
                failed.append(outcome)
                console.print(f"[red]seed {outcome.seed}: {outcome.failure}[/]: {outcome.detail[:200]}")
            advance()
    took = time.perf_counter() - began
    missing = print_counts(counts, suite.expected_events)
    console.print(
        f"{last - first + 1:,} seeds, {events:,} events, {records:,} records in {took:.0f} s on {jobs} processes: "
        f"{events / took / jobs:,.0f} events a second each; {len(failed)} failed"
    )
    for outcome in failed[:20]:
        console.print(f"[red]{outcome.failure}[/]: python -m {' '.join(suite.module)} --seed {outcome.seed}")
    if missing:
        console.print(f"[red]never happened: {', '.join(missing)}[/]")
    return not failed and not missing


def print_counts(counts: Counter[str], expected_events: Collection[str]) -> list[str]:
    """Print how often each event occurred. Returns the events that never did."""
    rest = sorted(set(counts).difference(expected_events))
    table = Table("what happened", "times", "what happened", "times", "what happened", "times")
    rows = [(name, f"{counts[name]:,}") for name in [*expected_events, *rest]]
    rows += [("", "")] * (-len(rows) % 3)
    third = len(rows) // 3
    for number in range(third):
        table.add_row(*rows[number], *rows[number + third], *rows[number + 2 * third])
    console.print(table)
    return [name for name in expected_events if not counts[name]]


def plant(suite: Suite, name: str, jobs: int) -> bool:
    """Plant each bug and run seeds until one fails."""
    names = sorted(suite.planted) if name == "all" else [name]
    table = Table("planted bug", "caught by seed", "as", "seeds run")
    caught = 0
    with ProcessPoolExecutor(jobs) as pool, counting(console, "planted bugs", len(names)) as advance:
        for bug, outcome, tries in pool.map(suite.catch, names):
            caught += outcome is not None
            seed, failure = (str(outcome.seed), outcome.failure) if outcome else ("[red]none[/]", "")
            table.add_row(bug, seed, failure, str(tries))
            console.print(f"{bug}: {seed} {failure}")
            advance()
    console.print(table)
    console.print(f"{caught} of {len(names)} caught")
    return caught == len(names)
