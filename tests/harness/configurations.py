"""A configuration of shards and servers that belongs to no engine, and an engine whose founders answer with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from logdb.cores.effects import Address
from logdb.log.engine import ENGINES, Engine, engine_of
from logdb.log.requests import ShardState


class Member(NamedTuple):
    """A server that holds records (`ConfiguredServer`)."""

    server: int
    address: Address


class Shard(NamedTuple):
    """A shard (`ConfiguredShard`)."""

    shard: int
    state: ShardState
    members: tuple[Member, ...]
    joining: tuple[int, ...] = ()
    replaced: tuple[Member, ...] = ()

    @property
    def holders(self) -> tuple[Member, ...]:
        """Members, and servers that serve until these have caught up."""
        return self.members + self.replaced


class Configured(NamedTuple):
    """Shards and their servers (`Configuration`)."""

    version: int
    shards: tuple[Shard, ...] = ()
    next_shard: int = 2
    oldest: int = 1
    spares: tuple[Member, ...] = ()


class Tail(NamedTuple):
    """The end of the log, as a leader returns it (`Frontier`)."""

    last: int
    oldest: int
    cut: int
    interval_ns: int = 0
    unreachable: tuple[int, ...] = ()


def _servers_of(view: Configured) -> Iterator[tuple[Address, str]]:
    for shard in view.shards:
        yield from ((member.address, ENGINE.operations.storage_role) for member in shard.holders)
    yield from ((member.address, ENGINE.operations.storage_role) for member in view.spares)


_FIRST = engine_of(ENGINES[0])
ENGINE: Engine = replace(
    _FIRST,
    operations=replace(
        _FIRST.operations,
        frontier_of=lambda answer: answer if isinstance(answer, Tail) else None,
        configuration_of=lambda answer: answer if isinstance(answer, Configured) else None,
        servers_of=_servers_of,
    ),
)
