"""The client of a Corfu log: the core in the application's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from logdb.cores.context import ClientContext, PendingRequests, outcome_unknown
from logdb.cores.effects import Call, Disconnected, Effect, Event, Journal, Received, TimerFired
from logdb.cores.subscriptions import Subscriptions
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, NotOfThisShard, Trimmed
from logdb.log.corfu import messages
from logdb.log.corfu.client.appends import AppendClient
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.client.fills import FillClient
from logdb.log.corfu.client.reads import CompletePositions, ReadClient
from logdb.log.corfu.client.record_trims import RecordTrimClient
from logdb.log.corfu.client.streams import StreamClient
from logdb.log.corfu.client.subscription import LogSubscription
from logdb.log.corfu.client.tails import TailClient
from logdb.log.requests import ClientConfig

LATE = "no server answered before the deadline"


class CorfuClient:
    """A core that turns calls (`logdb/log/requests.py`) into messages, and answers into results. It needs no journal.

    The number by which units identify its records is drawn from `rng`: each incarnation needs another generator.
    """

    def __init__(self, config: ClientConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._context = context = ClientContext(config, rng)
        self._requests = requests = PendingRequests(context)
        self._auxiliary = auxiliary = AuxiliaryClient(context, requests, self._on_view)
        self._complete = CompletePositions()
        self._fills = FillClient(context, requests, auxiliary)
        self._tails = TailClient(context, requests, auxiliary)
        self._appends = AppendClient(context, requests, auxiliary, self._fills, self._complete)
        self._reads = ReadClient(context, requests, auxiliary, self._tails, self._fills, self._complete)
        self._record_trims = RecordTrimClient(context, requests, auxiliary, self._tails, self._fills)
        self._streams = StreamClient(context, requests, auxiliary, self._tails, self._fills)
        self._subscriptions = Subscriptions(context, self._subscription)
        self._calls: dict[type, Callable[[int, Any], None]] = {
            calls.Append: self._appends.append,
            calls.Outcome: self._appends.outcome,
            calls.Read: self._reads.read,
            calls.ReadStream: self._streams.read,
            calls.AtTime: self._at_time,
            calls.Subscribe: self._subscriptions.subscribe,
            calls.Next: self._subscriptions.next,
            calls.Expedite: self._subscriptions.expedite,
            calls.Close: self._subscriptions.close,
            calls.Tail: self._tail,
            calls.Oldest: self._oldest,
            calls.View: self._view,
            calls.Trim: self._trim,
            calls.Reconfigure: self._reconfigure,
            calls.SetPolicy: self._set_policy,
        }

    # ---- events

    def start(self, now: int) -> list[Effect]:
        """Nothing is requested before the application makes a call."""
        self._context.now = now
        return self._context.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
        self._context.now = now
        if type(event) is Received:
            message = event.message
            if type(message) is messages.Status:
                self._appends.found(message)
            else:
                self._requests.on_reply(message.request, message, event.sender)
        elif type(event) is Call:
            self._calls[type(event.request)](event.call, event.request)
        elif type(event) is TimerFired:
            self._context.fire_timers()
        elif type(event) is Disconnected:
            self._requests.on_disconnected(event.peer)
        return self._context.effects()

    def _on_view(self) -> None:
        self._fills.on_view()
        self._appends.on_view()
        self._reads.on_view()
        self._record_trims.on_view()
        self._streams.on_view()
        for subscription in self._subscriptions:
            subscription.on_view()

    def append_id(self, call: int) -> AppendId | None:
        """The id of an append of which something was sent; None if nothing was."""
        return self._appends.append_id(call)

    @property
    def number(self) -> int:
        """The number of this client in the ids of its appends."""
        return self._context.client

    def check_invariants(self) -> None:
        """Check that bytes are counted right. Raises AssertionError."""
        self._appends.check()
        for subscription in self._subscriptions:
            subscription.check()

    def _subscription(self, request: calls.Subscribe) -> LogSubscription | Exception:
        if request.shard is not None and request.shard < 1:
            return NotOfThisShard(request.gsn, request.shard)
        if request.gsn < self._auxiliary.oldest:
            return Trimmed(request.gsn, self._auxiliary.oldest)
        return LogSubscription(request, self._context, self._requests, self._auxiliary, self._fills, self._complete)

    # ---- questions

    def _ask(self, call: int, deadline: int | None, late: Exception) -> Callable[[object], None]:
        """Open a call. Returns the function that ends it."""
        context = self._context
        context.open(call, deadline, lambda: context.answer(call, late))
        return lambda result: context.answer(call, result)

    def _tail(self, call: int, request: calls.Tail) -> None:
        self._tails.tail(self._ask(call, request.deadline, TimeoutError(LATE)))

    def _oldest(self, call: int, request: calls.Oldest) -> None:
        answer = self._ask(call, request.deadline, TimeoutError(LATE))
        self._auxiliary.request_view(lambda view: answer(view.oldest))

    def _view(self, call: int, request: calls.View) -> None:
        answer = self._ask(call, request.deadline, TimeoutError(LATE))
        self._auxiliary.request_view(answer)

    def _at_time(self, call: int, request: calls.AtTime) -> None:
        answer = self._ask(call, request.deadline, TimeoutError(LATE))

        def found(gsn: int) -> None:
            answer(max(gsn, self._auxiliary.oldest - 1))

        self._tails.at_time(request.time, found, lambda: not self._context.is_open(call))

    def _trim(self, call: int, request: calls.Trim) -> None:
        """The tail only grows, so a GSN that it has reached can be trimmed to whenever the request is carried out."""
        answer = self._ask(call, request.deadline, outcome_unknown(LATE))

        def trimmed(response: messages.ChangeResponse) -> None:
            self._auxiliary.trimmed(response.result)
            answer(response.result)
            self._auxiliary.refresh()

        def found(last: int) -> None:
            if request.gsn > last + 1:
                answer(ValueError(f"cannot trim to {request.gsn}: the newest record is {last}"))
            elif self._context.is_open(call):
                self._auxiliary.change("Trim", (request.gsn,), trimmed)

        self._tails.tail(found)

    def _reconfigure(self, call: int, request: calls.Reconfigure) -> None:
        if isinstance(request.change, calls.TrimRecords):
            self._record_trims.trim(call, request.change.gsns, request.deadline)
            return
        answer = self._ask(call, request.deadline, outcome_unknown(LATE))
        change = request.change
        match change:
            case calls.AddShard(servers) | calls.AddStreamShard(servers):
                numbers = servers
            case calls.FinalizeShard() | calls.ReplaceServer() | calls.AddReplica():
                numbers = tuple(change)
            case _:
                answer(Unavailable(f"a log on Corfu does not offer {type(change).__name__}"))
                return

        def changed(response: messages.ChangeResponse) -> None:
            """Later calls of this client use the new projection."""
            if response.error:
                answer(Unavailable(response.error))
            else:
                self._auxiliary.request_view(lambda view: answer(response.result))

        self._auxiliary.change(type(change).__name__, numbers, changed)

    def _set_policy(self, call: int, request: calls.SetPolicy) -> None:
        self._ask(call, None, TimeoutError(LATE))(None)
        self._appends.policy = request.policy
