"""`logdb cluster` on real processes: started, inspected, changed, damaged, stopped; each error is one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

import logdb.log
from logdb.admin.layout import FILE, Layout
from logdb.admin.processes import running
from logdb.log.engine import ENGINE_OF_NODES, ENGINES, engine_of
from logdb.system.directories import holding_process, lock
from tests.cli.test_processes import started
from tests.harness.ports import free_addresses, free_ports

WAIT_S = 120
PATIENT = ("--set", "suspect_after_ms=20000", "--set", "straggle_after_ms=60000", "--set", "election_ms=2000")
"""Timeouts so long that a slow machine ends no server."""
SMALL = ("--shards", 1, "--replicas", 1, "--ordering", 1, "--mapping", 0, *PATIENT)

PORTS = free_ports()
Run = Callable[..., Any]


def call(*args: object, code: int = 0) -> str:
    """`logdb cluster ...` in this process. Returns what it printed; if it failed, the one line of its error."""
    done = CliRunner().invoke(cli, ["cluster", *map(str, args)])
    assert done.exit_code == code, done.stderr
    if code:
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A directory whose servers are all gone at the end."""
    yield tmp_path / "cluster"
    if (tmp_path / "cluster" / FILE).exists():
        for process in processes(tmp_path / "cluster").values():
            os.kill(process, signal.SIGKILL)


def processes(path: Path) -> dict[str, int]:
    return running(Layout(path))


def kill(path: Path, name: str) -> None:
    """kill -9, and wait until it is gone."""
    process = processes(path)[name]
    os.kill(process, signal.SIGKILL)
    while name in processes(path):
        pass


def status(*where: object) -> Any:
    return json.loads(call("status", "--json", "--interval", 0.1, *where))


def shards(seen: Any) -> dict[int, tuple[str, set[str]]]:
    """State and names (or addresses) of the members of each shard."""
    title = {server["number"]: server["name"] or server["address"] for server in seen["servers"]}
    return {one["shard"]: (one["state"], {title[number] for number in one["servers"]}) for one in seen["shards"]}


def test_a_cluster_from_its_beginning_to_its_end(path: Path) -> None:
    shape = ("--shards", 2, "--replicas", 2, "--ordering", 3, "--mapping", 1, "--aggregators", 1)
    up = json.loads(call("up", "--json", "--dir", path, "--port", next(PORTS), *shape, *PATIENT))
    assert sorted(up["started"]) == ["a1", "m1", "o1", "o2", "o3", "s1", "s2", "s3", "s4"]
    assert call("endpoints", "--dir", path) == up["endpoints"] + "\n"
    assert "0 of them started now" in call("up", "--dir", path, "--shards", 2)
    with logdb.connect(up["endpoints"]) as db:
        assert [db.put(b"%d" % number, b"x") for number in range(10)] == list(range(1, 11))
    seen = status("--dir", path)
    assert (seen["tail"], seen["oldest"], seen["records_per_s"], len(seen["servers"])) == (10, 1, 0, 9)
    (mapping,) = (server for server in seen["servers"] if server["role"] == "mapping")
    assert (mapping["applied"], mapping["lag"]) == (10, 0)
    assert seen["cut"] >= 1
    assert all(server["alive"] for server in seen["servers"])
    assert {server["name"]: server["process"] for server in seen["servers"]} == processes(path)
    assert sorted(server["state"] for server in seen["servers"] if server["role"] == "ordering") == [
        "follows", "follows", "leads",
    ]  # fmt: skip
    assert {shard: state for shard, (state, _) in shards(seen).items()} == {1: "live", 2: "live"}

    asked = ("--name", "s4", "--config", path / FILE)
    assert call("health", "storage", *asked) == "storage s4 serves\n"

    (leader,) = (server["name"] for server in seen["servers"] if server["state"] == "leads")
    kill(path, leader)
    assert call("finalize-shard", "--dir", path, 1) == "shard 1 accepts no more appends\n"
    assert call("add-shard", "--dir", path) == "shard 3 accepts appends\n"
    (gone, _) = sorted(shards(seen)[2][1])
    answer = json.loads(call("replace-server", "--json", "--dir", path, gone))
    assert answer["shard"] == 2
    seen = status("--dir", path)
    assert shards(seen)[1][0] == "finalized"
    assert shards(seen)[3] == ("live", {"s5", "s6"})
    assert "s7" in shards(seen)[2][1]
    assert gone not in shards(seen)[2][1]
    (dead,) = (server for server in seen["servers"] if not server["alive"])
    assert (dead["name"], dead["process"], dead["state"]) == (leader, None, "connection refused")

    assert json.loads(call("up", "--dir", path, "--json"))["started"] == [leader]
    assert "is live, only a finalized one can have more replicas" in call("add-replica", "--dir", path, 2, code=3)
    assert json.loads(call("add-replica", "--json", "--dir", path, 1))["shard"] == 1
    assert len(shards(status("--dir", path))[1][1]) == 3
    assert call("cut-interval", "--dir", path, 2.5) == "cuts are at least 2.5 ms apart\n"
    assert status("--dir", path)["cut_interval_ms"] == 2.5
    assert ", at least 2.5 ms between cuts\n" in call("status", "--dir", path, "--interval", 0.1)
    with logdb.connect(up["endpoints"]) as db:
        assert db.put(b"10", b"x") == 11
        assert [key for key, _ in db.scan()] == sorted(b"%d" % number for number in range(11))
    assert call("down", "--dir", path).startswith("stopped 12 processes; ")
    assert processes(path) == {}
    assert call("health", "storage", *asked, "--wait", 0.1, code=3).endswith(" does not serve: connection refused\n")
    assert "has no table [storage.s9]; it has s1, " in call("health", "storage", "--name", "s9", *asked[2:], code=2)
    shown = call("status", "--dir", path, code=3)
    assert f" answers: `logdb cluster up --dir {path}` starts them\n" in shown


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cluster_of_equal_nodes(path: Path, engine: str) -> None:
    named = () if engine == ENGINE_OF_NODES else ("--engine", engine)
    shape = ("--nodes", 3, *named, "--set", "election_ms=2000")
    up = json.loads(call("up", "--json", "--dir", path, "--port", next(PORTS), *shape))
    assert sorted(up["started"]) == ["n1", "n2", "n3"]
    seen = status("--dir", path)
    roles = {server["role"] for server in seen["servers"]}
    assert {(server["name"], server["role"]) for server in seen["servers"]} == {
        (name, role) for name in ("n1", "n2", "n3") for role in roles
    }
    assert {server["name"]: server["process"] for server in seen["servers"]} == processes(path)
    assert all(server["alive"] for server in seen["servers"])
    ((state, members),) = shards(seen).values()
    assert state == "live"
    assert members <= {"n1", "n2", "n3"}
    assert len(members) == engine_of(engine).operations.members_on_nodes(3)
    asked = ("--name", "n2", "--config", path / FILE)
    assert call("health", "node", *asked) == "node n2 serves\n"
    with logdb.connect(up["endpoints"]) as db:
        first = db.put(b"1", b"x")
        kill(path, "n2")
        assert db.put(b"2", b"x") > first
        with logdb.log.connect(up["endpoints"]) as log:
            log.configuration()  # n2 may have led the founders, which the put need not wait for
        servers = status("--endpoints", up["endpoints"])["servers"]
        refused = {server["role"] for server in servers if server["state"] == "connection refused"}
        assert {engine_of(engine).founder_role, "mapping"} <= refused <= roles, "others may have been replaced already"
        assert f"{3 * len(roles)} servers in 3 processes, 1 of them started now" in call("up", "--dir", path)
        assert [key for key, _ in db.scan()] == [b"1", b"2"]
    assert call("down", "--dir", path).startswith("stopped 3 processes; ")
    assert processes(path) == {}
    assert call("health", "node", *asked, code=3).endswith(" does not serve: connection refused\n")
    runs = "that server runs on the node with the table [node.n2]"
    assert runs in call("health", "mapping", *asked, code=2)
    assert "has --nodes 3, not 5" in call("up", "--dir", path, "--nodes", 5, code=2)
    others = next(name for name in ENGINES if name != engine)
    assert f"has --engine {engine}, not {others}" in call("up", "--dir", path, "--engine", others, code=2)


CHANGING = [name for name in ENGINES[1:] if "storage" in engine_of(name).roles]


@pytest.mark.parametrize("engine", CHANGING)
def test_the_shards_of_another_engine_are_changed(path: Path, engine: str) -> None:
    """The first engine is that of `test_a_cluster_from_its_beginning_to_its_end`."""
    patient = ("--set", "suspect_after_ms=20000", "--set", "election_ms=2000")
    shape = ("--engine", engine, "--shards", 1, "--replicas", 2, "--ordering", 1, "--mapping", 1, *patient)
    up = json.loads(call("up", "--json", "--dir", path, "--port", next(PORTS), *shape))
    with logdb.connect(up["endpoints"]) as db:
        versions = [db.put(b"%d" % number, b"x") for number in range(3)]
        assert call("add-shard", "--dir", path) == "shard 2 accepts appends\n"
        assert call("finalize-shard", "--dir", path, 1) == "shard 1 accepts no more appends\n"
        versions += [db.put(b"%d" % number, b"x") for number in range(3, 6)]
        before = shards(status("--dir", path))
        assert [before[number][0] for number in (1, 2)] == ["finalized", "live"]
        gone, *_ = sorted(before[2][1])
        assert json.loads(call("replace-server", "--json", "--dir", path, gone))["shard"] == 2
        assert "only a finalized one can have more replicas" in call("add-replica", "--dir", path, 2, code=3)
        assert json.loads(call("add-replica", "--json", "--dir", path, 1))["shard"] == 1
        versions.append(db.put(b"6", b"x"))
        assert [change.version for change in db.watch(since=0, timeout=0)] == versions == sorted(versions)
    seen = status("--dir", path)
    assert all(server["alive"] for server in seen["servers"])
    assert {server["name"]: server["process"] for server in seen["servers"]} == processes(path)
    after = shards(seen)
    assert (len(after[1][1]), len(after[2][1])) == (3, 2)
    assert gone not in after[2][1]
    assert call("down", "--dir", path).startswith(f"stopped {len(seen['servers'])} processes; ")
    assert processes(path) == {}


def test_a_storage_server_of_a_node_is_replaced_alone(path: Path) -> None:
    shape = ("--nodes", 3, "--engine", ENGINES[0], *PATIENT)
    up = json.loads(call("up", "--json", "--dir", path, "--port", next(PORTS), *shape))
    with logdb.connect(up["endpoints"]) as db:
        assert db.put(b"1", b"x") == 1
        call("replace-server", "--dir", path, "n2")
        assert shards(status("--dir", path))[1] == ("live", {"n1", "n3", "s1"})
        assert processes(path).keys() == {"n1", "n2", "n3", "s1"}
        call("replace-server", "--dir", path, "s1")
        assert shards(status("--dir", path))[1] == ("live", {"n1", "n2", "n3"}), "its storage server became a spare"
        assert db.put(b"2", b"x") == 2
        assert [key for key, _ in db.scan()] == [b"1", b"2"]


def test_a_shard_for_one_that_failed(path: Path) -> None:
    """The last one that took appends is finalized when there are servers for another one."""
    hasty = ("--shards", 1, "--replicas", 2, "--ordering", 1, "--mapping", 0, "--set", "suspect_after_ms=500")
    call("up", "--dir", path, "--port", next(PORTS), *hasty)
    kill(path, "s1")
    assert call("add-shard", "--dir", path).endswith(" accepts appends\n")
    while (seen := shards(status("--dir", path)))[1][0] != "finalized":
        pass
    assert seen[2][0] == "live"


def test_a_cluster_that_has_no_directory_here(path: Path) -> None:
    call("up", "--dir", path, "--port", next(PORTS), *SMALL, "--replicas", 2, "--spares", 3)
    where = ("--endpoints", Layout(path).file.server("storage", "s2").address)
    seen = status(*where)
    assert {server["role"] for server in seen["servers"]} == {"ordering", "storage"}
    assert len(seen["servers"]) == 6
    assert {server["process"] for server in seen["servers"]} == {None}
    (*_, one, other) = (server["address"] for server in seen["servers"] if server["shard"] == 0)
    assert call("add-shard", "--servers", f"{one}, {other}", *where) == "shard 2 accepts appends\n"
    assert shards(status(*where))[2] == ("live", {one, other})
    assert f"{one} is not a spare server; there are " in call("add-shard", "--servers", one, *where, code=2)
    answer = json.loads(call("replace-server", "--json", 1, *where))
    assert (answer["replaced"], answer["shard"]) == (1, 1)
    assert call("finalize-shard", 2, "--grace", 3, *where) == "shard 2 accepts no more appends\n"
    assert "a shard has 2 servers, and there are " in call("add-shard", *where, code=3)
    assert "shard 7 does not exist" in call("finalize-shard", 7, *where, code=3)
    assert "s1 is not a server of a shard; the shards have " in call("replace-server", "s1", *where, code=2)
    tables = call("status", "--interval", 0.1, *where)
    assert tables.startswith(f"cluster {seen['cluster']}: ")
    assert "\n2\tfinalized\t" in tables


def test_a_watch_shows_what_is_done(path: Path) -> None:
    up = json.loads(call("up", "--json", "--dir", path, "--port", next(PORTS), *SMALL))
    watching = started("cluster", "status", "--watch", "--json", "--interval", 0.1, "--dir", path)
    with logdb.log.connect(up["endpoints"]) as log, watching as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["tail"] == 0
        log.append([(1, b"x")] * 50)
        seen: Any = {"tail": 0}
        while seen["tail"] < 50:
            seen = json.loads(watch.stdout.readline())
        assert seen["tail"] == 50
        assert seen["records_per_s"] > 0
        assert seen["cuts_per_s"] > 0
        watch.send_signal(signal.SIGINT)
        assert watch.wait(WAIT_S) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_up_leaves_no_server_running(path: Path, number: signal.Signals) -> None:
    command = ("cluster", "up", "--dir", path, "--port", next(PORTS), *SMALL)
    with started(*command) as process:
        while holding_process(path / "data" / "o1") is None:
            pass
        process.send_signal(number)
        assert process.wait(WAIT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read().decode() == (
            f"error: interrupted; no server of {path} runs: `logdb cluster up --dir {path}` starts them\n"
        )
    assert processes(path) == {}
    call(*command[1:4])
    assert sorted(processes(path)) == ["o1", "s1"]


def signals(process: int, state: str) -> int:
    """The signals of a process, as a mask, in a state of proc(5): "ShdPnd" (waiting), "SigCgt" (with a handler)."""
    return int(re.findall(rf"{state}:\s*(.+)", Path(f"/proc/{process}/status").read_text())[0], 16)


def stop(process: int) -> None:
    """Stop a server that has its handler of SIGTERM, with all of its threads: none of them takes a later signal."""
    sigterm = 1 << signal.SIGTERM - 1
    while not signals(process, "SigCgt") & sigterm:
        pass
    os.kill(process, signal.SIGSTOP)
    while any("State:\tT" not in thread.read_text() for thread in Path(f"/proc/{process}/task").glob("*/status")):
        pass


def test_an_up_that_is_interrupted_while_it_ends_servers_reports_running_ones(path: Path) -> None:
    with started("cluster", "up", "--dir", path, "--port", next(PORTS), *SMALL) as process:
        while (stopped := holding_process(path / "data" / "o1")) is None:
            pass
        stop(stopped)
        process.send_signal(signal.SIGINT)
        while not signals(stopped, "ShdPnd"):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert process.stderr is not None
        said = process.stderr.read().decode()
    some = rf"[12] of 2 servers of {path} run"
    assert re.fullmatch(rf"error: interrupted; {some}: `logdb cluster up --dir {path}` .*\n", said), said
    os.kill(stopped, signal.SIGCONT)
    call("down", "--dir", path)
    assert processes(path) == {}


def test_a_port_that_another_process_has(path: Path) -> None:
    call("up", "--dir", path, "--port", next(PORTS), *SMALL)
    call("down", "--dir", path)
    address = Layout(path).file.server("storage", "s1").listen
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        taken.listen()
        said = call("up", "--dir", path, code=3)
    log = path / "logs" / "s1.log"
    assert said == (
        f"error: storage s1 did not start: cannot listen at {address}: Address already in use (see {log})\n"
    )
    assert processes(path) == {}
    call("up", "--dir", path)


def test_a_server_that_does_not_end(path: Path) -> None:
    call("up", "--dir", path, "--port", next(PORTS), *SMALL)
    kill(path, "o1")
    stopped = processes(path)["s1"]
    os.kill(stopped, signal.SIGSTOP)
    said = call("down", "--dir", path, "--timeout", 0.5, code=3)
    assert said == f"error: still running: storage s1 (process {stopped}); `logdb cluster down --kill` kills them\n"
    assert call("down", "--dir", path, "--timeout", 0.5, "--kill").startswith("stopped 1 process; ")
    assert processes(path) == {}


GIVES_UP_ITS_LOCK: Final = """
import signal, sys
from pathlib import Path
from logdb.system.directories import lock
held = lock(Path(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: held.release())
print("locked", flush=True)
while True:
    signal.pause()
"""


def test_down_waits_for_processes_and_not_for_locks(path: Path) -> None:
    """A server gives up its lock first and ends later, with a slow disk much later."""
    call("up", "--dir", path, "--port", next(PORTS), *SMALL)
    call("down", "--dir", path)
    command = [sys.executable, "-c", GIVES_UP_ITS_LOCK, path / "data" / "s1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as slow:
        assert slow.stdout is not None
        try:
            assert slow.stdout.readline() == b"locked\n"
            said = call("down", "--dir", path, "--timeout", 0.5, code=3)
        finally:
            slow.kill()
    assert said == f"error: still running: storage s1 (process {slow.pid}); `logdb cluster down --kill` kills them\n"
    assert call("down", "--dir", path).startswith("stopped 0 processes; ")


def test_a_server_whose_directory_was_removed_still_runs(path: Path) -> None:
    """The server has the address, and the lock of a file that was unlinked."""
    call("up", "--dir", path, "--port", next(PORTS), *SMALL)
    before = processes(path)
    shutil.rmtree(path / "data" / "s1")
    assert processes(path) == before
    assert "0 of them started now" in call("up", "--dir", path)
    assert call("down", "--dir", path).startswith("stopped 2 processes; ")
    assert processes(path) == {}
    call("up", "--dir", path)


def test_impossible_commands_are_rejected_with_a_reason(path: Path, tmp_path: Path) -> None:
    for command in ("status", "down", "endpoints", "add-shard", "finalize-shard 1", "replace-server s1"):
        said = call(*command.split(), "--dir", path, code=2)
        assert said == f"error: there is no cluster in {path}: `logdb cluster up --dir {path}` creates one\n"
    assert not path.exists()
    nowhere = next(free_addresses())
    assert f"no server answers: {nowhere} (connection refused)" in call("status", "--endpoints", nowhere, code=3)
    assert "'nowhere' is not an address" in call("status", "--endpoints", "nowhere", code=2)
    assert "/sys/cluster cannot be written: " in call("up", "--dir", "/sys/cluster", code=3)
    (tmp_path / "file").write_text("")
    assert "Not a directory" in call("up", "--dir", tmp_path / "file" / "cluster", code=3)
    assert "an odd number of replicas, not 2" in call("up", "--dir", path, "--policy", "mask", code=2)
    exclusive = "--nodes and --shards exclude each other: nodes have one server of each role"
    assert exclusive in call("up", "--dir", path, "--nodes", 3, "--shards", 2, code=2)
    assert "--set takes KEY=VALUE, not 'x'" in call("up", "--dir", path, "--set", "x", code=2)
    refused = call("up", "--dir", path, "--set", "colour=red", "--mapping", 0, code=2)
    assert "colour is not a key of [cluster]" in refused
    for setting, what in {"sweep_ms=-5": "a number from 1 to", "compact_above=5.5": "a share above 0.0"}.items():
        assert f"must be {what}" in call("up", "--dir", path, "--set", setting, code=2)
    held = lock(path)
    assert "another command is changing the cluster" in call("up", "--dir", path, code=3)
    held.release()


def test_another_shape_is_another_cluster(path: Path) -> None:
    call("up", "--dir", path, "--port", next(PORTS), *SMALL)
    call("down", "--dir", path)
    for options, what in {
        ("--ordering", "3"): "--ordering 1, not 3",
        ("--policy", "mask"): "--policy finalize-and-add, not mask",
        ("--nodes", "3"): "a process for each server, not nodes",
        ("--set", "election_ms=1"): "its settings already, in cluster.toml",
    }.items():
        said = call("up", "--dir", path, *options, code=2)
        assert said == f"error: the cluster in {path} has {what}; use another --dir for another cluster\n"
    assert processes(path) == {}
