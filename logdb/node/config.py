"""The configuration of a cluster: one TOML file, the same on every machine, and the configurations of its servers.

    [cluster]
    name = "demo"

    [ordering.o1]
    listen = "127.0.0.1:7401"

    [storage.s1]
    listen = "127.0.0.1:7411"

    [mapping.m1]
    listen = "127.0.0.1:7421"

Every server has a table of its own, `[ROLE.NAME]`. A process with servers of several roles has a table `[node.NAME]`
instead, with `roles = ["ordering", "storage", "mapping"]`. The file on one machine may omit servers of other machines,
but lists all founders (the ordering replicas of Scalog) and all mapping servers. `engine` in [cluster] names the
engine of the log, which has roles and keys of its own. `settings_of` lists every key and its valid values. Errors name
the file, the line and the valid values (`Misconfigured`).

A cluster beyond one machine needs

    [security]
    ca = "certificates/ca.pem"                      # has signed every server's and client's certificate
    certificate = "certificates/{role}-{name}.pem"  # of each server; see `logdb.transport.node_authenticator`
    key = "certificates/{role}-{name}.key"
    tokens = "tokens.toml"                          # see `logdb.security.access`; without it clients have all rights
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from logdb.cores.effects import Address
from logdb.errors import LogDBError
from logdb.log.engine import ENGINES, Engine, ServerConfig, Setting, WrongSetting, between, engine_of
from logdb.node.node import NodeConfig
from logdb.node.roles import roles_of
from logdb.security.authenticator import Security
from logdb.system.addresses import is_loopback, parsed, role_in
from logdb.wire.envelopes import MAPPING, NODE


class Misconfigured(LogDBError, ValueError):
    """An error in a configuration file: its `path` and `line` (None: the file as a whole)."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        self.path, self.line, self.what = path, line, what
        super().__init__(f"{path}:{line}: {what}" if line is not None else f"{path}: {what}")


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise ValueError("a share above 0.0 and up to 1.0, which means never")
    return value


def _text(value: str) -> str:
    if not value or any(character.isspace() or character in "/=" for character in value):
        raise ValueError("a name without blanks, / and =")
    return value


def _place(value: str) -> str:
    if not value:
        raise ValueError('a directory, or a URL such as "s3://bucket/folder"')
    return value


def _address(value: str) -> str:
    try:
        port = parsed(value)[1]
    except ValueError:
        port = 0
    if not port:
        raise ValueError('"host:port" with a port from 1 to 65535')
    return value


def _engine(value: str) -> str:
    if value not in ENGINES:
        raise ValueError("one of " + ", ".join(f'"{name}"' for name in ENGINES))
    return value


def _roles_of(roles: Sequence[str]) -> Callable[[list[Any]], tuple[str, ...]]:
    def check(value: list[Any]) -> tuple[str, ...]:
        if not value or any(role not in roles for role in value) or len(set(value)) < len(value):
            raise ValueError("a list of " + ", ".join(f'"{role}"' for role in roles) + ", each at most once")
        return tuple(value)

    return check


def settings_of(engine: Engine) -> dict[str, Setting]:
    """Every key of the `cluster.toml` of a log of this engine."""
    roles = (*engine.roles, MAPPING)
    tables = (*roles, NODE)
    of_servers = {key: setting._replace(tables=(*setting.tables, *tables)) for key, setting in _OF_SERVERS.items()}
    return {**engine.settings, **_SETTINGS, **of_servers, "roles": Setting(list, _roles_of(roles), (NODE,))}


_OF_SERVERS: Final[dict[str, Setting]] = {
    "data": Setting(str, Path, ("cluster",)),
    "listen": Setting(str, _address, ()),
    "address": Setting(str, _address, ()),
    "metrics": Setting(str, _address, ()),
}
"""Keys of every server's table."""

_SETTINGS: Final[dict[str, Setting]] = {
    "engine": Setting(str, _engine, ("cluster",)),
    "name": Setting(str, _text, ("cluster",)),
    "shards": Setting(int, between(1, 10_000), ("cluster",)),
    "keep_decisions": Setting(int, between(1, 10_000_000), ("cluster",)),
    "checkpoint_mib": Setting(int, between(1, 65_536), ("cluster", "mapping")),
    "checkpoint_s": Setting(int, between(1, 86_400), ("cluster", "mapping")),
    "compact_above": Setting(float, _share, ("cluster",)),
    "cold": Setting(str, _place, ("cluster",)),
    "sweep_ms": Setting(int, between(1, 86_400_000), ("cluster",)),
    "decide_ms": Setting(int, between(10, 3_600_000), ("cluster",)),
    "ca": Setting(str, Path, ("security",)),
    "certificate": Setting(str, str, ("security",)),
    "key": Setting(str, str, ("security",)),
    "tokens": Setting(str, Path, ("security",)),
}
"""In addition to the settings of the engine."""

_KINDS: Final = {
    str: "a string",
    int: "a whole number",
    float: "a number with a point",
    dict: "a table",
    list: "a list",
}


class ClusterFile:
    """A configuration file, checked as a whole when it is read. Raises Misconfigured.

    `servers`: the configuration of every server, by role and name. `nodes`: of every process, by the role and name of
    its table. `shards`: the number of shards that `logdb cluster up` adds to a new cluster.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_bytes().decode()
            tables = tomllib.loads(self._text)
        except OSError as error:
            raise Misconfigured(path, None, f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise Misconfigured(path, None, "it is not UTF-8 text") from error
        except tomllib.TOMLDecodeError as error:
            raise Misconfigured(path, None, f"it is not TOML: {error}") from error
        self.engine = engine_of(self._engine_in(tables.get("cluster")))
        self._settings = settings_of(self.engine)
        roles = (*self.engine.roles, MAPPING)
        tables_of = (*roles, NODE)
        for name in tables:
            if name not in ("cluster", "security", *tables_of):
                there = ", ".join(["[cluster]", "[security]", *[f"[{role}.NAME]" for role in roles]])
                raise self._wrong((name,), f"[{name}] is not a table of this file; there are {there} and [{NODE}.NAME]")
        self._cluster = self._checked(("cluster",), tables.get("cluster"))
        if "cold" in self._cluster and "://" not in self._cluster["cold"]:
            self._cluster["cold"] = str(path.absolute().parent / self._cluster["cold"])
        self.name: str = self._required(("cluster",), self._cluster, "name")
        self.shards: int = self._cluster.get("shards", 0)
        named = {role: self._named(role, tables.get(role, {})) for role in tables_of}
        self._security = self._checked(("security",), tables["security"]) if "security" in tables else None
        self._check_addresses(named)
        self._check_reach(named)
        self._names = {table["address"]: name for tables in named.values() for name, table in tables.items()}
        nodes = named.pop(NODE)
        self._add_servers(nodes, named)
        founders = self.engine.founder_role
        if len(named[founders]) % 2 == 0:
            there = f"there are {len(named[founders])} {founders} replicas"
            needed = f"an odd number of tables [{founders}.NAME], or of nodes with that role: 1, 3 or 5"
            raise Misconfigured(path, None, f"{there}; there must be {needed}")
        try:
            self.engine.check(self._cluster, bool(named[MAPPING]))
        except WrongSetting as error:
            raise self._wrong(("cluster", error.key), str(error)) from error
        self._known = {
            key: tuple(table["address"] for table in named[role].values())
            for key, role in (("ordering", founders), ("mapping", MAPPING))
        }
        self.servers: dict[tuple[str, str], ServerConfig] = {
            (role, name): self._server(role, name, table)
            for role, tables in named.items()
            for name, table in tables.items()
        }
        self.nodes = {
            (NODE, name): NodeConfig(tuple(self.servers[role, name] for role in table["roles"]))
            for name, table in nodes.items()
        }
        self.nodes |= {key: NodeConfig((one,)) for key, one in self.servers.items() if not role_in(one.address)}

    def _add_servers(self, nodes: Mapping[str, Any], named: Mapping[str, dict[str, Any]]) -> None:
        """Add a table for each server of a node to those of its role."""
        for name, table in nodes.items():
            for role in self._required((NODE, name), table, "roles"):
                if name in named[role]:
                    raise self._wrong((role, name), f"{name} is already a node with the role {role}: use another name")
                address, data = f"{table['address']}/{role}", table["data"] / role
                named[role][name] = {**table, "address": address, "data": data}

    def server(self, role: str, name: str) -> ServerConfig:
        """The configuration of one server. Raises Misconfigured."""
        if (role, name) not in self.servers:
            raise self._missing(role, name, self.servers)
        return self.servers[role, name]

    def node(self, role: str, name: str) -> NodeConfig:
        """The configuration of the process with the table [ROLE.NAME]. Raises Misconfigured."""
        if (role, name) not in self.nodes:
            raise self._missing(role, name, self.nodes)
        return self.nodes[role, name]

    def _missing(self, role: str, name: str, tables: Iterable[tuple[str, str]]) -> Misconfigured:
        names = [other for kind, other in tables if kind == role]
        there = f"it has {', '.join(names)}" if names else "it has none of that role"
        if (role, name) in self.servers:
            there = f"that server runs on the node with the table [{NODE}.{name}]"
        return Misconfigured(self.path, None, f"it has no table [{role}.{name}]; {there}")

    # ---- checks

    def _named(self, role: str, tables: Any) -> dict[str, dict[str, Any]]:
        """The servers of a role, with their addresses and directories."""
        if not isinstance(tables, dict):
            raise self._wrong((role,), f"{role} must be tables [{role}.NAME]")
        named = {}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise self._wrong((role, name), f"{name} is not in a server's table; write [{role}.NAME] above it")
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
            setting = self._settings.get(key)
            if setting is None or path[0] not in setting.tables:
                allowed = ", ".join(sorted(name for name, other in self._settings.items() if path[0] in other.tables))
                raise self._wrong((*path, key), f"{key} is not a key of {shown}; its keys are {allowed}")
            if type(value) is not setting.kind:
                raise self._wrong((*path, key), f"{key} must be {_KINDS[setting.kind]}, it is {value!r}")
            try:
                checked[key] = setting.check(value)
            except ValueError as error:
                raise self._wrong((*path, key), f"{key} must be {error}; it is {value!r}") from error
        return checked

    def _required(self, path: tuple[str, ...], table: Mapping[str, Any], key: str) -> Any:
        if key not in table:
            raise self._wrong(path, f"[{'.'.join(path)}] needs the key {key}")
        return table[key]

    def _check_addresses(self, named: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Check that no two servers share an address or a directory."""
        taken: dict[tuple[str, Any], tuple[str, ...]] = {}
        for role, tables in named.items():
            for name, table in tables.items():
                mine = {
                    ("address", table["address"]): "address",
                    ("address", _listened(table["listen"], table["address"])): "listen",
                    ("address", _listened(table.get("metrics"), table["address"])): "metrics",
                    ("data", table["data"]): "data",
                }
                for what, key in mine.items():
                    other = taken.setdefault(what, (role, name, key))
                    if what[1] is not None and other[:2] != (role, name):
                        line = self._line(other)
                        raise self._wrong((role, name, key), f"{what[1]} is already taken by [{other[0]}.{other[1]}]"
                                          + (f" in line {line}" if line else ""))  # fmt: skip

    def _check_reach(self, named: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Check that servers which other machines can reach have a table [security]."""
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

    def _engine_in(self, cluster: Any) -> str:
        """The engine, which determines the other keys of the file."""
        value = cluster.get("engine", ENGINES[0]) if isinstance(cluster, dict) else ENGINES[0]
        if value not in ENGINES:
            there = ", ".join(f'"{name}"' for name in ENGINES)
            raise self._wrong(("cluster", "engine"), f"engine must be one of {there}; it is {value!r}")
        return str(value)

    def _server(self, role: str, name: str, table: Mapping[str, Any]) -> ServerConfig:
        kind: Callable[..., ServerConfig] = roles_of(self.engine)[role].config
        names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        of_all = {key: value for key, value in self._cluster.items() if key not in ("name", "data", "engine")}
        known = {"engine": self.engine.name, **of_all, **table}
        process = NODE if role_in(table["address"]) else role
        known |= {"security": self._security_of(process, name), "names": self._names}
        own = {key: value for key, value in known.items() if key in names}
        return kind(name=name, cluster=self.name, **self._known, **own)

    # ---- lines

    def _wrong(self, key: tuple[str, ...], what: str) -> Misconfigured:
        return Misconfigured(self.path, self._line(key), what)

    def _line(self, key: tuple[str, ...]) -> int | None:
        """The line that sets a key or, without one, begins its table: the file has it if it is cut off after that
        line."""
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


def _listened(listen: Address | None, address: Address) -> Address | None:
    """The address that is taken by listening there; a wildcard host stands for the host in `address`."""
    if listen is None or parsed(listen)[0] not in ("0.0.0.0", "::"):
        return listen
    return f"{address.rpartition(':')[0]}:{parsed(listen)[1]}"


def _try(parse: Callable[[str], Any], text: str) -> Any:
    """The parsed text, None if it is invalid."""
    try:
        return parse(text)
    except ValueError:
        return None
