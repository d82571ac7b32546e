"""The configuration of a cluster: one TOML file, the same on every machine, and of it what one server needs to know.

    [cluster]
    name = "demo"

    [ordering.o1]
    listen = "127.0.0.1:7401"

    [storage.s1]
    listen = "127.0.0.1:7411"

    [mapping.m1]
    listen = "127.0.0.1:7421"

Every server has a table of its own, `[ROLE.NAME]`. A machine's file may leave out storage servers and aggregators of
other machines, but has all ordering replicas and mapping servers. `SETTINGS` has every key, with what it may be.
Whatever is wrong is said with the file, the line and what would be right (`Misconfigured`).

Beyond one machine there must be

    [security]
    ca = "certificates/ca.pem"                      # whoever comes must show a certificate of it
    certificate = "certificates/{role}-{name}.pem"  # of each server; see `logdb.net.security.nodes`
    key = "certificates/{role}-{name}.key"
    tokens = "tokens.toml"                          # see `logdb.net.security.access`; without it clients may do all
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from logdb.cluster.mapping_server import MappingConfig
from logdb.errors import LogDBError
from logdb.log import paxos
from logdb.log.cores import MILLISECOND, Address
from logdb.log.requests import ClientConfig
from logdb.log.scalog.aggregator import AggregatorConfig
from logdb.log.scalog.commands import FailurePolicy
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.ordering import OrderingConfig
from logdb.net.parcels import Role
from logdb.net.security.gate import Security
from logdb.net.service.addresses import is_loopback, parsed


class Misconfigured(LogDBError, ValueError):
    """A configuration file says something that it must not. `path`, `line` (None: the file as a whole)."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        self.path, self.line, self.what = path, line, what
        super().__init__(f"{path}:{line}: {what}" if line is not None else f"{path}: {what}")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What every server is told. `address`: where others find it, `listen`: where it listens. `data`: its directory.
    `metrics`: where Prometheus may ask, "" nowhere. `ordering`, `mapping`: the addresses of all ordering replicas, and
    of all mapping servers. `security`: None on loopback only. `names`: of servers, by the addresses in the file."""

    name: str
    cluster: str
    listen: Address
    address: Address
    data: Path
    ordering: tuple[Address, ...]
    mapping: tuple[Address, ...] = ()
    metrics: str = ""
    security: Security | None = None
    names: Mapping[Address, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class OrderingServerConfig(ServerConfig):
    """One replica of the ordering layer. For the times and sizes see `scalog.ordering.OrderingConfig`."""

    policy: FailurePolicy = FailurePolicy.FINALIZE_AND_ADD
    failures: int = 1
    heartbeat_ms: int = 100
    suspect_after_ms: int = 1_000
    straggle_after_ms: int = 5_000
    election_ms: int = 500
    cut_interval_ms: int = 0
    snapshot_mib: int = 4

    @property
    def role(self) -> Role:
        """What it is."""
        return Role.ORDERING

    def core(self) -> OrderingConfig:
        """The same for its core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return OrderingConfig(
            address=self.address,
            replicas=self.ordering,
            policy=self.policy,
            f=self.failures,
            interval_ns=self.cut_interval_ms * MILLISECOND,
            heartbeat_ns=heartbeat_ns,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            straggle_after_ns=self.straggle_after_ms * MILLISECOND,
            snapshot_bytes=self.snapshot_mib << 20,
            paxos=paxos.Config(election_ns=self.election_ms * MILLISECOND, heartbeat_ns=heartbeat_ns),
        )


@dataclass(frozen=True, slots=True)
class StorageServerConfig(ServerConfig):
    """A storage server. For the times and sizes see `scalog.storage.StorageConfig`; `segment_mib`: of a file."""

    heartbeat_ms: int = 100
    suspect_after_ms: int = 1_000
    straggle_after_ms: int = 5_000
    buffer_mib: int = 16
    segment_mib: int = 64

    @property
    def role(self) -> Role:
        """What it is."""
        return Role.STORAGE

    def core(self) -> StorageConfig:
        """The same for its core."""
        return StorageConfig(
            address=self.address,
            ordering=self.ordering,
            heartbeat_ns=self.heartbeat_ms * MILLISECOND,
            ask_ns=2 * self.heartbeat_ms * MILLISECOND,
            resend_ns=self.heartbeat_ms * MILLISECOND,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            straggle_after_ns=self.straggle_after_ms * MILLISECOND,
            buffer_bytes=self.buffer_mib << 20,
        )


@dataclass(frozen=True, slots=True)
class AggregatorServerConfig(ServerConfig):
    """An aggregator. For the times see `scalog.aggregator.AggregatorConfig`. It keeps nothing in `data`."""

    heartbeat_ms: int = 100
    suspect_after_ms: int = 1_000
    straggle_after_ms: int = 5_000

    @property
    def role(self) -> Role:
        """What it is."""
        return Role.AGGREGATOR

    def core(self) -> AggregatorConfig:
        """The same for its core."""
        return AggregatorConfig(
            address=self.address,
            ordering=self.ordering,
            heartbeat_ns=self.heartbeat_ms * MILLISECOND,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            straggle_after_ns=self.straggle_after_ms * MILLISECOND,
            suspect_aggregator_after_ns=self.suspect_after_ms * MILLISECOND,
        )


@dataclass(frozen=True, slots=True)
class MappingServerConfig(ServerConfig):
    """A mapping server. For what it says of decisions see `cluster.mapping_server.MappingConfig`. What it holds beside
    its checkpoint is moved there when it has grown to `checkpoint_mib`, or after `checkpoint_s`. `compact_above`: the
    share of garbage above which the log is compacted; 1: never."""

    keep_decisions: int = 10_000
    decide_ms: int = 10_000
    checkpoint_mib: int = 64
    checkpoint_s: int = 10
    compact_above: float = 0.75

    @property
    def role(self) -> Role:
        """What it is."""
        return Role.MAPPING

    def core(self) -> MappingConfig:
        """The same for its core."""
        return MappingConfig(
            address=self.address,
            log=ClientConfig(address=self.address, ordering=self.ordering),
            peers=tuple(other for other in self.mapping if other != self.address),
            keep_decisions=self.keep_decisions,
            decide_ns=self.decide_ms * MILLISECOND,
            compact_above=self.compact_above,
        )


AnyServerConfig = OrderingServerConfig | StorageServerConfig | AggregatorServerConfig | MappingServerConfig

ROLES: Final[dict[str, Callable[..., AnyServerConfig]]] = {
    "ordering": OrderingServerConfig,
    "storage": StorageServerConfig,
    "aggregator": AggregatorServerConfig,
    "mapping": MappingServerConfig,
}


class Setting(NamedTuple):
    """What a key may be: `check` returns the value to use, or raises ValueError with what is allowed. `where`: the
    tables in which it may stand; in [cluster] it is for all servers that it concerns."""

    kind: type
    check: Callable[[Any], Any]
    where: tuple[str, ...]


def _between(least: int, most: int) -> Callable[[int], int]:
    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"a number from {least} to {most:,}")
        return value

    return check


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise ValueError("a share more than 0.0, up to 1.0, which means never")
    return value


def _text(value: str) -> str:
    if not value or any(character.isspace() or character in "/=" for character in value):
        raise ValueError("a name without blanks, / and =")
    return value


def _address(value: str) -> str:
    try:
        port = parsed(value)[1]
    except ValueError:
        port = 0
    if not port:
        raise ValueError('"host:port" with a port from 1 to 65535')
    return value


def _policy(value: str) -> FailurePolicy:
    policies = {policy.name.lower().replace("_", "-"): policy for policy in FailurePolicy}
    if value not in policies:
        raise ValueError("one of " + ", ".join(f'"{name}"' for name in sorted(policies)))
    return policies[value]


_ALL: Final = ("ordering", "storage", "aggregator", "mapping")
SETTINGS: Final[dict[str, Setting]] = {
    "name": Setting(str, _text, ("cluster",)),
    "data": Setting(str, Path, ("cluster", *_ALL)),
    "listen": Setting(str, _address, _ALL),
    "address": Setting(str, _address, _ALL),
    "metrics": Setting(str, _address, _ALL),
    "shards": Setting(int, _between(1, 10_000), ("cluster",)),
    "policy": Setting(str, _policy, ("cluster",)),
    "failures": Setting(int, _between(0, 10), ("cluster",)),
    "heartbeat_ms": Setting(int, _between(5, 60_000), ("cluster",)),
    "suspect_after_ms": Setting(int, _between(20, 3_600_000), ("cluster",)),
    "straggle_after_ms": Setting(int, _between(20, 3_600_000), ("cluster",)),
    "election_ms": Setting(int, _between(10, 600_000), ("cluster",)),
    "cut_interval_ms": Setting(int, _between(0, 10_000), ("cluster",)),
    "snapshot_mib": Setting(int, _between(1, 1_024), ("cluster", "ordering")),
    "buffer_mib": Setting(int, _between(1, 4_096), ("cluster", "storage")),
    "segment_mib": Setting(int, _between(1, 1_024), ("cluster", "storage")),
    "keep_decisions": Setting(int, _between(1, 10_000_000), ("cluster",)),
    "checkpoint_mib": Setting(int, _between(1, 65_536), ("cluster", "mapping")),
    "checkpoint_s": Setting(int, _between(1, 86_400), ("cluster", "mapping")),
    "compact_above": Setting(float, _share, ("cluster",)),
    "decide_ms": Setting(int, _between(10, 3_600_000), ("cluster",)),
    "ca": Setting(str, Path, ("security",)),
    "certificate": Setting(str, str, ("security",)),
    "key": Setting(str, str, ("security",)),
    "tokens": Setting(str, Path, ("security",)),
}
"""Every key. Times that all must agree on stand in [cluster] alone."""

_KINDS: Final = {str: "a string", int: "a whole number", float: "a number with a point", dict: "a table"}


class ClusterFile:
    """A configuration file, checked as a whole when it is read. Raises Misconfigured.

    `servers`: the configuration of every server in it, by its role and name. `shards`: how many `logdb cluster up` adds
    to a new cluster.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_bytes().decode()
            tables = tomllib.loads(self._text)
        except OSError as error:
            raise Misconfigured(path, None, f"it cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise Misconfigured(path, None, "it is not UTF-8 text") from error
        except tomllib.TOMLDecodeError as error:
            raise Misconfigured(path, None, f"it is not TOML: {error}") from error
        for name in tables:
            if name not in ("cluster", "security", *_ALL):
                raise self._wrong((name,), f"[{name}] is no table of it; there are [cluster], [security], "
                                  "[ordering.NAME], [storage.NAME], [aggregator.NAME] and [mapping.NAME]")  # fmt: skip
        self._cluster = self._checked(("cluster",), tables.get("cluster"))
        self.name: str = self._required(("cluster",), self._cluster, "name")
        self.shards: int = self._cluster.get("shards", 0)
        named = {role: self._named(role, tables.get(role, {})) for role in _ALL}
        self._security = self._checked(("security",), tables["security"]) if "security" in tables else None
        self._check_addresses(named)
        self._check_reach(named)
        if len(named["ordering"]) % 2 == 0:
            raise Misconfigured(path, None, f"there are {len(named['ordering'])} ordering replicas; there must be an "
                                "odd number of tables [ordering.NAME]: 1, 3 or 5")  # fmt: skip
        self._check_times()
        self._known = {
            role: tuple(table["address"] for table in named[role].values()) for role in ("ordering", "mapping")
        }
        self._names = {table["address"]: name for tables in named.values() for name, table in tables.items()}
        self.servers: dict[tuple[str, str], AnyServerConfig] = {
            (role, name): self._server(role, name, table)
            for role, tables in named.items()
            for name, table in tables.items()
        }

    def server(self, role: str, name: str) -> AnyServerConfig:
        """The configuration of one server. Raises Misconfigured."""
        if (role, name) not in self.servers:
            names = [other for kind, other in self.servers if kind == role]
            there = f"there are {', '.join(names)}" if names else "there is none of that role"
            raise Misconfigured(self.path, None, f"it has no table [{role}.{name}]; {there}")
        return self.servers[role, name]

    # ---- checks

    def _named(self, role: str, tables: Any) -> dict[str, dict[str, Any]]:
        """The servers of a role, with their addresses and directories."""
        if not isinstance(tables, dict):
            raise self._wrong((role,), f"{role} must be tables [{role}.NAME]")
        named = {}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise self._wrong((role, name), f"{name} stands in no server's table; write [{role}.NAME] above it")
            path = (role, _try(_text, name) or "")
            if not path[1]:
                raise self._wrong((role, name), f"{name!r} must be a name without blanks, / and =")
            named[name] = checked = self._checked(path, table)
            checked.setdefault("address", self._required(path, checked, "listen"))
            checked.setdefault("data", self._cluster.get("data", Path("data")) / name)
            checked["data"] = self.path.absolute().parent / checked["data"]
        return named

    def _checked(self, path: tuple[str, ...], table: Any) -> dict[str, Any]:
        shown = f"[{'.'.join(path)}]"
        if not isinstance(table, dict):
            raise (
                self._wrong(path, f"the table {shown} is missing")
                if table is None
                else self._wrong(path, f"{shown} must be a table")
            )
        checked = {}
        for key, value in table.items():
            setting = SETTINGS.get(key)
            if setting is None or path[0] not in setting.where:
                allowed = ", ".join(sorted(name for name, other in SETTINGS.items() if path[0] in other.where))
                raise self._wrong((*path, key), f"{key} is no key of {shown}; there are {allowed}")
            if type(value) is not setting.kind:
                raise self._wrong((*path, key), f"{key} must be {_KINDS[setting.kind]}, it is {value!r}")
            try:
                checked[key] = setting.check(value)
            except ValueError as error:
                raise self._wrong((*path, key), f"{key} must be {error}; it is {value!r}") from error
        return checked

    def _required(self, path: tuple[str, ...], table: Mapping[str, Any], key: str) -> Any:
        if key not in table:
            raise self._wrong(path, f"[{'.'.join(path)}] lacks the key {key}")
        return table[key]

    def _check_addresses(self, named: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """No two servers listen, or are found, at one address, or keep their data in one directory."""
        taken: dict[tuple[str, Any], tuple[str, ...]] = {}
        for role, tables in named.items():
            for name, table in tables.items():
                mine = {
                    ("address", table["address"]): "address",
                    ("address", _place(table["listen"], table["address"])): "listen",
                    ("address", _place(table.get("metrics"), table["address"])): "metrics",
                    ("data", table["data"]): "data",
                }
                for what, key in mine.items():
                    other = taken.setdefault(what, (role, name, key))
                    if what[1] is not None and other[:2] != (role, name):
                        line = self._line(other)
                        raise self._wrong((role, name, key), f"{what[1]} is already taken by [{other[0]}.{other[1]}]"
                                          + (f" in line {line}" if line else ""))  # fmt: skip

    def _check_reach(self, named: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Whoever can reach a server from another machine must show who they are."""
        if self._security is not None:
            for key in ("ca", "certificate", "key"):
                self._required(("security",), self._security, key)
            return
        for role, tables in named.items():
            for name, table in tables.items():
                for key in ("listen", "metrics"):
                    if key in table and not is_loopback(table[key]):
                        what = 'a loopback address such as "127.0.0.1:7401", or there must be a table [security]'
                        raise self._wrong((role, name, key), f"{key} must be {what}; it is {table[key]!r}")

    def _security_of(self, role: str, name: str) -> Security | None:
        if self._security is None:
            return None
        here = self.path.absolute().parent
        filled = {
            key: here / str(path).replace("{role}", role).replace("{name}", name)
            for key, path in self._security.items()
        }
        return Security(**filled)

    def _check_times(self) -> None:
        """A heartbeat must be heard before it is missed."""
        defaults = OrderingServerConfig("", "", "", "", Path(), ())
        heartbeat = self._cluster.get("heartbeat_ms", defaults.heartbeat_ms)
        for key in ("election_ms", "suspect_after_ms", "straggle_after_ms"):
            value = self._cluster.get(key, getattr(defaults, key))
            if value < 2 * heartbeat:
                about = key if key in self._cluster else "heartbeat_ms"
                raise self._wrong(
                    ("cluster", about), f"{key} ({value}) must be at least twice heartbeat_ms ({heartbeat})"
                )

    def _server(self, role: str, name: str, table: Mapping[str, Any]) -> AnyServerConfig:
        kind = ROLES[role]
        fields: Mapping[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
        known = {**{key: value for key, value in self._cluster.items() if key not in ("name", "data")}, **table}
        known |= {"security": self._security_of(role, name), "names": self._names}
        own = {key: value for key, value in known.items() if key in fields}
        return kind(name=name, cluster=self.name, **self._known, **own)

    # ---- lines

    def _wrong(self, key: tuple[str, ...], what: str) -> Misconfigured:
        return Misconfigured(self.path, self._line(key), what)

    def _line(self, key: tuple[str, ...]) -> int | None:
        """Where a key is set, or else its table begins: after that statement the file, cut off there, has it."""
        lines = self._text.splitlines()
        begin = 1
        for count in range(1, len(lines) + 1):
            found = _try(tomllib.loads, "\n".join(lines[:count]))
            if found is None:
                continue
            for part in key:
                found = found.get(part) if isinstance(found, dict) else None
            if found is not None:
                return begin
            begin = count + 1
        return self._line(key[:-1]) if len(key) > 1 else None


def _place(listen: Address | None, address: Address) -> Address | None:
    """Where that is: to listen at all addresses of a machine is to listen at the one by which others find it."""
    if listen is None or parsed(listen)[0] not in ("0.0.0.0", "::"):
        return listen
    return f"{address.rpartition(':')[0]}:{parsed(listen)[1]}"


def _try(what: Callable[[str], Any], text: str) -> Any:
    """What comes of it, None if that is an error."""
    try:
        return what(text)
    except ValueError:
        return None
