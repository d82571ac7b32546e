"""What the README shows runs, and what it names exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", [code for language, code in BLOCKS if language == "python"])
def test_python_in_the_readme_runs(code: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_in_the_readme_run(tmp_path: Path) -> None:
    """The lines of the block that begins with `logdb`, in order, in one directory."""
    (session,) = [code for language, code in BLOCKS if language == "console"]
    commands = [line[2:] for line in session.splitlines() if line.startswith("$ ")]
    assert len(commands) > 5
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "logdb"
        done = subprocess.run(
            [sys.executable, "-m", "logdb_cli", *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_shell_scripts_in_the_readme_run(tmp_path: Path) -> None:
    """Each block of bash, up to its end or the first command that fails; whatever it starts, it ends."""
    scripts = [code for language, code in BLOCKS if language == "bash"]
    assert scripts
    (tmp_path / "logdb").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m logdb_cli "$@"\n')
    (tmp_path / "logdb").chmod(0o755)
    surroundings = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for number, script in enumerate(scripts):
        directory = tmp_path / str(number)
        directory.mkdir()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=directory,
            env=surroundings,
            capture_output=True,
            text=True,
            check=False,
        )
        subprocess.run([tmp_path / "logdb", "cluster", "down", "--kill"], cwd=directory, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_files_that_the_readme_names_exist() -> None:
    root = Path(__file__).resolve().parent.parent
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (root / target).exists(), target
