"""The log as a client sees it: the newest view, and what it learned about servers by talking to them."""

from __future__ import annotations

from logdb.cores.effects import Address
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import Segment, ShardConfig, View

SELDOM = 7
"""Servers that were replaced are asked every so many turns."""


class Directory:
    """The newest view that has come, and indexes over it.

    `oldest`: the oldest readable GSN, as far as anybody has told. `leaving`: shards that said themselves that they are
    being finalized, before a view did. A view is only ever replaced by a newer one.
    """

    def __init__(self) -> None:
        self.view: View | None = None
        self.oldest = 1
        self.leaving: set[int] = set()
        self.shards: dict[int, ShardConfig] = {}
        self._ended: set[int] = set()
        self._segments: dict[int, tuple[Segment, ShardConfig]] = {}
        self._addresses: dict[int, Address] = {}
        self._open: dict[int, tuple[int, ...]] = {}
        self._welcome: list[int] = []
        self._everywhere: list[int] = []
        self._round_trips: dict[int, int] = {}

    @property
    def version(self) -> int:
        return self.view.version if self.view is not None else 0

    def adopt(self, view: View) -> bool:
        """Take a view, if it is newer."""
        if self.view is not None and view.version <= self.view.version:
            return False
        self.view = view
        self.trimmed(view.oldest)
        self.shards = {config.shard: config for config in view.shards}
        self._segments = {segment.id: (segment, config) for config in view.shards for segment in config.segments}
        self._addresses = {member.server: member.address for config in view.shards for member in config.holders}
        self.leaving &= self.shards.keys()
        self._ended &= self._segments.keys()
        self._round_trips = {server: time for server, time in self._round_trips.items() if server in self._addresses}
        self._choose()
        return True

    def ends(self, segment: int) -> None:
        """Somebody says that a segment is sealed, before a view does."""
        if self.takes_appends(segment):
            self._ended.add(segment)
            self._choose()

    def trimmed(self, oldest: int) -> None:
        """Somebody says that this is the oldest readable GSN."""
        self.oldest = max(self.oldest, oldest)

    def leaves(self, shard: int) -> bool:
        """A shard says that it is being finalized. True if that is news."""
        if shard in self.leaving or shard not in self.shards or self.shards[shard].state is not ShardState.LIVE:
            return False
        self.leaving.add(shard)
        self._choose()
        return True

    def _choose(self) -> None:
        """Which segments take appends, and which shards are to get new ones."""
        self._open = {
            config.shard: tuple(segment.id for segment in config.segments if self.takes_appends(segment.id))
            for config in self.shards.values()
        }
        self._welcome = sorted(
            shard
            for shard, segments in self._open.items()
            if segments and self.shards[shard].state is ShardState.LIVE and shard not in self.leaving
        )
        self._everywhere = [segment for shard in self._welcome for segment in self._open[shard]]

    # ---- where appends may go

    def everywhere(self) -> list[int]:
        """The segments of all shards that are to get new appends."""
        return self._everywhere

    def instead_of(self, shard: int) -> tuple[int, ...]:
        """The segments of that shard, if it is to get new appends, else of the next one that is."""
        if not self._welcome:
            return ()
        return self._open[next((live for live in self._welcome if live >= shard), self._welcome[0])]

    def of(self, shard: int) -> tuple[int, ...]:
        """The segments of that very shard that take appends."""
        return self._open.get(shard, ())

    def takes_appends(self, segment: int) -> bool:
        """Whether appends to it may be ordered, as far as anybody has told."""
        entry = self._segments.get(segment)
        if entry is None or segment in self._ended:
            return False
        return entry[0].sealed is None and entry[1].state is not ShardState.FINALIZED

    def shard_of(self, segment: int) -> ShardConfig | None:
        """The shard of a segment; None if it is in this view no more."""
        entry = self._segments.get(segment)
        return entry[1] if entry is not None else None

    def primary(self, segment: int) -> tuple[int, Address] | None:
        """The server that takes appends to a segment, and where it is."""
        entry = self._segments.get(segment)
        if entry is None or entry[0].primary not in self._addresses:
            return None
        return entry[0].primary, self._addresses[entry[0].primary]

    def member(self, shard: int, turn: int) -> Address | None:
        """Who has records of a shard: all of them, turn by turn; those that were replaced seldom, for most are down."""
        config = self.shards.get(shard)
        if config is None or not config.members:
            return None
        if config.replaced and turn % SELDOM == SELDOM - 1:
            return config.replaced[turn // SELDOM % len(config.replaced)].address
        return config.members[turn % len(config.members)].address

    def turns(self, config: ShardConfig) -> int:
        """So many turns of `member` go round once."""
        return max(SELDOM * len(config.replaced), 2 * len(config.members) if config.replaced else len(config.members))

    def has_existed(self, shard: int) -> bool:
        """Whether there is, or was, such a shard by this view."""
        return self.view is not None and 1 <= shard < self.view.next_shard

    # ---- how far the servers are

    def measured(self, server: int, time: int) -> None:
        """A round trip to a server took so long (ns)."""
        smooth = self._round_trips.get(server)
        self._round_trips[server] = time if smooth is None else smooth + (time - smooth) // 8

    def round_trip(self, segment: int) -> int:
        """The smoothed round trip to the primary of a segment, in ns; 0 if it was not measured yet."""
        return self._round_trips.get(self._segments[segment][0].primary, 0)
