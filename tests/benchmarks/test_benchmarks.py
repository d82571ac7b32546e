"""The benchmarks run and report all figures; timings are not checked."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import report
from benchmarks.__main__ import NAMES, main
from benchmarks.fresh import Figure
from benchmarks.peers import Peer, counter
from benchmarks.peers.ours import LogDB, LogDBCoroutines
from benchmarks.rounds import QUICK, Spread, interleaved
from benchmarks.workloads import PEERS, TRANSACTIONAL, WORKLOADS

STATES = ("loaded", "restarted")
ITEMS = {b"key-%03d" % number: bytes(8) + b"%03d" % number for number in range(100)}

TARGETS: dict[tuple[str, str | None], float] = {
    ("put", "SQLite"): 1.0,
    ("put", "py-lmdb"): 1.7,
    ("put", "write + fdatasync"): 0.8,
    ("put-64-threads", "SQLite"): 4.0,
    ("put-64-coroutines", "SQLite"): 10.0,
    ("multi-put", "SQLite"): 1.7,
    ("multi-put", "py-lmdb"): 3.0,
    ("transactions-8-threads", "SQLite"): 2.0,
    ("transactions-64-threads", "SQLite"): 2.0,
    **{("get-" + state, peer): least for state in STATES for peer, least in (("rocksdict", 1.0), ("py-lmdb", 0.6))},
    **{("multi-get-" + state, peer): 1.0 for state in STATES for peer in ("SQLite", "rocksdict")},
    **{("scan-" + state, "rocksdict"): 1.0 for state in STATES},
    **{
        (f"scan-of-{limit}{where}-{state}", "LogDB, gets"): 1 / gets
        for limit, gets in ((1, 3), (10, 5))
        for where in ("", "-in-transaction")
        for state in STATES
    },
    **{(f"workload-e-{size}", "py-lmdb"): 0.7 for size in (1_000, 100)},
    **{(f"workload-e-{size}-coroutines", "py-lmdb"): 0.5 for size in (1_000, 100)},
    ("Open", None): 1.0,
    ("Replay from nothing", None): 150_000,
    ("Memory", None): 250,
}


@pytest.fixture(params=PEERS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[Peer]:
    found: type[Peer] = request.param
    return found


def test_a_quick_run_measures_everything_and_writes_the_results(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["--quick", "--json", "--dir", str(tmp_path), "--to", str(tmp_path / "to")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "to/results.json").read_text())
    assert set(results["rates"]) == {*NAMES, "replay", "memory"}
    for workload in WORKLOADS:
        rates = results["rates"][workload.name]
        assert set(rates) == set(workload.contestants)
        assert all(len(rounds) == QUICK.rounds and min(rounds) > 0 for rounds in rates.values())
    titles = {workload.title: workload.name for workload in WORKLOADS}
    targets = {
        (titles.get(row["title"], row["title"].split(",")[0]), row["peer"]): row["target"]
        for row in results["rows"]
        if row["target"] is not None
    }
    assert targets == TARGETS
    for row in results["rows"]:
        assert (row["met"] is None) == (row["target"] is None)
    table = (tmp_path / "to/results.md").read_text()
    assert sum(line.startswith("| ") for line in table.splitlines()) == 1 + len(results["rows"])
    assert (tmp_path / "to/results.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the databases were left behind"


def test_only_selected_workloads_are_measured(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--quick", "--json", "--only", "put", "--dir", str(tmp_path)])
    assert set(json.loads(done.stdout)["rates"]) == {"put"}


def test_a_peer_reads_and_writes(kind: type[Peer], tmp_path: Path) -> None:
    peer = kind(tmp_path / "peer")
    peer.load(ITEMS)
    session = peer.session()
    session.put(b"key-001", b"1")
    session.multi_put({b"key-002": b"2", b"new": b"3"})
    session.close()
    peer.reopen()
    session = peer.session()
    assert session.get_each([b"key-000", b"key-001"]) == b"1"
    assert session.get_each([b"key-002"]) == b"2"
    assert session.multi_get_each([[b"new", b"key-003", b"key-004"]]) == 3
    assert session.scan() == len(ITEMS) + 1
    assert session.scan_each([b"key-010", b"key-099"], 3) == 2
    assert session.scan_each([b"key-010"], 3) == 3
    assert session.do_each([(b"key-0985", b"4"), (b"key-098", 9)]) == 4
    assert session.do_each([(b"zzz", 9)]) == 0
    session.multi_delete([b"new", b"key-000"])
    session.close()
    peer.compact()
    session = peer.session()
    assert session.get_each([b"key-002"]) == b"2"
    assert session.scan() == len(ITEMS)
    session.close()
    peer.close()
    again = kind(tmp_path / "peer")
    session = again.session()
    assert session.scan() == len(ITEMS)
    session.close()
    again.close()


def test_coroutines_put_every_pair_once(tmp_path: Path) -> None:
    peer = LogDBCoroutines(tmp_path / "peer")
    peer.load(ITEMS)
    pairs = [(b"%d" % number, b"%d" % number) for number in range(50)]
    peer.put_each(pairs, 8)
    peer.close()
    again = LogDB(tmp_path / "peer")
    session = again.session()
    assert session.scan() == len(ITEMS) + len(pairs)
    assert [session.get_each([key]) for key, _ in pairs] == [value for _, value in pairs]
    again.close()


@pytest.mark.parametrize("kind", TRANSACTIONAL, ids=lambda kind: kind.name)
def test_no_increment_is_lost(kind: type[Peer], tmp_path: Path) -> None:
    peer = kind(tmp_path / "peer")
    peer.load(ITEMS)
    sessions = [peer.session() for _ in range(4)]
    hot = sorted(ITEMS)[:2]
    with ThreadPoolExecutor(len(sessions)) as threads:
        list(threads.map(lambda session: [session.increment(key) for _ in range(10) for key in hot], sessions))
    assert [counter(sessions[0].get_each([key])) for key in hot] == [40, 40]
    for session in sessions:
        session.close()
    peer.close()


def test_every_contestant_has_its_turn_in_every_round() -> None:
    turns: list[str] = []

    def step(name: str) -> int:
        if turns[-1:] != [name]:
            turns.append(name)
        return 7

    rates = interleaved({name: [partial(step, name)] for name in "abc"}, QUICK._replace(rounds=4))
    assert {name: len(rounds) for name, rounds in rates.items()} == {"a": 4, "b": 4, "c": 4}
    # One may be the last of a round and the first of the next, which looks like one turn.
    assert all(2 <= number <= 5 for number in Counter(turns).values())
    assert max(map(min, rates.values())) > 0


def test_a_failure_in_a_thread_is_raised() -> None:
    def fail() -> int:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        interleaved({"a": [lambda: 1, fail]}, QUICK)


def test_ratios_are_taken_round_by_round() -> None:
    workload = next(workload for workload in WORKLOADS if workload.name == "put-64-threads")
    (row,) = report.rows_of(workload, {"LogDB": [10.0, 40.0, 90.0], "SQLite": [10.0, 8.0, 30.0]})
    assert row.ratios == Spread(3.0, 1.0, 5.0)
    assert (row.target, row.met) == (4.0, False)


def test_a_disturbed_disk_is_reported() -> None:
    quiet = {"put": {"LogDB": [1.0], "write + fdatasync": [5000.0, 6000.0, 100.0]}, "get": {"LogDB": [9.0]}}
    assert report.disk_of(quiet).endswith("put 5,000.")
    assert "disturbed" in report.disk_of({**quiet, "multi-put": {"write + fdatasync": [400.0]}})
    assert report.disk_of({"get": {"LogDB": [9.0]}}) == ""


def test_a_target_may_be_a_ceiling() -> None:
    figure = Figure("open", "Open", "s", [0.5, 2.0, 0.7], 1.0, True)
    assert report.row_of(figure).met is True
    assert report.row_of(figure._replace(values=[2.0])).met is False
    assert report.row_of(figure._replace(at_most=False)).met is False


def test_the_cost_of_the_scalog_engine(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["scalog", "--quick", "--json", "--to", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "scalog.json").read_text())
    assert results["record_us"] > 0
    assert [cut["servers"] for cut in results["cuts"]] == [2, 20]
    assert (tmp_path / "scalog.png").stat().st_size > 1_000
    assert "| cut, 20 servers: leader |" in (tmp_path / "scalog.md").read_text()


def test_the_cost_of_the_shared_log_in_processes(tmp_path: Path) -> None:
    arguments = ["log-cluster", "--quick", "--json", "--dir", str(tmp_path), "--to", str(tmp_path)]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "log-cluster.json").read_text())
    assert [result["records"] for result in results] == [1, 100]
    for result in results:
        assert result["appends_per_s"] > 1
        assert 0 < result["median_ms"] <= result["p99_ms"]
        assert set(result["cpu_us"]) == {"ordering", "storage", "client"}


def test_large_transactions_are_measured_with_every_peer() -> None:
    done = CliRunner().invoke(
        main, ["large-transactions", "--keys", "100", "--rounds", "1", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    seconds = json.loads(done.stdout)["seconds"]
    assert set(seconds) == {"LogDB", "SQLite", "py-lmdb", "rocksdict"}
    for name, measured in seconds.items():
        assert {order: len(times) for order, times in measured.items()} == {
            "sequential": 1,
            "random": 1,
            "scanning": int(name != "rocksdict"),
        }


def test_verification_is_measured() -> None:
    done = CliRunner().invoke(
        main, ["verification", "--keys", "1000", "--rounds", "1", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    measured = json.loads(done.stdout)
    assert measured["rows"] == 3_000
    assert all(len(measured[what]) == 1 for what in ("plain_log", "plain", "log_only", "verify", "audit"))
