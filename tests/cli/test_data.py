"""put, get, delete, multi-get, multi-put, scan, history, watch, outcome, and how they show bytes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

import logdb

from .conftest import Run, documents

BINARY = bytes(range(256))


def test_put_get_delete(run: Run) -> None:
    assert run("put", "k", "wörld").stdout == "version 1\n"
    assert run("get", "k").stdout == "wörld\n"
    assert run("delete", "k", "other").stdout == "version 2\n"
    assert run("get", "k", code=1).stderr == "error: no key 'k'\n"
    assert run("get", "k", "--at", 1).stdout == "wörld\n"


def test_numbers(run: Run) -> None:
    assert run("add", "n", 5).stdout == "version 1\n"
    assert documents(run("add", "n", "-12", "--json", "--label", "back")) == [{"version": 2}]
    assert run("get", "n").stdout == "-7\n"
    run("max", "n", 3)
    run("max", "n", 2)
    assert run("get", "n").stdout == "3\n"
    run("min", "n", 9)
    run("min", "n", -1)
    run("add", "n", 10**40)
    assert run("get", "n").stdout == f"{10**40 - 1}\n"


def test_what_is_no_number(run: Run) -> None:
    assert "'x' is not a valid integer" in run("add", "n", "x", code=2, lines=None).stderr
    assert "'--quick' is not a valid integer" in run("add", "n", "--quick", code=2, lines=None).stderr
    assert "100 digits" in run("add", "n", "1" * 200, code=2).stderr
    run("put", "n", "many")
    assert "is not a decimal number" in run("add", "n", 1, code=3).stderr
    assert run("get", "n").stdout == "many\n"


def test_numbers_in_a_transaction(run: Run) -> None:
    run("txn", stdin="add n 5\nmin low -3\nmax high 4\nput k v\nadd n -1\n")
    assert run("scan").stdout == "high\t4\nk\tv\nlow\t-3\nn\t4\n"
    assert "committed" in run("shell", stdin="begin\nadd n 1\nget n\ncommit\n").stdout
    assert run("get", "n").stdout == "5\n"


def test_the_directory_may_be_named_before_after_or_in_the_environment(db: Path, tmp_path: Path) -> None:
    def run(*args: str, **environment: str) -> str:
        result = CliRunner().invoke(cli, args, env=environment)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    run("put", "--db", str(db), "k", "v")
    assert run("--db", str(db), "get", "k") == "v\n"
    assert run("get", "--db", str(db), "k") == "v\n"
    assert run("get", "k", LOGDB_DB=str(db)) == "v\n"
    assert run("--db", str(db), "get", "k", LOGDB_DB=str(tmp_path / "other")) == "v\n"
    assert run("--db", str(tmp_path / "other"), "get", "--db", str(db), "k") == "v\n"
    assert not (tmp_path / "other").exists()


def test_values_from_stdin_and_files(run: Run, db: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BINARY)
    run("put", "stdin", "-", stdin=BINARY)
    run("put", "file", f"@{tmp_path / 'file'}")
    run("put", "at", "@@home")
    assert run("get", "stdin", "--raw").stdout_bytes == BINARY
    assert run("get", "file", "--raw").stdout_bytes == BINARY
    assert run("get", "at").stdout == "@home\n"
    assert "No such file" in run("put", "k", f"@{tmp_path / 'none'}", code=3).stderr


def test_bytes_that_are_not_text_are_escaped_without_loss(run: Run) -> None:
    run("put", "--hex", "00ff", "feff1b5b")
    run("put", "text", "line\nnext\x1b[31m")
    assert run("scan").stdout == "\\x00\\xff\t\\xfe\\xff\\x1b[\ntext\tline\\nnext\\x1b[31m\n"
    assert run("get", "text").stdout == "line\nnext\\x1b[31m\n"
    assert run("get", "--hex", "00ff").stdout == "feff1b5b\n"
    first, second = documents(run("scan", "--json"))
    assert first == {"key": {"base64": "AP8="}, "value": {"base64": "/v8bWw=="}}
    assert second == {"key": "text", "value": "line\nnext\x1b[31m"}
    assert documents(run("scan", "--json", "--hex"))[0] == {"key": "00ff", "value": "feff1b5b"}
    assert "is not hexadecimal" in run("get", "--hex", "xyz", code=2).stderr


def test_multi_get_is_one_answer_and_names_missing_keys(run: Run) -> None:
    run("multi-put", "a", "1", "b", "2")
    assert run("multi-get", "b", "a").stdout == "b\t2\na\t1\n"
    missing = run("multi-get", "--json", "-", stdin="a\nz\n", code=1)
    assert documents(missing) == [{"key": "a", "value": "1"}, {"key": "z", "value": None}]
    assert missing.stderr == "error: 1 of 2 keys not found, the first is 'z'\n"


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (("--if-equals", "a", "1"), True),
        (("--if-equals", "a", "2"), False),
        (("--if-absent", "z"), True),
        (("--if-absent", "a"), False),
        (("--if-exists", "a"), True),
        (("--if-exists", "z"), False),
        (("--if-version", "a", "1"), True),
        (("--if-version", "z", "0"), True),
        (("--if-version", "a", "0"), False),
        (("--if-version-less", "a", "2"), True),
        (("--if-version-less", "a", "1"), False),
        (("--if-version-greater", "a", "0"), True),
        (("--if-version-greater", "a", "1"), False),
    ],
)
def test_conditions(run: Run, condition: tuple[str, ...], holds: bool) -> None:
    run("multi-put", "a", "1", "b", "2")
    result = run("multi-put", "c", "3", "--delete", "b", *condition, "--if-exists", "b", code=0 if holds else 1)
    assert run("scan").stdout == ("a\t1\nc\t3\n" if holds else "a\t1\nb\t2\n")
    if not holds:
        assert repr(condition[1]) in result.stderr
        assert "'b'" not in result.stderr


def test_failed_conditions_for_programs(run: Run) -> None:
    run("put", "a", "1")
    result = run("multi-put", "c", "3", "--if-equals", "a", "2", "--if-version", "a", "7", "--json", code=1)
    assert documents(result) == [
        {
            "committed": False,
            "version": 2,
            "failed": [
                {"condition": "equals", "key": "a", "operand": "2"},
                {"condition": "version_equals", "key": "a", "operand": 7},
            ],
        }
    ]


def test_scan(run: Run) -> None:
    run("multi-put", "a", "1", "b/1", "2", "b/2", "3", "c", "4")
    assert run("scan", "--prefix", "b/", "--keys-only").stdout == "b/1\nb/2\n"
    assert run("scan", "--start", "b/2", "--end", "c").stdout == "b/2\t3\n"
    assert run("scan", "--reverse", "--limit", 2).stdout == "c\t4\nb/2\t3\n"
    run("delete", "a")
    assert run("scan", "--at", 1, "--limit", 1).stdout == "a\t1\n"
    assert "not both" in run("scan", "--prefix", "a", "--start", "b", code=2).stderr


def test_time_travel(run: Run, db: Path) -> None:
    run("put", "k", "old")
    with logdb.open(db, read_only=True) as opened:
        time = opened.time_of(1)
    assert time is not None
    later = (time + dt.timedelta(microseconds=1)).isoformat()
    run("put", "k", "new")
    for verb in ("get", "multi-get"):
        assert "old" in run(verb, "k", "--at-time", later).stdout
    assert run("scan", "--at-time", later).stdout == "k\told\n"
    assert len(run("history", "k", "--at-time", later).stdout.splitlines()) == 1
    assert "version 9 does not exist yet; the newest is 2" in run("get", "k", "--at", 9, code=3).stderr
    assert "'yesterday' is not a time such as" in run("get", "k", "--at-time", "yesterday", code=2).stderr
    assert "not both" in run("get", "k", "--at", 1, "--at-time", later, code=2).stderr


def test_history_is_newest_first_with_deletions(run: Run) -> None:
    run("put", "k", "1")
    run("delete", "k")
    run("put", "k", "3")
    found = documents(run("history", "k", "--json"))
    assert [(entry["version"], entry["value"]) for entry in found] == [(3, "3"), (2, None), (1, "1")]
    assert all(dt.datetime.fromisoformat(entry["time"]).tzinfo for entry in found)
    assert run("history", "k", "--limit", 1).stdout.split("\t")[::2] == ["3", "3\n"]
    run("history", "never", code=1)


def test_history_reaches_back_to_the_oldest_retained_version(run: Run) -> None:
    run("put", "k", "1")
    run("put", "other", "1")
    run("compact")
    assert documents(run("history", "k", "--json")) == [{"version": 1, "time": None, "value": "1"}]


def test_watch_from_a_version(run: Run) -> None:
    run("put", "a", "1", "--label", "first")
    run("multi-put", "b", "2", "c", "3", "--delete", "a")
    found = documents(run("watch", "--since", 0, "--timeout", 0, "--json"))
    assert [(change["version"], change["label"]) for change in found] == [(1, "first"), (2, "")]
    assert {change["key"]: change["value"] for change in found[1]["changes"]} == {
        "a": None,
        "b": "2",
        "c": "3",
    }
    line = run("watch", "--since", 1, "--timeout", 0, "--key", "a", "--prefix", "c").stdout
    assert set(line.rstrip("\n").split("\t")[3:]) == {"-a", "c=3"}
    assert run("watch", "--timeout", 0).stdout == ""
    assert len(run("watch", "--since", 0, "--limit", 1).stdout.splitlines()) == 1


def test_outcome(run: Run) -> None:
    committed = documents(run("txn", "--json", stdin="put k v"))[0]
    assert committed["committed"]
    assert run("outcome", committed["id"]).stdout == "committed at version 1\n"
    assert documents(run("outcome", "0000000000000001-1", "--json", code=1, lines=0)) == [
        {"status": "not found", "version": 0}
    ]
    assert "is not a transaction id" in run("outcome", "x", code=2).stderr


def test_a_key_expires(run: Run) -> None:
    run("put", "session", "7", "--ttl", "1ms")
    assert run("get", "session").stdout == "7\n"
    run("sweep")
    assert run("sweep").stdout == "1 expired key deleted, 0 named logs truncated\n"
    run("get", "session", code=1)
    assert "ttl must be from" in run("put", "session", "7", "--ttl", "0", code=2).stderr
