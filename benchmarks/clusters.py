"""Clusters of real processes on this machine: one for each server, with its journals on a disk and fsync on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from logdb.log import connect
from tests.harness.ports import free_addresses

TICKS_S = os.sysconf("SC_CLK_TCK")
READY_S = 30
ROLES = ("ordering", "storage", "aggregator", "mapping")
SERVE: Final = (sys.executable, "-P", "-m", "logdb_cli", "serve")


class Shape(NamedTuple):
    """How many processes of each role; `shards` of `failures` + 1 storage servers are made, the others are spares."""

    ordering: int = 1
    storage: int = 1
    aggregator: int = 0
    mapping: int = 0
    failures: int = 0
    shards: int = 1


class Cluster:
    """The processes of a cluster, by name: o1, ..., s1, ..., a1, ..., m1, ... Used with `with`: none is left.

    `serve`: the command that runs a server, but for its role, configuration and name.
    """

    def __init__(self, path: Path, shape: Shape, *, serve: Sequence[str] = SERVE) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.shape, self._serve = path, shape, serve
        self.roles = {f"{role[0]}{number}": role for role in ROLES for number in range(1, getattr(shape, role) + 1)}
        self._config = path / "cluster.toml"
        free = free_addresses()
        self.addresses = {name: next(free) for name in self.roles}
        self._metrics = {name: next(free) for name, role in self.roles.items() if role == "ordering"}
        lines = ["[cluster]", 'name = "benchmark"', f"failures = {shape.failures}"]
        for name, role in self.roles.items():
            lines += [f"[{role}.{name}]", f'listen = "{self.addresses[name]}"']
            if name in self._metrics:
                lines.append(f'metrics = "{self._metrics[name]}"')
        self._config.write_text("\n".join(lines) + "\n")
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def endpoints(self) -> str:
        """Where its ordering replicas listen."""
        return ",".join([self.addresses[name] for name, role in self.roles.items() if role == "ordering"])

    def start(self) -> None:
        """Return when all run and the shards are made. Raises RuntimeError."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        for name, role in self.roles.items():
            command = [*self._serve, role, "--config", str(self._config), "--name", name]
            with (self.path / f"{name}.log").open("w") as errors:
                self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        for name, process in self.processes.items():
            assert process.stdout is not None
            if not process.stdout.readline().startswith("ready"):
                raise RuntimeError(f"{name} did not start:\n{(self.path / f'{name}.log').read_text()}")
        with connect(self.endpoints) as log:
            deadline = time.monotonic() + READY_S
            while len(log.configuration().spares) < self.shape.storage and time.monotonic() < deadline:
                time.sleep(0.05)
            for _ in range(self.shape.shards):
                log.add_shard()

    def pids(self) -> dict[str, list[int]]:
        """Of those that run, by role."""
        found: dict[str, list[int]] = {}
        for name, process in self.processes.items():
            found.setdefault(self.roles[name], []).append(process.pid)
        return found

    def leader(self) -> str:
        """The ordering replica that leads."""
        while True:
            for name, address in self._metrics.items():
                if name in self.processes:
                    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics") as answer:
                        if b"\nlogdb_leader 1" in answer.read():
                            return name

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def close(self) -> None:
        """End all."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.communicate()
        self.processes.clear()


def cpu_s(pids: Sequence[int]) -> float:
    """CPU time of these processes in seconds as the operating system counts it, with gRPC's threads. 0 for a
    process that has ended."""
    used = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
    return used / TICKS_S
