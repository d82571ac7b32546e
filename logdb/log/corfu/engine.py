"""The declaration of the Corfu engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from logdb.log import paxos
from logdb.log.corfu import messages as m
from logdb.log.corfu.auxiliary.replica import AuxiliaryReplica
from logdb.log.corfu.client.log_client import CorfuClient
from logdb.log.corfu.projection import NO_VIEW
from logdb.log.corfu.sequencer.sequencer import Sequencer
from logdb.log.corfu.servers import (
    SETTINGS,
    AuxiliaryServerConfig,
    SequencerServerConfig,
    UnitServerConfig,
    check_times,
)
from logdb.log.corfu.storage.unit import StorageUnit
from logdb.log.corfu.wire import WIRE
from logdb.log.engine import Engine, Metric, Operations, Role, Shape

# ---- roles


def _auxiliary_metrics(core: AuxiliaryReplica) -> Iterable[Metric]:
    state = core.state
    yield Metric("logdb_joining", "1 until this replica is a member of the auxiliary.", not core.paxos.has_joined)
    yield Metric("logdb_leader", "1 if this replica leads.", core.leader is not None)
    yield Metric("logdb_cuts", "Epochs of the log.", state.epoch, is_counter=True)
    yield Metric("logdb_shards", "Shards, finalized ones too.", len(state.shards))
    yield Metric("logdb_oldest_gsn", "The oldest record that can be read.", state.oldest)


def _sequencer_metrics(core: Sequencer) -> Iterable[Metric]:
    yield Metric("logdb_tokens", "Positions that this process has assigned.", core.tokens, is_counter=True)


def _after_damage_of_a_replica(config: AuxiliaryServerConfig) -> str:
    if len(config.ordering) == 1:
        return "No other server has the projection that the only replica has lost: restore a backup"
    return (
        f"Remove the directory {config.data} and start again: the replica cannot use its damaged state, "
        "but rejoins the others, as long as more than half of all replicas run without it"
    )


def _after_damage_of_a_unit(config: UnitServerConfig) -> str:
    return (
        f"Remove the directory {config.data} and start again: the unit becomes a spare, "
        "and the other units of its shard have copies of its records"
    )


AUXILIARY: Final = Role(
    name="ordering",
    number=1,
    letter="o",
    title="a replica of the ordering layer",
    config=AuxiliaryServerConfig,
    build=lambda config, journals, rng: AuxiliaryReplica(config.core(), journals, rng),
    accepts=frozenset(
        {
            paxos.JoinRequest,
            paxos.MemberEnvelope,
            paxos.JoinReply,
            m.Report,
            m.SequencerReport,
            m.Sealed,
            m.TailRequest,
            m.ViewRequest,
            m.ChangeRequest,
        }
    ),
    sends=frozenset(
        {
            paxos.JoinRequest,
            paxos.MemberEnvelope,
            paxos.JoinReply,
            m.Update,
            m.Seal,
            m.TailResponse,
            m.ViewResponse,
            m.ChangeResponse,
            m.NotLeader,
        }
    ),
    is_ready=lambda core: core.paxos.has_joined,
    paxos_replica=lambda core: core.paxos,
    metrics=_auxiliary_metrics,
    can_start_empty=False,
    damage_advice=_after_damage_of_a_replica,
)

STORAGE: Final = Role(
    name="storage",
    number=2,
    letter="s",
    title="a storage server",
    config=UnitServerConfig,
    build=lambda config, journals, rng: StorageUnit(config.core(), journals, rng),
    accepts=frozenset(
        {
            m.Update,
            m.Seal,
            m.WriteRequest,
            m.FillRequest,
            m.DeleteRequest,
            m.CommitRequest,
            m.OpenRequest,
            m.StreamPull,
            m.Pull,
            m.Pulled,
            m.Written,
            m.Rejected,
            m.HighestRequest,
            m.TimeRequest,
            m.StatusRequest,
            m.ReadRequest,
            m.TokenResponse,
            m.TokenRefused,
        }
    ),
    sends=frozenset(
        {
            m.Report,
            m.Sealed,
            m.TokenRequest,
            m.Written,
            m.Deleted,
            m.Committed,
            m.OpenPositions,
            m.StreamPulled,
            m.Rejected,
            m.FillRequest,
            m.Pull,
            m.Pulled,
            m.HighestResponse,
            m.TimeResponse,
            m.Status,
            m.ReadResponse,
        }
    ),
    is_ready=lambda core: core.is_ready,
    segment_bytes=lambda config: config.segment_mib << 20,
    damage_advice=_after_damage_of_a_unit,
    notices_lost="clients",
)

SEQUENCER: Final = Role(
    name="sequencer",
    number=7,
    letter="q",
    title="a sequencer",
    config=SequencerServerConfig,
    build=lambda config, journals, rng: Sequencer(config.core(), journals, rng),
    accepts=frozenset({m.Update, m.TokenRequest, m.StreamTailRequest}),
    sends=frozenset({m.SequencerReport, m.TokenResponse, m.TokenRefused, m.StreamTailResponse}),
    is_ready=lambda core: core.view.version > 0,
    metrics=_sequencer_metrics,
    has_journals=False,
    has_standbys=True,
)

# ---- operations


def _server_counts(shape: Shape) -> Mapping[str, int]:
    """Raises ValueError."""
    if shape.aggregators:
        raise ValueError("a log on Corfu has no aggregators")
    return {
        AUXILIARY.name: shape.ordering,
        STORAGE.name: shape.shards * shape.replicas + shape.spares,
        SEQUENCER.name: shape.nodes or min(2, shape.ordering),
    }


def _settings(shape: Shape) -> Mapping[str, Any]:
    """Raises ValueError."""
    if shape.policy:
        raise ValueError("a log on Corfu replaces failed units by spare ones: it has no policy")
    return {"failures": shape.replicas - 1}


OPERATIONS: Final = Operations(
    default_shape=Shape(engine="corfu"),
    server_counts=_server_counts,
    shape_fields={"ordering": AUXILIARY.name},
    settings=_settings,
    shard_size=lambda config: config.failures + 1,
    policy_of=lambda config: "",
    storage_role=STORAGE.name,
    members_on_nodes=lambda nodes: nodes // 2 + 1,
    tail_request=m.TailRequest,
    view_request=m.ViewRequest,
    frontier_of=lambda answer: answer if isinstance(answer, m.TailResponse) else None,
    configuration_of=lambda answer: answer.view if isinstance(answer, m.ViewResponse) else None,
    servers_of=lambda view: [
        *((unit.address, STORAGE.name) for shard in view.shards for unit in shard.holders),
        *((spare.address, STORAGE.name) for spare in view.spares),
        *([(view.sequencer, SEQUENCER.name)] if view.sequencer else []),
    ],
    empty_configuration=NO_VIEW,
)

ENGINE: Final = Engine(
    name="corfu",
    founder_role=AUXILIARY.name,
    roles={role.name: role for role in (AUXILIARY, STORAGE, SEQUENCER)},
    client=CorfuClient,
    wire=WIRE,
    operations=OPERATIONS,
    settings=SETTINGS,
    check=check_times,
    simulation="tests.sim.corfu",
    has_streams=True,
)
