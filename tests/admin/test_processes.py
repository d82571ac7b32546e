"""Stopping the servers of a cluster on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logdb.admin import processes
from logdb.admin.layout import Layout
from logdb.log.engine import Shape
from tests.harness import ports

PORTS = ports.free_ports()
HOLDER = """
import sys, time
from pathlib import Path
from logdb.system.directories import lock
held = lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(3600)
"""


def test_a_server_that_ends_just_before_its_signal_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the command failed with "No such process", and the other servers went on."""
    layout = Layout.make(tmp_path, Shape(1, 1, 1, 0), {}, next(PORTS))
    servers = list(layout.file.servers.values())
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDER, str(server.data)], stdout=subprocess.PIPE) for server in servers
    ]
    by_signal = signal.pidfd_send_signal

    def end_first(descriptor: int, number: int) -> None:
        for holder in holders:
            holder.kill()
            holder.wait()
        by_signal(descriptor, number)

    try:
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
        assert set(processes.running(layout)) == {server.name for server in servers}
        monkeypatch.setattr(signal, "pidfd_send_signal", end_first)
        assert processes.end(layout, lambda done, of: None) == []
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
            assert holder.stdout is not None
            holder.stdout.close()
