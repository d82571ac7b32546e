"""Reads at a replica. Applied records are chosen and never change, so any replica may send them (MPX-7).

The leader parks requests for records that are not ordered yet. So does a replica while it follows a leader, if the
request is a pull that allows it; it refuses other requests with the leader's address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdb.cores.effects import Address, Effect, Send, SendRanges, SendStored, Unreadable
from logdb.log.multipaxos.messages import Pull, Pulled, ReadError, ReadFailed, ReadRequest, ReadResponse
from logdb.log.multipaxos.record_store import RecordStore
from logdb.log.multipaxos.state import LogState
from logdb.log.parked_requests import ParkedRequests

MAX_PARKED: Final = 1000
"""Maximum number of requests of one sender that wait for records."""
PULL_BYTES: Final = 4 << 20
"""Approximate maximum size of an answer to a pull, whatever it requests: a large read delays other requests."""


def _is_urgent(request: ReadRequest | Pull) -> bool:
    return isinstance(request, Pull) and request.is_urgent


class ReadServer:
    """Answers `ReadRequest` and `Pull`. `leader`: returns (whether this replica leads, the leader's address)."""

    def __init__(self, store: RecordStore, out: list[Effect], leader: Callable[[], tuple[bool, Address]]) -> None:
        self._store, self._out, self._leader = store, out, leader
        self._parked = ParkedRequests[ReadRequest | Pull](MAX_PARKED, _is_urgent)

    def on_request(self, message: ReadRequest | Pull, sender: Address, state: LogState) -> None:
        """Answer a request, or park it until the record is ordered."""
        if message.gsn < state.oldest:
            self._fail(message.request, ReadError.TRIMMED, sender, state.oldest)
        elif message.gsn >= state.next_gsn:
            self._park(message, sender, state)
        elif isinstance(message, ReadRequest):
            self._read(message, sender, state)
        else:
            self._pull(message, sender, state)

    def _read(self, message: ReadRequest, sender: Address, state: LogState) -> None:
        gsn = message.gsn
        response = ReadResponse(message.request, gsn)
        if cached := self._store.cached(gsn, gsn + 1):
            self._out.append(Send(sender, response._replace(records=((cached[0].tag, cached[0].payload),))))
        elif ranges := self._store.ranges(gsn, gsn + 1):
            self._out.append(SendStored(sender, response, ranges[0].journal, gsn, gsn + 1))
        else:
            self._fail(message.request, ReadError.MISSING, sender, state.oldest)

    def _pull(self, message: Pull, sender: Address, state: LogState) -> None:
        first = message.gsn
        end = state.index.reach(first, max(1, min(message.max_bytes, PULL_BYTES)))
        cached = self._store.cached(first, end, message.tags)
        if cached is not None:
            self._out.append(Send(sender, Pulled(message.request, first, end, cached)))
        elif ranges := self._store.ranges(first, end):
            pulled = Pulled(message.request, first, ranges[-1].end)
            self._out.append(SendRanges(sender, pulled, tuple(ranges), message.tags))
        else:
            self._fail(message.request, ReadError.MISSING, sender, state.oldest)

    # ---- waiting

    def _park(self, message: ReadRequest | Pull, sender: Address, state: LogState) -> None:
        is_leader, leader = self._leader()
        may_wait = is_leader or (bool(leader) and isinstance(message, Pull) and message.allow_follower)
        if not may_wait or not self._parked.park(message.gsn, message, sender):
            self._fail(message.request, ReadError.BEHIND, sender, state.oldest)

    def wake(self, state: LogState) -> None:
        """Answer the parked requests whose records are now ordered or trimmed."""
        for message, sender in self._parked.take(max(state.next_gsn, state.oldest) - 1):
            self.on_request(message, sender, state)

    def forget(self, sender: Address) -> None:
        """The stream to a client has ended: drop its parked requests."""
        self._parked.remove_all(sender)

    @property
    def is_urgent(self) -> bool:
        """Whether a parked pull must be answered as soon as its record is ordered."""
        return self._parked.marked > 0

    def refuse_parked(self, state: LogState) -> None:
        """This replica was deposed, or has lost its leader: send the clients with parked requests elsewhere."""
        for message, sender in self._parked.remove_all():
            self._fail(message.request, ReadError.BEHIND, sender, state.oldest)

    def on_unreadable(self, event: Unreadable, state: LogState) -> None:
        """The bytes are damaged here: report that, so that the client reads from another replica."""
        message = event.effect.message
        self._fail(message.request, ReadError.UNREADABLE, event.effect.to, state.oldest, event.reason)

    def _fail(self, request: int, why: ReadError, to: Address, oldest: int, explanation: str = "") -> None:
        self._out.append(Send(to, ReadFailed(request, why, oldest, self._leader()[1], explanation)))

    def check(self, state: LogState) -> None:
        """Raises AssertionError."""
        self._parked.check()
        first = self._parked.first
        assert first is None or first >= state.next_gsn, "MPX-7: the record of a request is ordered"
