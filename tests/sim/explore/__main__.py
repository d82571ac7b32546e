"""`python -m tests.sim.explore`: search, and print the number of distinct states."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tests.harness.progress import showing_progress
from tests.sim.engines import ENGINES, module_of
from tests.sim.explore.machine import Search, Wrong, search


@click.command()
@click.option("--states", default=300_000, show_default=True, help="Maximum number of distinct states of each search.")
@click.option("--only", help="One of the searches, by its name in the table.")
@click.option("--engine", type=click.Choice(ENGINES), default=ENGINES[0], show_default=True)
def main(states: int, only: str | None, engine: str) -> None:
    """Try every order in which a few things can happen to a small cluster of real cores."""
    console = Console()
    table = Table("Search", "Distinct states", "Steps", "Depth", "Complete", "Seconds")
    scenario = module_of(engine, "scenario")
    if only and only not in scenario.BUDGETS:
        raise click.UsageError(f"--only is one of: {', '.join(scenario.BUDGETS)}")
    for name in [only] if only else scenario.BUDGETS:
        with showing_progress(console) as show:
            found = explore(scenario, name, states, partial(show_depth, show, name))
        if isinstance(found, Wrong):
            console.print(f"[red]{name}[/]: {found}", highlight=False)
            sys.exit(1)
        complete = "yes" if found.complete else "no"
        table.add_row(name, f"{found.states:,}", f"{found.steps:,}", str(found.depth), complete, f"{found.seconds:.0f}")
    console.print(table)


def show_depth(show: Callable[[str], None], name: str, states: int, depth: int) -> None:
    """Show the progress of a search."""
    show(f"{name}: {states:,} states, {depth} deep")


def explore(scenario: Any, name: str, states: int, progress: Callable[[int, int], None]) -> Search | Wrong:
    """The result of one search, or the violation that it found."""
    cluster = scenario.Cluster()
    try:
        return search(cluster, cluster.prepared(scenario.BUDGETS[name]), states, progress)
    except Wrong as wrong:
        return wrong


if __name__ == "__main__":
    main()
