"""The faults of a cluster of Scalog, and the operator's changes during them.

Permanent losses stay within what the protocol survives: in a seed at most f storage servers lose their disk or a bit of
it, and a minority of the ordering replicas at a time loses its disk: some never return, others return with an empty
disk and count as lost until they have joined again. All other faults are healed in the end.

A replaced server keeps its data until its successor has it, so faults that make servers look dead (pauses, splits,
slow disks) lose no data under any failure policy.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from logdb.cores.effects import MILLISECOND
from logdb.log import requests as calls
from logdb.log.engine import Right
from logdb.log.requests import ShardState
from logdb.log.scalog import messages
from logdb.log.scalog.engine import ORDERING
from logdb.security.permissions import ALLOWED_MESSAGES
from tests.sim import faults
from tests.sim.faults import Trouble
from tests.sim.process import Process
from tests.sim.scalog.cluster import Cluster
from tests.sim.workload import Application


def forged(config: messages.ShardConfig, server: int) -> list[Any]:
    """All messages about a server that a client with the right to write can send to the ordering layer."""
    kinds: Any = sorted(ALLOWED_MESSAGES[Right.WRITE] & ORDERING.accepts, key=repr)
    names = {"shard": config.shard, "epoch": config.epoch, "server": server}
    accusing = [kind for kind in kinds if "server" in kind._fields]
    return [kind(**{name: names[name] for name in kind._fields}) for kind in accusing]


class Faults(faults.Faults):
    """Injects faults into a cluster of Scalog until `heal`."""

    WITHOUT_VIEW: ClassVar[tuple[str, ...]] = ("start spare", "start aggregator")
    KINDS: ClassVar[tuple[str, ...]] = ("storage", "storage", "ordering", "aggregator", "client")
    WRITERS: ClassVar[tuple[str, ...]] = ("storage", "storage", "ordering")
    DECIDERS: ClassVar[str] = "ordering"
    LOSERS: ClassVar[str] = "storage"
    RECORDS: ClassVar[str] = "segment-"
    cluster: Cluster

    def __init__(self, cluster: Cluster, applications: Mapping[str, Application], trouble: Trouble) -> None:
        self.losses_left = cluster.shape.f
        self.replicas_left = (cluster.shape.replicas - 1) // 2
        super().__init__(cluster, applications, trouble)

    def kill_storage(self) -> bool:
        return self._kill_one("storage")

    def kill_ordering(self) -> bool:
        return self._kill_one("ordering")

    def kill_aggregator(self) -> bool:
        return self._kill_one("aggregator")

    def cut_off_client(self) -> bool:
        return self._cut_off_from_storage(self._someone("client"))

    def cut_off_aggregator(self) -> bool:
        return self._cut_off_from_storage(self._someone("aggregator"))

    def cut_off_leader(self) -> bool:
        return len(self.cluster.ordering) > 1 and self._cut_off_from_storage(self._leader())

    def _cut_off_from_storage(self, process: Process | None) -> bool:
        """Cut the links to the storage servers, or back, for long; those to the ordering layer stay."""
        if process is None:
            return False
        servers = [other.address for other in self.cluster.storage]
        span = self.draw.randint(10, 40) * self.cluster.shape.heartbeat_ns
        sides = ([process.address], servers)
        one, other = sides if self.draw.random() < 0.5 else sides[::-1]
        return self._partition(one, other, self.draw.random() < 0.3, span)

    def forging_client(self) -> bool:
        """A client reports every storage server as failed to every ordering replica."""
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

    def lose_disk_beside_a_replacement(self) -> bool:
        """Replace a healthy server, and wipe another member's disk before the successor has caught up."""
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
        """Wipe this member's disk once another member of its shard is joining, or when `left` attempts have passed."""
        leader = self._leader()
        core: Any = leader.core if leader is not None else None
        known = core.state.servers.get(server) if core is not None else None
        joining = known is not None and known.shard and core.state.shards[known.shard].joining
        if known is None or not (joining or not left):
            if left and not self.healed:
                self.world.after(self.cluster.shape.heartbeat_ns // 10, lambda _: self._lose_soon(server, left - 1))
            return
        process = next(one for one in self.cluster.storage if one.address == known.address)
        if not self.healed and process.core is not None and self._survives_without(process):
            self._lose(process, self._span())

    def wipe_replica(self) -> bool:
        """Wipe the disk of an ordering replica, often the leader, with its promises."""
        process = self._leader() if self.draw.random() < 0.5 else self._someone("ordering")
        if process is None or not self._survives_without(process) or not self._take_losses(process):
            return False
        self._lose(process, self._span())
        return True

    def _survives_without(self, process: Process) -> bool:
        node = self.cluster.node_of(process)
        return all(self.cluster.may_lose_replica(one) for one in node if one.kind == "ordering")

    def _take_losses(self, replica: Process) -> bool:
        """Count the disks of the storage servers on its node as lost, if they may be."""
        lost = sum(one.kind == "storage" for one in self.cluster.node_of(replica))
        if lost > self.losses_left:
            return False
        self.losses_left -= lost
        return True

    def lose_replica(self) -> bool:
        """Wipe the disk of an ordering replica, and never start it again."""
        process = self._someone("ordering")
        if process is None or not self.replicas_left or not self._survives_without(process):
            return False
        if not self._take_losses(process):
            return False
        self.replicas_left -= 1
        self._retire(process)
        return True

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
        """Replace all members of a shard at once, although each successor must copy from the others."""
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


FAULTS: dict[str, Callable[[Faults], bool]] = {
    "kill storage": Faults.kill_storage,
    "kill ordering": Faults.kill_ordering,
    "kill aggregator": Faults.kill_aggregator,
    "kill client": Faults.kill_client,
    "kill in mid-write": Faults.kill_in_mid_write,
    "ordering dies in mid-write": Faults.most_deciders_die_in_mid_write,
    "kill leader": Faults.kill_leader,
    "power failure": Faults.power_failure,
    "pause": Faults.pause,
    "clock jump": Faults.clock_jump,
    "split": Faults.split,
    "split one way": Faults.split_one_way,
    "split partly": Faults.split_partly,
    "split off leader": Faults.split_off_leader,
    "split ordering layer": Faults.split_deciders,
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
"""Faults that do not involve storage servers."""


Faults.FAULTS, Faults.OPERATIONS = FAULTS, OPERATIONS


HARMLESS = ("kill storage", "kill ordering", "kill aggregator", "kill in mid-write", "kill leader", "slow disk")
"""Faults that do not delay messages from clients to mapping servers."""


def trouble_of(draw: random.Random) -> Trouble:
    """The trouble of a seed. One in eight has none; one in twelve has faults outside the storage servers only; one in
    eight of the others has no faults or no operations; one in four has faults of the ordering layer only."""
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
