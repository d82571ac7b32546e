"""The parts of the measurement. The engines take turns, so that the drift of the machine hits all alike."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, Final, NamedTuple

import logdb.aio
from benchmarks.bare import Bare
from benchmarks.clusters import Cluster, Shape, nodes_of
from benchmarks.counted import counting
from benchmarks.steps import Processes, Steps, Window, steps_of, window
from benchmarks.ziplog.driver import Drivers, Inserts, Load, run
from benchmarks.ziplog.epochs import EpochCost, epoch_cost
from logdb.errors import ConflictError
from logdb.log import connect, connect_async
from logdb.log.requests import ShardState

Progress = Callable[[str], object]

ZIPLOG: Final = "ziplog"
SCALOG: Final = "scalog"
ENGINES: Final = (ZIPLOG, SCALOG, "multipaxos")
HOT_KEYS: Final = [b"hot-%d" % number for number in range(10)]
BUCKET_S: Final = 0.25
"""Width of the steps of the throughput through a failure."""
ENOUGH: Final = 0.7
"""This share of the throughput before a failure counts as restored: the rate of a step varies."""


class Effort(NamedTuple):
    """How much is measured. `rates`: inserts per second of a shard; `gaps_s`: mean times between two inserts of one
    client; `clients`: of a shard, `programs`: of the database; `shards`: that an MMS has; `seconds`: of each point;
    `reads`: of single records; `ordering`: replicas that order."""

    commit_rounds: int
    commits: int
    clients: tuple[int, ...]
    rates: tuple[int, ...]
    gaps_s: tuple[float, ...]
    access_rate: int
    failure_s: float
    programs: tuple[int, ...]
    rounds: int
    shards: tuple[int, ...]
    seconds: float
    reads: int
    ordering: int


FULL: Final = Effort(
    commit_rounds=10,
    commits=30,
    clients=(1, 4, 16),
    rates=(50, 200, 800),
    gaps_s=(0.005, 0.05, 0.2),
    access_rate=100,
    failure_s=10.0,
    programs=(1, 2, 4, 8, 16, 32),
    rounds=2,
    shards=(2, 20, 100, 200),
    seconds=3.0,
    reads=200,
    ordering=3,
)
QUICK: Final = Effort(
    commit_rounds=1,
    commits=5,
    clients=(1,),
    rates=(50,),
    gaps_s=(0.05,),
    access_rate=40,
    failure_s=2.0,
    programs=(2,),
    rounds=1,
    shards=(2, 20),
    seconds=0.5,
    reads=10,
    ordering=1,
)


class Commits(NamedTuple):
    """A commit alone, by engine, and a bare message and a bare sync in the same rounds (us)."""

    steps: dict[str, Steps]
    message_us: float
    sync_us: float

    def ratio(self, engine: str) -> float:
        """The time of Ziplog's commit by that of another engine."""
        return self.steps[ZIPLOG].median_us / self.steps[engine].median_us


class ShardPoint(NamedTuple):
    """A shard under a load. `fast_share`: of Ziplog's inserts, 1 for other engines."""

    engine: str
    clients: int
    offered: float
    inserts_per_s: float
    mean_ms: float
    median_ms: float
    fast_share: float


class Access(NamedTuple):
    """Sequential access latency: from the call of an insert until a subscriber of all shards has the record (ms)."""

    engine: str
    gap_s: float
    records: int
    mean_ms: float
    median_ms: float
    p99_ms: float


class Changed(NamedTuple):
    """The sequential access latency of two shards (median, ms) before the rate of the first one changes by `factor`, in
    the first half second after that, and later."""

    factor: float
    before_ms: tuple[float, float]
    soon_ms: tuple[float, float]
    later_ms: tuple[float, float]


class Failure(NamedTuple):
    """Inserts per second in steps of `BUCKET_S` before and after what happened at `happened_s`. `silence_s`: the
    longest time without a record for a subscriber of all shards; `restored_s`: until nearly as many inserts ended as
    before, 0 if there were never fewer. `failed`: inserts whose outcome is unknown; `unread`: records that no
    subscriber got."""

    engine: str
    offered: float
    happened_s: float
    rates: list[float]
    silence_s: float
    restored_s: float
    failed: int
    unread: int


class Reading(NamedTuple):
    """A record alone (median, ms), and records per second of a subscriber of old ones."""

    engine: str
    read_ms: float
    subscribed_per_s: float


class Increments(NamedTuple):
    """Increments of ten keys by clients that each run one transaction after another."""

    engine: str
    clients: int
    commits_per_s: float
    abort_rate: float


class Measured(NamedTuple):
    """Everything."""

    commits: Commits
    points: list[ShardPoint]
    access: list[Access]
    changed: list[Changed]
    failures: list[Failure]
    reconfigured: Failure
    reads: list[Reading]
    increments: list[Increments]
    epochs: list[EpochCost]


def measure(path: Path, effort: Effort, progress: Progress) -> Measured:
    """Measure all parts, one after another."""
    alone, of_programs = on_nodes(path / "nodes", effort, progress)
    points = shard_points(path / "shard", effort, progress)
    waits: list[Access] = []
    found: list[Reading] = []
    failures: list[Failure] = []
    for engine in (ZIPLOG, SCALOG):
        with Cluster(path / engine, two_shards(engine, effort)) as cluster:
            waits += [access(cluster, gap, effort, progress) for gap in effort.gaps_s]
            if engine == ZIPLOG:
                of_rates = [changed(cluster, factor, effort, progress) for factor in (1.5, 0.5)]
            found.append(reading(cluster, effort, progress))
            if engine == ZIPLOG:
                reconfigured = reconfiguration(cluster, effort, progress)
            failures.append(failure(cluster, effort, progress))
    epochs = [epoch_cost(shards) for shards in effort.shards]
    return Measured(alone, points, waits, of_rates, failures, reconfigured, found, of_programs, epochs)


# ---- three nodes


def on_nodes(path: Path, effort: Effort, progress: Progress) -> tuple[Commits, list[Increments]]:
    """Commits of one client, one after another, on three nodes of each engine; and increments by many."""
    progress("A commit alone")
    with counting() as mine, ExitStack() as stack:
        processes = {}
        for engine in ENGINES:
            counts = path / engine / "counts"
            counts.mkdir(parents=True)
            serve = sys.executable, "-m", "benchmarks.counted", str(counts)
            cluster = stack.enter_context(Cluster(path / engine, nodes_of(engine, 3), serve=serve))
            processes[engine] = Processes(cluster, counts, mine)
        alone = asyncio.run(_commits(path, processes, effort))
        endpoints = {engine: processes[engine].endpoints for engine in (ZIPLOG, SCALOG)}
        return alone, asyncio.run(_increments(endpoints, effort, progress))


async def _put(db: logdb.aio.Database, number: int) -> None:
    await db.put(b"key-%d" % number, bytes(100))


async def _commits(path: Path, processes: Mapping[str, Processes], effort: Effort) -> Commits:
    bare, messages, syncs = Bare(path), [], []
    windows: dict[str, list[Window]] = {engine: [] for engine in processes}
    order, draw = list(processes), random.Random(1)
    for turn in range(-1, effort.commit_rounds):
        draw.shuffle(order)
        for engine in order:
            async with await logdb.aio.connect(processes[engine].endpoints) as db:
                await db.put(b"key-0", bytes(100))
                found = await window(processes[engine], effort.commits, partial(_put, db))
            if turn >= 0:  # the round before the first one only warms up
                windows[engine].append(found)
        messages.append(await bare.message_us())
        syncs.append(bare.sync_us())
    await bare.close()
    steps = {engine: steps_of("A commit", ones, processes[engine]) for engine, ones in windows.items()}
    return Commits(steps, median(messages), median(syncs))


# ---- one shard


def one_shard(engine: str, effort: Effort) -> Shape:
    """One shard of two servers, or replicas."""
    if engine == "multipaxos":
        return Shape(ordering=0, storage=0, replica=effort.ordering, engine=engine)
    return Shape(ordering=effort.ordering, storage=2, failures=1, engine=engine)


def shard_points(path: Path, effort: Effort, progress: Progress) -> list[ShardPoint]:
    """Ziplog with each number of clients, and the others with one client, at each rate."""
    points = []
    with ExitStack() as stack:
        endpoints = {
            engine: stack.enter_context(Cluster(path / engine, one_shard(engine, effort))).endpoints
            for engine in ENGINES
        }
        for rate in effort.rates:
            for engine, clients in [(ZIPLOG, count) for count in effort.clients] + [(one, 1) for one in ENGINES[1:]]:
                progress(f"A shard: {engine}, {clients} clients, {rate}/s")
                points.append(_shard_point(engine, endpoints[engine], clients, rate, effort.seconds))
    return points


def _shard_point(engine: str, endpoints: str, clients: int, rate: float, seconds: float) -> ShardPoint:
    processes = min(clients, 4)
    loads = {
        str(number): Load(endpoints, clients // processes, rate / processes, seconds, seed=number + 1)
        for number in range(processes)
    }
    found = list(run(loads).values())
    done = [one for inserts in found for one in inserts.done]
    took = [one.took_s * 1e3 for one in done]
    ended = max([one.begun + one.took_s for one in done]) - min([one.begun for one in done])
    fast = 1 - sum([inserts.slow for inserts in found]) / len(done)
    return ShardPoint(engine, clients, rate, len(done) / ended, mean(took), median(took), fast)


# ---- sequential access


def two_shards(engine: str, effort: Effort) -> Shape:
    """Two shards of two servers each, and spares for one that fails and for a third shard."""
    return Shape(ordering=effort.ordering, storage=7, failures=1, shards=2, engine=engine)


def access(cluster: Cluster, gap_s: float, effort: Effort, progress: Progress) -> Access:
    """Clients that insert after irregular times, as many as make the same rate; one subscriber of all shards."""
    engine, rate = cluster.shape.engine, effort.access_rate
    progress(f"Sequential access: {engine}, {gap_s * 1e3:.0f} ms between inserts")
    clients = max(1, round(rate * gap_s))
    first = Load(cluster.endpoints, clients, rate, effort.seconds + 2 * gap_s, shard=1, gap_s=gap_s)
    inserts, read = _followed(cluster, {"1": first, "2": first._replace(shard=2, seed=2)})
    waits = [(read[one.gsn] - one.begun) * 1e3 for ones in inserts.values() for one in ones.done if one.gsn in read]
    return Access(engine, gap_s, len(waits), mean(waits), median(waits), _p99(waits))


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[-1] if len(values) > 1 else values[0]


def _followed(
    cluster: Cluster, loads: Mapping[str, Load], then: Callable[[], object] = lambda: None
) -> tuple[dict[str, Inserts], dict[int, float]]:
    """Run loads beside a subscriber. `then` is called in a thread when they begin. Returns (inserts, when each record
    was read)."""
    drivers = Drivers(loads)
    try:
        return asyncio.run(_follow(cluster.endpoints, drivers, then))
    finally:
        drivers.close()


async def _follow(
    endpoints: str, drivers: Drivers, then: Callable[[], object]
) -> tuple[dict[str, Inserts], dict[int, float]]:
    read: dict[int, float] = {}
    async with await connect_async(endpoints) as log:
        subscription = await log.subscribe(await log.tail() + 1)

        async def subscriber() -> None:
            async for batch in subscription:
                now = time.monotonic()
                for record in batch.records:
                    read[record.gsn] = now

        reading = asyncio.create_task(subscriber())
        drivers.start()
        _, found = await asyncio.gather(asyncio.to_thread(then), asyncio.to_thread(drivers.results))
        last = max([one.gsn for inserts in found.values() for one in inserts.done])
        deadline = time.monotonic() + 10
        while last not in read and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return found, read


def changed(cluster: Cluster, factor: float, effort: Effort, progress: Progress) -> Changed:
    """Two shards with the same rate; the rate of the first one changes."""
    progress(f"Sequential access: the rate of a shard changes by {factor}")
    rate, half = float(effort.access_rate), max(effort.seconds, 2.0)
    first = Load(cluster.endpoints, 1, rate, half, shard=1, gap_s=1 / rate)
    then = first._replace(rate=rate * factor, gap_s=1 / rate / factor, begins_s=half, seed=2)
    loads = {"1": first, "1 then": then, "2": first._replace(shard=2, seconds=2 * half, seed=3)}
    inserts, read = _followed(cluster, loads)
    done = [one for ones in inserts.values() for one in ones.done]
    begun = min([one.begun for one in done])
    phases: list[list[list[float]]] = [[[], []], [[], []], [[], []]]
    for one in done:
        at = one.begun - begun
        phase = 0 if at < half else 1 if at < half + 0.5 else 2
        if one.gsn in read and at > half / 4:
            phases[phase][one.shard - 1].append((read[one.gsn] - one.begun) * 1e3)
    before, soon, later = [(median(a or [0.0]), median(b or [0.0])) for a, b in phases]
    return Changed(factor, before, soon, later)


# ---- a failure


def failure(cluster: Cluster, effort: Effort, progress: Progress) -> Failure:
    """kill -9 of the primary of one of two shards, with a spare server, beside clients of all shards."""
    progress(f"A storage server is killed: {cluster.shape.engine}")
    with connect(cluster.endpoints) as log:
        shard = next(one for one in log.configuration().shards if one.state is ShardState.LIVE)
    name = next(name for name, address in cluster.addresses.items() if address == shard.members[0].address)
    return _timeline(cluster, effort, [lambda: cluster.kill(name)])


def reconfiguration(cluster: Cluster, effort: Effort, progress: Progress) -> Failure:
    """A third shard is added, and one of the first two finalized."""
    progress("A shard is added, and another one finalized")
    with connect(cluster.endpoints) as log:
        return _timeline(cluster, effort, [log.add_shard, lambda: log.finalize_shard(1)])


def _timeline(cluster: Cluster, effort: Effort, steps: Sequence[Callable[[], object]]) -> Failure:
    """Inserts of two processes; after a quarter of the time the first step, and the others after a quarter each."""
    rate, happened = 2.0 * effort.access_rate, 0.0

    def happen() -> None:
        nonlocal happened
        for step in steps:
            time.sleep(effort.failure_s / 4)
            happened = happened or time.monotonic()
            step()

    loads = {str(number): Load(cluster.endpoints, 4, rate / 2, effort.failure_s, seed=number) for number in range(2)}
    inserts, read = _followed(cluster, loads, happen)
    done = [one for ones in inserts.values() for one in ones.done]
    begun = min([one.begun for one in done])
    counts = Counter([int((one.begun + one.took_s - begun) / BUCKET_S) for one in done])
    rates = [counts[at] / BUCKET_S for at in range(round(effort.failure_s / BUCKET_S))]
    at_event = int((happened - begun) / BUCKET_S)
    least = ENOUGH * mean(rates[:at_event] or rates[:1])
    behind = next((at for at in range(at_event, len(rates)) if rates[at] < least), None)
    restored_s = 0.0
    if behind is not None:
        restored = next((at for at in range(behind, len(rates)) if rates[at] >= least), len(rates))
        restored_s = (restored - at_event) * BUCKET_S
    moments = sorted([happened, *(at for at in read.values() if at > happened)])
    silence_s = max([later - earlier for earlier, later in pairwise(moments)], default=effort.failure_s)
    unread = sum([one.gsn not in read for one in done])
    failed = sum([ones.failed for ones in inserts.values()])
    return Failure(cluster.shape.engine, rate, happened - begun, rates, silence_s, restored_s, failed, unread)


# ---- reading


def reading(cluster: Cluster, effort: Effort, progress: Progress) -> Reading:
    """Records that all members have, by one client: each alone, and all in order."""
    progress(f"Reads: {cluster.shape.engine}")
    return asyncio.run(_reading(cluster, effort))


async def _reading(cluster: Cluster, effort: Effort) -> Reading:
    async with await connect_async(cluster.endpoints) as log:
        gsns: list[int] = []
        for _ in range(20):
            gsns += (await log.append_to_shard([(1, bytes(100))] * effort.reads, 1))[0]
        took_ms = []
        for gsn in random.Random(1).sample(gsns, effort.reads):
            begun = time.perf_counter()
            await log.read_record(gsn, 1)
            took_ms.append((time.perf_counter() - begun) * 1e3)
        begun, number = time.perf_counter(), 0
        subscription = await log.subscribe(gsns[0])
        while number < len(gsns):
            batch = await subscription.poll(10)
            assert batch is not None, "the log ends early"
            number += len(batch.records)
        return Reading(cluster.shape.engine, median(took_ms), number / (time.perf_counter() - begun))


# ---- the database


async def _increments(endpoints: Mapping[str, str], effort: Effort, progress: Progress) -> list[Increments]:
    found = []
    for clients in effort.programs:
        counts = {engine: [0, 0] for engine in endpoints}
        for _ in range(effort.rounds):
            for engine in endpoints:
                progress(f"Increments: {engine}, {clients} clients")
                for at, number in enumerate(await _increment_for(endpoints[engine], clients, effort.seconds)):
                    counts[engine][at] += number
        seconds = effort.rounds * effort.seconds
        found += [
            Increments(engine, clients, done / seconds, aborted / max(1, done + aborted))
            for engine, (done, aborted) in counts.items()
        ]
    return found


async def _increment_for(endpoints: str, clients: int, seconds: float) -> tuple[int, int]:
    """(committed, aborted) of clients with a connection each."""
    done = aborted = 0

    async def client(db: logdb.aio.Database, draw: random.Random, end: float) -> None:
        nonlocal done, aborted
        while time.perf_counter() < end:
            key = draw.choice(HOT_KEYS)
            try:
                async with db.transaction() as txn:
                    txn.put(key, b"%d" % (int(await txn.get(key, b"0")) + 1))
            except ConflictError:
                aborted += 1
            else:
                done += 1

    dbs: list[Any] = [await logdb.aio.connect(endpoints) for _ in range(clients)]
    try:
        for db in dbs:
            await db.get(HOT_KEYS[0])
        end = time.perf_counter() + seconds
        await asyncio.gather(*[client(db, random.Random(at), end) for at, db in enumerate(dbs)])
    finally:
        for db in dbs:
            await db.close()
    return done, aborted
