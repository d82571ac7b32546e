"""Brings a cluster of Corfu back to normal after its faults, and reads the entries of its units."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from logdb.cores.effects import Received
from logdb.log import requests as calls
from logdb.log.contract import LogRecord
from logdb.log.corfu.messages import FillRequest, Pull, Pulled, Reason, Rejected, Written
from logdb.log.corfu.projection import ShardConfig, Unit, View, gsn_at, position_of
from tests.sim.checks import Copy
from tests.sim.corfu.cluster import Cluster
from tests.sim.world import Failure

Wait = Callable[[int, Callable[[], bool], str, list[Any]], None]
"""Let time pass until a condition holds. Raises Failure at the limit, with the condition's name and the suspects."""
ADDRESS = "prober"
BYTES = 1 << 16
HOLES = 50


class OtherEpoch(Exception):
    """The epoch of the projection is over."""


class Prober:
    """Pulls all entries of one unit after another, in the engine's own messages, as a process of the network."""

    kind = ADDRESS

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._answers: dict[int, Any] = {}
        self._request = 0
        cluster.network.processes[ADDRESS] = self  # type: ignore[assignment]

    def deliver(self, event: Received) -> None:
        """Receive a response."""
        self._answers[event.message.request] = event.message

    def _ask(self, to: str, messages: list[Any], kind: type, limit: int) -> list[Any]:
        """Send messages, again until all are answered in this way."""
        world, unit = self.cluster.world, self.cluster.shape.heartbeat_ns
        requests = [one._replace(request=number) for number, one in enumerate(messages, self._request + 1)]
        self._request += len(requests)
        self._answers.clear()

        def unanswered() -> list[Any]:
            return [one for one in requests if not isinstance(self._answers.get(one.request), kind)]

        while open_ := unanswered():
            if world.now > limit:
                why = [self._answers.get(one.request) for one in open_]
                raise Failure("liveness: units answer", f"{to} does not answer {open_}: {why}")
            for one in open_:
                self.cluster.network.send(ADDRESS, to, one)
            world.run(world.now + 2 * unit, lambda: not unanswered())
            if any(isinstance(one, Rejected) and one.why is Reason.SEALED for one in self._answers.values()):
                world.run(world.now + 8 * unit)
                raise OtherEpoch
        return [self._answers[one.request] for one in requests]

    def read(
        self, view: View, config: ShardConfig, unit: Unit, tail: int, limit: int
    ) -> tuple[list[LogRecord], dict[int, Hashable]]:
        """All records of a unit from the oldest position to the tail, and their authors. Holes are filled."""
        records: list[LogRecord] = []
        authors: dict[int, Hashable] = {}
        at = max(1, position_of(view.oldest))
        while (stride := view.stride(config.shard, at)) is not None and stride.first <= position_of(tail):
            at, step, end = stride
            pull = Pull(0, view.epoch, at, step, end, 0, None, BYTES, uncommitted=True)
            (pulled,) = self._ask(unit.address, [pull], Pulled, limit)
            if not pulled.entries:
                holes = range(at, min(end or tail, position_of(tail) + 1, at + HOLES * step), step)
                fills = [FillRequest(0, view.epoch, position) for position in holes]
                for link in config.chain(at):
                    self._ask(link.address, fills, Written, limit)
                continue
            for entry in pulled.entries:
                for index in range(entry.count):
                    authors[gsn_at(entry.position, index)] = entry.client, entry.sequence + index
            records += pulled.records
            at = pulled.entries[-1].position + 1
        return [one for one in records if view.oldest <= one.gsn <= tail], authors


class Healing:
    """The healing of one cluster, after its faults have ended."""

    def __init__(self, cluster: Cluster, wait: Wait) -> None:
        self.cluster, self._wait = cluster, wait

    def configured(self) -> list[tuple[Any, ...]]:
        """The parts of the configuration that reconfigurations change."""
        return [(one.shard, one.is_live, one.units) for one in self.cluster.state.shards.values()]

    def make_writable(self, limit: int) -> None:
        """Add units for those that are lost, and a shard if the last one was finalized."""
        cluster = self.cluster
        outside = [replica for replica in cluster.ordering if replica.address not in cluster.retired]
        self._wait(limit, lambda: all(map(cluster.has_joined, outside)), "replicas join again", outside)
        calls_open = cluster.operator.process.calls
        while calls_open and cluster.world.now < limit:
            # Calls wait for the only replica of a shard of streams, and for the units of a chain that would be too
            # short; other shards may take the spare servers.
            chains = [config.units for config in cluster.state.shards.values()]
            lost = sum([unit.server in cluster.lost for units in chains for unit in units]) + chains.count(())
            if sum([one.server not in cluster.lost for one in cluster.state.spares()]) < lost:
                cluster.add_storage().start()
            cluster.world.run(min(cluster.world.now + cluster.shape.heartbeat_ns, limit), lambda: not calls_open)
        self._wait(limit, lambda: not calls_open, "the operator is served", [calls_open])
        for _ in range(cluster.shape.members + 2):
            cluster.add_storage().start()
        while not (view := cluster.view(limit)).live():
            if len(view.spares) < cluster.shape.members:  # finalized shards with additional replicas took them
                cluster.add_storage().start()
            cluster.operator.do(calls.AddShard(()), limit)
            cluster.world.run(cluster.world.now + cluster.shape.heartbeat_ns)
        self.wait_for_copies(limit)

    def wait_for_copies(self, limit: int) -> None:
        """Wait until every live shard has all its units, all units have all entries, and a sequencer reports."""
        cluster, world = self.cluster, self.cluster.world
        living = cluster.sequencers
        while True:
            view = cluster.view(limit)
            waiting: list[Any] = [
                one for one in view.shards if one.joining or one.replaced or (one.is_live and len(one.units) < one.size)
            ]
            if not any(one.core is not None and one.core.epoch == view.epoch for one in living):  # type: ignore[attr-defined]
                waiting.append(f"no sequencer for epoch {view.epoch}")
            if not waiting:
                return
            if world.now > limit - 20 * cluster.shape.heartbeat_ns:
                raise Failure("liveness: units join, and copy their shards", f"{waiting}")
            world.run(world.now + 4 * cluster.shape.heartbeat_ns)

    def copies(self, tail: int, limit: int) -> tuple[int, list[Copy]]:
        """The oldest record, and the records of every unit from there to `tail`."""
        cluster = self.cluster
        view = cluster.view(limit)
        requested = sum([cluster.operator.requested[kind] for kind in (calls.AddShard, calls.AddStreamShard)])
        added = view.next_shard - 1
        if added > requested:
            raise Failure("a change is carried out once", f"{added} shards were added, {requested} were requested")
        prober = Prober(cluster)
        while True:
            copies = []
            try:
                for config in view.shards:
                    for unit in config.units:
                        records, authors = prober.read(view, config, unit, tail, limit)
                        owned = [(record.gsn, 1) for record in records]
                        copies.append(Copy(unit.address, config.shard, view.oldest, owned, records, authors))
            except OtherEpoch:
                self.wait_for_copies(limit)
                view = cluster.view(limit)
            else:
                self._check_commit_bits(view)
                return view.oldest, copies

    def _check_commit_bits(self, view: View) -> None:
        """A committed entry is on all replicas of its streams that have copied theirs (COR-16)."""
        cores: list[Any] = [one.core for one in self.cluster.storage if one.core is not None]
        stores = {core.server: core.store for core in cores}
        for config in view.live():
            for unit in config.units:
                store = stores.get(unit.server)
                for position in store.positions if store is not None else ():
                    entry = store.entry(store.find(position))
                    if not entry.streams or position in store.streams.uncommitted or gsn_at(position) < view.oldest:
                        continue
                    self.cluster.world.counts["committed to streams"] += 1
                    for chain in view.stream_chains(position, [stream for stream, _ in entry.streams]):
                        for replica in chain:
                            other = stores.get(replica.server)
                            if not replica.since and other is not None and other.find(position) is None:
                                raise Failure("COR-16: a committed entry is on its stream replicas", f"{entry}")
