"""What the parts of a client share: the time, what goes out, alarms, open calls, and questions put until answered."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from logdb.cores.effects import Address, Answer, Effect, Send, SetTimer
from logdb.log.contract import LogFailed
from logdb.log.requests import ClientConfig

AGENDA = "agenda"
"""The one timer of a client."""
FEW_ALARMS = 1_000
"""A heap that is no longer is not worth being swept."""


def _nothing() -> None:
    """What an alarm does that was dismissed."""


class Timer:
    """Rings once, at the time it was last set to."""

    __slots__ = ("at", "queued", "ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.at: int | None = None
        self.queued: int | None = None


class ClientContext:
    """The state that all parts of one client work at. `now` and `out` belong to the event that is being handled.
    Numbers of questions begin anywhere, so that an answer to an earlier client at this address answers nothing.

    Alarms lie in a heap, each at most once but for those that were set earlier than before: one that was set later or
    cancelled is looked at when its old time comes, or when the heap has doubled, since deadlines are far and what they
    are for mostly ends long before. The host has one timer for all of them.
    """

    def __init__(self, config: ClientConfig, rng: Random) -> None:
        self.config, self.rng = config, rng
        self.client = rng.getrandbits(64)
        self.now = 0
        self.out: list[Effect] = []
        self._heap: list[tuple[int, int, Timer]] = []
        self._swept_at = FEW_ALARMS
        self._serial = rng.getrandbits(62)
        self._timer: int | None = None
        self._calls: dict[int, Timer | None] = {}

    # ---- messages and time

    def send(self, to: Address, message: Any) -> None:
        self.out.append(Send(to, message))

    def number(self) -> int:
        """A number that this client has not used."""
        self._serial += 1
        return self._serial

    def backoff(self, attempts: int) -> int:
        """How long to wait after so many attempts: doubling, half of it drawn."""
        config = self.config
        bound = min(config.backoff_ns << min(attempts, 20), config.max_backoff_ns)
        return bound // 2 + self.rng.randrange(bound // 2 + 1)

    def set(self, timer: Timer, at: int) -> None:
        timer.at = at
        if timer.queued is None or at < timer.queued:
            timer.queued = at
            self._serial += 1
            if len(self._heap) >= self._swept_at:
                self._sweep()
            heappush(self._heap, (at, self._serial, timer))

    def dismiss(self, timer: Timer) -> None:
        """It never rings again, and what it would have done is forgotten: what waits for its time is little, and in
        no cycle for the collector."""
        timer.at, timer.ring = None, _nothing

    def _sweep(self) -> None:
        """Drop all that would be passed over."""
        heap = self._heap
        for _, _, timer in heap:
            if timer.at is None:
                timer.queued = None
        heap[:] = [entry for entry in heap if entry[2].queued == entry[0]]
        heapify(heap)
        self._swept_at = max(FEW_ALARMS, 2 * len(heap))

    def ring(self) -> None:
        """The timer has run out."""
        self._timer = None
        heap, now = self._heap, self.now
        while heap and heap[0][0] <= now:
            at, _, timer = heappop(heap)
            if timer.queued != at:
                continue
            timer.queued = None
            if timer.at is None:
                continue
            if timer.at > now:
                self.set(timer, timer.at)
            else:
                timer.at = None
                timer.ring()

    def effects(self) -> list[Effect]:
        """All that has to be done about the event; the timer is set if it must ring earlier."""
        heap = self._heap
        while heap and (heap[0][2].queued != heap[0][0] or heap[0][2].at is None):
            timer = heappop(heap)[2]
            if timer.at is None:
                timer.queued = None
        if heap and (self._timer is None or heap[0][0] < self._timer):
            self._timer = heap[0][0]
            self.out.append(SetTimer(AGENDA, self._timer))
        out, self.out = self.out, []
        return out

    # ---- calls

    def open(self, call: int, deadline: int | None, expired: Callable[[], None]) -> None:
        """A call of the application, to be ended by `answer`. At its deadline, `expired` does that."""
        timer = None
        if deadline is not None:
            timer = Timer(expired)
            self.set(timer, max(deadline, self.now))
        self._calls[call] = timer

    def prolong(self, call: int, deadline: int) -> None:
        """A call that was opened with a deadline has another one."""
        timer = self._calls.get(call)
        if timer is not None:
            self.set(timer, deadline)

    def answer(self, call: int, result: Any) -> None:
        """End a call, unless it has ended."""
        if call in self._calls:
            timer = self._calls.pop(call)
            if timer is not None:
                self.dismiss(timer)
            self.out.append(Answer(call, result))

    def is_open(self, call: int) -> bool:
        return call in self._calls


class Question:
    """A message that is sent again, here and there, until it is answered or dropped."""

    __slots__ = ("answered", "asked", "attempts", "message", "more_ns", "timer", "where")

    def __init__(self, message: Any, where: Where, answered: Answered, more_ns: int) -> None:
        self.message, self.where, self.answered, self.more_ns = message, where, answered, more_ns
        self.attempts = 0
        self.asked: Address | None = None
        self.timer: Timer


Where = Callable[[int], Address | None]
"""Whom to ask at the n-th attempt, from 0; None: nobody now, ask me again later."""

Answered = Callable[[Any, Address], int | None]
"""Takes an answer: None if the question is settled, else how long to wait before it is put again (ns)."""


class Questions:
    """The open questions, by their numbers, which the answers carry."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._open: dict[int, Question] = {}

    def ask(self, number: int, message: Any, where: Where, answered: Answered, more_ns: int = 0) -> None:
        """`more_ns`: so much longer than usual the answer may take."""
        question = Question(message, where, answered, more_ns)
        question.timer = Timer(lambda: self._put(number))
        self._open[number] = question
        self._put(number)

    def is_open(self, number: int) -> bool:
        return number in self._open

    def drop(self, number: int) -> None:
        """The answer is needed no more. Harmless if there is no such question."""
        question = self._open.pop(number, None)
        if question is not None:
            question.timer.at = None

    def answer(self, number: int, message: Any, sender: Address) -> None:
        """An answer has come, perhaps to a question that is long forgotten."""
        question = self._open.get(number)
        if question is None:
            return
        question.asked = None
        wait = question.answered(message, sender)
        if number not in self._open:
            return
        if wait is None:
            self.drop(number)
        elif wait == 0:
            self._put(number)
        else:
            self._context.set(question.timer, self._context.now + wait)

    def lost(self, peer: Address) -> None:
        """What this peer was asked and has not answered is put again."""
        for number, question in list(self._open.items()):
            if question.asked == peer and number in self._open:
                self._put(number)

    def _put(self, number: int) -> None:
        question = self._open[number]
        address = question.where(question.attempts)
        if number not in self._open:
            return
        question.asked = address
        if address is not None:
            self._context.send(address, question.message)
        question.attempts += 1
        context = self._context
        timeout = context.config.answer_timeout_ns + question.more_ns
        wait = timeout if address is not None else context.backoff(question.attempts)
        context.set(question.timer, context.now + wait)


def unknown(what: str) -> LogFailed:
    """The error of what may or may not have been done."""
    return LogFailed(f"the outcome is unknown: {what}")
