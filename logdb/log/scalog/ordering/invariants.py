"""The invariants of the ordering layer's state (PROTOCOL.md): SCA-3, 4, 5, 6, 12 and 14."""

from __future__ import annotations

from dataclasses import dataclass, field

from logdb.log.requests import ShardState
from logdb.log.scalog.ordering.shard_state import OrderedShard
from logdb.log.scalog.ordering.state import OrderingState


@dataclass(slots=True)
class StateChecker:
    """Checks the states of one replica one after another. The fields are those of the last check: positions only grow,
    and sealed segments do not change."""

    commands: int = -1
    next_gsn: int = 1
    oldest: int = 1
    time: int = 0
    sealed: dict[int, int] = field(default_factory=dict)

    def check(self, state: OrderingState) -> None:
        """Raises AssertionError. Costs time in the number of servers after a command, and almost none otherwise."""
        if state.commands == self.commands:
            assert state.next_gsn == self.next_gsn, "SCA-5: the next GSN has moved, but no command was applied"
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
            _check_shard(state, shard)
        assert state.next_gsn == 1 + state.base + ordered, "SCA-4: the next GSN is not the number of records"
        self.commands, self.next_gsn, self.oldest = state.commands, state.next_gsn, state.oldest
        self.time, self.sealed = state.time, sealed


def _check_shard(state: OrderingState, shard: OrderedShard) -> None:
    assert (shard.state is ShardState.FINALIZED) <= (not shard.open), f"shard {shard.id} is finalized, but not sealed"
    assert (shard.state is ShardState.FINALIZING) == (shard.id in state.finalizing)
    assert shard.placed <= shard.head <= state.cut, f"SCA-3: shard {shard.id} has links that no cut made"
    previous = shard.links[0].previous if shard.links else shard.head
    assert previous <= shard.placed, f"SCA-3: shard {shard.id} dropped a link that no quorum has placed"
    for link in shard.links:
        assert link.previous == previous, f"SCA-3: a link of shard {shard.id} does not follow the one before it"
        previous = link.number
    assert previous == shard.head, f"SCA-3: the newest link of shard {shard.id} is missing"
    servers = [member.server for member in shard.members]
    assert set(shard.joining) <= set(servers), f"SCA-14: a joining server of shard {shard.id} is not a member"
    assert 0 < shard.quorum <= len(servers)
    assert shard.joining or not shard.replaced, f"SCA-14: shard {shard.id} has replaced servers, but no joining one"
    assert all(state.servers[member.server].shard == shard.id for member in shard.holders)
