"""Whole clusters under seeds that each change draws anew, and the planted bugs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.harness.planting import TRIES
from tests.sim.command import base_of_source
from tests.sim.engines import ENGINES, simulation_of
from tests.sim.planted import catch
from tests.sim.run import simulate
from tests.sim.workload import WEIGHTS

FRESH = 150
"""Number of fresh seeds. A failure is replayed with the command that is printed.

`python -m tests.sim --seeds 50000` runs more, and also requires every rare event to occur (`OTHERS`).
"""
FRESH_ON_NODES = 24
SAMPLED = 4
"""Every fourth planted bug is tried here; `python -m tests.sim --planted all` tries all."""
ENOUGH = 15
"""The minimum number of planted bugs of an engine."""
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("engine", ENGINES)
def test_fresh_seeds(engine: str) -> None:
    counts = run_fresh(engine, FRESH)
    faults = simulation_of(engine).Faults
    assert [name for name in (*faults.FAULTS, *faults.OPERATIONS, *WEIGHTS) if not counts[name]] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_fresh_seeds_on_nodes(engine: str) -> None:
    run_fresh(engine, FRESH_ON_NODES, "--nodes")


def run_fresh(engine: str, number: int, *options: str) -> Counter[str]:
    """Run so many seeds of this source code, none of which may fail. Returns how often each event occurred."""
    base = base_of_source()
    print(f"seeds {base}..{base + number - 1}")
    failed = []
    counts: Counter[str] = Counter()
    run = partial(simulate, engine=engine, nodes="--nodes" in options)
    with ProcessPoolExecutor(2) as pool:
        for outcome in pool.map(run, range(base, base + number), chunksize=20):
            counts.update(outcome.counts)
            if outcome.failure:
                again = " ".join(["python -m tests.sim --engine", engine, *options, "--seed", str(outcome.seed)])
                failed.append(f"{outcome.failure}: {again}\n{outcome.detail[:2000]}")
    assert not failed, f"{len(failed)} seeds failed:\n" + "\n\n".join(failed[:5])
    return counts


@pytest.mark.parametrize("engine", ENGINES)
def test_a_seed_gives_the_same_run_under_another_hash_seed(engine: str) -> None:
    for seed in range(1, 4):
        replayed = subprocess.run(
            [sys.executable, "-m", "tests.sim", "--engine", engine, "--seed", str(seed), "--digest"],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": "7"},
        )
        assert replayed.stdout.strip() == simulate(seed, engine, exact=True).digest


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_has_enough_planted_bugs(engine: str) -> None:
    own = simulation_of(engine)
    assert len(own.PLANTED) >= ENOUGH
    assert set(own.CAUGHT_BY) == set(own.PLANTED)


SAMPLE = [(engine, name) for engine in ENGINES for name in sorted(simulation_of(engine).PLANTED)[::SAMPLED]]


@pytest.mark.parametrize(("engine", "name"), SAMPLE)
def test_a_planted_bug_is_caught(engine: str, name: str) -> None:
    """The seed that caught it last runs first; the code may have changed what that seed does."""
    _, outcome, tries = catch(name, engine)
    assert outcome is not None, f"not within {TRIES} seeds"
    assert tries <= TRIES
