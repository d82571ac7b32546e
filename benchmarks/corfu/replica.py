"""A process with a replica of a machine that executes commands at a given rate, and then queries.

`python -m benchmarks.corfu.replica` reads a `Commands` as a line of JSON, prints "ready" when its replica runs, begins
at the next line, and prints an `Executed` as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import logdb.smr
from benchmarks.corfu.effort import TIMEOUT_S

COMMAND: Final = (sys.executable, "-m", "benchmarks.corfu.replica")
COMMAND_BYTES: Final = 512
TICK_S: Final = 0.005
QUERIES: Final = 16
"""Queries under way."""


class Commands(NamedTuple):
    """`rate` commands per second for `seconds`, and then queries for as long."""

    endpoints: str
    rate: float
    seconds: float


class Executed(NamedTuple):
    """Per second: commands of all replicas that this one has executed, and queries of its own."""

    commands_per_s: float
    queries_per_s: float


class Counter:
    """A machine that counts its commands."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, command: bytes, time_ns: int) -> bytes:
        """One more."""
        self.count += 1
        return b""

    def snapshot(self) -> bytes:
        """The number."""
        return self.count.to_bytes(8)

    def restore(self, snapshot: bytes) -> None:
        """Reverses `snapshot`."""
        self.count = int.from_bytes(snapshot)


def updates(replica: logdb.smr.Replica[Counter], machine: Counter, load: Commands) -> float:
    """Commands executed here per second while commands are submitted. Returns when all have been executed."""
    begun, before = time.monotonic(), machine.count
    submitted: list[Future[bytes]] = []
    while (now := time.monotonic()) < begun + load.seconds:
        due = int((now - begun) * load.rate) + 1 - len(submitted)
        submitted += [replica.submit(bytes(COMMAND_BYTES)) for _ in range(due)]
        time.sleep(TICK_S)
    executed = (machine.count - before) / (time.monotonic() - begun)
    for future in submitted:
        future.result()
    return executed


def queries(replica: logdb.smr.Replica[Counter], seconds: float) -> float:
    """Linearizable queries per second."""
    under_way: deque[Future[Any]] = deque()
    done, begun = 0, time.monotonic()
    while not done or time.monotonic() < begun + seconds:
        while len(under_way) < QUERIES:
            under_way.append(replica.ask(lambda machine: machine.count))
        under_way.popleft().result()
        done += 1
    rate = done / (time.monotonic() - begun)
    for future in under_way:
        future.result()
    return rate


def main() -> None:
    """Run one replica."""
    load = Commands(*json.loads(sys.stdin.readline()))
    machine = Counter()
    with logdb.smr.connect(load.endpoints, machine, timeout=TIMEOUT_S) as replica:
        replica.query(lambda one: one.count)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(Executed(updates(replica, machine, load), queries(replica, load.seconds))))


if __name__ == "__main__":
    main()
