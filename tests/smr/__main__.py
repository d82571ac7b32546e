"""`python -m tests.smr`: simulate seeds, or see the planted bugs caught."""

from __future__ import annotations

import click

from tests.harness.planting import catch
from tests.smr.planted import PLANTED, SEEDS
from tests.smr.simulation import simulate


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=200, show_default=True, help="How many to simulate.")
@click.option("--seed", type=int, help="Simulate this one only.")
@click.option("--planted", is_flag=True, help="Plant each bug, and search for a seed that catches it.")
def main(seeds: int, seed: int | None, planted: bool) -> None:
    """Replicas of a state machine on a simulated log."""
    failed = False
    if planted:
        for name in PLANTED:
            _, found, count = catch(name, PLANTED, SEEDS.get(name, 1), simulate)
            failed |= found is None
            text = (
                "not caught" if found is None else f"caught by seed {found.seed}: {found.failure}: {found.detail:.80}"
            )
            click.echo(f"{name}: {text} ({count} seeds)")
    else:
        for number in [seed] if seed is not None else range(1, seeds + 1):
            found = simulate(number)
            if found.failure or seed is not None:
                click.echo(str(found))
            failed |= bool(found.failure)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
