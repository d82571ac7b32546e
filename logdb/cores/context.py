"""The state shared by the parts of a client core: time, effects, timers, open calls and pending requests."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from logdb.cores.effects import Address, Answer, Effect, Send, SetTimer
from logdb.log.contract import LogFailed
from logdb.log.requests import ClientConfig

CLIENT_TIMER = "agenda"
"""The name of the host timer that serves all timers of a client."""
MIN_SWEEP_TIMERS = 1_000
"""The minimum size of the heap of timers at which discarded ones are removed."""


def _do_nothing() -> None:
    """The callback of a discarded timer."""


class Timer:
    """Calls `callback` once, at the time to which it was last set (`at`, ns; None: not set). `queued_at`: the time of
    its entry in the heap of the context."""

    __slots__ = ("at", "callback", "queued_at")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.at: int | None = None
        self.queued_at: int | None = None


class ClientContext:
    """The state shared by all parts of one client. `now` and `out` are the time and the effects of the event that is
    being handled. Request numbers start at a random number, so that a response to an earlier client at the same address
    matches no request.

    Timers are kept in a heap. A timer that is set to a later time or discarded keeps its old entry, which is checked
    when its time comes or when the heap has doubled: most calls end long before their deadlines. Only a timer that is
    set to an earlier time gets a second entry. The host has one timer for all of them.
    """

    def __init__(self, config: ClientConfig, rng: Random) -> None:
        self.config, self.rng = config, rng
        self.client = rng.getrandbits(64)
        self.now = 0
        self.out: list[Effect] = []
        self._heap: list[tuple[int, int, Timer]] = []
        self._swept_at = MIN_SWEEP_TIMERS
        self._serial = rng.getrandbits(62)
        self._timer: int | None = None
        self._calls: dict[int, Timer | None] = {}

    # ---- messages and time

    def send(self, to: Address, message: Any) -> None:
        self.out.append(Send(to, message))

    def next_number(self) -> int:
        """A request number that this client has not used."""
        self._serial += 1
        return self._serial

    def backoff(self, attempts: int) -> int:
        """The delay in ns after that many attempts: exponential, the upper half random."""
        config = self.config
        bound = min(config.backoff_ns << min(attempts, 20), config.max_backoff_ns)
        return bound // 2 + self.rng.randrange(bound // 2 + 1)

    def set_timer(self, timer: Timer, at: int) -> None:
        """Set `timer` to `at` (ns), instead of the time it was set to before."""
        timer.at = at
        if timer.queued_at is None or at < timer.queued_at:
            timer.queued_at = at
            self._serial += 1
            if len(self._heap) >= self._swept_at:
                self._sweep()
            heappush(self._heap, (at, self._serial, timer))

    def discard_timer(self, timer: Timer) -> None:
        """Cancel `timer` for good. Releases its callback at once: the entry left in the heap is small and part of no
        reference cycle."""
        timer.at, timer.callback = None, _do_nothing

    def _sweep(self) -> None:
        """Remove the entries that `fire_timers` would skip."""
        heap = self._heap
        for _, _, timer in heap:
            if timer.at is None:
                timer.queued_at = None
        heap[:] = [entry for entry in heap if entry[2].queued_at == entry[0]]
        heapify(heap)
        self._swept_at = max(MIN_SWEEP_TIMERS, 2 * len(heap))

    def fire_timers(self) -> None:
        """Handle the expiry of the host's timer: call every timer that is due."""
        self._timer = None
        heap, now = self._heap, self.now
        while heap and heap[0][0] <= now:
            at, _, timer = heappop(heap)
            if timer.queued_at != at:
                continue
            timer.queued_at = None
            if timer.at is None:
                continue
            if timer.at > now:
                self.set_timer(timer, timer.at)
            else:
                timer.at = None
                timer.callback()

    def effects(self) -> list[Effect]:
        """Return the effects of the event and clear `out`; includes `SetTimer` if the host's timer must expire
        earlier."""
        heap = self._heap
        while heap and (heap[0][2].queued_at != heap[0][0] or heap[0][2].at is None):
            timer = heappop(heap)[2]
            if timer.at is None:
                timer.queued_at = None
        if heap and (self._timer is None or heap[0][0] < self._timer):
            self._timer = heap[0][0]
            self.out.append(SetTimer(CLIENT_TIMER, self._timer))
        out, self.out = self.out, []
        return out

    # ---- calls

    def open(self, call: int, deadline: int | None, expired: Callable[[], None]) -> None:
        """Register a call of the application, which `answer` ends. `expired` is called at its deadline (ns) and must
        end it."""
        timer = None
        if deadline is not None:
            timer = Timer(expired)
            self.set_timer(timer, max(deadline, self.now))
        self._calls[call] = timer

    def extend_deadline(self, call: int, deadline: int) -> None:
        """Change the deadline of a call; no effect on a call that was opened without one."""
        timer = self._calls.get(call)
        if timer is not None:
            self.set_timer(timer, deadline)

    def answer(self, call: int, result: Any) -> None:
        """End a call; no effect if it has ended."""
        if call in self._calls:
            timer = self._calls.pop(call)
            if timer is not None:
                self.discard_timer(timer)
            self.out.append(Answer(call, result))

    def is_open(self, call: int) -> bool:
        return call in self._calls


class PendingRequest:
    """A request that is sent again until it is answered or cancelled. `sent_to`: the server that has not answered the
    last attempt, None if there is none."""

    __slots__ = ("attempts", "choose_server", "extra_timeout_ns", "message", "on_reply", "sent_to", "timer")

    def __init__(self, message: Any, choose_server: ChooseServer, on_reply: OnReply, extra_timeout_ns: int) -> None:
        self.message, self.choose_server, self.on_reply = message, choose_server, on_reply
        self.extra_timeout_ns = extra_timeout_ns
        self.attempts = 0
        self.sent_to: Address | None = None
        self.timer: Timer


ChooseServer = Callable[[int], Address | None]
"""The server for the n-th attempt, from 0; None: no server is available now, try again after a delay."""

OnReply = Callable[[Any, Address], int | None]
"""Handles a reply: returns None if the request is done, else the delay in ns before it is sent again."""


class PendingRequests:
    """The pending requests of a client by their numbers, which the replies carry."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._pending: dict[int, PendingRequest] = {}

    def send(
        self, number: int, message: Any, choose_server: ChooseServer, on_reply: OnReply, extra_timeout_ns: int = 0
    ) -> None:
        """Send `message`, and again after each timeout. `extra_timeout_ns`: added to the timeout of the
        configuration."""
        request = PendingRequest(message, choose_server, on_reply, extra_timeout_ns)
        request.timer = Timer(lambda: self._attempt(number))
        self._pending[number] = request
        self._attempt(number)

    def is_open(self, number: int) -> bool:
        return number in self._pending

    def replace(self, number: int, message: Any) -> None:
        """Send `message`, with the same number, instead of the first one: now to the server that has it, and in later
        attempts. No effect if the request is not pending."""
        request = self._pending.get(number)
        if request is not None:
            request.message = message
            if request.sent_to is not None:
                self._context.send(request.sent_to, message)

    def cancel(self, number: int) -> None:
        """Stop sending the request. No effect if it is not pending."""
        request = self._pending.pop(number, None)
        if request is not None:
            request.timer.at = None

    def on_reply(self, number: int, message: Any, sender: Address) -> None:
        """Handle a reply; a late one, to a request that is not pending, is ignored."""
        request = self._pending.get(number)
        if request is None:
            return
        request.sent_to = None
        delay = request.on_reply(message, sender)
        if number not in self._pending:
            return
        if delay is None:
            self.cancel(number)
        elif delay == 0:
            self._attempt(number)
        else:
            self._context.set_timer(request.timer, self._context.now + delay)

    def on_disconnected(self, peer: Address) -> None:
        """Send again every request that this peer has not answered."""
        for number, request in list(self._pending.items()):
            if request.sent_to == peer and number in self._pending:
                self._attempt(number)

    def _attempt(self, number: int) -> None:
        request = self._pending[number]
        address = request.choose_server(request.attempts)
        if number not in self._pending:
            return
        request.sent_to = address
        if address is not None:
            self._context.send(address, request.message)
        request.attempts += 1
        context = self._context
        timeout = context.config.answer_timeout_ns + request.extra_timeout_ns
        delay = timeout if address is not None else context.backoff(request.attempts)
        context.set_timer(request.timer, context.now + delay)


def outcome_unknown(reason: str) -> LogFailed:
    """The error of a call that may or may not have been carried out."""
    return LogFailed(f"the outcome is unknown: {reason}")
