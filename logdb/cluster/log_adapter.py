"""The log client inside another core: its calls end in functions, its timers and messages go out with the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from logdb.cores.context import ClientContext
from logdb.cores.effects import Answer, Call, Effect, Event, Lost, Received, SetTimer, TimerFired
from logdb.log.engine import BuildLogClient
from logdb.log.requests import ClientConfig, Request

TIMER = "log"
"""The log client's one timer, by the name that the host knows it by."""


def nobody(_: Any) -> None:
    """Who waits for an answer that nobody waits for any more."""


class LogAdapter:
    """A log client that works at the desk of the core around it."""

    def __init__(self, build: BuildLogClient, config: ClientConfig, rng: Random, context: ClientContext) -> None:
        self.client = build(config, {}, Random(rng.getrandbits(64)))
        self._context = context
        self._then: dict[int, Callable[[Any], None]] = {}
        self._inbox: deque[Event] = deque()
        self._calls = 0
        self._is_busy = False

    def start(self) -> None:
        self._perform(self.client.start(self._context.now))

    def call(self, request: Request, then: Callable[[Any], None]) -> int:
        """Ask the log; `then` is given the result, which may be an exception, perhaps before this returns."""
        self._calls += 1
        number = self._calls
        self._then[number] = then
        self._feed(Call(number, request))
        return number

    def forget(self, number: int) -> None:
        """Nobody waits for this answer any more."""
        if number in self._then:
            self._then[number] = nobody

    def received(self, event: Received | Lost) -> None:
        """A message that may be for the log client, or that one of those whom it asks is lost."""
        self._feed(event)

    def ring(self) -> None:
        """The timer has run out."""
        self._feed(TimerFired(TIMER))

    def _feed(self, event: Event) -> None:
        """One event at a time: what asks for more while an answer is given gets its turn after that."""
        self._inbox.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._inbox:
                self._perform(self.client.handle(self._inbox.popleft(), self._context.now))
        finally:
            self._is_busy = False

    def _perform(self, effects: list[Effect]) -> None:
        out = self._context.out
        for effect in effects:
            if type(effect) is Answer:
                self._then.pop(effect.call)(effect.result)
            elif type(effect) is SetTimer:
                out.append(SetTimer(TIMER, effect.at))
            else:
                out.append(effect)

    def check_invariants(self) -> None:
        self.client.check_invariants()
