"""An aggregator: merges the local cuts of its shards on their way up and spreads the updates on their way down.

It keeps soft state only, so it has no journal, and may be killed at any time. What it must know (its parent, its
children, the members and quorums of its shards) is in the log's view, which it asks for when an update names a newer
one. A tally goes up as soon as it says more and none is outstanding; whatever an update does not confirm is sent again.
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
    """How an aggregator does its work. `ordering`: the addresses of all ordering replicas.

    `retry_ns`: a tally that no update has followed is sent again after so long. `heartbeat_ns`: the whole tally goes up
    so often, whatever happens. `suspect_after_ns`, `straggle_after_ns`: how long a member may be silent, or behind
    the others. `suspect_aggregator_after_ns`: how long the parent may be silent, or pass on nothing.
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

    `tallies`: what is known to be durable, from reports and from aggregators below; `reported`: shards of which there
    are reports that are not in it yet; `moved`: those of which it says more than was sent; `sent`: those that no update
    has shown since. `ordered`: how far links have shown segments to be ordered. `early`: reports of a configuration
    that is not known here yet.
    """

    def __init__(self, config: AggregatorConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config = config
        self.view: View | None = None
        self.parent: Address = ROOT
        self.leader: Address = ROOT
        self.configs: dict[int, ShardConfig] = {}
        self.mine: list[int] = []
        self.tallies = ShardTallies()
        self.reported: set[int] = set()
        self.moved: set[int] = set()
        self.sent: set[int] = set()
        self.ordered: dict[int, int] = {}
        self.early: dict[tuple[int, int], tuple[Report, Address]] = {}
        self._watch = LeafMonitor(config.suspect_after_ns, config.straggle_after_ns, {}, 0)
        self._newest: dict[int, Update] = {}
        self._members: dict[int, tuple[Address, ...]] = {}
        self._through: dict[int, Address] = {}
        self._children: list[Address] = []
        self._outstanding = False
        self._parent_heard = 0
        self._parent_is_lost = False
        self._unshown_since: dict[int, int] = {}
        self._rng = rng
        self._asked_at = -config.retry_ns
        self._unanswered = False
        self._out: list[Effect] = []

    def start(self, now: int) -> list[Effect]:
        """What to do when the node starts: make itself known, and ask for the view."""
        self._watch.looked = self._parent_heard = now
        self._to_ordering(RegisterAggregator(self.config.address))
        self._ask_view(now)
        self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
        return self._taken(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What to do about an event. Raises ProtocolViolation."""
        if isinstance(event, Received):
            answer = _ANSWER.get(type(event.message))
            if answer is not None:
                answer(self, event.message, event.sender, now)
        elif isinstance(event, TimerFired) and event.name == HEARTBEAT:
            self._heartbeat(now)
        elif isinstance(event, TimerFired) and event.name == VIEW:
            self._ask_view(now)
        elif isinstance(event, TimerFired) and event.name == RETRY:
            self._outstanding = False
            again, self.sent = self.sent, set()
            self._send_up(again)
        return self._taken(now)

    def check_invariants(self) -> None:
        """That every tally can be told. Raises AssertionError."""
        assert self.moved | self.sent <= self.tallies.keys(), "a shard is to be told of that is not tallied"
        assert self.reported <= self._watch.cuts.keys(), "a shard was reported that is not collected"

    # ---- up

    def _report(self, report: Report, sender: Address, now: int) -> None:
        config = self.configs.get(report.shard)
        if config is None or report.epoch > config.epoch:
            self.early[report.shard, report.server] = report, sender
            self._ask_view(now)
        elif report.epoch < config.epoch:
            known = self._newest.get(report.shard)
            head, last, oldest = (known.head, known.last, known.oldest) if known else (0, 0, 1)
            update = Update(report.shard, config.epoch, config, (), head, last, oldest)
            for member in config.members:  # who has left asks, and is told so
                if member.server == report.server:
                    self._out.append(Send(member.address, Updates(self._version, (update,))))
        elif is_of(config, report.server, sender) and self._watch.collect(config, report, now):
            self.reported.add(report.shard)

    def _tally(self, tally: Tally, sender: Address, now: int) -> None:
        if sender not in self._children:
            self._ask_view(now)
            return
        for one in tally.shards:
            if self.tallies.merge(one):
                self.moved.add(one.shard)

    def _taken(self, now: int) -> list[Effect]:
        """Send what says more, unless a tally is outstanding."""
        if self.reported and not self._outstanding:
            for shard in self.reported:
                if self.tallies.merge(self._watch.cuts[shard].tally()):
                    self.moved.add(shard)
            self.reported.clear()
        if self.moved and not self._outstanding:
            self._outstanding = True
            self._out.append(SetTimer(RETRY, now + self.config.retry_ns))
            self._send_up(self.moved)
            self.sent |= self.moved
            self.moved.clear()
        out = self._out.copy()
        self._out.clear()
        return out

    def _send_up(self, shards: Iterable[int]) -> None:
        tallies = self.tallies
        up = tuple([tallies[shard].tally(shard) for shard in sorted(shards)])
        if up and self.parent != ROOT:
            self._out.append(Send(self.parent, Tally(self.config.address, up)))
        if up and (self.parent == ROOT or self._parent_is_lost):
            self._to_ordering(Tally(self.config.address, up))

    def _to_ordering(self, message: Any) -> None:
        for address in (self.leader,) if self.leader != ROOT else self.config.ordering:
            self._out.append(Send(address, message))

    # ---- down

    def _updates(self, updates: Updates, sender: Address, now: int) -> None:
        if sender != self.parent and sender not in self.config.ordering:
            self._ask_view(now)
            return
        self._parent_heard = now
        if sender != self.leader and sender in self.config.ordering:
            self.leader = sender
            self.moved.update(self.tallies)
        self._outstanding = False
        below: dict[Address, list[Update]] = {child: [] for child in self._children}
        for update in updates.updates:
            shard = update.shard
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
            elif shard in self._through:
                below[self._through[shard]].append(update)
        for child, through in below.items():
            self._out.append(Send(child, Updates(updates.view, tuple(through))))
        if updates.view > self._version:
            self._ask_view(now)

    # ---- the view

    @property
    def _version(self) -> int:
        return self.view.version if self.view is not None else -1

    def _ask_view(self, now: int) -> None:
        if now - self._asked_at >= self.config.retry_ns:
            if self._unanswered:  # not every aggregator hears from the leader, so it may be long gone
                self.leader = ROOT
            self._asked_at, self._unanswered = now, True
            self._out.append(Send(self.leader or self._rng.choice(self.config.ordering), ViewRequest(0)))
        else:
            self._out.append(SetTimer(VIEW, self._asked_at + self.config.retry_ns))

    def _view_is(self, answer: ViewResponse, sender: Address, now: int) -> None:
        self._unanswered = False
        view = answer.view
        if view.version <= self._version:
            return
        self.view = view
        parents = dict(view.aggregators)
        me = self.config.address
        if parents.get(me, ROOT) != self.parent:
            self.parent = parents.get(me, ROOT)
            self._parent_heard = now
            self._unshown_since.clear()
        self._children = [child for child, parent in view.aggregators if parent == me]
        self._route(view, parents)
        for shard in self.tallies.keys() - self.configs.keys():
            del self.tallies[shard]
        for about in (self._newest, self._unshown_since, self._watch.cuts):
            for shard in about.keys() - self.configs.keys():
                del about[shard]
        open_segments = {one.id for config in view.shards for one in config.segments if one.sealed is None}
        self.ordered = {one: end for one, end in self.ordered.items() if one in open_segments}
        for shards in (self.reported, self.moved, self.sent):
            shards.intersection_update(self.configs)
        early, self.early = self.early, {}
        for report, member in early.values():
            self._report(report, member, now)

    def _route(self, view: View, parents: dict[Address, Address]) -> None:
        """Who is to get the updates of which shard."""
        me, ways = self.config.address, {child: child for child in self._children}
        for child in parents:
            path = [child]
            while path[-1] not in ways and path[-1] not in (me, ROOT):
                path.append(parents.get(path[-1], ROOT))
            ways.update(dict.fromkeys(path, ways.get(path[-1], ROOT)))
        self.configs = {config.shard: config for config in view.shards}
        self._members, self._through, self.mine = {}, {}, []
        for config in view.shards:
            if config.state is ShardState.FINALIZED:
                continue
            if config.reports_to == me:
                self.mine.append(config.shard)
                self._members[config.shard] = tuple(member.address for member in config.holders)
            elif ways.get(config.reports_to, ROOT) != ROOT:
                self._through[config.shard] = ways[config.reports_to]

    # ---- timers

    def _look_at_parent(self, now: int) -> None:
        """Whether the parent is silent, or what is sent to it does not show in updates."""
        ordered, since = self.ordered, self._unshown_since
        for shard, tally in self.tallies.items():
            if any(end > ordered.get(segment, end) for segment, end in tally.ends.items()):
                since.setdefault(shard, now)
            else:
                since.pop(shard, None)
        waits_since = min(self._parent_heard, min(since.values(), default=now))
        self._parent_is_lost = now - waits_since >= self.config.suspect_aggregator_after_ns
        if self._parent_is_lost and self.parent != ROOT:
            self._to_ordering(SuspectAggregator(self.parent))

    def _heartbeat(self, now: int) -> None:
        self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
        if now - self._parent_heard >= self.config.suspect_aggregator_after_ns:
            self.leader = ROOT
            self._ask_view(now)
        if self.view is None or all(address != self.config.address for address, _ in self.view.aggregators):
            self._to_ordering(RegisterAggregator(self.config.address))
            self._ask_view(now)
        if self.early:
            self._ask_view(now)
        self._look_at_parent(now)
        for cuts in self._watch.cuts.values():
            self.tallies.merge(cuts.tally())
        self._send_up(self.tallies)
        if now - self._watch.looked >= self.config.suspect_after_ns // 4:
            for verdict in self._watch.watch([self.configs[shard] for shard in self.mine], now):
                self._to_ordering(verdict)


_ANSWER: dict[type, Any] = {
    Report: Aggregator._report,
    Tally: Aggregator._tally,
    Updates: Aggregator._updates,
    ViewResponse: Aggregator._view_is,
}
