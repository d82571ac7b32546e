"""Starts the busy process, kills it, and checks its acknowledgements."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import logdb
from logdb.api.inspection import audit, verify
from tests.stress.busy import ACCOUNTS, COROUTINES, EACH, PADDING, SLOTS, THREADS, open_small

ROOT = Path(__file__).resolve().parent.parent.parent
LONGEST_LIFE_S = 0.4
WORKERS = range(THREADS + COROUTINES)


@dataclass
class Tally:
    """Counts over all kills."""

    kills: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    checkpoints: int = 0
    compactions: int = 0
    slowest_opening_s: float = 0.0
    problems: list[str] = field(default_factory=list)


def run(path: Path, kills: int, seed: int, progress: Callable[[int, int, Tally], None] | None = None) -> Tally:
    """Kill the busy process `kills` times over one directory."""
    random, tally = Random(seed), Tally()
    counters = dict.fromkeys(WORKERS, 0)
    for done in range(1, kills + 1):
        promised = one_life(path, random, tally)
        tally.kills += 1
        for worker, number in promised.items():
            tally.acknowledged += max(number - counters[worker], 0)
        check(path, promised, counters, tally)
        if progress is not None:
            progress(done, kills, tally)
        if tally.problems:
            break
    tally.problems += [f"verify: {damage}" for damage in verify(path).damage]
    outcome = audit(path)
    if outcome.difference is not None:
        tally.problems.append(f"audit: {outcome.difference}")
    return tally


def one_life(path: Path, random: Random, tally: Tally) -> dict[int, int]:
    """Let the busy process live for a moment. Returns the last number that it acknowledged for each worker."""
    command = [sys.executable, "-m", "tests.stress.busy", str(path), str(random.randrange(1 << 32))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        first = child.stdout.readline()
        time.sleep(random.uniform(0, LONGEST_LIFE_S))
        early = child.poll()
        child.kill()
        lines = child.stdout.read().decode().splitlines()
        complaint = child.stderr.read().decode()
    if first != b"open\n" or early is not None or complaint:
        tally.problems.append(f"the busy process failed by itself: {complaint or early}")
    promised: dict[int, int] = {}
    for line in lines:
        words = line.split()
        if words[0] == "checkpoint":
            tally.checkpoints += 1
        elif words[0] == "compaction":
            tally.compactions += 1
        else:
            worker, number = map(int, words)
            if number != promised.get(worker, number - 1) + 1:
                tally.problems.append(f"worker {worker} was told {number} after {promised[worker]}")
            promised[worker] = number
    return promised


def check(path: Path, promised: dict[int, int], counters: dict[int, int], tally: Tally) -> None:
    """Open the database and compare it with what was acknowledged; `counters` moves on to what is there now."""
    started = time.monotonic()
    with open_small(path) as db:
        tally.slowest_opening_s = max(tally.slowest_opening_s, time.monotonic() - started)
        tally.problems += [f"after kill {tally.kills}: {problem}" for problem in problems_of(db, promised, counters)]
        for worker in WORKERS:
            now = int(db.get(b"c/%d" % worker, b"0"))
            tally.unacknowledged += now - max(promised.get(worker, 0), counters[worker])
            counters[worker] = now


def problems_of(db: logdb.Database, promised: dict[int, int], before: dict[int, int]) -> list[str]:
    """The records that are lost, incomplete or duplicated."""
    problems = []
    state = dict(db.scan())
    for worker in WORKERS:
        count = int(state.get(b"c/%d" % worker, b"0"))
        if count < max(promised.get(worker, 0), before[worker]):
            problems.append(f"worker {worker}: {promised.get(worker)} was acknowledged, {count} is there")
        for number in range(max(count - SLOTS + 1, 1), count + 1):
            small = state.get(b"p/%d/%d" % (worker, number % SLOTS))
            large = state.get(b"q/%d/%d" % (worker, number % SLOTS))
            if (small, large) != (b"%d" % number, b"%d" % number + PADDING):
                seen = f"{small!r}, {(large or b'')[:9]!r}"
                problems.append(f"worker {worker}: transaction {number} is half there: {seen}")
    total = sum(int(state.get(b"account/%d" % account, EACH)) for account in range(ACCOUNTS))
    if total != ACCOUNTS * EACH:
        problems.append(f"the accounts hold {total} instead of {ACCOUNTS * EACH}")
    last: dict[bytes, int] = {}
    for item in db.watch(prefix=b"c/", since=db.oldest_version, timeout=0):
        for key, value in item.changes.items():
            number = int(value or b"0")
            if number != last.get(key, number - 1) + 1:
                problems.append(f"{key!r} goes from {last[key]} to {number} at version {item.version}")
            last[key] = number
    return problems
