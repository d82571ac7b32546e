"""Queries of a client: sent in batches to one mapping server, and to the next one when that is silent or busy.

Every request names the newest version that this client has seen, so no server shows it an older one (DBS-4). A query
that takes much longer than others is sent to a second server, too (`Hedging`); the first answer counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from logdb.cluster.client.hedging import Hedging, next_of
from logdb.cluster.messages import (
    Answered,
    Answers,
    AtTime,
    Busy,
    Consistency,
    Measure,
    Outcome,
    Question,
    Read,
    Reads,
    Recalling,
    Turn,
)
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, ProtocolViolation

OnAnswer = Callable[[int, Any], None]
"""Takes (version, result)."""
SentRead = tuple[Read, int]
"""A read, and the number of the attempt."""
SentReads = tuple[int, Address, list[SentRead]]
"""Reads that were sent to a server in one message, and when something is to happen if they are not answered, in ns."""


@dataclass(slots=True)
class PendingQuery:
    """A query under way. `min_version`: an answer of an older version violates DBS-4. `min_applied`: the version that
    the server must have applied. `attempt`: how many times it was sent or refused; only the last attempt times out.
    `server`: that of the last attempt. `to`: the server of the first one, "" for the one that the client asks now.
    `sent_at`: the time of the first attempt, which may go to a `second` server besides ("": it has not). `recalling`:
    the server that was reading the cold tier for it when the last attempt had reached it; the next one goes there."""

    question: Question
    consistency: Consistency
    version: int
    min_version: int
    on_answer: OnAnswer
    min_applied: int
    attempt: int = 0
    server: Address = ""
    to: Address = ""
    sent_at: int = 0
    second: Address = ""
    recalling: Address = ""

    @property
    def can_be_hedged(self) -> bool:
        """Whether two servers may answer it: a turn is taken at one server, and measures are of one."""
        return self.attempt == 1 and not self.second and not isinstance(self.question, (Turn, Measure))


class QueryClient:
    """All queries of a client. `server`: the one that it asks now. `session`: the newest version that it has seen.
    `pending`: the queries under way, by number. `hedging`: how many were sent to a second server."""

    def __init__(self, context: ClientContext, servers: tuple[Address, ...]) -> None:
        self._context, self._servers = context, servers
        self.server = context.rng.choice(servers)
        self.session = 0
        self.pending: dict[int, PendingQuery] = {}
        self._unsent: list[int] = []
        self._flush = Timer(self._send)
        self._sent: deque[SentReads] = deque()
        self._timeout = Timer(self._time_out)
        self.hedging = Hedging()
        self._to_hedge: deque[SentReads] = deque()
        self._hedge = Timer(self._send_again)

    def ask(
        self,
        question: Question,
        consistency: Consistency,
        version: int,
        on_answer: OnAnswer,
        min_applied: int = 0,
        to: Address = "",
    ) -> int:
        """Query a server that has applied at least `min_applied`. `version`: of the answer for a snapshot, else its
        minimum. `to`: the server to ask first. Returns the number of the query, for `drop`."""
        number = self._context.next_number()
        is_named = consistency == Consistency.SNAPSHOT or isinstance(question, AtTime)
        min_version = 0 if is_named else max(self.session, version)
        self.pending[number] = PendingQuery(question, consistency, version, min_version, on_answer, min_applied, to=to)
        self._queue([number], 0)
        return number

    def server_of(self, key: bytes) -> Address:
        """The server that gives the turns at a key: the same one for all clients that agree on the servers."""
        servers = sorted(self._servers)
        return servers[crc32(key) % len(servers)]

    def drop(self, number: int) -> None:
        """The answer is not needed any more."""
        self.pending.pop(number, None)

    def saw(self, version: int) -> None:
        """The application has been shown this version."""
        self.session = max(self.session, version)

    def leave(self, server: Address) -> None:
        """`server` is silent, busy or unreachable: send queries to the next one from now on."""
        if server == self.server:
            self.server = next_of(server, self._servers)

    def lost(self, server: Address) -> None:
        """`server` is unreachable: send its queries to the next one at once."""
        self.leave(server)
        numbers = [number for number, query in self.pending.items() if query.server == server]
        for number in numbers:
            self.pending[number].recalling = ""
        if numbers:
            self._queue(numbers, 0)

    def use(self, servers: tuple[Address, ...]) -> None:
        """Use these servers from now on."""
        self._servers = servers
        if self.server not in servers:
            self.lost(self.server)

    # ---- sending

    def _queue(self, numbers: list[int], wait_ns: int) -> None:
        """Send these queries with all others that are queued before the timer fires."""
        self._unsent += numbers
        if self._flush.at is None:
            self._context.set_timer(self._flush, self._context.now + wait_ns)

    def _send(self) -> None:
        numbers = [number for number in dict.fromkeys(self._unsent) if number in self.pending]
        self._unsent.clear()
        by_server: dict[Address, list[SentRead]] = {}
        for number in numbers:
            query = self.pending[number]
            query.attempt += 1
            if query.recalling in self._servers:
                server, query.recalling = query.recalling, ""
            else:
                server = query.to if query.to in self._servers and query.attempt == 1 else self.server
            query.server = server
            query.second = ""
            if query.attempt == 1:
                query.sent_at = self._context.now
            by_server.setdefault(server, []).append((self._read_of(number, query), query.attempt))
        for server, reads in by_server.items():
            self._send_to(server, reads)

    def _read_of(self, number: int, query: PendingQuery) -> Read:
        version = query.version
        if query.consistency != Consistency.SNAPSHOT:
            version = max(version, self.session)
        return Read(number, query.consistency, version, query.question, query.min_applied)

    def _send_to(self, server: Address, reads: list[SentRead]) -> None:
        context = self._context
        context.send(server, Reads(tuple([read for read, _ in reads])))
        self._await(server, reads)
        bound_ns = self.hedging.bound_ns
        if bound_ns is not None and len(self._servers) > 1 and bound_ns < context.config.answer_timeout_ns:
            self._to_hedge.append((context.now + bound_ns, server, reads))
            if self._hedge.at is None:
                context.set_timer(self._hedge, context.now + bound_ns)

    def _await(self, server: Address, reads: list[SentRead]) -> None:
        """Wait for the answers as long as an answer may take."""
        due = self._context.now + self._context.config.answer_timeout_ns
        self._sent.append((due, server, reads))
        if self._timeout.at is None:
            self._context.set_timer(self._timeout, due)

    def _take_due(self, sent: deque[SentReads]) -> Iterator[tuple[Address, list[int]]]:
        """Remove from the front what is due, and what needs no timer because it is answered, or was sent again. Yields
        for each message that is due its server and the queries without an answer."""
        while sent:
            due, server, reads = sent[0]
            late = [
                read.number
                for read, attempt in reads
                if (query := self.pending.get(read.number)) is not None and query.attempt == attempt
            ]
            if late and due > self._context.now:
                return
            sent.popleft()
            if late:
                yield server, late

    def _send_again(self) -> None:
        """Send the queries that are late to the next server, too, and look again after a quarter of the bound."""
        late = dict[Address, list[Read]]()
        for _, numbers in self._take_due(self._to_hedge):
            for number in numbers:
                query = self.pending[number]
                if query.can_be_hedged and self.hedging.may_send():
                    query.second = next_of(query.server, self._servers)
                    late.setdefault(query.second, []).append(self._read_of(number, query))
        for server, reads in late.items():
            self._context.send(server, Reads(tuple(reads)))
        if self._to_hedge:
            assert self.hedging.bound_ns is not None
            look_at = self._context.now + self.hedging.bound_ns // 4
            self._context.set_timer(self._hedge, max(self._to_hedge[0][0], look_at))

    def _time_out(self) -> None:
        """Send the queries without an answer to the next server."""
        for server, numbers in self._take_due(self._sent):
            if not all(self.pending[number].recalling for number in numbers):
                self.leave(server)
            self._queue(numbers, 0)
        if self._sent:
            self._context.set_timer(self._timeout, self._sent[0][0])

    # ---- answers

    def answers(self, message: Answers, sender: Address) -> None:
        """Process answers, also those of former servers of this client."""
        for answered in message.answers:
            query = self.pending.pop(answered.number, None)
            if query is not None:
                if query.second and sender == query.second:
                    if self.hedging.lost():
                        self.leave(query.server)
                elif query.attempt == 1:
                    self.hedging.answered(self._context.now - query.sent_at)
                self._take(query, answered)

    def _take(self, query: PendingQuery, answered: Answered) -> None:
        _, version, result = answered
        is_snapshot = query.consistency == Consistency.SNAPSHOT and not isinstance(query.question, Outcome)
        if is_snapshot and version not in (0, query.version):
            raise ProtocolViolation(f"DBS-5: version {query.version} was requested, and {version} was answered")
        if version:
            if version < query.min_version:
                raise ProtocolViolation(f"DBS-4: version {version} after {query.min_version}")
            self.saw(version)
        query.on_answer(version, result)

    def busy(self, message: Busy, sender: Address) -> None:
        """The server has rejected queries: send them to the next one after a pause. A second server may do so."""
        numbers = [
            number
            for number in message.numbers
            if number in self.pending and number not in self._unsent and self.pending[number].second != sender
        ]
        if numbers:
            self.leave(sender)
            for number in numbers:
                self.pending[number].attempt += 1
            self._queue(numbers, self._context.backoff(1))

    def recalling(self, message: Recalling, sender: Address) -> None:
        """The server reads the cold tier for these queries, which takes long."""
        reads: list[SentRead] = []
        for number in message.numbers:
            query = self.pending.get(number)
            if query is not None and sender in (query.server, query.second):
                query.server, query.second, query.recalling = sender, "", sender
                query.attempt += 1
                reads.append((self._read_of(number, query), query.attempt))
        if reads:
            self._await(sender, reads)

    def is_recalling(self, number: int) -> bool:
        """Whether a server is reading the cold tier for this query."""
        return number in self.pending and bool(self.pending[number].recalling)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self._unsent or self._flush.at is not None, "queries are queued, and no timer sends them"
        assert not self._sent or self._timeout.at is not None, "queries were sent, and no timer ends the wait"
