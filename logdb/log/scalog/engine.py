"""Scalog as an engine: everything that the rest of LogDB uses of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from logdb.cores.effects import Address
from logdb.log import paxos
from logdb.log.engine import Engine, Metric, Operations, Role, Shape
from logdb.log.scalog import messages as m
from logdb.log.scalog.aggregator.aggregator import Aggregator
from logdb.log.scalog.client.log_client import LogClient
from logdb.log.scalog.ordering.commands import FailurePolicy
from logdb.log.scalog.ordering.replica import OrderingReplica
from logdb.log.scalog.servers import (
    POLICIES,
    SETTINGS,
    AggregatorServerConfig,
    OrderingServerConfig,
    StorageServerConfig,
    check_times,
)
from logdb.log.scalog.storage.server import StorageServer
from logdb.log.scalog.wire import WIRE

# ---- roles


def _measures(core: OrderingReplica) -> Iterable[Metric]:
    state = core.state
    yield Metric("logdb_joining", "1 until this replica is a member of the ordering layer.", not core.paxos.has_joined)
    yield Metric("logdb_leader", "1 if this replica leads.", core.leader is not None)
    yield Metric("logdb_cuts", "Cuts of the log.", state.cut, is_counter=True)
    yield Metric("logdb_ordered_records", "Records of the log.", state.last, is_counter=True)
    yield Metric("logdb_shards", "Shards, finalized ones too.", len(state.shards))
    yield Metric("logdb_oldest_gsn", "The oldest record that can be read.", state.oldest)


def _after_damage_of_a_replica(config: OrderingServerConfig) -> str:
    if len(config.ordering) == 1:
        return "No other server has the order of the log that the only ordering replica has lost: restore a backup"
    return (
        f"Remove the directory {config.data} and start again: the replica cannot use its damaged state, "
        "but rejoins the others, as long as more than half of all replicas run without it"
    )


def _after_damage_of_a_storage_server(config: StorageServerConfig) -> str:
    return (
        f"Remove the directory {config.data} and start again: the server becomes a spare, "
        "and the other members of its shard have copies of its records"
    )


ORDERING: Final = Role(
    name="ordering",
    number=1,
    letter="o",
    title="a replica of the ordering layer",
    config=OrderingServerConfig,
    build=lambda config, journals, rng: OrderingReplica(config.core(), journals, rng),
    accepts=frozenset(
        {
            paxos.JoinRequest,
            paxos.MemberEnvelope,
            paxos.JoinReply,
            m.UpdateRequest,
            m.ReportRequest,
            m.TailRequest,
            m.ViewRequest,
            m.CaughtUp,
            m.ChangeRequest,
            m.Recovered,
            m.Register,
            m.RegisterAggregator,
            m.Report,
            m.Suspect,
            m.SuspectAggregator,
            m.Tally,
            m.Unreachable,
        }
    ),
    sends=frozenset(
        {
            paxos.JoinRequest,
            paxos.MemberEnvelope,
            paxos.JoinReply,
            m.ReportRequest,
            m.ChangeResponse,
            m.NotLeader,
            m.TailResponse,
            m.Tally,
            m.Update,
            m.Updates,
            m.ViewResponse,
            m.RegistrationReply,
            m.Unreachable,
        }
    ),
    is_ready=lambda core: core.paxos.has_joined,
    paxos_replica=lambda core: core.paxos,
    metrics=_measures,
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
            m.Append,
            m.AppendStatusRequest,
            m.PlacementsRequest,
            m.ReportRequest,
            m.SessionsRequest,
            m.TimeRequest,
            m.ReplicateAck,
            m.PlacementsResponse,
            m.Pull,
            m.ReadRequest,
            m.Replicate,
            m.SessionsResponse,
            m.Update,
            m.Updates,
            m.RegistrationReply,
        }
    ),
    sends=frozenset(
        {
            m.Appended,
            m.PlacementsRequest,
            m.SessionsRequest,
            m.AppendStatus,
            m.ReadResponse,
            m.ReplicateAck,
            m.ReadFailed,
            m.PlacementsResponse,
            m.Pulled,
            m.Rejected,
            m.Replicate,
            m.SessionsResponse,
            m.TimeResponse,
        }
    ),
    segment_bytes=lambda config: config.segment_mib << 20,
    damage_advice=_after_damage_of_a_storage_server,
    notices_lost="clients",
)

AGGREGATOR: Final = Role(
    name="aggregator",
    number=3,
    letter="a",
    title="an aggregator",
    config=AggregatorServerConfig,
    build=lambda config, journals, rng: Aggregator(config.core(), journals, rng),
    accepts=frozenset({m.Report, m.Tally, m.Updates, m.ViewResponse}),
    sends=frozenset({m.Tally, m.Update, m.Updates}),
    has_journals=False,
)

# ---- operations


def _servers(shape: Shape) -> Mapping[str, int]:
    return {
        ORDERING.name: shape.ordering,
        AGGREGATOR.name: shape.aggregators,
        STORAGE.name: shape.shards * shape.replicas + shape.spares,
    }


def _settings(shape: Shape) -> Mapping[str, Any]:
    """Raises ValueError."""
    policy = shape.policy or ("mask" if shape.nodes and shape.replicas % 2 else next(iter(POLICIES)))
    if policy not in POLICIES:
        raise ValueError(f"the policy must be one of {', '.join(POLICIES)}; it is {policy!r}")
    failures = shape.replicas - 1
    if POLICIES[policy] is FailurePolicy.MASK:
        if shape.replicas % 2 == 0:
            raise ValueError(f"a shard that masks failures has an odd number of replicas, not {shape.replicas}")
        failures = shape.replicas // 2
    return {"policy": policy, "failures": failures}


def _members(config: OrderingServerConfig) -> int:
    return (2 if config.policy is FailurePolicy.MASK else 1) * config.failures + 1


def _policy_of(config: OrderingServerConfig) -> str:
    return next(name for name, policy in POLICIES.items() if policy is config.policy)


def _servers_in(view: m.View) -> Iterator[tuple[Address, str]]:
    for shard in view.shards:
        yield from ((member.address, STORAGE.name) for member in shard.holders)
    yield from ((member.address, STORAGE.name) for member in view.spares)
    yield from ((address, AGGREGATOR.name) for address, _ in view.aggregators)


OPERATIONS: Final = Operations(
    default_shape=Shape(),
    server_counts=_servers,
    shape_fields={"ordering": ORDERING.name, "aggregators": AGGREGATOR.name},
    settings=_settings,
    shard_size=_members,
    policy_of=_policy_of,
    storage_role=STORAGE.name,
    tail_request=m.TailRequest,
    view_request=m.ViewRequest,
    frontier_of=lambda answer: answer if isinstance(answer, m.TailResponse) else None,
    configuration_of=lambda answer: answer.view if isinstance(answer, m.ViewResponse) else None,
    servers_of=_servers_in,
    empty_configuration=m.View(0, (), 1, 1, (), ()),
)

ENGINE: Final = Engine(
    name="scalog",
    founder_role=ORDERING.name,
    roles={role.name: role for role in (ORDERING, STORAGE, AGGREGATOR)},
    client=LogClient,
    wire=WIRE,
    operations=OPERATIONS,
    settings=SETTINGS,
    check=check_times,
    simulation="tests.sim.scalog",
)
