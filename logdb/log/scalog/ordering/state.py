"""The replicated state of the ordering layer: a deterministic state machine that changes only by commands.

`apply(command)` returns its changes. All replicas apply the same commands in the same order and so have the
same state, byte for byte (`to_bytes`). Nothing here is speculative: the next GSN, an epoch or the set of spares changes
when a command is applied (SCA-5). An outdated command has no effect.

A cut gives GSNs to the records between the ordered end of each open segment and the end that the cut names, shard by
shard and segment by segment. Ends are absolute, so two cuts may overlap.

A cut's entry for a shard counts only while the shard has the epoch in which the entry was tallied (SCA-7). A late entry
is ignored as a whole: it was computed from members that may have been removed since, and their successors need not have
the records. The leader tallies again in the new epoch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from logdb.cores.effects import SECOND, Address, ProtocolViolation
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, SetCutInterval, ShardState
from logdb.log.scalog.aggregator_topology import ROOT, AggregatorTopology
from logdb.log.scalog.messages import (
    AssignShard,
    ChangeResponse,
    DropAggregator,
    Member,
    OpenSegment,
    Register,
    RegisterAggregator,
    SealSegment,
    SetParent,
    TrimLog,
    View,
)
from logdb.log.scalog.ordering.commands import (
    AggregatorFailed,
    ChangeCommand,
    Command,
    Cut,
    FailurePolicy,
    Replenish,
    ServerFailed,
    ServerJoined,
    ServerReturned,
    SetPolicy,
)
from logdb.log.scalog.ordering.server_registry import RegisteredServer, ServerRegistry
from logdb.log.scalog.ordering.shard_state import OrderedSegment, OrderedShard

MAX_CHANGES = 10_000
"""Number of changes whose results are kept. A request repeated after that many others is carried out again."""
MAX_CUT_INTERVAL_NS = 10 * SECOND


class ChangeRejected(Exception):
    """A change was rejected and has changed nothing. The text is the reason for the user."""


@dataclass(slots=True)
class AppliedCommand:
    """The changes made by a command. `cut`: whether it was a cut. `configs`: shards with a new configuration.
    `removed`: servers that were removed. `answer`: the response to the client that requested a change."""

    cut: bool = False
    configs: set[int] = field(default_factory=set)
    removed: list[RegisteredServer] = field(default_factory=list)
    answer: ChangeResponse | None = None


class OrderingState:
    """The state on which the replicas of the ordering layer agree.

    `next_gsn`: the GSN of the next record. `base`: number of ordered records in sealed segments. `cut`: number of the
    last cut; `time`: its time (ns). `owed`: number of shards to add as soon as there are spares. `changes`: (result,
    error) of the last changes, by id. `interval`: minimum time between two cuts (ns); None: as configured at the
    leader.
    """

    def __init__(self) -> None:
        self.policy: FailurePolicy | None = None
        self.f = 0
        self.next_gsn = 1
        self.base = 0
        self.cut = 0
        self.time = 0
        self.oldest = 1
        self.version = 0
        self.next_server = 1
        self.next_shard = 1
        self.next_segment = 1
        self.owed = 0
        self.interval: int | None = None
        self.shards: dict[int, OrderedShard] = {}
        self.servers = ServerRegistry()
        self.finalizing: list[int] = []
        self.changes: dict[int, tuple[int, str]] = {}
        self.tree = AggregatorTopology()
        self.commands = 0
        self._view: View | None = None

    @property
    def last(self) -> int:
        """The newest GSN."""
        return self.next_gsn - 1

    # ---- commands

    def apply(self, command: Command) -> AppliedCommand:
        """Apply a chosen command. Raises ProtocolViolation for one that no correct leader proposes."""
        self.commands += 1
        applied = AppliedCommand()
        _APPLY[type(command)](self, command, applied)
        return applied

    def _cut(self, cut: Cut, applied: AppliedCommand) -> None:
        applied.cut = True
        self.cut += 1
        self.time = max(cut.time, self.time + 1)
        number, time, shards, next_gsn = self.cut, self.time, self.shards, self.next_gsn
        entries, pairs = iter(cut.shards), cut.pairs.tolist()
        at = 0
        for shard_id, epoch, placed, count in zip(entries, entries, entries, entries, strict=True):
            shard = shards.get(shard_id)
            until = at + 2 * count
            if shard is not None and shard.epoch == epoch:
                if placed > shard.placed:
                    shard.place(placed)
                if count:
                    next_gsn = shard.order(pairs, at, until, number, time, next_gsn)
            at = until
        self.next_gsn = next_gsn
        for shard_id in tuple(self.finalizing):
            shard = shards[shard_id]
            shard.grace -= 1
            if shard.grace <= 0:
                self._finalize(shard, applied)

    def _set_policy(self, command: SetPolicy, applied: AppliedCommand) -> None:
        self.policy, self.f = command.policy, command.f

    def _register(self, command: Register, applied: AppliedCommand) -> None:
        token, address = command
        if token in self.servers.removed:
            return
        registered = self.servers.by_token(token)
        if registered is not None:
            self._move(registered, address, applied)
            return
        for spare in tuple(self.servers.spares.values()):
            if spare.address == address:  # its disk was lost
                self._remove(spare, applied)
        self.servers.add(RegisteredServer(self.next_server, token, address, 0))
        self.next_server += 1
        self._view_changed()

    def _move(self, server: RegisteredServer, address: Address, applied: AppliedCommand) -> None:
        if server.address == address:
            return
        self.servers.move(server, address)
        if server.shard:
            shard = self.shards[server.shard]
            for group in ("members", "replaced"):
                moved = (Member(s, address if s == server.id else a) for s, a in getattr(shard, group))
                setattr(shard, group, tuple(moved))
            self._shard_changed(shard, applied)
        self._view_changed()

    def _register_aggregator(self, command: RegisterAggregator, applied: AppliedCommand) -> None:
        if command.address not in self.tree.parents and command.address != ROOT:
            self._view_changed()
            self.tree.add(command.address, self.version)

    def _aggregator_failed(self, command: AggregatorFailed, applied: AppliedCommand) -> None:
        if self.tree.since.get(command.address, command.version + 1) <= command.version:
            self._drop_aggregator(DropAggregator(command.address), (), applied)

    def _changing(self, command: ChangeCommand, applied: AppliedCommand) -> None:
        if command.id not in self.changes:
            try:
                outcome = _CHANGE[type(command.change)](self, command.change, command.live, applied), ""
            except ChangeRejected as rejection:
                outcome = 0, str(rejection)
            self.changes[command.id] = outcome
            if len(self.changes) > MAX_CHANGES:
                del self.changes[next(iter(self.changes))]
        applied.answer = ChangeResponse(command.id, *self.changes[command.id])

    def _failed(self, command: ServerFailed, applied: AppliedCommand) -> None:
        if not self.has_remedy(command):
            return
        shard = self.shards[command.shard]
        spares = self.servers.spares_of(command.live)
        if self.policy is FailurePolicy.FINALIZE_AND_ADD:
            self.owed += shard.state is ShardState.LIVE
            self._finalize(shard, applied)
            self._replenish(Replenish(command.live), applied)
        elif spares and self._reason_against_replacing(shard, command.server) == "":
            self._replace(shard, command.server, spares[0], applied)
        else:
            segment = shard.open_segment_of(command.server)
            assert segment is not None
            self._seal(shard, segment, applied)

    def has_remedy(self, command: ServerFailed) -> bool:
        """Whether the policy has a remedy for this failure in the current state."""
        shard = self.shards.get(command.shard)
        if shard is None or shard.epoch != command.epoch or shard.member(command.server) is None:
            return False
        if shard.state is ShardState.FINALIZED or self.policy is None:
            return False
        if self.policy is FailurePolicy.FINALIZE_AND_ADD:
            return shard.state is not ShardState.LIVE or self._is_dispensable(shard, command.live)
        spares = self.servers.spares_of(command.live)
        if spares and self._reason_against_replacing(shard, command.server) == "":
            return True
        return self.policy is FailurePolicy.MASK and shard.open_segment_of(command.server) is not None

    def _is_dispensable(self, shard: OrderedShard, live: tuple[int, ...]) -> bool:
        """Whether another shard accepts appends, or can be added: the last one that accepts any may yet recover."""
        elsewhere = any(other.state is ShardState.LIVE for other in self.shards.values() if other is not shard)
        return elsewhere or len(self.servers.spares_of(live)) >= self.members_per_shard

    def _returned(self, command: ServerReturned, applied: AppliedCommand) -> None:
        shard = self.shards.get(command.shard)
        if shard is None or shard.epoch != command.epoch or shard.state is not ShardState.LIVE:
            return
        if shard.member(command.server) is not None and shard.open_segment_of(command.server) is None:
            self._open(shard, command.server)
            self._shard_changed(shard, applied)

    def _joined(self, command: ServerJoined, applied: AppliedCommand) -> None:
        shard = self.shards.get(command.shard)
        if shard is not None and command.server in shard.joining:
            shard.joining = tuple(server for server in shard.joining if server != command.server)
            if not shard.joining:
                for member in shard.replaced:
                    self._remove(self.servers[member.server], applied)
                shard.replaced = ()
            self._shard_changed(shard, applied)

    def _replenish(self, command: Replenish, applied: AppliedCommand) -> None:
        while self.owed and len(spares := self.servers.spares_of(command.live)) >= self.members_per_shard:
            self.owed -= 1
            self._new_shard(spares[: self.members_per_shard], applied)

    # ---- changes requested by clients

    def _add_shard(self, change: AddShard, live: tuple[int, ...], applied: AppliedCommand) -> int:
        if self.policy is None:
            raise ChangeRejected("the ordering layer has not elected its first leader yet")
        size = self.members_per_shard
        if not change.servers:
            spares = self.servers.spares_preferring(live)
            if len(spares) < size:
                raise ChangeRejected(f"a shard has {size} servers, and there are {len(spares)} spares")
            return self._new_shard(spares[:size], applied)
        if len(set(change.servers)) < len(change.servers) or len(change.servers) < size:
            raise ChangeRejected(f"a shard has {size} different servers, not {change.servers}")
        return self._new_shard([self._spare(server) for server in change.servers], applied)

    def _finalize_shard(self, change: FinalizeShard, live: tuple[int, ...], applied: AppliedCommand) -> int:
        shard = self._shard(change.shard)
        if change.grace < 0:
            raise ChangeRejected(f"a grace of {change.grace} cuts")
        if shard.state is ShardState.FINALIZED:
            return shard.id
        if change.grace == 0:
            self._finalize(shard, applied)
        elif shard.state is ShardState.LIVE:
            shard.state, shard.grace = ShardState.FINALIZING, change.grace
            self.finalizing.append(shard.id)
            self._shard_changed(shard, applied)
        else:
            shard.grace = min(shard.grace, change.grace)
        return shard.id

    def _replace_server(self, change: ReplaceServer, live: tuple[int, ...], applied: AppliedCommand) -> int:
        shard = self._shard_of(change.server)
        if reason := self._reason_against_replacing(shard, change.server):
            raise ChangeRejected(reason)
        spare = self._spare(change.by, live)
        self._replace(shard, change.server, spare, applied)
        return spare.id

    def _add_replica(self, change: AddReplica, live: tuple[int, ...], applied: AppliedCommand) -> int:
        shard = self._shard(change.shard)
        if shard.state is not ShardState.FINALIZED:
            raise ChangeRejected(
                f"shard {shard.id} is {shard.state.value}, only a finalized one can have more replicas"
            )
        spare = self._spare(change.server, live)
        shard.members = (*shard.members, self._join(spare, shard))
        shard.joining = (*shard.joining, spare.id)
        self._shard_changed(shard, applied)
        return spare.id

    def _trim(self, change: TrimLog, live: tuple[int, ...], applied: AppliedCommand) -> int:
        if change.gsn > self.next_gsn:
            raise ChangeRejected(f"the log ends at {self.last}, it cannot be trimmed before {change.gsn}")
        if change.gsn <= self.oldest:
            return self.oldest
        self.oldest = change.gsn
        self._view_changed()
        for shard in tuple(self.shards.values()):
            if shard.state is ShardState.FINALIZED and shard.left <= self.oldest:
                del self.shards[shard.id]
                for member in shard.holders:
                    self._remove(self.servers[member.server], applied)
                continue
            kept = [one for one in shard.segments if one.sealed is None or one.left > self.oldest]
            moved = [one for one in kept if one.trim(self.oldest)]
            if moved or len(kept) < len(shard.segments):
                shard.segments = kept
                self._shard_changed(shard, applied)
        return self.oldest

    def _seal_segment(self, change: SealSegment, live: tuple[int, ...], applied: AppliedCommand) -> int:
        for shard in self.shards.values():
            for segment in shard.segments:
                if segment.id == change.segment:
                    if segment.sealed is None:
                        self._seal(shard, segment, applied)
                    return segment.id
        raise ChangeRejected(f"there is no segment {change.segment}")

    def _open_segment(self, change: OpenSegment, live: tuple[int, ...], applied: AppliedCommand) -> int:
        shard = self._shard_of(change.server)
        if shard.state is not ShardState.LIVE:
            raise ChangeRejected(f"shard {shard.id} is {shard.state.value} and takes no new segment")
        segment = shard.open_segment_of(change.server)
        if segment is None:
            segment = self._open(shard, change.server)
            self._shard_changed(shard, applied)
        return segment.id

    def _set_parent(self, change: SetParent, live: tuple[int, ...], applied: AppliedCommand) -> int:
        if reason := self.tree.set_parent(change.aggregator, change.parent):
            raise ChangeRejected(reason)
        self._view_changed()
        return 0

    def _assign_shard(self, change: AssignShard, live: tuple[int, ...], applied: AppliedCommand) -> int:
        shard = self._shard(change.shard)
        self._aggregator(change.aggregator)
        if shard.reports_to != change.aggregator:
            shard.reports_to = change.aggregator
            self._shard_changed(shard, applied)
        return shard.id

    def _drop_aggregator(self, change: DropAggregator, live: tuple[int, ...], applied: AppliedCommand) -> int:
        if change.aggregator == ROOT:
            raise ChangeRejected("the ordering layer itself is not an aggregator")
        self._aggregator(change.aggregator)
        parent = self.tree.remove(change.aggregator)
        self._view_changed()
        for shard in self.shards.values():
            if shard.reports_to == change.aggregator:
                shard.reports_to = self._least_loaded_leaf() or parent
                self._shard_changed(shard, applied)
        return 0

    def _set_cut_interval(self, change: SetCutInterval, live: tuple[int, ...], applied: AppliedCommand) -> int:
        if not 0 <= change.interval_ns <= MAX_CUT_INTERVAL_NS:
            limit = MAX_CUT_INTERVAL_NS // SECOND
            raise ChangeRejected(f"there are 0 to {limit} s between two cuts, not {change.interval_ns / SECOND:g}")
        self.interval = change.interval_ns
        return self.interval

    # ---- parts of commands and changes

    @property
    def members_per_shard(self) -> int:
        """Number of servers of a new shard."""
        return 2 * self.f + 1 if self.policy is FailurePolicy.MASK else self.f + 1

    def _spare(self, server: int, live: tuple[int, ...] = ()) -> RegisteredServer:
        """The spare with this id, or any (0)."""
        spares = self.servers.spares
        if server and server not in spares:
            raise ChangeRejected(f"server {server} is not a spare")
        if not spares:
            raise ChangeRejected("there is no spare")
        return spares[server] if server else self.servers.spares_preferring(live)[0]

    def _shard(self, shard: int) -> OrderedShard:
        if shard in self.shards:
            return self.shards[shard]
        raise ChangeRejected(f"shard {shard} {'was trimmed away' if 0 < shard < self.next_shard else 'does not exist'}")

    def _shard_of(self, server: int) -> OrderedShard:
        """The shard of which this server is a member."""
        registered = self.servers.get(server)
        if registered is None or not registered.shard:
            raise ChangeRejected(f"server {server} belongs to no shard")
        shard = self.shards[registered.shard]
        if shard.member(server) is None:
            raise ChangeRejected(
                f"server {server} was replaced: it leaves shard {shard.id} when its successor has caught up"
            )
        return shard

    def _aggregator(self, address: Address) -> None:
        if address != ROOT and address not in self.tree.parents:
            raise ChangeRejected(f"there is no aggregator at {address!r}")

    def _least_loaded_leaf(self) -> Address:
        """The leaf with the fewest shards; "" if there are no aggregators."""
        load = dict.fromkeys(self.tree.leaves(), 0)
        for shard in self.shards.values():
            if shard.reports_to in load and shard.state is not ShardState.FINALIZED:
                load[shard.reports_to] += 1
        return min(load, key=load.__getitem__, default=ROOT)

    def _new_shard(self, servers: list[RegisteredServer], applied: AppliedCommand) -> int:
        masks = self.policy is FailurePolicy.MASK
        shard = OrderedShard(self.next_shard, self.f + 1, not masks, (), [], self._least_loaded_leaf())
        self.next_shard += 1
        self.shards[shard.id] = shard
        shard.members = tuple(self._join(server, shard) for server in servers)
        for server in servers:
            self._open(shard, server.id)
        self._shard_changed(shard, applied)
        return shard.id

    def _open(self, shard: OrderedShard, server: int) -> OrderedSegment:
        segment = OrderedSegment(self.next_segment, server)
        self.next_segment += 1
        shard.segments.append(segment)
        return segment

    def _join(self, spare: RegisteredServer, shard: OrderedShard) -> Member:
        self.servers.assign(spare, shard.id)
        return Member(spare.id, spare.address)

    def _reason_against_replacing(self, shard: OrderedShard, server: int) -> str:
        """SCA-14: the reason why this member cannot be replaced now, or ""."""
        if shard.joining and server not in shard.joining:
            copying = shard.joining[0]
            return f"server {copying} is still copying shard {shard.id}: replace others when it has caught up"
        if len(shard.members) == 1:
            return f"server {server} is the only member of shard {shard.id}"
        return ""

    def _replace(self, shard: OrderedShard, server: int, spare: RegisteredServer, applied: AppliedCommand) -> None:
        segment = shard.open_segment_of(server)
        if segment is not None:
            self.base += shard.seal(segment, self.next_gsn)
        member = self._join(spare, shard)
        shard.replaced += tuple(one for one in shard.members if one.server == server)
        shard.members = tuple(member if one.server == server else one for one in shard.members)
        shard.joining = (*(joining for joining in shard.joining if joining != server), spare.id)
        if shard.state is ShardState.LIVE:
            self._open(shard, spare.id)
        self._shard_changed(shard, applied)

    def _seal(self, shard: OrderedShard, segment: OrderedSegment, applied: AppliedCommand) -> None:
        self.base += shard.seal(segment, self.next_gsn)
        self._shard_changed(shard, applied)

    def _finalize(self, shard: OrderedShard, applied: AppliedCommand) -> None:
        if shard.state is ShardState.FINALIZING:
            self.finalizing.remove(shard.id)
        for segment in shard.open:
            self.base += shard.seal(segment, self.next_gsn)
        shard.state, shard.grace, shard.left = ShardState.FINALIZED, 0, self.next_gsn
        self._shard_changed(shard, applied)

    def _remove(self, server: RegisteredServer, applied: AppliedCommand) -> None:
        self.servers.remove(server)
        applied.removed.append(server)

    def _shard_changed(self, shard: OrderedShard, applied: AppliedCommand) -> None:
        shard.changed()
        applied.configs.add(shard.id)
        self._view_changed()

    def _view_changed(self) -> None:
        self.version += 1
        self._view = None

    # ---- views and snapshots

    def view(self) -> View:
        """The configuration of the whole log."""
        if self._view is None:
            self._view = View(
                self.version,
                tuple(shard.config() for shard in self.shards.values()),
                self.next_shard,
                self.oldest,
                tuple(self.tree.parents.items()),
                tuple(Member(spare.id, spare.address) for spare in self.servers.spares.values()),
            )
        return self._view

    def to_bytes(self) -> bytes:
        """A snapshot. Replicas that have applied the same commands get the same bytes."""
        policy = self.policy.value if self.policy else None
        parents = [[one, parent, self.tree.since[one]] for one, parent in self.tree.parents.items()]
        saved = [
            [policy, *(getattr(self, name) for name in _NUMBERS)],
            [shard.to_json() for shard in self.shards.values()],
            list(self.servers.values()),
            list(self.servers.removed),
            self.finalizing,
            [[id, *outcome] for id, outcome in self.changes.items()],
            parents,
        ]
        return json.dumps(saved, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> OrderingState:
        """The state of a snapshot. Raises ProtocolViolation."""
        state = cls()
        try:
            (policy, *numbers), shards, servers, removed, finalizing, changes, parents = json.loads(snapshot)
            state.policy = FailurePolicy(policy) if policy else None
            for name, number in zip(_NUMBERS, numbers, strict=False):  # older snapshots have fewer
                setattr(state, name, number)
            state.shards = {shard.id: shard for shard in map(OrderedShard.from_json, shards)}
            state.servers = ServerRegistry((RegisteredServer(*one) for one in servers), removed)
            state.finalizing = finalizing
            state.changes = {id: (result, error) for id, result, error in changes}
            state.tree = AggregatorTopology(parents)
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolViolation(f"this is not a snapshot of the ordering layer: {error}") from error
        return state


_NUMBERS = (
    *("f", "next_gsn", "base", "cut", "time", "oldest", "version"),
    *("next_server", "next_shard", "next_segment", "owed", "commands", "interval"),
)

_APPLY: dict[type, Any] = {
    Cut: OrderingState._cut,
    SetPolicy: OrderingState._set_policy,
    Register: OrderingState._register,
    RegisterAggregator: OrderingState._register_aggregator,
    AggregatorFailed: OrderingState._aggregator_failed,
    ChangeCommand: OrderingState._changing,
    ServerFailed: OrderingState._failed,
    ServerReturned: OrderingState._returned,
    ServerJoined: OrderingState._joined,
    Replenish: OrderingState._replenish,
}

_CHANGE: dict[type, Any] = {
    AddShard: OrderingState._add_shard,
    FinalizeShard: OrderingState._finalize_shard,
    ReplaceServer: OrderingState._replace_server,
    AddReplica: OrderingState._add_replica,
    TrimLog: OrderingState._trim,
    SealSegment: OrderingState._seal_segment,
    OpenSegment: OrderingState._open_segment,
    SetParent: OrderingState._set_parent,
    AssignShard: OrderingState._assign_shard,
    DropAggregator: OrderingState._drop_aggregator,
    SetCutInterval: OrderingState._set_cut_interval,
}
