"""The log client inside another core: its calls end in callbacks, its effects are added to those of the core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from logdb.cores.context import ClientContext
from logdb.cores.effects import Answer, Call, Disconnected, Effect, Event, Received, SetTimer, TimerFired
from logdb.log.engine import BuildLogClient
from logdb.log.requests import ClientConfig, Request

TIMER = "log"
"""The log client's one timer, by the name that the host uses for it."""


def ignore_result(_: Any) -> None:
    """The callback of a request whose result is not needed."""


class LogAdapter:
    """A log client that shares the context of the core around it."""

    def __init__(self, build: BuildLogClient, config: ClientConfig, rng: Random, context: ClientContext) -> None:
        self.client = build(config, {}, Random(rng.getrandbits(64)))
        self._context = context
        self._callbacks: dict[int, Callable[[Any], None]] = {}
        self._inbox: deque[Event] = deque()
        self._calls = 0
        self._is_busy = False

    def start(self) -> None:
        """Start the log client."""
        self._perform(self.client.start(self._context.now))

    def call(self, request: Request, on_result: Callable[[Any], None]) -> None:
        """Send a request to the log. `on_result` takes the result, which may be an exception, maybe before this
        returns."""
        self._calls += 1
        self._callbacks[self._calls] = on_result
        self._feed(Call(self._calls, request))

    def received(self, event: Received | Disconnected) -> None:
        """Pass on a message that may be for the log client, or the loss of a server that it may have asked."""
        self._feed(event)

    def ring(self) -> None:
        """The log client's timer has fired."""
        self._feed(TimerFired(TIMER))

    def _feed(self, event: Event) -> None:
        """Handle one event at a time: a call made by a callback is handled after the event that led to it."""
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
                self._callbacks.pop(effect.call)(effect.result)
            elif type(effect) is SetTimer:
                out.append(SetTimer(TIMER, effect.at))
            else:
                out.append(effect)

    def check_invariants(self) -> None:
        """Check the invariants of the log client. Raises AssertionError."""
        self.client.check_invariants()
