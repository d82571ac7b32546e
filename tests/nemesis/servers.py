"""The servers of a run as processes: on this machine's loopback, or on hosts of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from logdb.admin.layout import roles_of_nodes
from logdb.log.engine import Engine, Shape, engine_of
from logdb.wire.envelopes import MAPPING, NODE
from tests.harness import slow_disk
from tests.harness.applications import Application
from tests.harness.ports import free_addresses
from tests.nemesis.disks import FailingDisk
from tests.nemesis.network import METRICS_PORT, PORT, Network

SETTINGS = {
    "heartbeat_ms": 100,
    "suspect_after_ms": 1000,
    "straggle_after_ms": 3000,
    "election_ms": 500,
    "segment_mib": 1,
}
"""Of [cluster], as far as the engine has them."""
DISK_MIB = 192
ROOT = Path(__file__).resolve().parent.parent.parent


class Loopback:
    """Every server has a port, and a directory on this machine's disk."""

    network: Network | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self._free = free_addresses()
        self._addresses: dict[tuple[str, int], str] = {}

    def address(self, name: str, port: int = PORT) -> str:
        """The address of a server and port, which stays the same."""
        if (name, port) not in self._addresses:
            self._addresses[name, port] = next(self._free)
        return self._addresses[name, port]

    def command(self, _name: str) -> list[str]:
        """The prefix of a command of that server."""
        return []

    def disk(self, name: str) -> FailingDisk | None:
        """Create its disk, at `path` / its name."""
        (self.path / name).mkdir()

    def close(self) -> None:
        """Release the disks, after all servers have ended."""


class Hosts(Loopback):
    """Every server has a host and a disk of its own."""

    def __init__(self, path: Path, network: Network) -> None:
        super().__init__(path)
        self.network = network
        self._disks: list[FailingDisk] = []

    def address(self, name: str, port: int = PORT) -> str:
        """The address of a server and port, which stays the same."""
        assert self.network is not None
        return f"{self.network.address(name)}:{port}"

    def command(self, name: str) -> list[str]:
        """The prefix of a command of that server."""
        assert self.network is not None
        self.network.address(name)
        return self.network.command(name)

    def disk(self, name: str) -> FailingDisk | None:
        """Create its disk, at `path` / its name."""
        disk = FailingDisk(self.path / f"{name}.img", self.path / name, DISK_MIB)
        self._disks.append(disk)
        return disk

    def close(self) -> None:
        """Release the disks, after all servers have ended."""
        for disk in self._disks:
            disk.unmount()
            disk.image.unlink()


class Process:
    """A server or a client. Its output goes to files beside its data; `lives`: the number of starts."""

    def __init__(self, name: str, role: str, command: Sequence[str], path: Path) -> None:
        self.name, self.role, self.command, self.path = name, role, list(command), path
        self.lives = 0
        self._sizes_at_start = {"out": 0, "log": 0}
        self.paused = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it without waiting."""
        assert self._process is None
        self.lives += 1
        self._sizes_at_start = {kind: self._size(kind) for kind in ("out", "log")}
        with self._file("out").open("ab") as out, self._file("log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdout=out, stderr=log, cwd=ROOT, env=os.environ | {"LOGDB_TRACEBACK": "1"}
            )

    def _file(self, kind: str) -> Path:
        return self.path / f"{self.name}.{kind}"

    def _size(self, kind: str) -> int:
        return self._file(kind).stat().st_size if self._file(kind).exists() else 0

    def _output(self, kind: str) -> bytes:
        return self._file(kind).read_bytes()[self._sizes_at_start[kind] :]

    @property
    def ready(self) -> bool:
        """Whether it has reported that it is ready since its last start."""
        return self.running and b"ready: " in self._output("out")

    @property
    def running(self) -> bool:
        """Whether it is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended by itself."""
        return None if self._process is None else self._process.poll()

    @property
    def log(self) -> str:
        """The text that it has written to stderr since its last start."""
        return self._output("log").decode(errors="replace")

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.paused = True

    def freeze(self) -> None:
        """Stop all of its threads, as a power failure does, even if the kernel still works for it."""
        self.pause()
        assert self._process is not None
        threads = Path(f"/proc/{self._process.pid}/task")
        while any(map(_is_running, threads.glob("*/stat"))):
            time.sleep(0.001)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        """SIGKILL; the process has ended when this returns."""
        if self._process is not None:
            self._process.kill()
            self.forget()

    def end(self, timeout_s: float) -> int | None:
        """SIGTERM. Returns its exit code, None if it had to be killed."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.kill()

    def forget(self) -> None:
        """Reset it after its end, so that it may be started again."""
        assert self._process is not None
        self._process.wait()
        self._process, self.paused = None, False


def _is_running(stat: Path) -> bool:
    """Whether a thread runs, by its file in /proc."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:  # the thread has ended
        return False


SINGLE = "single"
"""The role of a server of one directory."""


def roles_of(shape: Shape | None) -> dict[str, str]:
    """The role of each server by its name; None: one server of a directory."""
    if shape is None:
        return {"db": SINGLE}
    if shape.nodes:
        return {f"n{number}": NODE for number in range(1, shape.nodes + 1)}
    engine = engine_of(shape.engine)
    counts = engine.operations.server_counts(shape)
    roles = {
        f"{role.letter}{number}": role.name
        for role in engine.roles.values()
        for number in range(1, counts[role.name] + 1)
    }
    return roles | {f"m{number}": MAPPING for number in range(1, shape.mapping + 1)}


def traits_of(engine: Engine | None, role: str) -> set[str]:
    """The traits of a role, by which faults select servers: "server" (all), "journals" and "disk" (their storage),
    "founder", "storage" (and not a founder), "mapping"."""
    if role == SINGLE:
        return {"server", "journals", "disk"}
    if role == MAPPING:
        return {"server", "disk", "mapping"}
    assert engine is not None
    if role == NODE:
        return traits_of(engine, MAPPING).union(*[traits_of(engine, one) for one in engine.roles])
    traits = {"server"} | ({"journals", "disk"} if engine.roles[role].has_journals else set())
    if role == engine.founder_role:
        return traits | {"founder"}
    return traits | ({"storage"} if role == engine.operations.storage_role else set())


class Servers:
    """The servers of a run by name: one of a directory, or those of a cluster of this shape; and their clients."""

    def __init__(self, ground: Loopback, shape: Shape | None, *, planted: str = "") -> None:
        self.ground, self.path, self.roles = ground, ground.path, roles_of(shape)
        self._planted = ["tests.nemesis.planted", planted] if planted else []
        engine = None if shape is None else engine_of(shape.engine)
        self.traits = {role: traits_of(engine, role) for role in self.roles.values()}
        self.engine = engine
        self.has_database = shape is None or bool(shape.mapping)
        self.disks = {name: ground.disk(name) for name, role in self.roles.items() if "disk" in self.traits[role]}
        self._config = self.path / "cluster.toml"
        if shape is not None and engine is not None:
            self._write_config(engine, shape)
        self.processes = {name: self._server(name, role) for name, role in self.roles.items()}
        self.clients: dict[str, Process] = {}

    @property
    def is_cluster(self) -> bool:
        """Whether there are servers of several roles."""
        return self.engine is not None

    def application_of(self, server: Process) -> Application:
        """A client that queries this mapping server, or that of this node, and no other one."""
        assert self.engine is not None
        founder_role = self.engine.founder_role
        founders = [self._address_of(process, founder_role) for process in self.having("founder")]
        return Application(founders, [self._address_of(server, MAPPING)], "nemesis", self.engine.name)

    def _address_of(self, process: Process, role: str) -> str:
        address = self.address(process.name)
        return f"{address}/{role}" if process.role == NODE else address

    def _write_config(self, engine: Engine, shape: Shape) -> None:
        settings = {key: value for key, value in SETTINGS.items() if key in engine.settings}
        settings |= {"name": "nemesis", "engine": engine.name, **engine.operations.settings(shape)}
        lines = ["[cluster]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items()), ""]
        for name, role in self.roles.items():
            lines += [f"[{role}.{name}]", f'listen = "{self.address(name)}"']
            lines += [f'metrics = "{self.ground.address(name, METRICS_PORT)}"', f'data = "{self.data(name)}"', ""]
            if role == NODE:
                lines[-1:] = [f"roles = {json.dumps(roles_of_nodes(engine, shape))}", ""]
        self._config.write_text("\n".join(lines))

    def _server(self, name: str, role: str) -> Process:
        python = [sys.executable, "-m", "tests.harness.slow_disk", str(self._delay(name)), *self._planted]
        command = [*self.ground.command(name), *python, "logdb_cli", "serve"]
        if self.is_cluster:
            command += [role, "--config", str(self._config), "--name", name]
        else:
            command += ["--db", str(self.data(name)), "--listen", self.address(name)]
        return Process(name, role, command, self.path)

    def client(self, name: str, *, seed: int, timeout_s: float, think_ms: float) -> Process:
        """A client process, at a host of its own."""
        client = Process(name, "client", [
            *self.ground.command(name.partition("-")[0]), sys.executable, "-m", *self._planted, "tests.nemesis.client",
            "--endpoints", self.endpoints, "--history", str(self.history(name)), "--name", name, "--seed", str(seed),
            "--timeout", str(timeout_s), "--think-ms", str(think_ms), *([] if self.has_database else ["--log"]),
        ], self.path)  # fmt: skip
        self.clients[name] = client
        self.history(name).touch()
        return client

    def history(self, client: str) -> Path:
        """The file of a client's history."""
        return self.path / f"{client}.jsonl"

    @property
    def endpoints(self) -> str:
        """The addresses for clients: the mapping servers, the single server, or the founders of a log without a
        database."""
        if not self.has_database:
            return self.founders
        return ",".join(map(self.address, self.with_database))

    @property
    def with_database(self) -> list[str]:
        """The names of the servers that answer clients of the database."""
        return [name for name, role in self.roles.items() if role == SINGLE or "mapping" in self.traits[role]]

    @property
    def founders(self) -> str:
        """The addresses of the founders."""
        return ",".join(self.address(process.name) for process in self.having("founder"))

    def address(self, name: str) -> str:
        """The address of a server."""
        return self.ground.address(name)

    def data(self, name: str) -> Path:
        """The data directory of a server, below the root of its disk."""
        return self.path / name / "data"

    def having(self, trait: str) -> list[Process]:
        """The servers with this trait."""
        return [process for process in self.processes.values() if trait in self.traits[process.role]]

    def metric(self, name: str, metric: str) -> float | None:
        """The value of a metric, the largest one of a node's servers; None if the server does not answer."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(
                f"http://{self.ground.address(name, METRICS_PORT)}/metrics", timeout=1
            ) as answer:
                lines = [line.split(" ") for line in answer.read().decode().splitlines()]
            return max((float(line[1]) for line in lines if line[0].partition("{")[0] == metric), default=None)
        return None

    def leader(self) -> str | None:
        """The founder that leads, by its metric `logdb_leader`; None if there is none."""
        leading = [one.name for one in self.having("founder") if self.metric(one.name, "logdb_leader")]
        return leading[0] if leading else None

    def delay_flushes(self, name: str, seconds: float) -> None:
        """Delay each flush of a server, from now on and after restarts."""
        slow_disk.set_delay(self._delay(name), seconds)

    def _delay(self, name: str) -> Path:
        return self.path / f"{name}.delay"

    def journals(self, name: str) -> Path:
        """The journals of a founder."""
        return next(self.data(name).glob("**/paxos.*")).parent

    def wipe(self, name: str) -> None:
        """Remove all data of a server that does not run."""
        shutil.rmtree(self.data(name), ignore_errors=True)

    def all_processes(self) -> Iterator[Process]:
        """Servers and clients."""
        yield from self.processes.values()
        yield from self.clients.values()

    def close(self) -> None:
        """Kill all processes, and unmount all disks."""
        for process in self.all_processes():
            process.kill()
        self.ground.close()
