"""The commands `large` and `fair` of the benchmarks, at their smallest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import large
from benchmarks.__main__ import main


def test_large_values_and_the_memory_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "SERVERS", (large.LogDB,))
    done = CliRunner().invoke(main, ["large", "--quick", "--json", "--dir", tmp_path, "--to", tmp_path / "to"])
    assert done.exit_code == 0, (done.output, done.exception)
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "to/large.json").read_text())
    (ours,) = results["figures"]
    assert ours["server"] == "LogDB"
    assert len(ours["puts"]) == len(ours["gets"]) == large.QUICK.rounds
    assert 0 < ours["anonymous_after"] <= ours["resident_after"] <= ours["peak"] + 1
    assert "| LogDB |" in (tmp_path / "to/large.md").read_text()
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the databases were left behind"


def test_puts_beside_greedy_clients(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["fair", "--quick", "--json", "--dir", tmp_path])
    assert done.exit_code == 0, (done.output, done.exception)
    waited = json.loads(done.stdout)
    assert all(waited[name] for name in ("alone", "beside_readers", "beside_sleepers"))
