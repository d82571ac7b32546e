"""The port at which a node answers Prometheus."""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from pathlib import Path

import pytest

from logdb.admin.layout import Layout
from logdb.log.engine import Shape
from logdb.node.metrics import AT_ONCE, MetricsPort
from logdb.node.node import Node
from tests.harness import ports

PORTS = ports.free_ports()


@pytest.mark.parametrize("kind", ["_process_in_thread", "Timer"])
def test_requests_for_which_no_thread_can_start_use_up_no_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Regression: after a few of them no request was answered any more."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if kind in thread.name or (kind == "Timer" and isinstance(thread, threading.Timer)):
            raise RuntimeError("can't start new thread")
        start(thread)

    layout = Layout.make(tmp_path, Shape(1, 1, 1, 0), {}, next(PORTS))
    metrics = MetricsPort(Node(layout.file.node("ordering", "o1")), "127.0.0.1:0")
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            for _ in range(AT_ONCE):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://{metrics.address}/", timeout=10)
        assert urllib.request.urlopen(f"http://{metrics.address}/", timeout=10).status == 200
    finally:
        metrics.close()
