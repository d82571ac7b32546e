"""A short sample of the stress command, on this machine's loopback: kills and pauses, and nothing may go wrong."""

from __future__ import annotations

from pathlib import Path

from tests.nemesis.run import Round, Setting, Tally
from tests.nemesis.servers import Loopback


def test_kills_and_pauses_of_a_single_server(tmp_path: Path) -> None:
    tally = Tally()
    setting = Setting(ordering=0, clients=2, think_ms=10, gap_s=0.3)
    Round(Loopback(tmp_path), setting, seed=4, tally=tally, say=print).run(faults=5)
    assert tally.problems == []
    assert sum(tally.faults.values()) == 5
    assert tally.commits > 20
