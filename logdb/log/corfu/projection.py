"""Projections: which storage units have a position of the log, and the GSNs of the records at a position.

A position holds one entry, so up to `ENTRY_RECORDS` records. The record with index i at position p has the GSN
p * ENTRY_RECORDS + i. Positions start at 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import takewhile
from typing import Final, NamedTuple

from logdb.cores.effects import SECOND, Address
from logdb.log.requests import ShardState

BITS: Final = 12
ENTRY_RECORDS: Final = 1 << BITS
"""Maximum number of records of an entry."""
MAX_TOKENS: Final = 256
"""Maximum number of positions that a request to the sequencer is for."""
POSITION_WINDOW: Final = 1 << 10
"""A unit lets a writer write so many positions that are not assigned, as far as the unit knows (COR-12)."""
TIME_WINDOW_NS: Final = 24 * 3_600 * SECOND
"""Records have times that are less than this later than that of the sequencer, as far as the unit knows (COR-13)."""
COPIES: Final = 2
"""A shard whose size is at least this accepts nothing with fewer units."""


def position_of(gsn: int) -> int:
    """The position of the record with this GSN."""
    return gsn >> BITS


def gsn_at(position: int, index: int = 0) -> int:
    """The GSN of a record at a position."""
    return (position << BITS) + index


class Unit(NamedTuple):
    """A storage unit in a chain, from the epoch `joined` on. `since`: it may lack entries at positions before this one,
    which it still copies; 0: it has all. `is_leaving`: an operator replaces it, and it serves until the others have
    copied all entries."""

    server: int
    address: Address
    since: int
    is_leaving: bool = False
    joined: int = 0


class Former(NamedTuple):
    """A unit that was in a chain from the epoch `joined` until before `left`, and keeps its entries until the shard has
    enough other complete units (COR-5). `since`: as a unit of the chain. `end`, `time`: only its entries before this
    position count, with this time or an earlier one. `is_sealed`: the first unit of the chain may copy from it what no
    unit of the chain has."""

    server: int
    address: Address
    since: int
    joined: int
    left: int
    end: int
    time: int
    is_sealed: bool = False


class Spare(NamedTuple):
    """A storage unit without a shard."""

    server: int
    address: Address


class ShardConfig(NamedTuple):
    """A replica set. `units`: its chain, from head to tail. `size`: the number of units that it should have. `is_live`:
    new entries are written to it. `holds_streams`: it has no positions of its own; its units are stream replicas.
    `former`: units that have left the chain and are still needed."""

    shard: int
    units: tuple[Unit, ...]
    size: int
    is_live: bool
    holds_streams: bool = False
    former: tuple[Former, ...] = ()

    @property
    def state(self) -> ShardState:
        """See `logdb.log.requests`. A shard of streams accepts no appends of its own."""
        return ShardState.LIVE if self.is_live and not self.holds_streams else ShardState.FINALIZED

    @property
    def members(self) -> tuple[Unit, ...]:
        """The units that stay."""
        return tuple([unit for unit in self.units if not unit.is_leaving])

    @property
    def complete(self) -> tuple[Unit, ...]:
        """The units that stay and have all entries."""
        return tuple([unit for unit in self.members if not unit.since])

    @property
    def joining(self) -> tuple[int, ...]:
        """Units that still copy entries."""
        return tuple([unit.server for unit in self.units if unit.since])

    @property
    def replaced(self) -> tuple[Unit, ...]:
        """Units that leave when the others have all entries."""
        return tuple([unit for unit in self.units if unit.is_leaving])

    @property
    def holders(self) -> tuple[Unit, ...]:
        """All units of the chain."""
        return self.units

    def has(self, server: int) -> bool:
        """Whether a unit is in the chain."""
        return any(unit.server == server for unit in self.units)

    @property
    def disks(self) -> dict[int, Address]:
        """The addresses of the units that have its entries, in the chain or not any more, by server."""
        units = {unit.server: unit.address for unit in self.units}
        return units | {unit.server: unit.address for unit in self.former}

    @property
    def least(self) -> int:
        """The number of units that a chain must have: an entry that is acknowledged is on two disks at least. A stream
        replica can be rebuilt from the log."""
        return 0 if self.holds_streams else min(self.size, COPIES)

    def upstream(self, server: int, position: int) -> tuple[Unit, ...]:
        """The units before the unit `server` in the chain of a position; none: it is the head."""
        return tuple(takewhile(lambda unit: unit.server != server, self.chain(position)))

    def chain(self, position: int) -> tuple[Unit, ...]:
        """The units that have, or get, the entry at a position, from head to tail. If no unit of the chain has it, the
        first one gets it from former ones."""
        found = tuple([unit for unit in self.units if unit.since <= position])
        return found if found or self.holds_streams else self.units[:1]

    def lasts(self, end: int = 0) -> list[tuple[Unit, int, int]]:
        """The last unit of the chain for each part of the positions before `end` (0: of all), the first position of the
        part, and its end."""
        found: list[tuple[Unit, int, int]] = []
        for unit in reversed(self.units):
            found.append((unit, unit.since, end))
            end = min(end or unit.since, unit.since)
            if not unit.since:
                return found
        return [*found, (self.units[0], 0, end)] if self.units else []


class Range(NamedTuple):
    """The positions from `first` on, up to the next range, belong to these shards in turn. As a range of streams: at
    these positions, the streams belong to these shards by their number."""

    first: int
    shards: tuple[int, ...]


class Stride(NamedTuple):
    """The positions `first`, `first` + `step`, and so on, before `end`, of one chain; `end` 0: without an end."""

    first: int
    step: int
    end: int


class View(NamedTuple):
    """A projection. `version` grows with each change. `epoch`: its units reject messages of earlier ones. `start`: its
    sequencer assigns the positions from here on, with times from `time` on; records before have GSNs up to `last`.
    `sequencer`, `nonce`: the process that assigns positions; "" and 0 if there is none. `oldest`: the oldest readable
    GSN. `streams`: the ranges of the shards that hold streams.
    """

    version: int
    epoch: int
    shards: tuple[ShardConfig, ...]
    next_shard: int
    oldest: int
    spares: tuple[Spare, ...]
    ranges: tuple[Range, ...]
    start: int
    time: int
    last: int
    sequencer: Address
    nonce: int
    streams: tuple[Range, ...] = ()

    def shard(self, number: int) -> ShardConfig | None:
        """A shard by its number."""
        return next((config for config in self.shards if config.shard == number), None)

    def live(self) -> list[ShardConfig]:
        """The shards to which new positions belong."""
        return [config for config in self.shards if config.is_live and not config.holds_streams]

    def owner(self, position: int) -> ShardConfig | None:
        """The shard of a position; None if it has none: it was trimmed, or the log has no live shard."""
        at = bisect_right(self.ranges, position, key=lambda one: one.first) - 1
        if at < 0 or not self.ranges[at].shards:
            return None
        first, shards = self.ranges[at]
        return self.shard(shards[(position - first) % len(shards)])

    # ---- streams

    def stream_shard(self, stream: int, position: int) -> int:
        """The shard with the entries of a stream at a position and around it; 0: there is none."""
        at = bisect_right(self.streams, position, key=lambda one: one.first) - 1
        shards = self.streams[at].shards if at >= 0 else ()
        return shards[stream % len(shards)] if shards else 0

    def stream_end(self, position: int, limit: int) -> int:
        """Where the streams at a position move to other shards; at most `limit`."""
        at = bisect_right(self.streams, position, key=lambda one: one.first)
        return min(self.streams[at].first, limit) if at < len(self.streams) else limit

    def stream_chains(self, position: int, streams: Iterable[int]) -> list[tuple[Unit, ...]]:
        """The stream replicas of an entry of these streams, by shard. One without units is empty: the entry has to
        wait for them. Only a forged entry is of streams that have no shard; it waits for none."""
        numbers = sorted({self.stream_shard(stream, position) for stream in streams} - {0})
        configs = [self.shard(number) for number in numbers]
        return [config.chain(position) if config is not None else () for config in configs]

    # ---- positions

    def stride(self, shard: int, position: int) -> Stride | None:
        """The positions of a shard from `position` on, in the first range that has any, up to the first one with
        another chain. None: there are none."""
        for at, (first, shards) in enumerate(self.ranges):
            end = self.ranges[at + 1].first if at + 1 < len(self.ranges) else 0
            if shard not in shards or (end and position >= end):
                continue
            lowest = max(position, first)
            found = lowest + (first + shards.index(shard) - lowest) % len(shards)
            if not end or found < end:
                config = self.shard(shard)
                ends = [unit.since for unit in config.units if unit.since > found] if config is not None else []
                return Stride(found, len(shards), min([*ends, end] if end else ends, default=0))
        return None


NO_VIEW: Final = View(0, 0, (), 1, 1, (), (), 1, 0, 0, "", 0)
