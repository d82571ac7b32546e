"""The API reference builds without a warning, and every public name says what a caller must know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "docs/reference.py", folder]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "logdb.html").read_text()
    assert 'id="Database.multi_scan"' in page
    assert 'id="connect"' in page
    assert 'id="connect_async"' in (tmp_path / "logdb" / "log.html").read_text()
