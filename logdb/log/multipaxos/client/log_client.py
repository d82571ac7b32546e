"""The client of a Multi-Paxos log: the core in the application's process.

`AppendClient` sends records to the leader; `ReadClient` and each `LogSubscription` read them from any replica. They
share a `ClientContext`.
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
from logdb.log.contract import AppendId, NotOfThisShard, Trimmed
from logdb.log.multipaxos import messages
from logdb.log.multipaxos.client.append_client import AppendClient
from logdb.log.multipaxos.client.leader_tracker import LeaderTracker
from logdb.log.multipaxos.client.read_client import ReadClient
from logdb.log.multipaxos.client.subscription import LogSubscription
from logdb.log.multipaxos.configuration import SHARD, View, view_of
from logdb.log.requests import ClientConfig

LATE = "no replica answered before the deadline"


class MultiPaxosClient:
    """A core that turns calls (`logdb/log/requests.py`) into messages, and answers into results. It needs no journal.

    Its number, which identifies its records, is drawn from `rng`: each incarnation needs another generator.
    """

    def __init__(self, config: ClientConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._context = context = ClientContext(config, rng)
        self._requests = requests = PendingRequests(context)
        self._tracker = LeaderTracker(context)
        self._appends = AppendClient(context, self._tracker)
        self._reads = ReadClient(context, self._tracker, requests)
        self._subscriptions = Subscriptions(context, self._subscription)
        self._calls: dict[type, Callable[[int, Any], None]] = {
            calls.Append: self._appends.append,
            calls.Outcome: self._appends.outcome,
            calls.Read: self._reads.read,
            calls.AtTime: self._reads.at_time,
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
        """Send nothing: the client sends its first request for a call."""
        self._context.now = now
        return self._context.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Returns the effects. Raises ProtocolViolation."""
        self._context.now = now
        if type(event) is Received:
            self._received(event.message, event.sender)
        elif type(event) is Call:
            self._calls[type(event.request)](event.call, event.request)
        elif type(event) is TimerFired:
            self._context.fire_timers()
        elif type(event) is Disconnected:
            if event.peer in self._tracker.replicas:
                self._tracker.silent(event.peer)
            self._requests.on_disconnected(event.peer)
            self._appends.lost(event.peer)
        return self._context.effects()

    def _received(self, message: Any, sender: Address) -> None:
        match message:
            case messages.AppendResponse(client=client):
                if client == self._context.client:
                    self._appends.appended(message, sender)
            case messages.AppendRefused(client=client):
                if client == self._context.client:
                    self._appends.refused(message, sender)
            case messages.AppendStatus():
                self._appends.found(message)
            case _:
                self._requests.on_reply(message.request, message, sender)

    def append_id(self, call: int) -> AppendId | None:
        """The id of an open append; None if none of its records was sent."""
        return self._appends.append_id(call)

    @property
    def number(self) -> int:
        """The number that identifies this client in the ids of its appends."""
        return self._context.client

    def check_invariants(self) -> None:
        """Check MPX-3 in this core, and the count of buffered bytes. Raises AssertionError."""
        self._appends.check()
        for subscription in self._subscriptions:
            subscription.check()

    def _subscription(self, request: calls.Subscribe) -> LogSubscription | Exception:
        if request.shard not in (None, SHARD):
            return NotOfThisShard(request.gsn, request.shard or 0)
        if request.gsn < self._reads.oldest:
            return Trimmed(request.gsn, self._reads.oldest)
        return LogSubscription(request, self._context, self._tracker, self._requests, self._reads)

    # ---- calls that the leader answers

    def _ask(
        self,
        call: int,
        deadline: int | None,
        late: Exception,
        make: Callable[[int], Any],
        then: Callable[[Any], Any],
        where: Callable[[int], Address] | None = None,
    ) -> None:
        """Send a request to the leader, or to the receivers that `where` returns. `then` converts the answer to the
        result of the call."""
        context, number = self._context, self._context.next_number()

        def expired() -> None:
            self._requests.cancel(number)
            context.answer(call, late)

        def answered(answer: Any, sender: Address) -> int | None:
            if isinstance(answer, messages.NotLeader):
                return self._tracker.not_leader(answer, sender)
            if sender != context.config.local:
                self._tracker.found(sender)
            self._reads.trimmed(answer.oldest)
            context.answer(call, then(answer))
            return None

        context.open(call, deadline, expired)
        self._requests.send(number, make(number), where or self._tracker.where(), answered)

    def _tail(self, call: int, request: calls.Tail) -> None:
        """A replica on this client's node answers without a message over the network from here."""

        def make(number: int) -> messages.TailRequest:
            return messages.TailRequest(number, allow_follower=bool(self._context.config.local))

        where = self._tracker.where(self._context.config.local)
        self._ask(call, request.deadline, TimeoutError(LATE), make, lambda answer: answer.last, where)

    def _oldest(self, call: int, request: calls.Oldest) -> None:
        self._ask(call, request.deadline, TimeoutError(LATE), messages.TailRequest, lambda answer: answer.oldest)

    def _view(self, call: int, request: calls.View) -> None:
        """Request the oldest GSN; the replicas are in the configuration."""
        replicas = self._tracker.replicas

        def view(answer: messages.TailResponse) -> View:
            return view_of(replicas, answer.oldest)

        self._ask(call, request.deadline, TimeoutError(LATE), messages.TailRequest, view)

    def _trim(self, call: int, request: calls.Trim) -> None:
        """Trim to a GSN up to the tail. The tail never decreases, so a late request is still valid."""

        def make(number: int) -> messages.TrimRequest:
            return messages.TrimRequest(number, request.gsn)

        def result(answer: messages.TrimResponse) -> object:
            return ValueError(answer.error) if answer.error else answer.oldest

        self._ask(call, request.deadline, outcome_unknown(LATE), make, result)

    def _reconfigure(self, call: int, request: calls.Reconfigure) -> None:
        self._context.open(call, None, lambda: None)
        why = "a log on Multi-Paxos has one shard, on the replicas in every cluster.toml: it cannot be reconfigured"
        self._context.answer(call, Unavailable(why))

    def _set_policy(self, call: int, request: calls.SetPolicy) -> None:
        """Accept any policy: there is only one shard."""
        self._context.open(call, None, lambda: None)
        self._context.answer(call, None)
