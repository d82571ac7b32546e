"""The soft state of a leader of the ordering layer: tallies, suspicions, proposals, and the updates that are due.

A new leader starts with empty soft state and rebuilds it from reports. A command that the old leader had in flight is
either chosen, and then part of the replicated state, or its cause is reported again.

The leader proposes a cut as soon as new records are durable on a quorum and no cut is in flight. Under load cuts follow
each other without a pause and each contains everything tallied since the last one; an idle log makes no cuts. After
commands have been applied, each shard that they concern gets one update for all of them. The other shards need only
the newest GSN, for parked reads, and get it less often.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from logdb.cores.effects import MILLISECOND, SECOND, Address, CancelTimer, Effect, Send, SetTimer, Stop
from logdb.log import paxos
from logdb.log.record_clock import is_beyond_any_pause
from logdb.log.requests import ShardState
from logdb.log.scalog.aggregator_topology import ROOT
from logdb.log.scalog.messages import (
    Recovered,
    RegistrationReply,
    Report,
    ReportRequest,
    ShardCut,
    Suspect,
    Tally,
    Update,
    Updates,
)
from logdb.log.scalog.ordering.commands import (
    AggregatorFailed,
    Command,
    Cut,
    FailurePolicy,
    Replenish,
    ServerFailed,
    ServerReturned,
    SetPolicy,
    encode,
)
from logdb.log.scalog.ordering.shard_state import OrderedShard
from logdb.log.scalog.ordering.state import AppliedCommand, OrderingState
from logdb.log.scalog.quorum import LeafMonitor, ShardTallies

CUT, HEARTBEAT = "ordering.cut", "ordering.heartbeat"
CHECKS_PER_PERIOD = 4
"""Number of times that a leader checks its members in `suspect_after_ns`."""
HINT_PERIODS = 10
"""A client's hint that a server is unreachable is kept for this multiple of `suspect_after_ns`."""


@dataclass(frozen=True, slots=True)
class OrderingConfig:
    """The configuration of one replica of the ordering layer.

    - `address`: of this replica. `replicas`: the addresses of all replicas, in the same order everywhere.
    - `policy` and `f`: the reaction to a failed storage server (table 3.2), and the number of failures that a shard
      survives: it has f + 1 members, or 2f + 1 where failures are masked. They apply to the whole log: a leader writes
      its own into the replicated state.
    - `interval_ns`: minimum time between two cuts (0: the next cut follows when the last one is chosen).
      `finalizing_interval_ns`: the minimum while a shard is finalizing, when cuts are made even if they are empty.
    - `heartbeat_ns`: interval at which the leader sends every shard an update.
    - `quiet_ns`: maximum time, while cuts go on, until a shard without new records gets the newest GSN.
    - `suspect_after_ns`, `straggle_after_ns`: time that a member may be silent, or behind the others.
    - `snapshot_bytes`: a snapshot replaces the commands before it when they exceed this size, and eight times the size
      of the last snapshot.
    """

    address: Address
    replicas: tuple[Address, ...]
    policy: FailurePolicy = FailurePolicy.FINALIZE_AND_ADD
    f: int = 1
    interval_ns: int = 0
    finalizing_interval_ns: int = MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    quiet_ns: int = 25 * MILLISECOND
    suspect_after_ns: int = SECOND
    straggle_after_ns: int = 5 * SECOND
    snapshot_bytes: int = 4 << 20
    paxos: paxos.Config = field(default_factory=paxos.Config)

    def __post_init__(self) -> None:
        if self.address not in self.replicas:
            raise ValueError(f"{self.address} is not one of the replicas {', '.join(self.replicas)}")
        if self.f < 0:
            raise ValueError(f"f is the number of failures that a shard survives, not {self.f}")


def forward_to_member(request: ReportRequest, state: OrderingState, out: list[Effect]) -> None:
    """Send the request to the member that it names, if the shard has such a member."""
    shard = state.shards.get(request.shard)
    member = shard.member(request.server) if shard is not None else None
    if member is not None:
        out.append(Send(member.address, request))


class Leader:
    """A leader's soft state. It appends effects to `out`, and commands that it proposes to `pending`.

    `advanced`: shards whose tally may contain something new for a cut. `unreachable`: when clients last reported that a
    member does not answer. `_suspicions`: of silent members, and whether a second report was requested.
    `_requested_at`: when members were lately asked for a report; `_bypassed_at`: by shard, when a member sent one past
    its aggregator unasked.

    `flight`: the cut that is proposed and not chosen yet. `unpublished`: the changes applied since the last updates,
    which were sent when `published_cut` was the newest cut and `_published_version` the version of the view.
    """

    def __init__(self, config: OrderingConfig, state: OrderingState, out: list[Effect], now: int) -> None:
        self.config, self.state, self.out = config, state, out
        self.tallies = ShardTallies()
        self.monitor = LeafMonitor(config.suspect_after_ns, config.straggle_after_ns, {}, now)
        self.advanced: set[int] = set()
        self._linked: set[int] = set()
        self.placing = False
        self.flight: bytes | None = None
        self.pending: deque[Command] = deque()
        self.unpublished = AppliedCommand()
        self.published_cut = state.cut
        self._published_version = self._routed_version = -1
        self._notified_all_at = self._cut_at = now
        self._cut_timer = 0
        self._spare_seen_at: dict[int, int] = {}
        self.unreachable: dict[int, int] = {}
        self._suspicions: dict[Suspect, bool] = {}
        self._requested_at: dict[int, int] = {}
        self._bypassed_at: dict[int, int] = {}
        self._submitted: dict[Hashable, bytes] = {}
        self._keys_by_value: dict[bytes, Hashable] = {}
        self._direct: list[tuple[OrderedShard, tuple[Address, ...]]] = []
        self._children: list[tuple[Address, list[OrderedShard]]] = []

    def start(self, now: int) -> None:
        """Propose the configured policy if the log has another one, and send an update to every shard."""
        if (self.state.policy, self.state.f) != (self.config.policy, self.config.f):
            self.pending.append(SetPolicy(self.config.policy, self.config.f))
        self._published_version = self.state.version
        self._notify_all()
        self.out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))

    def stop(self) -> None:
        """Another replica leads now: cancel the timers."""
        self.out += [CancelTimer(HEARTBEAT), CancelTimer(CUT)]

    # ---- reports and suspicions

    def report(self, shard: OrderedShard, report: Report, now: int) -> None:
        """Merge a report of the shard's current epoch."""
        if shard.reports_to != ROOT and report.server not in self._requested_at:
            self._bypassed_at[shard.id] = now
        cuts = self.monitor.cuts.get(shard.id)
        if cuts is None or cuts.config.epoch != shard.epoch:
            cuts = self.monitor.begin(shard.config(), now)
        if cuts.add(report, now):
            self.advanced.add(shard.id)

    def tally(self, tally: Tally) -> None:
        """Merge an aggregator's tallies. Their epochs are checked when a cut is made (SCA-7)."""
        merge, advanced = self.tallies.merge, self.advanced
        for one in tally.shards:
            if merge(one):
                advanced.add(one.shard)

    def on_spare_registered(self, server: int, now: int) -> None:
        """A spare has sent its registration again: it is alive."""
        self._spare_seen_at[server] = now

    def on_unreachable(self, server: int, now: int) -> None:
        """A client does not reach this server. The client may be the cause, so this is only kept for the status."""
        registered = self.state.servers.get(server)
        if registered is not None and registered.shard:
            self.unreachable[server] = now

    def on_verdict(self, verdict: Suspect | Recovered, now: int) -> None:
        """An aggregator's verdict about a member. Silence may be the aggregator's own fault: the leader first requests
        a report from the member itself."""
        if not isinstance(verdict, Suspect) or not verdict.silent:
            self._act_on(verdict, now)
        elif verdict not in self._suspicions:
            self._suspicions[verdict] = False
            self._request_report(verdict.shard, verdict.server, now)

    def on_alive(self, shard: int, server: int, now: int) -> None:
        """A member has reported to the ordering layer. If an aggregator suspects it, the aggregator has failed: drop
        the aggregator."""
        self.monitor.note_alive(shard, server, now)
        for suspicion in [one for one in self._suspicions if one.server == server]:
            del self._suspicions[suspicion]
            suspected = self.state.shards.get(suspicion.shard)
            if suspected is not None and suspected.epoch == suspicion.epoch:
                self.drop_aggregator(suspected.reports_to)

    def drop_aggregator(self, address: Address) -> None:
        """Remove an aggregator, if it is in the tree; its children report to its parent. It may register again."""
        if address in self.state.tree.parents:
            self.submit(("aggregator", address), AggregatorFailed(address, self.state.version))

    def _request_report(self, shard: int, server: int, now: int) -> None:
        """Request a report directly and through the other replicas, which may reach a member that this one cannot. The
        member sends its answers to all replicas, so the leader gets several."""
        self._requested_at[server] = now
        request = ReportRequest(shard, server)
        self.out += [Send(replica, request) for replica in self.config.replicas if replica != self.config.address]
        forward_to_member(request, self.state, self.out)

    def _check_members(self, now: int) -> None:
        since = now - self.config.suspect_after_ns
        self._requested_at = {server: at for server, at in self._requested_at.items() if at > since}
        for suspicion, was_repeated in list(self._suspicions.items()):
            if was_repeated:
                del self._suspicions[suspicion]
                self._act_on(suspicion, now)
            else:
                self._suspicions[suspicion] = True
                self._request_report(suspicion.shard, suspicion.server, now)
        direct = [shard.config() for shard in self.state.shards.values() if self._is_watched(shard, now)]
        for verdict in self.monitor.watch(direct, now):
            self._act_on(verdict, now)
        for config in direct:
            for server, reported_at in self.monitor.cuts[config.shard].reported_at.items():
                if config.state is not ShardState.FINALIZED and now - reported_at >= self.config.suspect_after_ns // 2:
                    self._request_report(config.shard, server, now)

    def _is_watched(self, shard: OrderedShard, now: int) -> bool:
        """Whether the leader looks for silent members itself: there is no aggregator, or a member finds it silent. A
        machine may have failed that ran both the aggregator and another member; then nothing is ordered in the shard,
        so there is no news that would show that the aggregator does not forward it."""
        bypassed_at = self._bypassed_at.get(shard.id)
        return shard.reports_to == ROOT or (
            bypassed_at is not None and now - bypassed_at < self.config.suspect_after_ns
        )

    def _act_on(self, verdict: Suspect | Recovered, now: int) -> None:
        if isinstance(verdict, Suspect):
            failed = ServerFailed(verdict.shard, verdict.epoch, verdict.server, self.live_spares(now))
            if self.state.has_remedy(failed):
                self.submit(("failed", *verdict[:3]), failed)
        elif self.state.policy is FailurePolicy.MASK:
            self.submit(("returned", *verdict), ServerReturned(*verdict))

    def live_spares(self, now: int) -> tuple[int, ...]:
        """The spares that have registered again within `suspect_after_ns`."""
        since = now - self.config.suspect_after_ns
        spares = self.state.servers.spares
        self._spare_seen_at = {one: at for one, at in self._spare_seen_at.items() if at > since and one in spares}
        return tuple(sorted(self._spare_seen_at))

    # ---- proposals

    def submit(self, key: Hashable, command: Command) -> None:
        """Propose a command, unless one with the same key is pending or in flight."""
        if key not in self._submitted:
            value = encode(command)
            self._submitted[key] = value
            self._keys_by_value[value] = key
            self.pending.append(command)

    def next_proposal(self, now: int) -> bytes | None:
        """The next value to propose, or None."""
        if self.pending:
            return encode(self.pending.popleft())
        if self.flight is None and (self.advanced or self.state.finalizing) and self._may_cut(now):
            cut = self.cut(now)
            if cut is not None:
                self._cut_at = now
                self.flight = encode(cut)
                return self.flight
        return None

    @property
    def interval_ns(self) -> int:
        """The minimum time between two cuts: the replicated setting, else the configured one."""
        replicated = self.state.interval
        return self.config.interval_ns if replicated is None else replicated

    def _may_cut(self, now: int) -> bool:
        interval = self.interval_ns
        if self.state.finalizing:
            interval = max(interval, self.config.finalizing_interval_ns)
        at = self._cut_at + interval
        if now >= at:
            return True
        if self._cut_timer != at:
            self._cut_timer = at
            self.out.append(SetTimer(CUT, at))
        return False

    def cut(self, now: int) -> Cut | None:
        """A cut with everything new, or None if there is nothing new and no cut is due.

        Entries that only allow links to be dropped travel with the next cut; after a heartbeat without cuts they get
        one of their own (`placing`).
        """
        state, tallies, local_cuts = self.state, self.tallies, self.monitor.cuts
        shards, pairs = array("q"), array("q")
        for shard_id in sorted(self.advanced | self._linked):
            shard = state.shards.get(shard_id)
            if shard is None:
                continue
            local, epoch = local_cuts.get(shard_id), shard.epoch
            if local is not None and local.config.epoch == epoch:
                tallies.merge(local.tally())
            tally = tallies.get(shard_id)
            if tally is None or tally.epoch != epoch:  # SCA-7
                continue
            before, ends = len(pairs), tally.ends
            for segment in shard.open:
                end = ends.get(segment.id, 0)
                if end > segment.end:
                    pairs.append(segment.id)
                    pairs.append(end)
            count, placed = (len(pairs) - before) // 2, min(tally.placed, shard.head)
            if count or placed > shard.placed:
                shards.extend((shard_id, epoch, placed, count))
        self.advanced.clear()
        placing, self.placing = self.placing, False
        if pairs or state.finalizing or (placing and shards):
            if is_beyond_any_pause(state.time, now):
                reason = "its clock is more than ten years ahead of the newest record and would date all later ones"
                self.out.append(Stop(f"{reason}: set it right", wipe=False))
                return None
            self._linked = set()
            return Cut(now, shards, pairs)
        return None

    def chosen(self, value: bytes) -> None:
        """A value was chosen and applied."""
        if value == self.flight:
            self.flight = None
        key = self._keys_by_value.pop(value, None)
        if key is not None:
            del self._submitted[key]

    # ---- timers

    def timer(self, name: str, now: int) -> None:
        """A timer of the leader has fired."""
        if name == CUT:
            self._cut_timer = 0
        elif name == HEARTBEAT:
            self.out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
            self._heartbeat(now)

    def _heartbeat(self, now: int) -> None:
        if now - self._notified_all_at >= self.config.heartbeat_ns // 2:
            self._notified_all_at = now
            self._notify_all()
        since = now - HINT_PERIODS * self.config.suspect_after_ns
        self.unreachable = {one: at for one, at in self.unreachable.items() if at > since and one in self.state.servers}
        if now - self.monitor.checked_at >= self.config.suspect_after_ns // CHECKS_PER_PERIOD:
            self._check_members(now)
        if self.state.owed and len(live := self.live_spares(now)) >= self.state.members_per_shard:
            self.submit("replenish", Replenish(live))
        shards = self.state.shards.values()
        self._linked = {shard.id for shard in shards if shard.links and self._placed(shard) > shard.placed}
        if self._linked and now - self._cut_at >= self.config.heartbeat_ns:
            self.advanced |= self._linked
            self.placing = True

    def _placed(self, shard: OrderedShard) -> int:
        """The last link that the tallies of this epoch show to be durable on a quorum."""
        local = self.monitor.cuts.get(shard.id)
        if local is not None and local.config.epoch == shard.epoch:
            self.tallies.merge(local.tally())
        tally = self.tallies.get(shard.id)
        return tally.placed if tally is not None and tally.epoch == shard.epoch else 0

    # ---- updates

    def applied(self, applied: AppliedCommand) -> None:
        """Collect the changes of an applied command for the next updates."""
        unpublished = self.unpublished
        unpublished.cut |= applied.cut
        unpublished.configs |= applied.configs
        unpublished.removed += applied.removed

    def publish(self, now: int) -> None:
        """Send the collected changes to the shards, servers and aggregators that they concern."""
        changes, state, out = self.unpublished, self.state, self.out
        if not changes.cut and self._published_version == state.version:
            return
        self.unpublished, after, self.published_cut = AppliedCommand(), self.published_cut, state.cut
        for server in changes.removed:
            out.append(Send(server.address, RegistrationReply(server.token, server.id, True, None)))
        for shard_id in changes.configs:
            shard = state.shards.get(shard_id)
            if shard is not None:
                self._send_config(shard, after)
        if self._routed_version != state.version:
            self._route()
        if changes.cut:
            to_all = now - self._notified_all_at >= self.config.quiet_ns
            if to_all:
                self._notified_all_at = now
            self._send_cut(after, changes.configs, to_all=to_all)
        else:
            out += [Send(child, Updates(state.version, ())) for child, _ in self._children]
        self._published_version = state.version

    def _send_config(self, shard: OrderedShard, after: int) -> None:
        """Send the configuration and the links after cut `after` to all servers of a shard, past its aggregators."""
        state = self.state
        update = shard.update(after, state.last, state.oldest)
        for server, address in shard.holders:
            message = RegistrationReply(state.servers[server].token, server, False, update)
            self.out.append(Send(address, message))

    def _send_cut(self, after: int, excluded: set[int], *, to_all: bool) -> None:
        """Send the links after cut `after` to their shards, and the newest GSN to all shards if `to_all`; not to the
        `excluded` ones, which have got a configuration with it."""
        state, out = self.state, self.out
        version, last, oldest = state.version, state.last, state.oldest
        for shard, addresses in self._direct:
            if shard.id not in excluded and (to_all or shard.head > after):
                links = links_after(shard, after)
                update = Update(shard.id, shard.epoch, None, links, shard.head, last, oldest)
                updates = Updates(version, (update,))
                for address in addresses:
                    out.append(Send(address, updates))
        for child, shards in self._children:
            below = [
                Update(shard.id, shard.epoch, None, links_after(shard, after), shard.head, last, oldest)
                for shard in shards
                if shard.id not in excluded
            ]
            out.append(Send(child, Updates(version, tuple(below))))

    def _notify_all(self) -> None:
        """Send a heartbeat with the newest GSN to all shards; to finalized ones only while they lack links."""
        state = self.state
        if self._routed_version != state.version:
            self._route()
        self._send_cut(state.cut, set(), to_all=True)
        for shard in state.shards.values():
            if shard.state is ShardState.FINALIZED and shard.links:
                update = Update(shard.id, shard.epoch, None, (), shard.head, state.last, state.oldest)
                for member in shard.holders:
                    self.out.append(Send(member.address, Updates(state.version, (update,))))

    def _route(self) -> None:
        """Compute through which child of the root the updates of each shard go; finalized shards get none. Drop the
        tallies of shards that were trimmed away."""
        state = self.state
        children: dict[Address, list[OrderedShard]] = {
            one: [] for one, above in state.tree.parents.items() if above == ROOT
        }
        top = {one: state.tree.above(one)[-1] for one in state.tree.parents}
        self._direct = []
        for shard in state.shards.values():
            if shard.state is ShardState.FINALIZED:
                continue
            if shard.reports_to == ROOT:
                self._direct.append((shard, tuple(member.address for member in shard.holders)))
            else:
                children[top[shard.reports_to]].append(shard)
        self._children = list(children.items())
        self._routed_version = state.version
        for by_shard in (self.tallies, self.monitor.cuts, self._bypassed_at):
            for shard_id in by_shard.keys() - state.shards.keys():
                del by_shard[shard_id]


def links_after(shard: OrderedShard, cut: int) -> tuple[ShardCut, ...]:
    """The links of a shard after cut `cut`. Usually at most one."""
    if shard.head <= cut:
        return ()
    newest = shard.links[-1]
    if newest.previous <= cut:
        return (newest,)
    return tuple(link for link in shard.links if link.number > cut)
