"""An hour of all operations at once: whether memory, disk use and latency stay level.

Two threads read, write, scan, delete and run transactions on a set of keys that stays as large as it is, while versions
are compacted as they age: in a database of this process, or through a server or a cluster of three nodes, whose
memory is looked at then. With a cold tier (`cold`, and the cluster), which may grow and is not counted, a thread reads
versions that only the tier has, and appends to a named log that keeps its entries for a while.

All three go up and down with the overlay, its checkpoints and compactions, so peaks are compared. The second half of
the run is cut into `WINDOWS`; each has the highest memory and disk, and the median of the 99th percentiles that
its samples have for each kind of operation. A series of windows grows if both hold: the Mann-Kendall test says
that chance is excluded (`MIN_Z`: one-sided, p < 0.01), and its slope after Theil and Sen (the median of those between
any two windows) makes it more than `MAX_GROWTH` larger over that half.

The overlay may grow to 128 MiB, which takes longer than a short run: its filling would look like growth and hide what
is. So it gets `OVERLAY_BYTES` in this process, fills up and is emptied every few seconds, and what grows then is
something else.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import logdb
from benchmarks.clusters import Cluster, nodes_of
from benchmarks.counters import MIB, disk_bytes, memory
from benchmarks.fresh import key_of
from benchmarks.peers.ours import increment
from benchmarks.servers import START_S, ended
from benchmarks.servers.ours import launch
from benchmarks.workloads import GROUP_KEYS, HOT_KEYS, VALUE_BYTES
from logdb.embedded import EmbeddedBackend

WHERE: Final = ("embedded", "served", "cold", "cluster")
WITH_TIER: Final = ("cold", "cluster")
TIER: Final = "tier"
NODES: Final = 3
RETAINED_BYTES: Final = 1 << 20
COLD_PAUSE_S: Final = 0.05
ENTRY_BYTES: Final = 1_000
THREADS: Final = 2
COMPACTIONS: Final = 30
SAMPLES: Final = 600
WINDOWS: Final = 10
MIN_Z: Final = 2.326
MAX_GROWTH: Final = {"memory": 0.05, "disk": 0.1, "latency": 0.5}
OVERLAY_BYTES: Final = 16 << 20
BATCH_KEYS: Final = 1_000
TIMEOUT_S: Final = 60.0
MIX: Final = {
    "get": 400,
    "put": 250,
    "multi_get": 80,
    "multi_put": 70,
    "transaction": 120,
    "delete": 30,
    "scan": 50,
    "batch": 3,
}


class Sample(NamedTuple):
    """Seconds since the beginning, MiB of anonymous and of all resident memory, MiB on disk, and by kind of operation:
    the 99th percentile and the longest of those that ended since the sample before, in milliseconds."""

    at: float
    anonymous: float
    resident: float
    disk: float
    latency: dict[str, tuple[float, float]]


class Trend(NamedTuple):
    """`growth`: the relative growth of a series of windows; above `most` it counts. `z`: of the Mann-Kendall test."""

    title: str
    windows: list[float]
    growth: float
    z: float
    most: float

    @property
    def grows(self) -> bool:
        """Whether the series grows."""
        return self.z > MIN_Z and self.growth > self.most

    def __str__(self) -> str:
        verdict = "GROWS" if self.grows else "level"
        return (
            f"{self.title}: {self.windows[0]:.2f} to {self.windows[-1]:.2f} in the second half, slope"
            f" {self.growth:+.1%} (z = {self.z:.1f}; it grows above {self.most:.0%} and {MIN_Z}): {verdict}"
        )


class Mixed(NamedTuple):
    """Results of a run."""

    where: str
    minutes: float
    operations: dict[str, int]
    samples: list[Sample]

    @property
    def trends(self) -> list[Trend]:
        """Of the second half."""
        half = [sample for sample in self.samples if sample.at >= self.minutes * 30]
        size = max(len(half) // WINDOWS, 1)
        windows = [half[begin : begin + size] for begin in range(0, len(half) - size + 1, size)][:WINDOWS]
        found = [
            trend("anonymous memory, MiB", [max(each.anonymous for each in some) for some in windows], "memory"),
            trend("disk, MiB", [max(each.disk for each in some) for some in windows], "disk"),
        ]
        for kind in MIX:
            series = [[each.latency[kind][0] for each in some if kind in each.latency] for some in windows]
            if all(series):
                found.append(trend(f"p99 of {kind}, ms", [statistics.median(some) for some in series], "latency"))
        return found

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        trends = [{**trend._asdict(), "grows": trend.grows} for trend in self.trends]
        return {**self._asdict(), "samples": [sample._asdict() for sample in self.samples], "trends": trends}


def trend(title: str, windows: Sequence[float], of: str) -> Trend:
    """Judge a series."""
    pairs = [(later - earlier, other - one) for (earlier, one), (later, other) in combinations(enumerate(windows), 2)]
    count = len(windows)
    slope = statistics.median(rise / run for run, rise in pairs) if pairs else 0.0
    score = sum((rise > 0) - (rise < 0) for _, rise in pairs)
    deviation = (count * (count - 1) * (2 * count + 5) / 18) ** 0.5 or 1.0
    z = (score - 1) / deviation if score > 0 else (score + 1) / deviation if score < 0 else 0.0
    return Trend(title, list(windows), slope * (count - 1) / max(statistics.median(windows), 1e-9), z, MAX_GROWTH[of])


class Latencies:
    """Of the operations since the last look, in milliseconds."""

    def __init__(self) -> None:
        self._lock, self._took = threading.Lock(), defaultdict[str, list[float]](list)

    def add(self, kind: str, seconds: float) -> None:
        with self._lock:
            self._took[kind].append(seconds * 1000)

    def look(self) -> dict[str, tuple[float, float]]:
        """(99th percentile, longest) by kind since the last call."""
        with self._lock:
            took, self._took = self._took, defaultdict(list)
        found = {}
        for kind, values in took.items():
            values.sort()
            found[kind] = (round(values[int(len(values) * 0.99)], 4), round(values[-1], 4))
        return found


def run(where: str, path: Path, keys: int, minutes: float, progress: Callable[[str], None]) -> Mixed:
    """Run in a new database under `path`."""
    seconds, latencies = minutes * 60, Latencies()
    with _database(where, path) as (db, pids), ThreadPoolExecutor(THREADS + 2) as threads:
        for number in range(0, keys, BATCH_KEYS):
            batch = range(number, min(number + BATCH_KEYS, keys))
            db.multi_put({key_of(member): random.randbytes(VALUE_BYTES) for member in batch})
        stop = threading.Event()
        running = [threads.submit(work, db, keys, stop, latencies) for _ in range(THREADS)]
        running.append(threads.submit(compact, db, seconds / COMPACTIONS, stop))
        if where in WITH_TIER:
            running.append(threads.submit(read_cold, db, stop))
        begun, samples = time.monotonic(), list[Sample]()
        try:
            while (now := time.monotonic() - begun) < seconds and not any(future.done() for future in running):
                held, disk = [memory(pid) for pid in pids], disk_bytes(path) / MIB
                anonymous, resident = sum(each.anonymous for each in held), sum(each.all for each in held)
                samples.append(
                    Sample(round(now, 2), round(anonymous, 1), round(resident, 1), round(disk, 1), latencies.look())
                )
                progress(f"{where}: {now / 60:.1f} of {minutes:g} minutes, {anonymous:.0f} MiB, disk {disk:.0f} MiB")
                stop.wait(seconds / SAMPLES)
        finally:
            stop.set()
        operations = sum((future.result() for future in running), Counter[str]())
    return Mixed(where, minutes, dict(operations), samples)


@contextmanager
def _database(where: str, path: Path) -> Iterator[tuple[logdb.Database, Sequence[int]]]:
    """The database, and the processes whose memory it takes."""
    tier = path.with_name(TIER) if where in WITH_TIER else None
    if where == "cluster":
        shape = nodes_of("multipaxos", NODES)._replace(cold=str(tier))
        with Cluster(path, shape) as cluster, logdb.connect(cluster.endpoints, timeout=TIMEOUT_S) as db:
            yield db, cluster.pids()["node"]
    elif where == "served":
        process, address = launch(path)
        try:
            with _connected(address, process) as db:
                yield db, [process.pid]
        finally:
            ended(process)
    else:
        host = EmbeddedBackend.open(path, read_only=False, create=True, overlay_bytes=OVERLAY_BYTES, cold=tier)
        with logdb.Database(host) as db:
            yield db, [os.getpid()]


def _connected(address: str, process: subprocess.Popen[bytes]) -> logdb.Database:
    """A client, once the server answers. Raises Unavailable if it does not."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return logdb.connect(address, timeout=TIMEOUT_S)
        except logdb.Unavailable:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def work(db: logdb.Database, keys: int, stop: threading.Event, latencies: Latencies) -> Counter[str]:
    """Run random operations one after another until `stop` is set; returns the number of each kind."""
    done: Counter[str] = Counter()
    draw = random.Random()
    kinds, weights = list(MIX), list(MIX.values())
    while not stop.is_set():
        (kind,) = draw.choices(kinds, weights)
        key = key_of(draw.randrange(HOT_KEYS, keys))
        group = [key_of(draw.randrange(HOT_KEYS, keys)) for _ in range(BATCH_KEYS if kind == "batch" else GROUP_KEYS)]
        value = draw.randbytes(VALUE_BYTES)
        begun = time.perf_counter()
        if kind == "get":
            db.get(key)
        elif kind == "put":
            db.put(key, value)
        elif kind == "multi_get":
            db.multi_get(group)
        elif kind in ("multi_put", "batch"):
            db.multi_put(dict.fromkeys(group, value))
        elif kind == "transaction":
            db.run(increment, key_of(draw.randrange(HOT_KEYS)))
        elif kind == "delete":
            db.delete(key)
        else:
            for _row in db.scan(key, limit=100):
                pass
        latencies.add(kind, time.perf_counter() - begun)
        done[kind] += 1
    return done


def compact(db: logdb.Database, every_s: float, stop: threading.Event) -> Counter[str]:
    """Compact periodically; each compaction keeps the versions written since the one before it."""
    done: Counter[str] = Counter()
    before = db.version
    while not stop.wait(every_s):
        newest = db.version
        db.compact(before)
        before = newest
        done["compaction"] += 1
    return done


def read_cold(db: logdb.Database, stop: threading.Event) -> Counter[str]:
    """Read old versions and append to a log with retention until `stop` is set; returns the number of each."""
    done: Counter[str] = Counter()
    draw = random.Random()
    log = db.log("aging", retention=logdb.Retention(size_bytes=RETAINED_BYTES))
    while not stop.wait(COLD_PAUSE_S):
        log.append(draw.randbytes(ENTRY_BYTES))
        done["append"] += 1
        version = draw.randrange(db.version)
        db.at(version).get(key_of(draw.randrange(HOT_KEYS)))
        done["old get"] += 1
        if done["append"] % 100 == 0:
            db.sweep()
            done["sweep"] += 1
    return done
