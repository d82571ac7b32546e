"""What the ordering layer knows of one shard: who holds it, how far its segments are ordered, which links it keeps.

Everything here is part of the replicated state: it changes only when a command is applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from logdb.cores.effects import Address, ProtocolViolation
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import Member, Range, Segment, ShardConfig, ShardCut, Update

MARKS = 16


@dataclass(slots=True)
class OrderedSegment:
    """A segment, as far as it is ordered. `end`: the LSN after the last record that has a GSN.

    `left`: the log's next GSN when the segment was sealed; 0 while it is open. `marks`: some (GSN, LSN) of first
    records of cuts: everything before that LSN has a GSN before that one. There are at most `MARKS`: when they are full
    every second one goes, and from then on they are twice as far apart (`stride`, in records). So a trim finds a base
    for the segment, no more than an eighth of the segment behind the right one, though no cut is remembered.
    """

    id: int
    primary: int
    base: int = 1
    end: int = 1
    sealed: int | None = None
    left: int = 0
    stride: int = 1
    marks: list[tuple[int, int]] = field(default_factory=list)

    def mark(self, gsn: int) -> None:
        """The next record to be ordered gets this GSN."""
        if len(self.marks) == MARKS:
            del self.marks[1::2]
            self.stride *= 2
        self.marks.append((gsn, self.end))

    def trim(self, oldest: int) -> bool:
        """Move the base towards the first record that can be read. Returns whether it moved."""
        before = self.base
        while self.marks and self.marks[0][0] <= oldest:
            self.base = max(self.base, self.marks.pop(0)[1])
        return self.base > before


@dataclass(slots=True)
class OrderedShard:
    """One shard. `everyone`: its quorum is all members; otherwise `quorum` of them.

    `segments` stand in the order in which cuts order them: (primary, segment); `open` are those that are not sealed.
    `head`: the number of the newest link; `placed`: the last one that a quorum is known to hold; `links`: those after
    it. `replaced`: former members that stay while another one is `joining`. `grace`: cuts until a finalizing shard is
    finalized. `left`: the log's next GSN when it was.
    """

    id: int
    quorum: int
    everyone: bool
    members: tuple[Member, ...]
    segments: list[OrderedSegment]
    reports_to: Address = ""
    epoch: int = 1
    state: ShardState = ShardState.LIVE
    joining: tuple[int, ...] = ()
    replaced: tuple[Member, ...] = ()
    head: int = 0
    placed: int = 0
    links: deque[ShardCut] = field(default_factory=deque)
    grace: int = 0
    left: int = 0
    open: list[OrderedSegment] = field(init=False)
    _config: ShardConfig | None = field(init=False, default=None, compare=False)

    def __post_init__(self) -> None:
        self.changed()
        self.epoch -= 1

    def changed(self) -> None:
        """Something of the configuration has changed: this is another epoch."""
        self.epoch += 1
        self.segments.sort(key=lambda segment: (segment.primary, segment.id))
        self.open = [segment for segment in self.segments if segment.sealed is None]
        if self.everyone:
            self.quorum = len(self.members)
        self._config = None

    def config(self) -> ShardConfig:
        """The configuration, as it is sent."""
        if self._config is None:
            segments = (Segment(one.id, one.primary, one.base, one.sealed) for one in self.segments)
            self._config = ShardConfig(
                self.id,
                self.epoch,
                self.state,
                self.quorum,
                self.members,
                tuple(segments),
                self.reports_to,
                self.joining,
                self.replaced,
            )
        return self._config

    @property
    def holders(self) -> tuple[Member, ...]:
        """All servers that have records of the shard."""
        return self.members + self.replaced

    def member(self, server: int) -> Member | None:
        """The member of this id."""
        return next((member for member in self.members if member.server == server), None)

    def open_segment_of(self, server: int) -> OrderedSegment | None:
        """The segment that this member may append to."""
        return next((segment for segment in self.open if segment.primary == server), None)

    def order(self, pairs: Sequence[int], at: int, until: int, number: int, time: int, next_gsn: int) -> int:
        """Order, as cut `number`, up to the ends in `pairs` (segment, end, segment, end, ...) from `at` to `until`.

        Returns the next GSN. Ends are absolute, so what an earlier cut has ordered adds nothing. The pairs are in the
        order of `open`, for the epoch is the same; so none is of a sealed segment (SCA-6).
        """
        ranges = []
        for segment in self.open:
            if at == until:
                break
            if pairs[at] != segment.id:
                continue
            first, end = segment.end, pairs[at + 1]
            at += 2
            if end > first:
                if not segment.marks or first - segment.marks[-1][1] >= segment.stride:
                    segment.mark(next_gsn)
                ranges.append(Range(segment.id, first, end - first, next_gsn))
                next_gsn += end - first
                segment.end = end
        if at != until:
            raise ProtocolViolation(f"SCA-6, SCA-7: shard {self.id} has no open segment {pairs[at]} there")
        if ranges:
            self.links.append(ShardCut(number, self.head, time, tuple(ranges)))
            self.head = number
        return next_gsn

    def place(self, placed: int) -> None:
        """A quorum has the links up to number `placed`: they need not be kept here."""
        if placed > self.head:
            raise ProtocolViolation(f"SCA-3: shard {self.id} has placed link {placed}, but {self.head} is the newest")
        self.placed = placed
        while self.links and self.links[0].number <= placed:
            self.links.popleft()

    def seal(self, segment: OrderedSegment, next_gsn: int) -> int:
        """End a segment where it is ordered; `changed` is to follow. Returns the records to fold into the base."""
        if segment.sealed is not None:
            raise ProtocolViolation(f"SCA-6: segment {segment.id} is sealed at {segment.sealed} already")
        segment.sealed, segment.left = segment.end, next_gsn
        return segment.end - 1

    def update(self, after: int, last: int, oldest: int, epoch: int = 0) -> Update:
        """All that is new after link `after` and configuration `epoch`."""
        links = tuple(link for link in self.links if link.number > after)
        config = None if epoch == self.epoch else self.config()
        return Update(self.id, self.epoch, config, links, self.head, last, oldest)

    def to_json(self) -> dict[str, Any]:
        """For a snapshot."""
        saved = {name: getattr(self, name) for name in _SAVED}
        saved["state"] = self.state.value
        saved["segments"] = [[getattr(one, name) for name in OrderedSegment.__slots__] for one in self.segments]
        saved["links"] = list(self.links)
        return saved

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> OrderedShard:
        """The inverse of `to_json`."""
        segments = [OrderedSegment(*one) for one in saved["segments"]]
        for segment in segments:
            segment.marks = [(gsn, lsn) for gsn, lsn in segment.marks]
        links = [ShardCut(*one) for one in saved["links"]]
        read = {
            "members": tuple(Member(*one) for one in saved["members"]),
            "segments": segments,
            "state": ShardState(saved["state"]),
            "joining": tuple(saved["joining"]),
            "replaced": tuple(Member(*one) for one in saved.get("replaced", ())),
            "links": deque(link._replace(ranges=tuple(Range(*one) for one in link.ranges)) for link in links),
        }
        return cls(**(saved | read))


_SAVED = tuple(name for name in OrderedShard.__slots__ if name not in ("open", "_config"))
