"""A process with clients of a shared log that insert at given rates, whatever becomes of the inserts before.

`python -m benchmarks.ziplog.driver` reads a `Load` as a line of JSON, prints "ready" when its clients are connected,
begins at the next line, and prints an `Inserts` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from logdb.log import connect_async
from logdb.log.contract import LogFailed
from logdb.log.ziplog.client.inserts import InsertClient
from logdb.log.ziplog.messages import Inserted

COMMAND: Final = (sys.executable, "-m", "benchmarks.ziplog.driver")
ABANDONED_S: Final = 30.0
"""How long a process waits for its last inserts."""


class Load(NamedTuple):
    """The inserts of one process: `rate` per second by `clients` together, of `record_bytes` each, from `begins_s` on
    for `seconds`. `gap_s`: the time between two inserts of a client is uniform between 0 and twice this; 0: their
    moments are uniform in the whole time. `shard`: where they go, 0: anywhere."""

    endpoints: str
    clients: int
    rate: float
    seconds: float
    record_bytes: int = 100
    shard: int = 0
    gap_s: float = 0.0
    begins_s: float = 0.0
    seed: int = 1


class Insert(NamedTuple):
    """When it was called (`time.monotonic`), how long it took, and where the record is."""

    begun: float
    took_s: float
    gsn: int
    shard: int


class Inserts(NamedTuple):
    """`slow`: those that a backup had placed elsewhere than the primary; `failed`: the outcome is unknown."""

    done: list[Insert]
    slow: int
    failed: int

    @property
    def fast_share(self) -> float:
        """The share of inserts that ended with the first answers (Ziplog)."""
        return 1 - self.slow / max(1, len(self.done))


@contextmanager
def counting_corrections() -> Iterator[set[tuple[int, int]]]:
    """Yields the records for which a member has sent one GSN after another, as (client, number)."""
    corrected: set[tuple[int, int]] = set()
    gsns: dict[tuple[int, int, str], int] = {}
    inserted = InsertClient.inserted

    def counted(self: InsertClient, answer: Inserted, sender: str) -> None:
        for first, found in answer.placed:
            for number, gsn in enumerate(found, first):
                if gsns.setdefault((answer.client, number, sender), gsn) != gsn:
                    corrected.add((answer.client, number))
        inserted(self, answer, sender)

    InsertClient.inserted = counted  # type: ignore[method-assign]
    try:
        yield corrected
    finally:
        InsertClient.inserted = inserted  # type: ignore[method-assign]


def moments_of(load: Load, draw: random.Random) -> list[float]:
    """When one of its clients inserts, in seconds from the beginning."""
    each = load.rate / load.clients
    if not load.gap_s:
        number = max(1, round(each * load.seconds))
        return sorted(draw.uniform(0, load.seconds) for _ in range(number))
    moments = [draw.uniform(0, 2 * load.gap_s)]
    while moments[-1] < load.seconds:
        moments.append(moments[-1] + draw.uniform(0, 2 * load.gap_s))
    return moments[:-1] or [0.0]


async def _serve(load: Load) -> Inserts:
    done: list[Insert] = []
    failed = 0
    record = [(1, bytes(load.record_bytes))]

    async def insert(log: Any) -> None:
        nonlocal failed
        begun = time.monotonic()
        try:
            if load.shard:
                gsns, shard = await log.append_to_shard(record, load.shard, 0)
            else:
                gsns, shard = await log.append(record, 0), 0
        except LogFailed:
            failed += 1
        else:
            done.append(Insert(begun, time.monotonic() - begun, gsns[0], shard))

    async def client(log: Any, moments: Sequence[float], begun: float) -> None:
        under_way = []
        for moment in moments:
            await asyncio.sleep(max(0.0, begun + load.begins_s + moment - time.monotonic()))
            under_way.append(asyncio.create_task(insert(log)))
        await asyncio.gather(*under_way)

    with counting_corrections() as corrected:
        async with AsyncExitStack() as stack:
            logs = [
                await stack.enter_async_context(await connect_async(load.endpoints, timeout=ABANDONED_S))
                for _ in range(load.clients)
            ]
            for log in logs:
                await insert(log)
            done.clear()
            corrected.clear()
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            draw, begun = random.Random(load.seed), time.monotonic()
            await asyncio.gather(*[client(log, moments_of(load, draw), begun) for log in logs])
    return Inserts(done, len(corrected), failed)


class Drivers:
    """Running processes with their loads, by name. `start` begins all at once. `command`: reads a load as a line of
    JSON, prints "ready", begins at the next line, and prints its results as JSON."""

    def __init__(self, loads: Mapping[str, tuple[Any, ...]], command: Sequence[str] = COMMAND) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}
        with ExitStack() as stack:
            stack.callback(self.close)
            for name, load in loads.items():
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self._processes[name] = process
                self._send(process, json.dumps(load))
            for process in self._processes.values():
                assert process.stdout is not None
                if process.stdout.readline().strip() != "ready":
                    raise RuntimeError("a process with clients did not start")
            stack.pop_all()

    @staticmethod
    def _send(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

    def start(self) -> None:
        """Begin."""
        for process in self._processes.values():
            self._send(process, "")

    def results(self) -> dict[str, Inserts]:
        """The results of the loads, when all inserts have ended. Raises RuntimeError."""
        outputs = self.outputs()
        return {
            name: Inserts([Insert(*one) for one in done], slow, failed)
            for name, (done, slow, failed) in outputs.items()
        }

    def outputs(self) -> dict[str, Any]:
        """The results of each process as it has printed them, when all have ended. Raises RuntimeError."""
        found = {}
        for name, process in self._processes.items():
            output, _ = process.communicate()
            if process.returncode:
                raise RuntimeError(f"a process with clients ended with {process.returncode}")
            found[name] = json.loads(output)
        self._processes.clear()
        return found

    def close(self) -> None:
        """End those that still run."""
        for process in self._processes.values():
            process.kill()
            process.communicate()
        self._processes.clear()


def run(loads: Mapping[str, Load]) -> dict[str, Inserts]:
    """Run loads side by side, each in its process. Raises RuntimeError."""
    drivers = Drivers(loads)
    try:
        drivers.start()
        return drivers.results()
    finally:
        drivers.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_serve(Load(*json.loads(sys.stdin.readline()))))))
