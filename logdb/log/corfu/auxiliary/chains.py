"""Which units a shard keeps in the next epoch, and whether these have all of its entries (COR-5)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from logdb.log.corfu.projection import Former, ShardConfig, Unit

NOW: Final = 1 << 62
"""In the place of the epoch at which a unit of the chain will leave it."""


def covers(config: ShardConfig, servers: Collection[int]) -> bool:
    """Whether these units together have all entries that count. Between them, a unit was in the chain of each epoch
    since one with all entries was: an entry that was decided in an epoch is on all units of its chain then."""
    spans = [(unit.since, unit.joined, NOW) for unit in config.units if unit.server in servers]
    spans += [(unit.since, unit.joined, unit.left) for unit in config.former if unit.server in servers]
    reached = max([left for since, _, left in spans if not since], default=-1)
    while reached < NOW:
        furthest = max([left for _, joined, left in spans if joined <= reached], default=reached)
        if furthest <= reached:
            return False
        reached = furthest
    return True


def kept_of(config: ShardConfig, servers: Collection[int]) -> tuple[Unit, ...]:
    """The chain of a shard if these units reject the epoch: without those that are replaced once the others have copied
    all. Empty if these units have not all entries, so that no epoch may begin that depends on them (COR-5); stream
    replicas copy theirs from the log."""
    kept = tuple([unit for unit in config.units if unit.server in servers])
    if not config.holds_streams and not covers(config, servers):
        return ()
    staying = tuple([unit for unit in kept if not unit.is_leaving])
    is_whole = staying and not any(unit.since for unit in staying) and len(staying) >= config.least
    return staying if is_whole else kept


def without_silent(config: ShardConfig, servers: Collection[int]) -> tuple[Unit, ...]:
    """The chain of a shard in which nothing is left to decide, so that the last of these units is read. The others,
    which no spare unit replaces, stay unless they lack entries."""
    if not any(unit.server in servers and not unit.since for unit in config.units):
        return config.units
    units = [unit for unit in config.units if unit.server in servers or not unit.since]
    return tuple(sorted(units, key=lambda unit: (unit.since > 0, unit.server in servers)))


def former_of(
    config: ShardConfig, kept: Collection[Unit], sealed: Collection[int], epoch: int, start: int, time: int
) -> tuple[Former, ...]:
    """The units that have left a shard and are needed from this epoch on, which keeps these units. `start`, `time`: of
    the epoch."""
    if config.holds_streams or sum([not unit.since for unit in kept]) >= config.size:
        return ()
    return (
        *(unit._replace(is_sealed=unit.server in sealed) for unit in config.former),
        *(
            Former(unit.server, unit.address, unit.since, unit.joined, epoch, start, time, unit.server in sealed)
            for unit in config.units
            if unit not in kept
        ),
    )
