"""A cluster of real processes for tests: `logdb serve ...`, each killed, stopped and started again at will."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType

from tests.harness.ports import free_addresses

WAIT_S = 60

HEAD = """\
[cluster]
name = "test"
policy = "{policy}"
failures = {failures}
heartbeat_ms = 50
suspect_after_ms = 600
straggle_after_ms = 3000
election_ms = 300
checkpoint_s = 1
"""


class Processes:
    """Servers by name: o1, ... (ordering), s1, ... (storage), a1, ... (aggregators), m1, ... (mapping).
    Used with `with`: none is left."""

    def __init__(
        self, path: Path, *, ordering: int, storage: int, aggregators: int, failures: int, policy: str, mapping: int = 0
    ) -> None:
        self.path, self.config = path, path / "cluster.toml"
        self.roles = {f"o{number}": "ordering" for number in range(1, ordering + 1)}
        self.roles |= {f"a{number}": "aggregator" for number in range(1, aggregators + 1)}
        self.roles |= {f"s{number}": "storage" for number in range(1, storage + 1)}
        self.roles |= {f"m{number}": "mapping" for number in range(1, mapping + 1)}
        addresses = free_addresses()
        self.addresses = {name: next(addresses) for name in self.roles}
        self.metrics = {name: next(addresses) for name in self.roles}
        tables = [HEAD.format(policy=policy, failures=failures)]
        for name, role in self.roles.items():
            lines = [f"[{role}.{name}]", f'listen = "{self.addresses[name]}"', f'metrics = "{self.metrics[name]}"', ""]
            tables.append("\n".join(lines))
        self.config.write_text("\n".join(tables))
        self.running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.communicate()

    def spawn(self, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "logdb_cli", "serve", self.roles[name], "--config", str(self.config)]
        process = subprocess.Popen(
            [*command, "--name", name],
            stdout=subprocess.PIPE,
            stderr=(self.path / f"{name}.log").open("a"),
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.running[name] = process
        return process

    def start(self, *names: str) -> None:
        """Start them, and wait until they are ready."""
        for name in names:
            self.spawn(name)
        for name in names:
            output = self.running[name].stdout
            assert output is not None
            line = output.readline()
            assert line.startswith(f"ready: {self.roles[name]} {name} "), self.log(name)

    def start_all(self) -> None:
        self.start(*self.roles)

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop. Returns its exit code."""
        process = self.running.pop(name)
        process.send_signal(number)
        process.communicate(timeout=WAIT_S)
        return process.returncode

    def log(self, name: str) -> str:
        """What it has said on stderr."""
        return (self.path / f"{name}.log").read_text()

    def metric(self, name: str, metric: str) -> float:
        """What Prometheus would be told."""
        with urllib.request.urlopen(f"http://{self.metrics[name]}/metrics", timeout=WAIT_S) as answer:
            for line in answer.read().decode().splitlines():
                if line.split(" ")[0] == metric:
                    return float(line.split(" ")[1])
        raise AssertionError(f"{name} has no metric {metric}")

    def leader(self) -> str:
        """The ordering replica that leads."""
        while True:
            for name, role in self.roles.items():
                if role == "ordering" and name in self.running and self.metric(name, "logdb_leader"):
                    return name
