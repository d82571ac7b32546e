"""A toy core for the tests of the simulator: it stores the counts that it receives, and notifies its peer."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from logdb.cores.effects import (
    MILLISECOND,
    Address,
    Answer,
    Call,
    Effect,
    Event,
    Journal,
    Persist,
    Persisted,
    Received,
    Send,
    SendStored,
    SetTimer,
    TimerFired,
    Unreadable,
)
from tests.sim.network import Network, Weather
from tests.sim.process import Process
from tests.sim.world import World


class Count(NamedTuple):
    """A value to store."""

    value: int


class Stored(NamedTuple):
    """The counts that a counter has stored."""

    records: Any = ()


class Counter:
    """Persists each received count, and notifies its peer when it is durable."""

    def __init__(self, peer: Address, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.peer, self.rng = peer, rng
        found = journals.get("counts")
        self.end = found.end if found else 1
        self.first = found.first if found else 1
        self.found = [record.payload for record in found.records] if found else []
        self.received: list[Any] = []
        self.broken = ""

    def start(self, now: int) -> list[Effect]:
        return [SetTimer("tick", now + MILLISECOND)]

    def handle(self, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Received):
            self.received.append(event.message)
            if not isinstance(event.message, Count):
                return []
            self.end += 1
            return [Persist("counts", self.end - 1, [(1, b"%d" % event.message.value)])]
        if isinstance(event, Persisted) and event.journal == "counts":
            return [SendStored(self.peer, Stored(), "counts", event.end - 1, event.end)]
        if isinstance(event, TimerFired):
            return [Send(self.peer, Count(self.rng.randrange(100))), SetTimer("tick", now + MILLISECOND)]
        if isinstance(event, Call):
            return event.request if isinstance(event.request, list) else [Answer(event.call, event.request)]
        if isinstance(event, Unreadable):
            self.received.append(event)
        return []

    def check_invariants(self) -> None:
        assert not self.broken, self.broken


def pair(seed: int, weather: Weather | None = None, *, exact: bool = False) -> tuple[World, Network, Process, Process]:
    """Two started counters, each the peer of the other."""
    world = World(seed, exact=exact)
    network = Network(world, weather or Weather())
    one = Process(world, network, "one", "counter", lambda journals, rng: Counter("two", journals, rng))
    two = Process(world, network, "two", "counter", lambda journals, rng: Counter("one", journals, rng))
    one.start()
    two.start()
    return world, network, one, two
