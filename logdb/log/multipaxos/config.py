"""How a replica is configured: all of its parts read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from logdb.cores.effects import MILLISECOND, Address
from logdb.log import paxos
from logdb.log.engine import ServerConfig, Setting, WrongSetting, between


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """How one replica does its work. `replicas`: the addresses of all, in the same order everywhere; `address`: this
    one's. Bytes of records are their payloads and 32 each.

    `batch_bytes`: about the largest command, and answer to a `Pull` between replicas. `fragment_bytes`: larger ones are
    proposed in parts of this size, since a value travels inside one message. `window`: commands that a leader
    has under way at once; what comes meanwhile goes into the next one. `buffer_bytes`: records that are not ordered
    yet, beyond which a leader refuses appends. `flush_ns`, `flush_bytes`: records are written to their journal after
    that time, or when they have become that many. `cache_bytes`: the newest records, kept in memory for readers.
    `copy_ns`: the wait before another replica is asked for missing records. `snapshot_bytes`: the state is saved, and
    the commands before it go, when these have become so long (and eight times as long as the last saved state).
    """

    address: Address
    replicas: tuple[Address, ...]
    batch_bytes: int = 1 << 20
    fragment_bytes: int = 2 << 20
    window: int = 4
    buffer_bytes: int = 64 << 20
    flush_ns: int = 100 * MILLISECOND
    flush_bytes: int = 1 << 20
    cache_bytes: int = 8 << 20
    copy_ns: int = 200 * MILLISECOND
    snapshot_bytes: int = 4 << 20
    paxos: paxos.Config = field(default_factory=paxos.Config)

    def __post_init__(self) -> None:
        if self.address not in self.replicas:
            raise ValueError(f"{self.address} is not one of the replicas {', '.join(self.replicas)}")


@dataclass(frozen=True, slots=True)
class ReplicaServerConfig(ServerConfig):
    """A replica. For the times and sizes see `ReplicaConfig`; `segment_mib`: of a file."""

    role: ClassVar[str] = "replica"

    heartbeat_ms: int = 100
    election_ms: int = 500
    buffer_mib: int = 64
    cache_mib: int = 8
    segment_mib: int = 64
    snapshot_mib: int = 4

    def core(self) -> ReplicaConfig:
        """The same for its core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return ReplicaConfig(
            address=self.address,
            replicas=self.ordering,
            buffer_bytes=self.buffer_mib << 20,
            cache_bytes=self.cache_mib << 20,
            flush_ns=heartbeat_ns,
            copy_ns=2 * heartbeat_ns,
            snapshot_bytes=self.snapshot_mib << 20,
            paxos=paxos.Config(election_ns=self.election_ms * MILLISECOND, heartbeat_ns=heartbeat_ns),
        )


SETTINGS: Final[dict[str, Setting]] = {
    "heartbeat_ms": Setting(int, between(5, 60_000), ("cluster",)),
    "election_ms": Setting(int, between(10, 600_000), ("cluster",)),
    "buffer_mib": Setting(int, between(1, 4_096), ("cluster", "replica")),
    "cache_mib": Setting(int, between(1, 65_536), ("cluster", "replica")),
    "segment_mib": Setting(int, between(1, 1_024), ("cluster", "replica")),
    "snapshot_mib": Setting(int, between(1, 1_024), ("cluster", "replica")),
}
"""Times that all replicas must agree on stand in [cluster] alone."""


def check_times(settings: Mapping[str, Any]) -> None:
    """A heartbeat must arrive before it is missed. Raises WrongSetting."""
    defaults = ReplicaServerConfig.__dataclass_fields__
    heartbeat = settings.get("heartbeat_ms", defaults["heartbeat_ms"].default)
    election = settings.get("election_ms", defaults["election_ms"].default)
    if election < 2 * heartbeat:
        about = "election_ms" if "election_ms" in settings else "heartbeat_ms"
        raise WrongSetting(about, f"election_ms ({election}) must be at least twice heartbeat_ms ({heartbeat})")
