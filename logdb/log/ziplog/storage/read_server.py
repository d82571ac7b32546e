"""Reads at a storage server. Stable records never change, so any member may send those that it knows to be stable.

For records that are not stable yet the primary keeps the request until they are.
"""

from __future__ import annotations

from typing import Final

from logdb.cores.effects import Address, Effect, Send, SendRanges, SendStored, Unreadable
from logdb.log.parked_requests import ParkedRequests
from logdb.log.ziplog.messages import Pull, Pulled, ReadError, ReadFailed, ReadRequest, ReadResponse
from logdb.log.ziplog.storage.shard_log import ShardLog

MAX_PARKED: Final = 1_000
"""Maximum number of requests of one sender that wait for records."""
PULL_BYTES: Final = 4 << 20
"""About the largest answer to a pull."""


class ReadServer:
    """Answers `ReadRequest` and `Pull`. `oldest`: the oldest readable GSN; `version`: the newest that was entered;
    `can_wait`: whether requests may wait here, so at a primary."""

    def __init__(self, out: list[Effect]) -> None:
        self._out = out
        self.oldest = 1
        self.version = 0
        self.can_wait = False
        self._parked = ParkedRequests[ReadRequest | Pull](MAX_PARKED)

    def on_request(self, message: ReadRequest | Pull, sender: Address, log: ShardLog | None) -> None:
        """Answer, or wait for the record."""
        if log is None:
            self._fail(message.request, ReadError.BEHIND, sender)
        elif message.gsn < self.oldest:
            self._fail(message.request, ReadError.TRIMMED, sender)
        elif message.gsn > log.stable:
            if not self.can_wait or not self._parked.park(message.gsn, message, sender):
                self._fail(message.request, ReadError.BEHIND, sender)
        elif isinstance(message, ReadRequest):
            self._read(message, sender, log)
        else:
            self._pull(message, sender, log)

    def _read(self, message: ReadRequest, sender: Address, log: ShardLog) -> None:
        gsn = message.gsn
        fetched = log.store.fetch(gsn - 1, gsn, 1)
        response = ReadResponse(message.request, gsn, [(one.tag, one.payload) for one in fetched.records])
        if fetched.ranges:
            found = fetched.ranges[0]
            self._out.append(SendStored(sender, response, found.journal, found.first, found.end))
        else:
            self._out.append(Send(sender, response))

    def _pull(self, message: Pull, sender: Address, log: ShardLog) -> None:
        size = max(1, min(message.max_bytes, PULL_BYTES))
        fetched = log.store.fetch(message.gsn - 1, log.stable, size, message.tags)
        pulled = Pulled(message.request, message.gsn, fetched.end + 1, self.version, fetched.records)
        if fetched.ranges:
            self._out.append(SendRanges(sender, pulled, fetched.ranges, message.tags))
        else:
            self._out.append(Send(sender, pulled))

    # ---- waiting

    def wake(self, log: ShardLog) -> None:
        """Answer the requests whose records are stable, or trimmed, by now."""
        for message, sender in self._parked.take(max(log.stable, self.oldest - 1)):
            self.on_request(message, sender, log)

    def forget(self, sender: Address) -> None:
        """The stream to a client has ended: its requests wait no longer."""
        self._parked.remove_all(sender)

    def end_waiting(self) -> None:
        """This server does not lead any more: requests do not wait here."""
        self.can_wait = False
        for message, sender in self._parked.remove_all():
            self._fail(message.request, ReadError.BEHIND, sender)

    def on_unreadable(self, event: Unreadable) -> None:
        """The bytes are damaged here; another member has them too."""
        if isinstance(event.effect.message, Pulled | ReadResponse):
            self._fail(event.effect.message.request, ReadError.UNREADABLE, event.effect.to, event.reason)

    def _fail(self, request: int, why: ReadError, to: Address, explanation: str = "") -> None:
        self._out.append(Send(to, ReadFailed(request, why, self.oldest, explanation)))

    def check(self, log: ShardLog) -> None:
        """Raises AssertionError."""
        self._parked.check()
        first = self._parked.first
        assert first is None or first > log.stable, "ZIP-7: a request waits for what is there"
