"""docs/cli.md is generated from the help of the commands, and every command and option has help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from logdb_cli import reference
from logdb_cli.commands import cli

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
COMMANDS = dict(reference.commands(cli, "logdb"))


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == reference.reference(), "run: python -m logdb_cli.reference docs/cli.md"


def test_the_page_does_not_depend_on_the_terminal(tmp_path: Path) -> None:
    page = tmp_path / "cli.md"
    surroundings = os.environ | {"COLUMNS": "40", "LOGDB_DB": "elsewhere", "FORCE_COLOR": "1"}
    subprocess.run([sys.executable, "-m", "logdb_cli.reference", page], check=True, env=surroundings)
    assert page.read_text() == PAGE.read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert command.help.rstrip().endswith((".", ")", "-skip.", ":")) or "\b" in command.help
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{name} {param.opts[0]}"
            assert param.help.endswith((".", ")", "]", "'.", "KEY"))


def test_every_verb_of_the_design_is_there() -> None:
    verbs = "put get delete add min max multi-get multi-put scan history watch txn shell import export compact pin"
    verbs += " unpin sweep checkpoint verify audit bench outcome log named-log serve cluster"
    verbs += " certificates token backup restore help info stats"
    assert set(cli.commands) == set(verbs.split())
    log = cli.commands["log"]
    assert isinstance(log, click.Group)
    assert set(log.commands) == {"append", "outcome", "read", "subscribe", "trim", "tail"}
