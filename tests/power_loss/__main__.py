"""`python -m tests.power_loss`: fail the power after every write and sync of a workload, and check the remaining
files."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.harness.progress import showing_progress
from tests.power_loss.planted import PLANTED
from tests.power_loss.replaying import Lost, check, positions, record


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.power_loss",
        description=(
            "Record what an embedded database writes and syncs in a workload of commits, checkpoints, compactions, "
            "exports' pins and openings. After each operation the power fails: what was not synced is there, lost, "
            "torn or in another order. Each of these directories must open, and hold every acknowledged commit and "
            "nothing else."
        ),
    )
    parser.add_argument("--workloads", type=int, default=5, help="how many, one after another (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=6, help="random losses at each point, beside the extremes")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the first (default: random)")
    parser.add_argument("--planted", choices=[*PLANTED, "all"], help="plant a bug, which must be found")
    options = parser.parse_args()
    if options.planted:
        bugs = list(PLANTED) if options.planted == "all" else [options.planted]
        missed = [bug for bug in bugs if not found(bug, options.seed)]
        print("\n".join(f"not found: {bug}" for bug in missed) or f"{len(bugs)} planted bugs, all found")
        return 1 if missed else 0
    problems, images = 0, 0
    with showing_progress(Console(stderr=True)) as tell:
        for seed in range(options.seed, options.seed + options.workloads):
            with tempfile.TemporaryDirectory() as folder:
                recorded = record(Path(folder) / "recorded", seed)
                for position in positions(recorded):
                    tell(f"seed {seed}: operation {position} of {len(positions(recorded))}, {images:,} images opened")
                    try:
                        images += check(recorded, position, seed, options.samples, Path(folder) / str(position))
                    except Lost as lost:
                        problems += 1
                        print(f"seed {seed}: {lost}", flush=True)
    print(f"{images:,} images opened, {problems} problems")
    return 1 if problems else 0


def found(bug: str, seed: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        with PLANTED[bug]():
            recorded = record(Path(folder) / "recorded", seed)
        try:
            for position in positions(recorded):
                check(recorded, position, seed, 1, Path(folder) / str(position))
        except Lost as lost:
            print(f"{bug}: {lost}")
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
