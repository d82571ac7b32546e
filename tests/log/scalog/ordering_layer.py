"""A scripted ordering layer: replicas and aggregators with perfect disks, whose messages arrive at once.

Messages to other addresses are kept for the test.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

from logdb.cores.effects import (
    MILLISECOND,
    SECOND,
    CancelTimer,
    Create,
    Effect,
    Event,
    Persist,
    Persisted,
    Received,
    Send,
    SetTimer,
    Stop,
    TimerFired,
)
from logdb.log.requests import AddShard
from logdb.log.scalog.aggregator.aggregator import Aggregator, AggregatorConfig
from logdb.log.scalog.messages import (
    ChangeRequest,
    ChangeResponse,
    Reconfiguration,
    Register,
    RegistrationReply,
    Report,
    ShardConfig,
    ShardCut,
    Updates,
)
from logdb.log.scalog.ordering.replica import OrderingConfig, OrderingReplica
from logdb.log.scalog.ordering.state import OrderingState

M = TypeVar("M")
CLIENT = "client"


class Layer:
    """`outside`: (to, message) of the messages to other addresses. `stopped`: the `Stop` effects of replicas. The time
    `now` moves only by `run`.

    No server is suspected for an hour, unless `suspect_after_ns` is given.
    """

    def __init__(self, replicas: int = 1, aggregators: int = 0, **config: Any) -> None:
        self.now = 1_000 * MILLISECOND
        self._watching = {"suspect_after_ns": 3_600 * SECOND, "straggle_after_ns": 3_600 * SECOND}
        self._watching |= {name: config.pop(name) for name in tuple(config) if name in self._watching}
        self.replicas = tuple(f"ordering-{number}" for number in range(1, replicas + 1))
        self.cores: dict[str, OrderingReplica | Aggregator] = {}
        self.outside: list[tuple[str, Any]] = []
        self.stopped: list[Stop] = []
        self.cut_off: set[str] = set()
        self.timers: dict[tuple[str, str], int] = {}
        self._events: deque[tuple[str, Event]] = deque()
        self._ids = iter(range(1, 1_000_000))
        for number, address in enumerate(self.replicas):
            core = OrderingReplica(
                OrderingConfig(address, self.replicas, **self._watching, **config), {}, random.Random(number)
            )
            self.add(address, core)
        for number in range(1, aggregators + 1):
            self.add_aggregator(f"aggregator-{number}")
        self.run(3_000)

    def add_aggregator(self, address: str) -> Aggregator:
        core = Aggregator(AggregatorConfig(address, self.replicas, **self._watching), {}, random.Random(address))
        self.add(address, core)
        return core

    def add(self, address: str, core: OrderingReplica | Aggregator) -> None:
        self.cores[address] = core
        self._perform(address, core.start(self.now))
        self._process_events()

    # ---- time and messages

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        until = self.now + milliseconds * MILLISECOND
        while due := min((at for key, at in self.timers.items() if at <= until), default=0):
            self.now = max(self.now, due)
            for address, name in [key for key, at in self.timers.items() if at <= self.now]:
                del self.timers[address, name]
                self._events.append((address, TimerFired(name)))
            self._process_events()
        self.now = until

    def send(self, to: str, message: Any, sender: str = CLIENT) -> list[tuple[str, Any]]:
        """Deliver a message. Returns the messages to other addresses that it caused."""
        before = len(self.outside)
        self._events.append((to, Received(sender, message)))
        self._process_events()
        return self.outside[before:]

    def _process_events(self) -> None:
        while self._events:
            address, event = self._events.popleft()
            core = self.cores[address]
            self._perform(address, core.handle(event, self.now))
            core.check_invariants()

    def _perform(self, address: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message) if to in self.cores:
                    if not {address, to} & self.cut_off:
                        self._events.append((to, Received(address, message)))
                case Send(to, message):
                    self.outside.append((to, message))
                case Persist(journal, first, records):
                    self._events.append((address, Persisted(journal, first + len(records))))
                case Create(journal, first):
                    self._events.append((address, Persisted(journal, first)))
                case SetTimer(name, at):
                    self.timers[address, name] = max(at, self.now + 1)
                case Stop():
                    self.stopped.append(effect)
                case CancelTimer(name):
                    self.timers.pop((address, name), None)

    # ---- queries and shortcuts of tests

    @property
    def leader(self) -> OrderingReplica:
        (leader,) = [
            core for core in self.ordering if core.leader is not None and core.config.address not in self.cut_off
        ]
        return leader

    @property
    def ordering(self) -> list[OrderingReplica]:
        return [core for core in self.cores.values() if isinstance(core, OrderingReplica)]

    @property
    def state(self) -> OrderingState:
        return self.leader.state

    def sent(self, kind: type[M], to: str | None = None) -> list[M]:
        """The messages of this kind to other addresses."""
        return [message for address, message in self.outside if isinstance(message, kind) and to in (None, address)]

    def register(self, *names: str) -> None:
        """Register storage servers; the tokens are 100, 101, ... by the number in the name."""
        for name in names:
            self.send(self.leader.config.address, Register(100 + int(name.split("-")[1]), name), name)

    def change(self, change: Reconfiguration, id: int = 0) -> ChangeResponse:
        """Request a change. Returns the response."""
        out = self.send(self.leader.config.address, ChangeRequest(id or next(self._ids), change))
        (changed,) = [message for to, message in out if isinstance(message, ChangeResponse)]
        return changed

    def done(self, change: Reconfiguration) -> int:
        """Request a change that must not be rejected. Returns its result."""
        changed = self.change(change)
        assert changed.error == "", changed.error
        return changed.result

    def shard(self, *names: str) -> ShardConfig:
        """Add a shard of these new servers."""
        self.register(*names)
        tokens = [100 + int(name.split("-")[1]) for name in names]
        servers = tuple(self.state.servers.tokens[token] for token in tokens)
        return self.config(self.done(AddShard(servers)))

    def config(self, shard: int) -> ShardConfig:
        return self.state.shards[shard].config()

    def report(self, shard: int, *ends: int, members: Iterable[int] = (), placed: int = 0, epoch: int = 0) -> None:
        """Deliver reports of these members (default: all) with the ends of the open segments, in their order."""
        config = self.config(shard)
        open_segments = [one.id for one in config.segments if one.sealed is None]
        for server, address in config.members:
            if not members or server in members:
                pairs = tuple(zip(open_segments, ends, strict=False))
                report = Report(shard, epoch or config.epoch, server, placed, pairs)
                self.send(config.reports_to or self.leader.config.address, report, address)

    def links(self, shard: int, to: str | None = None) -> list[ShardCut]:
        """The links of a shard that were sent to one member, without repetitions."""
        to = to or self.config(shard).members[0].address
        updates = [update for message in self.sent(Updates, to) for update in message.updates]
        updates += [message.update for message in self.sent(RegistrationReply, to) if message.update]
        found = {link.number: link for update in updates if update.shard == shard for link in update.links}
        return [found[number] for number in sorted(found)]
