"""A steady load while shards come and go and servers fail (dissertation, figures 3.3 and 3.4), and holes of clients
that die with a token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.clusters import Cluster
from benchmarks.corfu.effort import CORFU, RECORD_BYTES, TIMEOUT_S, Effort, Progress
from benchmarks.corfu.positions import Fill, Learn, Take, positions_of
from benchmarks.timelines import WINDOW_S, Event, Step, Timeline
from benchmarks.ziplog.driver import Drivers, Inserts, Load
from logdb.clients.log_client import RemoteLog
from logdb.errors import Unavailable
from logdb.log import connect, connect_async, requests
from logdb.log.requests import ShardState

FILL_TIMEOUT_S: Final = 10.0
GRACE: Final = 10
"""Cuts between the announcement and the end of a shard, as in the dissertation (Scalog)."""


class Pauses(NamedTuple):
    """A timeline of appends, and when each one began and how long it took (s)."""

    engine: str
    timeline: Timeline
    took: list[tuple[float, float]]

    def calm_gap_s(self) -> float:
        """The longest time without an acknowledgement before anything happened."""
        first = min([event.happened for event in self.timeline.events])
        moments = [at for at in self.timeline.acked if at < first]
        return max([later - at for at, later in pairwise(moments)], default=first)

    def gap_s(self, what: str) -> float:
        """Likewise, during an event and shortly after it. Raises StopIteration."""
        return self.timeline.silence_s(self.event(what))

    def slowest_s(self, what: str) -> float:
        """The slowest append that was under way during the event, or began shortly after it."""
        event = self.event(what)
        end = event.done + WINDOW_S
        return max([took for at, took in self.took if at + took >= event.happened and at <= end], default=0.0)

    def event(self, what: str) -> Event:
        """The event. Raises StopIteration."""
        return next(event for event in self.timeline.events if event.what == what)


def reconfigurations(cluster: Cluster, effort: Effort, progress: Progress) -> Pauses:
    """A shard is added, another one finalized; and a server replaced, if the engine does that without a failure."""
    progress(f"Shards are added and finalized: {cluster.shape.engine}")
    with connect(cluster.endpoints, timeout=TIMEOUT_S) as log:
        first = _live(log)[0]
        steps: list[Step] = [
            ("shard added", log.add_shard),
            ("shard finalized", lambda: log.finalize_shard(first.shard, GRACE)),
        ]
        if cluster.shape.engine == CORFU:
            steps.append(("server replaced", lambda: log.replace_server(_live(log)[0].members[-1].server)))
        return _observed("Shards are added and finalized", cluster, steps, effort)


def failures(cluster: Cluster, effort: Effort, progress: Progress) -> Pauses:
    """kill -9 of the sequencer, or of the leader of the ordering layer, and later of a storage server."""
    progress(f"Servers are killed: {cluster.shape.engine}")
    names = {address: name for name, address in cluster.addresses.items()}
    with connect(cluster.endpoints, timeout=TIMEOUT_S) as log:
        view: Any = log.configuration()
        orders = names[view.sequencer] if cluster.shape.engine == CORFU else cluster.leader()
        stores = names[_live(log)[0].members[0].address]
    steps: list[Step] = [
        ("orderer killed", lambda: cluster.kill(orders)),
        ("storage server killed", lambda: cluster.kill(stores)),
    ]
    return _observed("Servers are killed", cluster, steps, effort)


def _live(log: RemoteLog) -> Sequence[Any]:
    return [one for one in log.configuration().shards if one.state is ShardState.LIVE]


def _observed(title: str, cluster: Cluster, steps: Sequence[Step], effort: Effort) -> Pauses:
    """Appends of several processes at a fixed rate; a step after each `step_s`."""
    happened: list[tuple[str, float, float]] = []
    seconds = effort.step_s * (len(steps) + 1)
    load = Load(cluster.endpoints, 4, effort.rate / effort.loads, seconds, record_bytes=RECORD_BYTES)
    drivers = Drivers({str(number): load._replace(seed=number) for number in range(effort.loads)})
    try:
        drivers.start()
        begun = time.monotonic()
        for number, (what, step) in enumerate(steps, 1):
            time.sleep(max(0.0, begun + number * effort.step_s - time.monotonic()))
            at = time.monotonic()
            step()
            happened.append((what, at, time.monotonic()))
        return _pauses(title, cluster.shape.engine, effort.rate, seconds, happened, list(drivers.results().values()))
    finally:
        drivers.close()


def _pauses(
    title: str,
    engine: str,
    offered: float,
    seconds: float,
    happened: Sequence[tuple[str, float, float]],
    results: Sequence[Inserts],
) -> Pauses:
    done = [one for inserts in results for one in inserts.done]
    begun = min([one.begun for one in done])
    events = [Event(what, at - begun, end - begun) for what, at, end in happened]
    issued = sorted([one.begun - begun for one in done])
    acked = sorted([one.begun + one.took_s - begun for one in done])
    failed = sum([inserts.failed for inserts in results])
    timeline = Timeline(f"{title} ({engine})", offered, max(seconds, acked[-1]), events, issued, acked, failed, 0)
    return Pauses(engine, timeline, [(one.begun - begun, one.took_s) for one in done])


# ---- holes


class Holes(NamedTuple):
    """Medians (ms). `read_ms`, `append_ms`, `fill_ms`: each alone. How long a subscriber waits for a record after the
    acknowledgement of its append: `delivered_ms`, and `waited_ms` behind a position whose client has died."""

    read_ms: float
    append_ms: float
    fill_ms: float
    delivered_ms: float
    waited_ms: float


def holes(cluster: Cluster, effort: Effort, progress: Progress) -> Holes:
    """Tokens without entries: their clients die before they write."""
    progress("Holes")
    return asyncio.run(_holes(cluster.endpoints, effort))


async def _holes(endpoints: str, effort: Effort) -> Holes:
    async with await connect_async(endpoints, timeout=TIMEOUT_S) as log, positions_of(endpoints) as dying:

        async def append() -> Any:
            return await log.call(requests.Append([(1, bytes(RECORD_BYTES))]))

        async def token() -> int:
            while True:
                await dying.answer(Learn())
                with suppress(Unavailable):  # another epoch has begun
                    (position,), _ = await dying.answer(Take(1))
                    return int(position)

        appended = [await append() for _ in range(effort.holes)]
        records = [(result.gsns[0], result.shards[0]) for result in appended]
        appends = [await _ms(append) for _ in range(effort.holes)]
        reads = [await _ms(partial(log.read_record, *record)) for record in records]
        fills = list[float]()
        while len(fills) < effort.holes:
            fill = partial(dying.answer, Fill(await token()))
            with suppress(TimeoutError):  # a new epoch assigns the position again, and nothing is filled
                async with asyncio.timeout(FILL_TIMEOUT_S):
                    fills.append(await _ms(fill))
        delivered = [await _delivery_ms(log, append) for _ in range(effort.holes)]
        waited = []
        for _ in range(effort.holes):
            await token()
            waited.append(await _delivery_ms(log, append))
    return Holes(median(reads), median(appends), median(fills), median(delivered), median(waited))


async def _ms(step: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    await step()
    return (time.perf_counter() - begun) * 1e3


async def _delivery_ms(log: Any, append: Callable[[], Any]) -> float:
    """From the acknowledgement of an append to its delivery. The subscription is a new one, since it waits longer after
    each hole that it has filled."""
    subscription = await log.subscribe(await log.tail() + 1)
    (gsn,) = (await append()).gsns
    begun = time.perf_counter()
    while True:
        batch = await subscription.poll(None)
        if any(record.gsn == gsn for record in batch.records):
            took = time.perf_counter() - begun
            await subscription.close()
            return took * 1e3
