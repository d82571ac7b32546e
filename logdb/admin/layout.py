"""The directory of a cluster whose servers run on this machine, and the cluster file in it.

cluster.toml   the configuration, which `logdb serve` reads; edit it only while the servers are down
LOCK           held by the command that is changing the cluster
data/NAME/     the directory of a server
logs/NAME.log  its log
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from logdb.errors import DatabaseInUse, LogDBError, Unavailable
from logdb.log.engine import Engine, ServerConfig, Shape, engine_of
from logdb.node.config import ClusterFile, Misconfigured
from logdb.node.roles import roles_of
from logdb.system.addresses import cannot_listen, location_of, parsed
from logdb.system.directories import LOCK, lock
from logdb.wire.envelopes import MAPPING, NODE

FILE: Final = "cluster.toml"
SUSPECT_AFTER_MS: Final = 3_000
"""Servers that share a machine may delay each other; a delayed server has not failed."""

HEAD: Final = """\
# Made by `logdb cluster up`. One table for each process, which `logdb serve ROLE --config FILE --name NAME` runs.

[cluster]
name = "{name}"
engine = "{engine}"
shards = {shards}
"""
TABLE: Final = """
[{role}.{name}]
listen = "{address}"
"""


class NotACluster(LogDBError):
    """The directory is not a cluster's, or belongs to another cluster."""


NODE_TABLE: Final = """
[node.{name}]
listen = "{address}"
roles = [{roles}]
"""


def roles_of_nodes(engine: Engine, shape: Shape) -> list[str]:
    """The roles of each node of a cluster of equal nodes. Raises ValueError for a shape that it cannot have."""
    counts = dict.fromkeys(roles_of(engine), 0) | dict(Counter(role for role, _ in servers_of(engine, shape)))
    for role, count in counts.items():
        if count not in (0, shape.nodes):
            raise ValueError(f"{shape.nodes} equal nodes have as many {role} servers or none, not {count}")
    return [role for role, count in counts.items() if count]


def servers_of(engine: Engine, shape: Shape) -> Iterator[tuple[str, str]]:
    """(role, name) of every server. Raises ValueError for a shape that the engine cannot have."""
    counts = {**engine.operations.server_counts(shape), MAPPING: shape.mapping}
    roles = roles_of(engine)
    for role, count in counts.items():
        letter = roles[role].letter
        yield from ((role, f"{letter}{number}") for number in range(1, count + 1))


class Layout:
    """The directory of a cluster: `path`, with `file` in it."""

    def __init__(self, path: Path) -> None:
        """Raises NotACluster, Misconfigured."""
        self.path = path
        if not (path / FILE).exists():
            raise NotACluster(f"there is no cluster in {path}: `logdb cluster up --dir {path}` creates one")
        self.file = ClusterFile(path / FILE)

    @classmethod
    def make(cls, path: Path, shape: Shape, settings: Mapping[str, Any], first_port: int) -> Layout:
        """Lay out a new cluster, all or nothing. `settings`: more keys of [cluster]. Raises NotACluster, Unavailable,
        ValueError, OSError."""
        strangers = sorted(entry.name for entry in path.iterdir() if entry.name not in (LOCK, f"{FILE}.tmp"))
        if strangers:
            raise NotACluster(f"{path} holds {strangers[0]!r} and no {FILE}; name an empty or a new directory")
        ports = free_ports(first_port)
        name = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', path.resolve().name) or 'cluster'}-{secrets.token_hex(3)}"
        engine = engine_of(shape.engine)
        head = HEAD.format(name=name, engine=shape.engine, shards=shape.shards)
        if "suspect_after_ms" in engine.settings:
            settings = {"suspect_after_ms": SUSPECT_AFTER_MS, **settings}
        lines = (*engine.operations.settings(shape).items(), *settings.items())
        head += "".join(f"{key} = {_toml(value)}\n" for key, value in lines)
        addresses = (f"127.0.0.1:{port}" for port in ports)
        if shape.nodes:
            roles = ", ".join(f'"{role}"' for role in roles_of_nodes(engine, shape))
            names = [f"n{number}" for number in range(1, shape.nodes + 1)]
            tables = [NODE_TABLE.format(name=name, address=next(addresses), roles=roles) for name in names]
        else:
            tables = [
                TABLE.format(role=role, name=name, address=next(addresses)) for role, name in servers_of(engine, shape)
            ]
        _write(path / FILE, head + "".join(tables))
        return cls(path)

    @property
    def log_path(self) -> Path:
        """The directory of the servers' logs."""
        return self.path / "logs"

    @property
    def endpoints(self) -> str:
        """The addresses for clients."""
        return ",".join(location_of(server.address) for server in self._founders)

    @property
    def storage(self) -> str:
        """The role of the servers that form shards."""
        return self.file.engine.operations.storage_role

    @property
    def _founders(self) -> list[ServerConfig]:
        return [one for (role, _), one in self.file.servers.items() if role == self.file.engine.founder_role]

    @property
    def has_storage_servers(self) -> bool:
        """Whether other servers than the founders hold records."""
        return self.storage != self.file.engine.founder_role

    @property
    def members_per_shard(self) -> int:
        """How many servers a shard takes."""
        return self.file.engine.operations.shard_size(self._founders[0])

    def differs(self, shape: Shape, requested: set[str]) -> str:
        """The first of the `requested` fields of a shape that differs here, for people; "" if none does."""
        engine = self.file.engine
        count = Counter(role for role, _ in self.file.servers)
        here = {
            "shards": self.file.shards,
            "replicas": self.members_per_shard,
            "mapping": count[MAPPING],
            **{field: count[role] for field, role in engine.operations.shape_fields.items()},
            "engine": engine.name,
            "nodes": sum(role == NODE for role, _ in self.file.nodes),
            "policy": engine.operations.policy_of(self._founders[0]),
        }
        for field in sorted(requested & set(here)):
            value, present = getattr(shape, field), here[field]
            if field == "nodes" and not present:
                return "a process for each server, not nodes"
            if value not in ("", present):
                return f"--{field} {present}, not {value}"
        return ""

    def add_storage(self, count: int) -> list[str]:
        """Add `count` storage servers to the file. Returns their names. `remove` reverses it."""
        there = {name for role, name in self.file.servers if role == self.storage}
        letter = self.file.engine.roles[self.storage].letter
        numbers = (f"{letter}{number}" for number in range(1, 1 << 30))
        names = [name for name, _ in zip((name for name in numbers if name not in there), range(count), strict=False)]
        addresses = [server.listen for server in self.file.servers.values()]
        ports = free_ports(1 + max(parsed(address)[1] for address in addresses))
        tables = [TABLE.format(role=self.storage, name=name, address=f"127.0.0.1:{next(ports)}") for name in names]
        self._rewrite((self.path / FILE).read_text() + "".join(tables))
        return names

    def remove(self, names: Sequence[str]) -> None:
        """Remove storage servers that `add_storage` has added."""
        text = (self.path / FILE).read_text()
        for name in names:
            server = self.file.server(self.storage, name)
            text = text.replace(TABLE.format(role=self.storage, name=name, address=server.listen), "")
        self._rewrite(text)

    def _rewrite(self, text: str) -> None:
        _write(self.path / FILE, text)
        self.file = ClusterFile(self.path / FILE)


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Hold a cluster's directory, which is made if there is none: one command changes it at a time. Raises
    Unavailable."""
    try:
        held = lock(path)
    except DatabaseInUse as error:
        raise Unavailable(f"another command is changing the cluster in {path}: {error.holder}") from error
    try:
        yield
    finally:
        held.release()


def free_ports(first: int) -> Iterator[int]:
    """Free ports of this machine's loopback address, from `first` on. Raises Unavailable."""
    for port in range(first, 1 << 16):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise cannot_listen(f"127.0.0.1:{port}", error) from error
        yield port
    raise Unavailable(f"there are not enough free ports from {first} on")


def _write(path: Path, text: str) -> None:
    """Replace the file atomically. Raises ValueError if the text is not a valid configuration."""
    staging = path.with_suffix(".toml.tmp")
    with staging.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        ClusterFile(staging)
    except Misconfigured as error:
        staging.unlink()
        raise ValueError(error.what) from error
    staging.replace(path)


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
