"""The configuration of a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from logdb.cores.effects import MILLISECOND, Address
from logdb.log import paxos
from logdb.log.engine import ServerConfig, Setting, WrongSetting, between


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """The configuration of one replica's core. `replicas`: the addresses of all replicas, in the same order everywhere;
    `address`: the address of this one. Sizes of records are their payloads and 32 bytes each.

    `batch_bytes`: approximate maximum size of a command, and of an answer to a `Pull` between replicas.
    `fragment_bytes`: larger commands are proposed in parts of this size, since a value is sent inside one message.
    `window`: maximum number of commands in flight; later appends are part of the next command. `buffer_bytes`: maximum
    size of records that are not ordered yet; a leader rejects further appends. `flush_ns`, `flush_bytes`: records are
    written to their journal after this time, or at this size. `cache_bytes`: size of the newest records that are kept
    in memory for readers. `copy_ns`: time until missing records are requested from another replica. `snapshot_bytes`:
    size of the commands after which the state is saved and the commands are dropped (at least eight times the size of
    the last saved state).
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
    """A replica server. For the times and sizes see `ReplicaConfig`. `segment_mib`: size of a journal file."""

    role: ClassVar[str] = "replica"

    heartbeat_ms: int = 100
    election_ms: int = 500
    buffer_mib: int = 64
    cache_mib: int = 8
    segment_mib: int = 64
    snapshot_mib: int = 4

    def core(self) -> ReplicaConfig:
        """The configuration of its core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return ReplicaConfig(
            address=self.address,
            replicas=self.ordering,
            buffer_bytes=self.buffer_mib << 20,
            cache_bytes=self.cache_mib << 20,
            flush_ns=heartbeat_ns,
            copy_ns=2 * heartbeat_ns,
            snapshot_bytes=self.snapshot_mib << 20,
            paxos=paxos.Config(
                election_ns=self.election_ms * MILLISECOND,
                heartbeat_ns=heartbeat_ns,
                buffer_bytes=self.buffer_mib << 20,
            ),
        )


SETTINGS: Final[dict[str, Setting]] = {
    "heartbeat_ms": Setting(int, between(5, 60_000), ("cluster",)),
    "election_ms": Setting(int, between(10, 600_000), ("cluster",)),
    "buffer_mib": Setting(int, between(1, 4_096), ("cluster", "replica")),
    "cache_mib": Setting(int, between(1, 65_536), ("cluster", "replica")),
    "segment_mib": Setting(int, between(1, 1_024), ("cluster", "replica")),
    "snapshot_mib": Setting(int, between(1, 1_024), ("cluster", "replica")),
}
"""Times that must be the same for all replicas are only in [cluster]."""


def check_times(settings: Mapping[str, Any], has_database: bool) -> None:
    """A heartbeat must arrive before it is missed. Raises WrongSetting."""
    defaults = ReplicaServerConfig.__dataclass_fields__
    heartbeat = settings.get("heartbeat_ms", defaults["heartbeat_ms"].default)
    election = settings.get("election_ms", defaults["election_ms"].default)
    if election < 2 * heartbeat:
        about = "election_ms" if "election_ms" in settings else "heartbeat_ms"
        raise WrongSetting(about, f"election_ms ({election}) must be at least twice heartbeat_ms ({heartbeat})")
