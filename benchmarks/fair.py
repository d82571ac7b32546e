"""Latency of one client beside others that request as much as they may, and alone, in turns of the same run. The other
clients run in a separate process, so that their own work does not slow the measured client.

At the single-node server the client puts beside others that scan everything (`measure`). In a cluster one coroutine
increments hot keys beside 16 others that increment the same keys (`measure_hot_keys`).
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

import logdb.aio
from benchmarks.servers import COUNTER_BYTES, incremented
from benchmarks.servers.ours import LogDB
from logdb.errors import ConflictError
from logdb.wire.database_codec import MESSAGE_OPTIONS, METHOD, PROTOCOL
from logdb.wire.proto import database_pb2 as pb
from tests.harness.ports import free_ports

KEYS: Final = 100_000
SCANS: Final = 600
"""Number of scans in one message of a greedy client, each of all keys."""
START_S: Final = 1.0
"""Time until a new process has started."""
HOT_KEYS: Final = [b"hot-%d" % number for number in range(10)]
BUSY: Final = 16
"""Number of coroutines beside the measured one."""
LAYOUTS: Final = {"nodes": ("--nodes", "3"), "processes": ()}
"""Options of `logdb cluster up`: three equal nodes, or a process for each server."""


class Scale(NamedTuple):
    """How much is measured."""

    rounds: int
    turn_s: float
    keys: int


FULL = Scale(rounds=5, turn_s=4.0, keys=KEYS)
QUICK = Scale(rounds=1, turn_s=0.2, keys=1_000)


class Waited(NamedTuple):
    """Seconds that each small put took, by the clients that ran beside it."""

    alone: list[float]
    beside_readers: list[float]
    beside_sleepers: list[float]

    def lines(self) -> list[str]:
        """For people."""

        def line(beside: str, seconds: list[float]) -> str:
            ms = sorted(1000 * each for each in seconds)
            median, late = statistics.median(ms), ms[len(ms) * 99 // 100]
            return f"{beside}: {len(ms):,} puts, median {median:.1f} ms, p99 {late:.0f} ms, worst {ms[-1]:.0f} ms"

        return [
            line("alone", self.alone),
            line("beside 3 streams of scans that are read", self.beside_readers),
            line("beside 3 streams of scans whose client does not read", self.beside_sleepers),
        ]


def _be_greedy(address: str, reads: bool) -> None:
    """Run three clients that scan everything repeatedly, in a separate process until it is killed."""

    async def main() -> None:
        await asyncio.gather(*[_ask_for_all(address, number, reads) for number in range(1, 4)])

    asyncio.run(main())


async def _ask_for_all(address: str, client: int, reads: bool) -> None:
    channel: Any = grpc.aio.insecure_channel(address, [*MESSAGE_OPTIONS, ("grpc.use_local_subchannel_pool", 1)])
    stream: Any = channel.stream_stream(METHOD)()
    hello = pb.Hello(protocol=PROTOCOL, release="greedy", client=client, timeout_ms=1_000)
    await stream.write(pb.Requests(hello=hello).SerializeToString())
    await stream.read()
    scans = pb.Requests(requests=[pb.Request(id=number, scan=pb.Scan()) for number in range(1, SCANS + 1)])
    while True:
        await stream.write(scans.SerializeToString())
        left = SCANS
        while left:
            if not reads:
                await asyncio.sleep(3600)
            left -= len(pb.Responses.FromString(await stream.read()).responses)


async def _puts(db: logdb.aio.Database, seconds: float, into: list[float]) -> None:
    ends = time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < ends:
        number += 1
        begun = time.perf_counter()
        await db.put(b"put-%d" % (number % 100), bytes(100))
        into.append(time.perf_counter() - begun)
        await asyncio.sleep(0.002)


def measure(directory: Path, scale: Scale, progress: Callable[[str], object]) -> Waited:
    """Measure a server of its own in `directory`."""
    return asyncio.run(_measure(directory, scale, progress))


async def _measure(directory: Path, scale: Scale, progress: Callable[[str], object]) -> Waited:
    server, waited = LogDB(), Waited([], [], [])
    await server.start(directory / "fair")
    try:
        async with await logdb.aio.connect(server.address, timeout=60) as db:
            for at in range(0, scale.keys, 1_000):
                await db.multi_put({b"key-%08d" % number: bytes(100) for number in range(at, at + 1_000)})
            for turn in range(scale.rounds):
                progress(f"round {turn + 1} of {scale.rounds}")
                await _puts(db, scale.turn_s, waited.alone)
                for into, reads in ((waited.beside_readers, True), (waited.beside_sleepers, False)):
                    greedy = get_context("spawn").Process(target=_be_greedy, args=(server.address, reads))
                    greedy.start()
                    await _puts(db, START_S, [])
                    await _puts(db, scale.turn_s, into)
                    greedy.kill()
                    greedy.join()
    finally:
        await server.stop()
    return waited


class Increments(NamedTuple):
    """The increments of one coroutine in all rounds together: the seconds and the attempts of each, and how many
    failed after `run`'s last attempt. `others_per_s`: increments of the coroutines beside it."""

    seconds: list[float]
    attempts: list[int]
    failed: int
    others_per_s: float

    def line(self, beside: str, took_s: float) -> str:
        """For people."""
        if not self.seconds:
            return f"{beside}: no increment, {self.failed} failed; the others {self.others_per_s:,.0f}/s"
        ms = sorted(1000 * each for each in self.seconds)
        median, late = statistics.median(ms), ms[len(ms) * 99 // 100]
        return (
            f"{beside}: {len(ms) / took_s:,.0f}/s, median {median:.1f} ms, p99 {late:.0f} ms, worst {ms[-1]:.0f} ms;"
            f" attempts {statistics.mean(self.attempts):.2f} on average, at most"
            f" {max(self.attempts)}; {self.failed} failed; the others {self.others_per_s:,.0f}/s"
        )


class HotKeys(NamedTuple):
    """The increments of one coroutine by what ran beside it, each in `took_s` seconds. `missing`: acknowledged
    increments that the counters do not hold."""

    took_s: float
    alone: Increments
    beside_own: Increments
    beside_process: Increments
    missing: int

    def lines(self) -> list[str]:
        """For people."""
        return [
            self.alone.line("alone", self.took_s),
            self.beside_own.line(f"beside {BUSY} coroutines of its process", self.took_s),
            self.beside_process.line(f"beside {BUSY} coroutines of another process", self.took_s),
            f"acknowledged increments that are missing: {self.missing}",
        ]


def measure_hot_keys(
    directory: Path, layout: str, engine: str, scale: Scale, progress: Callable[[str], object]
) -> HotKeys:
    """Measure a cluster of its own in `directory`. `layout`: of `LAYOUTS`."""
    with _cluster(directory / "cluster", layout, engine) as endpoints:
        return asyncio.run(_measure_hot_keys(endpoints, scale, progress))


@contextmanager
def _cluster(directory: Path, layout: str, engine: str) -> Iterator[str]:
    port = next(free_ports())
    command = [sys.executable, "-P", "-m", "logdb_cli", "cluster"]
    up = [*command, "up", *LAYOUTS[layout], "--engine", engine, "--port", str(port), "--dir", str(directory), "--json"]
    try:
        started = subprocess.run(up, check=True, stdout=subprocess.PIPE, text=True).stdout
        yield json.loads(started.splitlines()[-1])["endpoints"]
    finally:
        subprocess.run([*command, "down", "--dir", str(directory)], check=True, stdout=subprocess.DEVNULL)


async def _measure_hot_keys(endpoints: str, scale: Scale, progress: Callable[[str], object]) -> HotKeys:
    measured = {beside: Increments([], [], 0, 0.0) for beside in ("alone", "beside_own", "beside_process")}
    spawn, counted = get_context("spawn"), 0
    async with await logdb.aio.connect(endpoints) as db:
        await db.multi_put(dict.fromkeys(HOT_KEYS, bytes(100)))
        for turn in range(scale.rounds):
            progress(f"round {turn + 1} of {scale.rounds}")
            for beside, so_far in measured.items():
                done = spawn.Value("Q", 0)
                process = None
                busy: list[asyncio.Task[None]] = []
                if beside == "beside_own":
                    busy = [asyncio.create_task(_increment_always(db, done)) for _ in range(BUSY)]
                elif beside == "beside_process":
                    process = spawn.Process(target=_be_busy, args=(endpoints, done))
                    process.start()
                    while not done.value:
                        await asyncio.sleep(0.05)
                before, begun = done.value, time.perf_counter()
                failed = await _increments(db, begun + scale.turn_s, so_far.seconds, so_far.attempts)
                rate = (done.value - before) / (time.perf_counter() - begun)
                measured[beside] = so_far._replace(
                    failed=so_far.failed + failed, others_per_s=so_far.others_per_s + rate / scale.rounds
                )
                counted += done.value
                if process is not None:
                    process.kill()
                    process.join()
                for task in busy:
                    task.cancel()
                await asyncio.gather(*busy, return_exceptions=True)
        values = (await db.multi_get(HOT_KEYS)).values()
        held = sum(int.from_bytes(value[:COUNTER_BYTES], "big") for value in values)
    counted += sum(len(each.seconds) for each in measured.values())
    return HotKeys(scale.rounds * scale.turn_s, **measured, missing=max(0, counted - held))


async def _increments(db: logdb.aio.Database, end: float, seconds: list[float], attempts: list[int]) -> int:
    """Increment hot keys one after another until the time `end`. Returns how many increments failed."""
    failed = 0
    while (begun := time.perf_counter()) < end:
        tries = count(1)
        try:
            await db.run(_increment, random.choice(HOT_KEYS), tries)
        except ConflictError:
            failed += 1
        else:
            seconds.append(time.perf_counter() - begun)
            attempts.append(next(tries) - 1)
    return failed


async def _increment(txn: logdb.aio.Transaction, key: bytes, tries: Iterator[int]) -> None:
    next(tries)
    value = await txn.get(key)
    assert value is not None
    txn.put(key, incremented(value))


async def _increment_always(db: logdb.aio.Database, done: Any) -> None:
    tries = count()
    while True:
        try:
            await db.run(_increment, random.choice(HOT_KEYS), tries)
        except ConflictError:
            continue
        with done.get_lock():
            done.value += 1


def _be_busy(endpoints: str, done: Any) -> None:
    """Increment hot keys in many coroutines, in a separate process until it is killed."""

    async def main() -> None:
        async with await logdb.aio.connect(endpoints) as db:
            await asyncio.gather(*[_increment_always(db, done) for _ in range(BUSY)])

    asyncio.run(main())
