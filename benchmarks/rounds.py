"""Interleaved measuring: every contestant has its turn in every round, so that drift of the machine hits all alike.

The order changes in each round, so that a periodic disturbance of the machine does not always hit the same contestant.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

Step = Callable[[], int]
"""Does a small amount of work, and returns the number of operations."""


class Scale(NamedTuple):
    """The scale of the measurements. `many_keys`: for the opening and the memory."""

    keys: int
    many_keys: int
    rounds: int
    turn_s: float
    openings: int


FULL = Scale(keys=100_000, many_keys=1_000_000, rounds=9, turn_s=0.4, openings=5)
QUICK = Scale(keys=500, many_keys=2_000, rounds=2, turn_s=0.005, openings=2)


class Spread(NamedTuple):
    """Median, minimum and maximum of some rounds."""

    median: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    """Median, minimum and maximum."""
    return Spread(statistics.median(values), min(values), max(values))


def interleaved(contestants: Mapping[str, Sequence[Step]], scale: Scale) -> dict[str, list[float]]:
    """Operations per second of each contestant in each round. A contestant has a step for each of its threads."""
    names, order = list(contestants), random.Random(20130101)
    rates: dict[str, list[float]] = {name: [] for name in names}
    with ThreadPoolExecutor(max(len(steps) for steps in contestants.values())) as threads:
        for turn in range(-1, scale.rounds):
            order.shuffle(names)
            for name in names:
                measured = rate(contestants[name], scale.turn_s, threads)
                if turn >= 0:  # the round before the first one only warms up
                    rates[name].append(measured)
    return rates


def rate(steps: Sequence[Step], seconds: float, threads: ThreadPoolExecutor) -> float:
    """Operations per second of steps repeated for `seconds`, each in a thread of its own if there are several."""
    if len(steps) == 1:
        begun = time.perf_counter()
        done = repeat(steps[0], begun + seconds)
    else:
        started: list[float] = []
        line = threading.Barrier(len(steps), lambda: started.append(time.perf_counter()))
        running = [threads.submit(repeat_from, line, started, step, seconds) for step in steps]
        done = sum(future.result() for future in running)
        begun = started[0]
    return done / (time.perf_counter() - begun)


def repeat_from(line: threading.Barrier, started: Sequence[float], step: Step, seconds: float) -> int:
    """As `repeat`, but begins when all threads have reached the barrier."""
    line.wait()
    return repeat(step, started[0] + seconds)


def repeat(step: Step, deadline: float) -> int:
    """Repeat the step until the deadline, once at least; returns the number of operations."""
    done, clock = step(), time.perf_counter
    while clock() < deadline:
        done += step()
    return done
