"""The generated code matches the .proto files, and is loaded only by programs that use a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logdb.wire.proto.__main__ import ROOT, generate, generated

STALE = "stale: run `python -m logdb.wire.proto`, with the grpcio-tools of the extra `dev`, and commit what it writes"


def stale(committed: Path, tmp_path: Path) -> list[str]:
    """Names of files that differ from what protoc makes now."""
    generate(tmp_path)
    fresh = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in generated(tmp_path)}
    found = {path.relative_to(committed).as_posix(): path.read_bytes() for path in generated(committed)}
    return sorted(name for name in fresh.keys() | found.keys() if fresh.get(name) != found.get(name))


def test_generated_code_is_not_stale(tmp_path: Path) -> None:
    assert stale(ROOT, tmp_path) == [], STALE


def test_stale_code_is_reported(tmp_path: Path) -> None:
    committed, fresh = tmp_path / "committed", tmp_path / "fresh"
    fresh.mkdir()
    for path in generated(ROOT):
        copy = committed / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes() + (b"#" if path.name.startswith(("paxos", "scalog")) else b""))
    (committed / "logdb" / "left_pb2.py").touch()
    proto, scalog = "logdb/wire/proto", "logdb/log/scalog"
    changed = [f"{proto}/paxos_pb2.py", f"{proto}/paxos_pb2.pyi", f"{scalog}/scalog_pb2.py", f"{scalog}/scalog_pb2.pyi"]
    assert stale(committed, fresh) == sorted(["logdb/left_pb2.py", *changed])


@pytest.mark.parametrize("module", ["logdb", "logdb.aio", "logdb.log.scalog.client.log_client", "logdb_cli"])
def test_embedded_use_does_not_import_grpc(module: str) -> None:
    check = f"import sys, {module}; sys.exit(' '.join(n for n in sys.modules if n.split('.')[0] in ('grpc', 'google')))"
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=False)
    loaded = set(ran.stderr.split())
    assert not {name for name in loaded if name.startswith(("grpc", "google.protobuf"))}, ran.stderr


def test_the_wire_does_not_import_grpc() -> None:
    check = "import sys, logdb.wire.envelopes; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], timeout=60, check=True)
