"""The replica that a client takes for the leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cores.context import ClientContext
from logdb.cores.effects import Address
from logdb.log.multipaxos.messages import NotLeader


class LeaderTracker:
    """`leader`: the replica that gets the next request. After a replica without an answer the next one is used."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.replicas = context.config.ordering
        self.leader = context.rng.choice(self.replicas)
        self._silent: Address | None = None

    def where(self, first: Address = "") -> Callable[[int], Address]:
        """A function that returns the receiver of each attempt of one request: `first`, if given, then the leader. A
        leader that got an earlier attempt counts as silent."""
        asked: Any = None

        def where(attempt: int) -> Address:
            nonlocal asked
            if first and attempt == 0:
                return first
            if asked is not None:
                self.silent(asked)
            asked = self.leader
            return self.leader

        return where

    def silent(self, replica: Address) -> None:
        """`replica` has not answered: use the next one."""
        if replica == self.leader:
            self._silent = replica
            self.leader = self.after(replica)

    def refused(self, sender: Address, leader: Address) -> int:
        """`sender` does not lead, and names `leader`. Returns the time to wait before the next request, in ns."""
        known = leader in self.replicas and leader not in (sender, self._silent)
        if known:
            self.leader = leader
        elif self.leader == sender:
            self.leader = self.after(sender)
        return 0 if known else self._context.backoff(2)

    def not_leader(self, answer: NotLeader, sender: Address) -> int:
        """As `refused`, for a `NotLeader`."""
        return self.refused(sender, answer.leader)

    def found(self, leader: Address) -> None:
        """`leader` has answered as leader."""
        self.leader, self._silent = leader, None

    def after(self, replica: Address) -> Address:
        """The replica after `replica`."""
        return self.replicas[(self.replicas.index(replica) + 1) % len(self.replicas)]
