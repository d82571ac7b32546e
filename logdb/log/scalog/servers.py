"""The configurations of Scalog's servers and the keys of `cluster.toml` that set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from logdb.cores.effects import MILLISECOND
from logdb.log import paxos
from logdb.log.engine import ServerConfig, Setting, WrongSetting, between
from logdb.log.scalog.aggregator.aggregator import AggregatorConfig
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.ordering.commands import FailurePolicy
from logdb.log.scalog.ordering.replica import OrderingConfig


@dataclass(frozen=True, slots=True)
class OrderingServerConfig(ServerConfig):
    """One replica of the ordering layer. For the times and sizes see `OrderingConfig`."""

    role: ClassVar[str] = "ordering"

    policy: FailurePolicy = FailurePolicy.FINALIZE_AND_ADD
    failures: int = 1
    heartbeat_ms: int = 100
    suspect_after_ms: int = 1_000
    straggle_after_ms: int = 5_000
    election_ms: int = 500
    cut_interval_ms: int = 0
    snapshot_mib: int = 4

    def core(self) -> OrderingConfig:
        """The configuration of the core."""
        heartbeat_ns = self.heartbeat_ms * MILLISECOND
        return OrderingConfig(
            address=self.address,
            replicas=self.ordering,
            policy=self.policy,
            f=self.failures,
            interval_ns=self.cut_interval_ms * MILLISECOND,
            heartbeat_ns=heartbeat_ns,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            straggle_after_ns=self.straggle_after_ms * MILLISECOND,
            snapshot_bytes=self.snapshot_mib << 20,
            paxos=paxos.Config(election_ns=self.election_ms * MILLISECOND, heartbeat_ns=heartbeat_ns),
        )


@dataclass(frozen=True, slots=True)
class StorageServerConfig(ServerConfig):
    """A storage server. For the times and sizes see `StorageConfig`. `segment_mib`: the size of a journal's files."""

    role: ClassVar[str] = "storage"

    heartbeat_ms: int = 100
    suspect_after_ms: int = 1_000
    straggle_after_ms: int = 5_000
    buffer_mib: int = 16
    segment_mib: int = 64

    def core(self) -> StorageConfig:
        """The configuration of the core."""
        return StorageConfig(
            address=self.address,
            ordering=self.ordering,
            heartbeat_ns=self.heartbeat_ms * MILLISECOND,
            ask_ns=2 * self.heartbeat_ms * MILLISECOND,
            resend_ns=2 * self.heartbeat_ms * MILLISECOND,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            straggle_after_ns=self.straggle_after_ms * MILLISECOND,
            buffer_bytes=self.buffer_mib << 20,
        )


@dataclass(frozen=True, slots=True)
class AggregatorServerConfig(ServerConfig):
    """An aggregator. For the times see `AggregatorConfig`. It keeps nothing in `data`."""

    role: ClassVar[str] = "aggregator"

    heartbeat_ms: int = 100
    suspect_after_ms: int = 1_000
    straggle_after_ms: int = 5_000

    def core(self) -> AggregatorConfig:
        """The configuration of the core."""
        return AggregatorConfig(
            address=self.address,
            ordering=self.ordering,
            heartbeat_ns=self.heartbeat_ms * MILLISECOND,
            suspect_after_ns=self.suspect_after_ms * MILLISECOND,
            straggle_after_ns=self.straggle_after_ms * MILLISECOND,
            suspect_aggregator_after_ns=self.suspect_after_ms * MILLISECOND,
        )


POLICIES: Final = {policy.name.lower().replace("_", "-"): policy for policy in FailurePolicy}
"""The policies for failed storage servers, by their names in `cluster.toml`."""


def _policy(value: str) -> FailurePolicy:
    if value not in POLICIES:
        raise ValueError("one of " + ", ".join(f'"{name}"' for name in sorted(POLICIES)))
    return POLICIES[value]


SETTINGS: Final[dict[str, Setting]] = {
    "policy": Setting(str, _policy, ("cluster",)),
    "failures": Setting(int, between(0, 10), ("cluster",)),
    "heartbeat_ms": Setting(int, between(5, 60_000), ("cluster",)),
    "suspect_after_ms": Setting(int, between(20, 3_600_000), ("cluster",)),
    "straggle_after_ms": Setting(int, between(20, 3_600_000), ("cluster",)),
    "election_ms": Setting(int, between(10, 600_000), ("cluster",)),
    "cut_interval_ms": Setting(int, between(0, 10_000), ("cluster",)),
    "snapshot_mib": Setting(int, between(1, 1_024), ("cluster", "ordering")),
    "buffer_mib": Setting(int, between(1, 4_096), ("cluster", "storage")),
    "segment_mib": Setting(int, between(1, 1_024), ("cluster", "storage")),
}
"""Each key with the sections that may contain it. Times on which all servers must agree are set in [cluster] only."""


def check_times(settings: Mapping[str, Any], has_database: bool) -> None:
    """Check that every timeout covers at least two heartbeats. Raises WrongSetting."""
    defaults = OrderingServerConfig.__dataclass_fields__
    heartbeat = settings.get("heartbeat_ms", defaults["heartbeat_ms"].default)
    for key in ("election_ms", "suspect_after_ms", "straggle_after_ms"):
        value = settings.get(key, defaults[key].default)
        if value < 2 * heartbeat:
            about = key if key in settings else "heartbeat_ms"
            raise WrongSetting(about, f"{key} ({value}) must be at least twice heartbeat_ms ({heartbeat})")
