"""Reads at a member: answered when the log has reached the GSN, parked until then (§3.3.2).

For GSNs up to `MemberState.reached()` a member either has the location of the record or can say that it is not of this
shard. Later reads are parked, because the absence of a link proves nothing. Parked reads are checked again when the log
has advanced or was trimmed, or when the shard is complete (SCA-10).
"""

from __future__ import annotations

from collections.abc import Sequence

from logdb.cores.effects import Address, JournalRange, Send, SendRanges, SendStored, Unreadable
from logdb.log.parked_requests import ParkedRequests
from logdb.log.scalog.messages import (
    Pull,
    Pulled,
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    TimeRequest,
    TimeResponse,
)
from logdb.log.scalog.storage.member_state import MemberState

MAX_PARKED = 1000
"""Maximum number of parked reads of one sender."""
PULL_BYTES = 4 << 20
"""Approximate maximum size of an answer to a pull, whatever it requests: a large read delays other requests."""
MAX_RANGES_PER_PULL = 4096
"""Maximum number of ranges of the chain in an answer to a pull."""


class ReadServer:
    """Answers and parks the reads, pulls and time requests of clients."""

    def __init__(self, shard: MemberState) -> None:
        self._shard = shard
        self._parked = ParkedRequests[ReadRequest | Pull](MAX_PARKED)

    # ---- one record

    def on_read(self, message: ReadRequest, sender: Address) -> None:
        """Send the record, or park the read."""
        if not self._is_due(message, sender):
            return
        shard = self._shard
        location = shard.chain.find(message.gsn)
        if location is None:
            self._send_failed(message.request, ReadError.SHARD, sender)
            return
        copy = shard.copies.get(location.segment)
        if copy is None or not copy.base <= location.lsn < copy.durable:
            self._send_failed(message.request, ReadError.HERE, sender)
            return
        response = ReadResponse(message.request, message.gsn, location.time)
        shard.out.append(SendStored(sender, response, copy.journal, location.lsn, location.lsn + 1))

    # ---- a range of the log

    def on_pull(self, message: Pull, sender: Address) -> None:
        """Send the GSNs that this shard owns, with about `max_bytes` of their records, or park the pull."""
        if not self._is_due(message, sender):
            return
        shard = self._shard
        first = message.gsn
        stretches, owned, end = self._collect(first, max(1, min(message.max_bytes, PULL_BYTES)))
        if end == first:
            self._send_failed(message.request, ReadError.HERE, sender)
            return
        is_complete = end is None
        if end is None:
            end = max(first, shard.chain.last + 1) if shard.complete else shard.covered + 1
        pulled = Pulled(message.request, shard.number, first, end, tuple(owned), is_complete and shard.complete)
        if stretches:
            shard.out.append(SendRanges(sender, pulled, tuple(stretches), message.tags))
        else:
            shard.out.append(Send(sender, pulled))

    def _collect(self, first: int, limit: int) -> tuple[Sequence[JournalRange], list[tuple[int, int]], int | None]:
        """Returns (ranges to read, owned GSNs, the GSN where the limit or an incomplete copy ended it, or None)."""
        copies = self._shard.copies
        stretches: list[JournalRange] = []
        owned: list[tuple[int, int]] = []
        for gsn, count, segment, lsn, time in self._shard.chain.locations(first):
            copy = copies.get(segment)
            if limit <= 0 or len(stretches) >= MAX_RANGES_PER_PULL or copy is None:
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

    def on_time_request(self, message: TimeRequest, sender: Address) -> None:
        """Send the newest GSN of this shard at a time. The client may not know yet that the log was trimmed."""
        shard = self._shard
        if message.shard == shard.number:
            gsn = max(shard.chain.last_at_time(message.time), shard.oldest - 1)
            shard.out.append(Send(sender, TimeResponse(message.request, gsn, shard.reached())))
        else:
            self._send_failed(message.request, ReadError.HERE, sender)

    # ---- parked reads

    def _is_due(self, message: ReadRequest | Pull, sender: Address) -> bool:
        """Whether the request can be answered now. Otherwise it is rejected or parked."""
        shard = self._shard
        if message.shard != shard.number:
            self._send_failed(message.request, ReadError.HERE, sender)
        elif message.gsn < shard.oldest:
            self._send_failed(message.request, ReadError.TRIMMED, sender)
        elif message.gsn > shard.reached():
            if not self._parked.park(message.gsn, message, sender):
                self._send_failed(message.request, ReadError.HERE, sender)
        else:
            return True
        return False

    @property
    def waiting(self) -> int:
        """Number of parked reads and pulls."""
        return len(self._parked)

    def drop(self, sender: Address) -> None:
        """Drop the parked reads of a client that has disconnected."""
        self._parked.remove_all(sender)

    def wake(self) -> None:
        """Answer the parked reads that the log has reached, or that were trimmed."""
        for message, sender in self._parked.take(max(self._shard.reached(), self._shard.oldest - 1)):
            if isinstance(message, ReadRequest):
                self.on_read(message, sender)
            else:
                self.on_pull(message, sender)

    def leave(self) -> None:
        """This server was removed: reject all parked reads, so that the clients ask other members."""
        for message, sender in self._parked.remove_all():
            self._send_failed(message.request, ReadError.HERE, sender)

    def on_unreadable(self, event: Unreadable) -> None:
        """The records are damaged: the client must ask another member."""
        self._send_failed(event.effect.message.request, ReadError.READABLE, event.effect.to, event.reason)

    def _send_failed(self, request: int, reason: ReadError, to: Address, explanation: str = "") -> None:
        self._shard.out.append(Send(to, ReadFailed(request, reason, self._shard.oldest, explanation)))

    def check(self) -> None:
        """SCA-10: no parked read could be answered. Raises AssertionError."""
        self._parked.check()
        first = self._parked.first
        assert first is None or first > self._shard.reached(), "SCA-10: a parked read could be answered"
