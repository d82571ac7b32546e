"""The commands `python -m ...` of CONTRIBUTING.md and other documents: their modules exist and know the options."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dev

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
COMMAND = re.compile(r"(?:^ {4,}|`)(?:\.venv/bin/)?python -m ([^`\n]+)", re.MULTILINE)
FOREIGN = {"ruff", "mypy", "pytest"}
"""Modules of other projects. The options of pytest are those that the suite itself uses."""


def commands(text: str) -> list[str]:
    return [found.partition("  #")[0].strip() for found in COMMAND.findall(text)]


COMMANDS = sorted({command for page in PAGES for command in commands(page.read_text())})


@functools.cache
def help_of(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def problems(command: str) -> list[str]:
    """The names in a command that do not exist: its module, its subcommand, an option or a path."""
    module, *words = shlex.split(command)
    try:
        if find_spec(module) is None:
            return [f"no module {module}"]
    except ModuleNotFoundError as error:
        return [str(error)]
    missing = [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()]
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    subcommand = [word for word in words[:1] if module == "benchmarks" and not word.startswith("-")]
    if module in FOREIGN or not (options or subcommand):
        return missing
    try:
        known = help_of(module, *subcommand)
    except AssertionError as error:
        return [*missing, str(error)]
    return [*missing, *(option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}\b", known))]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_exists_with_its_options(command: str) -> None:
    assert problems(command) == []


def test_a_wrong_command_is_seen() -> None:
    text = "    .venv/bin/python -m tests.sim --speeds 3\n\n`python -m benchmarks quickly`, `python -m tests.nothing`."
    assert [len(problems(command)) for command in commands(text)] == [1, 1, 1]


def test_tasks_of_dev_exist() -> None:
    text = "".join(page.read_text() for page in PAGES)
    tasks = re.findall(r"python3 dev\.py (\w+)", text)
    assert {"flights", "test", "docs"} <= set(tasks) <= set(dev.EXTRAS)


def test_files_and_folders_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:logdb|tests|docs|cli)/[\w/.*-]*)`", text)
    assert len(named) > 20
    assert [path for path in named if not list(ROOT.glob(path))] == []
