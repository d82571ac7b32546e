"""A replica of the ordering layer: Paxos chooses the commands, `state.py` applies them, a leader collects tallies."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from logdb.log import paxos
from logdb.log.cores import MILLISECOND, SECOND, Address, Effect, Event, Journal
from logdb.log.scalog.commands import FailurePolicy


@dataclass(frozen=True, slots=True)
class OrderingConfig:
    """How one replica of the ordering layer does its work. `replicas`: the addresses of all, in the same order
    everywhere; `address`: this one's.

    `policy` and `f`: what is done when a storage server fails (table 3.2), and how many failures a shard survives:
    it has f + 1 members, or 2f + 1 where failures are masked. They are the log's, not the replica's: the leader puts
    its own into the replicated state. `interval_ns`: the least time between two cuts (0: order as soon as the
    last cut is chosen); `finalizing_interval_ns`: the same, and the time between empty cuts, while a shard is
    finalizing. `heartbeat_ns`: every shard hears from the leader so often. `suspect_after_ns`, `straggle_after_ns`:
    how long a member may be silent, or behind the others. `snapshot_bytes`: the state is saved, and the commands
    before it go, when they are so long. `remember_changes`: so many changes are recognised when they are sent again.
    """

    address: Address
    replicas: tuple[Address, ...]
    policy: FailurePolicy = FailurePolicy.FINALIZE_AND_ADD
    f: int = 1
    interval_ns: int = 0
    finalizing_interval_ns: int = MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    suspect_after_ns: int = SECOND
    straggle_after_ns: int = 5 * SECOND
    snapshot_bytes: int = 4 << 20
    paxos: paxos.Config = field(default_factory=paxos.Config)

    def __post_init__(self) -> None:
        if self.address not in self.replicas:
            raise ValueError(f"{self.address} is not one of the replicas {', '.join(self.replicas)}")
        if self.f < 0:
            raise ValueError(f"f is the number of failures that a shard survives, not {self.f}")


class OrderingReplica:
    """The core of one replica. `journals`: may have "paxos"."""

    def __init__(self, config: OrderingConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        raise NotImplementedError

    def start(self, now: int) -> list[Effect]:
        """What to do when the node starts."""
        raise NotImplementedError

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What to do about an event. Raises ProtocolViolation."""
        raise NotImplementedError

    def check_invariants(self) -> None:
        """SCA-4, 5, 6, 12, 14, and that the parts agree. Raises AssertionError."""
        raise NotImplementedError
