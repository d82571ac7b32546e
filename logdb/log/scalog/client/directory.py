"""The log's configuration at a client: the newest view, and what messages of servers have added to it."""

from __future__ import annotations

from collections.abc import Collection

from logdb.cores.effects import Address
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import Segment, ShardConfig, View

REPLACED_PERIOD = 7
"""Requests to replaced servers are sent once in this number of turns: most of them are down."""


class Directory:
    """The newest view that was received, and indexes over it. A view is only replaced by a newer one.

    `oldest`: the largest oldest readable GSN in any message. `draining`: shards that are being finalized according to
    their members, but not yet in the view.
    """

    def __init__(self) -> None:
        self.view: View | None = None
        self.oldest = 1
        self.draining: set[int] = set()
        self.shards: dict[int, ShardConfig] = {}
        self._sealed: set[int] = set()
        self._segments: dict[int, tuple[Segment, ShardConfig]] = {}
        self._addresses: dict[int, Address] = {}
        self._open: dict[int, tuple[int, ...]] = {}
        self._preferred: list[int] = []
        self._everywhere: list[int] = []
        self._round_trips: dict[int, int] = {}

    @property
    def version(self) -> int:
        return self.view.version if self.view is not None else 0

    def adopt(self, view: View) -> bool:
        """Adopt a view if it is newer. Returns whether it is."""
        if self.view is not None and view.version <= self.view.version:
            return False
        self.view = view
        self.advance_oldest(view.oldest)
        self.shards = {config.shard: config for config in view.shards}
        self._segments = {segment.id: (segment, config) for config in view.shards for segment in config.segments}
        self._addresses = {member.server: member.address for config in view.shards for member in config.holders}
        self.draining &= self.shards.keys()
        self._sealed &= self._segments.keys()
        self._round_trips = {server: time for server, time in self._round_trips.items() if server in self._addresses}
        self._choose()
        return True

    def mark_sealed(self, segment: int) -> None:
        """A server has reported that a segment is sealed."""
        if self.accepts_appends(segment):
            self._sealed.add(segment)
            self._choose()

    def advance_oldest(self, oldest: int) -> None:
        """A server has reported this oldest readable GSN."""
        self.oldest = max(self.oldest, oldest)

    def mark_draining(self, shard: int) -> bool:
        """A member has reported that its shard is being finalized. Returns whether that is new."""
        if shard in self.draining or shard not in self.shards or self.shards[shard].state is not ShardState.LIVE:
            return False
        self.draining.add(shard)
        self._choose()
        return True

    def _choose(self) -> None:
        """Compute which segments accept appends, and which shards are preferred for new ones."""
        self._open = {
            config.shard: tuple(segment.id for segment in config.segments if self.accepts_appends(segment.id))
            for config in self.shards.values()
        }
        self._preferred = sorted(
            shard
            for shard, segments in self._open.items()
            if segments and self.shards[shard].state is ShardState.LIVE and shard not in self.draining
        )
        self._everywhere = [segment for shard in self._preferred for segment in self._open[shard]]

    # ---- where appends may go

    def everywhere(self) -> list[int]:
        """The segments of all shards that are preferred for new appends."""
        return self._everywhere

    def at_or_after(self, shard: int) -> tuple[int, ...]:
        """The segments of this shard if it is preferred for new appends, else of the next one that is."""
        if not self._preferred:
            return ()
        return self._open[next((live for live in self._preferred if live >= shard), self._preferred[0])]

    def of(self, shard: int) -> tuple[int, ...]:
        """The segments of exactly this shard that accept appends."""
        return self._open.get(shard, ())

    def accepts_appends(self, segment: int) -> bool:
        """Whether a segment accepts appends, according to the view and to messages of servers."""
        entry = self._segments.get(segment)
        if entry is None or segment in self._sealed:
            return False
        return entry[0].sealed is None and entry[1].state is not ShardState.FINALIZED

    def shard_of(self, segment: int) -> ShardConfig | None:
        """The shard of a segment; None if the view does not contain it."""
        entry = self._segments.get(segment)
        return entry[1] if entry is not None else None

    def primary(self, segment: int) -> tuple[int, Address] | None:
        """The id and the address of a segment's primary, if the view contains it."""
        entry = self._segments.get(segment)
        if entry is None or entry[0].primary not in self._addresses:
            return None
        return entry[0].primary, self._addresses[entry[0].primary]

    def member(self, shard: int, turn: int) -> Address | None:
        """The server of a shard to send a request to in this turn. Turns rotate over the members; every
        `REPLACED_PERIOD`-th one goes to a replaced server."""
        config = self.shards.get(shard)
        if config is None or not config.members:
            return None
        if config.replaced and turn % REPLACED_PERIOD == REPLACED_PERIOD - 1:
            return config.replaced[turn // REPLACED_PERIOD % len(config.replaced)].address
        return config.members[turn % len(config.members)].address

    def neighbour(self, shard: int, neighbours: Collection[Address]) -> Address | None:
        """The member of a shard among these addresses, if it has all records."""
        config = self.shards.get(shard)
        if config is None or not neighbours:
            return None
        members = [one.address for one in config.members if one.server not in config.joining]
        return next((address for address in members if address in neighbours), None)

    def rotation(self, config: ShardConfig) -> int:
        """Number of turns after which `member` has returned every server of the shard."""
        members, replaced = len(config.members), len(config.replaced)
        return max(REPLACED_PERIOD * replaced, 2 * members if replaced else members)

    def has_existed(self, shard: int) -> bool:
        """Whether the shard exists, or existed, in this view."""
        return self.view is not None and 1 <= shard < self.view.next_shard

    # ---- round trips

    def add_round_trip(self, server: int, time: int) -> None:
        """Add the measured time of a round trip to a server (ns)."""
        smooth = self._round_trips.get(server)
        self._round_trips[server] = time if smooth is None else smooth + (time - smooth) // 8

    def round_trip(self, segment: int) -> int:
        """The smoothed round trip to the primary of a segment, in ns; 0 if it was not measured yet."""
        return self._round_trips.get(self._segments[segment][0].primary, 0)
