"""Requests to the auxiliary: for the projection, and for changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address
from logdb.log.corfu.messages import ChangeRequest, ChangeResponse, NotLeader, Rejected, ViewRequest, ViewResponse
from logdb.log.corfu.projection import NO_VIEW, View


class AuxiliaryClient:
    """Sends requests to the presumed leader, and to the other replicas in turn when it is silent or not the leader.

    `view`: the newest known projection. `oldest`: the oldest readable GSN, as far as known. `on_view` is called after
    each response with a projection.
    """

    def __init__(self, context: ClientContext, requests: PendingRequests, on_view: Callable[[], None]) -> None:
        self._context, self._requests, self._on_view = context, requests, on_view
        self._replicas = context.config.ordering
        self._leader = context.rng.choice(self._replicas)
        self._silent: Address | None = None
        self._refresh = 0
        self.view: View = NO_VIEW
        self.oldest = 1

    def trimmed(self, oldest: int) -> None:
        """This is the oldest readable GSN, or was."""
        self.oldest = max(self.oldest, oldest)

    def rejected(self, answer: Rejected) -> None:
        """A unit has rejected a request: its epoch may be over."""
        self.trimmed(answer.oldest)
        self.refresh()

    def refresh(self) -> None:
        """Request the projection, unless a request is open."""
        if not self._requests.is_open(self._refresh):
            self._refresh = self.request_view(lambda view: None)

    def request_view(self, then: Callable[[View], None]) -> int:
        """Request the projection as it is now, or later. Returns the number of the request, to cancel it."""

        def answered(answer: ViewResponse) -> None:
            if answer.view.version > self.view.version:
                self.view = answer.view
            self.trimmed(answer.view.oldest)
            then(answer.view)
            self._on_view()

        number = self._context.next_number()
        self._send(number, ViewRequest(number), answered)
        return number

    def change(self, kind: str, numbers: tuple[int, ...], then: Callable[[ChangeResponse], None]) -> int:
        """Request a change, which is carried out once however often it is sent. Returns the number of the request."""
        number = self._context.rng.getrandbits(62)
        self._send(number, ChangeRequest(number, kind, numbers), then)
        return number

    def _send(self, number: int, message: Any, then: Callable[[Any], None]) -> None:
        last: Any = None

        def choose(attempt: int) -> Address:
            nonlocal last
            if last == self._leader:
                self._silent = last
                self._leader = self._after(last)
            last = self._leader
            return self._leader

        def on_reply(answer: Any, sender: Address) -> int | None:
            nonlocal last
            if isinstance(answer, NotLeader):
                last = None
                return self._not_leader(answer, sender)
            self._leader, self._silent = sender, None
            self._requests.cancel(number)
            then(answer)
            return None

        self._requests.send(number, message, choose, on_reply)

    def _not_leader(self, answer: NotLeader, sender: Address) -> int:
        """Follow the hint, unless it names a replica that was just silent. Returns the time to wait (ns)."""
        is_usable = answer.leader in self._replicas and answer.leader not in (sender, self._silent)
        if is_usable:
            self._leader = answer.leader
        elif self._leader == sender:
            self._leader = self._after(sender)
        return 0 if is_usable else self._context.backoff(2)

    def _after(self, replica: Address) -> Address:
        return self._replicas[(self._replicas.index(replica) + 1) % len(self._replicas)]
