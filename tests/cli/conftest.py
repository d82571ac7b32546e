"""The command, called in this process; tests with real processes are in `test_processes`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from logdb_cli.commands import cli

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGDB_DB", raising=False)
    monkeypatch.delenv("LOGDB_ENDPOINTS", raising=False)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(db: Path) -> Run:
    """Run `logdb --db <a new directory> ...`; check that it ended with `code`, with one line on stderr if it failed."""

    def call(*args: object, stdin: str | bytes | None = None, code: int = 0, lines: int | None = None) -> Result:
        result = CliRunner().invoke(cli, ["--db", str(db), *map(str, args)], input=stdin)
        assert result.exit_code == code, (result.stdout, result.stderr)
        expected = (1 if code else 0) if lines is None else lines
        assert len(result.stderr.splitlines()) == expected, result.stderr
        assert all(line.startswith("error: ") for line in result.stderr.splitlines())
        return result

    return call


def documents(result: Result) -> list[Any]:
    """The JSON lines of the output."""
    return [json.loads(line) for line in result.stdout.splitlines()]
