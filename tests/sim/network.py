"""The network: it delays, loses, duplicates and reorders messages, and can be partitioned in any way.

Messages are immutable, so they are passed by reference. Messages in flight when a link is cut still arrive; messages to
a process that is down are lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappush
from typing import TYPE_CHECKING, Any

from logdb.cores.effects import Address, Disconnected, Received

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.wire import Link, Wire
    from tests.sim.world import World


Filter = Callable[[Address, Address, Any], Any]
"""Gets the sender, the receiver and the message; returns what is sent instead, None for nothing."""


@dataclass(slots=True)
class Weather:
    """The quality of the network: probabilities, and times in ns.

    A delay is `delay_ns` and up to `jitter_ns` more; a share `slow` of the messages takes up to `slow_ns` longer, which
    reorders them.
    """

    delay_ns: int = 100_000
    jitter_ns: int = 100_000
    loss: float = 0.0
    double: float = 0.0
    slow: float = 0.0
    slow_ns: int = 0


class Network:
    """Carries messages between processes by their addresses. `wire`: takes them as bytes, None: they have no size."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.world = world
        self.weather = weather
        self.processes: dict[Address, Process] = {}
        self.cut: set[tuple[Address, Address]] = set()
        """The (from, to) pairs of links that are cut."""
        self.filters: list[Filter] = []
        self.wire: Wire | None = None
        self._node: dict[Address, Address] = {}
        self._random = world.draw("network").random

    def join(self, node: Address, address: Address) -> None:
        """Put this address on a node. Messages within a node take no time and are not lost."""
        self._node[address] = node

    def send(self, sender: Address, to: Address, message: Any) -> None:
        """Deliver a message, or lose it."""
        process = self.processes.get(to)
        if process is None:
            return
        for change in self.filters:
            message = change(sender, to, message)
            if message is None:
                return
        if self._node and sender in self._node and self._node[sender] == self._node.get(to):
            self.world.after(0, process.deliver, Received(sender, message))
            return
        if self.cut and (sender, to) in self.cut:
            self.world.counts["message on a cut link"] += 1
        elif self.wire is not None:
            self.wire.send(sender, to, message, self._travel)
        else:
            self._travel(sender, to, message)

    def _travel(self, sender: Address, to: Address, message: Any, link: Link | None = None) -> None:
        """Deliver a message, or lose it. Messages of a link arrive in their order, except for slow and doubled ones."""
        process = self.processes[to]
        weather, draw, world = self.weather, self._random, self.world
        delay = weather.delay_ns + int(weather.jitter_ns * draw())
        if weather.loss or weather.double or weather.slow:
            fate = draw()
            if fate < weather.loss:
                world.counts["message lost"] += 1
                return
            fate -= weather.loss
            if fate < weather.double:
                world.counts["message doubled"] += 1
                world.at(
                    world.now + delay + int(draw() * (weather.slow_ns + weather.jitter_ns)),
                    process.deliver,
                    Received(sender, message),
                )
            elif fate - weather.double < weather.slow:
                world.counts["message overtaken"] += 1
                delay += int(weather.slow_ns * draw())
                link = None
        arrives_at = world.now + delay
        if link is not None:
            arrives_at = link.arrives_at = max(arrives_at, link.arrives_at)
        world.number += 1
        heappush(world.heap, (arrives_at, world.number, process.deliver, Received(sender, message)))

    def hang_up(self, dead: Address) -> None:
        """The streams of a process that has died break; running clients and mapping servers may be notified."""
        if self.wire is not None:
            self.wire.end(dead)
        for process in self.processes.values():
            notices = process.kind in ("client", "mapping") and process.core is not None
            if notices and (dead, process.address) not in self.cut:
                self.world.counts["log client notified of a death"] += 1
                delay = self.weather.delay_ns + int(self.weather.jitter_ns * self._random())
                self.world.at(self.world.now + delay, process.deliver, Disconnected(dead))

    def split(
        self, one: Iterable[Address], other: Iterable[Address], *, one_way: bool = False
    ) -> set[tuple[Address, Address]]:
        """Cut every link from `one` to `other`, and back unless `one_way`. Returns them, for `restore`."""
        others = list(other)
        links = {(a, b) for a in one for b in others if a != b}
        if not one_way:
            links |= {(b, a) for a, b in links}
        self.cut |= links
        return links

    def restore(self, links: set[tuple[Address, Address]]) -> None:
        """Restore these links."""
        self.cut -= links


def weather_of(draw: random.Random) -> Weather:
    """The network of a seed: from a quiet rack to a wide area."""
    delay = draw.choice((20_000, 100_000, 500_000, 2_000_000))
    return Weather(delay_ns=delay, jitter_ns=int(delay * draw.choice((0.1, 1, 3))))
