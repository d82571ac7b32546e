"""Opening a large database: its duration and memory, each time in a fresh process. `python -m benchmarks.fresh
DIRECTORY KEYS` is that process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import logdb
from benchmarks.peers.ours import LogDBCoroutines
from benchmarks.rounds import Scale
from benchmarks.workloads import VALUE_BYTES
from logdb.embedded.directory import Directory

CHECKOUT = Path(__file__).parent.parent
WRITERS = 1_000
READS = 10_000


class Figure(NamedTuple):
    """A figure without a peer. `target` is its minimum, or with `at_most` its maximum."""

    name: str
    title: str
    unit: str
    values: list[float]
    target: float
    at_most: bool


def figures(root: Path, scale: Scale, progress: Callable[[str], None]) -> list[Figure]:
    """Open a database of many keys, each put by a commit of its own: behind a checkpoint, and without any."""
    keys, path = scale.many_keys, root / "many-keys"
    progress(f"loading {keys:,} keys")
    load(path, keys)
    progress("opening behind a checkpoint")
    checkpointed = [opened(path, keys) for _ in range(scale.openings)]
    replayed = []
    for number in range(scale.openings):
        progress(f"replaying from nothing, {number + 1} of {scale.openings}")
        shutil.rmtree(Directory.open(path, writable=False).map_path)
        replayed.append(opened(path, keys))
    took, mibs = [seconds for seconds, _ in checkpointed], [mib for _, mib in checkpointed]
    rates = [keys / seconds for seconds, _ in replayed]
    behind = f"{keys:,} keys behind a checkpoint"
    return [
        Figure("open", f"Open, {behind}", "s", took, 1.0, True),
        Figure("replay", "Replay from nothing", "commits/s", rates, 150_000, False),
        Figure("memory", f"Memory, {behind}", "MiB", mibs, 250, True),
    ]


def load(path: Path, keys: int) -> None:
    """Put this number of keys, and close the database with a checkpoint of all of them."""
    db = LogDBCoroutines(path)
    pairs = ((key_of(number), os.urandom(VALUE_BYTES)) for number in range(keys))
    while burst := list(islice(pairs, 20 * WRITERS)):
        db.put_each(burst, WRITERS)
    db.close()
    with logdb.open(path) as again:
        again.checkpoint()


def opened(path: Path, keys: int) -> tuple[float, float]:
    """(seconds that opening took, MiB of anonymous memory after it and some reads), in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.fresh", str(path.resolve()), str(keys)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=CHECKOUT)
    took, mib = json.loads(done.stdout)
    return took, mib


def anonymous_mib() -> float:
    """The anonymous memory of this process: what it allocated, without mapped files."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/smaps_rollup has no line 'Anonymous:'")


def key_of(number: int) -> bytes:
    return b"key-%012d" % number


def main(path: str, keys: int) -> None:
    """Print the result for `opened`, and end without closing the database, which would write a checkpoint."""
    begun = time.perf_counter()
    db = logdb.open(path, create=False)
    took = time.perf_counter() - begun
    for number in range(0, keys, max(keys // READS, 1)):
        assert db.get(key_of(number)) is not None
    print(json.dumps((took, anonymous_mib())), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
