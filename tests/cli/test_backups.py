"""backup, restore, help."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

import logdb
from tests.harness.served import Served

from .conftest import Run, documents


def test_a_backup_and_the_way_back(run: Run, db: Path, tmp_path: Path) -> None:
    run("put", "k", "1")
    place, copy = tmp_path / "backup", tmp_path / "copy"
    assert run("backup", place).stdout.startswith("backup 1 (full) of version 1 is in")
    assert run("backup", place).stdout.startswith("nothing is new; backup 1 (full) of version 1 is in")
    run("put", "k", "2")
    (second,) = documents(run("backup", place, "--json"))
    assert (second["backup"], second["full"], second["from"], second["to"]) == (2, False, 1, 2)
    assert [row["to"] for row in documents(run("backup", place, "--list", "--json"))] == [1, 2]
    assert run("backup", place, "--verify").stdout.endswith("no damage\n")
    assert documents(run("restore", place, "--db", copy, "--at", 1, "--json")) == [{"version": 1, "new_version": 1}]
    with logdb.open(copy) as opened:
        assert opened[b"k"] == b"1"
    assert "is not empty" in run("restore", place, "--db", copy, code=3).stderr
    run("restore", place, "--db", tmp_path / "other", "--at", 1, "--at-time", "2024-01-01", code=2, lines=1)
    run("backup", place, "--list", "--verify", code=2, lines=1)
    next(place.glob("000001-*")).unlink()
    assert "1 damaged" in run("backup", place, "--verify", code=1).stdout
    assert "the file is missing" in run("restore", place, "--db", tmp_path / "other", code=3).stderr


def test_through_a_server(run: Run, served: Served, tmp_path: Path) -> None:
    with logdb.connect(served.address) as db:
        db.put(b"k", b"v")
    backup = str(tmp_path / "backup")

    def remotely(*args: str, code: int = 0) -> str:
        result = CliRunner().invoke(cli, ["--endpoints", served.address, *args])
        assert result.exit_code == code, result.stderr
        return result.stdout + result.stderr

    remotely("backup", backup)
    assert "is not empty" in remotely("restore", backup, code=3)
    run("restore", backup)
    assert run("get", "k").stdout == "v\n"
    with logdb.connect(served.address) as db:
        db.delete(b"k")
    assert "its versions are new" in remotely("restore", backup)


def test_a_named_log_in_a_server_that_is_behind_the_backup(run: Run, db: Path, served: Served, tmp_path: Path) -> None:
    with logdb.open(db) as opened:
        for number in range(9):
            opened.log("orders").append(b"entry %d" % number)
    backup = str(tmp_path / "backup")
    run("backup", backup)
    result = CliRunner().invoke(cli, ["--endpoints", served.address, "restore", backup])
    assert "below version 9, new entries of the log 'orders' come before the restored ones" in result.stdout


def test_a_store_needs_its_package(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run("put", "k", "1")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    assert "pip install 'logdb[backup]'" in run("backup", "s3://bucket/folder", code=3).stderr


def test_help(run: Run) -> None:
    assert run("help").stdout == run("--help").stdout
    assert "Usage: cli cluster status" in run("help", "cluster", "status").stdout
    assert "no command 'cluster nothing'" in run("help", "cluster", "nothing", code=2, lines=1).stderr
