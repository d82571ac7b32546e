"""Updates and reads of one object: a shard of its own in vScalog, a materialized stream in vCorfu (dissertation 3.5.5,
vScalog)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from benchmarks.clusters import Cluster, Shape
from benchmarks.corfu.effort import CORFU, RECORD_BYTES, SCALOG, TIMEOUT_S, Effort, Progress
from benchmarks.corfu.scaling import CONNECTIONS, closed_loop
from benchmarks.corfu.stores import median_ms
from logdb.log import connect_async, requests

VSCALOG: Final = "vscalog"
VCORFU: Final = "vcorfu"
PLAIN: Final = "corfu"
STREAM: Final = 1
SHARD: Final = 1
ONE_SHARD: Final = {
    VSCALOG: Shape(storage=2, failures=1, engine=SCALOG, policy="remove-and-replace"),
    PLAIN: Shape(storage=2, sequencer=1, failures=1, engine=CORFU),
    VCORFU: Shape(storage=2, sequencer=1, failures=0, engine=CORFU),
}
"""Two copies of each record on any of them. The second server of vCorfu is a stream replica."""


class OneObject(NamedTuple):
    """An object, by system. `update_ms`, `read_ms`: medians of one client; a linearizable read gets the newest version.
    Per second: updates and reads of many clients, and the object's records when all are read in order."""

    system: str
    update_ms: float
    updates_per_s: float
    read_ms: float
    reads_per_s: float
    replayed_per_s: float


class Access:
    """How one system updates and reads an object. `last`: the position of its newest version that is known."""

    def __init__(self, system: str) -> None:
        self.system, self.last = system, 0

    async def update(self, log: Any) -> None:
        """Append a version."""
        record = [(1, bytes(RECORD_BYTES))]
        if self.system == VCORFU:
            gsns = await log.append_to_streams(record, [STREAM])
        else:
            gsns, _ = await log.append_to_shard(record, SHARD)
        self.last = max(self.last, gsns[0])

    async def read(self, log: Any) -> None:
        """The newest version: the end of the stream, or the tail of the log and the record."""
        if self.system == VCORFU:
            batch = await log.read_stream(STREAM, self.last)
            assert batch.records, "the newest record of the stream is missing"
        else:
            await log.tail()
            await log.read_record(self.last, SHARD)

    async def replay(self, log: Any) -> int:
        """All versions, in order; their number."""
        if self.system != VCORFU:
            return await _shard(log, self.last)
        number, first = 0, 1
        while (batch := await log.read_stream(STREAM, first)).records:
            number, first = number + len(batch.records), batch.end
        return number


async def _shard(log: Any, last: int) -> int:
    """The number of records of a shard up to `last`."""
    subscription = await log.call(requests.Subscribe(1, shard=SHARD))
    number, end = 0, 0
    while end <= last:
        batch = await log.call(requests.Next(subscription))
        number, end = number + len(batch.records), batch.end
    await log.call(requests.Close(subscription))
    return number


def one_object(system: str, cluster: Cluster, effort: Effort, progress: Progress) -> OneObject:
    """Measure a system."""
    progress(f"One object: {system}")
    return asyncio.run(_one_object(system, cluster.endpoints, effort))


async def _one_object(system: str, endpoints: str, effort: Effort) -> OneObject:
    access = Access(system)
    async with AsyncExitStack() as stack:
        logs = [
            await stack.enter_async_context(await connect_async(endpoints, timeout=TIMEOUT_S))
            for _ in range(CONNECTIONS)
        ]
        if system == VCORFU:
            await logs[0].add_stream_shard()
        for log in logs:
            await access.update(log)

        def alone(step: Callable[[Any], Awaitable[object]]) -> Callable[[object], Awaitable[object]]:
            return lambda _: step(logs[0])

        update_ms = await median_ms(alone(access.update), effort.seconds)
        updates = await closed_loop(access.update, logs, effort.clients, effort.seconds)
        read_ms = await median_ms(alone(access.read), effort.seconds)
        reads = await closed_loop(access.read, logs, effort.clients, effort.seconds)
        begun = time.perf_counter()
        replayed = await access.replay(logs[0]) / (time.perf_counter() - begun)
    return OneObject(system, update_ms, updates, read_ms, reads, replayed)
