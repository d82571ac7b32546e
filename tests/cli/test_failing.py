"""Errors: one line, an exit code for the cause, no output, no directory made by a reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

import logdb

from .conftest import Run


@pytest.mark.parametrize(
    "args",
    [
        ("get", "k"),
        ("multi-get", "k"),
        ("scan",),
        ("history", "k"),
        ("watch", "--timeout", "0"),
        ("outcome", "0000000000000001-1"),
        ("export", "--to", "out.csv"),
        ("pin",),
        ("pin", "name"),
        ("unpin", "name"),
        ("compact",),
        ("checkpoint",),
        ("verify",),
        ("verify", "--rebuild"),
        ("audit",),
        ("delete", "k"),
        ("shell", "--read-only"),
    ],
)
def test_commands_without_data_make_no_directory(run: Run, db: Path, args: tuple[str, ...]) -> None:
    assert str(db) in run(*args, code=3).stderr
    assert not db.exists()


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("get",),
        ("get", "k", "--at", "-1"),
        ("get", "k", "--nonsense"),
        ("put", "", "v"),
        ("multi-put", "k"),
        ("multi-put",),
        ("multi-put", "a", "1", "--if-version", "a", "x"),
        ("multi-put", "a", "-", "b", "-"),
        ("scan", "--limit", "x"),
        ("nonsense",),
        ("pin", "--at", "3"),
        ("import", "somewhere"),
        ("export", "--to", "somewhere"),
    ],
)
def test_wrong_usage(db: Path, args: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, ["--db", str(db), *args])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    if args:
        assert result.stderr.startswith("error: ")
        assert len(result.stderr.splitlines()) == 1


def test_no_database_named() -> None:
    result = CliRunner().invoke(cli, ["get", "k"])
    assert (result.exit_code, result.stderr) == (2, "error: no database is named: use --db DIR or set LOGDB_DB\n")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("serve DB", "logdb --db DB serve"),
        ("serve --log-level error ./new", "logdb --db ./new serve --log-level error"),
        ("serve new", "logdb --db new serve"),
        ("DB get k", "logdb --db DB get k"),
        ("get DB k", "logdb --db DB get k"),
        ("multi-get DB k", "logdb --db DB multi-get k"),
        ("scan DB", "logdb --db DB scan"),
        ("backup DB to", "logdb --db DB backup to"),
        ("named-log DB list", "logdb --db DB named-log list"),
        ("cluster up ./new", "logdb cluster up --dir ./new"),
        ("cluster ./new status", "logdb cluster status --dir ./new"),
        ("log tail DB", "logdb log tail --dir DB"),
    ],
)
def test_a_path_that_is_no_option_is_answered_with_the_command_that_was_meant(
    run: Run, db: Path, words: str, meant: str
) -> None:
    run("put", "k", "v")
    result = CliRunner().invoke(cli, words.replace("DB", str(db)).split())
    assert result.exit_code == 2
    assert result.stderr.endswith(f" (did you mean `{meant.replace('DB', str(db))}`?)\n")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words", ["nonsense", "scan k", "--db DB serve x", "cluster up x", "put DB", "get k", f"get k {'x' * 300}"]
)
def test_other_wrong_words_get_no_hint(run: Run, db: Path, words: str) -> None:
    run("put", "k", "v")
    result = CliRunner().invoke(cli, words.replace("DB", str(db)).split())
    assert (result.exit_code, "did you mean" in result.stderr) == (2, False)


@pytest.mark.parametrize(
    "args", [("--db", "", "put", "k", "v"), ("cluster", "up", "--dir", ""), ("log", "append", "--dir", "", "r")]
)
def test_an_empty_path_is_not_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, args)
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert result.stderr.endswith("': it is empty\n")


def test_the_directory_of_a_cluster_is_no_database(run: Run, db: Path) -> None:
    db.mkdir()
    (db / "cluster.toml").write_text("")
    for args in (("get", "k"), ("put", "k", "v"), ("verify",)):
        assert run(*args, code=2).stderr.endswith(f"use --endpoints $(logdb cluster endpoints --dir {db})\n")
    assert [entry.name for entry in db.iterdir()] == ["cluster.toml"]


def test_a_writer_beside_a_server_is_referred_to_it(run: Run, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["logdb", "serve", "--db", str(db)])
    with logdb.open(db):
        assert "; name that server by --endpoints, or stop it (" in run("put", "k", "w", code=3).stderr


def test_errors_of_the_database_are_printed_unchanged(run: Run, db: Path) -> None:
    assert "the limit is 8,192" in run("put", "k" * 9000, "v", code=3).stderr
    run("put", "k", "v")
    run("put", "k", "w")
    run("compact")
    assert "was compacted away" in run("get", "k", "--at", 1, code=3).stderr
    (db / "LOGDB").write_text('format = 99\nid = "0"\n')
    assert "LOGDB" in run("get", "k", code=3).stderr


def test_a_strange_directory_is_left_alone(run: Run, db: Path) -> None:
    db.mkdir()
    (db / "precious").write_text("x")
    run("put", "k", "v", code=3)
    run("get", "k", code=3)
    assert [entry.name for entry in db.iterdir()] == ["precious"]


def test_the_process_that_writes_the_database_is_named_and_readers_continue(run: Run, db: Path) -> None:
    with logdb.open(db) as holder:
        holder.put(b"k", b"v")
        assert "is open for writing by" in run("put", "k", "w", code=3).stderr
        assert run("get", "k").stdout == "v\n"
        assert run("verify").exit_code == 0


def test_a_bug_is_one_line_as_well(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(logdb, "open", broken)
    assert run("get", "k", code=3).stderr.startswith("error: KeyError: 'surprise' (a bug in LogDB")
    monkeypatch.setenv("LOGDB_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(cli, ["--db", "x", "get", "k"]).exception, KeyError)
