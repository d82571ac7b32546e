"""The policies by which a client chooses the shard and the segment of a record (§3.1, setShardPolicy).

A policy splits the records of an append by their shard (None: any shard), and then picks one of the possible segments.
If a shard no longer accepts appends, its records go to the shard with the next number that does, wrapping around
(`Directory.instead_of`): records of one shard stay together.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from logdb.log.contract import Record, ShardPolicy

RecordIndexes = range | list[int]
"""The indexes of some of the records of an append."""


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A random live segment for each batch."""

    def split(self, records: Sequence[Record]) -> Iterable[tuple[int | None, RecordIndexes]]:
        return ((None, range(len(records))),)

    def pick(self, segments: Sequence[int], round_trip: Callable[[int], int], rng: Random) -> int:
        return rng.choice(segments)


@dataclass(frozen=True, slots=True)
class Nearest(Anywhere):
    """The segment whose primary has the lowest smoothed round-trip time; segments without a measurement are tried
    first."""

    def pick(self, segments: Sequence[int], round_trip: Callable[[int], int], rng: Random) -> int:
        return min(segments, key=round_trip)


@dataclass(frozen=True, slots=True)
class Fixed(Anywhere):
    """Always the same shard."""

    shard: int

    def split(self, records: Sequence[Record]) -> Iterable[tuple[int | None, RecordIndexes]]:
        return ((self.shard, range(len(records))),)


@dataclass(frozen=True, slots=True)
class ByRecord(Anywhere):
    """The shard that `shard_of` returns for the record, for example by its key. The records of one append can go to
    several shards, and keep their order on each of them. `split` raises what `shard_of` raises, and TypeError if it
    returns no number."""

    shard_of: ShardPolicy

    def split(self, records: Sequence[Record]) -> Iterable[tuple[int | None, RecordIndexes]]:
        places: dict[int, list[int]] = {}
        for index, record in enumerate(records):
            places.setdefault(operator.index(self.shard_of(record)), []).append(index)
        if len(places) == 1:
            return ((next(iter(places)), range(len(records))),)
        return places.items()


Policy = Anywhere | Nearest | Fixed | ByRecord
ANYWHERE = Anywhere()
