"""A program that has not configured logging gets results and exceptions, and no other output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from logdb.clients.background_loop import in_shared_loop
from tests.harness.clusters import Cluster

PROGRAM = """
import sys, logdb
with logdb.connect(sys.argv[1], timeout=60) as db:
    db.put(b"k", b"v")
    print(db.get(b"k"))
"""


def test_a_client_prints_nothing_about_a_stopped_server(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, replicas=3, mapping=2)
    cluster.start(1)
    try:
        in_shared_loop(cluster.end("o3"))
        in_shared_loop(cluster.end("m2"))
        command = [sys.executable, "-c", PROGRAM, ",".join(cluster.ordering)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        cluster.close()
    assert (result.stdout, result.stderr) == ("b'v'\n", "")
