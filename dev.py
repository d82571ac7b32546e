#!/usr/bin/env python3
"""Set up the checkout and run it: needs nothing but Python 3.11 or newer with pip.

    python3 dev.py flights       the tour: a year of flights, bookings, time travel, two Spark exports, what differs
    python3 dev.py marketplace   the shared log by itself, on a cluster: events, shards that come and go, analytics
    python3 dev.py test          everything a contributor must see green: ruff, mypy --strict, all tests
    python3 dev.py docs          the documentation site, with the API reference from the docstrings, in build/site

All make a virtual environment in .venv (LOGDB_VENV names another place) and install the project with what it needs
into it; arguments that follow go to the example, to pytest, or name another folder for the site.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("LOGDB_VENV", ROOT / ".venv"))
FOUR_AT_A_TIME = ["-n", "4", "--dist", "loadgroup"]  # most of them wait for disks and servers of their own
NOT_REPLACED = ["--max-worker-restart", "0"]  # pytest-xdist 3.8 waits for ever for a process it has replaced
EXTRAS = {"flights": "flights", "marketplace": "cluster", "test": "dev", "docs": "docs"}


def python_with(extra: str) -> str:
    """The interpreter of the virtual environment, with the project and its extra installed."""
    python = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = VENV / f"logdb-{extra}-{hashlib.sha256((ROOT / 'pyproject.toml').read_bytes()).hexdigest()[:16]}"
    if not stamp.exists():
        print(f"Installing LogDB and what '{extra}' needs into {VENV} (once, some minutes) ...", flush=True)
        if not python.exists():
            venv.create(VENV, with_pip=True)
        run([str(python), "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[{extra}]"])
        stamp.touch()
    return str(python)


def run(command: list[str]) -> None:
    """Run a command in the checkout; leave with its status if it fails."""
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        status = process.wait()  # Ctrl-C has reached it, too: it says what it has done so far
    if status:
        raise SystemExit(status)


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    task = arguments[0] if arguments else ""
    if sys.version_info < (3, 11):  # noqa: UP036 - this is what tells a user
        raise SystemExit(f"LogDB needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    if task not in EXTRAS:
        raise SystemExit(__doc__)
    python = python_with(EXTRAS[task])
    if task == "docs":
        run([python, "docs/website.py", *(arguments[1:] or ["build/site"])])
        return
    if task != "test":
        run([python, f"examples/{task}.py", *arguments[1:]])
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the tests start hundreds of processes, which would compile it all
    run([python, "-m", "ruff", "check", "."])
    run([python, "-m", "mypy"])
    run([python, "-m", "pytest", *FOUR_AT_A_TIME, *NOT_REPLACED, *arguments[1:]])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        raise SystemExit(130) from None
