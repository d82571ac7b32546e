"""The configuration of a mapping server, and of its compactor."""

from __future__ import annotations

from dataclasses import dataclass

from logdb.cluster.client.leases import RENEWAL_NS
from logdb.cores.effects import SECOND, Address
from logdb.log.engine import BuildLogClient
from logdb.log.requests import ClientConfig
from logdb.store.garbage import MIN_LOG_BYTES


@dataclass(frozen=True, slots=True)
class MappingConfig:
    """The configuration of a mapping server.

    `log`: the configuration of its log client, which `build_log` makes, at the same address; its timeouts are the
    server's own. `peers`: the other mapping servers. An empty server takes a checkpoint from one of them, and replays
    the log after `join_attempts` requests to each. `answer_bytes`: size of a message, and of a page of a range.
    `request_ttl_ns`: reads and verdict subscriptions that could not be answered for this long are dropped. `decide_ns`:
    average time between decision records, and between comparisons. `keep_decisions`: number of recent decisions kept
    with their reasons. `gather_ns`: how long a compaction waits for the leases of clients, which last `lease_ns`.
    `takeover_ns`: a compaction of another server without progress for this long is considered abandoned.
    `compact_above`: the share of garbage above which a log of at least `min_compact_bytes` is compacted without a
    request; 1: never. `has_cold_tier`: whether versions are copied to the cold tier before they are compacted.
    `sweep_ns`: interval between two sweeps for what has expired; 0: never.
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
    gather_ns: int = 3 * RENEWAL_NS
    lease_ns: int = 5 * SECOND
    takeover_ns: int = 2 * SECOND
    compact_above: float = 1.0
    min_compact_bytes: int = MIN_LOG_BYTES
    has_cold_tier: bool = False
    sweep_ns: int = 0
