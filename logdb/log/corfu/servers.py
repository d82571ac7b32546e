"""The configuration of the servers of Corfu in `cluster.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from logdb.cores.effects import MILLISECOND
from logdb.log import paxos
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.sequencer.sequencer import SequencerConfig
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.engine import ServerConfig, Setting, WrongSetting, between


@dataclass(frozen=True, slots=True)
class AuxiliaryServerConfig(ServerConfig):
    """A replica of the auxiliary. `failures`: of units of a shard that lose no record."""

    role: ClassVar[str] = "ordering"

    heartbeat_ms: int = 100
    election_ms: int = 500
    suspect_after_ms: int = 1_000
    failures: int = 1
    snapshot_mib: int = 4

    def core(self) -> AuxiliaryConfig:
        """The configuration of its core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return AuxiliaryConfig(
            address=self.address,
            replicas=self.ordering,
            units=self.failures + 1,
            heartbeat_ns=heartbeat_ns,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            snapshot_bytes=self.snapshot_mib << 20,
            paxos=paxos.Config(election_ns=self.election_ms * MILLISECOND, heartbeat_ns=heartbeat_ns),
        )


@dataclass(frozen=True, slots=True)
class UnitServerConfig(ServerConfig):
    """A storage unit. For the times and sizes see `UnitConfig`; `segment_mib`: size of a journal file."""

    role: ClassVar[str] = "storage"

    heartbeat_ms: int = 100
    cache_mib: int = 8
    segment_mib: int = 64

    def core(self) -> UnitConfig:
        """The configuration of its core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return UnitConfig(
            address=self.address,
            ordering=self.ordering,
            heartbeat_ns=heartbeat_ns,
            resend_ns=2 * heartbeat_ns,
            cache_bytes=self.cache_mib << 20,
        )


@dataclass(frozen=True, slots=True)
class SequencerServerConfig(ServerConfig):
    """A sequencer."""

    role: ClassVar[str] = "sequencer"

    heartbeat_ms: int = 100

    def core(self) -> SequencerConfig:
        """The configuration of its core."""
        return SequencerConfig(self.address, self.ordering, self.heartbeat_ms * MILLISECOND)


SETTINGS: Final[dict[str, Setting]] = {
    "heartbeat_ms": Setting(int, between(5, 60_000), ("cluster",)),
    "election_ms": Setting(int, between(10, 600_000), ("cluster",)),
    "suspect_after_ms": Setting(int, between(10, 600_000), ("cluster",)),
    "failures": Setting(int, between(0, 4), ("cluster",)),
    "cache_mib": Setting(int, between(1, 65_536), ("cluster", "storage")),
    "segment_mib": Setting(int, between(1, 1_024), ("cluster", "storage")),
    "snapshot_mib": Setting(int, between(1, 1_024), ("cluster", "ordering")),
}
"""Times that must be the same for all servers are only in [cluster]."""


def check_times(settings: Mapping[str, Any], has_database: bool) -> None:
    """A heartbeat must arrive before it is missed. Raises WrongSetting."""
    defaults = AuxiliaryServerConfig.__dataclass_fields__
    heartbeat = settings.get("heartbeat_ms", defaults["heartbeat_ms"].default)
    for name in ("election_ms", "suspect_after_ms"):
        value = settings.get(name, defaults[name].default)
        if value < 2 * heartbeat:
            about = name if name in settings else "heartbeat_ms"
            raise WrongSetting(about, f"{name} ({value}) must be at least twice heartbeat_ms ({heartbeat})")
