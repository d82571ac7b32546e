"""The faults of a cluster of Corfu, and the operator's changes meanwhile.

A unit loses its disk at any time, if another unit of its shard has all entries; replicas of the auxiliary lose theirs
while more than half of all are members without them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from logdb.cores.effects import MILLISECOND
from logdb.log import requests as calls
from logdb.log.corfu.messages import FillRequest, Seal, TokenRequest, WriteRequest
from logdb.log.corfu.projection import POSITION_WINDOW, View
from logdb.log.requests import ShardState
from tests.sim import faults
from tests.sim.corfu.cluster import Cluster
from tests.sim.faults import Trouble
from tests.sim.process import Process
from tests.sim.workload import Application

STREAMS = 4
STREAMS_EVERY_NS = 6 * MILLISECOND
SOURCE_TRIES = 60


class Faults(faults.Faults):
    """Injects faults into a cluster of Corfu until `heal`."""

    WITHOUT_VIEW: ClassVar[tuple[str, ...]] = ("start spare",)
    KINDS: ClassVar[tuple[str, ...]] = ("storage", "storage", "storage", "ordering", "sequencer", "client", "client")
    WRITERS: ClassVar[tuple[str, ...]] = ("storage", "storage", "ordering")
    DECIDERS: ClassVar[str] = "ordering"
    LOSERS: ClassVar[str] = "storage"
    RECORDS: ClassVar[str] = "entries"
    cluster: Cluster

    def __init__(self, cluster: Cluster, applications: Mapping[str, Application], trouble: Trouble) -> None:
        self.losses_left = 4
        self.replicas_left = (cluster.shape.replicas - 1) // 2
        super().__init__(cluster, applications, trouble)
        self._ends: dict[int, int] = {}
        if cluster.shape.stream_shards:
            self.world.after(self._wait(STREAMS_EVERY_NS), self._use_streams)

    # ---- streams

    def _use_streams(self, _: None) -> None:
        """An application appends to some streams, or reads one."""
        if self.healed:
            return
        self.world.after(self._wait(STREAMS_EVERY_NS), self._use_streams)
        one = self._pick([one for one in self.applications.values() if one.process.core is not None])
        if one is None or one.busy >= one.load.under_way:
            return
        if self.draw.random() < 0.6:
            streams = tuple(self.draw.sample(range(1, STREAMS + 1), self.draw.choice((1, 1, 2, 3))))
            self._count("append to streams")
            one.put("append", calls.Append(one.records(), streams=streams))
        else:
            stream = self.draw.randint(1, STREAMS)
            gsn = self.draw.choice((1, self._ends.get(stream, 1)))
            self._count("read a stream")
            one.put("read a stream", calls.ReadStream(stream, gsn), self._ends)

    def kill_storage(self) -> bool:
        return self._kill_one("storage")

    def kill_ordering(self) -> bool:
        return self._kill_one("ordering")

    def kill_sequencer(self) -> bool:
        return self._kill_one("sequencer")

    def _unit(self, place: int) -> Process | None:
        """A running unit of a chain: its head (0) or its last one (-1)."""
        addresses = [config.units[place].address for config in self.cluster.state.shards.values() if config.units]
        process: Process | None = self._pick(
            [one for one in self.cluster.storage if one.core is not None and one.address in addresses]
        )
        return process

    def kill_head(self) -> bool:
        process = self._unit(0)
        if process is not None:
            self._kill(process, self._span())
        return process is not None

    def detach_unit(self) -> bool:
        """A unit and some clients are cut off from the others: clients with an old projection still read it."""
        process = self._unit(self.draw.choice((0, -1)))
        if process is None:
            return False
        clients = self.draw.sample(self.cluster.clients, self.draw.randint(0, len(self.cluster.clients)))
        inside = [process.address, *(one.address for one in clients)]
        outside = [one.address for one in self.cluster.processes() if one.address not in inside]
        return self._partition(inside, outside, self.draw.random() < 0.2, self._long())

    def detach_unit_from_auxiliary(self) -> bool:
        """The auxiliary removes a unit that all clients still reach."""
        process = self._unit(self.draw.choice((0, -1)))
        if process is None:
            return False
        sides = ([process.address], list(self.cluster.founders))
        one, other = sides if self.draw.random() < 0.5 else sides[::-1]
        return self._partition(one, other, self.draw.random() < 0.5, self._long())

    def detach_sequencer(self) -> bool:
        """The auxiliary moves the sequencer, but clients still reach the old one."""
        process = self._someone("sequencer")
        return process is not None and self._partition(
            [process.address], list(self.cluster.founders), self.draw.random() < 0.5, self._long()
        )

    def client_dies_in_mid_chain(self) -> bool:
        """A client reaches the head of a chain and not the other units, and dies after a while."""
        process = self._someone("client")
        shards = self.cluster.state.shards.values()
        others = [one for config in shards for one in config.units[not config.holds_streams :]]
        if process is None or not others:
            return False
        span = self._span()
        self._partition([process.address], [one.address for one in others], self.draw.random() < 0.5, span)
        if self.draw.random() < 0.7:
            self.world.after(span, lambda _: self._kill(process, self._span()) if process.core is not None else None)
        return True

    def cut_off_client(self) -> bool:
        """A client reaches some units and not the others."""
        process = self._someone("client")
        if process is None:
            return False
        some = self.draw.sample(self.cluster.storage, self.draw.randint(1, len(self.cluster.storage)))
        return self._partition([process.address], [one.address for one in some], self.draw.random() < 0.3, self._long())

    def _long(self) -> int:
        return self.draw.randint(2, 30) * self.cluster.shape.heartbeat_ns

    def late_seal(self) -> bool:
        """A leader dies after it has sealed some units: the next one must begin a new epoch."""
        units = [unit for config in self.cluster.state.shards.values() for unit in config.units]
        if not units:
            return False
        for unit in self.draw.sample(units, self.draw.randint(1, len(units))):
            self.cluster.network.send(self.cluster.founders[0], unit.address, Seal(self.cluster.state.epoch))
        return True

    def forge_positions(self) -> bool:
        """A client sends what its right allows: entries and junk at positions that were not assigned to it, entries
        with times far ahead, and requests for positions that it does not write."""
        process, state = self._someone("client"), self.cluster.state
        units = [unit.address for config in state.shards.values() for unit in config.units]
        if process is None or not units:
            return False
        tail = max(state.start, self.cluster.assigned)
        for _ in range(self.draw.randint(1, 8)):
            number, to = self.draw.getrandbits(62), self.draw.choice(units)
            near = tail + self.draw.randrange(300)
            far = self.draw.choice((near, tail + 2 * POSITION_WINDOW, 1 << 40, (1 << 63) - 1))
            message: Any = WriteRequest(number, state.epoch, far, 1 << 62, number, 1, (), [(1, b"forged")])
            if self.draw.random() < 0.6:
                message = FillRequest(number, state.epoch, self.draw.choice((far, near)))
            elif self.draw.random() < 0.4 and state.sequencer:
                message, to = TokenRequest(number, state.epoch, (0,) * self.draw.randint(1, 30)), state.sequencer
            self.cluster.network.send(process.address, to, message)
        return True

    # ---- disks

    def lose_disk(self) -> bool:
        process = self._someone("storage")
        return self._lose_storage(process)

    def lose_disk_of_head(self) -> bool:
        return self._lose_storage(self._unit(0))

    def lose_disk_of_source(self) -> bool:
        """The only complete unit of a chain loses its disk while others copy from it, as soon as there is one."""
        self._await_source(SOURCE_TRIES)
        return True

    def _await_source(self, tries: int) -> None:
        found = [one.complete[0] for one in self.cluster.state.shards.values() if one.former and len(one.complete) == 1]
        addresses = [unit.address for unit in found]
        process = self._pick([one for one in self.cluster.storage if one.address in addresses])
        if tries and not self.healed and not self._lose_storage(process):
            wait = self._wait(self.cluster.shape.heartbeat_ns)
            self.world.after(wait, lambda _: self._await_source(tries - 1))

    def _lose_storage(self, process: Process | None) -> bool:
        if process is None or not self.losses_left or not self._survives_without(process):
            return False
        self.losses_left -= 1
        self.world.counts["sealed unit lost its disk"] += self.cluster.is_sealed(process)
        self._lose(process, self._span())
        return True

    def flip_a_bit_of_a_unit(self) -> bool:
        """In a stored record: the unit runs until it reads the record, and cannot start again. Until then it counts as
        complete, so that another one may be removed that is only silent."""
        process = self._someone("storage")
        if process is None or not self.losses_left or not self._survives_without(process, spared=1):
            return False
        self.losses_left -= 1
        return process.disk.flip(self.RECORDS)

    def flip_a_bit_and_kill(self) -> bool:
        """In any journal of a server, which is then killed: it must be wiped before it starts again."""
        process = self._someone("storage")
        if process is None or not self.losses_left or not self._survives_without(process) or not process.disk.flip():
            return False
        self.losses_left -= 1
        self._kill(process, self._span())
        return True

    def wipe_replica(self) -> bool:
        process = self._leader() if self.draw.random() < 0.5 else self._someone("ordering")
        if process is None or not self._survives_without(process):
            return False
        self._lose(process, self._span())
        return True

    def lose_replica(self) -> bool:
        """Wipe the disk of a replica of the auxiliary, and never start it again."""
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

    def _survives_without(self, process: Process, spared: int = 0) -> bool:
        cluster = self.cluster
        node = cluster.node_of(process)
        if not all(
            one.kind == "sequencer"
            or (cluster.may_lose_replica(one) if one.kind == "ordering" else cluster.may_lose_storage(one, spared))
            for one in node
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

    def add_stream_shard(self, view: View) -> Any:
        used = self.cluster.shape.stream_shards
        return calls.AddStreamShard((self.draw.choice(view.spares).server,)) if used and view.spares else None

    def finalize_stream_shard(self, view: View) -> Any:
        """Its streams move to the others."""
        found = [one.shard for one in view.shards if one.holds_streams and one.is_live]
        return calls.FinalizeShard(self.draw.choice(found), 0) if len(found) > 1 else None

    def replace_server(self, view: View) -> Any:
        """Of any shard; of a drained one the records are copied."""
        found = [member for one in view.shards for member in one.members]
        return calls.ReplaceServer(self.draw.choice(found).server, 0) if found else None

    def add_replica(self, view: View) -> Any:
        found = [one for one in view.shards if one.state is ShardState.FINALIZED]
        return calls.AddReplica(self.draw.choice(found).shard, 0) if found else None

    def trim_records(self, view: View) -> Any:
        """Trim some records one by one: single ones, or all of some appends in a row. A database needs all its
        records."""
        if not self.cluster.shape.clients:
            return None
        history = next(iter(self.applications.values())).history
        done = [one for one in history.operations if type(one.result) is calls.AppendResult and one.result.gsns]
        if not done:
            return None
        at = self.draw.randrange(len(done))
        chosen = done[at : at + self.draw.choice((1, 1, 5, 20))]
        share = self.draw.choice((0.5, 1.0))
        gsns = tuple([gsn for one in chosen for gsn in one.result.gsns if self.draw.random() < share])
        history.trims.update(gsns)
        return calls.TrimRecords(gsns)

    def _operated(self, name: str, change: Any, result: Any) -> None:
        super()._operated(name, change, result)
        if isinstance(change, calls.TrimRecords) and not isinstance(result, Exception):
            next(iter(self.applications.values())).history.trimmed.update(change.gsns)

    def start_spare(self, _: Any) -> Any:
        if len(self.cluster.storage) >= 16:
            return None
        self.cluster.add_storage().start()
        return True


FAULTS: dict[str, Callable[[Any], bool]] = {
    "kill storage": Faults.kill_storage,
    "kill head": Faults.kill_head,
    "kill ordering": Faults.kill_ordering,
    "kill sequencer": Faults.kill_sequencer,
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
    "client dies in mid-chain": Faults.client_dies_in_mid_chain,
    "forge positions": Faults.forge_positions,
    "detach unit": Faults.detach_unit,
    "detach unit from the auxiliary": Faults.detach_unit_from_auxiliary,
    "detach sequencer": Faults.detach_sequencer,
    "late seal": Faults.late_seal,
    "lossy network": Faults.lossy_network,
    "doubling network": Faults.doubling_network,
    "reordering network": Faults.reordering_network,
    "slow disk": Faults.slow_disk,
    "full disk": Faults.full_disk,
    "flip a bit": Faults.flip_a_bit_of_a_unit,
    "flip a bit and kill": Faults.flip_a_bit_and_kill,
    "lose disk": Faults.lose_disk,
    "lose disk of a head": Faults.lose_disk_of_head,
    "lose disk of a source": Faults.lose_disk_of_source,
    "lose storage": Faults.lose_storage,
    "wipe replica": Faults.wipe_replica,
    "lose replica": Faults.lose_replica,
}

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add shard": Faults.add_shard,
    "finalize shard": Faults.finalize_shard,
    "add stream shard": Faults.add_stream_shard,
    "finalize stream shard": Faults.finalize_stream_shard,
    "replace server": Faults.replace_server,
    "add replica": Faults.add_replica,
    "trim records": Faults.trim_records,
    "start spare": Faults.start_spare,
}

CHANGES_OF_EPOCHS = (
    "kill storage",
    "kill head",
    "kill sequencer",
    "detach unit",
    "detach unit from the auxiliary",
    "detach sequencer",
    "late seal",
    "client dies in mid-chain",
    "cut off client",
)
FOCUSES = (
    Trouble(("detach unit", "detach unit from the auxiliary", "client dies in mid-chain"), ("start spare",)),
    Trouble(("detach sequencer", "kill sequencer", "slow disk", "clock jump"), ("add shard", "finalize shard")),
    Trouble(("forge positions", "kill sequencer", "kill head"), ("add shard", "finalize shard")),
    Trouble(("kill head", "late seal", "doubling network", "reordering network"), ("add shard", "finalize shard")),
    Trouble(("lose disk", "lose disk of a head", "kill storage", "late seal", "detach unit"), ("start spare",)),
    Trouble(("lose disk of a source", "pause", "detach unit", "client dies in mid-chain"), ("start spare",)),
    Trouble(("flip a bit", "slow disk"), ("add replica", "start spare")),
    Trouble(("lose disk", "kill storage", "late seal"), ("trim records", "start spare", "replace server")),
    Trouble(
        ("kill storage", "lose disk", "client dies in mid-chain"),
        ("add shard", "finalize shard", "replace server", "add replica", "start spare"),
    ),
)
"""Faults that together reach what each of them alone seldom does: half-written chains that no writer completes, units
and sequencers that clients with an old projection still use, and units that are lost while others copy."""
AT_OTHERS = ("kill client", "cut off client", "client dies in mid-chain", "forge positions")
"""Faults after which no unit is removed."""
HARMLESS = ("kill storage", "kill ordering", "kill sequencer", "kill in mid-write", "kill leader", "slow disk")

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
    kinds = CHANGES_OF_EPOCHS if draw.random() < 1 / 6 else tuple(FAULTS)
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
