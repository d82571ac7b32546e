"""What reports say about a shard: what is durable on a quorum, and who has failed or lags. For aggregators and leaders.

A report is a member's local cut: for each segment, how far its copy is durable. The *quorum-th largest* of the members'
ends is durable on a quorum. Reports are cumulative, and a copy that is durable stays so: whatever order they
come in, the largest end that a member has ever reported in this epoch counts. A member that has not reported has
nothing. All of it holds for one epoch (SCA-7): with other members or segments everything begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from logdb.log.requests import ShardState
from logdb.log.scalog.messages import Recovered, Report, ShardConfig, ShardTally, Suspect


class LocalCuts:
    """The reports of one shard's members in one epoch. `before`: those of an earlier epoch, for who is alive.

    `rows`: for each open segment, how far each member's copy is durable (1: nothing). `heard`: when it last reported.
    """

    __slots__ = ("_goal", "_goal_since", "_lagging", "_well_since", "config", "heard", "placed", "rows")

    def __init__(self, config: ShardConfig, now: int, before: LocalCuts | None = None) -> None:
        servers = [member.server for member in config.members]
        self.config = config
        heard = before.heard if before is not None else {}
        self.heard: dict[int, int] = {server: heard.get(server, now) for server in servers}
        self.rows = {one.id: dict.fromkeys(servers, 1) for one in config.segments if one.sealed is None}
        self.placed = dict.fromkeys(servers, 0)
        self._goal: dict[int, int] = {}
        self._goal_since = now
        self._lagging: set[int] = set()
        self._well_since: dict[int, int] = {}

    def take(self, report: Report, now: int) -> bool:
        """Whether the report, which is of this shard and epoch, says that more is durable somewhere."""
        server = report.server
        if server not in self.heard:
            return False
        self.heard[server] = now
        self.placed[server] = max(self.placed[server], report.placed)
        more = False
        rows = self.rows
        for segment, end in report.ends:
            row = rows.get(segment)
            if row is not None and end > row[server]:
                row[server] = end
                more = True
        return more

    def forgive(self, now: int) -> None:
        """Everybody counts as heard of now, and as far as the others."""
        self.heard = dict.fromkeys(self.heard, now)
        self._goal_since = now

    def on_quorum(self, positions: Iterable[int]) -> int:
        """The quorum-th largest of the members' positions."""
        quorum = self.config.quorum
        if quorum == len(self.heard):
            return min(positions)
        return sorted(positions, reverse=True)[quorum - 1]

    def tally(self) -> ShardTally:
        """What is durable on a quorum."""
        if self.config.quorum == len(self.heard):
            ends = tuple([(segment, min(row.values())) for segment, row in self.rows.items()])
        else:
            ends = tuple([(segment, self.on_quorum(row.values())) for segment, row in self.rows.items()])
        return ShardTally(self.config.shard, self.config.epoch, self.on_quorum(self.placed.values()), ends)

    def watch(self, now: int, suspect_after: int, straggle_after: int) -> list[Suspect | Recovered]:
        """Members to suspect, and members without a segment of their own that are well again.

        A member lags that is now behind where the furthest one was `straggle_after` ns ago; one that is joining has
        to copy, and may.
        """
        if self.config.state is ShardState.FINALIZED:
            return []
        if now - self._goal_since >= straggle_after:
            self._lagging = {
                server
                for segment, goal in self._goal.items()
                for server, end in self.rows[segment].items()
                if end < goal and server not in self.config.joining
            }
            self._goal = {segment: max(row.values()) for segment, row in self.rows.items()}
            self._goal_since = now
            fresh = self._lagging
        else:
            fresh = set()
        ill = {server for server, heard in self.heard.items() if now - heard >= suspect_after}
        name = self.config.shard, self.config.epoch
        verdicts: list[Suspect | Recovered] = [Suspect(*name, server, server in ill) for server in sorted(ill | fresh)]
        return verdicts + [Recovered(*name, server) for server in self._recovered(now, ill, suspect_after)]

    def _recovered(self, now: int, ill: set[int], suspect_after: int) -> list[int]:
        if self.config.state is not ShardState.LIVE:
            return []
        primaries = {one.primary for one in self.config.segments if one.sealed is None}
        idle = self.heard.keys() - primaries - self._lagging - ill
        self._well_since = {server: self._well_since.get(server, now) for server in sorted(idle)}
        return [server for server, since in self._well_since.items() if now - since >= suspect_after]


@dataclass(slots=True)
class LeafMonitor:
    """Collects the reports of many shards, and watches those that have nobody else to watch them.

    A watcher that was itself away (paused, or its clock jumped) has heard nothing, which says nothing about others:
    when it looks later than it should, everybody begins anew. So do the members of a shard that it did not watch when
    it looked last: `_watched` are those that it did.
    """

    suspect_after_ns: int
    straggle_after_ns: int
    cuts: dict[int, LocalCuts]
    looked: int
    _watched: set[int] = field(default_factory=set)

    def collect(self, config: ShardConfig, report: Report, now: int) -> bool:
        """Take a report that is of the epoch of `config`. Returns whether more is durable somewhere."""
        cuts = self.cuts.get(report.shard)
        if cuts is None or cuts.config.epoch != report.epoch:
            cuts = self.begin(config, now)
        return cuts.take(report, now)

    def begin(self, config: ShardConfig, now: int) -> LocalCuts:
        """Expect reports of this configuration."""
        cuts = self.cuts[config.shard] = LocalCuts(config, now, self.cuts.get(config.shard))
        return cuts

    def watch(self, configs: Iterable[ShardConfig], now: int) -> list[Suspect | Recovered]:
        """What is to be said about the members of these shards."""
        late = now - self.looked >= self.suspect_after_ns
        self.looked = now
        watched, self._watched = self._watched, set()
        verdicts: list[Suspect | Recovered] = []
        for config in configs:
            cuts = self.cuts.get(config.shard)
            if cuts is None or cuts.config.epoch != config.epoch:
                cuts = self.begin(config, now)
            if late or config.shard not in watched:
                cuts.forgive(now)
            self._watched.add(config.shard)
            verdicts += cuts.watch(now, self.suspect_after_ns, self.straggle_after_ns)
        return verdicts


@dataclass(slots=True)
class MergedShardTally:
    """All that was said to be durable on a quorum of one shard in one epoch. `ends`: by segment."""

    epoch: int
    placed: int
    ends: dict[int, int]

    def tally(self, shard: int) -> ShardTally:
        """As it is sent."""
        return ShardTally(shard, self.epoch, self.placed, tuple(self.ends.items()))


class ShardTallies(dict[int, MergedShardTally]):
    """Merged tallies by shard: the newest epoch counts, and within it the largest position."""

    def merge(self, tally: ShardTally) -> bool:
        """Whether it says that more is durable."""
        shard, epoch, placed, ends = tally
        merged = self.get(shard)
        if merged is None or epoch > merged.epoch:
            self[shard] = MergedShardTally(epoch, placed, dict(ends))
            return any(end > 1 for _, end in ends)
        if epoch < merged.epoch:
            return False
        merged.placed = max(merged.placed, placed)
        more = False
        known = merged.ends
        for segment, end in ends:
            if end > known.get(segment, 1):
                known[segment] = end
                more = True
        return more
