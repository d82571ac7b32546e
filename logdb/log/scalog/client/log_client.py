"""The client of a Scalog log: the core in the application's process (§3.2, client library).

`AppendClient` sends records to segments, `ReadClient` and each `LogSubscription` read them, `OrderingClient` sends
requests to the ordering layer, `Directory` has the log's configuration, and `ClientContext` is shared by all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from logdb.cores.context import ClientContext, PendingRequests, outcome_unknown
from logdb.cores.effects import Address, Call, Disconnected, Effect, Event, Journal, Received, TimerFired
from logdb.cores.subscriptions import Subscriptions
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, Trimmed
from logdb.log.requests import ClientConfig
from logdb.log.scalog import messages
from logdb.log.scalog.client.appends import AppendClient
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.ordering_client import OrderingClient
from logdb.log.scalog.client.read_client import ReadClient
from logdb.log.scalog.client.subscription import LogSubscription


class LogClient:
    """A core that turns calls (`logdb/log/requests.py`) into messages, and replies into answers to the calls.

    It has no journal. Its number, which identifies its records at the servers, is drawn from `rng`: the host gives each
    incarnation a new generator, or one that continues.
    """

    def __init__(self, config: ClientConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._context = context = ClientContext(config, rng)
        self._directory = Directory()
        self._requests = PendingRequests(context)
        self._ordering_client = OrderingClient(context, self._requests, self._directory, self._view_changed)
        self._appends = AppendClient(context, self._directory, self._ordering_client)
        self._reads = ReadClient(context, self._directory, self._requests, self._ordering_client)
        self._subscriptions = Subscriptions(context, self._subscription)
        self._calls: dict[type, Callable[[int, Any], None]] = {
            calls.Append: self._appends.append,
            calls.Outcome: self._appends.outcome,
            calls.Read: self._reads.read,
            calls.Subscribe: self._subscriptions.subscribe,
            calls.Next: self._subscriptions.next,
            calls.Expedite: self._subscriptions.expedite,
            calls.Close: self._subscriptions.close,
            calls.AtTime: self._reads.at_time,
            calls.Tail: self._tail,
            calls.Oldest: self._oldest,
            calls.View: self._view,
            calls.Trim: self._trim,
            calls.Reconfigure: self._reconfigure,
            calls.SetPolicy: self._set_policy,
        }
        own: dict[type, Callable[[Any, Address], None]] = {
            messages.Appended: self._appends.on_appended,
            messages.Rejected: self._appends.on_rejected,
            messages.AppendStatus: self._appends.on_status,
        }
        self._messages = own
        self._answers = {
            messages.ReadResponse,
            messages.ReadFailed,
            messages.Pulled,
            messages.TimeResponse,
            messages.ViewResponse,
            messages.TailResponse,
            messages.NotLeader,
        }

    # ---- events

    def start(self, now: int) -> list[Effect]:
        """Request the view. Returns the effects."""
        self._context.now = now
        self._ordering_client.refresh()
        return self._context.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Process an event. Returns the effects. Raises ProtocolViolation."""
        self._context.now = now
        if type(event) is Received:
            self._received(event.message, event.sender)
        elif type(event) is Call:
            self._calls[type(event.request)](event.call, event.request)
        elif type(event) is TimerFired:
            self._context.fire_timers()
        elif type(event) is Disconnected:
            self._requests.on_disconnected(event.peer)
        return self._context.effects()

    def _received(self, message: Any, sender: Address) -> None:
        kind = type(message)
        if kind in self._messages:
            if message.client == self._context.client:
                self._messages[kind](message, sender)
            elif kind is messages.AppendStatus:
                self._appends.on_foreign_status(message)
        elif kind in self._answers:
            self._requests.on_reply(message.request, message, sender)
        elif kind is messages.ChangeResponse:
            self._requests.on_reply(message.id, message, sender)

    def append_id(self, call: int) -> AppendId | None:
        """The id of an open append, for `Outcome`; None if none of its records was sent."""
        return self._appends.id_of(call)

    def _view_changed(self) -> None:
        self._appends.view_changed()
        for subscription in self._subscriptions:
            subscription.advance()

    @property
    def number(self) -> int:
        """The number of this client in the ids of its appends."""
        return self._context.client

    def check_invariants(self) -> None:
        """The client's part of SCA-11 and SCA-13, and its byte counters. Raises AssertionError."""
        self._appends.check_invariants()
        for subscription in self._subscriptions:
            subscription.check_invariants()

    def _subscription(self, request: calls.Subscribe) -> LogSubscription | Exception:
        if request.gsn < self._directory.oldest:
            return Trimmed(request.gsn, self._directory.oldest)
        return LogSubscription(request, self._context, self._directory, self._requests, self._ordering_client)

    # ---- calls answered by the ordering layer

    def _request(self, call: int, deadline: int | None, send: Callable[[], int], late: Exception) -> None:
        """Open a call that is one request to the ordering layer; `late` is its result at the deadline."""
        number = 0

        def expired() -> None:
            self._requests.cancel(number)
            self._context.answer(call, late)

        self._context.open(call, deadline, expired)
        number = send()

    def _tail(self, call: int, request: calls.Tail) -> None:
        def on_tail(tail: messages.TailResponse) -> None:
            self._context.answer(call, tail.last)

        self._request(call, request.deadline, lambda: self._ordering_client.tail(on_tail), _late())

    def _oldest(self, call: int, request: calls.Oldest) -> None:
        def on_tail(tail: messages.TailResponse) -> None:
            self._context.answer(call, tail.oldest)

        self._request(call, request.deadline, lambda: self._ordering_client.tail(on_tail), _late())

    def _view(self, call: int, request: calls.View) -> None:
        def on_tail(tail: messages.TailResponse) -> None:
            self._context.answer(call, self._directory.view)

        self._request(call, request.deadline, lambda: self._ordering_client.confirm(on_tail), _late())

    def _trim(self, call: int, request: calls.Trim) -> None:
        """The tail only grows, so a trim to a GSN that it has reached is valid whenever it is carried out."""
        change = messages.TrimLog(request.gsn)

        def on_response(answer: messages.ChangeResponse) -> None:
            if answer.error:
                self._context.answer(call, ValueError(answer.error))
            else:
                self._directory.advance_oldest(answer.result)
                self._context.answer(call, answer.result)

        late = outcome_unknown("the ordering layer did not answer before the deadline")
        self._request(call, request.deadline, lambda: self._ordering_client.change(change, on_response), late)

    def _reconfigure(self, call: int, request: calls.Reconfigure) -> None:
        def on_response(answer: messages.ChangeResponse) -> None:
            if answer.error:
                self._context.answer(call, Unavailable(answer.error))
            else:
                self._ordering_client.refresh()
                self._context.answer(call, answer.result)

        change = request.change
        if not isinstance(change, messages.Reconfiguration):
            self._context.open(call, None, lambda: None)
            self._context.answer(call, Unavailable(f"a log on Scalog does not offer {type(change).__name__}"))
            return
        late = outcome_unknown("the ordering layer did not answer before the deadline")
        self._request(call, request.deadline, lambda: self._ordering_client.change(change, on_response), late)

    def _set_policy(self, call: int, request: calls.SetPolicy) -> None:
        self._context.open(call, None, lambda: None)
        self._appends.policy = request.policy
        self._context.answer(call, None)


def _late() -> TimeoutError:
    return TimeoutError("the ordering layer did not answer before the deadline")
