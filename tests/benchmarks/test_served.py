"""The benchmark of servers runs, with the installed ones; timings are not checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import served
from benchmarks.__main__ import main
from benchmarks.servers import COUNTER_BYTES, incremented, is_installed
from benchmarks.servers.ours import LogDB


class Absent(LogDB):
    """A server that is not installed."""

    name = "Absent"
    program = "logdb-no-such-program"


def test_a_quick_run_measures_installed_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "SERVERS", (LogDB, Absent))
    done = CliRunner().invoke(main, ["served", "--quick", "--json", "--dir", tmp_path, "--to", tmp_path / "to"])
    assert done.exit_code == 0, (done.output, done.exception)
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "to/served.json").read_text())
    assert results["absent"] == ["Absent"]
    found = {(each["workload"], each["clients"], each["server"]) for each in results["measured"]}
    assert found == {(workload, clients, "LogDB") for workload in served.WORKLOADS for clients in served.CLIENTS}
    assert all(rate > 0 for each in results["measured"] for rate in each["rates"])
    assert "Absent was not installed." in (tmp_path / "to/served.md").read_text()
    assert (tmp_path / "to/served.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the databases were left behind"


def test_a_missed_target_is_reported() -> None:
    rates = {"LogDB": [3.0, 4.0], "etcd": [2.0, 1.0]}
    results = served.Results([served.Measured("put", 64, name, values) for name, values in rates.items()], [])
    assert results.cells()[1][3:] == ("2", "2.75 (1.50 to 4.00)", "at least 2", "yes")
    results.measured[0].rates[:] = [2.0, 2.0]
    assert results.cells()[1][-1] == "NO"


def test_the_peers_named_in_targets_exist() -> None:
    names = {kind.name for kind in served.SERVERS}
    for workload, clients, peer in served.TARGETS:
        assert workload in served.WORKLOADS
        assert clients in served.CLIENTS
        assert peer in names
    assert is_installed(LogDB.program)
    assert not is_installed(Absent.program)
    assert incremented(bytes(COUNTER_BYTES) + b"rest") == bytes(COUNTER_BYTES - 1) + b"\x01rest"
