"""`txn` and `shell`: the same lines, in one transaction or as they come."""

from __future__ import annotations

from pathlib import Path

import pytest

import logdb

from .conftest import Run, documents

SCRIPT = """
# move one unit
check alice equals 10
get bob
put alice 9
put bob '1 unit'
get alice
scan --prefix b
multi-get alice bob
delete carol
"""


def test_a_script_is_one_transaction(run: Run, db: Path) -> None:
    run("multi-put", "alice", "10", "bob", "0", "carol", "x")
    result = run("txn", "--label", "move", stdin=SCRIPT)
    assert result.stdout == "0\n9\nbob\t1 unit\nalice\t9\nbob\t1 unit\ncommitted at version 2\n"
    assert run("scan").stdout == "alice\t9\nbob\t1 unit\n"
    with logdb.open(db, read_only=True) as opened:
        (change,) = opened.watch(since=1, timeout=0)
    assert (change.version, change.label, len(change.changes)) == (2, "move", 3)


def test_a_script_in_a_file_for_programs(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("put 6b 76\nget 6b\nscan\n")
    *found, ending = documents(run("txn", script, "--json", "--hex"))
    assert found == [{"key": "6b", "value": "76"}] * 2
    assert ending["committed"]
    assert run("get", "k").stdout == "v\n"


@pytest.mark.parametrize(
    ("line", "code", "reason"),
    [
        ("check k equals w", 1, "'k' is 'v'"),
        ("check k absent", 1, "'k' is 'v'"),
        ("check z exists", 1, "'z' does not exist"),
        ("check k equals", 2, "check KEY equals VALUE"),
        ("put k", 2, "VALUE"),
        ("put k 'v", 2, "No closing quotation"),
        ("history k", 2, "no operation 'history' in a transaction"),
        ("get --nonsense", 2, "--nonsense"),
        ("get ''", 2, "a key must not be empty"),
    ],
)
def test_a_line_that_fails_aborts_it_all(run: Run, line: str, code: int, reason: str) -> None:
    run("put", "k", "v")
    result = run("txn", stdin=f"put a 1\n{line}\nput b 2\n", code=code)
    assert reason in result.stderr
    assert run("scan").stdout == "k\tv\n"


def test_a_missing_key_does_not_abort(run: Run) -> None:
    result = run("txn", stdin="get nope\nput a 1\n", lines=1)
    assert result.stderr == "error: line 1: no key 'nope'\n"
    assert run("get", "a").stdout == "1\n"


def test_a_script_that_only_reads_runs_beside_a_writer(run: Run, db: Path) -> None:
    with logdb.open(db) as writer:
        writer.put(b"k", b"v")
        assert run("txn", stdin="get k\ncheck k exists\n").stdout == "v\nread at version 1\n"
        assert "is open for writing" in run("txn", stdin="put k w\n", code=3).stderr


def test_the_shell_runs_piped_lines(run: Run) -> None:
    lines = "put a 1\n\n# comment\nget a\nmulti-put b 2 c 3\nscan --keys-only\nhistory a --json\nexit\nput never 1\n"
    result = run("shell", stdin=lines)
    assert result.stdout.splitlines()[:-1] == ["version 1", "1", "version 2", "a", "b", "c"]
    assert '"version": 1' in result.stdout.splitlines()[-1]
    assert run("get", "never", code=1)


def test_transactions_in_the_shell(run: Run) -> None:
    lines = "put a 1\nbegin move\nput a 2\nput b 2\nget a\nget a --at 1\nabort\nget a\nbegin\nput a 3\ncommit\nget a\n"
    assert run("shell", stdin=lines).stdout.splitlines() == [
        "version 1",
        "reading version 1",
        "2",
        "1",
        "aborted",
        "1",
        "reading version 1",
        "committed at version 2",
        "3",
    ]


def test_a_conflict_in_the_shell_is_explained(run: Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("key,value\na,9\n")
    lines = f"put a 1\nbegin loser\nget a\nput b 1\nimport {rows} --label winner\ncommit\nscan\n"
    result = run("shell", stdin=lines, code=1)
    assert result.stderr.startswith("error: aborted: key b'a' was changed by 'winner' at version 2")
    assert result.stdout.splitlines()[-1] == "a\t9"


def test_a_transaction_left_open_is_aborted_and_fails(run: Run) -> None:
    result = run("shell", stdin="begin\nput a 1\n", code=1)
    assert "before the transaction's commit" in result.stderr
    run("get", "a", code=1)


def test_a_check_in_the_shell_aborts(run: Run) -> None:
    result = run("shell", stdin="put a 1\nbegin\nput b 1\ncheck a absent\ncommit\n", code=2, lines=2)
    assert "the check failed" in result.stderr
    assert "no transaction is under way" in result.stderr
    run("get", "b", code=1)


def test_piped_lines_end_at_the_first_mistake_but_not_at_a_no(run: Run) -> None:
    assert run("shell", stdin="get nope\nput a 1\n", code=1).stdout == "version 1\n"
    result = run("shell", stdin="get nope\nbegin\nput\nput b 1\ncommit\n", code=2, lines=2)
    assert "Missing argument" in result.stderr
    run("get", "b", code=1)


@pytest.mark.parametrize(
    "line", ["shell", "nonsense", "EOF", "begin\nbegin", "commit", "abort", "get k --db x", "begin\ntxn"]
)
def test_lines_that_make_no_sense(run: Run, line: str) -> None:
    run("shell", stdin=line, code=2)


def test_help_in_the_shell(run: Run) -> None:
    listed = run("shell", stdin="help\n").stdout
    for verb in ("multi-put", "export", "begin", "check", "exit"):
        assert f"\n  {verb}" in "\n" + listed
    assert "--if-absent" in run("shell", stdin="help multi-put\n").stdout
    assert run("shell", stdin="help begin\n").stdout.startswith("begin [--read-only]")


def test_shell_transactions_reject_conditions_and_read_only_ones_reject_writes(run: Run) -> None:
    assert "of their own" in run("shell", stdin="begin\nmulti-put a 1 --if-absent a\n", code=2).stderr
    assert "read_only=True" in run("shell", stdin="begin --read-only\nput a 1\n", code=3).stderr
