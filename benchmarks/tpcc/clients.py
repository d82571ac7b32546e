"""A client process of TPC-C: `python -m benchmarks.tpcc.clients DATABASE ADDRESS WAREHOUSES WAREHOUSE SEED`.

For each line of its input, a number of seconds, it runs transactions for so long without thinking, and prints how many
of each kind with the CPU time that this process has used.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter

from benchmarks.tpcc.servers import terminal
from benchmarks.tpcc.workload import Inputs, Scale


def main(database: str, address: str, scale: str, warehouse: str, seed: str) -> None:
    """See the module."""
    connection = terminal(database, address)
    inputs = Inputs(Scale(*json.loads(scale)), int(warehouse), random.Random(int(seed)))
    print("ready", flush=True)
    for line in sys.stdin:
        begun, used, done = time.perf_counter(), time.process_time(), Counter[str]()
        while time.perf_counter() - begun < float(line):
            done[inputs.run_one(connection)] += 1
        print(json.dumps([done, time.process_time() - used]), flush=True)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
