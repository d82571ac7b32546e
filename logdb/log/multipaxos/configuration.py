"""The configuration of a log on Multi-Paxos, as `logdb.log.requests.Configuration` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logdb.cores.effects import Address
from logdb.log.requests import ShardState

SHARD: Final = 1
"""The number of the only shard."""


class Member(NamedTuple):
    """A replica. `server`: its number, from 1."""

    server: int
    address: Address


class ShardConfig(NamedTuple):
    """The only shard: its members are the replicas."""

    shard: int
    state: ShardState
    members: tuple[Member, ...]
    joining: tuple[int, ...]
    replaced: tuple[Member, ...] = ()

    @property
    def holders(self) -> tuple[Member, ...]:
        """All replicas have all records."""
        return self.members


class View(NamedTuple):
    """The configuration. It does not change: `version` is always 1."""

    version: int
    shards: tuple[ShardConfig, ...]
    next_shard: int
    oldest: int
    spares: tuple[Member, ...] = ()


def view_of(replicas: Sequence[Address], oldest: int, copying: tuple[int, ...] = ()) -> View:
    """The configuration of a log on these replicas."""
    members = tuple([Member(number, address) for number, address in enumerate(replicas, 1)])
    return View(1, (ShardConfig(SHARD, ShardState.LIVE, members, copying),), SHARD + 1, oldest)
