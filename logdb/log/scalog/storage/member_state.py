"""The state that the parts of a storage server share. All parts read it; each attribute is changed by one part."""

from __future__ import annotations

from functools import partial
from random import Random

from logdb.cores.effects import Effect
from logdb.log.requests import END, ShardState
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.messages import Member, ShardConfig
from logdb.log.scalog.storage.placement_index import PlacementIndex
from logdb.log.scalog.storage.segment_replica import SegmentReplica


class MemberState:
    """The shared state of a storage server.

    `server`: its id (0: none yet). `config`: of its shard (None: a spare). `covered`: the newest GSN of the log up to
    which the chain is complete. `oldest`: the oldest readable GSN. `complete`: whether the shard is finalized and the
    chain contains all of its links. `out`: the effects of the event that is being processed.
    """

    def __init__(self, settings: StorageConfig, rng: Random) -> None:
        self.settings, self.rng = settings, rng
        self.token = self.server = 0
        self.config: ShardConfig | None = None
        self.chain = PlacementIndex()
        self.copies: dict[int, SegmentReplica] = {}
        self.covered = 0
        self.oldest = 1
        self.complete = False
        self.out: list[Effect] = []
        self.now = 0

    @property
    def number(self) -> int:
        """The number of the shard; 0 for a spare."""
        return self.config.shard if self.config else 0

    @property
    def is_draining(self) -> bool:
        """Whether clients should append to other shards."""
        return self.config is None or self.config.state is not ShardState.LIVE

    def others(self) -> list[Member]:
        """The other members."""
        return [member for member in self.config.members if member.server != self.server] if self.config else []

    def sources(self) -> list[Member]:
        """The other servers that have records of the shard: members and replaced ones. A predecessor at this server's
        address has lost its disk."""
        if self.config is None:
            return []
        own = self.settings.address
        return [one for one in self.config.holders if one.server != self.server and one.address != own]

    @property
    def is_replaced(self) -> bool:
        """Whether this server was replaced and only serves until its successor has caught up."""
        return self.config is not None and all(member.server != self.server for member in self.config.members)

    def own(self) -> SegmentReplica | None:
        """The open segment of which this server is the primary."""
        for copy in self.copies.values():
            if copy.primary == self.server and copy.sealed is None:
                return copy
        return None

    def reached(self) -> int:
        """The newest GSN for which this member can answer reads."""
        return END if self.complete else self.covered

    def gsns_of(self, segment: int, first: int, end: int) -> list[tuple[int, int]]:
        """(first GSN, count) of ordered records; -1 for GSNs that were trimmed from the chain."""
        placed = min(end, max(first, self.chain.placed_from(segment)))
        found = [(-1, placed - first)] if first < placed else []
        return found + self.chain.gsns_of(segment, placed, end) if placed < end else found

    def trim(self, oldest: int) -> None:
        """Trim records before GSN `oldest` from the chain. The sessions keep their GSNs for late requests."""
        if oldest <= self.oldest:
            return
        self.oldest = oldest
        chain = self.chain
        if chain.links_before(oldest):
            first_placed = chain.placed_after(oldest)
            for copy in self.copies.values():
                before = first_placed.get(copy.id, chain.ends.get(copy.id, 1))
                copy.sessions.fix(before, partial(self.gsns_of, copy.id))
            chain.trim(oldest)

    def restart_chain(self, trimmed: int, ends: tuple[tuple[int, int], ...]) -> None:
        """Continue the chain after link `trimmed`. The GSNs that the skipped links placed are not available here."""
        self.chain.restart(trimmed, ends)
        for copy in self.copies.values():
            copy.sessions.fix(self.chain.ends.get(copy.id, 1), partial(self.gsns_of, copy.id))

    def refresh(self) -> None:
        """Update `covered` and `complete` after a new configuration or new links."""
        if self.config is None:
            return
        ends = self.chain.ends
        self.covered = max(self.covered, self.chain.last)
        self.complete = self.config.state is ShardState.FINALIZED and all(
            copy.sealed == ends.get(copy.id, 1) for copy in self.copies.values()
        )
