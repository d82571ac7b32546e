"""Reads of a member: answered once the log has got there, parked until then (§3.3.2).

A member knows everything about GSNs up to `MemberState.reached()`; below that it says where a record is or that it is
not of this shard. Nothing is concluded from silence, so what lies beyond is parked, and every parked read is looked at
again when the log has moved, was trimmed, or the shard is complete (SCA-10).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from logdb.cores.effects import Address, JournalRange, Send, SendRanges, SendStored, Unreadable
from logdb.log.scalog.messages import (
    Pull,
    Pulled,
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    Replicate,
    TimeRequest,
    TimeResponse,
)
from logdb.log.scalog.storage.member_state import MemberState

MAX_PARKED = 1000
"""So many questions of one sender wait at once."""
PULL_BYTES = 4 << 20
"""A pull is answered with about so much, however much it asks for: what is read at once keeps others waiting."""
RANGES_PER_PULL = 4096
"""A pull looks at no more of the chain at once."""


class ReadServer:
    """What is asked of a member, and parked."""

    def __init__(self, shard: MemberState) -> None:
        self._shard = shard
        self._parked: dict[Address, dict[int, ReadRequest | Pull]] = {}
        self._by_gsn: list[tuple[int, Address, int]] = []

    # ---- one record

    def on_read(self, message: ReadRequest, sender: Address) -> None:
        """Find the record, or park."""
        if not self._ready(message, sender):
            return
        shard = self._shard
        stand = shard.chain.find(message.gsn)
        if stand is None:
            self._not(message.request, ReadError.SHARD, sender)
            return
        copy = shard.copies.get(stand.segment)
        if copy is None or not copy.base <= stand.lsn < copy.durable:
            self._not(message.request, ReadError.HERE, sender)
            return
        found = ReadResponse(message.request, message.gsn, stand.time)
        shard.out.append(SendStored(sender, found, copy.journal, stand.lsn, stand.lsn + 1))

    # ---- a stretch

    def on_pull(self, message: Pull, sender: Address) -> None:
        """Tell which GSNs are this shard's, and their records, as many as `max_bytes`; or park."""
        if not self._ready(message, sender):
            return
        shard = self._shard
        first = message.gsn
        stretches, owned, end = self._collect(first, max(1, min(message.max_bytes, PULL_BYTES)))
        if end == first:
            self._not(message.request, ReadError.HERE, sender)
            return
        whole = end is None
        if end is None:
            end = max(first, shard.chain.last + 1) if shard.complete else shard.known + 1
        pulled = Pulled(message.request, shard.number, first, end, tuple(owned), whole and shard.complete)
        if stretches:
            shard.out.append(SendRanges(sender, pulled, tuple(stretches), message.tags))
        else:
            shard.out.append(Send(sender, pulled))

    def _collect(self, first: int, limit: int) -> tuple[Sequence[JournalRange], list[tuple[int, int]], int | None]:
        """(what to read, GSNs owned, where it ended because of the limit or a copy that lacks something)."""
        copies = self._shard.copies
        stretches: list[JournalRange] = []
        owned: list[tuple[int, int]] = []
        for gsn, count, segment, lsn, time in self._shard.chain.stands(first):
            copy = copies.get(segment)
            if limit <= 0 or len(stretches) >= RANGES_PER_PULL or copy is None:
                return stretches, owned, gsn
            stop = min(lsn + count, copy.durable)
            if not copy.base <= lsn < stop:
                return stretches, owned, gsn
            size = copy.bytes_between(lsn, stop)
            if size > limit:
                stop = min(stop, copy.reach(lsn, limit))
            limit -= max(1, size)
            if owned and sum(owned[-1]) == gsn:
                owned[-1] = (owned[-1][0], owned[-1][1] + stop - lsn)
            else:
                owned.append((gsn, stop - lsn))
            stretches.append(JournalRange(copy.journal, lsn, stop, gsn, time))
            if stop < lsn + count:
                return stretches, owned, gsn + stop - lsn
        return stretches, owned, None

    # ---- times

    def on_ask_time(self, message: TimeRequest, sender: Address) -> None:
        """The newest GSN at a time."""
        shard = self._shard
        if message.shard == shard.number:
            gsn = shard.chain.last_at_time(message.time)
            shard.out.append(Send(sender, TimeResponse(message.request, gsn, shard.reached())))
        else:
            self._not(message.request, ReadError.HERE, sender)

    # ---- waiting

    def _ready(self, message: ReadRequest | Pull, sender: Address) -> bool:
        """Whether it can be answered; else it has been refused or parked."""
        shard = self._shard
        if message.shard != shard.number:
            self._not(message.request, ReadError.HERE, sender)
        elif message.gsn < shard.oldest:
            self._not(message.request, ReadError.TRIMMED, sender)
        elif message.gsn > shard.reached():
            self._park(message, sender)
        else:
            return True
        return False

    def _park(self, message: ReadRequest | Pull, sender: Address) -> None:
        parked = self._parked.setdefault(sender, {})
        before = parked.get(message.request)
        if before is None and len(parked) >= MAX_PARKED:
            self._not(message.request, ReadError.HERE, sender)
            return
        parked[message.request] = message
        if before is None or before.gsn != message.gsn:
            heappush(self._by_gsn, (message.gsn, sender, message.request))

    @property
    def waiting(self) -> int:
        """How many entries the queue of parked reads and pulls has."""
        return len(self._by_gsn)

    def forget(self, sender: Address) -> None:
        """A client is gone: nobody waits for what it has asked."""
        if self._parked.pop(sender, None):
            self._by_gsn = [entry for entry in self._by_gsn if entry[1] != sender]
            heapify(self._by_gsn)

    def wake(self) -> None:
        """Answer whoever waited for what is known, or trimmed, by now."""
        shard, waiting = self._shard, self._by_gsn
        reached = max(shard.reached(), shard.oldest - 1)
        while waiting and waiting[0][0] <= reached:
            gsn, sender, request = heappop(waiting)
            parked = self._parked.get(sender, {})
            message = parked.get(request)
            if message is not None and message.gsn == gsn:
                del parked[request]
                if not parked:
                    del self._parked[sender]
                if isinstance(message, ReadRequest):
                    self.on_read(message, sender)
                else:
                    self.on_pull(message, sender)

    def leave(self) -> None:
        """This server is no member any more: others can answer."""
        for sender, parked in self._parked.items():
            for request in parked:
                self._not(request, ReadError.HERE, sender)
        self._parked.clear()
        self._by_gsn.clear()

    def on_unreadable(self, event: Unreadable) -> None:
        """The bytes are damaged: the reader has to ask another replica; so will a backup, by itself."""
        message = event.effect.message
        if not isinstance(message, Replicate):
            self._not(message.request, ReadError.READABLE, event.effect.to, event.reason)

    def _not(self, request: int, why: ReadError, to: Address, explanation: str = "") -> None:
        self._shard.out.append(Send(to, ReadFailed(request, why, self._shard.oldest, explanation)))

    def check(self) -> None:
        """SCA-10: nobody waits for what is known."""
        waiting = self._by_gsn
        assert not waiting or waiting[0][0] > self._shard.reached(), "SCA-10: a parked read could be answered"
        assert waiting or not self._parked, "SCA-10: a parked read that nothing would wake"
