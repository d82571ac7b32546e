"""The replicated state of the ordering layer: a deterministic machine, which commands move and nothing else.

`apply(command)` says what it has changed; all replicas apply the same commands in the same order and so have the same
state, byte for byte (`to_bytes`). Nothing here is speculative: the next GSN, an epoch or a spare that is taken moves
when the command is applied (SCA-5). A command that was overtaken by another one does nothing.

A cut, when it is applied, gives GSNs to what lies between the ordered end of each open segment and the end that the
cut names, shard by shard and segment by segment. Ends are absolute, so it does not matter that two cuts overlap.

A cut's entry for a shard counts only while the shard has the epoch in which the entry was tallied (SCA-7). One that
comes later is left out whole: "durable on all members" may then be said of members that have gone, and the ones
that came instead would be taken for holders of what they never saw. The leader tallies again in the new epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from logdb.log.scalog.ordering.shard_state import OrderedSegment, OrderedShard

REMEMBERED_CHANGES = 10_000
"""A change that is sent again after so many others would be carried out again."""
REMEMBERED_GONE = 100_000
"""Servers that are nobody any more: one that asks after so many others have gone is not told to wipe its disk."""
MAX_CUT_INTERVAL_NS = 10 * SECOND


class ChangeRejected(Exception):
    """Why a change was not carried out, in words for whoever asked for it. Nothing has been changed."""


class RegisteredServer(NamedTuple):
    """A storage server. `shard`: 0 for a spare."""

    id: int
    token: int
    address: Address
    shard: int


@dataclass(slots=True)
class AppliedCommand:
    """What a command has changed. `cut`: it was one. `configs`: shards with another configuration. `gone`: servers that
    are nobody any more. `answer`: to whoever asked for the change."""

    cut: bool = False
    configs: set[int] = field(default_factory=set)
    gone: list[RegisteredServer] = field(default_factory=list)
    answer: ChangeResponse | None = None


class OrderingState:
    """All that the ordering layer agrees on.

    `next_gsn`: the GSN that the next record gets. `base`: how many records are in sealed segments. `cut`: the number
    of the last cut; `time`: its time. `owed`: shards to be added as soon as there are spares. `changes`: (result,
    error) of the last changes, by id. `waiting`: the servers that are spares. `interval`: the least time between two
    cuts (ns), None: as leaders are configured.
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
        self.servers: dict[int, RegisteredServer] = {}
        self.waiting: dict[int, RegisteredServer] = {}
        self.tokens: dict[int, int] = {}
        self.gone: dict[int, None] = {}
        self.finalizing: list[int] = []
        self.changes: dict[int, tuple[int, str]] = {}
        self.tree = AggregatorTopology()
        self.commands = 0
        self._view: View | None = None
        self._checked = _Checked()

    @property
    def last(self) -> int:
        """The newest GSN."""
        return self.next_gsn - 1

    # ---- commands

    def apply(self, command: Command) -> AppliedCommand:
        """Carry out a chosen command. Raises ProtocolViolation for one that no correct leader proposes."""
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
        if token in self.gone:
            return
        if token in self.tokens:
            self._move(self.servers[self.tokens[token]], address, applied)
            return
        for spare in self.spares():
            if spare.address == address:  # its disk was lost
                self._forget(spare, applied)
        server = RegisteredServer(self.next_server, token, address, 0)
        self.servers[server.id] = self.waiting[server.id] = server
        self.tokens[token] = server.id
        self.next_server += 1
        self._view_changed()

    def _move(self, server: RegisteredServer, address: Address, applied: AppliedCommand) -> None:
        if server.address == address:
            return
        moved = self.servers[server.id] = server._replace(address=address)
        if server.id in self.waiting:
            self.waiting[server.id] = moved
        else:
            shard = self.shards[server.shard]
            for held in ("members", "replaced"):
                moving = (Member(s, address if s == server.id else a) for s, a in getattr(shard, held))
                setattr(shard, held, tuple(moving))
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
            except ChangeRejected as refusal:
                outcome = 0, str(refusal)
            self.changes[command.id] = outcome
            if len(self.changes) > REMEMBERED_CHANGES:
                del self.changes[next(iter(self.changes))]
        applied.answer = ChangeResponse(command.id, *self.changes[command.id])

    def _failed(self, command: ServerFailed, applied: AppliedCommand) -> None:
        if not self.helps(command):
            return
        shard = self.shards[command.shard]
        spares = self.spares(command.live)
        if self.policy is FailurePolicy.FINALIZE_AND_ADD:
            self.owed += shard.state is ShardState.LIVE
            self._finalize(shard, applied)
            self._replenish(Replenish(command.live), applied)
        elif spares and self._replaceable(shard, command.server) == "":
            self._replace(shard, command.server, spares[0], applied)
        else:
            segment = shard.open_segment_of(command.server)
            assert segment is not None
            self._seal(shard, segment, applied)

    def helps(self, command: ServerFailed) -> bool:
        """Whether the policy can do something about this failure, now."""
        shard = self.shards.get(command.shard)
        if shard is None or shard.epoch != command.epoch or shard.member(command.server) is None:
            return False
        if shard.state is ShardState.FINALIZED or self.policy is None:
            return False
        if self.policy is FailurePolicy.FINALIZE_AND_ADD:
            return shard.state is not ShardState.LIVE or self._is_dispensable(shard, command.live)
        if self.spares(command.live) and self._replaceable(shard, command.server) == "":
            return True
        return self.policy is FailurePolicy.MASK and shard.open_segment_of(command.server) is not None

    def _is_dispensable(self, shard: OrderedShard, live: tuple[int, ...]) -> bool:
        """Whether appends have another place, or get one: the last shard that takes any may yet recover."""
        elsewhere = any(other.state is ShardState.LIVE for other in self.shards.values() if other is not shard)
        return elsewhere or len(self.spares(live)) >= self.members_per_shard

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
                    self._forget(self.servers[member.server], applied)
                shard.replaced = ()
            self._shard_changed(shard, applied)

    def _replenish(self, command: Replenish, applied: AppliedCommand) -> None:
        while self.owed and len(spares := self.spares(command.live)) >= self.members_per_shard:
            self.owed -= 1
            self._new_shard(spares[: self.members_per_shard], applied)

    # ---- changes that clients ask for

    def _add_shard(self, change: AddShard, live: tuple[int, ...], applied: AppliedCommand) -> int:
        if self.policy is None:
            raise ChangeRejected("the ordering layer has not elected its first leader yet")
        size = self.members_per_shard
        if not change.servers:
            spares = self._spares_first(live)
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
        if why := self._replaceable(shard, change.server):
            raise ChangeRejected(why)
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
                    self._forget(self.servers[member.server], applied)
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
        if why := self.tree.set_parent(change.aggregator, change.parent):
            raise ChangeRejected(why)
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
            raise ChangeRejected("the ordering layer itself is no aggregator")
        self._aggregator(change.aggregator)
        parent = self.tree.remove(change.aggregator)
        self._view_changed()
        for shard in self.shards.values():
            if shard.reports_to == change.aggregator:
                shard.reports_to = self._quietest_leaf() or parent
                self._shard_changed(shard, applied)
        return 0

    def _set_cut_interval(self, change: SetCutInterval, live: tuple[int, ...], applied: AppliedCommand) -> int:
        if not 0 <= change.interval_ns <= MAX_CUT_INTERVAL_NS:
            limit = MAX_CUT_INTERVAL_NS // SECOND
            raise ChangeRejected(f"there are 0 to {limit} s between two cuts, not {change.interval_ns / SECOND:g}")
        self.interval = change.interval_ns
        return self.interval

    # ---- what they are made of

    @property
    def members_per_shard(self) -> int:
        """How many servers a new shard gets."""
        return 2 * self.f + 1 if self.policy is FailurePolicy.MASK else self.f + 1

    def spares(self, live: Iterable[int] | None = None) -> list[RegisteredServer]:
        """Servers without a shard; of these, if `live` is given."""
        if live is None:
            return list(self.waiting.values())
        return [self.waiting[server] for server in live if server in self.waiting]

    def _spares_first(self, live: tuple[int, ...]) -> list[RegisteredServer]:
        first = dict.fromkeys(self.spares(live))
        return list(first | dict.fromkeys(self.waiting.values()))

    def _spare(self, server: int, live: tuple[int, ...] = ()) -> RegisteredServer:
        """The spare of that id, or any (0)."""
        if server and server not in self.waiting:
            raise ChangeRejected(f"server {server} is no spare")
        if not self.waiting:
            raise ChangeRejected("there is no spare")
        return self.waiting[server] if server else self._spares_first(live)[0]

    def _shard(self, shard: int) -> OrderedShard:
        if shard in self.shards:
            return self.shards[shard]
        raise ChangeRejected(f"shard {shard} {'was trimmed away' if 0 < shard < self.next_shard else 'does not exist'}")

    def _shard_of(self, server: int) -> OrderedShard:
        """The shard of which that server is a member."""
        known = self.servers.get(server)
        if known is None or not known.shard:
            raise ChangeRejected(f"server {server} belongs to no shard")
        shard = self.shards[known.shard]
        if shard.member(server) is None:
            raise ChangeRejected(
                f"server {server} was replaced: it leaves shard {shard.id} when its successor has caught up"
            )
        return shard

    def _aggregator(self, address: Address) -> None:
        if address != ROOT and address not in self.tree.parents:
            raise ChangeRejected(f"there is no aggregator at {address!r}")

    def _quietest_leaf(self) -> Address:
        """The leaf with the fewest shards; "" if there are no aggregators."""
        load = dict.fromkeys(self.tree.leaves(), 0)
        for shard in self.shards.values():
            if shard.reports_to in load and shard.state is not ShardState.FINALIZED:
                load[shard.reports_to] += 1
        return min(load, key=load.__getitem__, default=ROOT)

    def _new_shard(self, servers: list[RegisteredServer], applied: AppliedCommand) -> int:
        masks = self.policy is FailurePolicy.MASK
        shard = OrderedShard(self.next_shard, self.f + 1, not masks, (), [], self._quietest_leaf())
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
        self.servers[spare.id] = spare._replace(shard=shard.id)
        del self.waiting[spare.id]
        return Member(spare.id, spare.address)

    def _replaceable(self, shard: OrderedShard, server: int) -> str:
        """SCA-14: why this member cannot be removed now, or ""."""
        if shard.joining and server not in shard.joining:
            copying = shard.joining[0]
            return f"server {copying} is still copying shard {shard.id}: nobody else can be replaced until it has"
        if len(shard.members) == 1:
            return f"server {server} alone holds shard {shard.id}"
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

    def _forget(self, server: RegisteredServer, applied: AppliedCommand) -> None:
        del self.servers[server.id], self.tokens[server.token]
        self.waiting.pop(server.id, None)
        self.gone[server.token] = None
        if len(self.gone) > REMEMBERED_GONE:
            del self.gone[next(iter(self.gone))]
        applied.gone.append(server)

    def _shard_changed(self, shard: OrderedShard, applied: AppliedCommand) -> None:
        shard.changed()
        applied.configs.add(shard.id)
        self._view_changed()

    def _view_changed(self) -> None:
        self.version += 1
        self._view = None

    # ---- what it says

    def view(self) -> View:
        """The configuration of the whole log."""
        if self._view is None:
            self._view = View(
                self.version,
                tuple(shard.config() for shard in self.shards.values()),
                self.next_shard,
                self.oldest,
                tuple(self.tree.parents.items()),
                tuple(Member(spare.id, spare.address) for spare in self.spares()),
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
            list(self.gone),
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
            (policy, *numbers), shards, servers, gone, finalizing, changes, parents = json.loads(snapshot)
            state.policy = FailurePolicy(policy) if policy else None
            for name, number in zip(_NUMBERS, numbers, strict=False):  # older snapshots have fewer
                setattr(state, name, number)
            state.shards = {shard.id: shard for shard in map(OrderedShard.from_json, shards)}
            state.servers = {server.id: server for server in (RegisteredServer(*one) for one in servers)}
            state.waiting = {server.id: server for server in state.servers.values() if not server.shard}
            state.tokens = {server.token: server.id for server in state.servers.values()}
            state.gone = dict.fromkeys(gone)
            state.finalizing = finalizing
            state.changes = {id: (result, error) for id, result, error in changes}
            state.tree = AggregatorTopology(parents)
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolViolation(f"this is no snapshot of the ordering layer: {error}") from error
        return state

    def check(self) -> None:
        """SCA-4, 5, 6, 12, 14. Costs as much as there are servers after a command, and next to nothing else."""
        self._checked.check(self)


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


@dataclass(slots=True)
class _Checked:
    """What was seen at the last check: positions only grow, and what is sealed stays as it is."""

    commands: int = -1
    next_gsn: int = 1
    oldest: int = 1
    time: int = 0
    sealed: dict[int, int] = field(default_factory=dict)

    def check(self, state: OrderingState) -> None:
        if state.commands == self.commands:
            assert state.next_gsn == self.next_gsn, "SCA-5: the next GSN has moved, but nothing was applied"
            return
        assert state.next_gsn >= self.next_gsn, "SCA-5: the next GSN has gone back"
        assert self.oldest <= state.oldest <= state.next_gsn, "SCA-12: the oldest GSN went back, or past the log's end"
        assert state.time >= self.time, "the time of cuts went back"
        ordered, sealed = 0, {}
        for shard in state.shards.values():
            for segment in shard.segments:
                if segment.sealed is None:
                    ordered += segment.end - 1
                    continue
                assert segment.end == segment.sealed, f"SCA-6: segment {segment.id} was ordered past its sealed end"
                assert self.sealed.get(segment.id, segment.end) == segment.end, f"SCA-6: segment {segment.id} moved"
                sealed[segment.id] = segment.end
            self.check_shard(state, shard)
        assert state.next_gsn == 1 + state.base + ordered, "SCA-4: the next GSN is not the number of records"
        self.commands, self.next_gsn, self.oldest = state.commands, state.next_gsn, state.oldest
        self.time, self.sealed = state.time, sealed

    def check_shard(self, state: OrderingState, shard: OrderedShard) -> None:
        assert (shard.state is ShardState.FINALIZED) <= (not shard.open), (
            f"shard {shard.id} is finalized, but not sealed"
        )
        assert (shard.state is ShardState.FINALIZING) == (shard.id in state.finalizing)
        assert shard.placed <= shard.head <= state.cut, f"SCA-3: shard {shard.id} has links that no cut made"
        previous = shard.links[0].previous if shard.links else shard.head
        assert previous <= shard.placed, f"SCA-3: shard {shard.id} dropped a link that no quorum has placed"
        for link in shard.links:
            assert link.previous == previous, f"SCA-3: the links of shard {shard.id} are no chain"
            previous = link.number
        assert previous == shard.head, f"SCA-3: the newest link of shard {shard.id} is missing"
        servers = [member.server for member in shard.members]
        assert set(shard.joining) <= set(servers), f"SCA-14: somebody joins shard {shard.id} who is no member"
        assert 0 < shard.quorum <= len(servers)
        assert shard.joining or not shard.replaced, f"SCA-14: shard {shard.id} keeps replaced servers for nobody"
        assert all(state.servers[member.server].shard == shard.id for member in shard.holders)
