"""Which replica leads, as far as a client knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cores.context import ClientContext
from logdb.cores.effects import Address
from logdb.log.multipaxos.messages import NotLeader


class LeaderTracker:
    """`leader`: the replica to ask next. A replica that does not answer is passed over for the next one."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.replicas = context.config.ordering
        self.leader = context.rng.choice(self.replicas)
        self._silent: Address | None = None

    def where(self) -> Callable[[int], Address]:
        """For one question: the leader at each attempt; a leader that was asked before did not answer."""
        asked: Any = None

        def where(attempt: int) -> Address:
            nonlocal asked
            if asked is not None:
                self.silent(asked)
            asked = self.leader
            return self.leader

        return where

    def silent(self, replica: Address) -> None:
        """This replica has not answered."""
        if replica == self.leader:
            self._silent = replica
            self.leader = self.after(replica)

    def refused(self, sender: Address, leader: Address) -> int:
        """`sender` does not lead, and takes `leader` for the leader. Returns how long to wait before asking again."""
        known = leader in self.replicas and leader not in (sender, self._silent)
        if known:
            self.leader = leader
        elif self.leader == sender:
            self.leader = self.after(sender)
        return 0 if known else self._context.backoff(2)

    def not_leader(self, answer: NotLeader, sender: Address) -> int:
        """The same, of a question."""
        return self.refused(sender, answer.leader)

    def found(self, leader: Address) -> None:
        """This replica leads."""
        self.leader, self._silent = leader, None

    def after(self, replica: Address) -> Address:
        """The next replica."""
        return self.replicas[(self.replicas.index(replica) + 1) % len(self.replicas)]
