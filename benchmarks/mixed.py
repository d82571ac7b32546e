"""A mixed run that goes on for minutes, to see whether the memory of the process grows.

Two threads read, write, scan, delete and run transactions on a set of keys that stays as large as it is, while versions
are compacted as they age. Memory goes up and down with the overlay and its checkpoints, so its peaks are compared:
those of the last third of the run with those of the middle one. The first third is for warming up.

The overlay may grow to 128 MiB, which takes longer than a run: its filling would look like growth and hide what is. So
it gets `OVERLAY_BYTES` here, fills up and is emptied every few seconds, and what grows then is something else.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import logdb
from benchmarks.fresh import anonymous_mib, key_of
from benchmarks.peers.ours import increment
from benchmarks.workloads import GROUP_KEYS, HOT_KEYS, VALUE_BYTES
from logdb.embedded import EmbeddedHost

THREADS = 2
COMPACTIONS = 30
SAMPLES = 300
MOST_GROWTH = 1.1
OVERLAY_BYTES = 16 << 20


class Mixed(NamedTuple):
    """`samples`: (seconds since the beginning, MiB of anonymous memory). `growth`: last peak / middle peak."""

    minutes: float
    operations: dict[str, int]
    samples: list[tuple[float, float]]
    growth: float

    @property
    def grows(self) -> bool:
        return self.growth > MOST_GROWTH


def run(path: Path, keys: int, minutes: float, progress: Callable[[str], None]) -> Mixed:
    """Run in a new database under `path`."""
    seconds = minutes * 60
    host = EmbeddedHost.open(path, read_only=False, create=True, overlay_bytes=OVERLAY_BYTES)
    with logdb.Database(host) as db, ThreadPoolExecutor(THREADS + 1) as threads:
        for number in range(keys):
            if number % 1_000 == 0:
                batch = range(number, min(number + 1_000, keys))
                db.multi_put({key_of(member): random.randbytes(VALUE_BYTES) for member in batch})
        over = threading.Event()
        running = [threads.submit(work, db, keys, over) for _ in range(THREADS)]
        running.append(threads.submit(compact, db, seconds / COMPACTIONS, over))
        begun, samples = time.monotonic(), []
        try:
            while (now := time.monotonic() - begun) < seconds and not any(future.done() for future in running):
                samples.append((round(now, 3), anonymous_mib()))
                progress(f"{now / 60:.1f} of {minutes:g} minutes, {samples[-1][1]:.0f} MiB")
                over.wait(seconds / SAMPLES)
        finally:
            over.set()
        operations = sum((future.result() for future in running), Counter[str]())
    return Mixed(minutes, dict(operations), samples, growth(samples, seconds))


def growth(samples: list[tuple[float, float]], seconds: float) -> float:
    """The highest memory of the last third over the highest of the middle third."""
    middle = [mib for when, mib in samples if seconds / 3 <= when < seconds * 2 / 3]
    last = [mib for when, mib in samples if when >= seconds * 2 / 3]
    return max(last) / max(middle)


def work(db: logdb.Database, keys: int, over: threading.Event) -> Counter[str]:
    """One operation after another, drawn at random, until it is over; returns how many there were of each."""
    done: Counter[str] = Counter()
    draw = random.Random()
    while not over.is_set():
        kind = draw.choices(("get", "put", "multi_get", "multi_put", "transaction", "delete", "scan"), MIX)[0]
        key = key_of(draw.randrange(HOT_KEYS, keys))
        group = [key_of(number) for number in draw.sample(range(HOT_KEYS, keys), GROUP_KEYS)]
        value = draw.randbytes(VALUE_BYTES)
        if kind == "get":
            db.get(key)
        elif kind == "put":
            db.put(key, value)
        elif kind == "multi_get":
            db.multi_get(group)
        elif kind == "multi_put":
            db.multi_put(dict.fromkeys(group, value))
        elif kind == "transaction":
            db.run(increment, key_of(draw.randrange(HOT_KEYS)))
        elif kind == "delete":
            db.delete(key)
        else:
            for _row in db.scan(key, limit=100):
                pass
        done[kind] += 1
    return done


MIX = (40, 25, 8, 7, 12, 3, 5)


def compact(db: logdb.Database, every_s: float, over: threading.Event) -> Counter[str]:
    """Keep what was written since the compaction before the last, again and again."""
    done: Counter[str] = Counter()
    before = db.version
    while not over.wait(every_s):
        newest = db.version
        db.compact(before)
        before = newest
        done["compaction"] += 1
    return done
