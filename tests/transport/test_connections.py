"""Many silent connections do not prevent others."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import logdb
from logdb.node import metrics
from logdb.node.node import Node, NodeConfig
from logdb.transport import listener
from logdb.transport.connections import KEPT_FILES, WATCH_SHARE, connection_options
from logdb.transport.listener import Listener
from tests.harness.clusters import Cluster

FILES = 600
WAIT_S = 60


def connected(address: str) -> logdb.Database:
    """Connect, as soon as the server takes connections again."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return logdb.connect(address, timeout=WAIT_S)
        except logdb.Unavailable:
            if time.monotonic() > deadline:
                raise


def test_silent_connections_do_not_prevent_others(tmp_path: Path) -> None:
    """More than the server's descriptors: it reserves some for itself, and closes silent connections after a
    timeout."""
    command = [sys.executable, "-m", "logdb_cli", "serve", "--db", str(tmp_path / "db"), "--listen", "127.0.0.1:0"]
    limited = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES // 2}, {FILES}));"
    execute = f"{limited} os.execv(sys.executable, {command})"
    server = subprocess.Popen([sys.executable, "-c", execute], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        host, _, port = address.rpartition(":")
        with contextlib.ExitStack() as silent, logdb.connect(address, timeout=WAIT_S) as before:
            for _ in range(FILES):
                silent.enter_context(socket.create_connection((host, int(port))))
            open_files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
            assert open_files <= FILES - KEPT_FILES // 2
            before.put(b"k", b"v")
            before.checkpoint()
            with connected(address) as db:
                assert db.get(b"k") == b"v"
    finally:
        server.kill()
        server.communicate()


def test_connections_leave_descriptors_for_files() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for descriptors in (1, 2):
        most = dict(connection_options(descriptors))["grpc.max_allowed_incoming_connections"]
        assert most * descriptors <= soft - KEPT_FILES


def test_watches_of_the_health_service_leave_connections_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch needs no right, is never idle, and keeps its connection."""
    monkeypatch.setattr(listener, "max_connections", lambda descriptors: 2 * WATCH_SHARE)
    requested = health_pb2.HealthCheckRequest(service="")

    async def main() -> None:
        served = Listener("/logdb.test/Calls", lambda requests, context: asyncio.sleep(0), [])
        port = await served.listen("127.0.0.1:0", lambda server, address: server.add_insecure_port(address))
        async with asyncio.timeout(WAIT_S), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
            watches = [health.Watch(requested) for _ in range(2)]
            for watch in watches:
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="too many watches"):
                await health.Watch(requested).read()
            await served.report_health(is_serving=True)
            assert (await health.Check(requested)).status == health_pb2.HealthCheckResponse.SERVING
            for watch in watches:
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            watches[0].cancel()
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    assert (await health.Watch(requested).read()).status == health_pb2.HealthCheckResponse.SERVING
                    break
        await served.stop(0)

    asyncio.run(main())


def test_many_silent_connections_to_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most are closed at once, and the others after a timeout: no thread waits for each of them."""
    monkeypatch.setattr(metrics, "ANSWER_S", 3_600.0)
    config = Cluster(tmp_path).configs["a1"]
    port = metrics.MetricsPort(Node(NodeConfig((config,))), "127.0.0.1:0")
    host, _, number = port.address.rpartition(":")
    try:
        before = threading.active_count()
        with contextlib.ExitStack() as silent, selectors.DefaultSelector() as selector:
            for _ in range(100):
                one = silent.enter_context(socket.create_connection((host, int(number))))
                selector.register(one, selectors.EVENT_READ)
            while len(selector.get_map()) > metrics.AT_ONCE:
                ended = selector.select(timeout=30)
                assert ended, f"{len(selector.get_map())} wait"
                for key, _ in ended:
                    selector.unregister(key.fileobj)
            assert threading.active_count() - before <= 2 * metrics.AT_ONCE  # one to answer, one to close
        monkeypatch.setattr(metrics, "ANSWER_S", 0.1)
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{port.address}/metrics") as answer:
                assert answer.status == 200
                break
        with socket.create_connection((host, int(number)), timeout=30) as late:
            assert late.recv(1) == b""
    finally:
        port.close()
