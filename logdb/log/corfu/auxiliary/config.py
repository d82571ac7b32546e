"""The configuration of a replica of the auxiliary."""

from __future__ import annotations

from dataclasses import dataclass, field

from logdb.cores.effects import MILLISECOND, Address
from logdb.log import paxos


@dataclass(frozen=True, slots=True)
class AuxiliaryConfig:
    """The configuration of one replica. `replicas`: the addresses of all, in the same order everywhere.

    `units`: number of storage units of a new shard. `suspect_after_ns`: a unit or sequencer that has not reported for
    this long, or does not answer a seal, is removed. `snapshot_bytes`: the state is saved when the commands since the
    last time are this long.
    """

    address: Address
    replicas: tuple[Address, ...]
    units: int = 2
    heartbeat_ns: int = 100 * MILLISECOND
    suspect_after_ns: int = 500 * MILLISECOND
    snapshot_bytes: int = 1 << 20
    paxos: paxos.Config = field(default_factory=paxos.Config)

    def __post_init__(self) -> None:
        if self.address not in self.replicas:
            raise ValueError(f"{self.address} is not one of the replicas {', '.join(self.replicas)}")
