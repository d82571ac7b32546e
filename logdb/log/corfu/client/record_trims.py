"""Trims of single records: all units of a shard delete them (COR-14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from logdb.cores.context import ClientContext, PendingRequests, outcome_unknown
from logdb.cores.effects import Address
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.client.fills import FillClient
from logdb.log.corfu.client.tails import TailClient
from logdb.log.corfu.messages import Deleted, DeleteRequest, Reason, Rejected, Written
from logdb.log.corfu.projection import position_of

WINDOW: Final = 64
"""Maximum number of entries of one call whose records are being deleted."""


class Deletion:
    """The deletion of records of one entry. `requests`: open ones, to units that have not answered. `attempt`: grows
    with each epoch."""

    __slots__ = ("attempt", "gsns", "position", "requests", "trim")

    def __init__(self, trim: RecordTrim, position: int, gsns: tuple[int, ...]) -> None:
        self.trim, self.position, self.gsns = trim, position, gsns
        self.requests: set[int] = set()
        self.attempt = 0


class RecordTrim:
    """A call. `waiting`: deletions that have not begun; `open`: number of those under way; `count`: of records."""

    __slots__ = ("call", "count", "is_beginning", "open", "waiting")

    def __init__(self, call: int, gsns: Iterable[int]) -> None:
        by_position: dict[int, list[int]] = {}
        for gsn in sorted(set(gsns)):
            by_position.setdefault(position_of(gsn), []).append(gsn)
        self.call, self.open, self.is_beginning = call, 0, False
        self.count = sum(map(len, by_position.values()))
        self.waiting = deque([Deletion(self, position, tuple(found)) for position, found in by_position.items()])


class RecordTrimClient:
    """All trims of single records of a client."""

    def __init__(
        self,
        context: ClientContext,
        requests: PendingRequests,
        auxiliary: AuxiliaryClient,
        tails: TailClient,
        fills: FillClient,
    ) -> None:
        self._context, self._requests, self._auxiliary = context, requests, auxiliary
        self._tails, self._fills = tails, fills
        self._open: dict[Deletion, None] = {}
        self._epoch = 0

    def trim(self, call: int, gsns: tuple[int, ...], deadline: int | None) -> None:
        """Delete these records. Answers with their number; ValueError for one behind the tail."""
        context, trim = self._context, RecordTrim(call, gsns)
        context.open(call, deadline, lambda: self._expired(trim))

        def found(last: int) -> None:
            wrong = [gsn for gsn in gsns if not 0 < gsn <= last]
            if wrong:
                context.answer(call, ValueError(f"cannot trim record {wrong[0]}: the newest is {last}"))
            elif context.is_open(call):
                self._continue(trim)

        self._tails.tail(found)

    def _expired(self, trim: RecordTrim) -> None:
        for one in [one for one in self._open if one.trim is trim]:
            self._cancel(one)
            del self._open[one]
        self._context.answer(trim.call, outcome_unknown("not all units answered before the deadline"))

    def _continue(self, trim: RecordTrim) -> None:
        """Begin deletions. One may end at once, which calls this again: the outer call goes on then, so that the depth
        of the stack does not depend on their number."""
        if trim.is_beginning:
            return
        trim.is_beginning = True
        while trim.waiting and trim.open < WINDOW:
            one = trim.waiting.popleft()
            self._open[one] = None
            trim.open += 1
            self._begin(one)
        trim.is_beginning = False
        if not trim.open:
            self._context.answer(trim.call, trim.count)

    def _begin(self, one: Deletion) -> None:
        """Decide the position first: a unit that could still get the entry would keep its records."""
        one.attempt += 1
        attempt = one.attempt

        def decided(entry: Written | None) -> None:
            if one not in self._open or one.attempt != attempt:
                return
            if entry is None or not entry.count:
                self._end(one)  # the position was trimmed, or has junk
            else:
                self._delete(one, [stream for stream, _ in entry.streams])

        self._fills.fill(one.position, decided)

    def _delete(self, one: Deletion, streams: list[int]) -> None:
        """Send the request to all units of the shard, and to the replicas of the streams. Units that still copy the
        entry answer when they have it."""
        view = self._auxiliary.view
        config = view.owner(one.position)
        if config is None:
            self._end(one)
            return
        held = [view.shard(view.stream_shard(stream, one.position)) for stream in streams]
        shards = {found.shard: found for found in (config, *held) if found is not None}
        for unit in [unit for shard in shards.values() for unit in shard.units]:
            number = self._context.next_number()
            one.requests.add(number)
            request = DeleteRequest(number, view.epoch, one.gsns)
            self._requests.send(number, request, self._to(unit.address), self._answered(one, number))

    def _to(self, address: Address) -> Callable[[int], Address]:
        def choose(attempt: int) -> Address:
            if attempt:
                self._auxiliary.refresh()
            return address

        return choose

    def _answered(self, one: Deletion, number: int) -> Callable[[Deleted | Rejected, Address], int | None]:
        def on_reply(answer: Deleted | Rejected, sender: Address) -> int | None:
            if isinstance(answer, Rejected) and answer.why is not Reason.TRIMMED:
                self._auxiliary.rejected(answer)
                return self._context.backoff(3)
            one.requests.discard(number)
            if not one.requests:
                self._end(one)
            return None

        return on_reply

    def _cancel(self, one: Deletion) -> None:
        for number in one.requests:
            self._requests.cancel(number)
        one.requests.clear()

    def _end(self, one: Deletion) -> None:
        self._cancel(one)
        del self._open[one]
        one.trim.open -= 1
        self._continue(one.trim)

    def on_view(self) -> None:
        """Begin again in a new epoch: all units of one epoch must have deleted the records. Units of a shard that was
        trimmed away do not answer."""
        view = self._auxiliary.view
        is_new, self._epoch = view.epoch != self._epoch, view.epoch
        for one in list(self._open):
            if one.position < position_of(self._auxiliary.oldest):
                self._end(one)
            elif is_new:
                self._cancel(one)
                self._begin(one)
