"""A cluster of Corfu: replicas of the auxiliary, sequencers and storage units, of a given shape.

Units register themselves and wait as spares; an operator, who is a client like others, makes shards of them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, Self

from logdb.cores.effects import Address
from logdb.log import paxos
from logdb.log import requests as calls
from logdb.log.corfu.auxiliary.chains import covers
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.auxiliary.replica import AuxiliaryReplica
from logdb.log.corfu.messages import Entry
from logdb.log.corfu.projection import POSITION_WINDOW, View, gsn_at, position_of
from logdb.log.corfu.sequencer.sequencer import Sequencer, SequencerConfig
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.corfu.storage.unit import META, StorageUnit
from logdb.log.paxos import records as paxos_records
from tests.sim import cluster
from tests.sim.network import weather_of
from tests.sim.process import Process
from tests.sim.world import Failure, World


@dataclass(frozen=True, slots=True)
class Shape(cluster.Shape):
    """`replicas`: of the auxiliary; `f`: failures that a shard survives; `sequencers`: processes, of which one assigns
    positions. `stream_shards`: shards of one stream replica each."""

    replicas: int = 3
    f: int = 1
    shards: int = 2
    spares: int = 2
    sequencers: int = 2
    snapshot_bytes: int = 4 << 20
    cache_bytes: int = 8 << 20
    stream_shards: int = 0

    @property
    def members(self) -> int:
        """Units of a shard."""
        return self.f + 1

    def under_database(self) -> Self:
        """The same with a database on it, which uses no streams."""
        return replace(self, clients=0, stream_shards=0)


def shape_of(draw: random.Random) -> Shape:
    """The shape of a seed."""
    return Shape(
        replicas=draw.choice((1, 3, 3, 5)),
        f=draw.choice((0, 1, 1, 1, 2)),
        shards=draw.choice((1, 2, 2, 3)),
        spares=draw.choice((0, 1, 3, 6)),
        sequencers=draw.choice((1, 2, 2)),
        clients=draw.choice((1, 2, 3)),
        sync_ns=draw.choice((20_000, 200_000, 2_000_000)),
        small_buffers=draw.random() < 0.4,
        snapshot_bytes=draw.choice((2_000, 4 << 20)),
        cache_bytes=draw.choice((0, 1_000, 8 << 20)),
        weather=weather_of(draw),
        stream_shards=draw.choice((0, 0, 1, 2)),
    )


def on_nodes(shape: Shape, draw: random.Random) -> Shape:
    """The same on nodes, each with a replica of the auxiliary, a sequencer and a storage unit."""
    nodes = draw.choice((3, 3, 5))
    shape = replace(shape, nodes=nodes, replicas=nodes, sequencers=nodes, f=1 if nodes == 3 else shape.f)
    shards = draw.randint(1, nodes // shape.members)
    rest = nodes - shards * shape.members
    stream_shards = min(shape.stream_shards, rest)
    return replace(shape, shards=shards, stream_shards=stream_shards, spares=rest - stream_shards)


def _shape(replicas: int, shards: int, f: int) -> Shape:
    """A shape with spare units for two more shards."""
    return Shape(clients=1, replicas=replicas, shards=shards, f=f, spares=2 * (f + 1))


SHAPES = {"-alone": _shape(1, 1, 0), "": _shape(3, 2, 1), "-three": _shape(3, 2, 2)}
"""For the conformance suites."""


@dataclass(slots=True)
class Decided:
    """The entries that were complete at some moment, by position, and the times of their records."""

    entries: dict[int, Entry] = field(default_factory=dict)


class Cluster(cluster.Cluster):
    """Its processes. `state`: the newest state of the auxiliary that any replica has applied. `lost`: the numbers of
    the units that have lost their disks to faults. `assigned`: the first position that no sequencer has assigned."""

    engine: ClassVar[str] = "corfu"
    shape: Shape

    def __init__(self, world: World, shape: Shape) -> None:
        self.ordering: list[Process] = []
        self.storage: list[Process] = []
        self.sequencers: list[Process] = []
        self.state: Any = None
        self._slots: dict[int, bytes] = {}
        self._slot = 0
        self._seen: dict[Address, int] = {}
        self._checked: dict[tuple[Address, int], set[int]] = {}
        self.decided = Decided()
        self.lost: set[int] = set()
        self._spare_lost_at = self.assigned = 0
        super().__init__(world, shape, tuple(f"ordering-{number}" for number in range(1, shape.replicas + 1)))

    def add_servers(self) -> None:
        for address in self.founders:
            self._add(self.ordering, address, "ordering", self._auxiliary(address)).watch = self._compare
        unit = self.shape.heartbeat_ns
        for number in range(1, self.shape.sequencers + 1):
            config = SequencerConfig(f"sequencer-{number}", self.founders, unit)
            self._add(
                self.sequencers,
                config.address,
                "sequencer",
                lambda journals, rng, config=config: Sequencer(config, journals, rng),
            ).watch = self._note_assigned
        for _ in range(self.shape.shards * self.shape.members + self.shape.stream_shards + self.shape.spares):
            self.add_storage()

    def add_storage(self) -> Process:
        """One more storage unit, not started."""
        address = f"storage-{len(self.storage) + 1}"
        unit = self.shape.heartbeat_ns
        config = UnitConfig(address, self.founders, unit, 2 * unit, self.shape.cache_bytes)
        if self.shape.small_buffers:
            config = replace(config, copy_bytes=500)
        process = self._add(self.storage, address, "storage", lambda found, rng: StorageUnit(config, found, rng))
        process.watch = self._check_unit
        return process

    def _auxiliary(self, address: Address) -> Any:
        shape, unit = self.shape, self.shape.heartbeat_ns
        config = AuxiliaryConfig(
            address=address,
            replicas=self.founders,
            units=shape.members,
            heartbeat_ns=unit,
            suspect_after_ns=4 * unit,
            snapshot_bytes=shape.snapshot_bytes,
            paxos=paxos.Config(election_ns=4 * unit, heartbeat_ns=unit),
        )
        if shape.small_buffers:
            config = replace(config, paxos=replace(config.paxos, batch_bytes=500, window=2, retain_bytes=500))
        return lambda journals, rng: AuxiliaryReplica(config, journals, rng)

    # ---- invariants

    def _compare(self, process: Process) -> None:
        """All replicas of the auxiliary have the same state after the same slot."""
        core: Any = process.core
        if core.slot not in self._slots:
            self._slots[core.slot] = core.state.to_bytes()
            assert self._slots[core.slot] == type(core.state).from_bytes(self._slots[core.slot]).to_bytes()
        elif core.slot != self._seen.get(process.address, 0):
            state = core.state.to_bytes()
            assert self._slots[core.slot] == state, f"the replicas differ after slot {core.slot}: {state!r}"
        self._seen[process.address] = core.slot
        if core.slot > self._slot:
            before = self.state
            self._slot = core.slot
            self.state = type(core.state).from_bytes(self._slots[core.slot])
            if before is not None:
                self._count(before)
                self._check_decided(before)

    def _count(self, before: Any) -> None:
        counts, state = self.world.counts, self.state
        counts["epoch begun"] += state.epoch > before.epoch
        counts["sequencer moved"] += before.nonce not in (0, state.nonce)
        counts["shard removed"] += len(before.shards.keys() - state.shards.keys())
        for config in state.shards.values():
            was = before.shards.get(config.shard)
            if was is not None and was.units != config.units and config.is_live:
                if len(config.units) < min(config.least, len(was.units)):
                    raise Failure("COR-19: a live chain has two units", f"{was} became {config}")
                counts["chain without a complete unit"] += bool(config.units) and config.units[0].since > 0
        joining = {unit.server for one in before.shards.values() for unit in one.units if unit.since}
        complete = {unit.server for one in state.shards.values() for unit in one.units if not unit.since}
        counts["unit copied its shard"] += len(joining & complete)

    def _check_decided(self, before: Any) -> None:
        """All units of a chain have what counts as decided, each from the position on at which it joined. One that has
        joined in this epoch may not: the command may be about the chain of the epoch before."""
        state = self.state
        view = state.view()
        running: list[Any] = [one.core for one in self.storage if one.core is not None]
        cores = {core.server: core for core in running}
        for shard, config in state.shards.items():
            at, end = before.decided.get(shard, 1), state.decided.get(shard, 1)
            while (stride := view.stride(shard, at)) is not None and stride.first < end:
                position = stride.first
                for unit in [one for one in config.units if one.joined < state.epoch]:
                    core = cores.get(unit.server)
                    if core is None or position < max(unit.since, position_of(core.reads.oldest)):
                        continue
                    if core.store.durable_at(position) is None:
                        detail = f"{unit.address} lacks {position}, though all before {end} is decided"
                        raise Failure("COR-1: all units have what is decided", detail)
                at = position + 1

    def _note_assigned(self, process: Process) -> None:
        core: Any = process.core
        self.assigned = max(self.assigned, core.next)

    def _check_unit(self, process: Process) -> None:
        """A decided entry never changes, and is on every unit of its chain that has all entries (COR-1). No position is
        far behind those that a sequencer has assigned (COR-12)."""
        core: Any = process.core
        if self.state is not None and core.store.highest >= max(self.state.start, self.assigned) + POSITION_WINDOW:
            detail = f"{process.address} has position {core.store.highest}, of {self.assigned} that are assigned"
            raise Failure("COR-12: no position is written that was not assigned", detail)
        key = process.address, process.wipes
        if self.state is None or not core.server or not core.store.next > self._seen.get(process.address, 0):
            return
        config = next(
            (one for one in self.state.shards.values() for unit in one.units if unit.server == core.server), None
        )
        if config is None:
            return
        last = config.units[-1]
        seen = self._checked.setdefault(key, set())
        for position in core.store.positions[-40:]:
            at = core.store.durable_at(position)
            if position in seen or at is None:
                continue
            entry = core.store.entry(at)
            known = self.decided.entries.get(position)
            self.world.counts["junk written"] += not entry.count
            is_last = last.server == core.server and last.since <= position
            if known is not None and known != entry and (is_last or core.server not in self.lost):
                raise Failure("COR-1: a decided entry does not change", f"{process.address}: {entry}, not {known}")
            if is_last:
                self.decided.entries[position] = entry
            seen.add(position)

    # ---- what may be lost

    def has_joined(self, replica: Process) -> bool:
        """Whether a replica of the auxiliary is a member, by the durable records on its disk."""
        journal = replica.disk.journals.get(paxos.JOURNAL)
        durable = journal.records[: journal.durable - journal.first] if journal is not None else []
        members = [payload for tag, payload in durable if tag == paxos_records.MEMBER]
        return any(paxos_records.read_member(payload).joined for payload in members)

    def may_lose_replica(self, replica: Process) -> bool:
        """Whether more than half of the replicas of the auxiliary are members without this one."""
        others = [one for one in self.ordering if one is not replica and one.address not in self.retired]
        return sum(map(self.has_joined, others)) > len(self.ordering) // 2

    def may_lose_storage(self, process: Process, spared: int = 0) -> bool:
        """Whether the records of the shard of this unit survive: the others that have their disks have all entries
        together (COR-5), whichever `spared` of them are missing. If it is sealed, the next epoch may depend on it
        already, and count each unit of a shard of three that is silent as lost: then those that are sealed have all."""
        server = self.server_of(process)
        config = self.state.shards.get(server.shard) if server is not None and server.shard else None
        if config is None or (server.is_gone and server.server not in config.disks):
            # The auxiliary may have chosen a spare for a new shard: it notices after a while that the spare is silent.
            before, self._spare_lost_at = self._spare_lost_at, self.world.now
            return self.shape.f > 0 and self.world.now > before + 8 * self.shape.heartbeat_ns
        if config.holds_streams:
            return (
                not spared
            )  # it copies all from the log; but while it runs, a damaged record stops reads of its streams
        needs_sealed = self.shape.f > 1 and self.is_sealed(process)
        by_address = {one.address: one for one in self.storage}
        others = []
        for number, address in config.disks.items():
            one = by_address[address]
            known = self.server_of(one)
            is_there = known is not None and known.server == number
            if one is process or number in self.lost or one.disk.has_damage() or not is_there:
                continue
            if self.is_sealed(one) or not needs_sealed:
                others.append(number)
        left = [set(others).difference(some) for some in combinations(others, spared)]
        return bool(left) and all(covers(config, some) for some in left)

    def is_sealed(self, process: Process) -> bool:
        """Whether a unit of a shard rejects the current epoch durably: the next one may begin with it."""
        server = self.server_of(process)
        if server is None or not server.shard or server.is_gone:
            return False
        return bool(self._saved(process)["sealed"] >= self.state.epoch)

    @staticmethod
    def _saved(process: Process) -> Any:
        """The state beside the entries on the disk of a unit; None if there is none."""
        journal = process.disk.journals.get(META)
        return json.loads(journal.records[-1][1]) if journal is not None and journal.records else None

    def server_of(self, process: Process) -> Any:
        """The storage unit of the auxiliary whose disk this is; None if there is none."""
        saved = self._saved(process)
        return self.state.server_of(saved["nonce"]) if self.state is not None and saved is not None else None

    @property
    def tail(self) -> int:
        """A lower bound of the last ordered record of the log."""
        return gsn_at(max(self.decided.entries, default=0))

    # ---- start

    def make_shards(self) -> None:
        world, shape = self.world, self.shape
        limit = world.now + 400 * shape.heartbeat_ns
        while len(self.view(limit).spares) < len(self.storage):
            world.run(world.now + shape.heartbeat_ns)
        for _ in range(shape.shards):
            self.operator.do(calls.AddShard(()), limit)
        for _ in range(shape.stream_shards):
            self.operator.do(calls.AddStreamShard((self.view(limit).spares[0].server,)), limit)
        while not self.view(limit).sequencer:
            world.run(world.now + shape.heartbeat_ns)

    def view(self, limit: int) -> View:
        """The newest projection, as returned to the operator."""
        view = self.operator.ask(calls.View(), limit)
        assert isinstance(view, View), view
        return view
