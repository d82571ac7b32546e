"""The checks of a whole run: histories as JSON lines, and contradictions to the final state of the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logdb.txn.coordinator import Outcome, Status
from tests.nemesis.history import Recorder, assemble, load
from tests.nemesis.judging import End, judge

TXN = ["00000000000000aa-1", "00000000000000aa-2", "00000000000000aa-3"]


class Lines:
    """A history that is built step by step; each step takes one nanosecond."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def add(self, process: str, type_: str, **fields: Any) -> None:
        self.lines.append({"process": process, "time": len(self.lines) + 1, "type": type_, **fields})

    def did(self, f: str, ops: list[Any], *, status: str = "ok", process: str = "p", **ended: Any) -> None:
        self.add(process, "invoke", f=f, ops=ops, label=f"{len(self.lines)}", linearizable=True)
        self.add(process, status, ops=ops, **ended)


@pytest.fixture
def lines() -> Lines:
    """Two transfers and a read of the bank, a list of one element, a cell that was written and compared."""
    lines = Lines()
    lines.did("append", [["r", "list 0.0", None], ["append", "list 0.0", "e"]], version=1, snapshot=0, txn=TXN[0])
    lines.did(
        "transfer",
        [["r", "account 0", None], ["r", "account 1", None], ["w", "account 0", "90 t"], ["w", "account 1", "110 t"]],
        version=2,
        snapshot=1,
        txn=TXN[1],
    )
    lines.did("read", [["r", f"account {n}", {0: "90 t", 1: "110 t"}.get(n)] for n in range(5)], version=2)
    lines.did("put", [["w", "cell 0", "v"]], version=3)
    lines.did("cas", [["cas", "cell 0", "v", "w"]], version=4)
    lines.did(
        "cas", [["cas", "cell 0", "v", "x"]], status="fail", version=5, error={"error": "condition", "failed": [0]}
    )
    lines.did("get", [["r", "cell 0", "w"]])
    return lines


@pytest.fixture
def end() -> End:
    commits: list[tuple[int, str, dict[bytes, bytes | None]]] = [
        (1, "0", {b"list 0.0": b"e"}),
        (2, "2", {b"account 0": b"90 t", b"account 1": b"110 t"}),
        (3, "6", {b"cell 0": b"v"}),
        (4, "8", {b"cell 0": b"w"}),
    ]
    state = {b"list 0.0": b"e", b"account 0": b"90 t", b"account 1": b"110 t", b"cell 0": b"w"}
    return End(9, commits, state, {})


def checks_of(lines: Lines, end: End) -> set[str]:
    return {wrong.partition(":")[0] for wrong in judge(assemble(lines.lines), end)}


def test_a_good_run_passes(lines: Lines, end: End) -> None:
    assert checks_of(lines, end) == set()


def test_a_lost_acknowledged_commit_is_reported(lines: Lines, end: End) -> None:
    end.commits.pop(0)
    end.state.pop(b"list 0.0")
    assert {"lost append", "no acknowledged write is lost"} <= checks_of(lines, end)


def test_a_commit_applied_twice_is_reported(lines: Lines, end: End) -> None:
    end.commits.append((6, "8", {b"cell 0": b"w"}))
    assert "a transaction is applied once" in checks_of(lines, end)


def test_an_applied_failed_commit_is_reported(lines: Lines, end: End) -> None:
    lines.did("put", [["w", "cell 1", "no"]], status="fail", error={"error": "Unavailable"})
    end.commits.append((6, "14", {b"cell 1": b"no"}))
    end.state[b"cell 1"] = b"no"
    assert checks_of(lines, end) == {"a failed transaction is not applied"}


def test_a_changed_total_is_reported(lines: Lines, end: End) -> None:
    lines.did("transfer", [["w", "account 2", "120 u"]], version=6, txn=TXN[2])
    end.commits.append((6, "14", {b"account 2": b"120 u"}))
    end.state[b"account 2"] = b"120 u"
    assert checks_of(lines, end) == {"the bank's total"}


def test_a_read_of_two_snapshots_is_reported(lines: Lines, end: End) -> None:
    lines.did("read", [["r", f"account {n}", {1: "110 t"}.get(n)] for n in range(5)], version=2)
    assert {"a read returns one snapshot", "the bank's total"} <= checks_of(lines, end)


def test_a_stale_read_is_reported_by_its_version(lines: Lines, end: End) -> None:
    lines.did("read", [["r", "account 0", None]], version=1)
    assert checks_of(lines, end) == {"reads keep to real time"}


def test_a_stale_read_without_a_version_is_reported(lines: Lines, end: End) -> None:
    lines.did("get", [["r", "cell 0", "v"]])
    assert checks_of(lines, end) == {"linearizable"}


def test_a_value_without_an_author_is_reported(lines: Lines, end: End) -> None:
    lines.did("read", [["r", "account 0", "90 unknown"]], version=4)
    assert checks_of(lines, end) == {"every write has an author"}


def test_a_wrong_outcome_is_reported(lines: Lines, end: End) -> None:
    lines.did("put", [["w", "cell 1", "y"]], status="info", txn=TXN[2])
    assert checks_of(lines, end) == set()
    end.settled[TXN[2]] = Outcome(Status.COMMITTED, 6)
    assert checks_of(lines, end) == {"an outcome matches the log"}


def test_an_outcome_that_contradicts_an_earlier_result_is_reported(lines: Lines, end: End) -> None:
    lines.did("outcome", [], result=[TXN[0], "COMMITTED", 1])
    assert checks_of(lines, end) == set()
    lines.did("outcome", [], result=[TXN[0], "ABORTED", 1])
    assert checks_of(lines, end) == {"an outcome includes commits that have returned"}


def test_only_outcomes_of_compacted_transactions_may_be_forgotten(lines: Lines, end: End) -> None:
    lines.did("outcome", [], result=[TXN[0], "FORGOTTEN", 0])
    assert checks_of(lines, end) == {"an outcome is remembered"}
    end.oldest = 2
    assert checks_of(lines, end) == set()


def test_a_wrong_conflict_is_reported(lines: Lines, end: End) -> None:
    error = {"error": "ConflictError", "key": "account 0", "version": 2, "snapshot": 1, "winner": "2"}
    lines.did("transfer", [], status="fail", error=error)
    assert checks_of(lines, end) == set()
    lines.did("transfer", [], status="fail", error=error | {"version": 3})
    assert checks_of(lines, end) == {"a reported conflict exists"}


def test_a_conflict_with_a_killed_server_is_accepted_on_a_single_server(lines: Lines, end: End) -> None:
    """On a single server a killed process may lose writes that others have read; a cluster never does."""
    error = {"error": "ConflictError", "key": "", "version": 0, "snapshot": 9, "winner": ""}
    lines.did("transfer", [["r", "account 0", "90 lost"]], status="fail", error=error, snapshot=9)
    assert checks_of(lines, end) == {"a reported conflict exists", "every write has an author"}
    end.reads_ahead = True
    assert checks_of(lines, end) == set()
    lines.did("transfer", [["r", "account 0", "90 lost"]], snapshot=9, version=10)
    assert checks_of(lines, end) == {"every write has an author"}


def test_an_unexpected_error_is_reported(lines: Lines, end: End) -> None:
    lines.did("get", [["r", "cell 0", None]], status="info", error={"error": "Corruption"})
    assert checks_of(lines, end) == {"an error of an expected kind"}


def test_a_session_that_reads_an_older_version_is_reported(lines: Lines, end: End) -> None:
    lines.add("q", "invoke", f="snapshot", session=4)
    lines.add("q", "ok", ops=[["r", "account 0", None]], version=1)
    assert checks_of(lines, end) == set()
    lines.add("q", "invoke", f="scan", session=4)
    lines.add("q", "ok", ops=[["r", "account 0", None]], version=1)
    assert checks_of(lines, end) == {"a session never reads an older version"}


def test_servers_with_different_states_are_reported(lines: Lines, end: End) -> None:
    end.states.append(end.state | {b"cell 0": b"v"})
    assert checks_of(lines, end) == {"the feed gives the state"}


def test_an_incomplete_last_line_of_a_killed_client_is_ignored(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c1.jsonl", "c1")
    recorder.write("0", "invoke", f="append", ops=[["r", "list", None], ["append", "list", "b"]])
    recorder.write("0", "plan", ops=[["r", "list", "a"], ["append", "list", "b"]])
    recorder.close()
    with (tmp_path / "c1.jsonl").open("a") as file:
        file.write('{"process": "c1.0", "time"')
    (entry,) = load([tmp_path / "c1.jsonl"])
    assert (entry.process, entry.status, entry.returned) == ("c1.0", "info", None)
    assert entry.writes == {"list": "a,b"}


def test_overlapping_operations_of_a_process_are_rejected() -> None:
    lines = Lines()
    lines.add("p", "invoke", f="get")
    lines.add("p", "invoke", f="get")
    with pytest.raises(ValueError, match="in the middle of"):
        assemble(lines.lines)


def test_a_deletion_missed_by_a_scan_is_reported(lines: Lines, end: End) -> None:
    """The deletion is between the snapshot of a transaction that scanned its range and the transaction's commit."""
    lines.did("delete", [["w", "cell 0", None]], version=6)
    end.commits.append((6, "14", {b"cell 0": None}))
    del end.state[b"cell 0"]
    assert checks_of(lines, end) == set()
    scanned = ["scan", "cell ", "cell:", {"cell 0": "w"}]
    lines.did("transfer", [scanned, ["w", "account 0", "90 u"]], version=7, snapshot=5, txn=TXN[2])
    end.commits.append((7, "16", {b"account 0": b"90 u"}))
    end.state[b"account 0"] = b"90 u"
    assert checks_of(lines, end) == {"a transaction reads the state before its version"}
    lines.lines[-1]["ops"] = [["scan", "cell ", "cell:", {}], ["w", "account 0", "90 u"]]
    assert checks_of(lines, end) == {"a read returns one snapshot"}


def test_a_read_of_a_deleted_value_is_reported(lines: Lines, end: End) -> None:
    lines.did("delete", [["w", "cell 0", None]], version=6)
    end.commits.append((6, "14", {b"cell 0": None}))
    del end.state[b"cell 0"]
    lines.did("read", [["r", "cell 0", "w"]], version=7)
    assert {"linearizable", "a read returns one snapshot"} <= checks_of(lines, end)


def test_a_deletion_without_an_author_is_reported(lines: Lines, end: End) -> None:
    end.commits.append((6, "99", {b"cell 0": None}))
    del end.state[b"cell 0"]
    assert "every write has an author" in checks_of(lines, end)
