"""CPU time of a cut in the ordering layer, by the number of storage servers, with and without aggregators.

One replica whose disk is perfect, servers in shards of two, all of which have something new for every cut. Timed is
everything from the arrival of the reports to the updates for the servers: reports, tallies, the cut through Paxos, its
application, updates. Reports and updates are made and dropped outside, as they would come from and go to a network.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from logdb.cores.effects import MILLISECOND, Address, Effect, Persist, Persisted, Received, Send, SetTimer, TimerFired
from logdb.log.requests import AddShard
from logdb.log.scalog.aggregator.aggregator import Aggregator, AggregatorConfig
from logdb.log.scalog.messages import ChangeRequest, Register, Report, Updates
from logdb.log.scalog.ordering.replica import OrderingConfig, OrderingReplica

LEADER = "ordering"


class CutCost(NamedTuple):
    """CPU time of one cut, in microseconds: of the leader, and of an aggregator (the mean of all)."""

    servers: int
    aggregators: int
    leader_us: float
    aggregator_us: float
    cuts: int


class OrderingLayer:
    """A leader and its aggregators, fed by hand. `cpu_ns`: by core."""

    def __init__(self, servers: int, aggregators: int) -> None:
        self.now = 10**15
        config = OrderingConfig(LEADER, (LEADER,), snapshot_bytes=1 << 40)
        self.cores: dict[Address, Any] = {LEADER: OrderingReplica(config, {}, random.Random(1))}
        for number in range(aggregators):
            address = f"aggregator-{number}"
            self.cores[address] = Aggregator(AggregatorConfig(address, (LEADER,)), {}, random.Random(number))
        self.cpu_ns = dict.fromkeys(self.cores, 0)
        self.updates = 0
        for address, core in self.cores.items():
            self._perform(address, core.start(self.now))
        for number in range(1, servers + 1):
            self.receive(LEADER, Register(number, f"server-{number}"), f"server-{number}")
        for number in range(servers // 2):
            self.receive(LEADER, ChangeRequest(number + 1, AddShard((2 * number + 1, 2 * number + 2))), "operator")
        if aggregators:
            for address in self.cores:
                self.now += 100 * MILLISECOND
                if address != LEADER:
                    self._do(address, TimerFired("aggregator.heartbeat"))

    def receive(self, to: Address, message: object, sender: Address) -> None:
        """A message from the outside."""
        self._do(to, Received(sender, message))

    def _do(self, to: Address, event: Received | Persisted | TimerFired) -> None:
        handle: Callable[[Any, int], list[Effect]] = self.cores[to].handle
        begun = time.process_time_ns()
        effects = handle(event, self.now)
        self.cpu_ns[to] += time.process_time_ns() - begun
        self._perform(to, effects)

    def _perform(self, address: Address, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message) if to in self.cores:
                    self._do(to, Received(address, message))
                case Send(_, Updates()):
                    self.updates += 1
                case Persist(journal, first, records):
                    self._do(address, Persisted(journal, first + len(records)))
                case SetTimer("paxos.election", at):
                    self.now = max(self.now, at)
                    self._do(address, TimerFired("paxos.election"))

    def reports(self, end: int) -> list[tuple[Address, Received]]:
        """Every member's report: all of them have every segment up to `end`."""
        found = []
        for shard in self.cores[LEADER].state.shards.values():
            config = shard.config()
            ends = tuple((segment.id, end) for segment in config.segments)
            for server, address in config.members:
                report = Report(config.shard, config.epoch, server, shard.head, ends)
                found.append((config.reports_to or LEADER, Received(address, report)))
        return found


def cut_cost(servers: int, aggregators: int, cuts: int = 50) -> CutCost:
    """The cost of a cut that orders something of every server."""
    layer = OrderingLayer(servers, aggregators)
    leader = layer.cores[LEADER]
    for number in range(cuts + 1):
        if number == 1:  # the first one warms up
            layer.cpu_ns = dict.fromkeys(layer.cpu_ns, 0)
        layer.now += MILLISECOND
        one_cut(layer, 2 + number)
    assert leader.state.next_gsn == 1 + servers * (cuts + 1)
    of_aggregators = sum(layer.cpu_ns.values()) - layer.cpu_ns[LEADER]
    return CutCost(
        servers,
        aggregators,
        layer.cpu_ns[LEADER] / cuts / 1_000,
        of_aggregators / cuts / 1_000 / aggregators if aggregators else 0.0,
        cuts,
    )


def one_cut(layer: OrderingLayer, end: int) -> None:
    """The reports arrive while a cut is in flight, as they do under load, and are all in the next one."""
    reports = layer.reports(end)
    leader = layer.cores[LEADER].leader
    leader.flight = b"busy"
    for to, report in reports:
        layer._do(to, report)
    for address in layer.cores:
        if address != LEADER:
            layer._do(address, TimerFired("aggregator.retry"))
    leader.flight = None
    layer._do(LEADER, TimerFired("ordering.cut"))


if __name__ == "__main__":
    for servers in (2, 20, 200, 2_000):
        for aggregators in sorted({0, max(1, servers // 100)}):
            print(cut_cost(servers, aggregators, 2_000 // servers * 5 + 10))
