"""Filling: the entry at a position is completed along its chain, or becomes junk, so that the position is decided. An
entry of streams is completed at its stream replicas, too, and is committed then (COR-16).
"""

from __future__ import annotations

from collections.abc import Callable

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Address
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.messages import CommitRequest, Committed, FillRequest, Reason, Rejected, Written
from logdb.log.corfu.projection import Unit, position_of

Decided = Callable[[Written | None], None]
"""Gets the decided entry of a position, or None if the position was trimmed."""


class Walk:
    """A fill under way. `link`: of the units, that has not answered: the log replicas, the stream replicas, and the log
    replicas again, for their commit bits. `number`: of the request to it. `entry`: as far as it is known.
    `is_waiting`: for a projection in which all shards of its streams have a replica."""

    __slots__ = ("entry", "is_waiting", "link", "number", "position", "then")

    def __init__(self, position: int) -> None:
        self.position = position
        self.link = self.number = 0
        self.entry: Written | None = None
        self.is_waiting = False
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

    def _units(self, walk: Walk) -> tuple[tuple[Unit, ...], tuple[Unit, ...]] | None:
        """The units that get the entry, and those that get its commit bit; None if some are missing in this epoch."""
        view = self._auxiliary.view
        config = view.owner(walk.position)
        if config is None:
            return (), ()
        units = config.chain(walk.position)
        if walk.entry is None or not walk.entry.streams:
            return units, ()
        chains = view.stream_chains(walk.position, [stream for stream, _ in walk.entry.streams])
        return ((*units, *(unit for chain in chains for unit in chain)), units) if all(chains) else None

    def _step(self, walk: Walk) -> None:
        """Send the request to the next unit."""
        found = self._units(walk)
        if self._is_trimmed(walk) or found == ((), ()):
            self._end(walk, None)
            return
        epoch = self._auxiliary.view.epoch
        walk.number = number = self._context.next_number()
        request: FillRequest | CommitRequest = FillRequest(number, epoch, walk.position)
        to: Address | None = None
        walk.is_waiting = found is None
        if found is not None:
            fills, commits = found
            if walk.link == len(fills) + len(commits):
                self._end(walk, walk.entry)
                return
            if walk.link >= len(fills):
                request = CommitRequest(number, epoch, walk.position)
            to = (*fills, *commits)[walk.link].address

        def choose(attempt: int) -> Address | None:
            if attempt or to is None:
                self._auxiliary.refresh()
            return to

        def on_reply(answer: Written | Committed | Rejected, sender: Address) -> int | None:
            if isinstance(answer, Rejected) and answer.why is not Reason.TRIMMED:
                self._auxiliary.rejected(answer)
                return self._context.backoff(3)
            self._requests.cancel(number)
            if isinstance(answer, Rejected):
                self._auxiliary.trimmed(answer.oldest)
                self._end(walk, None)
                return None
            if isinstance(answer, Written):
                walk.entry = answer
            walk.link += 1
            self._step(walk)
            return None

        self._requests.send(number, request, choose, on_reply)

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
                walk.link, walk.entry = 0, None
                if walk.position < view.start or self._is_trimmed(walk):
                    self._step(walk)
                else:
                    del self._walks[walk.position]
            elif walk.is_waiting:
                self._requests.cancel(walk.number)
                self._step(walk)
