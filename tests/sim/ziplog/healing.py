"""Brings a cluster of Ziplog back to normal after its faults, and reads the records of its servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cores.effects import Received
from logdb.log import requests as calls
from logdb.log.contract import LogRecord
from logdb.log.ziplog.messages import Pull, Pulled, ReadFailed, ShardConfig
from logdb.log.ziplog.records import gsn_of, header, unwrap
from tests.sim.checks import Copy
from tests.sim.world import Failure
from tests.sim.ziplog.cluster import Cluster

Wait = Callable[[int, Callable[[], bool], str, list[Any]], None]
"""Let time pass until a condition holds. Raises Failure at the limit, with the condition's name and the suspects."""
ADDRESS = "prober"
BYTES = 1 << 16


class Prober:
    """Pulls all records of one server after another, in the engine's own messages, as a process of the network."""

    kind = ADDRESS

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.answer: Any = None
        self._request = 0
        cluster.network.processes[ADDRESS] = self  # type: ignore[assignment]

    def deliver(self, event: Received) -> None:
        """Receive a response."""
        if event.message.request == self._request:
            self.answer = event.message

    def pull(self, config: ShardConfig, server: str, first: int, tail: int, limit: int) -> list[LogRecord]:
        """All stored records of a server from `first` to `tail`."""
        world, unit = self.cluster.world, self.cluster.shape.heartbeat_ns
        found: list[LogRecord] = []
        end = min(tail + 1, config.bound) if config.is_drained else tail + 1
        while first < end:
            self._request += 1
            self.answer = None
            while not isinstance(self.answer, Pulled):
                if world.now > limit:
                    raise Failure("liveness: servers answer", f"{server} does not send {first}: {self.answer}")
                was_refused = isinstance(self.answer, ReadFailed)
                self.answer = None
                for member in config.members if was_refused else ():
                    self.cluster.network.send(
                        ADDRESS, member.address, Pull(0, config.shard, first, None, BYTES, end - 1)
                    )
                self.cluster.network.send(
                    ADDRESS, server, Pull(self._request, config.shard, first, None, BYTES, end - 1)
                )
                world.run(world.now + 2 * unit, lambda: isinstance(self.answer, Pulled))
            found += [one for one in self.answer.records if first <= gsn_of(one.payload) < min(self.answer.end, end)]
            first = self.answer.end
        return found


class Healing:
    """The healing of one cluster, after its faults have ended."""

    def __init__(self, cluster: Cluster, wait: Wait) -> None:
        self.cluster, self._wait = cluster, wait

    def configured(self) -> list[tuple[Any, ...]]:
        """The parts of the configuration that reconfigurations change."""
        return [(one.shard, one.view, one.is_draining, one.members) for one in self.cluster.state.shards.values()]

    def make_writable(self, limit: int) -> None:
        """Add servers for those that are lost, and a shard if the last one was finalized."""
        cluster = self.cluster
        outside = [replica for replica in cluster.ordering if replica.address not in cluster.retired]
        self._wait(limit, lambda: all(map(cluster.has_joined, outside)), "replicas join again", outside)
        calls_open = cluster.operator.process.calls
        self._wait(limit, lambda: not calls_open, "the operator is served", [calls_open])
        for _ in range(cluster.shape.members + 2):
            cluster.add_storage().start()
        while True:
            view = cluster.view(limit)
            if any(not config.is_draining for config in view.shards):
                break
            cluster.operator.do(calls.AddShard(()), limit)
            cluster.add_storage().start()  # others have taken the spare servers, or these are lost
            cluster.world.run(cluster.world.now + cluster.shape.heartbeat_ns)
        self.wait_for_copies(limit)

    def wait_for_copies(self, limit: int) -> None:
        """Wait until every shard is in the set, with all members synced, or drained."""
        cluster, world = self.cluster, self.cluster.world
        while waiting := [one for one in cluster.view(limit).shards if not (one.is_drained or one.is_in_set)]:
            if not cluster.view(limit).spares:  # one has to take the place of a lost member
                cluster.add_storage().start()
            if world.now > limit - 20 * cluster.shape.heartbeat_ns:
                raise Failure("liveness: shards join the set, or are drained", f"{waiting}")
            world.run(world.now + 4 * cluster.shape.heartbeat_ns)

    def copies(self, tail: int, limit: int) -> tuple[int, list[Copy]]:
        """The oldest record, and the records of every member from there to `tail`."""
        cluster = self.cluster
        view = cluster.view(limit)
        added, requested = view.next_shard - 1, cluster.operator.requested[calls.AddShard]
        if added > requested:
            raise Failure("a change is carried out once", f"{added} shards were added, {requested} were requested")
        prober, copies = Prober(cluster), []
        by_address = {one.address: one for one in cluster.storage}
        for config in view.shards:
            for member in config.members:
                known = cluster.server_of(by_address[member.address])
                if known is None or known.server != member.server:
                    continue  # a drained shard does not replace a lost member
                sent = prober.pull(config, member.address, view.oldest, tail, limit)
                stored = [(one.tag, one.payload) for one in sent]
                records = [unwrap(one, view.origin) for one in stored]
                authors = {gsn: (client, sequence) for gsn, client, sequence in map(header, stored)}
                owned = [(record.gsn, 1) for record in records]
                copies.append(Copy(member.address, config.shard, view.oldest, owned, records, dict(authors)))
        return view.oldest, copies
