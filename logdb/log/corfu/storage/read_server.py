"""Reads at a storage unit. A request for a position that is not written yet waits until it is.

A position that becomes readable wakes the requests for it alone: a client may let many wait for positions that other
units own, at no cost for the writes here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logdb.cores.effects import Address, Effect, Send, SendRanges, SendStored, Unreadable
from logdb.log.corfu.messages import (
    Pull,
    Pulled,
    ReadRequest,
    ReadResponse,
    Reason,
    Rejected,
    StreamPull,
    StreamPulled,
)
from logdb.log.corfu.projection import Former, gsn_at, position_of
from logdb.log.corfu.storage.entry_store import JOURNAL, EntryStore
from logdb.log.parked_requests import ParkedRequests
from logdb.log.requests import END

MAX_PARKED: Final = 1_000
"""Maximum number of requests of one sender that wait for entries."""
PULL_BYTES: Final = 4 << 20
"""Approximate maximum size of a response to a pull."""


def _awaited(request: ReadRequest | Pull) -> int:
    """The position that a request is for."""
    return position_of(request.gsn) if isinstance(request, ReadRequest) else request.first


class ReadServer:
    """Answers `ReadRequest` and `Pull`. `has_joined`: the unit was in a projection, otherwise it rejects every epoch;
    `sealed`: the newest epoch that it rejects then. `former`: it has left its shard, and sends its entries, which do
    not change any more, to units that copy them. `oldest`: the oldest readable GSN."""

    def __init__(self, store: EntryStore, out: list[Effect]) -> None:
        self._store, self._out = store, out
        self.has_joined = False
        self.sealed = 0
        self.former: Former | None = None
        self.oldest = 1
        # By the highest position that answers a pull though it is not the one requested.
        self._parked = ParkedRequests[ReadRequest | Pull](MAX_PARKED)
        self._at: dict[int, set[tuple[Address, int]]] = {}

    def rejects(self, epoch: int) -> bool:
        """Whether messages of an epoch are rejected (COR-4, COR-8)."""
        return not self.has_joined or epoch <= self.sealed

    def on_request(self, message: ReadRequest | Pull, sender: Address) -> None:
        """Answer a request, or let it wait."""
        before = self._parked.remove(sender, message.request)
        if before is not None:
            self._leave(before, sender)
        if self._answer(message, sender):
            return
        if self._parked.park(message.known if isinstance(message, Pull) else END, message, sender):
            self._at.setdefault(_awaited(message), set()).add((sender, message.request))
        else:
            self.reject(message.request, Reason.BUSY, sender)

    def _answer(self, message: ReadRequest | Pull, sender: Address) -> bool:
        if self.rejects(message.epoch) and not self._is_copy(message):
            self.reject(message.request, Reason.SEALED, sender)
        elif isinstance(message, ReadRequest):
            return self._read(message, sender)
        elif message.first < position_of(self.oldest):
            self.reject(message.request, Reason.TRIMMED, sender)
        else:
            return self._pull(message, sender)
        return True

    def _is_copy(self, message: ReadRequest | Pull) -> bool:
        """Whether a unit copies the entries of this former one. It names an epoch in which this was in the chain: a
        unit that has got its address since then lacks them."""
        one = self.former
        is_own = one is not None and one.joined <= message.epoch < one.left
        return is_own and isinstance(message, Pull) and message.uncommitted

    def _read(self, message: ReadRequest, sender: Address) -> bool:
        position = position_of(message.gsn)
        if message.gsn < self.oldest:
            self.reject(message.request, Reason.TRIMMED, sender)
            return True
        at = self._store.readable_at(position)
        if at is None:
            return False
        entry, index = self._store.entry(at), message.gsn - gsn_at(position)
        if index >= entry.count:
            self.reject(message.request, Reason.ABSENT, sender)
            return True
        if index in self._store.deleted.of(position):
            self.reject(message.request, Reason.TRIMMED, sender)
            return True
        response = ReadResponse(message.request, message.gsn, entry.time)
        records = self._store.cached(position)
        if records is not None:
            self._out.append(Send(sender, response._replace(records=(records[index],))))
        else:
            lsn = self._store.first_lsn(position) + index
            self._out.append(SendStored(sender, response, JOURNAL, lsn, lsn + 1))
        return True

    def _pull(self, message: Pull, sender: Address) -> bool:
        size = max(1, min(message.max_bytes, PULL_BYTES))
        entries = self._store.consecutive(
            message.first, message.step, message.end, size, uncommitted=message.uncommitted
        )
        highest = position_of(self._store.last_durable())
        if not entries and highest < message.known:
            return False
        deleted = self._store.deleted_gsns(entries)
        uncommitted = tuple([one.position for one in entries if one.position in self._store.streams.uncommitted])
        self._send(sender, Pulled(message.request, highest, tuple(entries), deleted, uncommitted), message.tags)
        return True

    def _send(self, sender: Address, pulled: Pulled | StreamPulled, tags: frozenset[int] | None) -> None:
        """Send a response with the records of its entries."""
        cached = [self._store.cached_records(entry, tags) for entry in pulled.entries]
        if all(one is not None for one in cached):
            records = [record for one in cached if one is not None for record in one]
            self._out.append(Send(sender, pulled._replace(records=records)))
        else:
            ranges = tuple([one for entry in pulled.entries for one in self._store.ranges_of(entry)])
            self._out.append(SendRanges(sender, pulled, ranges, tags))

    def on_stream_pull(self, message: StreamPull, sender: Address) -> None:
        """Send the entries of a stream. An entry that this unit has is on all its log replicas (COR-15)."""
        size = max(1, min(message.max_bytes, PULL_BYTES))
        if self.rejects(message.epoch):
            self.reject(message.request, Reason.SEALED, sender)
        elif message.first < position_of(self.oldest):
            self.reject(message.request, Reason.TRIMMED, sender)
        else:
            entries, end = self._store.of_stream(message.stream, message.first, message.end, size)
            deleted = self._store.deleted_gsns(entries)
            self._send(sender, StreamPulled(message.request, end, tuple(entries), deleted), None)

    # ---- waiting

    def wake(self) -> None:
        """Answer the requests for what is trimmed or sealed by now, in a new projection."""
        self._again(self._parked.remove_all())

    def wake_at(self, positions: Iterable[int]) -> None:
        """Answer the requests for positions that have become readable."""
        for position in positions:
            for sender, number in sorted(self._at.get(position, ())):
                request = self._parked.remove(sender, number)
                assert request is not None
                self._again([(request, sender)])
        if self._parked:
            self._again(self._parked.take(position_of(self._store.last_durable())))

    def _again(self, requests: list[tuple[ReadRequest | Pull, Address]]) -> None:
        for request, sender in requests:
            self._leave(request, sender)
            self.on_request(request, sender)

    def _leave(self, request: ReadRequest | Pull, sender: Address) -> None:
        at = _awaited(request)
        self._at[at].remove((sender, request.request))
        if not self._at[at]:
            del self._at[at]

    def forget(self, sender: Address) -> None:
        """The stream to a client has ended: drop its requests."""
        for request, _ in self._parked.remove_all(sender):
            self._leave(request, sender)

    def on_unreadable(self, event: Unreadable) -> None:
        """The bytes are damaged here; another unit of the chain has them too."""
        self.reject(event.effect.message.request, Reason.UNREADABLE, event.effect.to, event.reason)

    def reject(self, request: int, why: Reason, to: Address, explanation: str = "") -> None:
        """Reject a request."""
        self._out.append(Send(to, Rejected(request, why, self.sealed, self.oldest, explanation)))

    def check(self) -> None:
        """Raises AssertionError."""
        self._parked.check()
        assert sum(map(len, self._at.values())) == len(self._parked)
        for message, sender in self._parked:
            assert (sender, message.request) in self._at[_awaited(message)]
            assert not self.rejects(message.epoch), "COR-7: a request of a sealed epoch waits"
