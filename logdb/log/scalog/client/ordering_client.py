"""Requests to the ordering layer: for views, the tail, and changes of the configuration."""

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
    """Sends requests to the presumed leader, and to the other replicas in turn when it is silent or not the leader.

    `on_view` is called when a newer view was adopted. `refreshed_at`: the time of the last view request (ns).
    """

    def __init__(
        self, context: ClientContext, requests: PendingRequests, directory: Directory, on_view: Callable[[], None]
    ) -> None:
        self._context, self._requests, self._directory, self._on_view = context, requests, directory, on_view
        self._replicas = context.config.ordering
        self._leader = context.rng.choice(self._replicas)
        self._silent: Address | None = None
        self._view_request = 0
        self._awaited: list[tuple[int, Callable[[], None]]] = []
        self.refreshed_at = 0

    # ---- views

    def refresh(self) -> None:
        """Request the view, unless a request is open."""
        if not self._requests.is_open(self._view_request):
            number = self._view_request = self._context.next_number()
            self.refreshed_at = self._context.now
            self._requests.send(number, ViewRequest(number), self._replicas_in_turn(), self._on_view_response)

    def _on_view_response(self, answer: ViewResponse, sender: Address) -> int | None:
        if self._directory.adopt(answer.view):
            self._on_view()
        reached = [then for version, then in self._awaited if version <= self._directory.version]
        self._awaited = [entry for entry in self._awaited if entry[0] > self._directory.version]
        for then in reached:
            then()
        return self._context.backoff(0) if self._awaited else None

    # ---- requests to the leader

    def tail(self, then: Callable[[TailResponse], None]) -> int:
        """Request the tail as it is now, or later, of a replica on this client's node if there is one. Returns the
        number of the request, to cancel it."""
        number, local = self._context.next_number(), self._context.config.local

        def on_reply(answer: TailResponse | NotLeader, sender: Address) -> int | None:
            if isinstance(answer, NotLeader):
                return self._not_leader(answer, sender)
            if sender != local:
                self._leader_is(sender)
            self._directory.advance_oldest(answer.oldest)
            then(answer)
            return None

        self._requests.send(number, TailRequest(number, bool(local)), self._replicas_in_turn(local), on_reply)
        return number

    def confirm(self, then: Callable[[TailResponse], None]) -> int:
        """Request the tail, and a view that is at least as new as it. Returns the number of the request."""

        def on_tail(tail: TailResponse) -> None:
            if self._directory.view is not None and tail.view <= self._directory.version:
                then(tail)
            else:
                self._awaited.append((tail.view, lambda: then(tail)))
                self.refresh()

        return self.tail(on_tail)

    def change(self, change: Reconfiguration, then: Callable[[ChangeResponse], None]) -> int:
        """Request a change, which is carried out once however often it is sent. Returns the number of the request."""
        number = self._context.rng.getrandbits(63)

        def on_reply(answer: ChangeResponse | NotLeader, sender: Address) -> int | None:
            if isinstance(answer, NotLeader):
                return self._not_leader(answer, sender)
            self._leader_is(sender)
            then(answer)
            return None

        self._requests.send(number, ChangeRequest(number, change), self._replicas_in_turn(), on_reply)
        return number

    def suspect(self, server: int) -> None:
        """Report a server that does not answer."""
        self._context.send(self._leader, Unreachable(server))

    # ---- the leader

    def _replicas_in_turn(self, first: Address = "") -> Callable[[int], Address | None]:
        """Chooses the replica for each attempt of one request: `first`, if given, then the presumed leader. If the
        attempt before went to it, it was silent, and the next replica is presumed to lead."""
        last: Any = None

        def choose(attempt: int) -> Address:
            nonlocal last
            if first and attempt == 0:
                return first
            if last == self._leader:
                self._silent = last
                self._leader = self._after(last)
            last = self._leader
            return self._leader

        return choose

    def _not_leader(self, answer: NotLeader, sender: Address) -> int:
        """Follow the replica's hint, unless it names a replica that was just silent. Returns the time to wait (ns)."""
        is_usable = answer.leader in self._replicas and answer.leader not in (sender, self._silent)
        if is_usable:
            self._leader = answer.leader
        elif self._leader == sender:
            self._leader = self._after(sender)
        return 0 if is_usable else self._context.backoff(2)

    def _leader_is(self, leader: Address) -> None:
        self._leader, self._silent = leader, None

    def _after(self, replica: Address) -> Address:
        return self._replicas[(self._replicas.index(replica) + 1) % len(self._replicas)]
