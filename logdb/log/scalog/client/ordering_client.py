"""The ordering layer, as a client asks it: for views, for the tail, for changes of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.messages import (
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    Reconfiguration,
    TailRequest,
    TailResponse,
    Unreachable,
    ViewRequest,
    ViewResponse,
)


class OrderingClient:
    """Asks the replica that it takes for the leader, and the others in turn when that is silent or says it is not.

    `adopted` is called when a newer view has come.
    """

    def __init__(
        self, context: ClientContext, requests: PendingRequests, directory: Directory, adopted: Callable[[], None]
    ) -> None:
        self._context, self._requests, self._directory, self._adopted = context, requests, directory, adopted
        self._replicas = context.config.ordering
        self._leader = context.rng.choice(self._replicas)
        self._silent: Address | None = None
        self._looking = 0
        self._awaited: list[tuple[int, Callable[[], None]]] = []
        self.looked_at = 0

    # ---- views

    def refresh(self) -> None:
        """Ask for the view, unless that is being done."""
        if not self._requests.is_open(self._looking):
            self._looking = self._context.next_number()
            self.looked_at = self._context.now
            self._requests.send(self._looking, ViewRequest(self._looking), self._whom(), self._viewed)

    def _viewed(self, answer: ViewResponse, sender: Address) -> int | None:
        if self._directory.adopt(answer.view):
            self._adopted()
        reached = [then for version, then in self._awaited if version <= self._directory.version]
        self._awaited = [entry for entry in self._awaited if entry[0] > self._directory.version]
        for then in reached:
            then()
        return self._context.backoff(0) if self._awaited else None

    # ---- what the leader is asked

    def tail(self, then: Callable[[TailResponse], None]) -> int:
        """Learn the tail as it is now, or later. Returns the number of the question, by which it can be dropped."""
        number = self._context.next_number()

        def answered(answer: TailResponse | NotLeader, sender: Address) -> int | None:
            if isinstance(answer, NotLeader):
                return self._not_leader(answer, sender)
            self._found(sender)
            self._directory.trimmed(answer.oldest)
            then(answer)
            return None

        self._requests.send(number, TailRequest(number), self._whom(), answered)
        return number

    def confirm(self, then: Callable[[TailResponse], None]) -> int:
        """The same, and have a view with everything that was decided before."""

        def told(tail: TailResponse) -> None:
            if self._directory.view is not None and tail.view <= self._directory.version:
                then(tail)
            else:
                self._awaited.append((tail.view, lambda: then(tail)))
                self.refresh()

        return self.tail(told)

    def change(self, change: Reconfiguration, then: Callable[[ChangeResponse], None]) -> int:
        """Have a change carried out, once however often it is sent. Returns the number of the question."""
        number = self._context.rng.getrandbits(63)

        def answered(answer: ChangeResponse | NotLeader, sender: Address) -> int | None:
            if isinstance(answer, NotLeader):
                return self._not_leader(answer, sender)
            self._found(sender)
            then(answer)
            return None

        self._requests.send(number, ChangeRequest(number, change), self._whom(), answered)
        return number

    def suspect(self, server: int) -> None:
        """Tell that a server does not answer."""
        self._context.send(self._leader, Unreachable(server))

    # ---- who leads

    def _whom(self) -> Callable[[int], Address | None]:
        """Whom to ask, for one question: the leader; when it was asked before and is asked again, it was silent."""
        asked: Any = None

        def whom(attempt: int) -> Address:
            nonlocal asked
            if asked == self._leader:
                self._silent = asked
                self._leader = self._after(asked)
            asked = self._leader
            return self._leader

        return whom

    def _not_leader(self, answer: NotLeader, sender: Address) -> int:
        """Go where the replica points; not to one that was silent a moment ago."""
        known = answer.leader in self._replicas and answer.leader not in (sender, self._silent)
        if known:
            self._leader = answer.leader
        elif self._leader == sender:
            self._leader = self._after(sender)
        return 0 if known else self._context.backoff(2)

    def _found(self, leader: Address) -> None:
        self._leader, self._silent = leader, None

    def _after(self, replica: Address) -> Address:
        return self._replicas[(self._replicas.index(replica) + 1) % len(self._replicas)]
