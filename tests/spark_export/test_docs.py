"""The examples in docs/spark.md run, from the first block to the last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_the_examples_run(tmp_path: Path) -> None:
    """In a separate process, because `foreachBatch` pickles functions of the main module by value."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 8
    script = tmp_path / "examples.py"
    script.write_text("\n".join([*blocks, "spark.stop()"]))
    environment = {**os.environ, "PYTHONPATH": str(PAGE.parents[1])}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
