"""The client of a Ziplog log: the core in the application's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from logdb.cores.context import ClientContext, PendingRequests, outcome_unknown
from logdb.cores.effects import Address, Call, Disconnected, Effect, Event, Journal, Received, TimerFired
from logdb.cores.subscriptions import Subscriptions
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, NotOfThisShard, Trimmed
from logdb.log.requests import ClientConfig
from logdb.log.ziplog import messages
from logdb.log.ziplog.client.frontiers import Floor, FrontierClient
from logdb.log.ziplog.client.inserts import InsertClient
from logdb.log.ziplog.client.mms_client import MmsClient
from logdb.log.ziplog.client.reads import ReadClient
from logdb.log.ziplog.client.subscription import LogSubscription
from logdb.log.ziplog.epochs import last_at

LATE = "no server answered before the deadline"


class ZiplogClient:
    """A core that turns calls (`logdb/log/requests.py`) into messages, and answers into results. It needs no journal.

    Its number, by which servers know its records, is drawn from `rng`: each incarnation needs another generator.
    """

    def __init__(self, config: ClientConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._context = context = ClientContext(config, rng)
        self._requests = requests = PendingRequests(context)
        self._mms = MmsClient(context, requests, self._on_view)
        self._frontiers = FrontierClient(context, requests, self._mms)
        self._inserts = InsertClient(context, self._mms, self._frontiers)
        self._reads = ReadClient(context, self._mms, self._frontiers, requests)
        self._subscriptions = Subscriptions(context, self._subscription)
        self._calls: dict[type, Callable[[int, Any], None]] = {
            calls.Append: self._inserts.append,
            calls.Outcome: self._inserts.outcome,
            calls.Read: self._reads.read,
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
        """Nothing is requested before the application asks."""
        self._context.now = now
        return self._context.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
        self._context.now = now
        if type(event) is Received:
            self._received(event.message, event.sender)
        elif type(event) is Call:
            self._calls[type(event.request)](event.call, event.request)
        elif type(event) is TimerFired:
            self._context.fire_timers()
        elif type(event) is Disconnected:
            self._requests.on_disconnected(event.peer)
            self._inserts.lost(event.peer)
        return self._context.effects()

    def _received(self, message: Any, sender: Address) -> None:
        match message:
            case messages.Inserted(client=client):
                if client == self._context.client:
                    self._inserts.inserted(message, sender)
            case messages.Refused(client=client):
                if client == self._context.client:
                    self._inserts.refused(message)
            case messages.Stale(client=client):
                if client == self._context.client:
                    self._inserts.stale(message)
            case messages.Status():
                self._inserts.found(message)
            case _:
                self._requests.on_reply(message.request, message, sender)

    def _on_view(self) -> None:
        self._inserts.on_view()
        for subscription in self._subscriptions:
            subscription.on_view()

    def append_id(self, call: int) -> AppendId | None:
        """The id of an append that is under way; None if nothing of it has been sent."""
        return self._inserts.append_id(call)

    @property
    def number(self) -> int:
        """The number of this client in the ids of its appends."""
        return self._context.client

    def check_invariants(self) -> None:
        """That bytes are counted right. Raises AssertionError."""
        self._inserts.check()
        for subscription in self._subscriptions:
            subscription.check()

    def _subscription(self, request: calls.Subscribe) -> LogSubscription | Exception:
        if request.shard is not None and request.shard < 1:
            return NotOfThisShard(request.gsn, request.shard)
        if request.gsn < self._mms.oldest:
            return Trimmed(request.gsn, self._mms.oldest)
        return LogSubscription(request, self._context, self._mms, self._requests)

    # ---- questions

    def _ask(self, call: int, deadline: int | None, late: Exception) -> Callable[[object], None]:
        """Open a call. Returns the function that ends it."""
        context = self._context
        context.open(call, deadline, lambda: context.answer(call, late))
        return lambda result: context.answer(call, result)

    def _tail(self, call: int, request: calls.Tail) -> None:
        answer = self._ask(call, request.deadline, TimeoutError(LATE))
        self._frontiers.ask(lambda floor: answer(floor.last), call)

    def _oldest(self, call: int, request: calls.Oldest) -> None:
        answer = self._ask(call, request.deadline, TimeoutError(LATE))
        self._mms.request_view(lambda view: answer(view.oldest))

    def _view(self, call: int, request: calls.View) -> None:
        answer = self._ask(call, request.deadline, TimeoutError(LATE))
        self._mms.request_view(answer)

    def _at_time(self, call: int, request: calls.AtTime) -> None:
        """The time of a record is that of its GSN, so the tail says the rest."""
        answer = self._ask(call, request.deadline, TimeoutError(LATE))

        def found(floor: Floor) -> None:
            at = min(floor.last, last_at(request.time, self._mms.view.origin))
            answer(max(at, self._mms.oldest - 1))

        self._frontiers.ask(found, call)

    def _trim(self, call: int, request: calls.Trim) -> None:
        """The tail only grows, so a GSN that it has reached can be trimmed to whenever the request is carried out."""
        answer = self._ask(call, request.deadline, outcome_unknown(LATE))

        def trimmed(response: messages.ChangeResponse) -> None:
            self._mms.trimmed(response.result)
            answer(response.result)

        def found(floor: Floor) -> None:
            if request.gsn > floor.last + 1:
                answer(ValueError(f"cannot trim to {request.gsn}: the newest record is {floor.last}"))
            elif self._context.is_open(call):
                self._mms.change("Trim", (request.gsn,), trimmed)

        self._frontiers.ask(found, call)

    def _reconfigure(self, call: int, request: calls.Reconfigure) -> None:
        answer = self._ask(call, request.deadline, outcome_unknown(LATE))
        change = request.change
        match change:
            case calls.AddShard(servers):
                numbers = servers
            case calls.FinalizeShard() | calls.ReplaceServer() | calls.AddReplica() | calls.SetCutInterval():
                numbers = tuple(change)
            case _:
                answer(Unavailable(f"a log on Ziplog does not offer {type(change).__name__}"))
                return

        def changed(response: messages.ChangeResponse) -> None:
            """Later calls of this client use the new configuration."""
            if response.error:
                answer(Unavailable(response.error))
            else:
                self._mms.request_view(lambda view: answer(response.result))

        self._mms.change(type(change).__name__, numbers, changed)

    def _set_policy(self, call: int, request: calls.SetPolicy) -> None:
        self._ask(call, None, TimeoutError(LATE))(None)
        self._inserts.policy = request.policy
