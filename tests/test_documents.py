"""The examples in the documents run, and the files and classes that they name exist.

A page is read from top to bottom: its Python blocks are one program, its console blocks one session. Each block of bash
is a script of its own. tests/spark_export/test_docs.py executes docs/spark.md, tests/test_contributing.py parses the
commands of CONTRIBUTING.md.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from logdb import errors

ROOT = Path(__file__).resolve().parent.parent
GLOBS = ("*.md", "docs/*.md", "logdb/**/*.md")
PAGES = {str(path.relative_to(ROOT)): path for glob in GLOBS for path in ROOT.glob(glob)}
TESTED_ELSEWHERE = {"docs/spark.md"}
GENERATED = {"docs/cli.md"}
RIDDLES = re.compile(
    r"\b(?:[Nn]o|[Ss]ome|[Ee]very|[Aa]ny)body\b|\b[Ww]hoever\b|^#+ (?:Who|What)\b.*|(?<=[.:] )Who\b.*"
    r"|(?:^|(?<=[.:;] ))What (?![^.]*\?).*|\b(?:tells?|told|hears?|heard)\b|\bfor ever\b|\bin vain\b",
    re.MULTILINE,
)
"""Subjects that leave out which component acts, private verbs for messages, and moods."""
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in FENCED.findall(page.read_text()) if name == language]


def with_blocks(language: str) -> list[str]:
    return [name for name, page in PAGES.items() if name not in TESTED_ELSEWHERE and blocks(page, language)]


def program(page: Path) -> str:
    """The Python blocks of a page, each on the lines on which it stands there."""
    text = page.read_text()
    lines = [""] * text.count("\n")
    for block in FENCED.finditer(text):
        if block[1] == "python":
            first, code = text.count("\n", 0, block.start(2)), block[2].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """An environment in which `logdb` and `python3` are those of the tests."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (("logdb", "-m logdb_cli "), ("python3", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        (commands / name).chmod(0o755)
    return os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def documented_ports() -> Iterator[None]:
    """Keeps other examples of this user waiting: several pages start servers at the same ports, 7401 and the next."""
    with Path(f"{tempfile.gettempdir()}/logdb-tests-{os.getuid()}-documented-ports").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("documented_ports")
@pytest.mark.parametrize("name", with_blocks("python"))
def test_python_runs(name: str, tmp_path: Path, surroundings: dict[str, str]) -> None:
    script = tmp_path / Path(name).with_suffix(".py").name
    script.write_text(program(PAGES[name]))
    directory = tmp_path / "work"
    directory.mkdir()
    command = [sys.executable, script]
    done = subprocess.run(command, cwd=directory, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", with_blocks("console"))
def test_console_sessions_run(name: str, tmp_path: Path, surroundings: dict[str, str]) -> None:
    lines = "".join(blocks(PAGES[name], "console")).splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert len(commands) > 3
    for command in commands:
        words = shlex.split(command)
        done = subprocess.run(words, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.usefixtures("documented_ports")
@pytest.mark.parametrize("name", with_blocks("bash"))
def test_shell_scripts_run(name: str, tmp_path: Path, surroundings: dict[str, str]) -> None:
    """Up to the end or the first command that fails. Each script stops the servers that it started."""
    for number, script in enumerate(blocks(PAGES[name], "bash")):
        directory = tmp_path / str(number)
        directory.mkdir()
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=directory, env=surroundings, capture_output=True, text=True, check=False)
        subprocess.run([tmp_path / "bin" / "logdb", "cluster", "down", "--kill"], cwd=directory, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = PAGES[name]
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        assert path.exists(), f"{name}: {link}"
        assert not anchor or anchor in headings(path), f"{name}: {link}"


@pytest.mark.parametrize("name", sorted(PAGES.keys() - GENERATED))
def test_sentences_name_components(name: str) -> None:
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", FENCED.sub("", PAGES[name].read_text()))
    assert [found[0] for found in RIDDLES.finditer(prose)] == []


def test_a_riddle_is_seen() -> None:
    assert RIDDLES.findall("Nobody waits.\n\n## Who asks\n\nIt waits. Who has lost it, asks.\n")
    assert len(RIDDLES.findall("## Who asks\n\n### What tasks leave\n\nIt waits. Who asks, waits.\n")) == 3
    assert len(RIDDLES.findall("It waits. What is left, goes.\n\nA server tells a client, for ever.\n")) == 3
    assert RIDDLES.findall("| What survives a power failure? | a test |\n\nA server sends it.\n") == []


def test_the_readme_is_short_and_links_every_document() -> None:
    readme = PAGES["README.md"].read_text()
    assert readme.count("\n") <= 160
    pages = {name for name in PAGES if not name.startswith("logdb/")}
    assert pages - {"README.md"} <= set(LINK.findall(readme))


def test_troubleshooting_has_every_error() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGES["docs/troubleshooting.md"].read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(set(errors.__all__) - {"Advice", "LogDBError"})


def test_the_changelog_begins_with_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = re.search(r"^## (.*)$", PAGES["CHANGELOG.md"].read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] in (version, f"{version} (not released yet)")


# ---- ARCHITECTURE.md

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
LABELS = ("**Problem", "**Decision", "**Alternatives", "**Cost")


def quoted(page: Path) -> list[str]:
    return re.findall(r"`([^`]+)`", FENCED.sub("", page.read_text()))


def test_the_map_names_every_room() -> None:
    rooms = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "logdb").rglob("__init__.py")}
    table = ARCHITECTURE.read_text().partition("## The rooms")[2].partition("\n## ")[0]
    assert rooms == set(re.findall(r"`(logdb/[\w/]*)`", table))


def test_every_decision_has_its_problem_alternatives_and_cost() -> None:
    sections = re.split(r"^### ", ARCHITECTURE.read_text().partition("# Decisions")[2], flags=re.MULTILINE)[1:]
    assert len(sections) > 50
    lacking = {section.partition("\n")[0]: [each for each in LABELS if each not in section] for section in sections}
    assert {heading: labels for heading, labels in lacking.items() if labels} == {}


def test_files_that_the_architecture_names_exist() -> None:
    bases = [ROOT, ROOT / "logdb", ROOT / "logdb" / "log"]
    rooms = {path.name for base in bases for path in base.iterdir() if path.is_dir()}
    named = [each for each in quoted(ARCHITECTURE) if re.fullmatch(r"[\w.]+(/[\w.]+)+/?", each)]
    files = [each for each in named if each.partition("/")[0] in rooms]
    assert len(files) > 50
    found = [any((base / (each + end)).exists() for base in bases for end in ("", ".py")) for each in files]
    assert [each for each, exists in zip(files, found, strict=True) if not exists] == []


@pytest.mark.parametrize("page", [ARCHITECTURE, *ROOT.glob("logdb/**/PROTOCOL.md")], ids=lambda page: page.parent.name)
def test_classes_that_are_named_exist(page: Path) -> None:
    files = [path for folder in ("logdb", "spark_export") for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text())}
    classes = [each for each in quoted(page) if re.fullmatch(r"_?[A-Z][a-z]\w*(\.\w+)*", each)]
    assert len(classes) > 4
    assert [each for each in classes if not set(each.split(".")) <= words] == []
