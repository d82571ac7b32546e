"""TPC-C in one process: LogDB in a directory beside SQLite (WAL, synchronous=FULL), in turns, with 1 and 8 threads."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import logdb
from benchmarks.rounds import spread
from benchmarks.tpcc import logdb_terminal, sqlite_terminal
from benchmarks.tpcc.logdb_terminal import LogDBTerminal
from benchmarks.tpcc.sqlite_terminal import SqliteTerminal
from benchmarks.tpcc.workload import Inputs, Scale, Terminal

NAMES: Final = ("LogDB", "SQLite")


class Effort(NamedTuple):
    """How much is measured, with each number of threads."""

    scale: Scale
    threads: tuple[int, ...]
    rounds: int
    turn_s: float


FULL: Final = Effort(Scale(), threads=(1, 8), rounds=7, turn_s=3.0)
QUICK: Final = Effort(Scale(warehouses=1, customers=20, items=50, orders=10), threads=(1, 2), rounds=1, turn_s=0.2)


class Measured(NamedTuple):
    """Medians of the rounds with so many threads. `ratio`: of LogDB's rate to SQLite's."""

    threads: int
    rates: dict[str, float]
    cpu_ms: dict[str, float]
    ratio: float

    def line(self) -> str:
        """For people."""
        parts = [f"{name} {self.rates[name]:,.0f}/s, {self.cpu_ms[name]:.2f} ms of CPU each" for name in NAMES]
        return f"{self.threads} threads: {'; '.join(parts)}; LogDB to SQLite {self.ratio:.2f}"


class _Turn(NamedTuple):
    done: int
    seconds: float
    cpu_s: float


def measure(effort: Effort, directory: Path, progress: Callable[[str], object]) -> tuple[list[Measured], list[str]]:
    """(the figures, the consistency conditions that do not hold afterwards), in `directory`: on a real disk."""
    directory.mkdir(parents=True, exist_ok=True)
    progress("loading")
    sqlite = directory / "sqlite"
    sqlite_terminal.load(sqlite, effort.scale)
    with logdb.open(directory / "logdb") as db:
        logdb_terminal.load(db, effort.scale)
        most = max(effort.threads)
        terminals: dict[str, list[Terminal]] = {
            "LogDB": [LogDBTerminal(db) for _ in range(most)],
            "SQLite": [SqliteTerminal(sqlite) for _ in range(most)],
        }
        inputs = {name: _inputs(effort.scale, most) for name in NAMES}
        found = []
        for threads in effort.threads:
            turns: dict[str, list[_Turn]] = {name: [] for name in NAMES}
            for number in range(-1, effort.rounds):
                progress(f"{threads} threads, round {max(number, 0) + 1} of {effort.rounds}")
                for name in random.sample(NAMES, len(NAMES)):
                    turn = _turn(terminals[name][:threads], inputs[name], effort.turn_s)
                    if number >= 0:  # the round before the first one only warms up
                        turns[name].append(turn)
            found.append(_measured(threads, turns))
        for terminal in terminals["SQLite"]:
            terminal.close()
        return found, logdb_terminal.violations(db, effort.scale)


def _inputs(scale: Scale, count: int) -> list[Inputs]:
    return [Inputs(scale, number % scale.warehouses + 1, random.Random(number)) for number in range(count)]


def _turn(terminals: Sequence[Terminal], inputs: Sequence[Inputs], seconds: float) -> _Turn:
    begun, used = time.perf_counter(), time.process_time()

    def work(number: int) -> int:
        done = 0
        while time.perf_counter() - begun < seconds:
            inputs[number].run_one(terminals[number])
            done += 1
        return done

    with ThreadPoolExecutor(len(terminals)) as pool:
        done = sum(pool.map(work, range(len(terminals))))
    return _Turn(done, time.perf_counter() - begun, time.process_time() - used)


def _measured(threads: int, turns: dict[str, list[_Turn]]) -> Measured:
    rates = {name: [turn.done / turn.seconds for turn in turns[name]] for name in NAMES}
    return Measured(
        threads,
        {name: spread(rates[name]).median for name in NAMES},
        {name: spread([1000 * turn.cpu_s / max(turn.done, 1) for turn in turns[name]]).median for name in NAMES},
        spread([ours / max(theirs, 1e-9) for ours, theirs in zip(*rates.values(), strict=True)]).median,
    )
