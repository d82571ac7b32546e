"""Whole clusters under fresh seeds, and the planted bugs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.sim.command import fresh_base
from tests.sim.faults import FAULTS, OPERATIONS
from tests.sim.planted import CAUGHT_BY, PLANTED, TRIES, catch
from tests.sim.run import simulate
from tests.sim.workload import WEIGHTS

FRESH = 2_000
"""Seeds that nobody has run before. Any failure is replayed with the command that is printed.

`python -m tests.sim --seeds 50000` runs more, and asks that every rare thing happens as well (`OTHERS`).
"""
SAMPLED = 4
"""One planted bug in so many is tried here; `python -m tests.sim --planted all` tries all."""
ROOT = Path(__file__).resolve().parent.parent.parent


def test_fresh_seeds() -> None:
    base = fresh_base()
    print(f"seeds {base}..{base + FRESH - 1}")
    failed = []
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(2) as pool:
        for outcome in pool.map(simulate, range(base, base + FRESH), chunksize=20):
            counts.update(outcome.counts)
            if outcome.failure:
                failed.append(f"{outcome.failure}: python -m tests.sim --seed {outcome.seed}\n{outcome.detail[:2000]}")
    assert not failed, f"{len(failed)} seeds failed:\n" + "\n\n".join(failed[:5])
    assert [name for name in (*FAULTS, *OPERATIONS, *WEIGHTS) if not counts[name]] == []


def test_a_seed_is_the_same_run_in_another_process_whatever_its_hash_seed() -> None:
    for seed in range(1, 4):
        told = subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seed", str(seed), "--digest"],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": "7"},
        )
        assert told.stdout.strip() == simulate(seed, exact=True).digest


def test_there_are_planted_bugs_enough() -> None:
    assert len(PLANTED) >= 20
    assert set(CAUGHT_BY) == set(PLANTED)


@pytest.mark.parametrize("name", sorted(PLANTED)[::SAMPLED])
def test_a_planted_bug_is_caught(name: str) -> None:
    """By the seed that caught it before, or, when changes have given that another meaning, by another one."""
    _, outcome, tries = catch(name)
    assert outcome is not None, f"not within {TRIES} seeds"
    assert tries <= TRIES
