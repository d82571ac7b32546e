"""A cluster of real processes for tests: `logdb serve ...`, each of which can be killed, stopped and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType

from logdb.log.engine import ENGINES, engine_of
from logdb.node.config import settings_of
from logdb.wire.envelopes import MAPPING
from tests.harness.ports import free_addresses

WAIT_S = 60

SETTINGS = {
    "heartbeat_ms": 50,
    "suspect_after_ms": 600,
    "straggle_after_ms": 3000,
    "election_ms": 300,
    "checkpoint_s": 1,
}
"""Of [cluster], as far as the engine has them."""


class Processes:
    """Servers by name: the letter of the role and a number; m1, m2, ... are the mapping servers. A context manager that
    leaves no process behind."""

    def __init__(
        self,
        path: Path,
        *,
        ordering: int,
        storage: int,
        aggregators: int,
        failures: int,
        policy: str,
        mapping: int = 0,
        engine: str = ENGINES[0],
        cold: str = "",
    ) -> None:
        self.path, self.config = path, path / "cluster.toml"
        self.engine = engine_of(engine)
        operations, keys = self.engine.operations, settings_of(self.engine)
        numbers = {"ordering": ordering, "aggregators": aggregators}
        counts = dict.fromkeys(self.engine.roles, 1) | {operations.storage_role: storage}
        counts |= {role: numbers[field] for field, role in operations.shape_fields.items()}
        letters = {role.name: role.letter for role in self.engine.roles.values()} | {MAPPING: "m"}
        self.roles = {
            f"{letters[role]}{number}": role
            for role, count in (counts | {MAPPING: mapping}).items()
            for number in range(1, count + 1)
        }
        addresses = free_addresses()
        self.addresses = {name: next(addresses) for name in self.roles}
        self.metrics = {name: next(addresses) for name in self.roles}
        settings = SETTINGS | {"policy": policy, "failures": failures} | ({"cold": cold} if cold else {})
        own = {key: value for key, value in settings.items() if key in keys}
        cluster = {"name": "test", "engine": self.engine.name, **own}
        tables = ["[cluster]", *(f"{key} = {json.dumps(value)}" for key, value in cluster.items()), ""]
        for name, role in self.roles.items():
            lines = [f"[{role}.{name}]", f'listen = "{self.addresses[name]}"', f'metrics = "{self.metrics[name]}"', ""]
            tables.append("\n".join(lines))
        self.config.write_text("\n".join(tables))
        self.running: dict[str, subprocess.Popen[str]] = {}

    @property
    def founders(self) -> list[str]:
        """The names of the founders."""
        return [name for name, role in self.roles.items() if role == self.engine.founder_role]

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
        """Send a signal to stop it. Returns its exit code."""
        process = self.running.pop(name)
        process.send_signal(number)
        process.communicate(timeout=WAIT_S)
        return process.returncode

    def log(self, name: str) -> str:
        """The text that it has written to stderr."""
        return (self.path / f"{name}.log").read_text()

    def metrics_of(self, name: str) -> str:
        """Its metrics, as Prometheus would get them."""
        with urllib.request.urlopen(f"http://{self.metrics[name]}/metrics", timeout=WAIT_S) as answer:
            text: str = answer.read().decode()
            return text

    def metric(self, name: str, metric: str) -> float:
        """The value of a metric, as Prometheus would get it."""
        for line in self.metrics_of(name).splitlines():
            if line.split(" ")[0] == metric:
                return float(line.split(" ")[1])
        raise AssertionError(f"{name} has no metric {metric}")

    def leader(self) -> str:
        """The founder that leads."""
        while True:
            for name in self.founders:
                if name in self.running and self.metric(name, "logdb_leader"):
                    return name
