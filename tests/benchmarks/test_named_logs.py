"""The benchmark of named logs runs, with the servers that are installed; timings are not checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import named_logs
from benchmarks.__main__ import main

ABSENT = "logdb-no-such-program"


def test_a_quick_run_measures_the_installed_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_logs, "SUBSCRIBERS", 3)
    arguments = ["named-logs", "--quick", "--json", "--nats-server", ABSENT, "--dir", str(tmp_path)]
    done = CliRunner().invoke(main, [*arguments, "--to", str(tmp_path / "to")])
    assert done.exit_code == 0, (done.output, done.exception)
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "to/named-logs.json").read_text())
    assert "NATS JetStream" in results["absent"]
    assert "NATS JetStream was left out" in (tmp_path / "to/named-logs.md").read_text()
    figures = [each["figure"] for each in results["measured"] if each["server"] == "LogDB"]
    assert len(figures) == len(set(figures)) == 6
    assert all(value > 0 for each in results["measured"] for value in each["values"])
    assert (tmp_path / "to/named-logs.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the logs were left behind"
