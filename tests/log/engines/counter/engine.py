"""The declaration of `counter`, and its two cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

from logdb.log.counter import messages as m

from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import Call, Create, Effect, Event, Journal, Persist, Persisted, Received, Send, TimerFired
from logdb.log import requests
from logdb.log.contract import AppendId
from logdb.log.engine import (
    Batch,
    Engine,
    Metric,
    Operations,
    Right,
    Role,
    ServerConfig,
    Setting,
    Shape,
    Wire,
    between,
)
from logdb.log.requests import ClientConfig

JOURNAL = "log"


@dataclass(frozen=True, slots=True)
class KeeperConfig(ServerConfig):
    """A server of `counter`. `step`: the distance between two GSNs."""

    role: ClassVar[str] = "keeper"

    step: int = 1


class Keeper:
    """Numbers records, and answers when they are durable."""

    def __init__(self, config: KeeperConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self.step = config.step
        self.is_new = JOURNAL not in journals
        self.end = 1 if self.is_new else journals[JOURNAL].end
        self.waiting: list[tuple[int, str, int, int]] = []

    def start(self, now: int) -> list[Effect]:
        return [Create(JOURNAL, 1)] if self.is_new else []

    def handle(self, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Received) and isinstance(event.message, m.Put):
            first, records = self.end, event.message.records
            self.end += len(records)
            self.waiting.append((self.end, event.sender, event.message.request, first))
            return [Persist(JOURNAL, first, records)]
        if isinstance(event, Received):
            return [Send(event.sender, m.EndResponse(event.message.request, (self.end - 1) * self.step, (1, 2)))]
        if isinstance(event, Persisted):
            done = [one for one in self.waiting if one[0] <= event.end]
            self.waiting = [one for one in self.waiting if one[0] > event.end]
            return [Send(sender, m.Numbered(request, first * self.step)) for _, sender, request, first in done]
        return []

    def check_invariants(self) -> None:
        assert all(end <= self.end for end, *_ in self.waiting)


class Client:
    """The client core: appends records and requests the tail."""

    def __init__(self, config: ClientConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._context = ClientContext(config, rng)
        self._requests = PendingRequests(self._context)

    def start(self, now: int) -> list[Effect]:
        return []

    def handle(self, event: Event, now: int) -> list[Effect]:
        context = self._context
        context.now = now
        if isinstance(event, Call):
            context.open(event.call, event.request.deadline, lambda: context.answer(event.call, TimeoutError()))
            self._send_request(event.call, event.request)
        elif isinstance(event, Received):
            self._requests.on_reply(event.message.request, event.message, event.sender)
        elif isinstance(event, TimerFired):
            context.fire_timers()
        return context.effects()

    def _send_request(self, call: int, request: Any) -> None:
        context, number = self._context, self._context.next_number()
        is_append = isinstance(request, requests.Append)

        def on_answer(answer: Any, sender: str) -> None:
            gsns = range(answer.first, answer.first + len(request.records)) if is_append else ()
            context.answer(call, requests.AppendResult(list(gsns), [0] * len(gsns)) if is_append else answer.last)

        message = m.Put(number, request.records) if is_append else m.EndRequest(number)
        self._requests.send(number, message, lambda attempt: context.config.ordering[0], on_answer)

    def append_id(self, call: int) -> AppendId | None:
        return None

    def check_invariants(self) -> None:
        pass


KEEPER = Role(
    name="keeper",
    number=9,
    letter="k",
    title="the keeper of a counter",
    config=KeeperConfig,
    build=Keeper,
    accepts=frozenset({m.Put, m.EndRequest}),
    sends=frozenset({m.Numbered, m.EndResponse}),
    metrics=lambda core: [Metric("counter_end", "The next number.", core.end)],
)
VIEW = SimpleNamespace(version=1, shards=(), next_shard=1, oldest=1, spares=())

ENGINE = Engine(
    name="counter",
    founder_role="keeper",
    roles={"keeper": KEEPER},
    client=Client,
    wire=Wire(
        messages=m,
        schema="logdb.log.counter.schema",
        prefix="counter_",
        header_bytes=0,
        batches={m.Put: Batch.RECORDS},
        client_accepts=frozenset({m.Numbered, m.EndResponse}),
        client_sends=frozenset({m.Put}),
        rights={m.Put: Right.WRITE, m.EndRequest: Right.READ},
        appends=frozenset({m.Put}),
    ),
    operations=Operations(
        default_shape=Shape(ordering=1, mapping=0, shards=1, engine="counter"),
        server_counts=lambda shape: {"keeper": shape.ordering},
        shape_fields={"ordering": "keeper"},
        settings=lambda shape: {"step": 1},
        shard_size=lambda config: 1,
        policy_of=lambda config: "",
        storage_role="keeper",
        tail_request=m.EndRequest,
        view_request=m.EndRequest,
        frontier_of=lambda answer: (
            SimpleNamespace(last=answer.last, oldest=1, cut=0, interval_ns=0, unreachable=())
            if isinstance(answer, m.EndResponse)
            else None
        ),
        configuration_of=lambda answer: VIEW if isinstance(answer, m.EndResponse) else None,
        servers_of=lambda view: (),
        empty_configuration=VIEW,  # type: ignore[arg-type]
    ),
    settings={"step": Setting(int, between(1, 1000), ("cluster",))},
    simulation="",
)
