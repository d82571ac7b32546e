"""Tracks the aggregator that collects a storage server's reports, and the leader of the ordering layer.

A member without a message from its aggregator for a long time cannot know whether there is anything new. It then also
reports to the ordering layer, and reports the aggregator only if the ordering layer has news that the aggregator has
not forwarded.
"""

from __future__ import annotations

from logdb.cores.effects import Address, Send
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import SuspectAggregator
from logdb.log.scalog.storage.member_state import MemberState


class UpstreamTracker:
    """The times of the last messages. The replica that sent the last one is taken for the leader. When it is silent,
    messages go to all replicas, early enough for a partitioned leader to get forwarded ones before it suspects this
    server."""

    def __init__(self, shard: MemberState) -> None:
        self._shard = shard
        self._leader: Address = ""
        self._leader_seen_at = self._parent_seen_at = self._suspected = 0

    def start(self) -> None:
        """Start all periods now."""
        self._leader_seen_at = self._parent_seen_at = self._shard.now

    def restart_parent(self) -> None:
        """Start the period of the aggregator now: the configuration names another one, or this server was paused."""
        self._parent_seen_at = self._shard.now

    def on_message(self, sender: Address) -> None:
        """Note a message of the aggregator or of an ordering replica."""
        shard = self._shard
        if shard.config is not None and sender == shard.config.reports_to:
            self._parent_seen_at = shard.now
        if sender in shard.settings.ordering:
            self._leader, self._leader_seen_at = sender, shard.now

    def last_message_at(self) -> int:
        """The time of the last message from the sender of this server's updates (ns)."""
        config = self._shard.config
        return self._parent_seen_at if config and config.reports_to else self._leader_seen_at

    def is_parent_silent(self) -> bool:
        """Whether the aggregator has sent nothing for `suspect_after_ns`."""
        return self._shard.now >= self._parent_seen_at + self._shard.settings.suspect_after_ns

    def send(self, *messages: object) -> None:
        """Send messages to the leader, or to all replicas of the ordering layer if the leader is silent."""
        shard = self._shard
        is_current = self._leader and shard.now < self._leader_seen_at + shard.settings.suspect_after_ns // 2
        for address in (self._leader,) if is_current else shard.settings.ordering:
            for message in messages:
                shard.out.append(Send(address, message))

    def report_aggregator(self) -> None:
        """Report the aggregator if it has been silent although the ordering layer has news."""
        shard = self._shard
        if shard.config is None or not shard.config.reports_to or not self.is_parent_silent():
            return
        if shard.config.state is ShardState.FINALIZED:
            return  # it forwards nothing to such a shard
        if shard.now >= self._suspected + shard.settings.suspect_after_ns:
            self._suspected = shard.now
            self.send(SuspectAggregator(shard.config.reports_to))
