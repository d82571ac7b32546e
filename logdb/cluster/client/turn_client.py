"""Turns of a client at contended keys: its transactions share them.

The transactions of a process that begin with one contended key wait here in one queue, and the client requests one turn
for all of them, from the mapping server that gives the turns at this key. With the turn comes the value of the key. The
first transaction reads it. When its commit record is sent the others begin, and speculate on what it has written
(`txn/speculation.py`). So a turn of n transactions costs one request, and processes take turns, however many
transactions each of them has. Transactions that come later wait for the next turn. A reader that takes longer than
`TURN_NS` holds up no others.

Nothing depends on turns but the number of attempts.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from logdb.cluster.client import requests as calls
from logdb.cluster.client.query_client import QueryClient
from logdb.cluster.messages import TURN_NS, EndTurn, Entries, Turn
from logdb.cores.context import ClientContext, Timer
from logdb.errors import Unavailable


@dataclass(slots=True, eq=False)
class TurnTaker:
    """A transaction at a contended key."""

    call: int
    request: calls.TakeTurn


@dataclass(slots=True)
class KeyQueue:
    """The transactions at one key. `waiting`: for the next turn. `sharing`: in the turn that is requested or under way,
    and have not begun. `reader`: has read the value that came with the turn, and not sent its commit record, for
    `TURN_NS` at most. `found`: that value, None if it is large. `unused`: how many have left before the turn came."""

    waiting: list[TurnTaker] = field(default_factory=list)
    sharing: list[TurnTaker] = field(default_factory=list)
    reader: TurnTaker | None = None
    found: calls.Found | None = None
    is_requested: bool = False
    unused: int = 0


class TurnClient:
    """The transactions of a client that take turns: by key, and by the holder that the application names."""

    def __init__(self, context: ClientContext, queries: QueryClient) -> None:
        self._context, self._queries = context, queries
        self._keys: dict[bytes, KeyQueue] = {}
        self._takers: dict[Hashable, TurnTaker] = {}
        self._flush = Timer(self._request_turns)

    def has_queue(self, key: bytes) -> bool:
        """Whether transactions wait for turns at a key, or one has a turn and has not sent its commit record."""
        return key in self._keys

    def take_turn(self, call: int, request: calls.TakeTurn) -> None:
        """Wait for a turn; the transactions of one event share a request."""
        self.end(request.holder)
        taker = TurnTaker(call, request)
        self._context.open(call, request.deadline, lambda: self._expired(taker))
        self._takers[request.holder] = taker
        self._keys.setdefault(request.key, KeyQueue()).waiting.append(taker)
        if self._flush.at is None:
            self._context.set_timer(self._flush, self._context.now)

    def has_sent(self, holder: Hashable) -> None:
        """The commit record of this transaction is sent: those that share its turn begin."""
        taker = self._takers.pop(holder, None)
        if taker is not None:
            queue = self._keys.get(taker.request.key)
            if queue is not None and queue.reader is taker:
                queue.reader = None
                self._begin_others(taker.request.key, queue)

    def end(self, holder: Hashable) -> None:
        """This transaction ends without a commit record."""
        taker = self._takers.pop(holder, None)
        if taker is None:
            return
        self._context.answer(taker.call, None)
        key = taker.request.key
        queue = self._keys.get(key)
        if queue is not None and taker in queue.waiting:
            queue.waiting.remove(taker)
            return
        if queue is not None and queue.is_requested and taker in queue.sharing:
            queue.sharing.remove(taker)
            queue.unused += 1
            return
        self._send_end(key, 1)
        if queue is not None and taker in queue.sharing:
            queue.sharing.remove(taker)
        elif queue is not None and taker is queue.reader:
            queue.reader = None
            self._begin_next(key, queue)

    def _expired(self, taker: TurnTaker) -> None:
        self._context.answer(taker.call, Unavailable("no mapping server answered before the deadline"))
        self.end(taker.request.holder)

    # ---- requesting turns

    def _request_turns(self) -> None:
        for key, queue in list(self._keys.items()):
            if not queue.is_requested and queue.reader is None and not queue.sharing:
                self._request_next(key, queue)

    def _request_next(self, key: bytes, queue: KeyQueue) -> None:
        """Request a turn for the first of those that wait, and for all that may follow it. End the queue if it is
        empty, or if the key is not contended any more."""
        if not any(taker.request.is_contended for taker in queue.waiting):
            del self._keys[key]
            self._begin(queue.waiting)
            return
        first, *others = queue.waiting
        queue.sharing = [first, *[taker for taker in others if taker.request.may_follow]]
        queue.waiting = [taker for taker in others if not taker.request.may_follow]
        queue.is_requested = True
        question = Turn(key, self._context.client, len(queue.sharing), first.request.may_follow)
        consistency = first.request.consistency
        self._queries.ask(
            question, consistency, 0, lambda *answer: self._given(key, queue, *answer), to=self._queries.server_of(key)
        )

    def _given(self, key: bytes, queue: KeyQueue, version: int, entries: Entries) -> None:
        queue.is_requested = False
        if queue.unused:
            self._send_end(key, queue.unused)
            queue.unused = 0
        found = [(at, value) for at, value in entries.entries if value is None or isinstance(value, bytes)]
        if found:
            queue.found = calls.Found(version, tuple(found))
            self._begin_next(key, queue)
        else:  # the last turn goes on, or the value is large and is read like any other
            self._begin_others(key, queue)

    # ---- a turn

    def _begin_next(self, key: bytes, queue: KeyQueue) -> None:
        """Give the value to the next transaction of the turn; without one, the turn is over."""
        if queue.sharing:
            reader = queue.reader = queue.sharing.pop(0)
            self._context.answer(reader.call, queue.found)
            overdue = Timer(lambda: self._pass_over(key, queue, reader))
            self._context.set_timer(overdue, self._context.now + TURN_NS)
        else:
            self._request_next(key, queue)

    def _pass_over(self, key: bytes, queue: KeyQueue, reader: TurnTaker) -> None:
        """Let the others begin if this transaction takes longer than a turn."""
        if queue.reader is reader:
            queue.reader = None
            self._begin_others(key, queue)

    def _begin_others(self, key: bytes, queue: KeyQueue) -> None:
        sharing, queue.sharing = queue.sharing, []
        self._begin(sharing)
        self._request_next(key, queue)

    def _begin(self, takers: list[TurnTaker]) -> None:
        for taker in takers:
            self._context.answer(taker.call, None)

    def _send_end(self, key: bytes, transactions: int) -> None:
        self._context.send(self._queries.server_of(key), EndTurn(key, self._context.client, transactions))

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        for queue in self._keys.values():
            is_busy = queue.is_requested or queue.reader is not None
            assert is_busy or self._flush.at is not None, "transactions wait for a turn, and none is requested"
            assert not (queue.is_requested and queue.reader is not None), (
                "a turn is requested before the last has begun"
            )
            assert is_busy or not queue.sharing, "transactions share a turn without a holder"
