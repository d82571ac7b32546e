"""compact, pin, unpin, checkpoint, verify, audit, bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

import logdb
from logdb import keys
from logdb.embedded.verification.audit import Audit
from logdb.tables import Json
from tests.harness.served import Served

from .conftest import Run, documents


def test_compaction_and_pins(run: Run) -> None:
    run("put", "k", "1")
    run("put", "k", "2")
    assert run("pin", "month-end", "--at", 1).stdout == "version 1 is pinned as month-end\n"
    assert run("pin").stdout == "month-end\t1\n"
    assert documents(run("pin", "--json")) == [{"name": "month-end", "version": 1}]
    assert documents(run("compact", "--json"))[0]["floor"] == 1
    assert run("get", "k", "--at", 1).stdout == "1\n"
    run("unpin", "month-end")
    run("unpin", "month-end", code=1)
    assert "the oldest version left is 2;" in run("compact", "--before", 2).stdout
    assert "compacted away" in run("get", "k", "--at", 1, code=3).stderr


def test_info(run: Run) -> None:
    run("multi-put", "a", "1", "b", "2")
    run("put", "a", "3")
    run("pin", "here", "--at", 1)
    (found,) = documents(run("info", "--json", "--count"))
    assert (found["version"], found["oldest_version"], found["pins"], found["keys"]) == (3, 0, {"here": 1}, 2)
    assert found["log_bytes"] > 0
    assert 0 <= found["garbage"] <= 1
    assert documents(run("info", "--json"))[0]["keys"] is None
    shown = run("info", "--count").stdout
    assert "pin here        version 1" in shown
    assert "keys            2" in shown


def test_info_through_a_server(served: Served) -> None:
    with logdb.connect(served.address) as db:
        db.put(b"k", b"v")
    result = CliRunner().invoke(cli, ["info", "--endpoints", served.address, "--json"])
    (found,) = documents(result)
    assert (found["version"], found["log_bytes"], found["path"]) == (1, None, served.address)


def test_stats(run: Run) -> None:
    run("multi-put", "a", "1", "b", "2")
    run("multi-put", "c", "3", "--if-absent", "a", code=1)
    run("pin", "here")
    (found,) = documents(run("stats", "--json"))
    assert (found["oldest_version"], found["pins"], found["max_keys"]) == (0, 1, 2)
    assert set(found) == set(logdb.Stats._fields)
    shown = run("stats").stdout
    assert "keys        at most 2" in shown
    assert "1 pinned" in shown
    assert "1 for condition" in shown
    assert "sync" in shown


def test_stats_through_a_server(served: Served) -> None:
    with logdb.connect(served.address) as db:
        db.put(b"k", b"v")
        db.put(b"k", b"w")
    result = CliRunner().invoke(cli, ["stats", "--endpoints", served.address, "--json"])
    (found,) = documents(result)
    assert (found["version"], found["commits"], found["path"]) == (2, 2, served.address)


def test_checkpoint_verify_audit(run: Run) -> None:
    run("multi-put", "a", "1", "b", "2")
    run("multi-put", "c", "3", "--if-absent", "a", code=1)
    assert documents(run("checkpoint", "--json"))[0]["covers"] >= 2
    (verified,) = documents(run("verify", "--json"))
    assert verified["damage"] == []
    assert verified["keys"] == 2
    (audited,) = documents(run("audit", "--json"))
    assert (audited["commits"], audited["aborted"], audited["difference"]) == (2, 1, None)
    assert run("verify").stdout.endswith("no damage\n")
    assert run("audit").stdout.endswith("no decision differs\n")


def test_verify_compares_indexes_with_rows(run: Run, db: Path) -> None:
    with logdb.open(db) as opened:
        users = opened.table("users", key=int, value=Json())
        users.create_index("by_city", "city")
        users.multi_put({1: {"city": "Rome"}, 2: {"city": "Bonn"}})
    assert run("verify").stdout.endswith("1 index of 1 table with 2 entries checked: no difference\n")
    with logdb.open(db) as opened:
        opened.put(keys.pack(("users", 0, 1)), b'{"city":"Oslo"}')
    assert "'by_city', row (1,): the entry is missing" in run("verify", code=1).stdout
    (found,) = documents(run("verify", "--json", code=1))
    assert (found["damage"], found["entries"], len(found["damaged_indexes"])) == ([], 2, 2)
    assert found["damaged_indexes"][0]["table"] == "users"


def test_damage_in_the_log_is_named(run: Run, db: Path) -> None:
    run("put", "k", "a long enough value")
    run("put", "k", "another")
    (log,) = (db / "log").glob("*.log")
    damaged = log.read_bytes().replace(b"a long enough", b"a lOng enough")
    log.write_bytes(damaged)
    assert str(log) in run("verify", code=1).stderr
    (found,) = documents(run("verify", "--json", code=1))
    assert found["damage"][0]["path"] == str(log)


def test_damage_in_the_checkpoint_is_mended_by_a_rebuild(run: Run, db: Path) -> None:
    run("multi-put", *(word for number in range(100) for word in (f"key{number}", "v" * 50)))
    run("checkpoint")
    (file,) = (db / "map").glob("run-*.mdb")
    file.write_bytes(file.read_bytes().replace(b"key50", b"kez50"))
    assert str(db / "map") in run("verify", code=1).stderr
    assert run("verify", "--rebuild").stdout.endswith("no damage\n")
    assert run("get", "key50").stdout == "v" * 50 + "\n"


def test_a_difference_that_an_audit_finds_is_an_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def audit(path: Path, **options: Any) -> Audit:
        return Audit(commits=2, aborted=0, trusted=1, through=2, difference="transaction x at version 2: differs")

    monkeypatch.setattr("logdb.api.inspection.audit", audit)
    run("put", "k", "v")
    assert run("audit", code=1).stderr == "error: transaction x at version 2: differs\n"


def test_bench(run: Run) -> None:
    measured = documents(run("bench", "-n", 40, "--threads", 2, "--value-bytes", 10, "--json"))
    assert [row["workload"] for row in measured] == [
        "put",
        "multi-put of 10",
        "get",
        "multi-get of 10",
        "read-modify-write, 10 hot keys",
        "scan",
    ]
    assert [row["operations"] for row in measured] == [40, 4, 40, 4, 4, 40]
    assert all(row["rate"] > 0 for row in measured)
    assert "not empty" in run("bench", "-n", 10, code=2).stderr
    assert len(run("bench", "-n", 10, "--force").stdout.splitlines()) == 6
