"""Transactions of many keys on nodes of each engine: multi-put and multi-get (dissertation, figures 3.7 and 3.8)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import logdb.aio
from benchmarks.clusters import Cluster, nodes_of
from benchmarks.corfu.effort import TIMEOUT_S, Effort, Progress
from benchmarks.corfu.scaling import closed_loop
from logdb.log.engine import ENGINES

VALUE_BYTES: Final = 4088
"""With a key of 8 bytes a record of 4 KB, as in the dissertation."""
CLIENTS: Final = 8


class MultiKey(NamedTuple):
    """Of transactions with `keys` keys each: the median of one client (ms), and how many several do per second."""

    engine: str
    keys: int
    put_ms: float
    puts_per_s: float
    get_ms: float
    gets_per_s: float


def multi_keys(path: Path, effort: Effort, progress: Progress) -> list[MultiKey]:
    """The engines by turns, all on equal nodes."""
    progress("Nodes of all engines")
    with ExitStack() as stack:
        endpoints = {
            engine: stack.enter_context(Cluster(path / engine, nodes_of(engine, effort.nodes))).endpoints
            for engine in ENGINES
        }
        return asyncio.run(_multi_keys(endpoints, effort, progress))


async def _multi_keys(endpoints: Mapping[str, str], effort: Effort, progress: Progress) -> list[MultiKey]:
    found = []
    async with AsyncExitStack() as stack:
        dbs = {
            engine: await stack.enter_async_context(await logdb.aio.connect(one, timeout=TIMEOUT_S))
            for engine, one in endpoints.items()
        }
        most = max(effort.keys)
        for db in dbs.values():
            for first in range(0, 4 * most, most):
                await db.multi_put(_pairs(range(first, first + most)))
        for keys in effort.keys:
            for engine, db in dbs.items():
                progress(f"Transactions of {keys} keys: {engine}")
                found.append(await _multi_key(engine, db, keys, effort))
    return found


def _pairs(numbers: Any) -> dict[bytes, bytes]:
    return {number.to_bytes(8): bytes(VALUE_BYTES) for number in numbers}


async def _multi_key(engine: str, db: logdb.aio.Database, keys: int, effort: Effort) -> MultiKey:
    draw, among = random.Random(keys), range(4 * max(effort.keys))

    async def put(_: object) -> None:
        await db.multi_put(_pairs(draw.sample(among, keys)))

    async def get(_: object) -> None:
        got = await db.multi_get([number.to_bytes(8) for number in draw.sample(among, keys)])
        assert len(got) == keys

    half = effort.seconds / 2
    return MultiKey(
        engine,
        keys,
        await median_ms(put, half),
        await closed_loop(put, [db], CLIENTS, half),
        await median_ms(get, half),
        await closed_loop(get, [db], CLIENTS, half),
    )


async def median_ms(step: Callable[[object], Awaitable[object]], seconds: float) -> float:
    """Of one client that does one after another."""
    took, begun = list[float](), time.perf_counter()
    while not took or time.perf_counter() < begun + seconds:
        started = time.perf_counter()
        await step(None)
        took.append((time.perf_counter() - started) * 1e3)
    return median(took)
