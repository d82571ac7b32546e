"""A second engine needs only a folder and its name in `ENGINES` (`logdb/log/engine.py`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.ports import free_addresses

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EXPECTED = """\
['ordering', 'storage', 'aggregator', 'replica', 'sequencer', 'keeper', 'mapping', 'node']
counter keeper 1
[1, 2] 2
2 [('k1', 'keeper', 'leads')]
[3]
[3, 4] 4
4 [('k1', 'keeper', 'leads')]
[5]
b:1 runs the log counter, a:1 runs scalog: they must have the same `engine` in their cluster.toml
3: engine must be one of "scalog", "multipaxos", "ziplog", "corfu", "counter"; it is 'none'
4: step must be a number from 1 to 1,000; it is 0
3: policy is not a key of [cluster]; its keys are checkpoint_mib, checkpoint_s, cold, compact_above, data, decide_ms, \
engine, keep_decisions, name, shards, step, sweep_ms
"""


def test_an_engine_is_a_folder_and_a_name(tmp_path: Path) -> None:
    """Commands, the cluster file, a server with a disk, its metrics, a client, the status, and mistakes."""
    port = next(free_addresses()).rpartition(":")[2]
    command = [sys.executable, "-m", "tests.log.engines.run", tmp_path, port]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == EXPECTED, done.stderr
