"""Stories: fixed sequences of events on a given cluster that random faults seldom reach."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.cores.effects import Address
from logdb.log import requests as calls
from logdb.log.engine import Right
from logdb.log.requests import ShardState
from logdb.log.scalog import messages
from logdb.log.scalog.ordering.commands import FailurePolicy
from logdb.security.permissions import ALLOWED_MESSAGES
from tests.sim.checks import check_all, truth_of
from tests.sim.history import History
from tests.sim.run import simulate
from tests.sim.scalog.cluster import Cluster, Shape
from tests.sim.scalog.faults import forged
from tests.sim.scalog.prober import Prober
from tests.sim.workload import Application, Load
from tests.sim.world import World

POLICIES = list(FailurePolicy)


class Story:
    """A running cluster with a client that appends on demand, and never trims."""

    def __init__(
        self, policy: FailurePolicy, *, spares: int = 4, shards: int = 2, aggregators: int = 0, seed: int = 1
    ) -> None:
        self.world = World(seed)
        self.shape = Shape(replicas=3, policy=policy, spares=spares, shards=shards, aggregators=aggregators, clients=2)
        self.cluster = Cluster(self.world, self.shape)
        self.cluster.start()
        self.history = History()
        self.load = Load(("append",), 3_600_000_000_000, 1, 3, 30, 1)
        self.applications = [Application(self.world, one, self.load, self.history) for one in self.cluster.clients]

    def pass_time(self, heartbeats: float) -> None:
        self.world.run(self.world.now + int(heartbeats * self.shape.heartbeat_ns))

    @property
    def limit(self) -> int:
        return self.world.now + 400 * self.shape.heartbeat_ns

    def append(self, count: int, client: int = 0) -> None:
        for _ in range(count):
            self.applications[client].append()
            self.pass_time(0.2)

    def view(self) -> messages.View:
        return self.cluster.view(self.limit)

    def server(self, number: int) -> Any:
        """The process of a server."""
        addresses = {one.server: one.address for config in self.view().shards for one in config.members}
        return next(one for one in self.cluster.storage if one.address == addresses[number])

    def check(self) -> int:
        """Check that acknowledged records are in the log. Returns their number."""
        limit = self.limit
        tail = self.cluster.operator.ask(calls.Tail(), limit)
        prober = Prober(self.cluster)
        view = prober.views(limit)
        check_all(self.history, truth_of(prober.copies(view, view.oldest, tail, limit), view.oldest, tail))
        return int(tail)


def shape_of(view: messages.View) -> list[Any]:
    """The parts of a view that a reconfiguration changes."""
    return [(one.shard, one.state, one.members, [it[:4:3] for it in one.segments]) for one in view.shards]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_client_cut_off_from_storage_changes_no_configuration(policy: FailurePolicy) -> None:
    story = Story(policy)
    story.append(5)
    before = shape_of(story.view())
    servers = [one.address for one in story.cluster.storage]
    links = story.cluster.network.split([story.applications[0].process.address], servers)
    story.append(5)
    story.pass_time(400)
    assert shape_of(story.view()) == before
    assert not any(process.wipes for process in story.cluster.storage)
    story.cluster.network.restore(links)
    story.append(5, client=1)
    assert story.world.run(story.limit, lambda: not any(one.busy for one in story.applications))
    assert story.check() >= 15


@pytest.mark.parametrize("policy", POLICIES)
def test_forged_messages_of_a_client_change_no_configuration(policy: FailurePolicy) -> None:
    story = Story(policy)
    story.append(5)
    before = shape_of(story.view())
    sent = set()
    for _ in range(50):
        for config in story.view().shards:
            for member in config.members:
                for message in forged(config, member.server):
                    sent.add(type(message))
                    for replica in story.cluster.ordering:
                        story.cluster.network.send("client-1", replica.address, message)
        story.pass_time(1)
    assert sent
    assert sent <= ALLOWED_MESSAGES[Right.WRITE]
    story.pass_time(20)
    assert shape_of(story.view()) == before


def test_a_paused_server_and_a_lost_disk_lose_no_record() -> None:
    """Remove and replace, f = 1: the member that was replaced while it was paused is the last one with the data."""
    story = Story(FailurePolicy.REMOVE_AND_REPLACE, shards=1, spares=2)
    story.append(50)
    assert len(story.history.operations) == 50
    one, other = [member.server for member in story.view().shards[0].members]
    paused, lost = story.server(one), story.server(other)
    servers = [process.address for process in story.cluster.storage]
    story.cluster.network.split([lost.address], [it for it in servers if it not in (lost.address, paused.address)])
    paused.pause()
    while one in [member.server for member in story.view().shards[0].members]:
        story.pass_time(1)
    paused.resume()
    story.pass_time(2)
    lost.kill()
    lost.wipe()
    story.cluster.network.cut.clear()
    story.pass_time(20)
    lost.start()
    story.pass_time(100)
    config = story.view().shards[0]
    assert config.state is ShardState.LIVE
    assert not config.joining
    assert not {one, other} & {member.server for member in config.members}
    story.append(5)
    assert story.check() >= 55


def test_a_finalized_shard_drops_no_aggregator() -> None:
    """BUGS.md, 67"""
    story = Story(FailurePolicy.FINALIZE_AND_ADD, aggregators=2)
    story.append(5)
    before = story.view().aggregators
    story.cluster.operator.do(calls.FinalizeShard(1, 0), story.limit)
    for _ in range(10):
        story.append(5)
        story.pass_time(5)
    view = story.view()
    assert view.aggregators == before
    assert all(config.reports_to for config in view.shards)


def test_the_leader_requests_no_reports_when_an_aggregator_is_back() -> None:
    """BUGS.md, 66"""
    story = Story(FailurePolicy.FINALIZE_AND_ADD, aggregators=1)
    servers = [*story.cluster.storage, *story.cluster.ordering]
    links = story.cluster.network.split(["aggregator-1"], [process.address for process in servers])
    story.pass_time(8)
    story.cluster.network.restore(links)
    requests: list[Any] = []

    def note(sender: Address, to: Address, message: Any) -> Any:
        requests.extend([message] * isinstance(message, messages.ReportRequest))
        return message

    story.cluster.network.filters.append(note)
    story.pass_time(20)
    assert story.view().shards[0].reports_to == "aggregator-1"
    requests.clear()
    story.pass_time(40)
    assert not requests


def test_a_damaged_record_of_a_primary_stops_no_append() -> None:
    """A new member needs it, and what comes behind it (BUGS.md, 65)."""
    story = Story(FailurePolicy.REMOVE_AND_REPLACE, shards=1, spares=2)
    story.append(20)
    config = story.view().shards[0]
    one, other = [member.server for member in config.members]
    (segment,) = [segment.id for segment in config.segments if segment.primary == one]
    journal = story.server(one).disk.journals[f"segment-{segment}"]
    journal.damaged.add(journal.first)
    story.cluster.operator.do(calls.ReplaceServer(other, 0), story.limit)
    story.append(20)
    assert story.world.run(story.limit, lambda: not any(one.busy for one in story.applications))
    config = story.view().shards[0]
    assert not config.joining
    assert one in [member.server for member in config.members]


def test_a_backup_that_lags_by_reordered_messages_may_be_replaced() -> None:
    """No fault, but batches of two records and a network without order: one member fell behind, and was replaced."""
    assert simulate(364138674685, "scalog").failure == ""


def test_a_node_with_an_aggregator_and_a_member_that_is_lost_stops_no_append() -> None:
    assert simulate(348, "scalog", nodes=True).failure == ""
