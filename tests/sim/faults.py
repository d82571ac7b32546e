"""What goes wrong, and what the operator does meanwhile. Swarm style: each seed has its own few kinds of each.

What may be lost for ever is bounded by what the protocol promises to survive: in a seed at most f storage servers lose
their disk or a bit of it, and of the ordering replicas a minority at a time: some of them stay away for ever, others
come back with an empty disk and count as lost until they have joined again. All else is healed in the end.

A server that is replaced keeps its data until its successor has it, so what makes servers look dead (pauses, splits,
slow disks) is no loss, whatever the log's policy makes of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from logdb.cores.effects import MILLISECOND
from logdb.log import requests as calls
from logdb.log.engine import Right, engine_of
from logdb.log.requests import ShardState
from logdb.log.scalog import messages
from logdb.security.permissions import BRINGS
from logdb.transport.accepted_messages import taken_by
from tests.sim.cluster import Cluster
from tests.sim.process import Process
from tests.sim.workload import Application


@dataclass(frozen=True, slots=True)
class Trouble:
    """`every_ns`: the mean time between two faults, and between two reconfigurations. `long`: how many heartbeats a
    fault lasts at most: beyond 4 others will notice."""

    faults: tuple[str, ...]
    operations: tuple[str, ...]
    every_ns: int = 30 * MILLISECOND
    operate_every_ns: int = 60 * MILLISECOND
    long: float = 4.0


def forged(config: messages.ShardConfig, server: int) -> list[Any]:
    """All that a client with the right to write can say of a server to the ordering layer."""
    kinds: Any = sorted(BRINGS[Right.WRITE] & taken_by("ordering", engine_of("scalog")), key=repr)
    names = {"shard": config.shard, "epoch": config.epoch, "server": server}
    accusing = [kind for kind in kinds if "server" in kind._fields]
    return [kind(**{name: names[name] for name in kind._fields}) for kind in accusing]


class Faults:
    """Makes trouble in a cluster until `heal`."""

    def __init__(self, cluster: Cluster, applications: dict[str, Application], trouble: Trouble) -> None:
        self.cluster, self.applications, self.trouble = cluster, applications, trouble
        self.world = cluster.world
        self.draw = self.world.draw("faults")
        self.healed = False
        self.losses_left = cluster.shape.f
        self.replicas_left = (cluster.shape.replicas - 1) // 2
        self.storms = 0
        self.operated: list[tuple[Any, Any]] = []
        if trouble.faults:
            self.world.after(self._wait(trouble.every_ns), self._fault)
        if trouble.operations:
            self.world.after(self._wait(trouble.operate_every_ns), self._operate)

    def _wait(self, mean: int) -> int:
        return int(self.draw.expovariate(1) * mean) + 1

    def _span(self) -> int:
        """How long a fault lasts."""
        return int(self.draw.random() ** 2 * self.trouble.long * self.cluster.shape.heartbeat_ns) + 1

    def _count(self, name: str) -> None:
        self.world.counts[name] += 1

    # ---- faults

    def _fault(self, _: None) -> None:
        if self.healed:
            return
        name = self.draw.choice(self.trouble.faults)
        if FAULTS[name](self):
            self._count(name)
        self.world.after(self._wait(self.trouble.every_ns), self._fault)

    def _someone(self, kind: str | None = None) -> Process | None:
        """A process that is up. Kinds are drawn first: there are more storage servers than others."""
        operator = self.cluster.operator.process
        up = [other for other in self.cluster.processes() if other.core is not None and other is not operator]
        kind = kind or self.draw.choice(("storage", "storage", "ordering", "aggregator", "client"))
        return self._pick([process for process in up if process.kind == kind])

    def _pick(self, found: list[Any]) -> Any:
        return self.draw.choice(found) if found else None

    def _kill(self, process: Process, down: int) -> None:
        if self.healed:
            return
        process.kill()
        application = self.applications.get(process.address)
        if application is not None:
            application.killed()
        self.world.after(down, self.cluster.revive, process)

    def _kill_one(self, kind: str) -> bool:
        process = self._someone(kind)
        if process is not None:
            self._kill(process, self._span())
        return process is not None

    def kill_storage(self) -> bool:
        return self._kill_one("storage")

    def kill_ordering(self) -> bool:
        return self._kill_one("ordering")

    def kill_aggregator(self) -> bool:
        return self._kill_one("aggregator")

    def kill_client(self) -> bool:
        return self._kill_one("client")

    def kill_in_mid_write(self) -> bool:
        """When it next writes: what it has said, and what it has not, hangs by what is durable."""
        process = self._someone(self.draw.choice(("storage", "storage", "ordering")))
        if process is None:
            return False
        process.disk.trap = partial(self._kill, process, self._span())
        return True

    def ordering_dies_in_mid_write(self) -> bool:
        """Most replicas of the ordering layer, each when it next writes: a command may be lost that was half there."""
        up = [one for one in self.cluster.ordering if one.core is not None]
        doomed = self.draw.sample(up, self.draw.randint((len(up) + 1) // 2, len(up)))
        for process in doomed:
            process.disk.trap = partial(self._kill, process, self._span())
        return bool(doomed)

    def _leader(self) -> Process | None:
        """An ordering replica that leads, or thinks so."""
        replicas = [one for one in self.cluster.ordering if one.core is not None]
        leaders: list[Process] = [one for one in replicas if getattr(one.core, "leader", None) is not None]
        found: Process | None = self._pick(leaders)
        return found

    def kill_leader(self) -> bool:
        leader = self._leader()
        if leader is not None:
            self._kill(leader, self._span())
        return leader is not None

    def split_off_leader(self) -> bool:
        """The other replicas do not hear it, or it does not hear them; servers and clients still do."""
        leader = self._leader()
        if leader is None:
            return False
        others = [one.address for one in self.cluster.ordering if one is not leader]
        sides = ([leader.address], others)
        one, other = sides if self.draw.random() < 0.5 else sides[::-1]
        return self._partition(one, other, self.draw.random() < 0.3)

    def split_ordering_layer(self) -> bool:
        """Some of its replicas from the others, for long enough that both sides notice."""
        everybody = [one.address for one in self.cluster.ordering]
        if len(everybody) == 1:
            return False
        self.draw.shuffle(everybody)
        middle = self.draw.randint(1, len(everybody) - 1)
        span = self.draw.randint(4, 12) * self.cluster.shape.heartbeat_ns
        return self._partition(everybody[:middle], everybody[middle:], self.draw.random() < 0.3, span)

    def power_failure(self) -> bool:
        """Every server dies at once."""
        for process in self.cluster.processes():
            if process.core is not None and process.kind != "client":
                self._kill(process, self._span())
        return True

    def pause(self) -> bool:
        process = self._someone()
        if process is not None:
            process.pause()
            self.world.after(self._span(), self._resume, process)
        return process is not None

    def _resume(self, process: Process) -> None:
        if process.core is not None:
            process.resume()

    def clock_jump(self) -> bool:
        process = self._leader() if self.draw.random() < 0.5 else self._someone()
        if process is not None:
            process.jump(int(self.draw.random() ** 3 * 20 * self.cluster.shape.heartbeat_ns))
        return process is not None

    def _partition(self, one: list[str], other: list[str], one_way: bool, span: int = 0) -> bool:
        links = self.cluster.network.split(one, other, one_way=one_way)
        self.world.tell(f"cut {one} from {other}, {one_way=}")
        self.world.after(span or self._span(), self._mend, links)
        return True

    def _mend(self, links: set[tuple[str, str]]) -> None:
        self.world.tell(f"mend {len(links)} links")
        self.cluster.network.mend(links)

    def _halves(self) -> tuple[list[str], list[str]]:
        everybody = [process.address for process in self.cluster.processes()]
        self.draw.shuffle(everybody)
        middle = self.draw.randint(1, len(everybody) - 1)
        return everybody[:middle], everybody[middle:]

    def split(self) -> bool:
        return self._partition(*self._halves(), one_way=False)

    def split_one_way(self) -> bool:
        return self._partition(*self._halves(), one_way=True)

    def split_partly(self) -> bool:
        """Two groups cannot talk, a third one talks to both."""
        one, rest = self._halves()
        return self._partition(one, rest[: self.draw.randint(0, len(rest))], self.draw.random() < 0.3)

    def isolate(self) -> bool:
        process = self._someone()
        if process is None:
            return False
        others = [other.address for other in self.cluster.processes() if other is not process]
        return self._partition([process.address], others, self.draw.random() < 0.3)

    def cut_off_client(self) -> bool:
        return self._cut_off_from_storage(self._someone("client"))

    def cut_off_aggregator(self) -> bool:
        return self._cut_off_from_storage(self._someone("aggregator"))

    def cut_off_leader(self) -> bool:
        return len(self.cluster.ordering) > 1 and self._cut_off_from_storage(self._leader())

    def _cut_off_from_storage(self, process: Process | None) -> bool:
        """It reaches no storage server, or none reaches it, for long; the ordering layer it does."""
        if process is None:
            return False
        servers = [other.address for other in self.cluster.storage]
        span = self.draw.randint(10, 40) * self.cluster.shape.heartbeat_ns
        sides = ([process.address], servers)
        one, other = sides if self.draw.random() < 0.5 else sides[::-1]
        return self._partition(one, other, self.draw.random() < 0.3, span)

    def forging_client(self) -> bool:
        """A client accuses every server of the log of having failed, to every replica."""
        process, leader = self._someone("client"), self._leader()
        if process is None or leader is None:
            return False
        core: Any = leader.core
        for config in core.state.view().shards:
            for member in config.members:
                for message in forged(config, member.server):
                    for replica in self.cluster.ordering:
                        self.cluster.network.send(process.address, replica.address, message)
        return True

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
        process = self._someone(self.draw.choice(("storage", "ordering")))
        if process is not None:
            process.disk.sync_ns = self.cluster.shape.sync_ns * self.draw.choice((10, 50))
            self.world.after(self._span(), self._fast_disk, process)
        return process is not None

    def _fast_disk(self, process: Process) -> None:
        process.disk.sync_ns = self.cluster.shape.sync_ns

    def full_disk(self) -> bool:
        process = self._someone(self.draw.choice(("storage", "storage", "ordering")))
        if process is not None:
            process.disk.full = True
            self.world.after(self._span(), self._free_disk, process)
        return process is not None

    def _free_disk(self, process: Process) -> None:
        process.disk.full = False

    def flip_a_bit(self) -> bool:
        """In a stored segment: the process goes on until it reads that, and starts no more after that."""
        process = self._someone("storage")
        if process is None or not self.losses_left or not process.disk.flip("segment-"):
            return False
        self.losses_left -= 1
        return True

    def flip_a_bit_and_kill(self) -> bool:
        """In any journal of a server that then dies: it must be wiped before it starts again."""
        process = self._someone("storage")
        if process is None or not self.losses_left or not process.disk.flip():
            return False
        self.losses_left -= 1
        self._kill(process, self._span())
        return True

    def lose_disk(self) -> bool:
        process = self._someone("storage")
        if process is None or not self.losses_left:
            return False
        self.losses_left -= 1
        self._kill(process, self._span())
        process.wipe()
        return True

    def lose_disk_beside_a_replacement(self) -> bool:
        """A server that is well is replaced, and before its successor has caught up another member loses its disk."""
        leader = self._leader()
        core: Any = leader.core if leader is not None else None
        shard = self._shard(core.state.view(), ShardState.LIVE) if core is not None else None
        if not self.losses_left or shard is None or len(shard.members) < 2:
            return False
        one, other = self.draw.sample(shard.members, 2)
        self.losses_left -= 1
        self._have("lose disk beside a replacement", calls.ReplaceServer(one.server, 0))
        self._lose_soon(other.server, 40)
        return True

    def _lose_soon(self, server: int, left: int) -> None:
        """This member loses its disk once another one of its shard is joining, or at the latest after a while."""
        leader = self._leader()
        core: Any = leader.core if leader is not None else None
        known = core.state.servers.get(server) if core is not None else None
        joining = known is not None and known.shard and core.state.shards[known.shard].joining
        if known is None or not (joining or not left):
            if left and not self.healed:
                self.world.after(self.cluster.shape.heartbeat_ns // 10, lambda _: self._lose_soon(server, left - 1))
            return
        process = next(one for one in self.cluster.storage if one.address == known.address)
        if not self.healed and process.core is not None:
            self._kill(process, self._span())
            process.wipe()

    def wipe_replica(self) -> bool:
        """An ordering replica, as often as not one that leads, loses its disk and with it its promises."""
        process = self._leader() if self.draw.random() < 0.5 else self._someone("ordering")
        if process is None or not self.cluster.may_lose_replica(process):
            return False
        self._kill(process, self._span())
        process.wipe()
        return True

    def lose_replica(self) -> bool:
        """An ordering replica loses its disk and is never to come back."""
        process = self._someone("ordering")
        if process is None or not self.replicas_left or not self.cluster.may_lose_replica(process):
            return False
        self.replicas_left -= 1
        self.cluster.retired.add(process.address)
        self._kill(process, 1)
        process.wipe()
        return True

    # ---- reconfigurations

    def _operate(self, _: None) -> None:
        if self.healed:
            return
        name = self.draw.choice(self.trouble.operations)
        if len(self.cluster.operator.process.calls) < 4:
            operate = OPERATIONS[name]
            if operate is Faults.start_spare or operate is Faults.start_aggregator:
                if operate(self, None):
                    self._count(name)
            else:
                self.cluster.operator.call(calls.View(), lambda view: self._operate_on(name, operate, view))
        self.world.after(self._wait(self.trouble.operate_every_ns), self._operate)

    def _operate_on(self, name: str, operate: Callable[..., Any], view: Any) -> None:
        change = None if self.healed or not isinstance(view, messages.View) else operate(self, view)
        if change is not None:
            self._count(name)
            self._have(name, change)

    def _have(self, name: str, change: messages.Reconfiguration) -> None:
        """Have a change carried out."""
        self.cluster.operator.call(calls.Reconfigure(change), lambda result: self._operated(name, change, result))

    def _operated(self, name: str, change: Any, result: Any) -> None:
        self._count(f"{name}: {'refused' if isinstance(result, Exception) else 'done'}")
        self.operated.append((change, result))

    def _shard(self, view: messages.View, *states: ShardState) -> messages.ShardConfig | None:
        found: messages.ShardConfig | None = self._pick([shard for shard in view.shards if shard.state in states])
        return found

    def add_shard(self, view: messages.View) -> Any:
        return calls.AddShard(())

    def finalize_with_grace(self, view: messages.View) -> Any:
        shard = self._shard(view, ShardState.LIVE)
        return shard and calls.FinalizeShard(shard.shard, self.draw.randint(1, 20))

    def finalize_now(self, view: messages.View) -> Any:
        shard = self._shard(view, ShardState.LIVE, ShardState.FINALIZING)
        return shard and calls.FinalizeShard(shard.shard, 0)

    def replace_server(self, view: messages.View) -> Any:
        shard = self._shard(view, ShardState.LIVE)
        return shard and calls.ReplaceServer(self.draw.choice(shard.members).server, 0)

    def replace_all_servers(self, view: messages.View) -> Any:
        """All of one shard, and never mind that each must be copied from the others before these can go."""
        first = self.replace_server(view)
        if first is not None:
            (shard,) = [one for one in view.shards if any(member.server == first.server for member in one.members)]
            for member in shard.members:
                if member.server != first.server:
                    self._have("replace all servers", calls.ReplaceServer(member.server, 0))
        return first

    def add_replica(self, view: messages.View) -> Any:
        shard = self._shard(view, ShardState.FINALIZED)
        return shard and calls.AddReplica(shard.shard, 0)

    def set_cut_interval(self, view: messages.View) -> Any:
        return calls.SetCutInterval(self.draw.choice((0, 0, self.cluster.shape.heartbeat_ns // 5)))

    def seal_segment(self, view: messages.View) -> Any:
        shard = self._shard(view, ShardState.LIVE)
        segment = self._pick(list(shard.segments)) if shard else None
        return segment and messages.SealSegment(segment.id)

    def open_segment(self, view: messages.View) -> Any:
        shard = self._shard(view, ShardState.LIVE)
        return shard and messages.OpenSegment(self.draw.choice(shard.members).server)

    def set_parent(self, view: messages.View) -> Any:
        if not view.aggregators:
            return None
        parent = self.draw.choice(("", *(address for address, _ in view.aggregators)))
        return messages.SetParent(self.draw.choice(view.aggregators)[0], parent)

    def assign_shard(self, view: messages.View) -> Any:
        if not view.aggregators or not view.shards:
            return None
        aggregator = self.draw.choice(("", *(address for address, _ in view.aggregators)))
        return messages.AssignShard(self.draw.choice(view.shards).shard, aggregator)

    def drop_aggregator(self, view: messages.View) -> Any:
        return messages.DropAggregator(self.draw.choice(view.aggregators)[0]) if view.aggregators else None

    def start_spare(self, _: Any) -> Any:
        if len(self.cluster.storage) >= 16:
            return None
        self.cluster.add_storage().start()
        return True

    def start_aggregator(self, _: Any) -> Any:
        if len(self.cluster.aggregators) >= 6:
            return None
        self.cluster.add_aggregator().start()
        return True

    # ---- the end

    def heal(self) -> None:
        """Nothing goes wrong any more: every link carries, every process that may is up, every disk is whole and has
        space: one that has damaged records is replaced by an empty one."""
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
                process.kill()
                process.wipe()
            self.cluster.revive(process)


FAULTS: dict[str, Callable[[Faults], bool]] = {
    "kill storage": Faults.kill_storage,
    "kill ordering": Faults.kill_ordering,
    "kill aggregator": Faults.kill_aggregator,
    "kill client": Faults.kill_client,
    "kill in mid-write": Faults.kill_in_mid_write,
    "ordering dies in mid-write": Faults.ordering_dies_in_mid_write,
    "kill leader": Faults.kill_leader,
    "power failure": Faults.power_failure,
    "pause": Faults.pause,
    "clock jump": Faults.clock_jump,
    "split": Faults.split,
    "split one way": Faults.split_one_way,
    "split partly": Faults.split_partly,
    "split off leader": Faults.split_off_leader,
    "split ordering layer": Faults.split_ordering_layer,
    "isolate": Faults.isolate,
    "cut off client": Faults.cut_off_client,
    "forging client": Faults.forging_client,
    "cut off aggregator": Faults.cut_off_aggregator,
    "cut off leader": Faults.cut_off_leader,
    "lossy network": Faults.lossy_network,
    "doubling network": Faults.doubling_network,
    "reordering network": Faults.reordering_network,
    "slow disk": Faults.slow_disk,
    "full disk": Faults.full_disk,
    "flip a bit": Faults.flip_a_bit,
    "flip a bit and kill": Faults.flip_a_bit_and_kill,
    "lose disk": Faults.lose_disk,
    "lose disk beside a replacement": Faults.lose_disk_beside_a_replacement,
    "wipe replica": Faults.wipe_replica,
    "lose replica": Faults.lose_replica,
}

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add shard": Faults.add_shard,
    "finalize with grace": Faults.finalize_with_grace,
    "finalize now": Faults.finalize_now,
    "replace server": Faults.replace_server,
    "replace all servers": Faults.replace_all_servers,
    "add replica": Faults.add_replica,
    "set cut interval": Faults.set_cut_interval,
    "seal segment": Faults.seal_segment,
    "open segment": Faults.open_segment,
    "set parent": Faults.set_parent,
    "assign shard": Faults.assign_shard,
    "drop aggregator": Faults.drop_aggregator,
    "start spare": Faults.start_spare,
    "start aggregator": Faults.start_aggregator,
}


AT_THE_ORDERING_LAYER = (
    "kill ordering",
    "ordering dies in mid-write",
    "kill leader",
    "wipe replica",
    "split off leader",
    "split ordering layer",
    "clock jump",
    "lossy network",
    "doubling network",
    "reordering network",
    "slow disk",
)
AT_OTHERS = ("kill client", "cut off client", "forging client", "cut off aggregator", "cut off leader")
"""What no storage server can be blamed for."""


def trouble_of(draw: random.Random) -> Trouble:
    """The trouble of a seed. One in eight has none, one in twelve faults that are no storage server's, one in eight of
    the others no faults or no operations, one in four has its faults at the ordering layer."""
    if draw.random() < 1 / 8:
        return Trouble((), ())
    if draw.random() < 1 / 12:
        return Trouble(AT_OTHERS, (), every_ns=draw.choice((15, 40, 100)) * MILLISECOND)
    share = draw.choice((0.15, 0.4, 0.8))
    kinds = AT_THE_ORDERING_LAYER if draw.random() < 1 / 4 else tuple(FAULTS)
    faults = tuple(name for name in kinds if draw.random() < share)
    operations = tuple(name for name in OPERATIONS if draw.random() < share)
    if draw.random() < 1 / 8:
        faults = ()
    elif draw.random() < 1 / 8:
        operations = ()
    return Trouble(
        faults,
        operations,
        every_ns=draw.choice((15, 40, 100)) * MILLISECOND,
        operate_every_ns=draw.choice((20, 60, 150)) * MILLISECOND,
        long=draw.choice((2.0, 6.0, 20.0)),
    )
