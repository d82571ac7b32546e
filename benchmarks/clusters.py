"""Clusters of real processes on this machine, with their journals on a disk and fsync on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from logdb.clients.log_client import RemoteLog
from logdb.errors import Unavailable
from logdb.log import connect
from logdb.log.engine import ENGINES, all_engines
from tests.harness.ports import free_addresses

TICKS_S = os.sysconf("SC_CLK_TCK")
READY_S = 120
FOUNDERS: Final = ("ordering", "replica", "node")
ROLES = ("ordering", "storage", "sequencer", "aggregator", "replica", "mapping")
LETTERS: Final = {role.name: role.letter for engine in all_engines() for role in engine.roles.values()}
SERVE: Final = (sys.executable, "-P", "-m", "logdb_cli", "serve")


class Shape(NamedTuple):
    """How many servers of each role; `shards` are made of the storage servers, the others are spares.

    `failures`, `policy`: of an engine that has shards, "" for the default. `nodes`: as many processes, each with a
    server of every role that has any; 0: a process for each server. `cold`: the place of the cold tier, "" for none.
    """

    ordering: int = 1
    storage: int = 1
    sequencer: int = 0
    aggregator: int = 0
    mapping: int = 0
    failures: int = 0
    shards: int = 1
    replica: int = 0
    engine: str = ENGINES[0]
    policy: str = ""
    nodes: int = 0
    cold: str = ""


PROCESSES: Final[Mapping[str, Shape]] = {
    "scalog": Shape(ordering=3, storage=4, mapping=1, failures=1, shards=2),
    "multipaxos": Shape(ordering=0, storage=0, replica=3, mapping=1, engine="multipaxos"),
    "ziplog": Shape(ordering=3, storage=4, mapping=1, failures=1, shards=2, engine="ziplog"),
    "corfu": Shape(ordering=3, storage=4, sequencer=1, mapping=1, failures=1, shards=2, engine="corfu"),
}
"""A process for each server."""


def nodes_of(engine: str, nodes: int) -> Shape:
    """Equal nodes, each with a server of every role that the database needs on this engine."""
    if engine == "multipaxos":
        return Shape(ordering=0, storage=0, replica=nodes, mapping=nodes, engine=engine, nodes=nodes)
    policy = "mask" if engine == "scalog" else ""
    sequencers = nodes if engine == "corfu" else 0
    shape = Shape(ordering=nodes, storage=nodes, mapping=nodes, failures=nodes // 2, engine=engine, policy=policy)
    return shape._replace(nodes=nodes, sequencer=sequencers)


class Cluster:
    """The processes of a cluster, by name: o1, ..., s1, ..., a1, ..., m1, ..., or n1, ...; with `with`, none is left.

    `roles`: of each process, "node" for several; `addresses`: where it listens. `serve`: the command that runs a
    process, but for its role, configuration and name.
    """

    def __init__(self, path: Path, shape: Shape, *, serve: Sequence[str] = SERVE) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.shape, self._serve = path, shape, serve
        kinds = ("node",) if shape.nodes else ROLES
        self.roles = {
            f"{LETTERS.get(role, role[0])}{number}": role
            for role in kinds
            for number in range(1, _count(shape, role) + 1)
        }
        self._config = path / "cluster.toml"
        free = free_addresses()
        self.addresses = {name: next(free) for name in self.roles}
        self._metrics = {name: next(free) for name, role in self.roles.items() if role in FOUNDERS}
        lines = ["[cluster]", 'name = "benchmark"', f'engine = "{shape.engine}"']
        if shape.storage:
            lines.append(f"failures = {shape.failures}")
        if shape.policy:
            lines.append(f'policy = "{shape.policy}"')
        if shape.cold:
            lines.append(f'cold = "{shape.cold}"')
        for name, role in self.roles.items():
            lines += [f"[{role}.{name}]", f'listen = "{self.addresses[name]}"']
            if role == "node":
                lines.append(f"roles = {[role for role in ROLES if getattr(shape, role)]}")
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
        """Where its founders listen."""
        return ",".join([self.addresses[name] for name in self._metrics])

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
        if not self.shape.storage:
            return
        with connect(self.endpoints) as log:
            deadline = time.monotonic() + READY_S
            while len(log.configuration().spares) < self.shape.storage and time.monotonic() < deadline:
                time.sleep(0.05)
            self.add_shards(log, self.shape.shards)

    @staticmethod
    def add_shards(log: RemoteLog, count: int) -> None:
        """Make shards of spare servers. Raises Unavailable."""
        deadline, shards = time.monotonic() + READY_S, 0
        while shards < count:
            try:
                log.add_shard()
                shards += 1
            except Unavailable:  # on a busy machine a server may seem to have failed
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def pids(self) -> dict[str, list[int]]:
        """Of those that run, by role."""
        found: dict[str, list[int]] = {}
        for name, process in self.processes.items():
            found.setdefault(self.roles[name], []).append(process.pid)
        return found

    def leader(self) -> str:
        """The process whose founder leads."""
        while True:
            for name, address in self._metrics.items():
                if name in self.processes:
                    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics") as answer:
                        if re.search(rb"\nlogdb_leader(\{[^}]*\})? 1", answer.read()):
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


def _count(shape: Shape, role: str) -> int:
    return shape.nodes if role == "node" else int(getattr(shape, role))


def cpu_s(pids: Sequence[int]) -> float:
    """CPU time of these processes in seconds as the operating system counts it, with gRPC's threads. 0 for a
    process that has ended."""
    used = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
    return used / TICKS_S
