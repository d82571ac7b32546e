"""The servers on which TPC-C is measured: servers on this machine, with fsync on, each with its clients' address."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar, Final, Protocol

import logdb
from benchmarks.clusters import Cluster, nodes_of
from benchmarks.tpcc import logdb_terminal, postgres_terminal
from benchmarks.tpcc.workload import Scale, Terminal
from tests.harness.ports import free_ports

START_S: Final = 60
ENGINES: Final = ("multipaxos", "scalog")


class Database(Protocol):
    """A database with its servers. `address`: what `terminal` connects to, in any process."""

    name: str
    address: str

    def start(self, directory: Path, scale: Scale) -> None:
        """Start the servers, and load the tables."""
        ...

    def pids(self) -> list[int]:
        """Of the servers."""
        ...

    def violations(self, scale: Scale) -> list[str]:
        """Consistency conditions that do not hold."""
        ...

    def stop(self) -> None: ...


class LogDBNodes:
    """Three nodes of a LogDB cluster."""

    def __init__(self, engine: str) -> None:
        self.name, self._engine = f"LogDB {engine}", engine

    def start(self, directory: Path, scale: Scale) -> None:
        self._cluster = Cluster(directory, nodes_of(self._engine, 3))
        self._cluster.start()
        self.address = self._cluster.endpoints
        with logdb.connect(self.address, timeout=60) as db:
            logdb_terminal.load(db, scale)

    def pids(self) -> list[int]:
        return [pid for pids in self._cluster.pids().values() for pid in pids]

    def violations(self, scale: Scale) -> list[str]:
        with logdb.connect(self.address, timeout=60) as db:
            return logdb_terminal.violations(db, scale)

    def stop(self) -> None:
        self._cluster.close()


class Postgres:
    """PostgreSQL, alone or with standbys that have written a commit before it returns."""

    BASICS: ClassVar = {"listen_addresses": "127.0.0.1", "max_connections": "40", "unix_socket_directories": ""}

    def __init__(self, standbys: int = 0) -> None:
        self.name = "PostgreSQL synchronous" if standbys else "PostgreSQL"
        self._standbys = standbys
        self._directories: list[Path] = []

    def start(self, directory: Path, scale: Scale) -> None:
        directory.mkdir(parents=True)
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(directory, "postgres")
        free = free_ports()
        primary, port = directory / "primary", next(free)
        self.address = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
        self._run("initdb", "--pgdata", str(primary), "--username", "postgres", "--auth", "trust")
        wanted = {"synchronous_standby_names": f"ANY 1 ({', '.join(self._names)})"} if self._standbys else {}
        self._launch(primary, port, {})
        for name in self._names:
            backup = ["pg_basebackup", "--pgdata", str(directory / name), "--write-recovery-conf", "--checkpoint=fast"]
            self._run(*backup, "--dbname", f"{self.address} application_name={name}")
            self._launch(directory / name, next(free), {"cluster_name": name})
        postgres_terminal.load(self.address, scale)
        for setting, value in wanted.items():
            self._run("psql", "--dbname", self.address, "--command", f"ALTER SYSTEM SET {setting} = '{value}'")
            self._run("psql", "--dbname", self.address, "--command", "SELECT pg_reload_conf()")

    @property
    def _names(self) -> list[str]:
        return [f"standby{number}" for number in range(1, self._standbys + 1)]

    def _launch(self, data: Path, port: int, settings: dict[str, str]) -> None:
        words = [f"-c {name}='{value}'" for name, value in (self.BASICS | settings | {"port": str(port)}).items()]
        self._run(
            "pg_ctl", "--pgdata", str(data), "--wait", "--log", f"{data}.log", "--options", " ".join(words), "start"
        )
        self._directories.append(data)

    def _run(self, *command: str) -> None:
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        subprocess.run([*user, *command], check=True, capture_output=True, cwd="/", timeout=START_S)

    def pids(self) -> list[int]:
        first = [int((data / "postmaster.pid").read_text().split()[0]) for data in self._directories]
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", ",".join(map(str, first))], capture_output=True, text=True, check=False
        )
        return [*first, *map(int, listed.stdout.split())]

    def violations(self, scale: Scale) -> list[str]:
        return []

    def stop(self) -> None:
        for data in self._directories:
            self._run("pg_ctl", "--pgdata", str(data), "--mode", "immediate", "stop")


def databases() -> list[Database]:
    """Those whose programs are on this machine."""
    found: list[Database] = [LogDBNodes(engine) for engine in ENGINES]
    return [*found, Postgres(), Postgres(standbys=2)] if has_postgres() else found


def has_postgres() -> bool:
    """Whether PostgreSQL is on this machine."""
    return bool(shutil.which("postgres") and shutil.which("initdb"))


def terminal(database: str, address: str) -> Terminal:
    """A connection to the database of this name at an address."""
    if database.startswith("PostgreSQL"):
        return postgres_terminal.PostgresTerminal(address)
    return logdb_terminal.LogDBTerminal(logdb.connect(address, timeout=60))
