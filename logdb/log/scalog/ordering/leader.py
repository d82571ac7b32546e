"""What a leader of the ordering layer knows besides the replicated state: tallies, suspicions, who is to hear what.

All of it is soft. A new leader begins with nothing and takes what reports say; whatever was on its way when the old
one fell is either chosen, and then in the state, or reported again.

A cut is made as soon as something new is durable on a quorum and no cut is in flight, so under load cuts follow one
another without a pause, and each takes what has come meanwhile; an idle log makes none. When commands have been
applied, every shard that they concern hears of it in one update, however many they were. The others need to know only
how far the log has got, for who reads there, and hear that less often.
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
LOOKS = 4
"""A leader looks at its members so often in `suspect_after_ns`."""
HINT_PERIODS = 10
"""What a client says of a server counts for so many times `suspect_after_ns`."""


@dataclass(frozen=True, slots=True)
class OrderingConfig:
    """How one replica of the ordering layer does its work. `replicas`: the addresses of all, in the same order
    everywhere; `address`: this one's.

    `policy` and `f`: what is done when a storage server fails (table 3.2), and how many failures a shard survives:
    it has f + 1 members, or 2f + 1 where failures are masked. They are the log's, not the replica's: a leader puts
    its own into the replicated state. `interval_ns`: the least time between two cuts (0: order as soon as the
    last cut is chosen); `finalizing_interval_ns`: the same, and the time between empty cuts, while a shard is
    finalizing. `heartbeat_ns`: every shard hears from the leader so often. `quiet_ns`: a shard for which a cut had
    nothing hears of it this long after the last time at the latest, if cuts go on. `suspect_after_ns`,
    `straggle_after_ns`: how long a member may be silent, or behind the others. `snapshot_bytes`: the state is saved,
    and the commands before it go, when these have become so long (and eight times as long as the last saved state).
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


def pass_on(question: ReportRequest, state: OrderingState, out: list[Effect]) -> None:
    """Ask the member, if it is one."""
    shard = state.shards.get(question.shard)
    member = shard.member(question.server) if shard is not None else None
    if member is not None:
        out.append(Send(member.address, question))


class Leader:
    """A leader's soft state. It puts effects into `out`, and what it wants chosen into `wanted`.

    `unreachable`: when clients last said of members that they do not answer. `_accused`: suspicions of silent members,
    and whether the member has let a look of the leader pass without a report.

    `flight`: the cut that is proposed and not chosen yet. `fresh`: what was applied since the last updates, which went
    out when `told_cut` was the newest cut and `told_version` the view's version.
    """

    def __init__(self, config: OrderingConfig, state: OrderingState, out: list[Effect], now: int) -> None:
        self.config, self.state, self.out = config, state, out
        self.tallies = ShardTallies()
        self.watch = LeafMonitor(config.suspect_after_ns, config.straggle_after_ns, {}, now)
        self.moved: set[int] = set()
        self._linked: set[int] = set()
        self.placing = False
        self.flight: bytes | None = None
        self.wanted: deque[Command] = deque()
        self.fresh = AppliedCommand()
        self.told_cut = state.cut
        self._told_version = self._routed_version = -1
        self._told_all_at = self._cut_at = now
        self._cut_timer = 0
        self._spare_heard: dict[int, int] = {}
        self.unreachable: dict[int, int] = {}
        self._accused: dict[Suspect, bool] = {}
        self._asked: dict[Hashable, bytes] = {}
        self._asked_by_value: dict[bytes, Hashable] = {}
        self._direct: list[tuple[OrderedShard, tuple[Address, ...]]] = []
        self._children: list[tuple[Address, list[OrderedShard]]] = []

    def start(self, now: int) -> None:
        """Make the configured policy the log's, and let everybody know who leads."""
        if (self.state.policy, self.state.f) != (self.config.policy, self.config.f):
            self.wanted.append(SetPolicy(self.config.policy, self.config.f))
        self._told_version = self.state.version
        self._notify_all()
        self.out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))

    def stop(self) -> None:
        """Another one leads."""
        self.out += [CancelTimer(HEARTBEAT), CancelTimer(CUT)]

    # ---- what comes in

    def report(self, shard: OrderedShard, report: Report, now: int) -> None:
        """Take a report of the shard's epoch."""
        cuts = self.watch.cuts.get(shard.id)
        if cuts is None or cuts.config.epoch != shard.epoch:
            cuts = self.watch.begin(shard.config(), now)
        if cuts.take(report, now):
            self.moved.add(shard.id)

    def tally(self, tally: Tally) -> None:
        """Take an aggregator's tallies; they are asked for their epoch when a cut is made (SCA-7)."""
        merge, moved = self.tallies.merge, self.moved
        for one in tally.shards:
            if merge(one):
                moved.add(one.shard)

    def heard_spare(self, server: int, now: int) -> None:
        """This spare is alive."""
        self._spare_heard[server] = now

    def hint(self, server: int, now: int) -> None:
        """A client does not reach this server. That says as much of the client: it is remembered, for people."""
        known = self.state.servers.get(server)
        if known is not None and known.shard:
            self.unreachable[server] = now

    def hear(self, verdict: Suspect | Recovered, now: int) -> None:
        """An aggregator says so. That it has not heard a member may be its own fault: the member itself is asked."""
        if not isinstance(verdict, Suspect) or not verdict.silent:
            self._judge(verdict, now)
        elif verdict not in self._accused:
            self._accused[verdict] = False
            self._ask(verdict.shard, verdict.server)

    def alive(self, server: int) -> None:
        """This member has reported to the ordering layer: an aggregator that has not heard it is of no use to it."""
        for suspicion in [one for one in self._accused if one.server == server]:
            del self._accused[suspicion]
            shard = self.state.shards.get(suspicion.shard)
            if shard is not None and shard.epoch == suspicion.epoch:
                self.drop_aggregator(shard.reports_to)

    def drop_aggregator(self, address: Address) -> None:
        """Have its children report to its parent, if it is in the tree. It may come back."""
        if address in self.state.tree.parents:
            self.want(("aggregator", address), AggregatorFailed(address, self.state.version))

    def _ask(self, shard: int, server: int) -> None:
        """Directly, and by the other replicas, which may reach it where this one does not."""
        question = ReportRequest(shard, server)
        self.out += [Send(replica, question) for replica in self.config.replicas if replica != self.config.address]
        pass_on(question, self.state, self.out)

    def _look(self, now: int) -> None:
        for suspicion, was_asked_again in list(self._accused.items()):
            if was_asked_again:
                del self._accused[suspicion]
                self._judge(suspicion, now)
            else:
                self._accused[suspicion] = True
                self._ask(suspicion.shard, suspicion.server)
        mine = [shard.config() for shard in self.state.shards.values() if shard.reports_to == ROOT]
        for verdict in self.watch.watch(mine, now):
            self._judge(verdict, now)
        for config in mine:
            for server, heard in self.watch.cuts[config.shard].heard.items():
                if config.state is not ShardState.FINALIZED and now - heard >= self.config.suspect_after_ns // 2:
                    self._ask(config.shard, server)

    def _judge(self, verdict: Suspect | Recovered, now: int) -> None:
        if isinstance(verdict, Suspect):
            failed = ServerFailed(verdict.shard, verdict.epoch, verdict.server, self.live_spares(now))
            if self.state.helps(failed):
                self.want(("failed", *verdict[:3]), failed)
        elif self.state.policy is FailurePolicy.MASK:
            self.want(("returned", *verdict), ServerReturned(*verdict))

    def live_spares(self, now: int) -> tuple[int, ...]:
        """The spares that were heard of lately."""
        since = now - self.config.suspect_after_ns
        waiting = self.state.waiting
        self._spare_heard = {one: at for one, at in self._spare_heard.items() if at > since and one in waiting}
        return tuple(sorted(self._spare_heard))

    # ---- proposals

    def want(self, key: Hashable, command: Command) -> None:
        """Have a command chosen, unless one with the same key is on its way."""
        if key not in self._asked:
            value = encode(command)
            self._asked[key] = value
            self._asked_by_value[value] = key
            self.wanted.append(command)

    def next_proposal(self, now: int) -> bytes | None:
        """What to propose now, if anything."""
        if self.wanted:
            return encode(self.wanted.popleft())
        if self.flight is None and (self.moved or self.state.finalizing) and self._may_cut(now):
            cut = self.cut(now)
            if cut is not None:
                self._cut_at = now
                self.flight = encode(cut)
                return self.flight
        return None

    @property
    def interval_ns(self) -> int:
        """The least time between two cuts: as it was set while the log ran, else as it is configured."""
        chosen = self.state.interval
        return self.config.interval_ns if chosen is None else chosen

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
        """A cut of all that is new, or None if nothing is and none is due.

        What only lets links be dropped goes with the next cut, and gets one of its own at a heartbeat (`placing`) if
        there was none lately.
        """
        state, tallies, local_cuts = self.state, self.tallies, self.watch.cuts
        shards, pairs = array("q"), array("q")
        for shard_id in sorted(self.moved | self._linked):
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
        self.moved.clear()
        placing, self.placing = self.placing, False
        if pairs or state.finalizing or (placing and shards):
            if is_beyond_any_pause(state.time, now):
                why = "its clock is more than ten years ahead of the newest record and would date all later ones"
                self.out.append(Stop(f"{why}: set it right", wipe=False))
                return None
            self._linked = set()
            return Cut(now, shards, pairs)
        return None

    def chosen(self, value: bytes) -> None:
        """A value was chosen and applied."""
        if value == self.flight:
            self.flight = None
        key = self._asked_by_value.pop(value, None)
        if key is not None:
            del self._asked[key]

    # ---- timers

    def timer(self, name: str, now: int) -> None:
        """One of the leader's timers has run out."""
        if name == CUT:
            self._cut_timer = 0
        elif name == HEARTBEAT:
            self.out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
            self._heartbeat(now)

    def _heartbeat(self, now: int) -> None:
        if now - self._told_all_at >= self.config.heartbeat_ns // 2:
            self._told_all_at = now
            self._notify_all()
        since = now - HINT_PERIODS * self.config.suspect_after_ns
        self.unreachable = {one: at for one, at in self.unreachable.items() if at > since and one in self.state.servers}
        if now - self.watch.looked >= self.config.suspect_after_ns // LOOKS:
            self._look(now)
        if self.state.owed and len(live := self.live_spares(now)) >= self.state.members_per_shard:
            self.want("replenish", Replenish(live))
        shards = self.state.shards.values()
        self._linked = {shard.id for shard in shards if shard.links and self._placed(shard) > shard.placed}
        if self._linked and now - self._cut_at >= self.config.heartbeat_ns:
            self.moved |= self._linked
            self.placing = True

    def _placed(self, shard: OrderedShard) -> int:
        local = self.watch.cuts.get(shard.id)
        if local is not None and local.config.epoch == shard.epoch:
            self.tallies.merge(local.tally())
        tally = self.tallies.get(shard.id)
        return tally.placed if tally is not None and tally.epoch == shard.epoch else 0

    # ---- what goes out

    def applied(self, applied: AppliedCommand) -> None:
        """A command was applied."""
        fresh = self.fresh
        fresh.cut |= applied.cut
        fresh.configs |= applied.configs
        fresh.gone += applied.gone

    def tell(self, now: int) -> None:
        """Send what the commands since the last time have changed to those whom it concerns."""
        fresh, state, out = self.fresh, self.state, self.out
        if not fresh.cut and self._told_version == state.version:
            return
        self.fresh, told, self.told_cut = AppliedCommand(), self.told_cut, state.cut
        for server in fresh.gone:
            out.append(Send(server.address, RegistrationReply(server.token, server.id, True, None)))
        for shard_id in fresh.configs:
            shard = state.shards.get(shard_id)
            if shard is not None:
                self._send_config(shard, told)
        if self._routed_version != state.version:
            self._route()
        if fresh.cut:
            everybody = now - self._told_all_at >= self.config.quiet_ns
            if everybody:
                self._told_all_at = now
            self._send_cut(told, fresh.configs, everybody=everybody)
        else:
            out += [Send(child, Updates(state.version, ())) for child, _ in self._children]
        self._told_version = state.version

    def _send_config(self, shard: OrderedShard, told: int) -> None:
        """Every member hears of a new configuration at once, whatever aggregators there are."""
        state = self.state
        update = shard.update(told, state.last, state.oldest)
        for server, address in shard.holders:
            message = RegistrationReply(state.servers[server].token, server, False, update)
            self.out.append(Send(address, message))

    def _send_cut(self, told: int, but: set[int], *, everybody: bool) -> None:
        state, out = self.state, self.out
        version, last, oldest = state.version, state.last, state.oldest
        for shard, addresses in self._direct:
            if shard.id not in but and (everybody or shard.head > told):
                links = new_links(shard, told)
                update = Update(shard.id, shard.epoch, None, links, shard.head, last, oldest)
                updates = Updates(version, (update,))
                for address in addresses:
                    out.append(Send(address, updates))
        for child, shards in self._children:
            below = [
                Update(shard.id, shard.epoch, None, new_links(shard, told), shard.head, last, oldest)
                for shard in shards
                if shard.id not in but
            ]
            out.append(Send(child, Updates(version, tuple(below))))

    def _notify_all(self) -> None:
        """A heartbeat: where the log ends, to everybody who follows it or lacks a link."""
        state = self.state
        if self._routed_version != state.version:
            self._route()
        self._send_cut(state.cut, set(), everybody=True)
        for shard in state.shards.values():
            if shard.state is ShardState.FINALIZED and shard.links:
                update = Update(shard.id, shard.epoch, None, (), shard.head, state.last, state.oldest)
                for member in shard.holders:
                    self.out.append(Send(member.address, Updates(state.version, (update,))))

    def _route(self) -> None:
        """Which shards, of those that take appends, are below which child of the root."""
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


def new_links(shard: OrderedShard, told: int) -> tuple[ShardCut, ...]:
    """The links after cut `told`; mostly there is one or none."""
    if shard.head <= told:
        return ()
    newest = shard.links[-1]
    if newest.previous <= told:
        return (newest,)
    return tuple(link for link in shard.links if link.number > told)
