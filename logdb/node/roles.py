"""The roles of a cluster's servers: those of its engine, and the mapping server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import ClassVar

from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cores.effects import MILLISECOND, Journal
from logdb.log.engine import Engine, Metric, Role, ServerConfig, engine_of
from logdb.log.requests import ClientConfig
from logdb.store.key_map import KeyMap
from logdb.system.addresses import location_of, role_in
from logdb.transport.accepted_messages import accepted_by
from logdb.wire.envelopes import MAPPING
from logdb.wire.proto import peers_pb2


@dataclass(frozen=True, slots=True)
class MappingServerConfig(ServerConfig):
    """A mapping server. `decide_ms`, `keep_decisions`, `compact_above`, `sweep_ms`: as those of `MappingConfig`. The
    changes in memory are written to the checkpoint when they exceed `checkpoint_mib` MiB, or after `checkpoint_s`
    seconds. `cold`: the path or the URL of the cluster's cold tier, "" if there is none."""

    role: ClassVar[str] = MAPPING

    keep_decisions: int = 10_000
    decide_ms: int = 10_000
    checkpoint_mib: int = 64
    checkpoint_s: int = 10
    compact_above: float = 0.75
    sweep_ms: int = 10_000
    cold: str = ""

    def core(self) -> MappingConfig:
        """The configuration of its core."""
        node = location_of(self.address)
        local = next((founder for founder in self.ordering if location_of(founder) == node), "")
        engine = engine_of(self.engine)
        neighbours = frozenset([f"{node}/{role}" for role in engine.roles]) if role_in(self.address) else frozenset()
        return MappingConfig(
            address=self.address,
            log=ClientConfig(address=self.address, ordering=self.ordering, local=local, neighbours=neighbours),
            build_log=engine.client,
            peers=tuple(other for other in self.mapping if other != self.address),
            keep_decisions=self.keep_decisions,
            decide_ns=self.decide_ms * MILLISECOND,
            compact_above=self.compact_above,
            has_cold_tier=bool(self.cold),
            sweep_ns=self.sweep_ms * MILLISECOND,
        )


def _metrics(core: MappingServer) -> Iterable[Metric]:
    applied = core.replica.applied
    yield Metric("logdb_applied_gsn", "The newest record of the log that was applied.", applied)
    lag = max(core.reads.tail - applied, 0)
    yield Metric("logdb_lag_records", "Records that it knows of and has not applied.", lag)
    joining = "1 while it takes a checkpoint from another, or rebuilds one from a trimmed log."
    yield Metric("logdb_joining", joining, core.bootstrap.is_active)
    yield Metric(
        "logdb_taken_rows", "Versions received or rebuilt in that state.", core.bootstrap.rows, is_counter=True
    )
    replayed = "Records of the log that it has received since it started."
    yield Metric("logdb_replayed_records", replayed, core.follower.records, is_counter=True)
    agreed = "Comparisons with other mapping servers in which at least one had the same state."
    yield Metric("logdb_comparisons", agreed, core.comparison.agreed, is_counter=True)
    yield Metric("logdb_reads", "Reads answered.", core.answers.answered, is_counter=True)
    yield Metric("logdb_verdicts", "Verdicts pushed to clients.", core.verdicts.pushed, is_counter=True)
    cold = core.replica.cold
    if cold is not None:
        yield Metric("logdb_cold_gsn", "The cold tier has the versions up to this one.", cold.copied.version)
        failures = "Failures of the cold tier's store since the last success of this server: compactions wait."
        yield Metric("logdb_cold_failures", failures, core.compactor.archiver.failures)
    counts = core.replica.coordinator.counts
    commits = "Commit records that it has applied since it started."
    yield Metric("logdb_commits", commits, counts.commits, is_counter=True)
    aborts = "Commit records that it has not applied since it started, by reason and by label of the transaction."
    for reason, label, number in counts.listed():
        labels = (("reason", reason), ("label", label))
        yield Metric("logdb_aborts", aborts, number, is_counter=True, labels=labels)


def build_mapping_server(
    config: MappingServerConfig, journals: Mapping[str, Journal], rng: Random, key_map: KeyMap | None = None
) -> MappingServer:
    """The core of a mapping server, over the key map of its checkpoint."""
    return MappingServer(config.core(), journals, rng, key_map)


@cache
def _mapping_role(engine: str) -> Role:
    return Role(
        name=MAPPING,
        number=peers_pb2.MAPPING,
        letter="m",
        title="a mapping server",
        config=MappingServerConfig,
        build=build_mapping_server,
        accepts=accepted_by(MAPPING, engine_of(engine)),
        metrics=_metrics,
        has_journals=False,
        notices_lost="servers",
    )


def roles_of(engine: Engine) -> dict[str, Role]:
    """Every role in a cluster whose log has this engine, by name."""
    return {**engine.roles, MAPPING: _mapping_role(engine.name)}


def role_of(config: ServerConfig) -> Role:
    """The role of a server."""
    return roles_of(engine_of(config.engine))[config.role]
