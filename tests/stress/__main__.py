"""`python -m tests.stress`: kill a busy database again and again, and check its promises."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.harness.progress import showing_progress
from tests.stress.killing import Tally, run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stress",
        description=(
            "A child process commits from threads and coroutines, writes checkpoints and compacts, and is killed "
            "(SIGKILL) at a random moment; the database is opened again and checked: every acknowledged transaction "
            "is there, none is half there or twice there. Then the same directory goes on."
        ),
    )
    parser.add_argument("--kills", type=int, default=200, help="how often to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the moments (default: random)")
    parser.add_argument("--dir", type=Path, help="an empty directory for the database (default: temporary)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, showing_progress(Console(stderr=True)) as tell:

        def show(done: int, kills: int, tally: Tally) -> None:
            tell(f"{done} of {kills} kills, {tally.acknowledged:,} transactions acknowledged")

        tally = run(options.dir or Path(folder) / "db", options.kills, options.seed, progress=show)
    print(table(tally))
    return 1 if tally.problems else 0


def table(tally: Tally) -> str:
    rows = {
        "kills": tally.kills,
        "acknowledged transactions": tally.acknowledged,
        "found though not acknowledged": tally.unacknowledged,
        "checkpoints": tally.checkpoints,
        "compactions": tally.compactions,
        "slowest opening, ms": round(tally.slowest_opening_s * 1e3),
        "problems": len(tally.problems),
    }
    lines = [f"{name:<32}{count:>12,}" for name, count in rows.items()]
    return "\n".join([*lines, *tally.problems])


if __name__ == "__main__":
    sys.exit(main())
