"""Which segment a record goes to: the shard policies of the client (§3.1, setShardPolicy).

A policy splits the records of an append by the shard that it wants for them (None: any) and picks one of the segments
that then are possible. A shard that takes no appends any more is stood in for by the next one that does, by number and
round the end (`Directory.instead_of`): so what goes together stays together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from logdb.log.contract import Record, ShardPolicy

RecordIndexes = range | list[int]
"""Which of an append's records: their indexes."""


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A random live segment, drawn anew for each batch."""

    def split(self, records: Sequence[Record]) -> Iterable[tuple[int | None, RecordIndexes]]:
        return ((None, range(len(records))),)

    def pick(self, segments: Sequence[int], round_trip: Callable[[int], int], rng: Random) -> int:
        return rng.choice(segments)


@dataclass(frozen=True, slots=True)
class Nearest(Anywhere):
    """The segment whose primary has the lowest smoothed round trip; those not measured yet are tried first."""

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
    """The shard that a function of the record names, by its key for instance. An append may so go to several shards,
    and keeps its order in each of them."""

    shard_of: ShardPolicy

    def split(self, records: Sequence[Record]) -> Iterable[tuple[int | None, RecordIndexes]]:
        places: dict[int, list[int]] = {}
        for index, record in enumerate(records):
            places.setdefault(self.shard_of(record), []).append(index)
        if len(places) == 1:
            return ((next(iter(places)), range(len(records))),)
        return places.items()


Policy = Anywhere | Nearest | Fixed | ByRecord
ANYWHERE = Anywhere()
