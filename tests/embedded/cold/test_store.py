"""A cold tier in an S3-compatible store, behind a server process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from moto.server import ThreadedMotoServer

import logdb
from tests.embedded.cold.test_history import States, check, check_feed, write
from tests.harness.object_store import BUCKET, names_in, object_store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedMotoServer]:
    with object_store(monkeypatch) as server:
        yield server


def test_the_segments_of_a_server_are_in_the_store(tmp_path: Path, store: ThreadedMotoServer) -> None:
    states = States()
    command = [sys.executable, "-m", "logdb_cli", "serve", "--db", str(tmp_path / "db"), "--listen", "127.0.0.1:0"]
    command += ["--cold", f"{BUCKET}/tier"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            with logdb.connect(server.stdout.readline().split()[-1]) as db:
                for seed in range(2):
                    write(db, Random(seed), states, 25)
                    db.compact()
                check(db, states, Random(3), 5)
                check_feed(db, states)
        finally:
            server.terminate()
    assert server.returncode == 0
    assert names_in("tier")[-1].startswith("cold-")
    logdb.restore(f"{BUCKET}/tier", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as restored:
        assert dict(restored.scan()) == states[max(states)]
    assert logdb.verify_backup(f"{BUCKET}/tier").damage == []
    store.stop()
    with logdb.open(tmp_path / "db") as db:
        db.put(b"k00", b"written while the store is down")
        with pytest.raises(logdb.Unavailable, match="cannot be listed"):
            db.at(min(states))
