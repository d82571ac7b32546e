"""The status of a cluster, from requests to each of its servers; servers that do not answer are shown as such.

The leader of the ordering layer confirms its leadership before it answers with the tail. Any replica answers with its
view, so a status without a leader is incomplete, but shows the servers.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from logdb.admin.server_query import Answer, ask
from logdb.cluster.messages import Answers, Consistency, Read, Reads, Version
from logdb.cores.effects import MILLISECOND, SECOND, Address
from logdb.errors import Unavailable
from logdb.log.engine import ENGINES, Engine, Frontier, engine_of
from logdb.log.requests import Configuration
from logdb.security.credentials import NONE, Credentials
from logdb.system.addresses import location_of, role_in
from logdb.wire.envelopes import CLIENT, MAPPING, Hello

Query = Callable[..., Awaitable[Answer]]
"""`ask`, with this operator's credentials."""


class KnownServer(NamedTuple):
    """A server to ask: from a file, with its process if it runs on this machine, or from another server."""

    address: Address
    role: str
    name: str = ""
    process: int | None = None


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server. `name`: as in the file, "" if there is none. `process`: its number on this machine, None: not here.
    `state`: "leads", "follows", "serves", "stands by", "registers", or why it does not answer, and then it is not
    `alive`. `registered`: the cluster uses it: the ordering layer's view contains a storage server or aggregator, and a
    mapping server answers reads. Of a storage server: its `number` and its `shard`, 0 for a spare. Of a mapping server:
    up to where it has `applied` the log, and how many records of the log's tail it lacks (`lag`)."""

    name: str
    role: str
    address: Address
    state: str
    alive: bool
    process: int | None = None
    registered: bool = False
    number: int | None = None
    shard: int | None = None
    applied: int | None = None
    lag: int | None = None

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.name or self.address


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard. `servers`: the numbers of its members, `addresses`: their addresses, which newer servers may use now.
    `joining`: members that still copy earlier records; `replaced`: servers that serve until these have caught
    up."""

    shard: int
    state: str
    servers: tuple[int, ...]
    addresses: tuple[Address, ...]
    joining: tuple[int, ...]
    replaced: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster at `time_ns`. `leader`: its address, "" if there is none; without one `tail`, `cut` and
    `cut_interval_ms` (the least time between two cuts) are None."""

    cluster: str
    time_ns: int
    leader: Address
    tail: int | None
    oldest: int
    cut: int | None
    shards: tuple[ShardStatus, ...]
    servers: tuple[ServerStatus, ...]
    version: int = field(default=0)
    cut_interval_ms: float | None = None

    @property
    def spares(self) -> tuple[ServerStatus, ...]:
        """Storage servers that wait for a shard."""
        return tuple(server for server in self.servers if server.shard == 0)

    def document(self, before: ClusterStatus | None) -> dict[str, Any]:
        """The status for programs, with the rates since `before`."""
        cuts, records = self.rates(before)
        return {**asdict(self), "cuts_per_s": cuts, "records_per_s": records}

    def rates(self, before: ClusterStatus | None) -> tuple[float | None, float | None]:
        """(cuts, records) per second since then; None if unknown."""
        if before is None:
            return None, None
        seconds = max(self.time_ns - before.time_ns, 1) / SECOND
        return _rate(self.cut, before.cut, seconds), _rate(self.tail, before.tail, seconds)


def _rate(now: int | None, before: int | None, seconds: float) -> float | None:
    return None if now is None or before is None else round((now - before) / seconds, 1)


async def observe(known: Iterable[KnownServer], cluster: str = "", credentials: Credentials = NONE) -> ClusterStatus:
    """Ask the known servers, and the servers that they name. Raises Unavailable if no server answers and the cluster's
    name is not given."""
    query = partial(ask, credentials=credentials)
    servers = {server.address: server for server in known}
    replies = await _ask_all(query, servers.values(), cluster)
    found = _found(replies, servers)
    if found:
        replies |= await _ask_all(query, found, cluster)
        servers |= {server.address: server for server in found}
    hellos = [answer.hello for answer in replies.values() if answer.hello is not None]
    if not hellos and not cluster:
        raise Unavailable("no server answers: " + ", ".join(f"{one} ({it.why})" for one, it in replies.items()))
    cluster = cluster or hellos[0].cluster
    engine = engine_of(next((hello.engine for hello in hellos if hello.role not in (None, CLIENT)), ENGINES[0]))
    founders = [one for one, it in replies.items() if it.role == engine.founder_role]
    view = await _view(query, engine, founders)
    more = [KnownServer(*server) for server in engine.operations.servers_of(view) if server[0] not in servers]
    replies |= await _ask_all(query, more, cluster)
    servers |= {server.address: server for server in more}
    for address in {location_of(one) for one in servers if role_in(one)} & servers.keys():
        del replies[address], servers[address]  # of a node, whose servers have addresses of their own
    return made_of(cluster, engine, servers, replies, view)


async def _ask_all(query: Query, servers: Iterable[KnownServer], cluster: str) -> dict[Address, Answer]:
    servers = list(servers)
    replies = await asyncio.gather(*[query(one.address, cluster, _question) for one in servers])
    return {server.address: answer for server, answer in zip(servers, replies, strict=True)}


def _question(role: str, server: Hello) -> Any:
    """The request to a server of this role."""
    if role == engine_of(server.engine).founder_role:
        return engine_of(server.engine).operations.tail_request(secrets.randbits(62))
    if role == MAPPING:
        return Reads((Read(secrets.randbits(62), Consistency.SESSION, 0, Version()),))
    return None


def _ask_view(role: str, server: Hello) -> Any:
    return engine_of(server.engine).operations.view_request(secrets.randbits(62))


def _found(replies: Mapping[Address, Answer], servers: Mapping[Address, KnownServer]) -> list[KnownServer]:
    """Servers that the answers name, and the roles of those of which only the address was known."""
    found: dict[Address, str] = {}
    for address, answer in replies.items():
        if answer.hello is None:
            continue
        found |= dict.fromkeys(answer.hello.ordering, engine_of(answer.hello.engine).founder_role)
        found |= dict.fromkeys(answer.hello.mapping, MAPPING)
        if not servers[address].role:
            found |= {other: role for role, other in answer.hello.servers.items()}
    return [
        KnownServer(address, role)
        for address, role in found.items()
        if address not in servers or not servers[address].role
    ]


async def _view(query: Query, engine: Engine, founders: Iterable[Address]) -> Configuration:
    """The newest configuration of the founders."""
    replies = await asyncio.gather(*[query(address, "", _ask_view) for address in founders])
    views = [view for it in replies if (view := engine.operations.configuration_of(it.answer)) is not None]
    return max(views, key=lambda view: view.version, default=engine.operations.empty_configuration)


def made_of(
    cluster: str,
    engine: Engine,
    servers: Mapping[Address, KnownServer],
    replies: Mapping[Address, Answer],
    view: Configuration,
) -> ClusterStatus:
    """The status from the servers' answers."""
    frontiers = {one: engine.operations.frontier_of(it.answer) for one, it in replies.items()}
    tails: dict[Address, Frontier] = {one: tail for one, tail in frontiers.items() if tail is not None}
    leader, tail = max(tails.items(), key=lambda item: item[1].last, default=("", None))
    placed = [(member.server, one.shard, member.address) for one in view.shards for member in one.holders]
    placed += [(member.server, 0, member.address) for member in view.spares]
    places = {address: (server, shard) for server, shard, address in sorted(placed)}  # the newest one is there
    in_view = {address for address, _ in engine.operations.servers_of(view)}
    standing_by = {name for name, role in engine.roles.items() if role.has_standbys}
    last = None if tail is None else tail.last
    notes = {} if tail is None else dict.fromkeys(tail.unreachable, ", but a client does not reach it")
    notes |= {member.server: " until its successor has caught up" for one in view.shards for member in one.replaced}
    hellos = [it.hello for it in replies.values() if it.hello is not None]
    founding = max((hello.founding for hello in hellos if hello.is_founder), default=0)
    return ClusterStatus(
        cluster,
        time.time_ns(),
        leader,
        last,
        view.oldest if tail is None else tail.oldest,
        None if tail is None else tail.cut,
        tuple(
            ShardStatus(
                one.shard,
                one.state.value,
                tuple(member.server for member in one.members),
                tuple(member.address for member in one.members),
                one.joining,
                tuple(member.server for member in one.replaced),
            )
            for one in view.shards
        ),
        tuple(
            _server(
                server,
                replies[one],
                leader,
                one in in_view,
                "stands by" if server.role in standing_by else "registers",
                places.get(one),
                notes,
                last,
                founding,
            )
            for one, server in servers.items()
        ),
        view.version,
        None if tail is None else tail.interval_ns / MILLISECOND,
    )


def _server(
    known: KnownServer,
    reply: Answer,
    leader: Address,
    in_view: bool,
    outside: str,
    place: tuple[int, int] | None,
    notes: Mapping[int, str],
    tail: int | None,
    founding: int,
) -> ServerStatus:
    """`outside`: the state of a server that serves and is not in the configuration. `notes`: additions to the state of
    serving storage servers, by number."""
    number, shard = place if place is not None else (None, None)
    applied = reply.answer.answers[0].version if isinstance(reply.answer, Answers) else None
    alive = reply.hello is not None and reply.serving
    if reply.hello is not None and reply.hello.founding not in (0, founding) and founding:
        alive, state = False, f"belongs to another ordering layer ({reply.hello.founding:x}, expected {founding:x})"
    elif not alive:
        state = reply.why
    elif reply.hello is not None and known.address == reply.hello.founder:
        state = "leads" if known.address == leader else "follows"
    else:
        serves = "serves" + ("" if number is None else notes.get(number, ""))
        state = serves if in_view or applied is not None else outside
    registered = alive and state != "registers"
    lag = None if applied is None or tail is None else max(0, tail - applied)
    name, role, address, process = known.name, known.role, known.address, known.process
    return ServerStatus(name, role, address, state, alive, process, registered, number, shard, applied, lag)
