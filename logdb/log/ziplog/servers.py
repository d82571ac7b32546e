"""How the servers of Ziplog are configured in `cluster.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from logdb.cores.effects import MILLISECOND
from logdb.log import paxos
from logdb.log.engine import ServerConfig, Setting, WrongSetting, between
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.storage.config import StorageConfig

SYNCED: Final = "synced"
RECEIVED: Final = "received"


def _ack(value: str) -> str:
    if value not in (SYNCED, RECEIVED):
        raise ValueError(f'"{SYNCED}" or "{RECEIVED}"')
    return value


@dataclass(frozen=True, slots=True)
class MmsServerConfig(ServerConfig):
    """A replica of the MMS. `failures`: of servers of a shard that lose no record; `epoch_ms`: between two epochs."""

    role: ClassVar[str] = "ordering"

    heartbeat_ms: int = 100
    election_ms: int = 500
    suspect_after_ms: int = 1_000
    failures: int = 1
    epoch_ms: int = 20
    snapshot_mib: int = 4

    def core(self) -> MmsConfig:
        """The same for its core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return MmsConfig(
            address=self.address,
            replicas=self.ordering,
            members=self.failures + 1,
            epoch_ns=self.epoch_ms * MILLISECOND,
            heartbeat_ns=heartbeat_ns,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            snapshot_bytes=self.snapshot_mib << 20,
            paxos=paxos.Config(election_ns=self.election_ms * MILLISECOND, heartbeat_ns=heartbeat_ns),
        )


@dataclass(frozen=True, slots=True)
class StorageServerConfig(ServerConfig):
    """A storage server. For the times and sizes see `StorageConfig`; `segment_mib`: of a file. `ack`: `SYNCED` or
    `RECEIVED`, what it acknowledges."""

    role: ClassVar[str] = "storage"

    heartbeat_ms: int = 100
    suspect_after_ms: int = 1_000
    epoch_ms: int = 20
    buffer_mib: int = 64
    cache_mib: int = 8
    segment_mib: int = 64
    ack: str = SYNCED

    def core(self) -> StorageConfig:
        """The same for its core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return StorageConfig(
            address=self.address,
            ordering=self.ordering,
            heartbeat_ns=heartbeat_ns,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            resend_ns=heartbeat_ns,
            epoch_age_ns=4 * self.epoch_ms * MILLISECOND,
            cache_bytes=self.cache_mib << 20,
            buffer_bytes=self.buffer_mib << 20,
            acks_received=self.ack == RECEIVED,
        )


SETTINGS: Final[dict[str, Setting]] = {
    "heartbeat_ms": Setting(int, between(5, 60_000), ("cluster",)),
    "election_ms": Setting(int, between(10, 600_000), ("cluster",)),
    "suspect_after_ms": Setting(int, between(10, 600_000), ("cluster",)),
    "failures": Setting(int, between(0, 4), ("cluster",)),
    "epoch_ms": Setting(int, between(1, 10_000), ("cluster",)),
    "ack": Setting(str, _ack, ("cluster",)),
    "buffer_mib": Setting(int, between(1, 4_096), ("cluster", "storage")),
    "cache_mib": Setting(int, between(1, 65_536), ("cluster", "storage")),
    "segment_mib": Setting(int, between(1, 1_024), ("cluster", "storage")),
    "snapshot_mib": Setting(int, between(1, 1_024), ("cluster", "ordering")),
}
"""Times that all servers must agree on stand in [cluster] alone."""


def check_settings(settings: Mapping[str, Any], has_database: bool) -> None:
    """A heartbeat must arrive before it is missed, and a database loses nothing. Raises WrongSetting."""
    if has_database and settings.get("ack") == RECEIVED:
        why = "a commit record could survive whose large values are lost, and no commit would return earlier"
        raise WrongSetting("ack", f'ack = "{RECEIVED}" is for a log without mapping servers: {why}')
    defaults = MmsServerConfig.__dataclass_fields__
    heartbeat = settings.get("heartbeat_ms", defaults["heartbeat_ms"].default)
    for name in ("election_ms", "suspect_after_ms"):
        value = settings.get(name, defaults[name].default)
        if value < 2 * heartbeat:
            about = name if name in settings else "heartbeat_ms"
            raise WrongSetting(about, f"{name} ({value}) must be at least twice heartbeat_ms ({heartbeat})")
