"""Which segment a record goes to: the shard policies of the client (§3.1, setShardPolicy).

A policy names a shard, or none where it does not care. A shard that takes no appends any more is stood in for by the
next one that does, by number and round the end: so what goes together stays together.
"""

from __future__ import annotations

from dataclasses import dataclass

from logdb.log.contract import ShardPolicy


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A random live segment, drawn anew for each batch."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The segment whose primary has the lowest smoothed round trip; those not measured yet are tried first."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same shard."""

    shard: int


@dataclass(frozen=True, slots=True)
class ByRecord:
    """The shard that a function of the record names, by its key for instance."""

    shard_of: ShardPolicy


Policy = Anywhere | Nearest | Fixed | ByRecord
ANYWHERE = Anywhere()
