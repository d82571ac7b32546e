"""A cluster of Ziplog: replicas of the MMS and storage servers, of a given shape.

Servers register themselves and wait as spares; an operator, who is a client like others, makes shards of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from logdb.cores.effects import MILLISECOND, Address
from logdb.log import paxos
from logdb.log import requests as calls
from logdb.log.paxos import records as paxos_records
from logdb.log.ziplog.messages import Member, ShardConfig, View
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.mms.replica import MmsReplica
from logdb.log.ziplog.records import header
from logdb.log.ziplog.storage.checkpoints import META
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.server import StorageServer
from tests.sim import cluster
from tests.sim.network import weather_of
from tests.sim.process import Process
from tests.sim.world import Failure, World
from tests.sim.ziplog.losses import Losses


@dataclass(frozen=True, slots=True)
class Shape(cluster.Shape):
    """`replicas`: of the MMS; `f`: failures that a shard survives. `acks_received`: of the storage servers."""

    replicas: int = 3
    f: int = 1
    shards: int = 2
    spares: int = 2
    snapshot_bytes: int = 4 << 20
    checkpoint_bytes: int = 4 << 20
    cache_bytes: int = 8 << 20
    epoch_ns: int = 20 * MILLISECOND
    acks_received: bool = False

    @property
    def members(self) -> int:
        """Members of a shard."""
        return self.f + 1

    def under_database(self) -> Self:
        """The same with a database on it, which rejects `acks_received`."""
        sync_ns = self.sync_ns // 10 if self.acks_received else self.sync_ns
        return replace(self, clients=0, acks_received=False, sync_ns=sync_ns)


def shape_of(draw: random.Random) -> Shape:
    """The shape of a seed. Where servers acknowledge what they have not synced, they sync slowly: a crash would seldom
    lose anything else."""
    shape = Shape(
        replicas=draw.choice((1, 3, 3, 5)),
        f=draw.choice((0, 1, 1, 1, 2)),
        shards=draw.choice((1, 2, 2, 3)),
        spares=draw.choice((0, 1, 3, 6)),
        clients=draw.choice((1, 2, 3)),
        sync_ns=draw.choice((20_000, 200_000, 2_000_000)),
        small_buffers=draw.random() < 0.4,
        snapshot_bytes=draw.choice((2_000, 4 << 20)),
        checkpoint_bytes=draw.choice((500, 2_000, 4 << 20)),
        cache_bytes=draw.choice((0, 1_000, 8 << 20)),
        epoch_ns=draw.choice((2, 10, 20, 60)) * MILLISECOND,
        weather=weather_of(draw),
        acks_received=draw.random() < 0.3,
    )
    return replace(shape, sync_ns=10 * shape.sync_ns) if shape.acks_received else shape


def on_nodes(shape: Shape, draw: random.Random) -> Shape:
    """The same on nodes, each with a replica of the MMS and a storage server."""
    nodes = draw.choice((3, 3, 5))
    shape = replace(shape, nodes=nodes, replicas=nodes, f=1 if nodes == 3 else shape.f)
    shards = draw.randint(1, nodes // shape.members)
    return replace(shape, shards=shards, spares=nodes - shards * shape.members)


def _shape(replicas: int, shards: int, f: int) -> Shape:
    """A shape with spare servers for two more shards."""
    return Shape(clients=1, replicas=replicas, shards=shards, f=f, spares=2 * (f + 1))


SHAPES = {
    "-alone": _shape(1, 1, 0),
    "": _shape(3, 2, 1),
    "-three": _shape(3, 2, 2),
    "-received": replace(_shape(3, 2, 1), acks_received=True),
}
"""For the conformance suites."""


@dataclass(slots=True)
class StableOrder:
    """The records that some server of a shard regarded as stable, by GSN, up to `end`."""

    end: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict)


class Cluster(cluster.Cluster):
    """Its processes. `state`: the newest state of the MMS that any replica has applied. `lost`: the numbers of the
    servers that have lost their disks to faults."""

    engine: ClassVar[str] = "ziplog"
    shape: Shape

    def __init__(self, world: World, shape: Shape) -> None:
        self.ordering: list[Process] = []
        self.storage: list[Process] = []
        self.state: Any = None
        self._slots: dict[int, bytes] = {}
        self._slot = self._version = 0
        self._stable: dict[int, StableOrder] = {}
        self._owners: dict[int, int] = {}
        self._seen: dict[Address, tuple[int, int, int]] = {}
        self.lost: set[int] = set()
        self._losses = Losses()
        self._sets: dict[int, tuple[ShardConfig, ...]] = {}
        self._drained: set[int] = set()
        super().__init__(world, shape, tuple(f"ordering-{number}" for number in range(1, shape.replicas + 1)))

    def add_servers(self) -> None:
        for address in self.founders:
            self._add(self.ordering, address, "ordering", self._mms_core(address)).watch = self._compare
        for _ in range(self.shape.shards * self.shape.members + self.shape.spares):
            self.add_storage()

    def add_storage(self) -> Process:
        """One more storage server, not started."""
        address = f"storage-{len(self.storage) + 1}"
        shape, unit = self.shape, self.shape.heartbeat_ns
        config = StorageConfig(
            address=address,
            ordering=self.founders,
            heartbeat_ns=unit,
            suspect_after_ns=4 * unit,
            resend_ns=unit,
            epoch_age_ns=4 * shape.epoch_ns,
            cache_bytes=shape.cache_bytes,
            checkpoint_bytes=shape.checkpoint_bytes,
            acks_received=shape.acks_received,
        )
        if shape.small_buffers:
            config = replace(config, buffer_bytes=1_200, batch_bytes=500)
        process = self._add(self.storage, address, "storage", lambda found, rng: StorageServer(config, found, rng))
        process.watch = self._check_stable
        if shape.acks_received:
            process.on_loss = self._note_loss
        return process

    def _mms_core(self, address: Address) -> Any:
        shape, unit = self.shape, self.shape.heartbeat_ns
        config = MmsConfig(
            address=address,
            replicas=self.founders,
            members=shape.members,
            epoch_ns=shape.epoch_ns,
            heartbeat_ns=unit,
            suspect_after_ns=4 * unit,
            snapshot_bytes=shape.snapshot_bytes,
            paxos=paxos.Config(election_ns=4 * unit, heartbeat_ns=unit),
        )
        if shape.small_buffers:
            config = replace(config, paxos=replace(config.paxos, batch_bytes=500, window=2, retain_bytes=500))
        return lambda journals, rng: MmsReplica(config, journals, rng)

    # ---- invariants

    def _compare(self, process: Process) -> None:
        """All replicas of the MMS have the same state after the same slot."""
        core: Any = process.core
        if core.slot not in self._slots:
            self._slots[core.slot] = core.state.to_bytes()
            assert self._slots[core.slot] == type(core.state).from_bytes(self._slots[core.slot]).to_bytes()
        elif core.slot != self._seen.get(process.address, (0, 0, 0))[0]:
            state = core.state.to_bytes()
            assert self._slots[core.slot] == state, f"replicas of the MMS differ after slot {core.slot}: {state!r}"
        self._seen[process.address] = core.slot, 0, 0
        if core.slot > self._slot:
            self.world.counts["set of shards changed"] += core.state.epoch.version != self._version
            before, opened = (self.state.shards, self.state.opened) if self.state is not None else ({}, 0)
            self._slot, self._version = core.slot, core.state.epoch.version
            self.state = type(core.state).from_bytes(self._slots[core.slot])
            self._check_sources(before)
            self._check_opened(opened)
            for config in self.state.shards.values():
                self._losses.note_view(config)
            for shard, config in before.items():
                now = self.state.shards.get(shard)
                self.world.counts["shard removed"] += now is None
                self.world.counts["members of a drained shard changed"] += bool(
                    now is not None and config.is_drained and now.view > config.view
                )

    def _serving(self, member: Member, config: ShardConfig) -> Any:
        """The state of a member that serves this view of its shard; None if it does not."""
        process = next(one for one in self.storage if one.address == member.address)
        state = process.core.state if process.core is not None else None
        is_serving = state is not None and state.number == member.server and state.serves(config.shard, config.view)
        return state if is_serving else None

    def _check_sources(self, before: Mapping[int, ShardConfig]) -> None:
        """Check that a view begins with a frozen server (ZIP-8)."""
        for shard, config in self.state.shards.items():
            old = before.get(shard)
            if old is not None and old.view < config.view and old.has_records:
                source = config.members[0]
                if any(self._serving(source, config._replace(view=view)) for view in range(1, config.view)):
                    raise Failure("ZIP-8: a view begins with a frozen server", f"{source}, {config}")

    def _check_opened(self, before: int) -> None:
        """Check that shards are open when those before them have moved on (ZIP-6): of each view of the set before, a
        member has entered a later one, or is frozen; if it is the only one, so is each server with which a view may
        begin."""
        state = self.state
        self._drained.update([one.shard for one in state.shards.values() if one.is_drained])
        self._sets[state.epoch.version] = tuple([one for one in state.shards.values() if one.is_in_set])
        for version in range(before + 1, state.opened + 1):
            configs = self._sets.get(version - 1, ())
            for old in configs:
                now = state.shards.get(old.shard)
                if now is None or old.shard in self._drained:
                    continue  # its order is complete
                complete = {one.server for one in (*now.members, *now.former) if one.is_complete}
                serving = {one.server: self._serving(one, old) for one in old.members}
                behind = {server for server, one in serving.items() if one and one.epoch.version < version}
                if len(behind) == len(old.members) or (len(configs) == 1 and behind & complete):
                    raise Failure("ZIP-6: shards open when others have moved on", f"{version}: {behind} of {old}")

    def _check_stable(self, process: Process) -> None:
        """Check that stable records are the same at all servers (ZIP-4), and on one shard (ZIP-1)."""
        member = process.core.state
        log, seen = member.log, self._seen.get(process.address, (0, 0, 0))
        now = process.wipes, member.view, log.stable
        if now == seen or not member.view or member.adopting is not None:
            return
        self.world.counts["view adopted"] += now[1] != seen[1]
        self._seen[process.address] = now
        before = seen[2] if seen[:2] == now[:2] else 0
        after = max(before, log.store.cached_from, self.state.oldest - 1)
        found = log.store.fetch(after, log.stable, 1 << 30).records if after < log.stable else []
        order = self._stable.setdefault(member.shard_number, StableOrder())
        here = {gsn: (client, sequence) for gsn, client, sequence in (header((one.tag, one.payload)) for one in found)}
        known = {gsn: who for gsn, who in order.records.items() if after < gsn <= log.stable}
        mine = {gsn: who for gsn, who in here.items() if gsn <= order.end}
        if mine != known:
            detail = f"{process.address}, view {member.view}: {after} to {log.stable} has {mine}, known are {known}"
            raise Failure("ZIP-4: what is stable does not change", detail)
        if after <= order.end:
            for gsn, who in here.items():
                order.records[gsn] = who
                if self._owners.setdefault(gsn, member.shard_number) != member.shard_number:
                    raise Failure("ZIP-1: a GSN belongs to one shard", f"{gsn}: {member.shard_number}")
            order.end = max(order.end, log.stable)

    # ---- what may be lost

    def _note_loss(self, process: Process) -> None:
        server = self.server_of(process)
        if server is None or not server.shard:
            return
        if process.core is None:
            self._losses.note_loss(process, server.server)
            return
        config = self.state.shards[server.shard]
        addresses = [member.address for member in config.members]
        members = [one for one in self.storage if one.address in addresses]
        self._losses.note_crash(process, server.server, config, members)

    @property
    def losable(self) -> set[int]:
        """See `Losses`."""
        return self._losses.possible()

    def has_joined(self, replica: Process) -> bool:
        """Whether a replica of the MMS is a member, by the durable records on its disk."""
        journal = replica.disk.journals.get(paxos.JOURNAL)
        durable = journal.records[: journal.durable - journal.first] if journal is not None else []
        members = [payload for tag, payload in durable if tag == paxos_records.MEMBER]
        return any(paxos_records.read_member(payload).joined for payload in members)

    def may_lose_replica(self, replica: Process) -> bool:
        """Whether more than half of the replicas of the MMS are members without this one."""
        others = [one for one in self.ordering if one is not replica and one.address not in self.retired]
        return sum(map(self.has_joined, others)) > len(self.ordering) // 2

    def may_lose_storage(self, process: Process) -> bool:
        """Whether the records of the shard of this server survive: another complete server has its disk (ZIP-10). One
        that was replaced does not count when the command that releases it may be under way."""
        server = self.server_of(process)
        if server is None or not server.shard:
            return self.state is not None and process.core is not None and not getattr(process.core, "view", 0)
        config = self.state.shards[server.shard]
        by_address = {one.address: one for one in self.storage}
        cores = [by_address[member.address].core for member in config.members if not member.is_synced]
        is_copying = any(core is not None and not core.state.is_synced for core in cores)
        for member in (*config.members, *(config.former if is_copying else ())):
            one = by_address[member.address]
            has_disk = member.server not in self.lost and not one.disk.has_damage()
            if member.is_complete and one is not process and has_disk:
                return not config.is_drained
        return False

    def server_of(self, process: Process) -> Any:
        """The server of the MMS whose disk this is; None if there is none."""
        journal = process.disk.journals.get(META)
        if self.state is None or journal is None or not journal.records:
            return None
        nonce = json.loads(journal.records[-1][1])["nonce"]
        return next((one for one in self.state.servers.values() if one.nonce == nonce), None)

    @property
    def tail(self) -> int:
        """A lower bound of the last ordered record of the log."""
        return max([0, *(gsn for order in self._stable.values() for gsn in order.records)])

    # ---- start

    def make_shards(self) -> None:
        world, shape = self.world, self.shape
        limit = world.now + 400 * shape.heartbeat_ns
        while len(self.view(limit).spares) < len(self.storage):
            world.run(world.now + shape.heartbeat_ns)
        for _ in range(shape.shards):
            self.operator.do(calls.AddShard(()), limit)
        while len(shards := self.view(limit).shards) < shape.shards or not all(config.is_in_set for config in shards):
            if len(shards) < shape.shards:  # with a slow disk the servers may have seemed not to answer
                self.operator.do(calls.AddShard(()), limit)
            world.run(world.now + shape.heartbeat_ns)

    def view(self, limit: int) -> View:
        """The newest configuration, as returned to the operator."""
        view = self.operator.ask(calls.View(), limit)
        assert isinstance(view, View), view
        return view
