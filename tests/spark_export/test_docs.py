"""The examples in docs/spark.md run, from the first block to the last."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


@pytest.mark.long
def test_the_examples_run(tmp_path: Path) -> None:
    """In a separate process, because `foreachBatch` pickles functions of the main module by value."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 8
    script = tmp_path / "examples.py"
    script.write_text("\n".join([*blocks, "spark.stop()"]))
    environment = {**os.environ, "PYTHONPATH": str(PAGE.parents[1])}
    command = [sys.executable, str(script)]
    with (tmp_path / "errors").open("w") as errors:  # no pipe, which a server that a failure leaves would keep open
        program = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=errors, start_new_session=True)
        status = program.wait()
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    assert status == 0, (tmp_path / "errors").read_text()
