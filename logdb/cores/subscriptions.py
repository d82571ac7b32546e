"""Subscriptions in a client core, as far as they are the same for every engine: calls that wait for the next batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from logdb.cores.context import ClientContext
from logdb.log import requests as calls
from logdb.log.contract import Batch


class Subscription(ABC):
    """One subscription. `_waiting`: the calls that wait for a batch, in the order of the batches that they get."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._waiting: deque[int] = deque()

    @abstractmethod
    def advance(self) -> None:
        """Deliver the next batches to waiting calls, and request more."""

    @abstractmethod
    def _next_batch(self) -> Batch | Exception | None:
        """The next records, about a batch at most; None if they have not arrived yet."""

    def next(self, call: int, deadline: int | None) -> None:
        """The application waits for a batch; after `deadline` (ns) it gets None."""

        def expired() -> None:
            if call in self._waiting:
                self._waiting.remove(call)
            self._context.answer(call, None)

        self._context.open(call, deadline, expired)
        self._waiting.append(call)
        self.advance()

    def expedite(self) -> bool:
        """Get the next records as soon as they are ordered. Returns whether anything had to be done for that."""
        return False

    def close(self) -> None:
        """End the waiting calls."""
        for call in self._waiting:
            self._context.answer(call, StopIteration())
        self._waiting.clear()

    def _deliver(self) -> None:
        while self._waiting and (batch := self._next_batch()) is not None:
            self._context.answer(self._waiting.popleft(), batch)


AnySubscription = TypeVar("AnySubscription", bound=Subscription)


class Subscriptions(Generic[AnySubscription]):
    """All subscriptions of a client, by the number of the call that opened them; iterated, the subscriptions.

    `begin` opens a subscription, or returns the reason why it cannot.
    """

    def __init__(self, context: ClientContext, begin: Callable[[calls.Subscribe], AnySubscription | Exception]) -> None:
        self._context, self._begin = context, begin
        self._active: dict[int, AnySubscription] = {}

    def __iter__(self) -> Iterator[AnySubscription]:
        return iter(list(self._active.values()))

    def subscribe(self, call: int, request: calls.Subscribe) -> None:
        """The application follows the log."""
        self._context.open(call, None, lambda: None)
        begun = self._begin(request)
        if isinstance(begun, Exception):
            self._context.answer(call, begun)
        else:
            self._active[call] = begun
            self._context.answer(call, call)

    def next(self, call: int, request: calls.Next) -> None:
        """The application waits for a batch."""
        active = self._active.get(request.subscription)
        if active is not None:
            active.next(call, request.deadline)
        else:
            self._context.open(call, None, lambda: None)
            self._context.answer(call, StopIteration())

    def expedite(self, call: int, request: calls.Expedite) -> None:
        """The application awaits the next batch."""
        self._context.open(call, None, lambda: None)
        active = self._active.get(request.subscription)
        if active is not None:
            active.expedite()
        self._context.answer(call, None)

    def close(self, call: int, request: calls.Close) -> None:
        """The application ends a subscription."""
        self._context.open(call, None, lambda: None)
        active = self._active.pop(request.subscription, None)
        if active is not None:
            active.close()
        self._context.answer(call, None)
