"""The faults of a cluster of Ziplog, and the operator's changes meanwhile.

A storage server loses its disk at any time, if another server of its shard is complete; replicas of the MMS lose theirs
while more than half of all are members without them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from logdb.cores.effects import MILLISECOND, Received
from logdb.log import requests as calls
from logdb.log.requests import ShardState
from logdb.log.ziplog.messages import Freeze, Report, Update, View
from tests.sim import faults
from tests.sim.faults import Trouble
from tests.sim.network import Filter
from tests.sim.process import Process
from tests.sim.workload import Application
from tests.sim.ziplog.cluster import Cluster


class Faults(faults.Faults):
    """Injects faults into a cluster of Ziplog until `heal`."""

    WITHOUT_VIEW: ClassVar[tuple[str, ...]] = ("start spare",)
    KINDS: ClassVar[tuple[str, ...]] = ("storage", "storage", "storage", "ordering", "client")
    WRITERS: ClassVar[tuple[str, ...]] = ("storage", "storage", "ordering")
    DECIDERS: ClassVar[str] = "ordering"
    LOSERS: ClassVar[str] = "storage"
    RECORDS: ClassVar[str] = "records-"
    cluster: Cluster

    def __init__(self, cluster: Cluster, applications: Mapping[str, Application], trouble: Trouble) -> None:
        self.losses_left = 4
        self.replicas_left = (cluster.shape.replicas - 1) // 2
        super().__init__(cluster, applications, trouble)

    def kill_storage(self) -> bool:
        return self._kill_one("storage")

    def kill_ordering(self) -> bool:
        return self._kill_one("ordering")

    def _member(self, index: int | None = None) -> Process | None:
        """A running member of a shard: the primary, or a backup."""
        found = [
            one
            for config in self.cluster.state.shards.values()
            for one in self.cluster.storage
            for place, member in enumerate(config.members)
            if one.address == member.address and one.core is not None and (place > 0) == (index != 0)
        ]
        process: Process | None = self._pick(found)
        return process

    def kill_primary(self) -> bool:
        process = self._member(0)
        if process is not None:
            self._kill(process, self._span())
        return process is not None

    def cut_off_primary(self) -> bool:
        """A primary does not reach its backups, or they do not reach it; clients reach all."""
        process = self._member(0)
        if process is None:
            return False
        others = [one.address for one in self.cluster.storage if one is not process]
        sides = ([process.address], others)
        one, other = sides if self.draw.random() < 0.5 else sides[::-1]
        return self._partition(one, other, self.draw.random() < 0.5, self._long())

    def cut_off_from_mms(self) -> bool:
        """A storage server misses epochs and views, or its reports are lost; the other members reach it."""
        process = self._someone("storage")
        if process is None:
            return False
        sides = ([process.address], list(self.cluster.founders))
        one, other = sides if self.draw.random() < 0.5 else sides[::-1]
        return self._partition(one, other, self.draw.random() < 0.5, self._long())

    def cut_off_client(self) -> bool:
        """A client reaches some storage servers and not the others: they place different records."""
        process = self._someone("client")
        if process is None:
            return False
        some = self.draw.sample(self.cluster.storage, self.draw.randint(1, len(self.cluster.storage)))
        return self._partition([process.address], [one.address for one in some], self.draw.random() < 0.3, self._long())

    # ---- epochs, rates, clocks

    def _filter(self, change: Filter, span: int) -> None:
        """Change messages for this time."""
        filters = self.cluster.network.filters
        filters.append(change)
        self.world.after(span, lambda _: filters.remove(change) if change in filters else None, None)

    def late_epochs(self) -> bool:
        """A storage server enters epochs and views late, some of them after later ones, or after it has restarted. Some
        of its reports arrive as late."""
        process = self._someone("storage")
        if process is None:
            return False
        longest, draw = self._long(), self.draw
        processes = self.cluster.network.processes

        def delay(sender: str, to: str, message: Any) -> Any:
            is_late_report = sender == process.address and isinstance(message, Report) and draw.random() < 0.2
            if is_late_report or (to == process.address and isinstance(message, Update)):
                self.world.after(draw.randint(1, longest), processes[to].deliver, Received(sender, message))
                return None
            return message

        self._filter(delay, self._long())
        return True

    def skipped_epochs(self) -> bool:
        """Some servers never get some of the epochs."""
        up = [one for one in self.cluster.storage if one.core is not None]
        if not up:
            return False
        some = {one.address for one in self.draw.sample(up, self.draw.randint(1, len(up)))}
        share, draw = self.draw.choice((0.3, 0.9, 1.0)), self.draw

        def drop(_: str, to: str, message: Any) -> Any:
            return None if to in some and isinstance(message, Update) and draw.random() < share else message

        self._filter(drop, self._long())
        return True

    def wrong_rates(self) -> bool:
        """The MMS gets rates of a shard that are a hundred times too large or too small."""
        process = self._member(0)
        if process is None:
            return False
        is_larger = self.draw.random() < 0.5

        def change(sender: str, _: str, message: Any) -> Any:
            if sender != process.address or not isinstance(message, Report):
                return message
            return message._replace(records=message.records * 100 if is_larger else message.records // 100)

        self._filter(change, self._long())
        return True

    def drifting_clock(self) -> bool:
        """A clock is fast for a while."""
        process = self._leader() if self.draw.random() < 0.5 else self._someone("storage")
        if process is None:
            return False
        step = self.cluster.shape.heartbeat_ns // 4
        self._drift(process, int(step * self.draw.choice((0.01, 0.1, 0.5, 2.0))), self.draw.randint(4, 60))
        return True

    def _drift(self, process: Process, by: int, left: int) -> None:
        if not self.healed:
            self._jump(process, by)
            if left > 1:
                step = self.cluster.shape.heartbeat_ns // 4
                self.world.after(step, lambda _: self._drift(process, by, left - 1), None)

    def heal(self) -> None:
        self.cluster.network.filters.clear()
        if self.cluster.shape.acks_received:
            # A shard waits for a server that may have what the others lack, until it has another disk (ZIP-12).
            self.cluster.retired.difference_update([one.address for one in self.cluster.storage])
        super().heal()

    def _long(self) -> int:
        return self.draw.randint(2, 30) * self.cluster.shape.heartbeat_ns

    def late_freeze(self) -> bool:
        """A `Freeze` of an earlier leader arrives: healthy servers stop, and a new view must begin."""
        config = self._pick([one for one in self.cluster.state.shards.values() if one.is_in_set])
        if config is None:
            return False
        member = self.draw.choice(config.members)
        self.cluster.network.send(self.cluster.founders[0], member.address, Freeze(config.shard, config.view))
        return True

    # ---- disks

    def lose_disk(self) -> bool:
        process = self._someone("storage")
        return self._lose_storage(process)

    def lose_disk_of_primary(self) -> bool:
        return self._lose_storage(self._member(0))

    def _lose_storage(self, process: Process | None) -> bool:
        if process is None or not self.losses_left or not self._survives_without(process):
            return False
        self.losses_left -= 1
        self._lose(process, self._span())
        return True

    def flip_a_bit_and_kill(self) -> bool:
        """In any journal of a server, which is then killed: it must be wiped before it starts again."""
        process = self._someone("storage")
        if process is None or not self.losses_left or not self._survives_without(process) or not process.disk.flip():
            return False
        self.losses_left -= 1
        self._kill(process, self._span())
        return True

    def flip_a_bit(self) -> bool:
        """In a stored record of a server that runs on, until it reads the record or restarts."""
        process = self._someone("storage")
        if process is None or not self.losses_left or not self._survives_without(process):
            return False
        if not process.disk.flip(self.RECORDS):
            return False
        self.losses_left -= 1
        return True

    def wipe_replica(self) -> bool:
        process = self._leader() if self.draw.random() < 0.5 else self._someone("ordering")
        if process is None or not self._survives_without(process):
            return False
        self._lose(process, self._span())
        return True

    def lose_replica(self) -> bool:
        """Wipe the disk of a replica of the MMS, and never start it again."""
        process = self._someone("ordering")
        if process is None or not self.replicas_left or not self._survives_without(process):
            return False
        self.replicas_left -= 1
        self._retire(process)
        return True

    def lose_storage(self) -> bool:
        """A storage server loses its disk and does not come back."""
        process = self._someone("storage")
        if process is None or not self.losses_left or not self._survives_without(process) or self.cluster.nodes:
            return False
        self.losses_left -= 1
        self._retire(process)
        return True

    def _survives_without(self, process: Process) -> bool:
        cluster = self.cluster
        node = cluster.node_of(process)
        if not all(
            cluster.may_lose_replica(one) if one.kind == "ordering" else cluster.may_lose_storage(one) for one in node
        ):
            return False
        servers = [cluster.server_of(one) for one in node if one.kind == "storage"]
        cluster.lost.update([server.server for server in servers if server is not None])
        return True

    # ---- changes

    def add_shard(self, view: View) -> Any:
        return calls.AddShard(())

    def finalize_shard(self, view: View) -> Any:
        found = [one for one in view.shards if one.state is ShardState.LIVE]
        return calls.FinalizeShard(self.draw.choice(found).shard, self.draw.choice((0, 3))) if found else None

    def replace_server(self, view: View) -> Any:
        """Of any shard; of a drained one the records are copied."""
        found = [member for one in view.shards for member in one.members]
        return calls.ReplaceServer(self.draw.choice(found).server, 0) if found else None

    def add_replica(self, view: View) -> Any:
        found = [one for one in view.shards if one.state is ShardState.FINALIZED]
        return calls.AddReplica(self.draw.choice(found).shard, 0) if found else None

    def set_cut_interval(self, view: View) -> Any:
        return calls.SetCutInterval(self.draw.choice((1, 5, 50)) * MILLISECOND)

    def start_spare(self, _: Any) -> Any:
        if len(self.cluster.storage) >= 16:
            return None
        self.cluster.add_storage().start()
        return True


FAULTS: dict[str, Callable[[Any], bool]] = {
    "kill storage": Faults.kill_storage,
    "kill primary": Faults.kill_primary,
    "kill ordering": Faults.kill_ordering,
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
    "cut off primary": Faults.cut_off_primary,
    "cut off from the mms": Faults.cut_off_from_mms,
    "late freeze": Faults.late_freeze,
    "late epochs": Faults.late_epochs,
    "skipped epochs": Faults.skipped_epochs,
    "wrong rates": Faults.wrong_rates,
    "drifting clock": Faults.drifting_clock,
    "flip a bit": Faults.flip_a_bit,
    "lossy network": Faults.lossy_network,
    "doubling network": Faults.doubling_network,
    "reordering network": Faults.reordering_network,
    "slow disk": Faults.slow_disk,
    "full disk": Faults.full_disk,
    "flip a bit and kill": Faults.flip_a_bit_and_kill,
    "lose disk": Faults.lose_disk,
    "lose disk of a primary": Faults.lose_disk_of_primary,
    "lose storage": Faults.lose_storage,
    "wipe replica": Faults.wipe_replica,
    "lose replica": Faults.lose_replica,
}

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add shard": Faults.add_shard,
    "finalize shard": Faults.finalize_shard,
    "replace server": Faults.replace_server,
    "add replica": Faults.add_replica,
    "set cut interval": Faults.set_cut_interval,
    "start spare": Faults.start_spare,
}

CHANGES_OF_VIEWS = ("kill storage", "kill primary", "cut off primary", "late freeze", "cut off client", "split partly")
FOCUSES = (
    Trouble(("cut off primary", "kill primary", "lose disk of a primary", "cut off client"), ()),
    Trouble(("cut off from the mms", "slow disk"), ("add shard", "finalize shard", "start spare")),
    Trouble(("kill primary", "late freeze", "doubling network", "reordering network"), ("add shard", "finalize shard")),
    Trouble(
        ("lose disk", "lose disk of a primary", "kill storage", "late freeze", "cut off primary"), ("start spare",)
    ),
    Trouble(
        ("late epochs", "skipped epochs", "wrong rates", "drifting clock", "late freeze", "kill primary"),
        ("add shard", "finalize shard", "start spare"),
    ),
    Trouble(
        ("kill storage", "lose disk", "cut off client"),
        ("add shard", "finalize shard", "replace server", "add replica", "start spare"),
    ),
)
"""Faults that together reach what each of them alone seldom does: speculative records that only a backup has, servers
that have not entered a new set of shards, answers of an earlier view, and sources that are lost while a view begins."""
AT_OTHERS = ("kill client", "cut off client")
"""Faults after which no view changes."""
HARMLESS = ("kill storage", "kill ordering", "kill in mid-write", "kill leader", "slow disk")

Faults.FAULTS, Faults.OPERATIONS = FAULTS, OPERATIONS


def trouble_of(draw: random.Random) -> Trouble:
    """The trouble of a seed. One in eight has none; one in twelve only at clients, one in four a focus, one in six only
    changes of views."""
    if draw.random() < 1 / 8:
        return Trouble((), ())
    if draw.random() < 1 / 12:
        return Trouble(AT_OTHERS, (), every_ns=draw.choice((15, 40, 100)) * MILLISECOND)
    if draw.random() < 1 / 4:
        return replace(
            draw.choice(FOCUSES),
            every_ns=draw.choice((15, 40)) * MILLISECOND,
            operate_every_ns=draw.choice((20, 60)) * MILLISECOND,
            long=draw.choice((2.0, 6.0)),
        )
    share = draw.choice((0.15, 0.4, 0.8))
    kinds = CHANGES_OF_VIEWS if draw.random() < 1 / 6 else tuple(FAULTS)
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
