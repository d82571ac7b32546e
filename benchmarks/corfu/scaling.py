"""Appends and reads against the number of shards (Corfu's figure 7), and the sequencer's limit."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from benchmarks.clusters import Cluster, cpu_s
from benchmarks.corfu.effort import RECORD_BYTES, TIMEOUT_S, Effort, Progress
from benchmarks.corfu.positions import Take, positions_of
from logdb.log import connect, connect_async, requests
from logdb.log.requests import ShardState

CONNECTIONS: Final = 4


class Scaling(NamedTuple):
    """Records per second of appends and reads of single records, and what an append costs the servers (CPU us), by
    role."""

    engine: str
    shards: int
    appends_per_s: float
    reads_per_s: float
    cpu_us: dict[str, float]


class TokenRate(NamedTuple):
    """Positions per second of one client with several requests of `batch` positions under way, and the CPU time that
    one takes at the sequencer."""

    batch: int
    tokens_per_s: float
    cpu_us: float

    @property
    def limit_per_s(self) -> float:
        """Positions per second of a sequencer with a core of its own."""
        return 1e6 / max(self.cpu_us, 1e-3)


def scaling(clusters: Mapping[str, Cluster], effort: Effort, progress: Progress) -> list[Scaling]:
    """Clusters that begin with the fewest shards, and get more."""
    found = []
    for shards in effort.shards:
        for engine, cluster in clusters.items():
            progress(f"Appends and reads: {engine}, {shards} shards")
            with connect(cluster.endpoints, timeout=TIMEOUT_S) as log:
                live = [one for one in log.configuration().shards if one.state is ShardState.LIVE]
                cluster.add_shards(log, shards - len(live))
            found.append(asyncio.run(_scaling(cluster, shards, effort)))
    return found


async def _scaling(cluster: Cluster, shards: int, effort: Effort) -> Scaling:
    placed: list[tuple[int, int]] = []
    draw = random.Random(shards)
    async with AsyncExitStack() as stack:
        logs = [
            await stack.enter_async_context(await connect_async(cluster.endpoints, timeout=TIMEOUT_S))
            for _ in range(CONNECTIONS)
        ]

        async def append(log: Any) -> None:
            result = await log.call(requests.Append([(1, bytes(RECORD_BYTES))]))
            placed.append((result.gsns[0], result.shards[0]))

        async def read(log: Any) -> None:
            await log.read_record(*draw.choice(placed))

        for log in logs:
            await append(log)
        pids = cluster.pids()
        before = {role: cpu_s(ones) for role, ones in pids.items()}
        appends = await closed_loop(append, logs, effort.clients, effort.seconds)
        done = appends * effort.seconds
        cpu_us = {role: (cpu_s(ones) - before[role]) * 1e6 / done for role, ones in pids.items()}
        reads = await closed_loop(read, logs, effort.clients, effort.seconds)
    return Scaling(cluster.shape.engine, shards, appends, reads, cpu_us)


async def closed_loop(step: Callable[[Any], Awaitable[object]], logs: list[Any], clients: int, seconds: float) -> float:
    """Steps per second of coroutines that share connections and each do one after another."""
    done, begun = 0, time.perf_counter()

    async def client(log: Any) -> None:
        nonlocal done
        while not done or time.perf_counter() < begun + seconds:
            await step(log)
            done += 1

    await asyncio.gather(*[client(logs[number % len(logs)]) for number in range(clients)])
    return done / (time.perf_counter() - begun)


def token_rates(cluster: Cluster, effort: Effort, progress: Progress) -> list[TokenRate]:
    """The sequencer alone: no position is written."""
    progress("Tokens")
    return asyncio.run(_token_rates(cluster, effort))


async def _token_rates(cluster: Cluster, effort: Effort) -> list[TokenRate]:
    pids, found = cluster.pids()["sequencer"], []
    async with positions_of(cluster.endpoints) as client:
        for batch in effort.batches:
            before = cpu_s(pids)
            taken, seconds = await client.answer(Take(batch, effort.pipelined, effort.seconds))
            cpu_us = (cpu_s(pids) - before) * 1e6 / len(taken)
            found.append(TokenRate(batch, len(taken) / seconds, cpu_us))
    return found
