"""The declaration of a log engine: everything that the rest of LogDB needs to run it.

An engine is a folder `logdb/log/NAME/` whose module `engine` defines `ENGINE: Engine`. Outside the folder, only the
tuple `ENGINES` below contains its name. The cluster's cores, the network, the command line, the simulator and the
conformance suites get the engine of a cluster from `engine_of` (checked by `tests/test_house.py`). `docs/engines.md`
describes how to add an engine.

All engines have founders: one role whose servers are replicas of a `logdb.log.paxos` group. Every configuration lists
all founders, the founders decide which servers belong to the cluster, and every server and client knows their
addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol

from logdb.cores.effects import Address, Core, Journal
from logdb.log.contract import AppendId
from logdb.log.requests import ClientConfig, Configuration

if TYPE_CHECKING:
    from logdb.log import paxos

ENGINES: Final = ("scalog", "multipaxos", "ziplog", "corfu")
"""The folder names of all engines. The first is the default of a `cluster.toml` without the key `engine`."""

ENGINE_OF_NODES: Final = ENGINES[1]
"""The default of `logdb cluster up --nodes`: the engine whose commits need the fewest messages on three equal nodes
(docs/performance.md)."""

MAX_HEADER_BYTES: Final = 24
"""Maximum size of what an engine stores in front of a record's payload: a GSN, a client id and a sequence number."""


class Right(IntEnum):
    """The permission of a client; each right includes those before it."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def label(self) -> str:
        """The name of the right in messages and in the tokens file."""
        return self.name.lower()


# ---- configuration


class Setting(NamedTuple):
    """A key of `cluster.toml`. `check` returns the value to use, or raises ValueError with the allowed values.
    `tables`: the tables that may contain the key; in [cluster] it sets the field of that name for all servers whose
    configuration has one."""

    kind: type
    check: Callable[[Any], Any]
    tables: tuple[str, ...]


class WrongSetting(ValueError):
    """Settings that contradict each other. `key`: the key of [cluster] to change."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


def between(minimum: int, maximum: int) -> Callable[[int], int]:
    """The check of an integer setting: both limits are allowed."""

    def check(value: int) -> int:
        if not minimum <= value <= maximum:
            raise ValueError(f"a number from {minimum} to {maximum:,}")
        return value

    return check


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of a server. Each role has a subclass, whose additional fields are keys of `cluster.toml`.

    `address`: the address that others connect to; `listen`: the address to listen on. `data`: the server's directory.
    `metrics`: the address of the Prometheus endpoint, "" for none. `ordering`, `mapping`: the addresses of all founders
    and of all mapping servers. `security`: None only on loopback. `names`: the servers' names by their addresses in the
    file.
    """

    role: ClassVar[str]

    name: str
    cluster: str
    listen: Address
    address: Address
    data: Path
    ordering: tuple[Address, ...]
    mapping: tuple[Address, ...] = ()
    metrics: str = ""
    security: Any = None
    names: Mapping[Address, str] = field(default_factory=dict, compare=False)
    engine: str = ENGINES[0]


# ---- roles


class Metric(NamedTuple):
    """A number that a role exports to Prometheus. `is_counter`: it only grows. `labels`: (name, value) pairs; metrics
    of one name have labels of the same names."""

    name: str
    help: str
    value: float
    is_counter: bool = False
    labels: tuple[tuple[str, str], ...] = ()


def _always_ready(core: Any) -> bool:
    return True


def _no_metrics(core: Any) -> Iterable[Metric]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Role:
    """A kind of server.

    `name`: the name of its tables in `cluster.toml`. `number`: its number in `Hello`, the same for every engine that
    has a role of this name. `letter`: `cluster up` names its servers by this letter and a number. `title`: the name of
    such a server in messages to people, with its article.

    `config`: the class of its configuration. `build` makes the core of a server. `accepts`: the messages that the core
    handles. `sends`: the messages that only servers of this role send, or of other roles that declare them too.

    `is_ready`: whether a started core serves requests. `paxos_replica`: for the founders, the Paxos replica inside the
    core; until the founders are ready, the server delivers only messages of other founders to them. `metrics`: the
    numbers that the core exports.

    `has_journals`: whether the core keeps journals, which its server wipes when the core asks for it. `segment_bytes`:
    the size of their files. `can_start_empty`: whether a server that has lost its journals may start with empty ones.
    `damage_advice`: what an operator should do about damaged journals. `notices_lost`: for which peers the core
    gets `Disconnected`. `has_standbys`: whether a ready server may be in no configuration, because another one
    does the work.
    """

    name: str
    number: int
    letter: str
    title: str
    config: type[ServerConfig]
    build: Callable[[Any, Mapping[str, Journal], Random], Core]
    accepts: frozenset[type]
    sends: frozenset[type] = frozenset()
    is_ready: Callable[[Any], bool] = _always_ready
    paxos_replica: Callable[[Any], paxos.Replica] | None = None
    metrics: Callable[[Any], Iterable[Metric]] = _no_metrics
    has_journals: bool = True
    segment_bytes: Callable[[Any], int] | None = None
    can_start_empty: bool = True
    damage_advice: Callable[[Any], str] = lambda config: ""
    notices_lost: Literal["", "clients", "servers"] = ""
    has_standbys: bool = False


# ---- the client


class LogClientCore(Core, Protocol):
    """The core of a client: it gets requests of `logdb.log.requests` and returns their results."""

    def append_id(self, call: int) -> AppendId | None:
        """The id of a pending append; None if no record of it has been sent."""


BuildLogClient = Callable[[ClientConfig, Mapping[str, Journal], Random], LogClientCore]


# ---- the wire


class Batch(Enum):
    """The format of a message's records, which travel beside its protobuf fields.

    RECORDS: (tag, payload), as the application passed them. STORED: the same as they are stored, with
    `Wire.header_bytes` before each payload. NUMBERED: stored records with their GSNs and times.
    """

    RECORDS = 1
    STORED = 2
    NUMBERED = 3


Parts = Callable[[Any], list[Any]]
"""Splits a message: returns smaller messages that together mean the same, or one that carries less and suffices."""
Convert = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Wire:
    """The engine's messages.

    `messages`: the module of the message classes. `schema`: the module that protoc generated; its message `Kinds` has a
    field for each class, named `prefix` and the class name in snake case. The numbers of these fields belong to this
    engine alone.

    `batches`: messages whose last field holds records. `field_converters`: for a field, the functions applied before it
    is sent and after it was received; they raise ValueError for an invalid value. `splits`: for a message that can be
    too large to send, the field that makes it large and the function that splits it. `sliced_fields`: for a client's
    message, the field with its items; a server handles such a message in slices, so that clients take turns.

    `client_accepts`: messages that a client's core handles. `client_sends`: messages that only clients send; of the
    servers, only mapping servers send them, which contain a client. `rights`: the right that a client needs for a
    message; servers reject all other messages of clients. `appends`: messages whose field `records` holds records to be
    appended. `operator_requests`: by message class, whether only operators send this message, and no server.
    """

    messages: ModuleType
    schema: str
    prefix: str
    header_bytes: int
    batches: Mapping[type, Batch]
    client_accepts: frozenset[type]
    client_sends: frozenset[type]
    rights: Mapping[type, Right]
    appends: frozenset[type]
    field_converters: Mapping[tuple[type, str], tuple[Convert, Convert]] = field(default_factory=dict)
    splits: Mapping[type, tuple[str, Parts]] = field(default_factory=dict)
    sliced_fields: Mapping[type, str] = field(default_factory=dict)
    operator_requests: Mapping[type, Callable[[Any], bool]] = field(default_factory=dict)


# ---- running a cluster


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a cluster that `logdb cluster up` creates. `replicas`: servers for each shard; `ordering`: founders;
    `spares`: servers without a shard. `policy`: how the cluster handles a failed server, "" for the engine's default.
    `nodes`: the number of equal nodes, each with a server of every role; 0: a process for each server."""

    shards: int = 2
    replicas: int = 2
    ordering: int = 3
    mapping: int = 2
    aggregators: int = 0
    spares: int = 0
    policy: str = ""
    engine: str = ENGINES[0]
    nodes: int = 0

    def on_nodes(self, count: int) -> Shape:
        """The shape of as many equal nodes: one shard, and a storage server on each node, a spare one where the engine
        needs them."""
        members = engine_of(self.engine).operations.members_on_nodes(count)
        return replace(
            self,
            nodes=count,
            shards=1,
            replicas=members,
            ordering=count,
            mapping=count,
            aggregators=0,
            spares=count - members,
        )


class Frontier(Protocol):
    """The end of the log, returned by a founder that is certain to be the leader. `cut`: the number of ordering
    decisions, which are at least `interval_ns` apart. `unreachable`: numbers of servers that clients recently failed to
    reach."""

    @property
    def last(self) -> int: ...

    @property
    def oldest(self) -> int: ...

    @property
    def cut(self) -> int: ...

    @property
    def interval_ns(self) -> int: ...

    @property
    def unreachable(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, kw_only=True)
class Operations:
    """How operators create and inspect a cluster. They change it with the changes of `logdb.log.requests`; an engine
    rejects those that it does not offer.

    `default_shape`: the shape for options that are not given. `server_counts`: the number of servers of each role in a
    shape. `shape_fields`: for each field of the shape that is the number of a role's servers, the role. `settings`: the
    keys of [cluster] for a shape. `server_counts` and `settings` raise ValueError for an impossible shape.
    `shard_size`: the number of servers in a shard, by the configuration of a founder; `policy_of`: the shape's `policy`
    by that configuration. `storage_role`: the role whose servers form shards. `members_on_nodes`: the number of members
    of the one shard on that number of equal nodes, whose other storage servers are spares; all are members by default.

    `tail_request`, `view_request`: make a request to a founder, from the number that its response must carry.
    `frontier_of`, `configuration_of`: the content of the response, None for any other message. `servers_of`: (address,
    role) of all servers in a configuration. `empty_configuration`: used if no founder responds.
    """

    default_shape: Shape
    server_counts: Callable[[Shape], Mapping[str, int]]
    shape_fields: Mapping[str, str]
    settings: Callable[[Shape], Mapping[str, Any]]
    shard_size: Callable[[Any], int]
    policy_of: Callable[[Any], str]
    storage_role: str
    members_on_nodes: Callable[[int], int] = lambda nodes: nodes
    tail_request: Callable[[int], Any]
    view_request: Callable[[int], Any]
    frontier_of: Callable[[Any], Frontier | None]
    configuration_of: Callable[[Any], Configuration | None]
    servers_of: Callable[[Any], Iterable[tuple[Address, str]]]
    empty_configuration: Configuration


# ---- the engine


def _consistent(settings: Mapping[str, Any], has_database: bool) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine. `founder_role`: the role of the founders. `settings`: its keys of `cluster.toml`, beside those of
    every cluster; `check` validates [cluster] as a whole, for a log with or without a database on it, and raises
    WrongSetting. `client` builds the core of a client.

    `simulation`: the module of `tests` with its faults and invariants for the simulator; only tests import it.
    `has_streams`: its client carries out `ReadStream`, and appends to streams.
    """

    name: str
    founder_role: str
    roles: Mapping[str, Role]
    client: BuildLogClient
    wire: Wire
    operations: Operations
    settings: Mapping[str, Setting] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any], bool], None] = _consistent
    simulation: str
    has_streams: bool = False


@cache
def engine_of(name: str) -> Engine:
    """The engine of that name, imported on first use. Raises ValueError if there is none."""
    if name not in ENGINES:
        raise ValueError(f"there is no engine {name!r}; the engines are {', '.join(ENGINES)}")
    engine: Engine = import_module(f"logdb.log.{name}.engine").ENGINE
    return engine


def all_engines() -> Sequence[Engine]:
    """Every engine: the wire's schema and its permissions are the union of all."""
    return [engine_of(name) for name in ENGINES]
