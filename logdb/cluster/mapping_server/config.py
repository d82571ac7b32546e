"""What a mapping server is told: the server and its compactor read it."""

from __future__ import annotations

from dataclasses import dataclass

from logdb.cluster.client.leases import HOLD_NS
from logdb.cores.effects import SECOND, Address
from logdb.log.engine import BuildLogClient
from logdb.log.requests import ClientConfig
from logdb.store.garbage import MIN_LOG_BYTES


@dataclass(frozen=True, slots=True)
class MappingConfig:
    """What a mapping server is told. `log`: of its log client, at the same address, which also gives the time-outs;
    `build_log` makes it.

    `peers`: other mapping servers, from one of which it takes a checkpoint when it begins with nothing; it asks each
    `join_attempts` times before it replays the log instead. `answer_bytes`: of one message, and of a page of a range.
    `request_ttl_ns`: what could not be answered for so long is forgotten. `decide_ns`: a decision record is due so long
    after the last look. `keep_decisions`: so many recent decisions can be explained. `gather_ns`: a compaction waits so
    long for what clients hold, which is remembered for `lease_ns`; it takes what another server has begun for given up
    when nothing more of it has come for `takeover_ns`. `compact_above`: the share of garbage above which a log of at
    least `compact_least` bytes is compacted without being asked for; 1: never.
    """

    address: Address
    log: ClientConfig
    build_log: BuildLogClient
    peers: tuple[Address, ...] = ()
    join_attempts: int = 3
    answer_bytes: int = 1 << 20
    request_ttl_ns: int = 10 * SECOND
    decide_ns: int = 10 * SECOND
    keep_decisions: int = 10_000
    gather_ns: int = 3 * HOLD_NS
    lease_ns: int = 5 * SECOND
    takeover_ns: int = 2 * SECOND
    compact_above: float = 1.0
    compact_least: int = MIN_LOG_BYTES
