"""Whom a storage server talks to above it: the aggregator that collects its reports, and the ordering layer.

A member that has heard nothing from its aggregator for long does not know whether anything has happened. It then talks
to the ordering layer as well, and accuses the aggregator only when there was news that it has not brought.
"""

from __future__ import annotations

from logdb.cores.effects import Address, Send
from logdb.log.scalog.messages import SuspectAggregator
from logdb.log.scalog.storage.member_state import MemberState


class UpstreamTracker:
    """Who was heard when. The leader of the ordering layer is who was heard last. When it is silent all are told, early
    enough that a leader which is cut off hears by the others before it suspects this server."""

    def __init__(self, shard: MemberState) -> None:
        self._shard = shard
        self._leader: Address = ""
        self._leader_heard_at = self._parent_heard = self._suspected = 0

    def begin(self) -> None:
        """Everybody gets the time that answers take."""
        self._leader_heard_at = self._parent_heard = self._shard.now

    def new_parent(self) -> None:
        """Reports go to another aggregator from now on."""
        self._parent_heard = self._shard.now

    def hear(self, sender: Address) -> None:
        """Somebody has sent news."""
        shard = self._shard
        if shard.config is not None and sender == shard.config.reports_to:
            self._parent_heard = shard.now
        if sender in shard.settings.ordering:
            self._leader, self._leader_heard_at = sender, shard.now

    def heard(self) -> int:
        """When whoever sends this server its news was heard."""
        config = self._shard.config
        return self._parent_heard if config and config.reports_to else self._leader_heard_at

    def is_parent_silent(self) -> bool:
        """Whether the aggregator has said nothing for long."""
        return self._shard.now >= self._parent_heard + self._shard.settings.suspect_after_ns

    def tell(self, *messages: object) -> None:
        """Send messages to the leader, or to all replicas of the ordering layer if it has not been heard of late."""
        shard = self._shard
        known = self._leader and shard.now < self._leader_heard_at + shard.settings.suspect_after_ns // 2
        for address in (self._leader,) if known else shard.settings.ordering:
            for message in messages:
                shard.out.append(Send(address, message))

    def report_aggregator(self) -> None:
        """The ordering layer had news: if the aggregator has been silent, it should have brought them."""
        shard = self._shard
        if shard.config is None or not shard.config.reports_to or not self.is_parent_silent():
            return
        if shard.now >= self._suspected + shard.settings.suspect_after_ns:
            self._suspected = shard.now
            self.tell(SuspectAggregator(shard.config.reports_to))
