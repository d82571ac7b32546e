"""Ziplog as an engine: everything that the rest of LogDB uses of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from logdb.log import paxos
from logdb.log.engine import Engine, Metric, Operations, Role, Shape
from logdb.log.ziplog import messages as m
from logdb.log.ziplog.client.log_client import ZiplogClient
from logdb.log.ziplog.mms.replica import MmsReplica
from logdb.log.ziplog.servers import SETTINGS, MmsServerConfig, StorageServerConfig, check_settings
from logdb.log.ziplog.storage.server import StorageServer
from logdb.log.ziplog.wire import WIRE

# ---- roles


def _mms_metrics(core: MmsReplica) -> Iterable[Metric]:
    state = core.state
    yield Metric("logdb_joining", "1 until this replica is a member of the MMS.", not core.paxos.has_joined)
    yield Metric("logdb_leader", "1 if this replica leads.", core.leader is not None)
    yield Metric("logdb_cuts", "Epochs of the log.", state.cut, is_counter=True)
    yield Metric("logdb_shards", "Shards, finalized ones too.", len(state.shards))
    yield Metric("logdb_oldest_gsn", "The oldest record that can be read.", state.oldest)


def _after_damage_of_a_replica(config: MmsServerConfig) -> str:
    if len(config.ordering) == 1:
        return "No other server has the shards and epochs that the only replica has lost: restore a backup"
    return (
        f"Remove the directory {config.data} and start again: the replica cannot use its damaged state, "
        "but rejoins the others, as long as more than half of all replicas run without it"
    )


def _after_damage_of_a_storage_server(config: StorageServerConfig) -> str:
    return (
        f"Remove the directory {config.data} and start again: the server becomes a spare, "
        "and the other members of its shard have copies of its records"
    )


MMS: Final = Role(
    name="ordering",
    number=1,
    letter="o",
    title="a replica of the ordering layer",
    config=MmsServerConfig,
    build=lambda config, journals, rng: MmsReplica(config.core(), journals, rng),
    accepts=frozenset(
        {
            paxos.JoinRequest,
            paxos.MemberEnvelope,
            paxos.JoinReply,
            m.Report,
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
            m.Freeze,
            m.TailResponse,
            m.ViewResponse,
            m.ChangeResponse,
            m.NotLeader,
        }
    ),
    is_ready=lambda core: core.paxos.has_joined,
    paxos_replica=lambda core: core.paxos,
    metrics=_mms_metrics,
    can_start_empty=False,
    damage_advice=_after_damage_of_a_replica,
)

STORAGE: Final = Role(
    name="storage",
    number=2,
    letter="s",
    title="a storage server",
    config=StorageServerConfig,
    build=lambda config, journals, rng: StorageServer(config.core(), journals, rng),
    accepts=frozenset(
        {
            m.Update,
            m.Freeze,
            m.Insert,
            m.FrontierRequest,
            m.StatusRequest,
            m.Replicate,
            m.Stored,
            m.Sessions,
            m.ReadRequest,
            m.Pull,
        }
    ),
    sends=frozenset(
        {
            m.Report,
            m.Inserted,
            m.Refused,
            m.Stale,
            m.FrontierResponse,
            m.Status,
            m.Replicate,
            m.Stored,
            m.Sessions,
            m.ReadResponse,
            m.ReadFailed,
            m.Pulled,
        }
    ),
    is_ready=lambda core: core.is_ready,
    segment_bytes=lambda config: config.segment_mib << 20,
    damage_advice=_after_damage_of_a_storage_server,
    notices_lost="clients",
)

# ---- operations


def _server_counts(shape: Shape) -> Mapping[str, int]:
    """Raises ValueError."""
    if shape.aggregators:
        raise ValueError("a log on Ziplog has no aggregators")
    return {MMS.name: shape.ordering, STORAGE.name: shape.shards * shape.replicas + shape.spares}


def _settings(shape: Shape) -> Mapping[str, Any]:
    """Raises ValueError."""
    if shape.policy:
        raise ValueError("a log on Ziplog replaces failed servers by spare ones: it has no policy")
    return {"failures": shape.replicas - 1}


OPERATIONS: Final = Operations(
    default_shape=Shape(engine="ziplog"),
    server_counts=_server_counts,
    shape_fields={"ordering": MMS.name},
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
        *((member.address, STORAGE.name) for shard in view.shards for member in shard.holders),
        *((spare.address, STORAGE.name) for spare in view.spares),
    ],
    empty_configuration=m.NO_VIEW,
)

ENGINE: Final = Engine(
    name="ziplog",
    founder_role=MMS.name,
    roles={role.name: role for role in (MMS, STORAGE)},
    client=ZiplogClient,
    wire=WIRE,
    operations=OPERATIONS,
    settings=SETTINGS,
    check=check_settings,
    simulation="tests.sim.ziplog",
)
