"""Contended keys at a mapping server: which transactions to warn of them, and whose turn it is at them.

Where transactions of several clients change one key, the most frequent writer wins nearly always: it reads what it has
written itself (`txn/speculation.py`), and the others read what is outdated when their commit records are ordered. The
log shows this: a commit record was refused because of the key, and other clients commit to it. All servers see the same
log, so any of them can warn a client with the verdict of its transaction.

A client that was refused or warned takes turns (`Turn`): one client at a time begins with the key. All clients that
agree on the servers request the turns at a key from the same one. A turn is for some transactions of the client, and
ends with the last of their commit records, or after `TURN_NS`. A read waits for its turn for about `WAIT_NS` at most.

Nothing here decides anything: a turn that is given twice, or lost with its server, costs only attempts. So it is memory
of one server, with the server's own time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from logdb.cluster.mapping_server.answer_queue import AnswerQueue
from logdb.cluster.mapping_server.cold_queue import ParkedRead
from logdb.cluster.mapping_server.replica import DecidedCommit
from logdb.cluster.messages import TURN_NS, EndTurn, Entries, Turn
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import MILLISECOND, SECOND, Address
from logdb.store.records import Commit, TxnId
from logdb.txn.validation import Reason, Verdict

CONTENDED_NS: Final = SECOND
"""How long clients are warned of a key after the last refusal or change of its writer."""
WAIT_NS: Final = 250 * MILLISECOND
"""A read that has waited this long when a turn ends is answered without one: before its client asks another server."""
MAX_CONTENDED: Final = 10_000
MAX_WAITING: Final = 10_000
"""Maximum number of contended keys, and of reads that wait for a turn."""


@dataclass(slots=True)
class CurrentTurn:
    """The turn of `client` at a key, for `left` more transactions and until `ends_at`. `waiting`: the reads that wait
    for the next ones."""

    client: int
    left: int
    ends_at: int
    waiting: deque[ParkedRead] = field(default_factory=deque)


class ContentionQueue:
    """`answers`: those of the server. `given`: the number of turns given. `waiting`: of reads that wait for a turn."""

    def __init__(self, context: ClientContext, answers: AnswerQueue) -> None:
        self._context, self.answers = context, answers
        self.given = self.waiting = 0
        # By contended key: until when, and the client of the last commit record that writes it.
        self._contended: dict[bytes, tuple[int, int]] = {}
        # By key, in the order in which they end.
        self._turns: dict[bytes, CurrentTurn] = {}
        self._expiry = Timer(self._expire)

    @property
    def is_awaited(self) -> bool:
        """Whether a commit record may end a turn."""
        return bool(self._turns)

    # ---- what the log shows

    def on_decided(self, decided: Iterable[DecidedCommit]) -> frozenset[TxnId]:
        """Commits were decided. Returns those with which another client contends for a key that they write."""
        warned = set()
        for commit, verdict in decided:
            if verdict.reason is Reason.CONFLICT or verdict.reason is Reason.CONDITION:
                self._mark_contended(commit, verdict)
            if self._contended and self._has_rival(commit):
                warned.add(TxnId(commit.client, commit.sequence))
            if self._turns and verdict.reason is not Reason.DUPLICATE:
                self._count(commit)
        return frozenset(warned)

    def _mark_contended(self, commit: Commit, verdict: Verdict) -> None:
        keys = [commit.conditions[position].key for position in verdict.failed]
        if verdict.key and not verdict.in_range:
            keys.append(verdict.key)
        if len(self._contended) >= MAX_CONTENDED:
            self._contended.clear()
        for key in keys:
            self._contended[key] = self._context.now + CONTENDED_NS, commit.client

    def _has_rival(self, commit: Commit) -> bool:
        """Whether the last commit record that writes one of its contended keys is of another client."""
        found = False
        for key in commit.writes:
            contended = self._contended.get(key)
            if contended is None:
                continue
            until, writer = contended
            if until < self._context.now:
                del self._contended[key]
            elif writer != commit.client:
                self._contended[key] = self._context.now + CONTENDED_NS, commit.client
                found = True
        return found

    # ---- turns

    def extend(self, parked: ParkedRead) -> bool:
        """Whether the turn of the read's client goes on with its transactions, as no other client waits. The answer is
        empty: these transactions speculate on the writes of those before them."""
        question = parked.read.question
        assert isinstance(question, Turn)
        turn = self._turns.get(question.key)
        if turn is None or turn.client != question.client or turn.waiting or not question.may_go_on:
            return False
        turn.left += question.transactions
        turn.ends_at = self._context.now + TURN_NS
        self._turns[question.key] = self._turns.pop(question.key)
        self.answers.put(parked, 0, Entries(()))
        return True

    def enter(self, parked: ParkedRead) -> None:
        """Answer a read of a `Turn` when it is its client's turn."""
        assert isinstance(parked.read.question, Turn)
        turn = self._turns.get(parked.read.question.key)
        if turn is None:
            self._give(parked, deque())
        elif self.waiting >= MAX_WAITING:
            self.answers.answer(parked)
        else:
            turn.waiting.append(parked)
            self.waiting += 1

    def on_end_turn(self, message: EndTurn, sender: Address) -> None:
        """Some transactions of a turn ended without a commit record."""
        turn = self._turns.get(message.key)
        if turn is not None and turn.client == message.client:
            self._use(message.key, turn, message.transactions)

    def _count(self, commit: Commit) -> None:
        """A commit record uses the turns of its client at the keys that it reads or writes."""
        keys = (*commit.writes, *commit.reads, *[condition.key for condition in commit.conditions])
        for key in dict.fromkeys(keys):
            turn = self._turns.get(key)
            if turn is not None and turn.client == commit.client:
                self._use(key, turn, 1)

    def _use(self, key: bytes, turn: CurrentTurn, transactions: int) -> None:
        turn.left -= transactions
        if turn.left <= 0:
            self._pass_on(key)

    def _give(self, parked: ParkedRead, waiting: deque[ParkedRead]) -> None:
        question = parked.read.question
        assert isinstance(question, Turn)
        self.given += 1
        ends_at = self._context.now + TURN_NS
        self._turns[question.key] = CurrentTurn(question.client, question.transactions, ends_at, waiting)
        if self._expiry.at is None:
            self._context.set_timer(self._expiry, ends_at)
        self.answers.answer(parked)

    def _pass_on(self, key: bytes) -> None:
        """End the turn at a key, and give the next one. Reads that have waited too long are answered without one."""
        waiting, late = self._turns.pop(key).waiting, self._context.now - WAIT_NS
        while waiting:
            parked = waiting.popleft()
            self.waiting -= 1
            if parked.received_at > late:
                self._give(parked, waiting)
                return
            self.answers.answer(parked)

    def _expire(self) -> None:
        now = self._context.now
        while self._turns and next(iter(self._turns.values())).ends_at <= now:
            self._pass_on(next(iter(self._turns)))
        if self._turns:
            self._context.set_timer(self._expiry, next(iter(self._turns.values())).ends_at)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self._turns or self._expiry.at is not None, "turns never end"
        assert self.waiting == sum(len(turn.waiting) for turn in self._turns.values()), "reads wait for no turn"
