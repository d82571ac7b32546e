"""The replica that a client takes for the leader."""

from __future__ import annotations

from collections.abc import Callable

from logdb.cores.context import ClientContext
from logdb.cores.effects import Address
from logdb.log.multipaxos.messages import NotLeader


class LeaderTracker:
    """`leader`: the replica that gets the next request, none that was silent since it last answered.

    While the others still take a silent replica for the leader, one request at a time tries it, and the rest wait at
    the others for a new one: a request to a replica that has ended waits for its next connection.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.replicas = context.config.ordering
        self.leader = context.rng.choice(self.replicas)
        self._silent: dict[Address, int] = {}
        self._tried: Address = ""

    def receiver(self) -> Address:
        """The replica that gets the request that is sent now."""
        tried, self._tried = self._tried, ""
        return tried or self.leader

    def where(self, first: Address = "") -> Callable[[int], Address]:
        """A function that returns the receiver of each attempt of one request: `first`, if given, then the leader. A
        leader that got an earlier attempt counts as silent."""
        asked: Address | None = None

        def where(attempt: int) -> Address:
            nonlocal asked
            if first and attempt == 0:
                return first
            if asked == self.leader or asked in self._silent:
                self.silent(asked)
            asked = self.receiver()
            return asked

        return where

    def silent(self, replica: Address) -> None:
        """`replica` has not answered, or its stream has ended: use the next one."""
        self._silent[replica] = self._context.now
        if replica == self.leader:
            self.leader = self._after(replica)

    def rests(self, replica: Address, rest_ns: int = 0) -> bool:
        """Whether `replica` was silent less than `rest_ns` ago: the timeout, if that is 0."""
        rest_ns = rest_ns or self._context.config.answer_timeout_ns
        return replica in self._silent and self._context.now < self._silent[replica] + rest_ns

    def answered(self, replica: Address) -> None:
        """`replica` is not silent."""
        self._silent.pop(replica, None)

    def refused(self, sender: Address, leader: Address, rest_ns: int = 0) -> int:
        """`sender` does not lead, and names `leader`, which is tried if it does not rest. Returns the time to wait
        before the next request, in ns."""
        self.answered(sender)
        if leader in self.replicas and leader != sender and not self.rests(leader, rest_ns):
            if leader in self._silent:
                self._tried = leader
                self.silent(leader)
            else:
                self.leader = leader
            return 0
        if self.leader == sender:
            self.leader = self._after(sender)
        return self._context.backoff(2)

    def not_leader(self, answer: NotLeader, sender: Address) -> int:
        """As `refused`, for a `NotLeader`."""
        return self.refused(sender, answer.leader)

    def found(self, leader: Address) -> None:
        """`leader` has answered as leader."""
        self.leader = leader
        self.answered(leader)

    def rested(self, replica: Address) -> Address:
        """The next replica after `replica` that does not rest; if all do, the next one."""
        others = self._others(replica)
        return next((other for other in others if not self.rests(other)), others[0])

    def _after(self, replica: Address) -> Address:
        """The next replica after `replica` that was not silent. If all were, they get another chance."""
        others = self._others(replica)
        if self._silent.keys() >= set(others):
            self._silent.clear()
        return next(other for other in others if other not in self._silent)

    def _others(self, replica: Address) -> list[Address]:
        """All replicas, in turn from the one after `replica`, which is the last."""
        place = self.replicas.index(replica) + 1
        return [*self.replicas[place:], *self.replicas[:place]]
