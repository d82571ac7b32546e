"""Compares the decisions of the ordering layer with the disks of the storage servers.

A disk that was lost since counts as if it still had its records: the reports were true when they were made, and the
faults bound the number of lost disks.
"""

from __future__ import annotations

from typing import Any

from logdb.log.scalog.messages import Member
from logdb.log.scalog.ordering.shard_state import OrderedShard
from logdb.log.scalog.ordering.state import OrderingState
from tests.sim.process import Process


class Decisions:
    """Checks the state of the replica that has applied the most commands."""

    def __init__(self) -> None:
        self._commands = 0
        self._wipes: dict[int, int] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._members: dict[int, set[int]] = {}
        self._lacking: dict[int, dict[int, int]] = {}

    def look(self, state: OrderingState, storage: list[Process]) -> None:
        """Check the decisions of the commands since the last call."""
        if state.commands <= self._commands:
            return
        self._commands = state.commands
        at: dict[str, Any] = {process.address: process for process in storage}
        for server in state.servers.values():
            self._wipes.setdefault(server.id, at[server.address].wipes)
        for shard in state.shards.values():
            epoch, head = self._seen.get(shard.id, (shard.epoch, 0))
            if shard.head > head and shard.epoch == epoch:
                self._check_durable(shard, head, at)
            self._seen[shard.id] = shard.epoch, shard.head
            self._check_joined(shard, at)

    def _check_durable(self, shard: OrderedShard, head: int, at: dict[str, Any]) -> None:
        """Ordered records are durable on a quorum: SCA-1, SCA-7 and SCA-9 together."""
        for link in shard.links:
            for segment, first, count, _ in link.ranges if link.number > head else ():
                having = sum(not self._lacks(member, segment, first + count, at) for member in shard.members)
                assert having >= shard.quorum, (
                    f"SCA-9: segment {segment} of shard {shard.id} is ordered up to {first + count}, "
                    f"but only {having} members have it"
                )

    def _check_joined(self, shard: OrderedShard, at: dict[str, Any]) -> None:
        """A member that has finished joining has the records that were ordered when it was added (SCA-14)."""
        members = self._members.setdefault(shard.id, {member.server for member in shard.members})
        for member in shard.members:
            if member.server not in members:
                members.add(member.server)
                self._lacking[member.server] = {one.id: one.end for one in shard.segments}
            if member.server in self._lacking and member.server not in shard.joining:
                ends = self._lacking.pop(member.server)
                for segment in shard.segments:
                    end = ends.get(segment.id, 1)
                    assert segment.base >= end or not self._lacks(member, segment.id, end, at), (
                        f"SCA-14: server {member.server} has joined shard {shard.id}, "
                        f"but lacks ordered records of segment {segment.id}"
                    )

    def _lacks(self, member: Member, segment: int, end: int, at: dict[str, Any]) -> bool:
        process = at[member.address]
        if process.wipes != self._wipes[member.server]:
            return False
        journal = process.disk.journals.get(f"segment-{segment}")
        return journal is None or journal.durable < end
