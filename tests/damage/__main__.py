"""`python -m tests.damage`: damage every file that LogDB writes, one at a time, and check the effect."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from logdb.log.engine import ENGINES
from tests.damage import embedded, servers
from tests.harness.progress import showing_progress


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.damage",
        description=(
            "Flip bits in every file of an embedded database and of the servers of a cluster, cut it off, zero a part "
            "of it, extend it. Each must end with all that was there, with an error that names the file, or with a map "
            "that is rebuilt: never with a wrong answer, another error, or a dead process."
        ),
    )
    parser.add_argument("--samples", type=int, default=200, help="of each kind, for each file (default: %(default)s)")
    parser.add_argument("--servers", type=int, default=50, help="for each role of a server (default: %(default)s)")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="of the cluster (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="default: random")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    logging.getLogger("logdb").setLevel(logging.CRITICAL)
    count, case = 0, "none yet"
    with tempfile.TemporaryDirectory() as folder, showing_progress(Console(stderr=True)) as tell:
        try:
            sound = embedded.make(Path(folder) / "sound")
            for case in embedded.check(sound, Path(folder), options.seed, options.samples):
                count += 1
                tell(f"{count:,} damaged files: {case}")
            for case in servers.check(Path(folder) / "servers", options.seed, options.servers, options.engine):
                count += 1
                tell(f"{count:,} damaged files: {case}")
        except embedded.Served as problem:
            print(problem)
            return 1
    print(f"{count:,} damaged files, none of them did harm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
