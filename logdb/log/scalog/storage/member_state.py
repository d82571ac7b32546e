"""What a member knows of its shard. All parts of the storage server read it; each changes what is its own."""

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
    """The state of a storage server that its parts share.

    `server`: its id (0: none yet). `config`: of its shard (None: a spare). `known`: the newest GSN of the log up to
    which the chain says everything. `oldest`: the oldest readable GSN. `complete`: the shard is finalized and the chain
    has all of it. `out`: effects of the event that is being handled.
    """

    def __init__(self, settings: StorageConfig, rng: Random) -> None:
        self.settings, self.rng = settings, rng
        self.token = self.server = 0
        self.config: ShardConfig | None = None
        self.chain = PlacementIndex()
        self.copies: dict[int, SegmentReplica] = {}
        self.known = 0
        self.oldest = 1
        self.complete = False
        self.out: list[Effect] = []
        self.now = 0

    @property
    def number(self) -> int:
        """The shard's; 0: none."""
        return self.config.shard if self.config else 0

    @property
    def leaving(self) -> bool:
        """Whether clients should go elsewhere."""
        return self.config is None or self.config.state is not ShardState.LIVE

    def others(self) -> list[Member]:
        """The other members."""
        return [member for member in self.config.members if member.server != self.server] if self.config else []

    def sources(self) -> list[Member]:
        """Whoever else has records of the shard."""
        return [member for member in self.config.holders if member.server != self.server] if self.config else []

    @property
    def is_replaced(self) -> bool:
        """Whether this server only keeps what it has, until its successor has it."""
        return self.config is not None and all(member.server != self.server for member in self.config.members)

    def own(self) -> SegmentReplica | None:
        """The segment that this server appends to."""
        for copy in self.copies.values():
            if copy.primary == self.server and copy.sealed is None:
                return copy
        return None

    def reached(self) -> int:
        """The newest GSN about which this member can answer."""
        return END if self.complete else self.known

    def gsns_of(self, segment: int, first: int, end: int) -> list[tuple[int, int]]:
        """(first GSN, count) of ordered records; -1 for a GSN that the chain does not know any more."""
        known = min(end, max(first, self.chain.placed_from(segment)))
        found = [(-1, known - first)] if first < known else []
        return found + self.chain.gsns_of(segment, known, end) if known < end else found

    def trim(self, oldest: int) -> None:
        """What is before GSN `oldest` can be read no more. What clients may yet ask about it, sessions keep."""
        if oldest <= self.oldest:
            return
        self.oldest = oldest
        chain = self.chain
        if chain.links_before(oldest):
            kept = chain.placed_after(oldest)
            for copy in self.copies.values():
                before = kept.get(copy.id, chain.ends.get(copy.id, 1))
                copy.sessions.fix(before, partial(self.gsns_of, copy.id))
            chain.trim(oldest)

    def restart_chain(self, trimmed: int, ends: tuple[tuple[int, int], ...]) -> None:
        """Go on behind link `trimmed`. Which GSNs records had that links in between placed, others know."""
        self.chain.restart(trimmed, ends)
        for copy in self.copies.values():
            copy.sessions.fix(self.chain.ends.get(copy.id, 1), partial(self.gsns_of, copy.id))

    def refresh(self) -> None:
        """Draw the conclusions of a new configuration or new links."""
        if self.config is None:
            return
        ends = self.chain.ends
        self.known = max(self.known, self.chain.last)
        self.complete = self.config.state is ShardState.FINALIZED and all(
            copy.sealed == ends.get(copy.id, 1) for copy in self.copies.values()
        )
