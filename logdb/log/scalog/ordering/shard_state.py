"""The ordering layer's state of one shard: its members, the ordered ends of its segments, the links that it keeps.

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

MAX_MARKS = 16
"""Maximum number of marks of a segment."""


@dataclass(slots=True)
class OrderedSegment:
    """The ordered part of a segment. `end`: the LSN after the last record that has a GSN.

    `left`: the log's next GSN when the segment was sealed; 0 while it is open. `marks`: (GSN, LSN) of some records that
    were the first of a cut: every record before that LSN has a smaller GSN. When `MAX_MARKS` are reached, every second
    mark is removed, and new ones are twice as far apart (`stride`, in records). So a trim finds a base that is at most
    an eighth of the segment too small, although the cuts are not kept.
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
        """Add a mark: the next record to be ordered gets this GSN."""
        if len(self.marks) == MAX_MARKS:
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
    """One shard. `everyone`: whether its quorum is all members.

    `segments`: in the order in which cuts order them: (primary, segment). `open`: those that are not sealed. `head`:
    the number of the newest link; `placed`: the last link that a quorum has durably; `links`: those after it.
    `replaced`: former members that serve while another one is `joining`. `grace`: number of cuts until a finalizing
    shard is finalized. `left`: the log's next GSN when it was finalized. A snapshot contains the fields under these
    names.
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
        """Start a new epoch after a change of the configuration."""
        self.epoch += 1
        self.segments.sort(key=lambda segment: (segment.primary, segment.id))
        self.open = [segment for segment in self.segments if segment.sealed is None]
        if self.everyone:
            self.quorum = len(self.members)
        self._config = None

    def config(self) -> ShardConfig:
        """The configuration, as it is sent to servers and clients."""
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
        """The member with this id, if there is one."""
        return next((member for member in self.members if member.server == server), None)

    def open_segment_of(self, server: int) -> OrderedSegment | None:
        """The segment that this member may append to."""
        return next((segment for segment in self.open if segment.primary == server), None)

    def order(self, pairs: Sequence[int], at: int, until: int, number: int, time: int, next_gsn: int) -> int:
        """Order, as cut `number`, up to the ends in `pairs` (segment, end, segment, end, ...) from `at` to `until`.

        Returns the next GSN. Ends are absolute, so records that an earlier cut has ordered are not ordered again. The
        pairs are in the order of `open`, because the epoch is the same; so no pair is of a sealed segment (SCA-6).
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
            raise ProtocolViolation(f"SCA-6, SCA-7: segment {pairs[at]} is not the next open one of shard {self.id}")
        if ranges:
            self.links.append(ShardCut(number, self.head, time, tuple(ranges)))
            self.head = number
        return next_gsn

    def place(self, placed: int) -> None:
        """Drop the links up to number `placed`, which a quorum of the shard has durably."""
        if placed > self.head:
            raise ProtocolViolation(f"SCA-3: shard {self.id} has placed link {placed}, but {self.head} is the newest")
        self.placed = placed
        while self.links and self.links[0].number <= placed:
            self.links.popleft()

    def seal(self, segment: OrderedSegment, next_gsn: int) -> int:
        """Seal a segment at its ordered end; the caller calls `changed`. Returns the number of its ordered records."""
        if segment.sealed is not None:
            raise ProtocolViolation(f"SCA-6: segment {segment.id} is sealed at {segment.sealed} already")
        segment.sealed, segment.left = segment.end, next_gsn
        return segment.end - 1

    def update(self, after: int, last: int, oldest: int, epoch: int = 0) -> Update:
        """The links after number `after`, and the configuration unless it is of `epoch`."""
        links = tuple(link for link in self.links if link.number > after)
        config = None if epoch == self.epoch else self.config()
        return Update(self.id, self.epoch, config, links, self.head, last, oldest)

    def to_json(self) -> dict[str, Any]:
        """The shard for a snapshot."""
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
