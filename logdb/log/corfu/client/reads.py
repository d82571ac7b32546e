"""Reads of single records, from the last unit of a chain or, if the entry is known to be complete, from any of them."""

from __future__ import annotations

from typing import Final

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard, Trimmed
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.client.fills import FillClient
from logdb.log.corfu.client.tails import TailClient
from logdb.log.corfu.messages import ReadRequest, ReadResponse, Reason, Rejected
from logdb.log.corfu.projection import position_of

LOOKS_AFTER: Final = 4
"""The tail is requested when a record has not come after the answer timeout divided by this."""
REMEMBERED_COMPLETE: Final = 10_000
"""Number of positions that are known to be complete."""


class CompletePositions:
    """Positions whose entries were complete in an epoch that this client knows. All units that the projection of that
    epoch, or of a later one, names for them have the entries (COR-11)."""

    def __init__(self) -> None:
        self._known: dict[int, None] = {}

    def add(self, position: int) -> None:
        """The entry at a position was received from the last unit of its chain, or all units have acknowledged it."""
        self._known[position] = None
        if len(self._known) > REMEMBERED_COMPLETE:
            del self._known[next(iter(self._known))]

    def __contains__(self, position: int) -> bool:
        return position in self._known


class Read:
    """A read under way. `number`: of the open request. `turn`: chooses the unit if there is a choice. `damaged`: units
    that cannot read the record, and why."""

    __slots__ = ("call", "damaged", "gsn", "number", "position", "shard", "timer", "turn")

    def __init__(self, call: int, gsn: int, shard: int) -> None:
        self.call, self.gsn, self.shard = call, gsn, shard
        self.position = position_of(gsn)
        self.number = self.turn = 0
        self.damaged: dict[Address, str] = {}
        self.timer: Timer


class ReadClient:
    """All reads of a client."""

    def __init__(
        self,
        context: ClientContext,
        requests: PendingRequests,
        auxiliary: AuxiliaryClient,
        tails: TailClient,
        fills: FillClient,
        complete: CompletePositions,
    ) -> None:
        self._context, self._requests, self._auxiliary = context, requests, auxiliary
        self._tails, self._fills, self._complete = tails, fills, complete
        self._open: dict[int, Read] = {}
        self._epoch = 0

    def read(self, call: int, request: calls.Read) -> None:
        """Read a record."""
        context, gsn = self._context, request.gsn

        def expired() -> None:
            self._end(read, TimeoutError(f"record {gsn} did not come before the deadline"))

        context.open(call, request.deadline, expired)
        read = self._open[call] = Read(call, gsn, request.shard)
        read.timer = Timer(lambda: self._tails.tail(lambda tail: self._reached(read, tail)))
        if gsn < 1 or request.shard < 1:
            self._end(read, NotOfThisShard(gsn, request.shard))
        elif not self._auxiliary.view.version:
            self._auxiliary.refresh()
        else:
            self._begin(read)

    def on_view(self) -> None:
        """Begin again in a new epoch: units reject requests of earlier ones."""
        if self._auxiliary.view.epoch != self._epoch:
            self._epoch = self._auxiliary.view.epoch
            for read in list(self._open.values()):
                self._begin(read)

    def _end(self, read: Read, result: object) -> None:
        del self._open[read.call]
        self._requests.cancel(read.number)
        self._context.discard_timer(read.timer)
        self._context.answer(read.call, result)

    def _begin(self, read: Read) -> None:
        """Request the record from a unit of its chain. While another shard owns the position, only wait: that is final
        once the log has reached the position."""
        self._requests.cancel(read.number)
        view, position = self._auxiliary.view, read.position
        if read.gsn < self._auxiliary.oldest:
            self._end(read, Trimmed(read.gsn, self._auxiliary.oldest))
            return
        config = view.owner(position)
        is_other = config is None or config.shard != read.shard
        if is_other and 0 < position < view.start:
            self._end(read, NotOfThisShard(read.gsn, read.shard))
            return
        wait = 0 if is_other else self._context.config.answer_timeout_ns // LOOKS_AFTER
        self._context.set_timer(read.timer, self._context.now + wait)
        if config is None or is_other:
            return
        read.number = number = self._context.next_number()
        chain = config.chain(position)

        def choose(attempt: int) -> Address | None:
            if attempt:
                read.turn += 1
                self._auxiliary.refresh()
            if position in self._complete or read.damaged:
                return chain[(read.call + read.turn) % len(chain)].address
            return chain[-1].address

        def answered(answer: ReadResponse | Rejected, sender: Address) -> int | None:
            return self._answered(read, answer, sender)

        self._requests.send(number, ReadRequest(number, view.epoch, read.gsn), choose, answered)

    def _answered(self, read: Read, answer: ReadResponse | Rejected, sender: Address) -> int | None:
        if isinstance(answer, ReadResponse):
            ((tag, payload),) = answer.records
            self._complete.add(read.position)
            self._end(read, LogRecord(read.gsn, answer.time, tag, payload))
            return None
        self._auxiliary.trimmed(answer.oldest)
        match answer.why:
            case Reason.TRIMMED:
                self._end(read, Trimmed(read.gsn, answer.oldest))
            case Reason.ABSENT:
                self._end(read, NotOfThisShard(read.gsn, read.shard))
            case Reason.UNREADABLE:
                return self._unreadable(read, answer, sender)
            case _:
                self._auxiliary.rejected(answer)
                return self._context.backoff(3)
        return None

    def _unreadable(self, read: Read, answer: Rejected, sender: Address) -> int | None:
        """The entry is complete, since its unit has it, but damaged there: another unit of the chain has it too."""
        read.damaged[sender] = answer.explanation
        read.turn += 1
        config = self._auxiliary.view.owner(read.position)
        if config is not None and read.damaged.keys() >= {unit.address for unit in config.chain(read.position)}:
            self._end(read, Corruption("the log", None, "; ".join(sorted(set(read.damaged.values())))))
            return None
        return self._context.backoff(0)

    def _reached(self, read: Read, tail: int) -> None:
        """The record has not come for a while, and the log has reached `tail`: it may be on another shard, or its
        position may be a hole."""
        if read.call not in self._open:
            return
        config = self._auxiliary.view.owner(read.position)
        if read.gsn < self._auxiliary.oldest:
            self._end(read, Trimmed(read.gsn, self._auxiliary.oldest))
        elif tail >= read.gsn and (config is None or config.shard != read.shard):
            self._end(read, NotOfThisShard(read.gsn, read.shard))
        else:
            self._context.set_timer(read.timer, self._context.now + self._context.config.answer_timeout_ns)
            if position_of(tail) >= read.position:
                self._fills.fill(read.position, lambda entry: None)
