"""Output on a terminal: tables and colours, with content printed literally; and output to a pipe."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from logdb_cli import rendering

import logdb


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_a_table_with_colours_and_missing_values(terminal: Terminal) -> None:
    with contextlib.redirect_stdout(terminal):
        rendering.rows(("version", "value"), [(12, b"[red]no markup[/]"), (3, None)])
    shown = terminal.getvalue()
    assert "\x1b[" in shown
    assert "version" in shown
    assert "[red]no markup[/]" in shown
    assert "(none)" in shown


def test_a_long_result_appears_as_it_comes(terminal: Terminal) -> None:
    def rows() -> Iterator[tuple[int]]:
        for number in range(rendering.TABLE_ROWS + 1):
            if number == rendering.TABLE_ROWS:
                assert "499" in terminal.getvalue()
            yield (number,)

    with contextlib.redirect_stdout(terminal):
        rendering.rows(("number",), rows())
    assert terminal.getvalue().count("number") == 2


def test_streams_are_lines_on_a_terminal_too(terminal: Terminal) -> None:
    with contextlib.redirect_stdout(terminal):
        rendering.rows(("a", "b"), [(1, b"x\ty")], tables=False)
    assert terminal.getvalue() == "1\tx\\ty\n"


def on_terminal(*args: str, typed: Sequence[bytes] = (), **environment: str) -> str:
    """The output of `logdb ...` on a real terminal; at each prompt the next of `typed` is entered."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "logdb_cli", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"} | environment,
    )
    os.close(theirs)
    lines, seen = list(typed), b""
    try:
        while select.select([ours], [], [], 20)[0] and (data := os.read(ours, 65536)):
            seen += data
            if lines and seen.endswith(b"> "):
                os.write(ours, lines.pop(0))
    except OSError:  # the error of a terminal whose other end was closed
        pass
    finally:
        os.close(ours)
        try:
            code = process.wait(20)
        finally:
            process.kill()
    assert code == 0, seen
    return seen.decode()


def test_the_command_on_a_terminal(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "data") as db:
        db.put(b"k", b"v\x1b]0;title\x07")
    rows = tmp_path / "rows.csv"
    rows.write_text("key,value\n" + "".join(f"{number},x\n" for number in range(3000)))
    assert "v\\x1b]0;title\\x07" in on_terminal("--db", str(tmp_path / "data"), "scan")
    imported = on_terminal("--db", str(tmp_path / "data"), "import", str(rows))
    assert "importing" in imported
    assert "3,000 rows imported" in imported


def test_the_shell_on_a_terminal_completes_and_remembers(tmp_path: Path) -> None:
    typed = [b"multi-p\ta 1 b 2\n", b"scan --keys\t--rev\t\n", b"begin\n", b"get nope\n", b"exit\n"]
    seen = on_terminal("--db", str(tmp_path / "data"), "shell", typed=typed, HOME=str(tmp_path))
    assert "version 1" in seen
    assert "logdb*> " in seen
    assert "error: no key 'nope'" in seen
    assert "aborted" in seen
    assert (tmp_path / ".logdb_history").read_text().splitlines()[:2] == [
        "multi-put a 1 b 2",
        "scan --keys-only --reverse ",
    ]
