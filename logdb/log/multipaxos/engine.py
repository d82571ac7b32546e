"""The declaration of the Multi-Paxos engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from logdb.log import paxos
from logdb.log.engine import Engine, Metric, Operations, Role, Shape
from logdb.log.multipaxos import messages as m
from logdb.log.multipaxos.client.log_client import MultiPaxosClient
from logdb.log.multipaxos.config import SETTINGS, ReplicaServerConfig, check_times
from logdb.log.multipaxos.configuration import SHARD, View, view_of
from logdb.log.multipaxos.replica import MultiPaxosReplica
from logdb.log.multipaxos.wire import WIRE


def _metrics(core: MultiPaxosReplica) -> Iterable[Metric]:
    state = core.state
    yield Metric("logdb_joining", "1 while this replica is no member, or copies records.", not core.is_complete)
    yield Metric("logdb_leader", "1 if this replica leads.", core.leader is not None)
    yield Metric("logdb_cuts", "Batches of records that were ordered.", state.batches, is_counter=True)
    yield Metric("logdb_ordered_records", "Records of the log.", state.next_gsn - 1, is_counter=True)
    yield Metric("logdb_oldest_gsn", "The oldest record that can be read.", state.oldest)


def _damage_advice(config: ReplicaServerConfig) -> str:
    if len(config.ordering) == 1:
        return "This replica is the only one, so no other server has its records: restore a backup"
    return (
        f"Remove the directory {config.data} and start again: the other replicas admit this one again and send it "
        "their records, if more than half of all replicas run without it"
    )


REPLICA: Final = Role(
    name="replica",
    number=6,
    letter="r",
    title="a replica of the log",
    config=ReplicaServerConfig,
    build=lambda config, journals, rng: MultiPaxosReplica(config.core(), journals, rng),
    accepts=frozenset(
        {
            paxos.JoinRequest,
            paxos.MemberEnvelope,
            paxos.JoinReply,
            m.AppendRequest,
            m.AppendStatusRequest,
            m.ReadRequest,
            m.ReadFailed,
            m.Pull,
            m.Pulled,
            m.TimeRequest,
            m.TailRequest,
            m.TrimRequest,
            m.ViewRequest,
            m.Copying,
            m.DurableRequest,
            m.DurableResponse,
        }
    ),
    sends=frozenset(
        {
            paxos.JoinRequest,
            paxos.MemberEnvelope,
            paxos.JoinReply,
            m.AppendResponse,
            m.AppendRefused,
            m.AppendStatus,
            m.ReadResponse,
            m.ReadFailed,
            m.Pull,
            m.Pulled,
            m.TimeResponse,
            m.TailResponse,
            m.NotLeader,
            m.TrimResponse,
            m.ViewResponse,
            m.Copying,
            m.DurableRequest,
            m.DurableResponse,
        }
    ),
    is_ready=lambda core: core.paxos.has_joined,
    paxos_replica=lambda core: core.paxos,
    metrics=_metrics,
    segment_bytes=lambda config: config.segment_mib << 20,
    can_start_empty=False,
    damage_advice=_damage_advice,
    notices_lost="clients",
)


def _server_counts(shape: Shape) -> Mapping[str, int]:
    """Raises ValueError."""
    if shape.shards != 1:
        raise ValueError(f"a log on Multi-Paxos has 1 shard, not {shape.shards}")
    if shape.replicas != shape.ordering:
        raise ValueError(
            f"the replicas of a log on Multi-Paxos order the records and keep them: --replicas {shape.replicas} and "
            f"--ordering {shape.ordering} must be the same"
        )
    if shape.ordering not in (1, 3, 5):
        raise ValueError(f"a log on Multi-Paxos has 1, 3 or 5 replicas, not {shape.ordering}")
    if shape.spares or shape.aggregators:
        raise ValueError("a log on Multi-Paxos has neither spare servers nor aggregators")
    return {REPLICA.name: shape.ordering}


def _settings(shape: Shape) -> Mapping[str, Any]:
    """Raises ValueError."""
    if shape.policy:
        raise ValueError("a log on Multi-Paxos continues when a replica fails, so it has no failure policy")
    return {}


def _configuration(answer: Any) -> View | None:
    return view_of(answer.replicas, answer.oldest, answer.copying) if isinstance(answer, m.ViewResponse) else None


OPERATIONS: Final = Operations(
    default_shape=Shape(shards=1, replicas=3, ordering=3, mapping=2, engine="multipaxos"),
    server_counts=_server_counts,
    shape_fields={"ordering": REPLICA.name},
    settings=_settings,
    shard_size=lambda config: len(config.ordering),
    policy_of=lambda config: "",
    storage_role=REPLICA.name,
    tail_request=m.TailRequest,
    view_request=m.ViewRequest,
    frontier_of=lambda answer: answer if isinstance(answer, m.TailResponse) else None,
    configuration_of=_configuration,
    servers_of=lambda view: [(member.address, REPLICA.name) for shard in view.shards for member in shard.holders],
    empty_configuration=View(0, (), SHARD, 1),
)

ENGINE: Final = Engine(
    name="multipaxos",
    founder_role=REPLICA.name,
    roles={REPLICA.name: REPLICA},
    client=MultiPaxosClient,
    wire=WIRE,
    operations=OPERATIONS,
    settings=SETTINGS,
    check=check_times,
    simulation="tests.sim.multipaxos",
)
