"""An aggregator: merges the local cuts of its shards into tallies for its parent, and forwards updates to its children.

It keeps soft state only: it has no journal and may be killed at any time. Its parent, its children and the members and
quorums of its shards are in the log's view, which it requests when an update names a newer version. It sends a tally as
soon as one has advanced and no other one is outstanding, and sends it again until updates confirm it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from logdb.cores.effects import (
    MILLISECOND,
    SECOND,
    Address,
    Effect,
    Event,
    Journal,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from logdb.log.requests import ShardState
from logdb.log.scalog.aggregator_topology import ROOT
from logdb.log.scalog.messages import (
    RegisterAggregator,
    Report,
    ShardConfig,
    SuspectAggregator,
    Tally,
    Update,
    Updates,
    View,
    ViewRequest,
    ViewResponse,
    is_of,
)
from logdb.log.scalog.quorum import LeafMonitor, ShardTallies

RETRY, HEARTBEAT, VIEW = "aggregator.retry", "aggregator.heartbeat", "aggregator.view"


@dataclass(frozen=True, slots=True)
class AggregatorConfig:
    """The configuration of an aggregator. `ordering`: the addresses of all ordering replicas.

    `retry_ns`: time without an update after which a tally is sent again. `heartbeat_ns`: interval at which all tallies
    are sent. `suspect_after_ns`, `straggle_after_ns`: time that a member may be silent, or behind the others.
    `suspect_aggregator_after_ns`: time that the parent may be silent, or not forward tallies.
    """

    address: Address
    ordering: tuple[Address, ...]
    retry_ns: int = 20 * MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    suspect_after_ns: int = SECOND
    straggle_after_ns: int = 5 * SECOND
    suspect_aggregator_after_ns: int = SECOND

    def __post_init__(self) -> None:
        if not self.ordering:
            raise ValueError("an aggregator needs the address of at least one ordering replica")


class Aggregator:
    """The core of an aggregator. `journals` is ignored: it has none.

    `tallies`: merged tallies by shard, from reports and from aggregators below. `reported`: shards with reports that
    are not merged yet; `advanced`: shards whose tally has advanced since it was sent; `sent`: shards whose tally no
    update has confirmed yet. `ordered`: the ordered end of each segment, from links, as long as none was lost. `early`:
    the newest report of each member that names a newer configuration than this aggregator has. `_below`: the shards
    that report to this aggregator or to one below it; the state of other shards is dropped with the next view.
    """

    def __init__(self, config: AggregatorConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config = config
        self.view: View | None = None
        self.parent: Address = ROOT
        self.leader: Address = ROOT
        self.configs: dict[int, ShardConfig] = {}
        self._watched: list[int] = []
        self._below: set[int] = set()
        self.tallies = ShardTallies()
        self.reported: set[int] = set()
        self.advanced: set[int] = set()
        self.sent: set[int] = set()
        self.ordered: dict[int, int] = {}
        self.early: dict[tuple[int, int], tuple[Report, Address]] = {}
        self._monitor = LeafMonitor(config.suspect_after_ns, config.straggle_after_ns, {}, 0)
        self._newest: dict[int, Update] = {}
        self._members: dict[int, tuple[Address, ...]] = {}
        self._next_hop: dict[int, Address] = {}
        self._children: list[Address] = []
        self._outstanding = False
        self._parent_seen_at = 0
        self._parent_is_lost = False
        self._unconfirmed_since: dict[int, int] = {}
        self._rng = rng
        self._view_requested_at = -config.retry_ns
        self._unanswered = False
        self._out: list[Effect] = []

    def start(self, now: int) -> list[Effect]:
        """Register with the ordering layer and request the view. Returns the effects."""
        self._monitor.checked_at = self._parent_seen_at = now
        self._to_ordering(RegisterAggregator(self.config.address))
        self._request_view(now)
        self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
        return self._effects(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Process an event. Returns the effects."""
        if isinstance(event, Received):
            handler = _HANDLERS.get(type(event.message))
            if handler is not None:
                handler(self, event.message, event.sender, now)
        elif isinstance(event, TimerFired) and event.name == HEARTBEAT:
            self._heartbeat(now)
        elif isinstance(event, TimerFired) and event.name == VIEW:
            self._request_view(now)
        elif isinstance(event, TimerFired) and event.name == RETRY:
            self._outstanding = False
            again, self.sent = self.sent, set()
            self._send_up(again)
        return self._effects(now)

    def check_invariants(self) -> None:
        """Every shard that is marked as changed has a tally. Raises AssertionError."""
        assert self.advanced | self.sent <= self.tallies.keys(), "a shard without a tally is marked for sending"
        assert self.reported <= self._monitor.cuts.keys(), "a shard without collected reports is marked as reported"

    # ---- up

    def _report(self, report: Report, sender: Address, now: int) -> None:
        config = self.configs.get(report.shard)
        if config is None and self.view is not None and report.shard < self.view.next_shard:
            return  # it was trimmed away; the member learns it from the ordering layer
        if config is None or report.epoch > config.epoch:
            self.early[report.shard, report.server] = report, sender
            self._request_view(now)
        elif report.epoch < config.epoch:
            if is_of(config, report.server, sender):
                self._monitor.note_alive(report.shard, report.server, now)
            newest = self._newest.get(report.shard)
            head, last, oldest = (newest.head, newest.last, newest.oldest) if newest else (0, 0, 1)
            update = Update(report.shard, config.epoch, config, (), head, last, oldest)
            for member in config.members:  # a removed server learns it from the ordering layer
                if member.server == report.server:
                    self._out.append(Send(member.address, Updates(self._version, (update,))))
        elif (
            config.reports_to == self.config.address
            and is_of(config, report.server, sender)
            and self._monitor.collect(config, report, now)
        ):
            self.reported.add(report.shard)

    def _tally(self, tally: Tally, sender: Address, now: int) -> None:
        if sender not in self._children:
            self._request_view(now)
            return
        for one in tally.shards:
            if self.tallies.merge(one):
                self.advanced.add(one.shard)

    def _effects(self, now: int) -> list[Effect]:
        """Send the tallies that have advanced, unless one is outstanding. Returns the collected effects."""
        if self.reported and not self._outstanding:
            for shard in self.reported:
                if self.tallies.merge(self._monitor.cuts[shard].tally()):
                    self.advanced.add(shard)
            self.reported.clear()
        if self.advanced and not self._outstanding:
            self._outstanding = True
            self._out.append(SetTimer(RETRY, now + self.config.retry_ns))
            self._send_up(self.advanced)
            self.sent |= self.advanced
            self.advanced.clear()
        out = self._out.copy()
        self._out.clear()
        return out

    def _send_up(self, shards: Iterable[int]) -> None:
        tallies = self.tallies
        sent = tuple([tallies[shard].tally(shard) for shard in sorted(shards)])
        if sent and self.parent != ROOT:
            self._out.append(Send(self.parent, Tally(self.config.address, sent)))
        if sent and (self.parent == ROOT or self._parent_is_lost):
            self._to_ordering(Tally(self.config.address, sent))

    def _to_ordering(self, message: Any) -> None:
        for address in (self.leader,) if self.leader != ROOT else self.config.ordering:
            self._out.append(Send(address, message))

    # ---- down

    def _updates(self, updates: Updates, sender: Address, now: int) -> None:
        if sender != self.parent and sender not in self.config.ordering:
            self._request_view(now)
            return
        self._parent_seen_at = now
        if sender != self.leader and sender in self.config.ordering:
            self.leader = sender
            self.advanced.update(self.tallies)
        self._outstanding = False
        below: dict[Address, list[Update]] = {child: [] for child in self._children}
        for update in updates.updates:
            shard = update.shard
            if self._misses_link(update):
                self._forget_ordered(shard)
            self._newest[shard] = update
            for link in update.links:
                self.sent.discard(shard)
                for segment, first, count, _ in link.ranges:
                    self.ordered[segment] = first + count
            members = self._members.get(shard)
            if members is not None:
                one = Updates(updates.view, (update,))
                for address in members:
                    self._out.append(Send(address, one))
            elif shard in self._next_hop:
                below[self._next_hop[shard]].append(update)
        for child, forwarded in below.items():
            self._out.append(Send(child, Updates(updates.view, tuple(forwarded))))
        if updates.view > self._version:
            self._request_view(now)

    def _misses_link(self, update: Update) -> bool:
        """Whether a link before this update was lost on its way here."""
        newest = self._newest.get(update.shard)
        if newest is None or update.head <= newest.head:
            return False
        return not update.links or update.links[0].previous > newest.head

    def _forget_ordered(self, shard: int) -> None:
        """After a lost link the ordered ends are unknown: they are no evidence that the parent drops tallies."""
        for segment in self.configs[shard].segments if shard in self.configs else ():
            self.ordered.pop(segment.id, None)

    # ---- the view

    @property
    def _version(self) -> int:
        return self.view.version if self.view is not None else -1

    def _request_view(self, now: int) -> None:
        if now - self._view_requested_at >= self.config.retry_ns:
            if self._unanswered:  # only aggregators below the root get messages from the leader: it may have changed
                self.leader = ROOT
            self._view_requested_at, self._unanswered = now, True
            self._out.append(Send(self.leader or self._rng.choice(self.config.ordering), ViewRequest(0)))
        else:
            self._out.append(SetTimer(VIEW, self._view_requested_at + self.config.retry_ns))

    def _on_view(self, answer: ViewResponse, sender: Address, now: int) -> None:
        self._unanswered = False
        view = answer.view
        if view.version <= self._version:
            return
        self.view = view
        parents = dict(view.aggregators)
        own_address = self.config.address
        if parents.get(own_address, ROOT) != self.parent:
            self.parent = parents.get(own_address, ROOT)
            self._parent_seen_at = now
            self._unconfirmed_since.clear()
        self._children = [child for child, parent in view.aggregators if parent == own_address]
        self._route(view, parents)
        by_shard: tuple[dict[int, Any], ...] = (
            self.tallies,
            self._newest,
            self._unconfirmed_since,
            self._monitor.cuts,
        )
        for state in by_shard:
            for shard in state.keys() - self._below:
                del state[shard]
        below = [self.configs[shard] for shard in self._below]
        open_segments = {one.id for config in below for one in config.segments if one.sealed is None}
        self.ordered = {one: end for one, end in self.ordered.items() if one in open_segments}
        for shards in (self.reported, self.advanced, self.sent):
            shards.intersection_update(self._below)
        early, self.early = self.early, {}
        for report, member in early.values():
            self._report(report, member, now)

    def _route(self, view: View, parents: dict[Address, Address]) -> None:
        """Compute which members and children get the updates of each shard."""
        own_address, next_hops = self.config.address, {child: child for child in self._children}
        for child in parents:
            path = [child]
            while path[-1] not in next_hops and path[-1] not in (own_address, ROOT):
                path.append(parents.get(path[-1], ROOT))
            next_hops.update(dict.fromkeys(path, next_hops.get(path[-1], ROOT)))
        self.configs = {config.shard: config for config in view.shards}
        self._members, self._next_hop, self._watched = {}, {}, []
        self._below = {
            config.shard
            for config in view.shards
            if config.reports_to == own_address or next_hops.get(config.reports_to, ROOT) != ROOT
        }
        for config in view.shards:
            if config.state is ShardState.FINALIZED:
                continue
            if config.reports_to == own_address:
                self._watched.append(config.shard)
                self._members[config.shard] = tuple(member.address for member in config.holders)
            elif next_hops.get(config.reports_to, ROOT) != ROOT:
                self._next_hop[config.shard] = next_hops[config.reports_to]

    # ---- timers

    def _check_parent(self, now: int) -> None:
        """Report the parent if it is silent, or if tallies sent to it do not lead to updates."""
        ordered, since = self.ordered, self._unconfirmed_since
        for shard in self._below & self.tallies.keys():
            tally = self.tallies[shard]
            if any(end > ordered.get(segment, end) for segment, end in tally.ends.items()):
                since.setdefault(shard, now)
            else:
                since.pop(shard, None)
        waiting_since = min(self._parent_seen_at, min(since.values(), default=now))
        self._parent_is_lost = now - waiting_since >= self.config.suspect_aggregator_after_ns
        if self._parent_is_lost and self.parent != ROOT:
            self._to_ordering(SuspectAggregator(self.parent))

    def _heartbeat(self, now: int) -> None:
        self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
        if now - self._monitor.checked_at >= self.config.suspect_after_ns:  # paused, or its clock has jumped
            self._parent_seen_at = now
            self._unconfirmed_since.clear()
        if now - self._parent_seen_at >= self.config.suspect_aggregator_after_ns:
            self.leader = ROOT
            self._request_view(now)
        if self.view is None or all(address != self.config.address for address, _ in self.view.aggregators):
            self._to_ordering(RegisterAggregator(self.config.address))
            self._request_view(now)
        if self.early:
            self._request_view(now)
        self._check_parent(now)
        for cuts in self._monitor.cuts.values():
            self.tallies.merge(cuts.tally())
        self._send_up(self.tallies)
        if now - self._monitor.checked_at >= self.config.suspect_after_ns // 4:
            for verdict in self._monitor.watch([self.configs[shard] for shard in self._watched], now):
                self._to_ordering(verdict)


_HANDLERS: dict[type, Any] = {
    Report: Aggregator._report,
    Tally: Aggregator._tally,
    Updates: Aggregator._updates,
    ViewResponse: Aggregator._on_view,
}
