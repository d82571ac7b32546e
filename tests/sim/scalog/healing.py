"""Brings a cluster of Scalog back to normal after its faults, and reads the records of its servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.log import requests as calls
from logdb.log.requests import ShardState
from logdb.log.scalog import messages
from logdb.log.scalog.ordering.commands import FailurePolicy
from tests.sim.checks import Copy
from tests.sim.scalog.cluster import Cluster
from tests.sim.scalog.prober import Prober
from tests.sim.world import Failure

Wait = Callable[[int, Callable[[], bool], str, list[Any]], None]
"""Let time pass until a condition holds. Raises Failure at the limit, with the condition's name and the suspects."""


class Healing:
    """The healing of one cluster, after its faults have ended."""

    def __init__(self, cluster: Cluster, wait: Wait) -> None:
        self.cluster, self._wait = cluster, wait

    def configured(self) -> list[tuple[Any, ...]]:
        """The parts of the configuration that reconfigurations change: states, members and seals."""
        cores: list[Any] = [one.core for one in self.cluster.ordering if one.core is not None]
        view = max(cores, key=lambda core: core.slot).state.view()
        return [(one.state, one.members, [(it.id, it.sealed) for it in one.segments]) for one in view.shards]

    def make_writable(self, limit: int) -> None:
        """Add servers for those that are lost, and a shard if the last live one was finalized.

        First wait until ordering replicas that have lost their disk have joined again.
        """
        cluster = self.cluster
        outside = [replica for replica in cluster.ordering if replica.address not in cluster.retired]
        self._wait(limit, lambda: all(map(cluster.has_joined, outside)), "replicas join again", outside)
        calls_open = cluster.operator.process.calls
        self._wait(limit, lambda: not calls_open, "the operator is served", [calls_open])
        for _ in range(cluster.shape.members):
            cluster.add_storage().start()
        while True:
            view = cluster.view(limit)
            live = [shard for shard in view.shards if shard.state is ShardState.LIVE]
            for shard in live:
                primaries = {segment.primary for segment in shard.segments if segment.sealed is None}
                for server in sorted({member.server for member in shard.members} - primaries):
                    cluster.operator.do(messages.OpenSegment(server), limit)
            if live:
                self._replace_retired(limit)
                return
            cluster.operator.do(calls.AddShard(()), limit)

    def wait_for_copies(self, limit: int) -> None:
        """Wait until successors have caught up. The operator replaces a successor of a finalized shard that has lost
        its disk, since members of finalized shards are not suspected."""
        cluster, world = self.cluster, self.cluster.world
        before: set[int] = set()
        while joining := {server: one for one in cluster.view(limit).shards for server in one.joining}:
            if world.now > limit - 20 * cluster.shape.heartbeat_ns:
                raise Failure("liveness: successors catch up", f"{joining}")
            for server in sorted(before & joining.keys()):
                if joining[server].state is ShardState.FINALIZED:
                    cluster.add_storage().start()
                    cluster.operator.do(calls.ReplaceServer(server, 0), limit)
            before = set(joining)
            world.run(world.now + 20 * cluster.shape.heartbeat_ns)

    def _replace_retired(self, limit: int) -> None:
        """Replace the members that do not come back, until their successors have caught up."""
        cluster, world = self.cluster, self.cluster.world
        for _ in self._retired_members(limit):
            cluster.add_storage().start()
        replaced: set[int] = set()
        while gone := self._retired_members(limit):
            if world.now > limit:
                raise Failure("liveness: members that are gone can be replaced", f"{gone}")
            for server in sorted(set(gone) - replaced):
                if not isinstance(cluster.operator.do(calls.ReplaceServer(server, 0), limit), Exception):
                    replaced.add(server)
            world.run(world.now + cluster.shape.heartbeat_ns)

    def _retired_members(self, limit: int) -> list[int]:
        members = [member for shard in self.cluster.view(limit).shards for member in shard.members]
        return [member.server for member in members if member.address in self.cluster.retired]

    def copies(self, tail: int, limit: int) -> tuple[int, list[Copy]]:
        """The oldest record, and the records of every member from there to `tail`. Checks that the servers agree."""
        cluster = self.cluster
        prober = Prober(cluster)
        view = prober.views(limit)
        added, requested = view.next_shard - 1, cluster.operator.requested[calls.AddShard]
        if added > requested and cluster.shape.policy is not FailurePolicy.FINALIZE_AND_ADD:
            raise Failure("a change is carried out once", f"{added} shards were added, {requested} were requested")
        return view.oldest, prober.copies(view, view.oldest, tail, limit)
