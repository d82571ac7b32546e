"""Faults, and the operator's changes during them. Each seed has its own small selection of both (swarm testing).

Permanent losses stay within what the protocol survives; all other faults are undone in the end. This module has the
faults of any engine's processes; an engine adds its own faults and operations in a subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from logdb.cores.effects import MILLISECOND
from logdb.log import requests as calls
from tests.sim.cluster import Cluster
from tests.sim.process import Process
from tests.sim.workload import Application


@dataclass(frozen=True, slots=True)
class Trouble:
    """`every_ns`: mean time between two faults; `operate_every_ns`: between two reconfigurations. `long`: the longest
    duration of a fault, in heartbeats; beyond 4 it is noticed."""

    faults: tuple[str, ...]
    operations: tuple[str, ...]
    every_ns: int = 30 * MILLISECOND
    operate_every_ns: int = 60 * MILLISECOND
    long: float = 4.0


class Faults:
    """Injects faults into a cluster until `heal`.

    `FAULTS`, `OPERATIONS`: by name, all that an engine's clusters may go through. An operation gets the newest
    configuration, unless it is in `WITHOUT_VIEW`, and returns a change. `KINDS`, `WRITERS`: kinds of processes, and
    kinds of those that write, repeated by weight. `DECIDERS`: the kind that runs Paxos; `LOSERS`: the kind whose disks
    may be lost; `RECORDS`: the prefix of the names of their journals of records.
    """

    FAULTS: ClassVar[Mapping[str, Callable[[Any], bool]]]
    OPERATIONS: ClassVar[Mapping[str, Callable[..., Any]]]
    WITHOUT_VIEW: ClassVar[tuple[str, ...]] = ()
    KINDS: ClassVar[tuple[str, ...]]
    WRITERS: ClassVar[tuple[str, ...]]
    DECIDERS: ClassVar[str]
    LOSERS: ClassVar[str]
    RECORDS: ClassVar[str]
    losses_left: int
    """Number of disks, or damaged records, that may still be lost."""

    def __init__(self, cluster: Cluster, applications: Mapping[str, Application], trouble: Trouble) -> None:
        self.cluster, self.applications, self.trouble = cluster, applications, trouble
        self.world = cluster.world
        self.draw = self.world.draw("faults")
        self.healed = False
        self.storms = 0
        self.operated: list[tuple[Any, Any]] = []
        if trouble.faults:
            self.world.after(self._wait(trouble.every_ns), self._fault)
        if trouble.operations:
            self.world.after(self._wait(trouble.operate_every_ns), self._operate)

    def _wait(self, mean: int) -> int:
        return int(self.draw.expovariate(1) * mean) + 1

    def _span(self) -> int:
        """The duration of a fault."""
        return int(self.draw.random() ** 2 * self.trouble.long * self.cluster.shape.heartbeat_ns) + 1

    def _count(self, name: str) -> None:
        self.world.counts[name] += 1

    # ---- faults

    def _fault(self, _: None) -> None:
        if self.healed:
            return
        name = self.draw.choice(self.trouble.faults)
        if self.FAULTS[name](self):
            self._count(name)
        self.world.after(self._wait(self.trouble.every_ns), self._fault)

    def _someone(self, kind: str | None = None) -> Process | None:
        """A running process. The kind is drawn first, since there are more storage servers than others."""
        operator = self.cluster.operator.process
        up = [other for other in self.cluster.processes() if other.core is not None and other is not operator]
        kind = kind or self.draw.choice(self.KINDS)
        return self._pick([process for process in up if process.kind == kind])

    def _pick(self, found: list[Any]) -> Any:
        return self.draw.choice(found) if found else None

    def _kill(self, process: Process, down: int) -> None:
        if self.healed:
            return
        self.cluster.kill(process)
        application = self.applications.get(process.address)
        if application is not None:
            application.killed()
        self.world.after(down, self.cluster.revive, process)

    def _kill_one(self, kind: str) -> bool:
        process = self._someone(kind)
        if process is not None:
            self._kill(process, self._span())
        return process is not None

    def kill_client(self) -> bool:
        return self._kill_one("client")

    def kill_in_mid_write(self) -> bool:
        """Kill a process in the middle of its next write, between what is durable and what is not."""
        process = self._someone(self.draw.choice(self.WRITERS))
        if process is None:
            return False
        process.disk.trap = partial(self._kill, process, self._span())
        return True

    def power_failure(self) -> bool:
        """Kill all servers at once."""
        for process in self.cluster.processes():
            if process.core is not None and process.kind != "client":
                self._kill(process, self._span())
        return True

    def pause(self) -> bool:
        process = self._someone()
        if process is not None:
            self._pause(process, self._span())
        return process is not None

    def _pause(self, process: Process, span: int) -> None:
        for one in self.cluster.node_of(process):
            if one.core is not None:
                one.pause()
        self.world.after(span, self._resume, process)

    def _resume(self, process: Process) -> None:
        for one in self.cluster.node_of(process):
            if one.core is not None:
                one.resume()

    def _jump(self, process: Process, by: int) -> None:
        for one in self.cluster.node_of(process):
            one.jump(by)

    def _deciders(self) -> list[Process]:
        return [process for process in self.cluster.processes() if process.kind == self.DECIDERS]

    def _leader(self) -> Process | None:
        """A replica that leads, or assumes that it does."""
        up = [one for one in self._deciders() if one.core is not None]
        leaders = [one for one in up if getattr(one.core, "leader", None) is not None]
        found: Process | None = self._pick(leaders)
        return found

    def kill_leader(self) -> bool:
        leader = self._leader()
        if leader is not None:
            self._kill(leader, self._span())
        return leader is not None

    def most_deciders_die_in_mid_write(self) -> bool:
        """Kill most replicas, each at its next write: a command that some of them have written may be lost."""
        up = [one for one in self._deciders() if one.core is not None]
        doomed = self.draw.sample(up, self.draw.randint((len(up) + 1) // 2, len(up)))
        for process in doomed:
            process.disk.trap = partial(self._kill, process, self._span())
        return bool(doomed)

    def split_off_leader(self, span: int = 0) -> bool:
        """Cut the links from the leader to the other replicas, or back, or both; servers and clients still reach it."""
        leader = self._leader()
        if leader is None:
            return False
        others = [one.address for one in self._deciders() if one is not leader]
        sides = ([leader.address], others)
        one, other = sides if self.draw.random() < 0.5 else sides[::-1]
        return self._partition(one, other, self.draw.random() < 0.3, span)

    def split_deciders(self) -> bool:
        """Split some replicas from the others, for long enough that both sides time out."""
        addresses = [one.address for one in self._deciders()]
        if len(addresses) == 1:
            return False
        self.draw.shuffle(addresses)
        middle = self.draw.randint(1, len(addresses) - 1)
        span = self.draw.randint(4, 12) * self.cluster.shape.heartbeat_ns
        return self._partition(addresses[:middle], addresses[middle:], self.draw.random() < 0.3, span)

    def clock_jump(self) -> bool:
        process = self._leader() if self.draw.random() < 0.5 else self._someone()
        if process is not None:
            self._jump(process, int(self.draw.random() ** 3 * 20 * self.cluster.shape.heartbeat_ns))
        return process is not None

    def _partition(self, one: list[str], other: list[str], one_way: bool, span: int = 0) -> bool:
        if self.cluster.nodes:
            one = self._with_nodes(one)
            other = [address for address in self._with_nodes(other) if address not in one]
        links = self.cluster.network.split(one, other, one_way=one_way)
        self.world.annotate(f"cut {one} from {other}, {one_way=}")
        self.world.after(span or self._span(), self._restore, links)
        return True

    def _with_nodes(self, addresses: list[str]) -> list[str]:
        """These, and the other servers of their nodes."""
        processes = [process for process in self.cluster.processes() if process.address in addresses]
        found = {one.address for process in processes for one in self.cluster.node_of(process)}
        return sorted({*addresses, *found})

    def _restore(self, links: set[tuple[str, str]]) -> None:
        self.world.annotate(f"restore {len(links)} links")
        self.cluster.network.restore(links)

    def _halves(self) -> tuple[list[str], list[str]]:
        addresses = [process.address for process in self.cluster.processes()]
        self.draw.shuffle(addresses)
        middle = self.draw.randint(1, len(addresses) - 1)
        return addresses[:middle], addresses[middle:]

    def split(self) -> bool:
        return self._partition(*self._halves(), one_way=False)

    def split_one_way(self) -> bool:
        return self._partition(*self._halves(), one_way=True)

    def split_partly(self) -> bool:
        """Two groups cannot communicate; a third one communicates with both."""
        one, rest = self._halves()
        return self._partition(one, rest[: self.draw.randint(0, len(rest))], self.draw.random() < 0.3)

    def isolate(self) -> bool:
        process = self._someone()
        if process is None:
            return False
        others = [other.address for other in self.cluster.processes() if other is not process]
        return self._partition([process.address], others, self.draw.random() < 0.3)

    def _storm(self, **weather: Any) -> bool:
        self.storms += 1
        for name, value in weather.items():
            setattr(self.cluster.network.weather, name, value)
        self.world.after(3 * self._span(), self._calm)
        return True

    def _calm(self, _: None) -> None:
        self.storms -= 1
        if not self.storms:
            weather = self.cluster.network.weather
            weather.loss = weather.double = weather.slow = 0.0

    def lossy_network(self) -> bool:
        return self._storm(loss=self.draw.choice((0.02, 0.1, 0.4)))

    def doubling_network(self) -> bool:
        return self._storm(double=self.draw.choice((0.1, 0.5)), slow_ns=self._span())

    def reordering_network(self) -> bool:
        return self._storm(slow=self.draw.choice((0.05, 0.5)), slow_ns=self._span())

    def slow_disk(self) -> bool:
        process = self._someone(self.draw.choice(sorted(set(self.WRITERS), reverse=True)))
        if process is not None:
            sync_ns = self.cluster.shape.sync_ns * self.draw.choice((10, 50))
            for one in self.cluster.node_of(process):
                one.disk.sync_ns = sync_ns
            self.world.after(self._span(), self._fast_disk, process)
        return process is not None

    def _fast_disk(self, process: Process) -> None:
        for one in self.cluster.node_of(process):
            one.disk.sync_ns = self.cluster.shape.sync_ns

    def full_disk(self) -> bool:
        process = self._someone(self.draw.choice(self.WRITERS))
        if process is not None:
            for one in self.cluster.node_of(process):
                one.disk.full = True
            self.world.after(self._span(), self._free_disk, process)
        return process is not None

    def _free_disk(self, process: Process) -> None:
        for one in self.cluster.node_of(process):
            one.disk.full = False

    def flip_a_bit(self) -> bool:
        """In a stored record: the process runs until it reads the record, and cannot start again."""
        process = self._someone(self.LOSERS)
        if process is None or not self.losses_left or not process.disk.flip(self.RECORDS):
            return False
        self.losses_left -= 1
        return True

    def flip_a_bit_and_kill(self) -> bool:
        """In any journal of a server, which is then killed: it must be wiped before it starts again."""
        process = self._someone(self.LOSERS)
        if process is None or not self.losses_left or not process.disk.flip():
            return False
        self.losses_left -= 1
        self._kill(process, self._span())
        return True

    def lose_disk(self) -> bool:
        process = self._someone(self.LOSERS)
        if process is None or not self.losses_left or not self._survives_without(process):
            return False
        self.losses_left -= 1
        self._lose(process, self._span())
        return True

    def _survives_without(self, process: Process) -> bool:
        """Whether the replicas that run Paxos survive the loss of this server's disk, or of its node's."""
        return True

    def _lose(self, process: Process, down: int) -> None:
        self._kill(process, down)
        self.cluster.wipe(process)

    def _retire(self, process: Process) -> None:
        """Lose a server, and its node, permanently."""
        self.cluster.retired |= {one.address for one in self.cluster.node_of(process)}
        self._lose(process, 1)

    # ---- reconfigurations

    def _operate(self, _: None) -> None:
        if self.healed:
            return
        name = self.draw.choice(self.trouble.operations)
        if len(self.cluster.operator.process.calls) < 4:
            operate = self.OPERATIONS[name]
            if name in self.WITHOUT_VIEW:
                if operate(self, None):
                    self._count(name)
            else:
                self.cluster.operator.call(calls.View(), lambda view: self._operate_on(name, operate, view))
        self.world.after(self._wait(self.trouble.operate_every_ns), self._operate)

    def _operate_on(self, name: str, operate: Callable[..., Any], view: Any) -> None:
        change = None if self.healed or isinstance(view, Exception) else operate(self, view)
        if change is not None:
            self._count(name)
            self._have(name, change)

    def _have(self, name: str, change: Any) -> None:
        """Make a change of the cluster."""
        self.cluster.operator.call(calls.Reconfigure(change), lambda result: self._operated(name, change, result))

    def _operated(self, name: str, change: Any, result: Any) -> None:
        self._count(f"{name}: {'refused' if isinstance(result, Exception) else 'done'}")
        self.operated.append((change, result))

    # ---- healing

    def heal(self) -> None:
        """End all faults: every link works, every process that may run is up, every disk is whole and has space; a disk
        with damaged records is replaced by an empty one."""
        self.healed = True
        network = self.cluster.network
        network.cut.clear()
        weather = network.weather
        weather.loss = weather.double = weather.slow = 0.0
        for process in self.cluster.processes():
            process.disk.full = False
            process.disk.sync_ns = self.cluster.shape.sync_ns
            if process.paused:
                process.resume()
            if process.core is not None and process.disk.has_damage():
                self.cluster.kill(process)
                process.wipe()
            self.cluster.revive(process)
