"""A short sample of the stress command, on this machine's loopback: kills and pauses, without a violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdb.log.engine import ENGINES
from tests.nemesis.run import Round, Setting, Tally
from tests.nemesis.servers import Loopback

SINGLE = Setting(ordering=0, think_ms=10, gap_s=0.3)
SMALL = [
    Setting(engine, ordering=1, aggregators=0, storage=3, reserve=3, shards=1, clients=1, think_ms=10, gap_s=0.3)
    for engine in ENGINES
]
IDS = ["a single server", *(f"a small cluster of {engine}" for engine in ENGINES)]


@pytest.mark.parametrize("setting", [SINGLE, *SMALL], ids=IDS)
def test_kills_and_pauses(setting: Setting, tmp_path: Path) -> None:
    tally = Tally()
    Round(Loopback(tmp_path), setting, seed=4, tally=tally, report=print).run(faults=4)
    assert tally.problems == []
    assert sum(tally.faults.values()) == 4
    assert tally.commits > 0
