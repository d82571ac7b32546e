"""Reads all records from every member of every shard, and the view from every ordering replica, after healing.

It sends the servers' own messages, so that no client code can hide a difference.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from logdb.cores.effects import Received
from logdb.log.scalog import messages
from logdb.log.scalog.records import HEADER_BYTES
from tests.sim.checks import Copy
from tests.sim.scalog.cluster import Cluster
from tests.sim.world import Failure

ADDRESS = "prober"
BYTES = 1 << 16


class Prober:
    """A process of the network. It repeats each request until it is answered."""

    kind = ADDRESS

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.answers: dict[int, Any] = {}
        self._request = 0
        cluster.network.processes[ADDRESS] = self  # type: ignore[assignment]

    def deliver(self, event: Received) -> None:
        """Record an answer."""
        self.answers[event.message.request] = event.message

    def ask(self, questions: list[tuple[str, Any]], limit: int) -> list[Any]:
        """Send all requests, numbered, and wait for all answers."""
        world, network = self.cluster.world, self.cluster.network
        numbered = []
        for to, question in questions:
            self._request += 1
            numbered.append((to, question._replace(request=self._request)))
        while True:
            lacking = [(to, question) for to, question in numbered if question.request not in self.answers]
            if not lacking:
                return [self.answers.pop(question.request) for _, question in numbered]
            if world.now > limit:
                to, question = lacking[0]
                raise Failure("liveness: servers answer", f"{to} does not answer {question}")
            for to, question in lacking:
                network.send(ADDRESS, to, question)
            world.run(world.now + 4 * self.cluster.shape.heartbeat_ns, lambda: self._has(numbered))

    def _has(self, numbered: list[tuple[str, Any]]) -> bool:
        return all(question.request in self.answers for _, question in numbered)

    def views(self, limit: int) -> messages.View:
        """The view on which all ordering replicas agree."""
        replicas = [process.address for process in self.cluster.ordering if process.core is not None]
        while True:
            answers = self.ask([(address, messages.ViewRequest(0)) for address in replicas], limit)
            views = [answer.view for answer in answers]
            for one, other in pairwise(views):
                if one.version == other.version and one != other:
                    raise Failure("replicas agree on a version of the view", f"{one}\n{other}")
            if all(view.version == views[0].version for view in views):
                return views[0]
            if self.cluster.world.now > limit:
                raise Failure("liveness: replicas catch up", f"versions {[view.version for view in views]}")
            self.cluster.world.run(self.cluster.world.now + self.cluster.shape.heartbeat_ns)

    def copies(self, view: messages.View, oldest: int, tail: int, limit: int) -> list[Copy]:
        """The records of every member from `oldest` to `tail`, except members that join, or are replaced meanwhile."""
        copies = [
            (member.address, Copy(member.address, config.shard, oldest, [], [], {}))
            for config in view.shards
            for member in config.members
            if member.server not in config.joining
        ]
        open_ = [(address, copy, oldest) for address, copy in copies]
        while open_:
            questions = [(address, messages.Pull(0, copy.shard, gsn, None, BYTES)) for address, copy, gsn in open_]
            try:
                answers = self.ask(questions, limit)
            except Failure:
                replaced = self._replaced_since(view)
                if replaced.isdisjoint(address for address, *_ in open_):
                    raise
                open_ = [one for one in open_ if one[0] not in replaced]
                copies = [one for one in copies if one[0] not in replaced]
                continue
            again = []
            wait = False
            for (address, copy, gsn), answer in zip(open_, answers, strict=True):
                if isinstance(answer, messages.Pulled):
                    if answer.first != gsn or answer.end < gsn:
                        raise Failure("a pull is answered from its GSN on", f"{address}: {gsn}, {answer}")
                    copy.owned += answer.owned
                    for record in answer.records:
                        copy.authors[record.gsn] = record.payload[:HEADER_BYTES]
                        copy.records.append(record._replace(payload=record.payload[HEADER_BYTES:]))
                    if answer.end <= tail and not answer.final:
                        again.append((address, copy, answer.end))
                elif answer.why is messages.ReadError.TRIMMED and answer.oldest > gsn:
                    raise Failure("what is not trimmed can be read", f"{address}: {gsn}, {answer}")
                elif answer.why is messages.ReadError.HERE and (
                    self.cluster.network.processes[address].wipes or address in self._replaced_since(view)
                ):
                    continue  # it has lost its disk and registered as another server, or has become a spare
                else:
                    wait = True
                    again.append((address, copy, gsn))
            open_ = again
            if wait:
                world = self.cluster.world
                if world.now > limit:
                    raise Failure("liveness: members catch up", f"{open_[0][0]} lacks {open_[0][2]}: {answers}")
                world.run(world.now + 2 * self.cluster.shape.heartbeat_ns)
        return [copy for _, copy in copies]

    def _replaced_since(self, view: messages.View) -> set[str]:
        """The addresses of members that are none any more."""
        newest = self.views(self.cluster.world.now + 40 * self.cluster.shape.heartbeat_ns)
        before, now = [{one.address for config in each.shards for one in config.members} for each in (view, newest)]
        return before - now
