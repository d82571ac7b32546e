"""Reads of a client: put in batches to one mapping server, and to the next one when that is silent or busy.

Every request names the newest version that this client has seen, so whoever answers never shows it an older one
(DBS-4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logdb.cluster.messages import Answered, Answers, AtTime, Busy, Consistency, Outcome, Question, Read, Reads
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, ProtocolViolation

Told = Callable[[int, Any], None]
"""Takes (version, result)."""


@dataclass(slots=True)
class PendingQuery:
    """A read under way. `least`: an answer of an older version would show this client the past. `attempt`: how often it
    was put, or refused; only the last one counts as late. `server`: whom it was put to. `applied`: how far that must
    have got in the log."""

    question: Question
    consistency: Consistency
    version: int
    least: int
    told: Told
    applied: int
    attempt: int = 0
    server: Address = ""


class QueryClient:
    """All reads of a client. `server`: whom it asks now. `session`: the newest version that it has seen."""

    def __init__(self, context: ClientContext, servers: tuple[Address, ...]) -> None:
        self._context, self._servers = context, servers
        self.server = context.rng.choice(servers)
        self.session = 0
        self.open: dict[int, PendingQuery] = {}
        self._unsent: list[int] = []
        self._flush = Timer(self._send)

    def ask(self, question: Question, consistency: Consistency, version: int, told: Told, applied: int = 0) -> int:
        """Put a question, as of `version` or not before it, to a server that has `applied` the log so far. Returns its
        number, by which it can be dropped."""
        number = self._context.next_number()
        names_it = consistency == Consistency.SNAPSHOT or isinstance(question, AtTime)
        least = 0 if names_it else max(self.session, version)
        self.open[number] = PendingQuery(question, consistency, version, least, told, applied)
        self._queue([number], 0)
        return number

    def drop(self, number: int) -> None:
        """The answer is needed no more."""
        self.open.pop(number, None)

    def saw(self, version: int) -> None:
        """The application has been shown this version."""
        self.session = max(self.session, version)

    def leave(self, server: Address) -> None:
        """This server is silent, busy or lost: ask the next one from now on."""
        if server == self.server:
            servers = self._servers
            self.server = servers[(servers.index(server) + 1) % len(servers) if server in servers else 0]

    def lost(self, server: Address) -> None:
        """This server can not be reached any more: what it was asked is asked of the next one at once."""
        self.leave(server)
        numbers = [number for number, asked in self.open.items() if asked.server == server]
        if numbers:
            self._queue(numbers, 0)

    def use(self, servers: tuple[Address, ...]) -> None:
        """These are the servers from now on."""
        self._servers = servers
        if self.server not in servers:
            self.lost(self.server)

    # ---- sending

    def _queue(self, numbers: list[int], wait: int) -> None:
        """Send these with all others that are put before the event loop comes round again."""
        self._unsent += numbers
        if self._flush.at is None:
            self._context.set_timer(self._flush, self._context.now + wait)

    def _send(self) -> None:
        numbers = [number for number in dict.fromkeys(self._unsent) if number in self.open]
        self._unsent.clear()
        if not numbers:
            return
        reads, server, attempts = [], self.server, []
        for number in numbers:
            asked = self.open[number]
            asked.attempt += 1
            asked.server = server
            attempts.append((number, asked.attempt))
            version = asked.version
            if asked.consistency != Consistency.SNAPSHOT:
                version = max(version, self.session)
            reads.append(Read(number, asked.consistency, version, asked.question, asked.applied))
        context = self._context
        context.send(server, Reads(tuple(reads)))
        context.set_timer(
            Timer(lambda: self._is_late(attempts, server)), context.now + context.config.answer_timeout_ns
        )

    def _is_late(self, attempts: list[tuple[int, int]], server: Address) -> None:
        """No answer for long: somebody else may have one. What was sent on meanwhile has an alarm of its own."""
        open_ = self.open
        late = [number for number, attempt in attempts if number in open_ and open_[number].attempt == attempt]
        if late:
            self.leave(server)
            self._queue(late, 0)

    # ---- answers

    def answers(self, message: Answers, sender: Address) -> None:
        for answered in message.answers:
            asked = self.open.pop(answered.number, None)
            if asked is not None:
                self._take(asked, answered)

    def _take(self, asked: PendingQuery, answered: Answered) -> None:
        _, version, result = answered
        snapshot = asked.consistency == Consistency.SNAPSHOT and not isinstance(asked.question, Outcome)
        if snapshot and version not in (0, asked.version):
            raise ProtocolViolation(f"DBS-5: version {asked.version} was asked for, and {version} was answered")
        if version:
            if version < asked.least:
                raise ProtocolViolation(f"DBS-4: version {version} after {asked.least}")
            self.saw(version)
        asked.told(version, result)

    def busy(self, message: Busy, sender: Address) -> None:
        numbers = [number for number in message.numbers if number in self.open and number not in self._unsent]
        if numbers:
            self.leave(sender)
            for number in numbers:
                self.open[number].attempt += 1
            self._queue(numbers, self._context.backoff(1))

    def check_invariants(self) -> None:
        assert not self._unsent or self._flush.at is not None, "reads wait, and nobody sends them"
