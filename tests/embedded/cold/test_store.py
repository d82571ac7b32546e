"""A cold tier in an S3-compatible store, behind a server process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import fsspec
import pytest
from moto.server import ThreadedMotoServer

import logdb
from tests.embedded.cold.test_history import States, check, check_feed, write

BUCKET = "s3://cold-bucket"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedMotoServer]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(BUCKET)
    yield server
    server.stop()


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
    names = fsspec.filesystem("s3", skip_instance_cache=True).ls(f"{BUCKET}/tier")
    assert [name.rpartition("/")[2] for name in names][-1].startswith("cold-")
    logdb.restore(f"{BUCKET}/tier", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as restored:
        assert dict(restored.scan()) == states[max(states)]
    assert logdb.verify_backup(f"{BUCKET}/tier").damage == []
    store.stop()
    with logdb.open(tmp_path / "db") as db:
        db.put(b"k00", b"written while the store is down")
        with pytest.raises(logdb.Unavailable, match="cannot be listed"):
            db.at(min(states))
