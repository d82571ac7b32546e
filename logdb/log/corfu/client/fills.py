"""Filling: the entry at a position is completed along its chain, or becomes junk, so that the position is decided."""

from __future__ import annotations

from collections.abc import Callable

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.messages import FillRequest, Reason, Rejected, Written
from logdb.log.corfu.projection import position_of

Decided = Callable[[Written | None], None]
"""Gets the decided entry of a position, or None if the position was trimmed."""


class Walk:
    """A fill under way. `link`: of the chain, that has not answered. `number`: of the request to it."""

    __slots__ = ("link", "number", "position", "then")

    def __init__(self, position: int) -> None:
        self.position = position
        self.link = self.number = 0
        self.then: list[Decided] = []


class FillClient:
    """All fills of a client. Those of one position are one."""

    def __init__(self, context: ClientContext, requests: PendingRequests, auxiliary: AuxiliaryClient) -> None:
        self._context, self._requests, self._auxiliary = context, requests, auxiliary
        self._walks: dict[int, Walk] = {}
        self._epoch = 0

    def fill(self, position: int, then: Decided) -> None:
        """Decide a position of the current epoch that another client has left open, or of an earlier one."""
        walk = self._walks.get(position)
        if walk is not None:
            walk.then.append(then)
        else:
            walk = self._walks[position] = Walk(position)
            walk.then.append(then)
            self._step(walk)

    def _step(self, walk: Walk) -> None:
        """Send the request to the next unit of the chain."""
        view = self._auxiliary.view
        config = view.owner(walk.position)
        if self._is_trimmed(walk) or config is None or not (chain := config.chain(walk.position)):
            self._end(walk, None)
            return
        unit = chain[walk.link]
        walk.number = number = self._context.next_number()

        def choose(attempt: int) -> Address:
            if attempt:
                self._auxiliary.refresh()
            return unit.address

        def on_reply(answer: Written | Rejected, sender: Address) -> int | None:
            if isinstance(answer, Rejected) and answer.why is not Reason.TRIMMED:
                self._auxiliary.rejected(answer)
                return self._context.backoff(3)
            self._requests.cancel(number)
            if isinstance(answer, Rejected):
                self._auxiliary.trimmed(answer.oldest)
                self._end(walk, None)
                return None
            walk.link += 1
            if walk.link == len(chain):
                self._end(walk, answer)
            else:
                self._step(walk)
            return None

        self._requests.send(number, FillRequest(number, view.epoch, walk.position), choose, on_reply)

    def _is_trimmed(self, walk: Walk) -> bool:
        return walk.position < position_of(self._auxiliary.oldest)

    def _end(self, walk: Walk, entry: Written | None) -> None:
        del self._walks[walk.position]
        for then in walk.then:
            then(entry)

    def on_view(self) -> None:
        """End what was trimmed meanwhile: the units of a shard that is removed do not answer. Begin again with the
        chains of a new epoch. Positions that belong to the new epoch are left to it."""
        view = self._auxiliary.view
        is_new, self._epoch = view.epoch != self._epoch, view.epoch
        for walk in list(self._walks.values()):
            if is_new or self._is_trimmed(walk):
                self._requests.cancel(walk.number)
                walk.link = 0
                if walk.position < view.start or self._is_trimmed(walk):
                    self._step(walk)
                else:
                    del self._walks[walk.position]
