"""What a person sees on a terminal: tables and colours, never interpreted content; and what a pipe gets instead."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
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


def test_a_table_with_colours_and_what_is_missing(terminal: Terminal) -> None:
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


def on_terminal(*args: str) -> str:
    """What `logdb ...` writes to a real terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "logdb_cli", *args]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:  # how a terminal says that the other end was closed
        pass
    os.close(ours)
    assert process.wait(30) == 0, seen
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
