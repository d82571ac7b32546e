"""The configuration of a replica of the MMS."""

from __future__ import annotations

from dataclasses import dataclass, field

from logdb.cores.effects import MILLISECOND, Address
from logdb.log import paxos


@dataclass(frozen=True, slots=True)
class MmsConfig:
    """The configuration of one replica. `replicas`: the addresses of all, in the same order everywhere.

    `members`: of a shard. `epoch_ns`: the time between two epochs at first. `suspect_after_ns`: a server that has not
    reported for this long is not chosen. `snapshot_bytes`: the state is saved when the commands since the last time are
    this long.
    """

    address: Address
    replicas: tuple[Address, ...]
    members: int = 2
    epoch_ns: int = 20 * MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    suspect_after_ns: int = 500 * MILLISECOND
    snapshot_bytes: int = 1 << 20
    paxos: paxos.Config = field(default_factory=paxos.Config)

    def __post_init__(self) -> None:
        if self.address not in self.replicas:
            raise ValueError(f"{self.address} is not one of the replicas {', '.join(self.replicas)}")
