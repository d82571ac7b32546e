"""The session of `session()` prints no warnings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import logdb

SCRIPT = """
import sys
from spark_export import session
spark = session(cores=2, memory="1g")
frame = spark.read.format("logdb").load(sys.argv[1])
assert frame.first().key == b"00000"
assert len(frame.limit(3).collect()) == 3
assert frame.count() == 50_000
spark.stop()
"""


def test_no_warning_for_rows_that_are_not_needed(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with logdb.open(path) as db:
        for first in range(0, 50_000, 5_000):
            db.multi_put({b"%05d" % number: b"x" * 100 for number in range(first, first + 5_000)})
    done = subprocess.run([sys.executable, "-c", SCRIPT, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
