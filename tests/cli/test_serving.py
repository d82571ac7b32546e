"""`logdb serve`, and commands that ask a server: real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

from tests.cli.conftest import Run
from tests.harness.clusters import Cluster
from tests.harness.served import Served


def ask(*args: object, code: int = 0) -> str:
    """The output of `logdb ...`: stdout after success, else the one line of stderr."""
    result = CliRunner().invoke(cli, list(map(str, args)))
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert len(result.stderr.splitlines()) == (1 if code else 0), result.stderr
    return result.stderr if code else result.stdout


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    served = Served(tmp_path / "served")
    yield served.address
    served.close()


@pytest.fixture(params=["server", "cluster"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server of a directory, or any node of a cluster."""
    if request.param == "server":
        yield request.getfixturevalue("endpoint")
        return
    cluster = Cluster(tmp_path / "cluster", aggregators=0, mapping=1)
    cluster.start(1)
    yield cluster.configs["s1"].address
    cluster.close()


def serving(path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "logdb_cli", "serve", "--db", path, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_verbs_ask_servers(either: str, tmp_path: Path) -> None:
    endpoint = either
    assert ask("put", "--endpoints", endpoint, "a", "1") == "version 1\n"
    ask("--endpoints", endpoint, "multi-put", "b", "2", "c", "3", "--if-equals", "a", "1")
    assert ask("get", "a", "--endpoints", endpoint) == "1\n"
    assert ask("scan", "--endpoints", endpoint) == "a\t1\nb\t2\nc\t3\n"
    assert ask("multi-get", "--endpoints", endpoint, "a", "--at", "1") == "a\t1\n"
    assert "3 keys" in ask("export", "--endpoints", endpoint, "--to", tmp_path / "out.jsonl")
    ask("pin", "--endpoints", endpoint, "kept")
    assert json.loads(ask("pin", "--endpoints", endpoint, "--json"))["name"] == "kept"
    assert "covers version" in ask("checkpoint", "--endpoints", endpoint)
    script = tmp_path / "script"
    script.write_text("check a equals 1\nput d 4\n")
    assert ask("txn", "--endpoints", endpoint, script) == "committed at version 4\n"
    assert ask("history", "--endpoints", endpoint, "d").endswith("\t4\n")
    watched = ask("watch", "--endpoints", endpoint, "--since", "1", "--timeout", "0", "--json").splitlines()
    assert [json.loads(commit)["version"] for commit in watched] == [2, 4]
    assert "no key 'nope'" in ask("get", "--endpoints", endpoint, "nope", code=1)
    assert "the newest is 4" in ask("get", "--endpoints", endpoint, "a", "--at", "99", code=3)
    assert json.loads(ask("compact", "--endpoints", endpoint, "--json"))["floor"] == 2


def test_the_environment_gives_way(endpoint: str, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("put", "--db", db, "where", "directory")
    ask("put", "--endpoints", endpoint, "where", "server")
    monkeypatch.setenv("LOGDB_ENDPOINTS", endpoint)
    assert ask("get", "where") == "server\n"
    assert ask("get", "where", "--db", db) == "directory\n"
    assert ask("--db", db, "get", "where") == "directory\n"
    monkeypatch.setenv("LOGDB_DB", str(db))
    assert "are both set" in ask("get", "where", code=2)
    monkeypatch.delenv("LOGDB_ENDPOINTS")
    assert ask("get", "where", "--endpoints", endpoint) == "server\n"


def test_commands_that_a_server_does_not_support(run: Run, endpoint: str) -> None:
    assert "but not both" in ask("get", "a", "--db", "x", "--endpoints", endpoint, code=2)
    assert "but not both" in run("get", "a", "--endpoints", endpoint, code=2).stderr
    for verb in ("verify", "audit"):
        assert "use --db" in ask(verb, "--endpoints", endpoint, code=2)
    assert "--db" in ask("shell", "--read-only", "--endpoints", endpoint, code=2)
    assert "is not an address" in ask("get", "a", "--endpoints", "nowhere", code=2)
    assert "connection refused" in ask("get", "a", "--endpoints", "127.0.0.1:1", code=3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_starts_and_stops(tmp_path: Path, number: int) -> None:
    server = serving(tmp_path / "db", "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    ready = server.stdout.readline()
    assert ready.startswith(f"ready: {tmp_path / 'db'} at 127.0.0.1:")
    endpoint = ready.split()[-1]
    assert ask("put", "--endpoints", endpoint, "a", "1") == "version 1\n"
    second = serving(tmp_path / "db", "--listen", "127.0.0.1:0")
    _, told = second.communicate(timeout=60)
    assert second.returncode == 3
    assert f"process {server.pid} " in told
    assert len(told.splitlines()) == 1
    server.send_signal(number)
    rest, told = server.communicate(timeout=60)
    assert (server.returncode, rest, told) == (0, "", "")
    assert ask("get", "--db", tmp_path / "db", "a") == "1\n"


UNDECIDED = """
from logdb.txn.coordinator import Coordinator
from logdb_cli import main

def deliver(self, gsn, commit, right=Coordinator.deliver):
    if b"bad" in commit.writes:
        raise MemoryError("planted")
    return right(self, gsn, commit)

Coordinator.deliver = deliver
main()
"""


@pytest.mark.parametrize("cause", ["the log fails", "a decision fails"])
def test_a_server_that_can_take_no_more_writes_ends(tmp_path: Path, cause: str) -> None:
    """A supervisor starts it again, and that mends it."""
    db = tmp_path / "db"
    run = ["-c", UNDECIDED] if cause == "a decision fails" else ["-m", "logdb_cli"]
    server = subprocess.Popen(
        [sys.executable, *run, "serve", "--db", db, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    endpoint = server.stdout.readline().split()[-1]
    assert ask("put", "--endpoints", endpoint, "a", "1") == "version 1\n"
    if cause == "the log fails":
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, 0))
    assert "outcome" in ask("put", "--endpoints", endpoint, "bad", "1", code=3)
    _, told = server.communicate(timeout=60)
    assert server.returncode == 3
    assert told.splitlines()[-1].startswith(f"error: the server has ended since {db} takes no more writes: ")
    assert "start the server again" in told
    server = serving(db, "--listen", endpoint)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("ready: ")
    try:
        assert ask("get", "--endpoints", endpoint, "a") == "1\n"
        if cause == "a decision fails":
            assert ask("get", "--endpoints", endpoint, "bad") == "1\n"
        assert ask("put", "--endpoints", endpoint, "b", "2").startswith("version ")
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_where_a_server_does_not_listen(tmp_path: Path, endpoint: str) -> None:
    for address, why in (
        ("0.0.0.0:7400", "name a certificate and key"),
        ("somewhere.example:7400", "name a certificate and key"),
        ("nonsense", "is not an address"),
    ):
        assert why in ask("serve", "--db", tmp_path / "db", "--listen", address, code=2)
    server = serving(tmp_path / "db", "--listen", endpoint)
    _, told = server.communicate(timeout=60)
    assert server.returncode == 3
    assert told == f"error: cannot listen at {endpoint}: Address already in use\n"


def test_without_grpc_the_message_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['grpc'] = None; from logdb_cli import main; main()"
    for verb in (["get", "a", "--endpoints", "127.0.0.1:1"], ["serve", "--db", tmp_path / "db"]):
        done = subprocess.run([sys.executable, "-c", code, *verb], capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert "pip install 'logdb[cluster]'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    code = "import sys, logdb, logdb.aio; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
