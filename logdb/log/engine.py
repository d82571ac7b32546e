"""What an engine of the shared log is: all that the rest of LogDB has to know of it, declared in one place.

An engine is a folder `logdb/log/NAME/` whose module `engine` has an `ENGINE: Engine`; its name stands in `ENGINES`
below, and nowhere else outside the folder. The cluster's cores, the network, the command line, the simulator and the
conformance suites get the engine of a cluster from `engine_of`, and name none (`tests/test_house.py`). How one is
added: `docs/engines.md`.

What all engines share: one role, the founders, is a group of replicas on `logdb.log.paxos`. The configuration names all
of them, they decide which servers belong to the cluster, and every server and client knows their addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from logdb.cores.effects import Address, Core, Journal
from logdb.log.contract import AppendId
from logdb.log.requests import ClientConfig, Configuration

if TYPE_CHECKING:
    from logdb.log import paxos

ENGINES: Final = ("scalog",)
"""Every engine that servers run, by the name of its folder. The first is that of a `cluster.toml` that names none."""

MAX_HEADER_BYTES: Final = 16
"""So much an engine may store in front of a record's payload: a client and a sequence number."""


class Right(IntEnum):
    """What a client may do; each includes those before it."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def shown(self) -> str:
        """For people."""
        return self.name.lower()


# ---- configuration


class Setting(NamedTuple):
    """A key of `cluster.toml`. `check` returns the value to use, or raises ValueError with what is allowed. `where`:
    the tables in which it may stand; in [cluster] it is for all servers whose configuration has a field of that
    name."""

    kind: type
    check: Callable[[Any], Any]
    where: tuple[str, ...]


class WrongSetting(ValueError):
    """Settings that contradict each other. `key`: the one of [cluster] to change."""

    def __init__(self, key: str, what: str) -> None:
        self.key = key
        super().__init__(what)


def between(least: int, most: int) -> Callable[[int], int]:
    """The check of a whole number."""

    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"a number from {least} to {most:,}")
        return value

    return check


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What every server is told; a role's own is a subclass, whose further fields are keys of `cluster.toml`.

    `address`: where others find it, `listen`: where it listens. `data`: its directory. `metrics`: where Prometheus may
    ask, "" nowhere. `ordering`, `mapping`: the addresses of all founders, and of all mapping servers. `security`: None
    on loopback only. `names`: of servers, by the addresses in the file.
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


class Measure(NamedTuple):
    """A number that a role tells Prometheus. `counts`: it only grows."""

    name: str
    what: str
    value: float
    counts: bool = False


def _always(core: Any) -> bool:
    return True


def _nothing(core: Any) -> Iterable[Measure]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Role:
    """A kind of server. `name`: of its tables in `cluster.toml`; `number`: in `Hello`, the same for every engine that
    has a role of that name; `letter`: servers that are laid out are called that and a number. `title`: with its
    article, for people.

    `config`: what `cluster.toml` says of such a server, by field. `build` makes the core from it. `accepts`: messages
    that the core takes, `sends`: messages that no other role's servers send.

    `is_ready`: whether the core, once started, serves. `group`: of the founders, the replica inside their core; until
    they are ready, they get messages from each other only. `measures`: what the core tells Prometheus.

    `has_journals`: what it keeps is in journals, which are wiped when its core says so; `segment_bytes`: of their
    files. `may_begin_anew`: whether a server whose journals are gone may start with empty ones. `after_damage`: what to
    do about damaged ones. `hears_losses`: whether the core is told which clients are gone.
    """

    name: str
    number: int
    letter: str
    title: str
    config: type[ServerConfig]
    build: Callable[[Any, Mapping[str, Journal], Random], Core]
    accepts: frozenset[type]
    sends: frozenset[type] = frozenset()
    is_ready: Callable[[Any], bool] = _always
    group: Callable[[Any], paxos.Replica] | None = None
    measures: Callable[[Any], Iterable[Measure]] = _nothing
    has_journals: bool = True
    segment_bytes: Callable[[Any], int] | None = None
    may_begin_anew: bool = True
    after_damage: Callable[[Any], str] = lambda config: ""
    hears_losses: bool = False


# ---- the client


class LogClientCore(Core, Protocol):
    """The core of a client: requests of `logdb.log.requests` in, their results out."""

    def append_id(self, call: int) -> AppendId | None:
        """By what an append that is under way can be asked for; None if nothing of it has been sent."""


BuildLogClient = Callable[[ClientConfig, Mapping[str, Journal], Random], LogClientCore]


# ---- the wire


class Batch(Enum):
    """How the records that go with a message are packed, beside protobuf: (tag, payload) as an application gives them;
    the same as they are stored, with `Wire.header_bytes` before each payload; stored ones with their GSNs and times."""

    RECORDS = 1
    STORED = 2
    NUMBERED = 3


Parts = Callable[[Any], list[Any]]
"""Smaller messages that together say the same, or one that says less but enough."""
Convert = Callable[[Any], Any]


def _no(message: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Wire:
    """The engine's messages: the classes of the module `messages` whose names, with `prefix`, are fields of the message
    `Kinds` of its schema. `schema`: the module that protoc has made of that. Numbers of kinds are the engine's alone.

    `batches`: messages whose last field is records. `fields`: what is done to a field, (before it is sent, when it has
    come); ValueError: it makes no sense. `splits`: of a message that is too large to travel, the field that makes it so
    and its parts. `portions`: of a client's message, the field with its items, so that clients take turns.

    `client_accepts`: messages that a client's core takes. `client_sends`: of servers, only those with a client inside
    send them. `rights`: what a client must be allowed to send which message; others are only for servers. `appends`:
    messages with records that a client wants in the log (their field is `records`). `is_operators`: messages that no
    server sends, by kind.
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
    fields: Mapping[tuple[type, str], tuple[Convert, Convert]] = field(default_factory=dict)
    splits: Mapping[type, tuple[str, Parts]] = field(default_factory=dict)
    portions: Mapping[type, str] = field(default_factory=dict)
    is_operators: Mapping[type, Callable[[Any], bool]] = field(default_factory=dict)


# ---- running a cluster


@dataclass(frozen=True, slots=True)
class Shape:
    """What `logdb cluster up` lays out. `replicas`: servers of a shard; `ordering`: founders; `spares`: servers that
    wait for a shard. `policy`: what is done about a failed server, "" the engine's first."""

    shards: int = 2
    replicas: int = 2
    ordering: int = 3
    mapping: int = 2
    aggregators: int = 0
    spares: int = 0
    policy: str = ""
    engine: str = ENGINES[0]


class Frontier(Protocol):
    """The end of the log as a founder tells it that is sure to lead. `cut`: how often records were ordered, at least
    `interval_ns` apart. `unreachable`: numbers of servers that clients did not reach lately."""

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
    """What an operator does with a cluster. Shards are added and finalized, servers replaced, with the changes of
    `logdb.log.requests`; an engine refuses those that it does not offer.

    `shape`: what is laid out where nothing else is asked for. `servers`: how many of each role a shape has; `counts`:
    fields of the shape that are numbers of a role's servers. `settings`: what [cluster] says of it. `servers` and
    `settings` raise ValueError for a shape that cannot be. `members`: of a shard, as the configuration of a founder
    says; `policy_of`: the shape's policy there. `storage`: the role whose servers form shards.

    `ask_tail`, `ask_view`: questions to a founder, given the number that the answer will have; `tail_in`, `view_in`:
    what is in an answer, None if it is another one. `servers_in`: (address, role) of all servers of a configuration.
    `unknown`: the configuration where no founder answers.
    """

    shape: Shape
    servers: Callable[[Shape], Mapping[str, int]]
    counts: Mapping[str, str]
    settings: Callable[[Shape], Mapping[str, Any]]
    members: Callable[[Any], int]
    policy_of: Callable[[Any], str]
    storage: str
    ask_tail: Callable[[int], Any]
    ask_view: Callable[[int], Any]
    tail_in: Callable[[Any], Frontier | None]
    view_in: Callable[[Any], Configuration | None]
    servers_in: Callable[[Any], Iterable[tuple[Address, str]]]
    unknown: Configuration


# ---- the engine


def _consistent(settings: Mapping[str, Any]) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Engine:
    """All of it. `founders`: the name of their role. `settings`: keys of `cluster.toml` beside those of every cluster;
    `check`: of [cluster] as a whole, raises WrongSetting. `client`: makes a client's core.

    `simulation`: the module of `tests` with its faults and invariants for the simulator; only tests import it.
    """

    name: str
    founders: str
    roles: Mapping[str, Role]
    client: BuildLogClient
    wire: Wire
    operations: Operations
    settings: Mapping[str, Setting] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any]], None] = _consistent
    simulation: str


@cache
def engine_of(name: str) -> Engine:
    """The engine of that name, loaded when it is first asked for. Raises ValueError for one that there is not."""
    if name not in ENGINES:
        raise ValueError(f"{name!r} is no engine; there are {', '.join(ENGINES)}")
    engine: Engine = import_module(f"logdb.log.{name}.engine").ENGINE
    return engine


def all_engines() -> Sequence[Engine]:
    """Every engine, for what is common to all: the wire, and what it allows."""
    return [engine_of(name) for name in ENGINES]
