"""Evaluates the reports of a shard: the records that are durable on a quorum, and the members that are silent or lag.

A report is a member's local cut: for each segment, how far its copy is durable. The *quorum-th largest* of the members'
ends is durable on a quorum. Reports are cumulative, and a durable copy stays durable: in whatever order reports arrive,
the largest end that a member has reported in this epoch counts. A member that has not reported yet counts with an empty
copy. The state is valid for one epoch (SCA-7) and is discarded when the members or the segments change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from logdb.log.requests import ShardState
from logdb.log.scalog.messages import Recovered, Report, ShardConfig, ShardTally, Suspect


class LocalCuts:
    """The reports of one shard's members in one epoch. `previous`: those of an earlier epoch; their times are kept.

    `rows`: for each open segment, how far each member's copy is durable (1: empty). `reported_at`: the time of each
    member's last report (ns).
    """

    __slots__ = ("_goal", "_goal_since", "_healthy_since", "_lagging", "config", "placed", "reported_at", "rows")

    def __init__(self, config: ShardConfig, now: int, previous: LocalCuts | None = None) -> None:
        servers = [member.server for member in config.members]
        self.config = config
        reported_at = previous.reported_at if previous is not None else {}
        self.reported_at: dict[int, int] = {server: reported_at.get(server, now) for server in servers}
        self.rows = {one.id: dict.fromkeys(servers, 1) for one in config.segments if one.sealed is None}
        self.placed = dict.fromkeys(servers, 0)
        self._goal: dict[int, int] = {}
        self._goal_since = now
        self._lagging: set[int] = set()
        self._healthy_since: dict[int, int] = {}

    def add(self, report: Report, now: int) -> bool:
        """Merge a report of this shard and epoch. Returns whether any copy is durable further than before."""
        server = report.server
        if server not in self.reported_at:
            return False
        self.reported_at[server] = now
        self.placed[server] = max(self.placed[server], report.placed)
        more = False
        rows = self.rows
        for segment, end in report.ends:
            row = rows.get(segment)
            if row is not None and end > row[server]:
                row[server] = end
                more = True
        return more

    def reset_watch(self, now: int) -> None:
        """Restart the periods for silence and lag: every member counts as reported at `now`."""
        self.reported_at = dict.fromkeys(self.reported_at, now)
        self._goal_since = now

    def on_quorum(self, positions: Iterable[int]) -> int:
        """The quorum-th largest of the members' positions."""
        quorum = self.config.quorum
        if quorum == len(self.reported_at):
            return min(positions)
        return sorted(positions, reverse=True)[quorum - 1]

    def tally(self) -> ShardTally:
        """The positions that are durable on a quorum."""
        if self.config.quorum == len(self.reported_at):
            ends = tuple([(segment, min(row.values())) for segment, row in self.rows.items()])
        else:
            ends = tuple([(segment, self.on_quorum(row.values())) for segment, row in self.rows.items()])
        return ShardTally(self.config.shard, self.config.epoch, self.on_quorum(self.placed.values()), ends)

    def watch(self, now: int, suspect_after: int, straggle_after: int) -> list[Suspect | Recovered]:
        """Returns the members to suspect, and the members without an open segment that report again.

        A member lags if it is behind the position that the furthest member had `straggle_after` ns ago. A joining
        member may lag: it still copies.
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
            new_laggards = self._lagging
        else:
            new_laggards = set()
        silent = {server for server, at in self.reported_at.items() if now - at >= suspect_after}
        name = self.config.shard, self.config.epoch
        verdicts: list[Suspect | Recovered] = [
            Suspect(*name, server, server in silent) for server in sorted(silent | new_laggards)
        ]
        return verdicts + [Recovered(*name, server) for server in self._recovered(now, silent, suspect_after)]

    def _recovered(self, now: int, silent: set[int], suspect_after: int) -> list[int]:
        if self.config.state is not ShardState.LIVE:
            return []
        primaries = {one.primary for one in self.config.segments if one.sealed is None}
        idle = self.reported_at.keys() - primaries - self._lagging - silent
        self._healthy_since = {server: self._healthy_since.get(server, now) for server in sorted(idle)}
        return [server for server, since in self._healthy_since.items() if now - since >= suspect_after]


@dataclass(slots=True)
class LeafMonitor:
    """Collects the reports of many shards and suspects silent and lagging members of the shards that it is the leaf of.

    A monitor that was itself paused, or whose clock jumped, has received no reports, which proves nothing about the
    members: when a check is late, the periods of all members restart. So do those of a shard that was not checked the
    last time (`_watched`: the shards that were). `checked_at`: the time of the last check (ns).
    """

    suspect_after_ns: int
    straggle_after_ns: int
    cuts: dict[int, LocalCuts]
    checked_at: int
    _watched: set[int] = field(default_factory=set)

    def collect(self, config: ShardConfig, report: Report, now: int) -> bool:
        """Merge a report of the epoch of `config`. Returns whether any copy is durable further than before."""
        cuts = self.cuts.get(report.shard)
        if cuts is None or cuts.config.epoch != report.epoch:
            cuts = self.begin(config, now)
        return cuts.add(report, now)

    def note_alive(self, shard: int, server: int, now: int) -> None:
        """A member has sent a report, of any epoch, so it is not silent. The epoch changes at the leader first."""
        cuts = self.cuts.get(shard)
        if cuts is not None and server in cuts.reported_at:
            cuts.reported_at[server] = now

    def begin(self, config: ShardConfig, now: int) -> LocalCuts:
        """Start collecting reports of this configuration."""
        cuts = self.cuts[config.shard] = LocalCuts(config, now, self.cuts.get(config.shard))
        return cuts

    def watch(self, configs: Iterable[ShardConfig], now: int) -> list[Suspect | Recovered]:
        """Check the members of these shards. Returns the verdicts about them."""
        late = now - self.checked_at >= self.suspect_after_ns
        self.checked_at = now
        watched, self._watched = self._watched, set()
        verdicts: list[Suspect | Recovered] = []
        for config in configs:
            cuts = self.cuts.get(config.shard)
            if cuts is None or cuts.config.epoch != config.epoch:
                cuts = self.begin(config, now)
            if late or config.shard not in watched:
                cuts.reset_watch(now)
            self._watched.add(config.shard)
            verdicts += cuts.watch(now, self.suspect_after_ns, self.straggle_after_ns)
        return verdicts


@dataclass(slots=True)
class MergedShardTally:
    """Everything reported as durable on a quorum of one shard in one epoch. `ends`: by segment."""

    epoch: int
    placed: int
    ends: dict[int, int]

    def tally(self, shard: int) -> ShardTally:
        """The message for it."""
        return ShardTally(shard, self.epoch, self.placed, tuple(self.ends.items()))


class ShardTallies(dict[int, MergedShardTally]):
    """Merged tallies by shard: the newest epoch counts, and within it the largest position."""

    def merge(self, tally: ShardTally) -> bool:
        """Add a tally. Returns whether any segment is durable further than before."""
        shard, epoch, placed, ends = tally
        merged = self.get(shard)
        if merged is None or epoch > merged.epoch:
            self[shard] = MergedShardTally(epoch, placed, dict(ends))
            return any(end > 1 for _, end in ends)
        if epoch < merged.epoch:
            return False
        merged.placed = max(merged.placed, placed)
        more = False
        merged_ends = merged.ends
        for segment, end in ends:
            if end > merged_ends.get(segment, 1):
                merged_ends[segment] = end
                more = True
        return more
