"""Latency of small puts beside clients that request as much as they may, and alone, in turns of the same run. The
greedy clients run in a separate process, so that their own work does not slow the measured client.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

import logdb.aio
from benchmarks.servers.ours import LogDB
from logdb.wire.database_codec import MESSAGE_OPTIONS, METHOD, PROTOCOL
from logdb.wire.proto import database_pb2 as pb

KEYS: Final = 100_000
SCANS: Final = 600
"""Number of scans in one message of a greedy client, each of all keys."""
START_S: Final = 1.0
"""Time until a new process has started."""


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
