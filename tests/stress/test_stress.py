"""A short sample of the stress command."""

from __future__ import annotations

from pathlib import Path

from tests.stress.killing import run


def test_twenty_kills(tmp_path: Path) -> None:
    tally = run(tmp_path / "db", 20, seed=20)
    assert tally.problems == []
    assert tally.kills == 20
    assert tally.acknowledged > 0
    assert tally.checkpoints > 0
    assert tally.compactions > 0
